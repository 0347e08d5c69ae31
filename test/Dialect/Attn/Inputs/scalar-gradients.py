#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the derivatives of attn-differentiate by central differences.

  scalar-gradients.py --generate          prints a module with two functions per rule
  ... | attn-opt --attn-differentiate --mlir-print-op-generic |
  scalar-gradients.py --check             evaluates functions and gradients in float64

Each rule is there as a score region, of which the derived `gradient` region is
evaluated, and as a function on tensors without dimensions.
"""
import math
import random
import re
import struct
import sys

# Name, domain of the inputs, body. Inputs are the floats %s, %c, %d (type T) and
# the integer %n (type N); the result is %r; B is the type of a condition.
ANY, POSITIVE, UNIT, ABOVE_ONE = (-2.5, 2.5), (0.3, 3.0), (-0.9, 0.9), (1.2, 3.0)
RULES = [
    ("addf", ANY, "%r = arith.addf %s, %c : T"),
    ("subf", ANY, "%r = arith.subf %s, %c : T"),
    ("mulf", ANY, "%r = arith.mulf %s, %c : T"),
    ("square", ANY, "%r = arith.mulf %s, %s : T"),
    ("divf", POSITIVE, "%r = arith.divf %s, %c : T"),
    ("negf", ANY, "%r = arith.negf %s : T"),
    ("maximumf", ANY, "%r = arith.maximumf %s, %c : T"),
    ("minimumf", ANY, "%r = arith.minimumf %s, %c : T"),
    ("maxnumf", ANY, "%r = arith.maxnumf %s, %c : T"),
    ("minnumf", ANY, "%r = arith.minnumf %s, %c : T"),
    ("casts", ANY, "%f = arith.truncf %s : T to F\n%g = math.sin %f : F\n"
                   "%h = arith.extf %g : F to T\n%r = arith.mulf %h, %c : T"),
    ("atan2", ANY, "%r = math.atan2 %s, %c : T"),
    ("powf", POSITIVE, "%r = math.powf %s, %c : T"),
    ("fpowi", POSITIVE, "%r = math.fpowi %s, %n : T, N"),
    ("copysign", ANY, "%r = math.copysign %s, %c : T"),
    ("fma", ANY, "%r = math.fma %s, %c, %d : T"),
    ("select", ANY, "%g = arith.cmpf ogt, %s, %c : T\n%m = arith.mulf %s, %d : T\n"
                    '%r = "arith.select"(%g, %m, %c) : (B, T, T) -> T'),
    ("sqrt_or_zero", ANY, "%z = arith.subf %c, %c : T\n%g = arith.cmpf ogt, %s, %z : T\n"
                          "%q = math.sqrt %s : T\n%m = arith.mulf %q, %d : T\n"
                          '%r = "arith.select"(%g, %m, %z) : (B, T, T) -> T'),
    ("quotient_or_zero", ANY, "%z = arith.subf %c, %c : T\n%g = arith.cmpf one, %d, %z : T\n"
                              "%q = arith.divf %s, %d : T\n"
                              '%r = "arith.select"(%g, %q, %z) : (B, T, T) -> T'),
    ("softcap", POSITIVE, "%x = arith.divf %s, %c : T\n%y = math.tanh %x : T\n"
                          "%r = arith.mulf %y, %c : T"),
    ("unused", ANY, "%x = math.exp %s : T\n%r = arith.addf %c, %d : T"),
    ("through_int", ANY, "%i = arith.fptosi %s : T to N\n%x = arith.sitofp %i : N to T\n"
                         "%r = arith.mulf %x, %c : T"),
]
UNARY = {
    ANY: "absf asinh atan cbrt ceil cos cosh erf erfc exp exp2 expm1 floor round roundeven sin "
         "sinh tanh trunc",
    POSITIVE: "log log2 log10 log1p sqrt rsqrt",
    UNIT: "acos asin atanh tan",
    ABOVE_ONE: "acosh",
}
for domain, names in UNARY.items():
    # The product makes the adjoint differ from 1.
    RULES += [(n, domain, f"%x = math.{n} %s : T\n%r = arith.mulf %x, %c : T")
              for n in names.split()]

# Rule, inputs (s, c, d, n), exact gradients of s, c and d.
INF = math.inf
EDGES = [
    ("maximumf", (1, 1, 0, 0), (0.5, 0.5, 0)),
    ("minimumf", (1, 1, 0, 0), (0.5, 0.5, 0)),
    ("maxnumf", (1, 1, 0, 0), (0.5, 0.5, 0)),
    ("maxnumf", (1, math.nan, 0, 0), (1, 0, 0)),
    ("minnumf", (math.nan, 1, 0, 0), (0, 1, 0)),
    ("absf", (0, 1, 0, 0), (0, 0, 0)),
    ("sqrt", (0, 1, 0, 0), (INF, 0, 0)),
    ("sqrt_or_zero", (-1, 1, 2, 0), (0, 0, 0)),
    ("sqrt_or_zero", (0, 1, 2, 0), (0, 0, 0)),
    ("quotient_or_zero", (1, 1, 0, 0), (0, 0, 0)),
    ("powf", (0, 0, 0, 0), (0, 0, 0)),
    ("powf", (0, 2, 0, 0), (0, 0, 0)),
    ("powf", (-1, 2, 0, 0), (-2, math.nan, 0)),
    ("fpowi", (0, 0, 0, 0), (0, 0, 0)),
    ("fpowi", (0, 0, 0, 1), (1, 0, 0)),
    ("fpowi", (-2, 0, 0, 3), (12, 0, 0)),
    ("copysign", (0, 1, 0, 0), (0, 0, 0)),
]


def generate():
    types = [("score", dict(T="f64", F="f32", N="i32", B="i1")),
             ("tensor", {k: f"tensor<{v}>" for k, v in
                         dict(T="f64", F="f32", N="i32", B="i1").items()})]
    for name, _, body in RULES:
        for form, names in types:
            text = re.sub(r"\b[TFNB]\b", lambda m: names[m.group()], body)
            if form == "tensor":
                print(f"func.func @{name}_tensor(%s: tensor<f64>, %c: tensor<f64>, "
                      f"%d: tensor<f64>, %n: tensor<i32>) -> tensor<f64> {{\n{text}\n"
                      "return %r : tensor<f64>\n}")
            else:
                print(f"func.func @{name}_score(%x: tensor<8xf64>, %c: f64, %d: f64, %n: i32) "
                      "-> tensor<8xf64> {\n%y = attn.softmax %x "
                      "captures(%c, %d, %n : f64, f64, i32) score {\n"
                      "^bb0(%s: f64, %at: index, %c: f64, %d: f64, %n: i32):\n"
                      f"{text}\nattn.yield %r : f64\n}} : tensor<8xf64>\n"
                      "return %y : tensor<8xf64>\n}")


def parse(text):
    """The blocks of each function, outer first: (argument names, ops)."""
    functions, stack = {}, []
    for line in text.splitlines():
        if found := re.search(r'sym_name = "(\w+)"', line):
            blocks = functions[found.group(1)] = []
        if found := re.match(r"\s*\^bb0\((.*)\):", line):
            block = (re.findall(r"(%\w+):", found.group(1)), [])
            blocks.append(block)
            stack[-1] = block[1]
        elif found := re.match(r'\s*(?:(%\w+)(?::\d+)? = )?"([\w.]+)"\((.*?)\)(.*)', line):
            result, op, operands, rest = found.groups()
            # An op with regions reads nothing here: its blocks are kept apart.
            if stack and stack[-1] is not None:
                stack[-1].append((result, op, re.findall(r"%[\w#]+", operands), rest))
            if line.rstrip().endswith("({"):
                stack.append(None)
        elif re.match(r"\s*\}\) ?", line):
            stack.pop()
        elif line.strip() == "}, {":
            stack[-1] = None
    return functions


def no_error(function):
    """NaN where Python raises: a side that a select drops may be evaluated."""
    def call(*args):
        try:
            return function(*args)
        except (ValueError, ZeroDivisionError):
            return math.nan
    return call


def divide(x, y):
    if y == 0:
        return math.nan if x == 0 or x != x else math.copysign(INF, x) * math.copysign(1, y)
    return x / y


def power(x, y):
    if x == 0 and y < 0:
        return INF
    return math.pow(x, y)


def log(x):
    return -INF if x == 0 else math.log(x)


def extremum(choose, number):
    def call(x, y):
        if x != x or y != y:
            return (y if x != x else x) if number else math.nan
        return choose(x, y)
    return call


def trunc_like(function):
    return lambda x: float(function(x))


EVALUATE = {
    "arith.addf": lambda x, y: x + y, "arith.subf": lambda x, y: x - y,
    "arith.mulf": lambda x, y: x * y, "arith.divf": divide, "arith.negf": lambda x: -x,
    "arith.maximumf": extremum(max, False), "arith.minimumf": extremum(min, False),
    "arith.maxnumf": extremum(max, True), "arith.minnumf": extremum(min, True),
    "arith.extf": lambda x: x, "arith.truncf": lambda x: x, "arith.sitofp": float,
    "arith.fptosi": int, "arith.subi": lambda x, y: x - y, "arith.addi": lambda x, y: x + y,
    "arith.andi": lambda x, y: x and y, "arith.ori": lambda x, y: x or y,
    "arith.select": lambda c, x, y: x if c else y,
    "tensor.empty": lambda: math.nan, "linalg.fill": lambda x, _: x,
    "math.absf": abs, "math.atan2": math.atan2, "math.powf": power, "math.fpowi": power,
    "math.copysign": math.copysign, "math.fma": lambda x, y, z: x * y + z,
    "math.cbrt": lambda x: math.copysign(abs(x) ** (1 / 3), x), "math.exp2": lambda x: 2.0 ** x,
    "math.log": log, "math.rsqrt": lambda x: divide(1.0, math.sqrt(x)),
    "math.ceil": trunc_like(math.ceil), "math.floor": trunc_like(math.floor),
    "math.trunc": trunc_like(math.trunc), "math.roundeven": trunc_like(round),
    "math.round": lambda x: math.copysign(math.floor(abs(x) + 0.5), x),
}
for name in ("acos acosh asin asinh atan atanh cos cosh erf erfc exp expm1 log10 log1p log2 sin "
             "sinh sqrt tan tanh").split():
    EVALUATE["math." + name] = getattr(math, name)

# arith.cmpf's predicates by number.
ORDERED = {1: lambda x, y: x == y, 2: lambda x, y: x > y, 3: lambda x, y: x >= y,
           4: lambda x, y: x < y, 5: lambda x, y: x <= y, 6: lambda x, y: x != y}
# Those of arith.cmpi on signed integers.
SIGNED = {0: 1, 1: 6, 2: 4, 3: 5, 4: 2, 5: 3}


def compare(predicate, x, y):
    unordered = x != x or y != y
    if predicate in (0, 15):
        return predicate == 15
    if predicate in (7, 14):
        return unordered == (predicate == 14)
    if predicate <= 6:
        return not unordered and ORDERED[predicate](x, y)
    return unordered or ORDERED[predicate - 7](x, y)


def constant(attributes):
    text = re.search(r"value = (?:dense<)?([^ >]+)", attributes).group(1)
    if text.startswith("0x"):
        return struct.unpack(">d", bytes.fromhex(text[2:]))[0]
    return text == "true" if text in ("true", "false") else float(text)


def run(block, inputs):
    """Results of the terminator, and the sums of accumulations by argument."""
    names, ops = block
    values, sums = dict(zip(names, inputs)), {}
    for result, op, operands, rest in ops:
        args = [values[name] for name in operands]
        if op == "arith.constant":
            values[result] = constant(rest)
        elif op in ("arith.cmpf", "arith.cmpi"):
            predicate = int(re.search(r"predicate = (\d+)", rest).group(1))
            predicate = predicate if op == "arith.cmpf" else SIGNED[predicate]
            values[result] = compare(predicate, *args)
        elif op == "attn.accumulate":
            index = names.index(operands[1])
            sums[index] = sums.get(index, 0.0) + args[0]
        elif op in ("attn.yield", "func.return"):
            return args, sums
        else:
            values[result] = no_error(EVALUATE[op])(*args)
    raise ValueError("a block without a terminator")


class Function:
    """A rule in one form: its value, and its derived gradients."""

    def __init__(self, functions, name, form):
        self.score = form == "score"
        gradient = functions[f"{name}_{form}_gradient"]
        if self.score:
            self.primal, self.reverse = gradient[-2:]
        else:
            self.primal, self.reverse = functions[f"{name}_{form}"][0], gradient[0]

    def inputs(self, point):
        s, *rest = point
        return [s, 0, *rest] if self.score else [s, *rest]

    def value(self, point):
        return run(self.primal, self.inputs(point))[0][0]

    def gradients(self, point, incoming):
        results, sums = run(self.reverse, self.inputs(point) + [incoming])
        # Arguments of the region: s, its index, c, d, n.
        return [results[0], sums.get(2, 0.0), sums.get(3, 0.0)] if self.score else results


def close(got, expected, tolerance):
    if expected != expected or abs(expected) == INF:
        return got == expected or (got != got and expected != expected)
    return abs(got - expected) <= tolerance * max(1.0, abs(expected))


def check(functions):
    failures, rng = [], random.Random(1)
    for name, (low, high), _ in RULES:
        for form in ("score", "tensor"):
            function = Function(functions, name, form)
            for _ in range(20):
                point = [rng.uniform(low, high) for _ in range(3)] + [rng.randint(-2, 3)]
                incoming = rng.uniform(0.5, 2)
                got = function.gradients(point, incoming)
                for index in range(3):
                    h = 1e-5
                    up, down = list(point), list(point)
                    up[index] += h
                    down[index] -= h
                    slope = (function.value(up) - function.value(down)) / (2 * h) * incoming
                    if not close(got[index], slope, 1e-6):
                        failures.append(f"{name} ({form}): gradient {index} at {point}: "
                                        f"{got[index]}, expected {slope}")
    for name, point, expected in EDGES:
        for form in ("score", "tensor"):
            got = Function(functions, name, form).gradients(point, 1.0)
            if not all(close(g, e, 0) for g, e in zip(got, expected)):
                failures.append(f"{name} ({form}): gradients at {point}: {got}, "
                                f"expected {expected}")
    print("\n".join(failures[:20]) or f"{len(RULES)} rules agree")
    return bool(failures)


if __name__ == "__main__":
    if sys.argv[1:] == ["--generate"]:
        generate()
    elif sys.argv[1:] == ["--check"]:
        sys.exit(check(parse(sys.stdin.read())))
    else:
        sys.exit(__doc__)
