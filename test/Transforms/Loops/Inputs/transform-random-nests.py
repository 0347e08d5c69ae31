# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs generated affine nests before and after a loop pass.

Wherever a pass accepts a nest, what the nest computes must not change; where it
refuses, nothing is asked. The values are such that order matters: every store
takes a * 3 + b - c of what was loaded before. Usage:
transform-random-nests.py ATTN_OPT MLIR_OPT MLIR_RUNNER LIBRARY_FOLDER OUTPUT [COUNT [SEED]]
"""
import concurrent.futures
import random
import re
import subprocess
import sys

MEMREF = "memref<40x40xi64>"
LOWER = ["-lower-affine", "-convert-scf-to-cf", "-convert-vector-to-llvm",
         "-expand-strided-metadata", "-finalize-memref-to-llvm", "-convert-arith-to-llvm",
         "-convert-index-to-llvm", "-convert-func-to-llvm", "-convert-cf-to-llvm",
         "-reconcile-unrealized-casts"]


def generate(rng, number):
    lines = [f"func.func @nest{number}(%A: {MEMREF}, %B: {MEMREF}, %x: i64, %y: i64, %z: i64) {{"]
    values, fresh = [["%x", "%y", "%z"]], [0]

    def new():
        fresh[0] += 1
        return f"%v{fresh[0]}"

    def index(names):
        # Few elements and much reuse: most pairs of accesses meet somewhere.
        if not names or rng.random() < 0.2:
            return str(rng.randint(15, 17))
        name = rng.choice(names)
        offset = rng.choice([0, 0, 0, 0, 1, -1])
        return f"{rng.choice(['', '', '', '', '-'])}%{name} + {15 + offset}"

    def load(pad, names):
        value = new()
        lines.append(f"{pad}{value} = affine.load %{rng.choice('AAAB')}[{index(names)}, {index(names)}] : {MEMREF}")
        values[-1].append(value)

    def store(pad, names):
        known = [v for level in values for v in level]
        a, b, c = (rng.choice(known[-4:]) for _ in range(3))
        three, product, total, result = new(), new(), new(), new()
        lines.append(f"{pad}{three} = arith.constant 3 : i64")
        lines.append(f"{pad}{product} = arith.muli {a}, {three} : i64")
        lines.append(f"{pad}{total} = arith.addi {product}, {b} : i64")
        lines.append(f"{pad}{result} = arith.subi {total}, {c} : i64")
        lines.append(f"{pad}affine.store {result}, %{rng.choice('AAAB')}[{index(names)}, {index(names)}] : {MEMREF}")

    def loop(depth, names, bounds, name):
        pad = "  " * (len(names) + 1)
        lines.append(f"{pad}affine.for %{name} = {bounds[0]} to {bounds[1]} {{")
        inner = names + [name]
        values.append([])
        if depth == 0 or rng.random() < 0.3:
            for _ in range(rng.randint(1, 2)):
                load(pad + "  ", inner)
        if depth == 0 or rng.random() < 0.15:
            store(pad + "  ", inner)
        if depth:
            loop(depth - 1, inner, (rng.randint(0, 2), rng.randint(3, 6)), "ijk"[len(inner)])
            if rng.random() < 0.25:
                load(pad + "  ", inner)
                store(pad + "  ", inner)
        values.pop()
        lines.append(f"{pad}}} {{attn.loop = \"{name}\"}}")

    bounds = (rng.randint(0, 2), rng.randint(3, 6))
    for _ in range(rng.choice([1, 1, 2])):
        loop(rng.choice([1, 1, 2]), [], bounds, "i")
    return "\n".join(lines + ["  return", "}"])


def main_function(count):
    return f"""
func.func @main() {{
  %x = arith.constant 7 : i64
  %y = arith.constant 11 : i64
  %z = arith.constant 13 : i64
  %A = memref.alloc() : {MEMREF}
  %B = memref.alloc() : {MEMREF}
""" + "".join(f"""
  call @reset(%A, %B) : ({MEMREF}, {MEMREF}) -> ()
  call @nest{n}(%A, %B, %x, %y, %z) : ({MEMREF}, {MEMREF}, i64, i64, i64) -> ()
  call @show(%A, %B) : ({MEMREF}, {MEMREF}) -> ()
""" for n in range(count)) + f"""
  return
}}
func.func private @reset(%A: {MEMREF}, %B: {MEMREF}) {{
  affine.for %i = 0 to 40 {{
    affine.for %j = 0 to 40 {{
      %n = affine.apply affine_map<(i, j) -> ((i * 41 + j * 7) mod 101)>(%i, %j)
      %a = arith.index_cast %n : index to i64
      affine.store %a, %A[%i, %j] : {MEMREF}
      %b = arith.muli %a, %a : i64
      affine.store %b, %B[%i, %j] : {MEMREF}
    }}
  }}
  return
}}
func.func private @show(%A: {MEMREF}, %B: {MEMREF}) {{
  %p = arith.constant 1000003 : i64
  %zero = arith.constant 0 : i64
  %r = affine.for %i = 0 to 40 iter_args(%s = %zero) -> i64 {{
    %t = affine.for %j = 0 to 40 iter_args(%u = %s) -> i64 {{
      %a = affine.load %A[%i, %j] : {MEMREF}
      %b = affine.load %B[%i, %j] : {MEMREF}
      %0 = arith.muli %u, %p : i64
      %1 = arith.addi %0, %a : i64
      %2 = arith.muli %1, %p : i64
      %3 = arith.addi %2, %b : i64
      affine.yield %3 : i64
    }}
    affine.yield %t : i64
  }}
  vector.print %r : i64
  return
}}
"""


def main():
    attn_opt, mlir_opt, runner, libraries, output = sys.argv[1:6]
    count = int(sys.argv[6]) if len(sys.argv) > 6 else 40
    rng = random.Random(int(sys.argv[7]) if len(sys.argv) > 7 else 1)
    nests = [generate(rng, n) for n in range(count)]

    def execute(functions, name):
        path = f"{output}.{name}.mlir"
        with open(path, "w") as file:
            file.write("\n".join(functions) + main_function(len(functions)))
        lowered = subprocess.run([mlir_opt, path] + LOWER, check=True, capture_output=True).stdout
        return subprocess.run([runner, "-e", "main", "-entry-point-result=void",
                               f"-shared-libs={libraries}/libmlir_c_runner_utils.so"],
                              input=lowered, check=True, capture_output=True, text=False).stdout.split()

    def transform(pipeline, nest):
        done = subprocess.run([attn_opt, f"-pass-pipeline=builtin.module({pipeline})"], input=nest,
                              capture_output=True, text=True)
        if done.returncode == 0:
            return re.search(r"  func\.func.*\n  }\n", done.stdout, re.S).group(0)
        if "error: " not in done.stderr or "Stack dump" in done.stderr:
            sys.exit(f"{pipeline} died on\n{nest}\n{done.stderr}")
        return None

    nests = [transform("", nest) for nest in nests]
    expected = execute(nests, "before")
    wrong = 0
    for pipeline in ["attn-interchange-loops{order=j,i}", "attn-interchange-loops{order=k,j,i}",
                     "attn-fuse-loops", "attn-hoist-invariants", "attn-parallelize-loops",
                     "attn-fuse-loops,attn-hoist-invariants,attn-interchange-loops{order=j,i}"]:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            changed = list(pool.map(lambda nest: transform(pipeline, nest), nests))
        accepted = sum(c is not None for c in changed)
        actual = execute([c or n for c, n in zip(changed, nests)], "after")
        for n, (a, e) in enumerate(zip(actual, expected)):
            if a != e:
                wrong += 1
                print(f"{pipeline} changes nest {n}:\n{nests[n]}\n{changed[n]}")
        other = sum(c is not None and c != n for c, n in zip(changed, nests))
        print(f"{pipeline}: {accepted} of {count} accepted, {other} changed")
    print(f"{wrong} wrong results")
    sys.exit(wrong != 0)


main()
