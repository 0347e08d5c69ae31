# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The IR of a case, and the arguments to run it on."""

import zlib
from types import SimpleNamespace

import numpy as np

from .reference import ACCUMULATOR, round_to
from .variants import has_sink, parts_of

MLIR_INT = "i32"


def shape_of(case):
    """The sizes and the type that parts and the reference look at."""
    return SimpleNamespace(b=case.b, hq=case.hq, hkv=case.hkv, sq=case.sq, sk=case.sk, d=case.d,
                           dv=case.dv or case.d, dtype=case.dtype)


def _tensor(dims, element):
    return "tensor<" + "".join(f"{x}x" for x in dims) + element + ">"


def make_captures(shape, parts, rng):
    """Per part: the values of its captures, rounded to what the IR declares."""
    result = []
    for part in parts:
        values = {}
        for name, make in part.captures.items():
            value = np.asarray(make(shape, rng))
            if value.dtype.kind == "f":
                kind = shape.dtype if name in part.narrow else ("f64" if shape.dtype == "f64" else "f32")
                value = round_to(kind, value)
            else:
                value = value.astype(np.int32)
            values[name] = value
        result.append(values)
    return result


def make_data(case, shape, rng):
    """Q, K, V and the scale."""
    q = rng.standard_normal((shape.b, shape.hq, shape.sq, shape.d))
    k = rng.standard_normal((shape.b, shape.hkv, shape.sk, shape.d))
    v = rng.standard_normal((shape.b, shape.hkv, shape.sk, shape.dv))
    if case.data == "wide":
        k, v = 3 * k, 3 * v
    elif case.data == "low":
        # q.k / sqrt(d) = -120 and a little noise.
        level = np.sqrt(120 / np.sqrt(shape.d))
        q, k = level + 0.05 * q, -level + 0.05 * k
    if case.scale == "attribute":
        scale = 0.25
    elif case.scale == "operand":
        scale = 0.1875
    else:
        scale = 1 / np.sqrt(shape.d)
    return [round_to(shape.dtype, x) for x in (q, k, v)], scale


def inputs_of(case):
    """(parts, captures, [q, k, v], scale, sink), from a seed of the case's name."""
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    shape, parts = shape_of(case), parts_of(case.variant)
    data, scale = make_data(case, shape, rng)
    captures = make_captures(shape, parts, rng)
    sink = None
    if has_sink(case.variant):
        sink = rng.standard_normal(shape.hq).astype(ACCUMULATOR[shape.dtype])
        if case.data == "low":
            sink = sink - sink.dtype.type(120)
    return shape, parts, captures, data, scale, sink


def gradient_names(case, captures, order):
    """What the results of the gradient function are the gradients of; see
    Backward.results."""
    names = ["q", "k", "v"] + [key for key in order if captures[key[0]][key[1]].dtype.kind == "f"]
    if has_sink(case.variant):
        names.append("sink")
    if case.scale == "operand":
        names.append("scale")
    return names


def incoming_of(case, shape, lives):
    """dO and dLSE; in rows without keys dO is by turns infinite, NaN in one element, large, and as elsewhere."""
    rng = np.random.default_rng(zlib.crc32((case.name + "/incoming").encode()))
    do = round_to(shape.dtype, rng.standard_normal((shape.b, shape.hq, shape.sq, shape.dv)))
    dlse = rng.standard_normal((shape.b, shape.hq, shape.sq)).astype(ACCUMULATOR[shape.dtype])
    dead = do[~lives]
    turn = np.arange(len(dead)) % 4
    dead[turn == 0] = np.inf
    dead[turn == 1, -1] = np.nan
    dead[turn == 2] = 3e4
    do[~lives] = dead
    return do, dlse if case.lse else None


def _region(kind, parts, accumulator, element, arguments):
    """The text of the score or mask region, or nothing."""
    chosen = [(number, part) for number, part in enumerate(parts) if part.kind == kind]
    if not chosen:
        return ""
    head = "%b: index, %h: index, %i: index, %j: index" + "".join(f", {a}" for a in arguments)
    lines, value = [], "%s"
    if kind == "score":
        head = f"%s: {accumulator}, {head}"
    widen = ("$v = arith.addf $e, $zero : {E}" if accumulator == element
             else "$v = arith.extf $e : {E} to {T}")
    if accumulator == element:
        widen = "$zero = arith.constant 0.0 : {E}\n" + widen
    for position, (number, part) in enumerate(chosen):
        body = part.body.replace("{widen}", widen).replace("{T}", accumulator)
        body = body.replace("{E}", element).replace("%in", value)
        for length in part.lengths:
            body = body.replace(f"${length}", f"%{length}")
        body = body.replace("$", f"%p{number}_")
        lines += [line.strip() for line in body.strip().splitlines()]
        out = f"%p{number}_out"
        if kind == "score" or position == 0:
            value = out
        else:
            lines.append(f"%and{number} = arith.andi {value}, {out} : i1")
            value = f"%and{number}"
    result = accumulator if kind == "score" else "i1"
    text = "".join(f"      {line}\n" for line in lines)
    return f"    {kind} {{\n    ^bb0({head}):\n{text}      attn.yield {value} : {result}\n    }}\n"


def module_of(case, captures):
    """The module's text, and the function's arguments as (part, capture name)."""
    shape, parts = shape_of(case), parts_of(case.variant)
    element, accumulator = shape.dtype, "f64" if shape.dtype == "f64" else "f32"

    def dims(*sizes):
        fixed = len(sizes) - 1 if len(sizes) == 4 else len(sizes)
        return [x if case.static or n >= fixed else "?" for n, x in enumerate(sizes)]

    def with_queries(sizes):
        return sizes[:2] + [shape.sq] + sizes[3:] if case.known_queries else sizes

    q = _tensor(with_queries(dims(shape.b, shape.hq, shape.sq, shape.d)), element)
    k = _tensor(dims(shape.b, shape.hkv, shape.sk, shape.d), element)
    v = _tensor(dims(shape.b, shape.hkv, shape.sk, shape.dv), element)
    o = _tensor(with_queries(dims(shape.b, shape.hq, shape.sq, shape.dv)), element)
    l = _tensor(with_queries(dims(shape.b, shape.hq, shape.sq)), accumulator)
    arguments, order = [f"%q: {q}", f"%k: {k}", f"%v: {v}"], []
    operands, region = [], []
    for number, (part, values) in enumerate(zip(parts, captures)):
        for name, value in values.items():
            if value.dtype.kind == "f":
                kind = element if name in part.narrow else accumulator
            else:
                kind = MLIR_INT
            sizes = ["?"] * value.ndim
            if part.name == "t5":
                sizes[1] = 32
            type_ = kind if name in part.scalars else _tensor(sizes, kind)
            argument = f"%p{number}_{name}: {type_}"
            arguments.append(f"%f{argument[1:]}")
            operands.append((f"%fp{number}_{name}", type_))
            region.append(argument)
            order.append((number, name))
    lengths = sorted({length for part in parts for length in part.lengths})
    for length in lengths:
        operands.append((f"%f{length}", "index"))
        region.append(f"%{length}: index")
    if has_sink(case.variant):
        arguments.append(f"%sink: tensor<?x{accumulator}>")
    prologue = ""
    if lengths:
        prologue += "  %two = arith.constant 2 : index\n"
        prologue += f"  %fsq = tensor.dim %q, %two : {q}\n" if "sq" in lengths else ""
        prologue += f"  %fsk = tensor.dim %k, %two : {k}\n" if "sk" in lengths else ""
    scale = ""
    if case.scale == "attribute":
        scale = " scale 0.25"
    elif case.scale == "operand":
        prologue += (f"  %where = arith.constant 0 : index\n"
                     f"  %scale = tensor.extract %scales[%where] : tensor<?x{accumulator}>\n")
        arguments.append(f"%scales: tensor<?x{accumulator}>")
        scale = f" scale(%scale : {accumulator})"
    sink = f" sink(%sink : tensor<?x{accumulator}>)" if has_sink(case.variant) else ""
    captured = ""
    if operands:
        captured = ("\n    captures(" + ", ".join(x for x, _ in operands) + " : "
                    + ", ".join(t for _, t in operands) + ")")
    results = (["%o", o], ["%lse", l])[:2 if case.lse else 1]
    names, kinds = ", ".join(x for x, _ in results), ", ".join(t for _, t in results)
    text = (f"// {case.name}\n"
            f"func.func @main({', '.join(arguments)})\n    -> ({kinds}) {{\n{prologue}"
            f"  {names} = attn.forward %q, %k, %v{scale}{sink}{captured}\n"
            + _region("score", parts, accumulator, element, region)
            + _region("mask", parts, accumulator, element, region)
            + f"    : {q}, {k}, {v} -> {kinds}\n  return {names} : {kinds}\n}}\n")
    return text, order
