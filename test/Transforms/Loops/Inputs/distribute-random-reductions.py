# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs generated online loops before and after attn-distribute-reductions.

Half of the loops are online softmax in one of the ways to write it; the others are that with a few
operands or operations replaced, most of them wrong. What the pass takes apart must not change a
result that the online loop leaves finite; of the loops without mistake it takes apart all. Usage:
distribute-random-reductions.py ATTN_OPT MLIR_OPT MLIR_RUNNER LIBRARY_FOLDER OUTPUT [COUNT [SEED]]
"""
import concurrent.futures
import math
import random
import re
import struct
import subprocess
import sys

ROWS, KEYS, COLUMNS = 6, 5, 2
S, V, ROW, OUT = (f"memref<{ROWS}x{KEYS}xf64>", f"memref<{KEYS}x{COLUMNS}xf64>", f"memref<{ROWS}xf64>",
                  f"memref<{ROWS}x{COLUMNS}xf64>")
ARGUMENTS = f"%S: {S}, %V: {V}, %O: {OUT}, %m: {ROW}, %l: {ROW}, %scale: f64, %n: index"
LOWER = ["-lower-affine", "-convert-scf-to-cf", "-convert-vector-to-llvm", "-convert-math-to-llvm", "-expand-strided-metadata",
         "-finalize-memref-to-llvm", "-convert-arith-to-llvm", "-convert-index-to-llvm", "-convert-func-to-llvm",
         "-convert-cf-to-llvm", "-reconcile-unrealized-casts"]
CONSTANTS = ["%zero", "%one", "%log2e", "%ninf"]


class Body:
    """Operations as (result, name, operands)."""

    def __init__(self, prefix):
        self.prefix, self.ops = prefix, []

    def op(self, name, *operands):
        self.ops.append((f"%{self.prefix}{len(self.ops)}", name, list(operands)))
        return self.ops[-1][0]

    def text(self, pad):
        lines = []
        for result, name, operands in self.ops:
            kind = {"cmpf": "arith.cmpf oeq,", "exp": "math.exp", "exp2": "math.exp2", "fma": "math.fma"}.get(
                name, f"arith.{name}")
            lines.append(f"{pad}{result} = {kind} {', '.join(operands)} : f64")
        return lines


def guard(body, value):
    return body.op("select", body.op("cmpf", value, "%ninf"), "%zero", value)


def exponential(body, rng, a, b, style):
    """exp(a - b), in the way that `style` says."""
    difference = body.op("subf", a, b)
    if style == "exp2":
        return body.op("exp2", body.op("mulf", difference, "%log2e"))
    if style == "scaled":
        return body.op("exp", body.op("mulf", difference, "%scale"))
    if style == "negated":
        return body.op("exp", body.op("negf", body.op("subf", b, a)))
    if style == "inverse":
        return body.op("divf", "%one", body.op("exp", body.op("subf", b, a)))
    return body.op("exp", difference)


def generate(rng):
    """The bodies of the loops j and d, and the values that are stored."""
    style = rng.choice(["exp", "exp2", "scaled", "negated", "inverse"])
    guarded = rng.choice(["none", "none", "new", "both"])
    outer, inner = Body("a"), Body("b")
    new = outer.op("maximumf", *rng.sample(["%m0", "%s"], 2))
    if style == "inverse":
        guarded = "none"
    elif style == "scaled" and guarded == "new":
        guarded = "both"  # by a negative scale the terms before the first kept key would be infinite
    top = guard(outer, new) if guarded != "none" else new
    first = guard(outer, "%m0") if guarded == "both" else "%m0"
    factor = exponential(outer, rng, first, top, style)
    term = exponential(outer, rng, "%s", top, style)
    scaled = outer.op("mulf", *rng.sample(["%l0", factor], 2))
    total = outer.op("addf", *rng.sample([scaled, term], 2))
    if rng.random() < 0.2:
        total = outer.op("fma", *rng.sample(["%l0", factor], 2), term)
    shape = rng.choice(["plain", "divided", "late", "fma"])
    if rng.random() < 0.3:  # all of it once more, beside the output
        factor = exponential(inner, rng, first, top, style)
        term = exponential(inner, rng, "%s", top, style)
        scaled = inner.op("mulf", "%l0", factor)
    product = inner.op("mulf", *rng.sample([term, "%v"], 2))
    if shape == "plain":
        result = inner.op("addf", *rng.sample([inner.op("mulf", *rng.sample(["%o0", factor], 2)), product], 2))
    elif shape == "fma":
        result = inner.op("fma", *rng.sample(["%o0", factor], 2), product)
    elif shape == "divided":
        old = inner.op("mulf", "%o0", inner.op("divf", scaled, total))
        result = inner.op("addf", *rng.sample([old, inner.op("divf", product, total)], 2))
    else:
        result = inner.op("divf", inner.op("addf", inner.op("mulf", "%o0", scaled), product), total)
    return outer, inner, new, total, result


def mutate(rng, outer, inner):
    """Replaces one operand, or one operation by another of as many operands."""
    body = rng.choice([outer, inner])
    at = rng.randrange(len(body.ops))
    result, name, operands = body.ops[at]
    if name in ("cmpf", "select"):
        return
    if rng.random() < 0.3 and len(operands) == 2:
        name = rng.choice(["addf", "subf", "mulf", "divf", "maximumf", "minimumf"])
    else:
        known = ["%m0", "%l0", "%s"] + CONSTANTS[:3] + [op[0] for op in outer.ops if op[1] != "cmpf"]
        if body is inner:
            known += ["%o0", "%v"] + [op[0] for op in inner.ops[:at]]
        else:
            known = [k for k in known if k not in [op[0] for op in outer.ops[at:]]]
        operands[rng.randrange(len(operands))] = rng.choice(known)
    body.ops[at] = (result, name, operands)


def write(number, keys, outer, inner, new, total, result):
    return "\n".join([
        f"func.func @nest{number}({ARGUMENTS}) {{",
        "  %zero = arith.constant 0.0 : f64", "  %one = arith.constant 1.0 : f64",
        "  %log2e = arith.constant 1.4426950408889634 : f64", "  %ninf = arith.constant 0xFFF0000000000000 : f64",
        f"  affine.for %i = 0 to {ROWS} {{", f"    affine.for %j = 0 to {keys} {{",
        f"      %s = affine.load %S[%i, %j] : {S}", f"      %m0 = affine.load %m[%i] : {ROW}",
        f"      %l0 = affine.load %l[%i] : {ROW}", *outer.text("      "),
        f"      affine.for %d = 0 to {COLUMNS} {{", f"        %o0 = affine.load %O[%i, %d] : {OUT}",
        f"        %v = affine.load %V[%j, %d] : {V}", *inner.text("        "),
        f"        affine.store {result}, %O[%i, %d] : {OUT}", "      }",
        f"      affine.store {new}, %m[%i] : {ROW}", f"      affine.store {total}, %l[%i] : {ROW}",
        "    }", "  }", "  return", "}"])


def main_function(count):
    """Rows 0 and 4 start from finite values, 1 and 4 have no kept key, in row 2 the first is left out."""
    types = f"({S}, {V}, {OUT}, {ROW}, {ROW}, f64, index) -> ()"
    calls = "".join(f"  call @reset(%S, %V, %O, %m, %l, %scale, %n{n % 5}) : {types}\n"
                    f"  call @nest{n}(%S, %V, %O, %m, %l, %scale, %n{n % 5}) : {types}\n"
                    f"  call @show(%O, %m, %l) : ({OUT}, {ROW}, {ROW}) -> ()\n" for n in range(count))
    return f"""
func.func @main() {{
  %S = memref.alloc() : {S}
  %V = memref.alloc() : {V}
  %O = memref.alloc() : {OUT}
  %m = memref.alloc() : {ROW}
  %l = memref.alloc() : {ROW}
  %scale = arith.constant 0.7 : f64
  %n0 = arith.constant 0 : index
  %n1 = arith.constant {KEYS} : index
  %n2 = arith.constant 1 : index
  %n3 = arith.constant {KEYS} : index
  %n4 = arith.constant {KEYS} : index
{calls}  return
}}
func.func private @reset({ARGUMENTS}) {{
  %zero = arith.constant 0.0 : f64
  %half = arith.constant 0.5 : f64
  %eighth = arith.constant 0.125 : f64
  %ninf = arith.constant 0xFFF0000000000000 : f64
  affine.for %i = 0 to {ROWS} {{
    affine.store %ninf, %m[%i] : {ROW}
    affine.store %zero, %l[%i] : {ROW}
    affine.for %d = 0 to {COLUMNS} {{
      affine.store %zero, %O[%i, %d] : {OUT}
    }}
    affine.for %j = 0 to {KEYS} {{
      %a = affine.apply affine_map<(i, j) -> ((i * 11 + j * 7) mod 17 - 8)>(%i, %j)
      %k = arith.index_cast %a : index to i64
      %f = arith.sitofp %k : i64 to f64
      %s = arith.mulf %f, %eighth : f64
      affine.store %s, %S[%i, %j] : {S}
    }}
  }}
  affine.for %j = 0 to {KEYS} {{
    affine.for %d = 0 to {COLUMNS} {{
      %a = affine.apply affine_map<(i, j) -> ((i * 5 + j * 3) mod 13 - 5)>(%j, %d)
      %k = arith.index_cast %a : index to i64
      %f = arith.sitofp %k : i64 to f64
      %v = arith.mulf %f, %eighth : f64
      affine.store %v, %V[%j, %d] : {V}
    }}
    affine.store %ninf, %S[1, %j] : {S}
    affine.store %ninf, %S[4, %j] : {S}
  }}
  affine.store %half, %m[0] : {ROW}
  affine.store %half, %l[0] : {ROW}
  affine.store %eighth, %O[0, 0] : {OUT}
  affine.store %half, %O[0, 1] : {OUT}
  affine.store %ninf, %S[2, 0] : {S}
  affine.store %half, %l[3] : {ROW}
  affine.store %half, %O[3, 1] : {OUT}
  affine.store %eighth, %m[4] : {ROW}
  affine.store %half, %l[4] : {ROW}
  affine.store %half, %O[4, 0] : {OUT}
  return
}}
func.func private @show(%O: {OUT}, %m: {ROW}, %l: {ROW}) {{
  affine.for %i = 0 to {ROWS} {{
    %x = affine.load %m[%i] : {ROW}
    %xb = arith.bitcast %x : f64 to i64
    vector.print %xb : i64
    %y = affine.load %l[%i] : {ROW}
    %yb = arith.bitcast %y : f64 to i64
    vector.print %yb : i64
    affine.for %d = 0 to {COLUMNS} {{
      %z = affine.load %O[%i, %d] : {OUT}
      %zb = arith.bitcast %z : f64 to i64
      vector.print %zb : i64
    }}
  }}
  return
}}
"""


def main():
    attn_opt, mlir_opt, runner, libraries, output = sys.argv[1:6]
    count = int(sys.argv[6]) if len(sys.argv) > 6 else 40
    rng = random.Random(int(sys.argv[7]) if len(sys.argv) > 7 else 1)
    mutated, nests = [], []
    for number in range(count):
        nest = generate(rng)
        mutated.append(number % 2 == 1)
        for _ in range(rng.choice([1, 1, 2, 3]) if mutated[-1] else 0):
            mutate(rng, nest[0], nest[1])
        nests.append(write(number, rng.choice([KEYS, "%n"]), *nest))

    def transform(options, nest):
        done = subprocess.run([attn_opt, "-mlir-print-local-scope"] + options, input=nest, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{options} fails on\n{nest}\n{done.stderr}")
        return re.search(r"  func\.func.*\n  }\n", done.stdout, re.S).group(0)

    def execute(functions, name):
        path = f"{output}.{name}.mlir"
        with open(path, "w") as file:
            file.write("\n".join(functions) + main_function(len(functions)))
        lowered = subprocess.run([mlir_opt, path] + LOWER, check=True, capture_output=True).stdout
        printed = subprocess.run([runner, "-e", "main", "-entry-point-result=void",
                                  f"-shared-libs={libraries}/libmlir_c_runner_utils.so"],
                                 input=lowered, check=True, capture_output=True).stdout.split()
        numbers = [struct.unpack("<d", struct.pack("<q", int(word)))[0] for word in printed]
        size = 2 + COLUMNS
        rows = [numbers[at:at + size] for at in range(0, len(numbers), size)]
        return [rows[at:at + ROWS] for at in range(0, len(rows), ROWS)]

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        before = list(pool.map(lambda nest: transform([], nest), nests))
        after = list(pool.map(lambda nest: transform(["-attn-distribute-reductions"], nest), before))
    expected, actual = execute(before, "before"), execute(after, "after")
    wrong = compared = 0
    for number in range(count):
        for row, (e, a) in enumerate(zip(expected[number], actual[number])):
            # A maximum of -inf is one; any other value that is not finite says nothing.
            if not all(map(math.isfinite, e[1:])) or math.isnan(e[0]) or e[0] == math.inf:
                continue
            compared += 1
            size = max(1.0, *map(abs, e[1:]))
            if not all(x == y or abs(x - y) <= 1e-12 * size for x, y in zip(e, a)):
                wrong += 1
                print(f"row {row} of nest {number} was {e} and is {a}:\n{before[number]}\n{after[number]}")
    changed = [a != b for a, b in zip(after, before)]
    for name, want in (("without", False), ("with", True)):
        of = [c for c, m in zip(changed, mutated) if m == want]
        print(f"{sum(of)} of {len(of)} loops {name} replacements are taken apart")
        wrong += 0 if want else len(of) - sum(of)
    print(f"{wrong} mistakes, {compared} rows compared")
    sys.exit(wrong != 0)


main()
