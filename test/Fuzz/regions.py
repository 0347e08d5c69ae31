# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random score and mask regions through attn-run, against numpy.

    regions.py --attn-run BIN --count 2000 [--seed 7] [--target interpreter] [--jobs 2]

A program is an attn.forward with regions of random operations: integers of all
widths (arithmetic that wraps, divisions by anything, shifts by anything, casts,
selects), captured scalars and tensors of several types that are read at computed
indices, floats. Each operation is drawn together with its meaning in numpy, so the
reference shares nothing with the compiler. Floats that decide something (a
comparison, a conversion to an integer) are exact, and may be infinite or NaN;
scores are moderate. V tells keys apart, so that a wrong bit of a score shows.
Programs run in batches, one function with a result for each; of a batch that
fails, each program is run alone. What fails stays in --work, with the command.
"""

import argparse
import concurrent.futures
import os
import random
import shlex
import shutil
import subprocess
import sys
import types

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "Execution"))
from support import reference

WIDTH = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}
INTEGERS = ["i8", "i16", "i32", "i64", "index"]
NUMPY = {"i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
         "index": np.int64, "f32": np.float32, "f16": np.float16}
INT64_MIN = -(2**63)


# Integers are arrays of int64 whose values are those of the type; 1 of i1 is -1.
def wrap(x, t):
    width = WIDTH[t]
    x = np.asarray(x, np.int64)
    if width == 64:
        return x
    half, mask = np.int64(1 << (width - 1)), np.int64((1 << width) - 1)
    return ((x + half) & mask) - half


def unsigned(x, t):
    x = np.asarray(x, np.int64).astype(np.uint64)
    return x if WIDTH[t] == 64 else x & np.uint64((1 << WIDTH[t]) - 1)


def signed(x, t):
    return wrap(np.asarray(x, np.uint64).astype(np.int64), t)


def quotients(a, b):
    """Floor of a / b and the remainder for it; 0 and a where b is 0."""
    harmful = (b == 0) | ((a == INT64_MIN) & (b == -1))
    safe = np.where(harmful, 1, b)
    q, r = a // safe, a % safe
    return np.where(b == 0, 0, q), np.where(b == 0, a, r)


def truncated(a, b, t):
    q, r = quotients(a, b)
    up = (b != 0) & (r != 0) & ((a < 0) != (b < 0))
    return wrap(q + up, t), np.where(up, r - b, r)


def ceiling(a, b, t):
    q, r = quotients(a, b)
    return wrap(q + ((b != 0) & (r != 0)), t)


def unsigned_quotients(a, b, t):
    x, y = unsigned(a, t), unsigned(b, t)
    safe = np.where(y == 0, np.uint64(1), y)
    return np.where(y == 0, np.uint64(0), x // safe), np.where(y == 0, x, x % safe)


def unsigned_ceiling(a, b, t):
    q, r = unsigned_quotients(a, b, t)
    return signed(q + ((b != 0) & (r != 0)).astype(np.uint64), t)


def shift(kind):
    def run(a, b, t):
        count, width = unsigned(b, t), WIDTH[t]
        long = count >= width
        count = np.where(long, np.uint64(width - 1), count)
        if kind == "shrsi":
            return wrap(a >> count.astype(np.int64), t)
        x = unsigned(a, t)
        shifted = x << count if kind == "shli" else x >> count
        return np.where(long, 0, signed(shifted, t))
    return run


def pick(kind, is_signed):
    choose = np.minimum if kind == "min" else np.maximum
    if is_signed:
        return lambda a, b, t: choose(a, b)
    return lambda a, b, t: signed(choose(unsigned(a, t), unsigned(b, t)), t)


BINARY = {
    "addi": lambda a, b, t: wrap(a + b, t), "subi": lambda a, b, t: wrap(a - b, t),
    "muli": lambda a, b, t: wrap(a * b, t), "andi": lambda a, b, t: a & b, "ori": lambda a, b, t: a | b,
    "xori": lambda a, b, t: a ^ b, "minsi": pick("min", True), "maxsi": pick("max", True),
    "minui": pick("min", False), "maxui": pick("max", False),
    "shli": shift("shli"), "shrsi": shift("shrsi"), "shrui": shift("shrui"),
    "divsi": lambda a, b, t: truncated(a, b, t)[0], "remsi": lambda a, b, t: truncated(a, b, t)[1],
    "floordivsi": lambda a, b, t: wrap(quotients(a, b)[0], t), "ceildivsi": ceiling,
    "divui": lambda a, b, t: signed(unsigned_quotients(a, b, t)[0], t),
    "remui": lambda a, b, t: signed(unsigned_quotients(a, b, t)[1], t), "ceildivui": unsigned_ceiling}
DIVISIONS = ["divsi", "remsi", "floordivsi", "ceildivsi", "divui", "remui", "ceildivui"]
SHIFTS = ["shli", "shrsi", "shrui"]
# Promises that the dialect says are none.
PROMISES = {"addi": " overflow<nsw>", "subi": " overflow<nuw>", "muli": " overflow<nsw, nuw>",
            "shli": " overflow<nsw>", "divsi": " exact", "divui": " exact", "shrsi": " exact", "shrui": " exact"}

ORDERED = {"eq": np.equal, "ne": np.not_equal, "slt": np.less, "sle": np.less_equal, "sgt": np.greater,
           "sge": np.greater_equal}
COMPARE = {**{p: (f, True) for p, f in ORDERED.items()},
           **{"u" + p[1:]: (f, False) for p, f in ORDERED.items() if p[0] == "s"}}


def compare_floats(predicate, a, b):
    names = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
             "ge": np.greater_equal}
    either = np.isnan(a) | np.isnan(b)
    if predicate in ("ord", "uno"):
        return either if predicate == "uno" else ~either
    result = names[predicate[1:]](a, b)
    return (result | either) if predicate[0] == "u" else (result & ~either)


def to_integer(x, t, is_signed):
    """The nearest one that fits, towards zero; 0 for NaN."""
    width = WIDTH[t]
    end = 2.0 ** (width - is_signed)
    low, high = (-end if is_signed else 0.0), end
    whole = np.trunc(np.where(np.isnan(x), 0.0, np.asarray(x, np.float64)))
    inside = (whole >= low) & (whole < high)
    safe = np.where(inside, whole, 0.0)
    value = safe.astype(np.int64) if is_signed else safe.astype(np.uint64).astype(np.int64)
    most = (1 << (width - 1)) - 1 if is_signed else -1
    least = -(1 << (width - 1)) if is_signed else 0
    return wrap(np.where(inside, value, np.where(whole >= high, most, least)), t)


# Floats of moderate size; their arithmetic is that of the array's type.
def error_function(x):
    # Abramowitz and Stegun are not exact enough: a series where it converges fast.
    wide = np.asarray(x, np.float64)
    total, term = wide.copy(), wide.copy()
    small = np.clip(wide, -4, 4)
    total = term = small
    for n in range(1, 80):
        term = term * -small * small / n
        total = total + term / (2 * n + 1)
    return np.where(np.abs(wide) >= 4, np.sign(wide), total * 2 / np.sqrt(np.pi)).astype(np.asarray(x).dtype)


SMOOTH = {"math.tanh": np.tanh, "math.sin": np.sin, "math.cos": np.cos, "math.absf": np.abs, "arith.negf": np.negative,
          "math.erf": error_function}
EXACT = {"math.floor": np.floor, "math.ceil": np.ceil, "math.absf": np.abs, "arith.negf": np.negative,
         "math.roundeven": np.rint}


class Value:
    """An SSA value: its name, its type, and what computes it in numpy."""

    def __init__(self, name, t, compute, operands=()):
        self.name, self.t, self.compute, self.operands = name, t, compute, operands

    def get(self, env):
        if self not in env:
            env[self] = self.compute(env, *(v.get(env) for v in self.operands))
        return env[self]


class Capture:
    def __init__(self, name, t, dims, data):
        self.name, self.t, self.dims, self.data = name, t, dims, data


def edge(rng, t):
    """A number of type t: small, near the ends, or any."""
    width = WIDTH[t]
    r = rng.random()
    if r < 0.5:
        value = rng.choice([0, 0, 1, -1, 2, 3, -3, 5, 7, 10, 64, 100])
    elif r < 0.8:
        value = (1 << (width - 1)) + rng.randint(-3, 3)
    else:
        value = rng.getrandbits(width)
    return int(wrap(np.array(value % (1 << 64), np.uint64).astype(np.int64), t))


WILD = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.5, -2.5, 127.5, -128.5, 255.75, 3e4, -4e4, 2147483648.0, -2147483904.0,
        1e10, -1e10, 9.3e18, 1.9e19, 3e38, float("inf"), float("-inf"), float("nan")]


class Program:
    """One attn.forward: sizes and captures are drawn with its regions."""

    def __init__(self, rng, number, batch):
        self.rng, self.number, self.batch = rng, number, batch
        self.captures, self.lines, self.names = [], [], 0
        self.regions = []
        roll = rng.random()
        if roll < 0.75:
            self.regions.append(Region(self, "score").build())
        if roll > 0.25:
            self.regions.append(Region(self, "mask").build())

    def capture(self, t, dims, wild):
        rng = self.rng
        for known in self.captures:
            if known.t == t and known.dims == dims and known.wild == wild and rng.random() < 0.6:
                return known
        sizes = [self.batch.size(d) for d in dims]
        count = int(np.prod(sizes, dtype=int)) if dims is not None else 1
        if t == "i1":
            values = [rng.random() < 0.5 for _ in range(count)]
        elif t in WIDTH:
            spread = rng.choice(["edges", "small", "same"])
            same = rng.choice([1, 2, 3, 3, 5])
            values = [edge(rng, t) if spread == "edges" else rng.randint(-5, 20) if spread == "small" else same
                      for _ in range(count)]
        elif wild:
            values = [rng.choice(WILD) for _ in range(count)]
        else:
            values = [rng.gauss(0, 1) for _ in range(count)]
        with np.errstate(over="ignore"):
            data = np.array(values, dtype=NUMPY[t]).reshape(sizes or [1])
        known = Capture(f"%p{self.number}c{len(self.captures)}", t, dims, data)
        known.wild = wild
        self.captures.append(known)
        return known

    def type_of(self, capture):
        if not capture.dims:
            return capture.t
        return f"tensor<{'x'.join(self.batch.dim(d) for d in capture.dims)}x{capture.t}>"

    def text(self):
        """The operation and the names and types of its captures."""
        types_ = self.batch.types
        captured = ""
        if self.captures:
            names = ", ".join(c.name for c in self.captures)
            captured = f" captures({names} : {', '.join(self.type_of(c) for c in self.captures)})"
        arguments = "".join(f", %c{n}: {self.type_of(c)}" for n, c in enumerate(self.captures))
        regions = "\n".join(r.text(arguments) for r in self.regions)
        n = self.number
        return (f"  %o{n}, %l{n} = attn.forward %q, %k, %v scale 0.25{captured}\n{regions}\n"
                f"    : {types_['q']}, {types_['k']}, {types_['v']} -> {types_['o']}, {types_['l']}\n")

    def parts(self):
        return [types.SimpleNamespace(kind=r.kind, name=r.kind, evaluate=r.evaluate) for r in self.regions]


class Region:
    def __init__(self, program, kind):
        self.program, self.kind, self.rng = program, kind, program.rng
        self.lines, self.count = [], 0
        self.index = {x: Value(f"%{x}", "index", lambda env, x=x: env[x]) for x in "bhij"}
        self.score = Value("%s", "f32", lambda env: env["s"])
        self.pool = {}

    def build(self):
        if self.kind == "mask":
            self.result = self.boolean(self.rng.randint(1, 4))
        else:
            self.result = self.final_score()
        return self

    def text(self, captures):
        s = "%s: f32, " if self.kind == "score" else ""
        body = "".join(f"      {line}\n" for line in self.lines)
        result = self.result
        return (f"    {self.kind} {{\n    ^bb0({s}%b: index, %h: index, %i: index, %j: index{captures}):\n{body}"
                f"      attn.yield {result.name} : {result.t}\n    }}")

    def evaluate(self, s, b, h, i, j, values, shape):
        env = {"s": s, "b": np.int64(b), "h": np.int64(h), "i": i.astype(np.int64), "j": j.astype(np.int64),
               "kind": s.dtype.type if s is not None else np.float64}
        with np.errstate(all="ignore"):
            result = self.result.get(env)
        if self.kind == "mask":
            return np.broadcast_to(result != 0, np.broadcast_shapes(i.shape, j.shape))
        return np.broadcast_to(result, np.broadcast_shapes(i.shape, j.shape)).astype(s.dtype)

    def emit(self, text, t, compute, *operands):
        value = Value(f"%t{self.count}", t, compute, operands)
        self.count += 1
        self.lines.append(f"{value.name} = {text}")
        self.pool.setdefault(t, []).append(value)
        return value

    def constant(self, t, number):
        shown = str(number) if t != "i1" else ("true" if number else "false")
        text = f"arith.constant {shown}" + ("" if t == "i1" else f" : {t}")
        return self.emit(text, t, lambda env: wrap(number, t))

    def real(self, number):
        """A constant; in the reference's type, but of the value that f32 has."""
        single = np.float32(number)
        bits = f"0x{np.array(single).view(np.uint32):08X}"
        return self.emit(f"arith.constant {bits} : f32", "f32", lambda env: env["kind"](single))

    def load(self, t, wild=False):
        """A captured scalar, or an element of a tensor at indices within its bounds."""
        rng = self.rng
        dims = rng.choice([(), ("n",), ("Sq",), ("Sk",), ("Sk",), ("Sq", "Sk"), ("H",), ("B", "n"), ("n", "Sk")])
        if t == "i1" and not dims:
            dims = ("Sk",)
        capture = self.program.capture(t, dims, wild)
        name = f"%c{self.program.captures.index(capture)}"
        kind = t

        def typed(env, element):
            return element.astype(env["kind"]) if kind in ("f32", "f16") else (
                -element.astype(np.int64) if kind == "i1" else element.astype(np.int64))

        if not dims:
            value = Value(name, t, lambda env: typed(env, capture.data[0]))
            return value
        indices = [self.within(d, name, place) for place, d in enumerate(dims)]
        of = self.program.type_of(capture)
        text = f"tensor.extract {name}[{', '.join(x.name for x in indices)}] : {of}"
        return self.emit(text, t, lambda env, *at: typed(env, capture.data[tuple(np.broadcast_arrays(*at))]), *indices)

    def within(self, dim, tensor, place):
        """An index below the size of a dimension."""
        rng = self.rng
        plain = {"Sq": "i", "Sk": "j", "H": "h", "B": "b"}.get(dim)
        if plain and rng.random() < 0.6:
            return self.index[plain]
        size = self.program.batch.size(dim)
        if self.program.batch.dim(dim) == "?" or rng.random() < 0.3:
            capture = self.program.captures[int(tensor[2:])]
            at = self.constant("index", place)
            n = self.emit(f"tensor.dim {tensor}, {at.name} : {self.program.type_of(capture)}", "index",
                          lambda env, x: np.int64(size), at)
        else:
            n = self.constant("index", size)
        x = self.integer("index", rng.randint(0, 2))
        if rng.random() < 0.5:
            return self.binary("remui", x, n)
        zero, one = self.constant("index", 0), self.constant("index", 1)
        last = self.binary("subi", n, one)
        return self.binary("minsi", self.binary("maxsi", x, zero), last)

    def binary(self, op, a, b):
        t = a.t
        promise = PROMISES.get(op, "") if self.rng.random() < 0.15 else ""
        return self.emit(f"arith.{op} {a.name}, {b.name}{promise} : {t}", t,
                         lambda env, x, y: BINARY[op](x, y, t), a, b)

    def cast(self, a, t):
        """The integer a as one of type t."""
        rng, f = self.rng, a.t
        if f == t:
            return a
        if "index" in (f, t):
            op = rng.choice(["index_cast", "index_cast", "index_castui"])
            if "i1" in (f, t):
                return self.cast(self.cast(a, "i32"), t)
        else:
            op = rng.choice(["extsi", "extui"]) if WIDTH[f] < WIDTH[t] else "trunci"
        from_unsigned = op in ("extui", "index_castui")
        return self.emit(f"arith.{op} {a.name} : {f} to {t}", t,
                         lambda env, x: signed(unsigned(x, f), t) if from_unsigned else wrap(x, t), a)

    def integer(self, t, depth):
        rng = self.rng
        if self.pool.get(t) and rng.random() < 0.15:
            return rng.choice(self.pool[t])
        if depth <= 0 or rng.random() < 0.08:
            r = rng.random()
            if r < 0.55:
                return self.cast(self.index[rng.choice("bhiijj")], t)
            if r < 0.7:
                return self.constant(t, edge(rng, t))
            return self.load(t)
        r = rng.random()
        if r < 0.15:
            return self.cast(self.integer(rng.choice(INTEGERS + ["i1"]), depth - 1), t)
        if r < 0.25:
            c = self.boolean(depth - 1)
            a, b = self.integer(t, depth - 1), self.integer(t, depth - 1)
            return self.select(c, a, b)
        if r < 0.3 and t != "index":
            x = self.exact(depth - 1)
            op = rng.choice(["fptosi", "fptoui"])
            return self.emit(f"arith.{op} {x.name} : f32 to {t}", t,
                             lambda env, v: to_integer(v, t, op == "fptosi"), x)
        if r < 0.33 and t != "index":
            a = self.integer(t, depth - 1)
            return self.emit(f"math.absi {a.name} : {t}", t, lambda env, x: wrap(np.abs(x), t), a)
        if r < 0.36 and t != "index":
            a = self.integer(t, depth - 1)
            return self.emit(f"math.ctlz {a.name} : {t}", t, lambda env, x: leading_zeros(x, t), a)
        group = rng.choice([DIVISIONS, SHIFTS, ["addi", "subi", "muli"], ["addi", "subi"],
                            ["andi", "ori", "xori", "minsi", "maxsi", "minui", "maxui"]])
        a = self.integer(t, depth - 1)
        b = self.integer(t, depth - 1) if rng.random() < 0.6 else self.constant(t, edge(rng, t))
        return self.binary(rng.choice(group), a, b)

    def select(self, c, a, b):
        return self.emit(f"arith.select {c.name}, {a.name}, {b.name} : {a.t}", a.t,
                         lambda env, p, x, y: np.where(p != 0, x, y), c, a, b)

    def boolean(self, depth):
        rng = self.rng
        if self.pool.get("i1") and rng.random() < 0.1:
            return rng.choice(self.pool["i1"])
        r = rng.random()
        if depth <= 0 or r < 0.45:
            if r < 0.03:
                return self.load("i1")
            t = rng.choice(INTEGERS)
            predicate = rng.choice(list(COMPARE))
            a, b = self.integer(t, depth), self.integer(t, min(depth, rng.randint(0, 2)))
            function, is_signed = COMPARE[predicate]

            def run(env, x, y):
                x, y = (x, y) if is_signed else (unsigned(x, t), unsigned(y, t))
                return -function(x, y).astype(np.int64)
            return self.emit(f"arith.cmpi {predicate}, {a.name}, {b.name} : {t}", "i1", run, a, b)
        if r < 0.55:
            predicate = rng.choice(["oeq", "ueq", "one", "une", "olt", "ult", "ole", "ule", "ogt", "ugt", "oge", "uge",
                                    "ord", "uno"])
            a, b = self.exact(depth - 1), self.exact(depth - 1)
            return self.emit(f"arith.cmpf {predicate}, {a.name}, {b.name} : f32", "i1",
                             lambda env, x, y: -compare_floats(predicate, x, y).astype(np.int64), a, b)
        if r < 0.62:
            return self.cast(self.integer(rng.choice(INTEGERS), depth - 1), "i1")
        a, b = self.boolean(depth - 1), self.boolean(depth - 1)
        if r < 0.7:
            return self.select(self.boolean(depth - 1), a, b)
        if r < 0.76:
            return self.binary(rng.choice(["addi", "subi", "muli"] + DIVISIONS), a, b)
        return self.binary(rng.choice(["andi", "ori", "ori", "xori"]), a, b)

    def exact(self, depth):
        """A float without rounding, of any size."""
        rng = self.rng
        r = rng.random()
        if depth <= 0 or r < 0.5:
            if r < 0.2:
                return self.real(rng.choice(WILD))
            if r < 0.5:
                t = rng.choice(["f32", "f32", "f16"])
                value = self.load(t, wild=True)
                if t == "f16":
                    value = self.emit(f"arith.extf {value.name} : f16 to f32", "f32", lambda env, x: x, value)
                return value
            return self.converted(rng.choice(["i1", "i8", "i16"]), depth)
        a = self.exact(depth - 1)
        if r < 0.7:
            op = rng.choice(list(EXACT))
            return self.emit(f"{op} {a.name} : f32", "f32", lambda env, x: EXACT[op](x), a)
        return self.select(self.boolean(depth - 1), a, self.exact(depth - 1))

    def converted(self, t, depth):
        a = self.integer(t, depth) if t != "i1" else self.boolean(depth)
        op = self.rng.choice(["sitofp", "uitofp"])
        return self.emit(f"arith.{op} {a.name} : {t} to f32", "f32",
                         lambda env, x: (x if op == "sitofp" else unsigned(x, t)).astype(env["kind"]), a)

    def floats(self, op, *operands):
        run = {"addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide, "maxnumf": np.fmax,
               "minnumf": np.fmin, "maximumf": np.maximum, "minimumf": np.minimum}[op]
        return self.emit(f"arith.{op} {', '.join(x.name for x in operands)} : f32", "f32",
                         lambda env, *x: run(*x), *operands)

    def tame(self, depth):
        """A float of moderate size."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.2:
            r = rng.random()
            if r < 0.3:
                return self.score
            if r < 0.6:
                t, unit = rng.choice([("i8", 0.04), ("i16", 1.5e-4), ("i32", 2.0**-29), ("i64", 2.0**-61)])
                return self.floats("mulf", self.converted(t, rng.randint(0, 3)), self.real(unit))
            return self.load("f32") if r < 0.9 else self.real(rng.uniform(-2, 2))
        r = rng.random()
        a = self.tame(depth - 1)
        if r < 0.3:
            op = rng.choice(list(SMOOTH))
            return self.emit(f"{op} {a.name} : f32", "f32", lambda env, x: SMOOTH[op](x), a)
        if r < 0.4:
            return self.floats("divf", a, self.floats("addf", self.emit(
                f"math.absf {a.name} : f32", "f32", lambda env, x: np.abs(x), a), self.real(1.5)))
        b = self.tame(depth - 1)
        if r < 0.55:
            return self.select(self.boolean(rng.randint(0, 3)), a, b)
        if r < 0.7:
            return self.floats(rng.choice(["maxnumf", "minnumf", "maximumf", "minimumf"]), a, b)
        return self.floats("mulf", self.floats(rng.choice(["addf", "subf"]), a, b), self.real(0.6))

    def final_score(self):
        rng = self.rng
        result = self.floats("addf", self.score, self.tame(rng.randint(1, 4)))
        if rng.random() < 0.6:
            term = self.floats("mulf", self.converted("i8", rng.randint(1, 4)), self.real(0.04))
            result = self.floats("addf", result, term)
        if rng.random() < 0.15:
            result = self.select(self.boolean(2), result, self.real(float("-inf")))
        return result


def leading_zeros(x, t):
    bits, n = unsigned(x, t), np.zeros(np.shape(x), np.int64)
    for place in range(WIDTH[t]):
        n = np.where(bits >> np.uint64(place) != 0, place + 1, n)
    return wrap(WIDTH[t] - n, t)


class Batch:
    """Programs of one module: the same q, k and v, sizes and options of attn-run."""

    def __init__(self, seed, count, target):
        rng = self.rng = random.Random(seed)
        self.seed, self.target = seed, target
        self.dtype = "f32" if target == "cpu" else rng.choice(["bf16", "f16"])
        self.sizes = {"B": rng.randint(1, 2), "H": rng.randint(1, 3), "Sq": rng.randint(1, 90), "Sk": rng.randint(1, 90),
                      "n": rng.choice([1, 2, 7, 13])}
        if target != "cpu":
            self.sizes.update(Sq=rng.choice([7, 40, 70, 140]), Sk=rng.choice([9, 64, 130, 200]), H=rng.randint(1, 2))
        if rng.random() < 0.3:
            self.sizes["Sk"] = self.sizes["Sq"]
        self.static = {d: rng.random() < 0.3 for d in self.sizes}
        self.d, self.dv = 16, 32
        self.options = []
        if target == "cpu":
            self.options = [f"--block-m={rng.choice([8, 16, 64])}", f"--block-n={rng.choice([8, 16, 128])}",
                            f"--loop-order={rng.choice(['m_outer', 'm_outer', 'n_outer', 'split_kv'])}", "--guard",
                            f"--threads={rng.choice([1, 2])}", f"-O{rng.choice([0, 0, 0, 2])}"]
            if "split_kv" in self.options[2]:
                self.options.append("--parts=3")
        e, acc = self.dtype, "f32"
        heads = f"{self.dim('B')}x{self.dim('H')}x"
        self.types = {"q": f"tensor<{heads}{self.dim('Sq')}x{self.d}x{e}>",
                      "k": f"tensor<{heads}{self.dim('Sk')}x{self.d}x{e}>",
                      "v": f"tensor<{heads}{self.dim('Sk')}x{self.dv}x{e}>",
                      "o": f"tensor<{heads}{self.dim('Sq')}x{self.dv}x{e}>",
                      "l": f"tensor<{heads}{self.dim('Sq')}x{acc}>"}
        self.programs = [Program(rng, n, self) for n in range(count)]

    def size(self, dim):
        return self.sizes[dim]

    def dim(self, dim):
        return str(self.sizes[dim]) if self.static[dim] else "?"

    def module(self, programs):
        arguments = [f"%{x}: {self.types[x]}" for x in "qkv"]
        arguments += [f"{c.name}: {p.type_of(c)}" for p in programs for c in p.captures]
        results = ", ".join(f"{self.types['o']}, {self.types['l']}" for _ in programs)
        body = "".join(p.text() for p in programs)
        names = ", ".join(f"%o{p.number}, %l{p.number}" for p in programs)
        return (f"func.func @main({', '.join(arguments)}) -> ({results}) {{\n{body}  return {names} : {results}\n}}\n")

    def data(self):
        rng, s = np.random.default_rng(self.seed), self.sizes
        q = reference.round_to(self.dtype, rng.standard_normal((s["B"], s["H"], s["Sq"], self.d), np.float32))
        k = reference.round_to(self.dtype, rng.standard_normal((s["B"], s["H"], s["Sk"], self.d), np.float32))
        v = np.zeros((s["B"], s["H"], s["Sk"], self.dv), np.float32)
        v[:, :, np.arange(s["Sk"]), np.arange(s["Sk"]) % self.dv] = 1
        return q, k, v

    def run(self, programs, folder, options):
        """Runs some programs; what is wrong, as (program, problem); None: of all."""
        os.makedirs(folder, exist_ok=True)
        source = os.path.join(folder, "regions.mlir")
        with open(source, "w") as file:
            file.write(self.module(programs))
        data = self.data()
        arrays = list(data) + [c.data for p in programs for c in p.captures]
        command = [options.attn_run, source, "--entry=main", f"--target={self.target}"] + self.options
        for n, array in enumerate(arrays):
            path = os.path.join(folder, f"in{n}.npy")
            np.save(path, array.astype(np.float16) if self.dtype == "f16" and n < 3 else array)
            command += ["--input", f"{n}={path}"]
        for n in range(2 * len(programs)):
            command += ["--output", f"{n}={os.path.join(folder, f'out{n}.npy')}"]
        with open(os.path.join(folder, "command"), "w") as file:
            file.write(shlex.join(command) + "\n")
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout)
        except subprocess.TimeoutExpired:
            return [(None, f"no end within {options.timeout} s")]
        if done.returncode:
            return [(None, f"exit status {done.returncode}: {done.stderr.strip()[:600]}")]
        problems = []
        for n, program in enumerate(programs):
            got = [np.load(os.path.join(folder, f"out{2 * n + x}.npy")) for x in range(2)]
            problems += [(program, problem) for problem in self.check(program, data, got)]
        return problems

    def check(self, program, data, got):
        s = self.sizes
        shape = types.SimpleNamespace(b=s["B"], hq=s["H"], hkv=s["H"], sq=s["Sq"], sk=s["Sk"], dv=self.dv,
                                      dtype=self.dtype)
        parts = program.parts()
        known = (shape, parts, *data, 0.25, None, [None] * len(parts))
        exact = reference.attention(*known, exact=True)
        problems = []
        for product in (reference._multiply, reference.unit_product(self.dtype))[:1 if self.target == "cpu" else 2]:
            baselines = reference.baselines(*known, product=product)
            problems = []
            for x, (name, dtype) in enumerate((("O", self.dtype), ("LSE", "f32"))):
                problems += self.compare(name, dtype, got[x], exact[x], [base[x] for base in baselines])
            if not problems:
                break
        return problems

    @staticmethod
    def compare(name, dtype, got, exact, baselines):
        """As for all results, but that the error of functions in a score (a few roundings, which the baseline
        has or has not) counts as rounding: a wrong bit of an integer is a thousand times as large."""
        problems, figures = reference.check(name, dtype, got, exact, baselines, mean=False)
        is_rounding = figures and figures["max"] <= 4 * figures["max_gate"]
        return [] if is_rounding else problems


def run_batch(seed, count, options):
    batch = Batch(seed, count, options.target)
    folder = os.path.join(options.work, f"batch-{seed}")
    found = batch.run(batch.programs, folder, options)
    if not found:
        shutil.rmtree(folder)
        return []
    failures = []
    for program in batch.programs:
        alone = os.path.join(folder, f"program-{program.number}")
        problems = batch.run([program], alone, options)
        if problems:
            failures.append((alone, [problem for _, problem in problems]))
        else:
            shutil.rmtree(alone)
    return failures or [(folder, [problem for _, problem in found] + ["(each program alone is right)"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attn-run", default="attn-run")
    parser.add_argument("--target", choices=["cpu", "interpreter", "cuda"], default="cpu")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=10, help="programs of a module")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--work", default="regions-work", help="folder for what fails")
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    sizes = [options.batch] * (options.count // options.batch)
    if options.count % options.batch:
        sizes.append(options.count % options.batch)
    failed = 0
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        runs = [pool.submit(run_batch, options.seed * 100000 + n, size, options) for n, size in enumerate(sizes)]
        for run in runs:
            for folder, problems in run.result():
                failed += 1
                print(f"FAIL {folder}")
                for problem in problems:
                    print("  " + problem.replace("\n", "\n  "), flush=True)
    print(f"{options.count} programs, {failed} wrong")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
