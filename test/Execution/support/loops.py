# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Affine loops on memory, executed by each treatment of what they carry.

    loops.py --attn-run PATH --attn-opt PATH --target interpreter [--scratch DIR] [--only CASE]
             [--treatments a,b] [--interleavings N] [--repeat N] [--jobs N]

Each case is a function of memrefs and what it computes, in NumPy in float64 and, for the criterion
of the same precision, in float32: the largest error is at most twice that of float32 and two
roundings. Exit status 1 if one fails.
"""

import argparse
import concurrent.futures
import os
import subprocess
import sys

import numpy

TREATMENTS = {
    "owner-computes": [],
    "owner-computes thread": ["loop-team=thread"],
    "owner-computes cta": ["loop-team=cta"],
    "ordered-turnstile": ["loop-parts=3"],
    "atomics": ["loop-parts=3"],
    "partial-and-merge": ["loop-parts=3"],
    "partial-and-merge last": ["loop-parts=3"],
    "grid-phases": ["loop-parts=3"],
    "grid-phases few": ["loop-parts=2", "ctas=4"],
    "cluster-reduction": ["loop-parts=4"],
    "cluster-reduction one": ["loop-parts=1"],
}

ONLINE = """
func.func @main(%Q: memref<{M}x{D}xf32>, %K: memref<{N}x{D}xf32>, %V: memref<{N}x{E}xf32>,
                %O: memref<{M}x{E}xf32>, %m: memref<{M}xf32>, %l: memref<{M}xf32>) {{
  affine.for %i = 0 to {M} {{
    %q_i = affine.vector_load %Q[%i, 0] : memref<{M}x{D}xf32>, vector<{D}xf32>
    affine.for %j = 0 to {N} {{
      %k_j = affine.vector_load %K[%j, 0] : memref<{N}x{D}xf32>, vector<{D}xf32>
      %m_i = affine.load %m[%i] : memref<{M}xf32>
      %l_i = affine.load %l[%i] : memref<{M}xf32>
      %qk = arith.mulf %q_i, %k_j : vector<{D}xf32>
      %S_ij = vector.reduction <add>, %qk : vector<{D}xf32> into f32
      %m_ij = arith.maximumf %m_i, %S_ij : f32
      %0 = arith.subf %m_i, %m_ij : f32
      %1 = math.exp %0 : f32
      %2 = arith.mulf %l_i, %1 : f32
      %3 = arith.subf %S_ij, %m_ij : f32
      %4 = math.exp %3 : f32
      %l_ij = arith.addf %2, %4 : f32
      affine.for %d = 0 to {E} {{
        %o_id = affine.load %O[%i, %d] : memref<{M}x{E}xf32>
        %v_jd = affine.load %V[%j, %d] : memref<{N}x{E}xf32>
        %8 = arith.divf %2, %l_ij : f32
        %9 = arith.mulf %o_id, %8 : f32
        %12 = arith.mulf %4, %v_jd : f32
        %13 = arith.divf %12, %l_ij : f32
        %o_ijd = arith.addf %9, %13 : f32
        affine.store %o_ijd, %O[%i, %d] : memref<{M}x{E}xf32>
      }}
      affine.store %m_ij, %m[%i] : memref<{M}xf32>
      affine.store %l_ij, %l[%i] : memref<{M}xf32>
    }}
  }}
  return
}}
"""

SUM = """
func.func @main(%X: memref<?x?xf32>, %S: memref<?xf32>) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = memref.dim %X, %c0 : memref<?x?xf32>
  %n = memref.dim %X, %c1 : memref<?x?xf32>
  affine.for %i = 0 to %m {{
    affine.for %j = 0 to %n {{
      %x = affine.load %X[%i, %j] : memref<?x?xf32>
      %s = affine.load %S[%i] : memref<?xf32>
      %t = arith.addf %s, %x : f32
      affine.store %t, %S[%i] : memref<?xf32>
    }}
  }}
  return
}}
"""

TOTAL = """
func.func @main(%X: memref<{N}xi32>, %S: memref<1xi32>) {{
  affine.for %j = 0 to {N} {{
    %x = affine.load %X[%j] : memref<{N}xi32>
    %s = affine.load %S[0] : memref<1xi32>
    %t = arith.addi %s, %x : i32
    affine.store %t, %S[0] : memref<1xi32>
  }}
  return
}}
"""

# Row softmax in four passes; m and l start at their neutral elements.
SOFTMAX = """
func.func @main(%X: memref<{M}x{N}xf32>, %Y: memref<{M}x{N}xf32>, %m: memref<{M}xf32>, %l: memref<{M}xf32>) {{
  %minus_infinity = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  affine.for %i = 0 to {M} {{
    affine.store %minus_infinity, %m[%i] : memref<{M}xf32>
    affine.store %zero, %l[%i] : memref<{M}xf32>
    affine.for %j = 0 to {N} {{
      %x = affine.load %X[%i, %j] : memref<{M}x{N}xf32>
      %a = affine.load %m[%i] : memref<{M}xf32>
      %b = arith.maximumf %a, %x : f32
      affine.store %b, %m[%i] : memref<{M}xf32>
    }}
    affine.for %j = 0 to {N} {{
      %x = affine.load %X[%i, %j] : memref<{M}x{N}xf32>
      %a = affine.load %m[%i] : memref<{M}xf32>
      %b = arith.subf %x, %a : f32
      %c = math.exp %b : f32
      affine.store %c, %Y[%i, %j] : memref<{M}x{N}xf32>
      %d = affine.load %l[%i] : memref<{M}xf32>
      %e = arith.addf %d, %c : f32
      affine.store %e, %l[%i] : memref<{M}xf32>
    }}
    affine.for %j = 0 to {N} {{
      %a = affine.load %l[%i] : memref<{M}xf32>
      %y = affine.load %Y[%i, %j] : memref<{M}x{N}xf32>
      %b = arith.divf %y, %a : f32
      affine.store %b, %Y[%i, %j] : memref<{M}x{N}xf32>
    }}
  }}
  return
}}
"""

# Logarithm of a sum of exponentials, online.
LSE = """
func.func @main(%X: memref<{M}x{N}xf32>, %m: memref<{M}xf32>, %l: memref<{M}xf32>, %L: memref<{M}xf32>) {{
  affine.for %i = 0 to {M} {{
    affine.for %j = 0 to {N} {{
      %x = affine.load %X[%i, %j] : memref<{M}x{N}xf32>
      %a = affine.load %m[%i] : memref<{M}xf32>
      %s = affine.load %l[%i] : memref<{M}xf32>
      %b = arith.maximumf %a, %x : f32
      %c = arith.subf %a, %b : f32
      %d = math.exp %c : f32
      %e = arith.mulf %s, %d : f32
      %f = arith.subf %x, %b : f32
      %g = math.exp %f : f32
      %h = arith.addf %e, %g : f32
      affine.store %b, %m[%i] : memref<{M}xf32>
      affine.store %h, %l[%i] : memref<{M}xf32>
    }}
    %a = affine.load %m[%i] : memref<{M}xf32>
    %s = affine.load %l[%i] : memref<{M}xf32>
    %b = math.log %s : f32
    %c = arith.addf %a, %b : f32
    affine.store %c, %L[%i] : memref<{M}xf32>
  }}
  return
}}
"""

# Two stacked reductions: the largest magnitude, then the sum of squares under it.
STACKED = """
#row = affine_map<(i, j) -> (i, j)>
#one = affine_map<(i, j) -> (i)>
func.func @main(%X: memref<{M}x{N}xf32>, %a: memref<{M}xf32>, %s: memref<{M}xf32>) {{
  linalg.generic {{indexing_maps = [#row, #one], iterator_types = ["parallel", "reduction"]}}
      ins(%X : memref<{M}x{N}xf32>) outs(%a : memref<{M}xf32>) {{
  ^bb0(%x: f32, %b: f32):
    %c = math.absf %x : f32
    %d = arith.maximumf %b, %c : f32
    linalg.yield %d : f32
  }}
  linalg.generic {{indexing_maps = [#row, #one, #one], iterator_types = ["parallel", "reduction"]}}
      ins(%X, %a : memref<{M}x{N}xf32>, memref<{M}xf32>) outs(%s : memref<{M}xf32>) {{
  ^bb0(%x: f32, %b: f32, %c: f32):
    %d = arith.divf %x, %b : f32
    %e = arith.mulf %d, %d : f32
    %f = arith.addf %c, %e : f32
    linalg.yield %f : f32
  }}
  return
}}
"""

# Columns, with triangular bounds, inside of rows that are taken in order.
TRIANGLE = """
func.func @main(%X: memref<{N}x{N}xf32>, %S: memref<{N}xf32>, %T: memref<1xf32>) {{
  affine.for %j = 0 to {N} {{
    affine.for %i = affine_map<(j) -> (j)>(%j) to {N} {{
      %x = affine.load %X[%j, %i] : memref<{N}x{N}xf32>
      %s = affine.load %S[%i] : memref<{N}xf32>
      %t = arith.addf %s, %x : f32
      affine.store %t, %S[%i] : memref<{N}xf32>
    }}
    %a = affine.load %S[%j] : memref<{N}xf32>
    %b = affine.load %T[0] : memref<1xf32>
    %c = arith.maximumf %a, %b : f32
    affine.store %c, %T[0] : memref<1xf32>
  }}
  return
}}
"""

IN_ORDER = ["owner-computes", "owner-computes thread", "owner-computes cta", "ordered-turnstile"]
# What carries nothing, behind what waits for its turn, in the same memory: it must not run ahead.
ORDER = """
func.func @main(%X: memref<{N}xf32>, %S: memref<1xf32>, %B: memref<{N}xf32>) {{
  %one = arith.constant 1.0 : f32
  affine.for %j = 0 to {N} {{
    %x = affine.load %X[%j] : memref<{N}xf32>
    %s = affine.load %S[0] : memref<1xf32>
    %t = arith.addf %s, %x : f32
    affine.store %t, %S[0] : memref<1xf32>
    affine.store %t, %B[%j] : memref<{N}xf32>
    affine.store %one, %B[%j] : memref<{N}xf32>
  }}
  return
}}
"""

REDUCING = [t for t in TREATMENTS if t not in IN_ORDER]
PHASES = [t for t in REDUCING if t != "partial-and-merge last"]


def attention(q, k, v, o, m, l):
    s = q @ k.T
    big = numpy.maximum(m, s.max(axis=1))
    old = l * numpy.exp(m - big)
    p = numpy.exp(s - big[:, None])
    sums = old + p.sum(axis=1)
    return [(o * (old / sums)[:, None] + p @ v / sums[:, None]), big, sums]


def softmax(x, y, m, l):
    big = x.max(axis=1)
    p = numpy.exp(x - big[:, None])
    return [p / p.sum(axis=1)[:, None], big, p.sum(axis=1)]


def log_sum_exp(x, m, l, out):
    big = numpy.maximum(m, x.max(axis=1))
    sums = l * numpy.exp(m - big) + numpy.exp(x - big[:, None]).sum(axis=1)
    return [big, sums, big + numpy.log(sums)]


def stacked(x, a, s):
    big = numpy.maximum(a, abs(x).max(axis=1))
    return [big, s + ((x / big[:, None]) ** 2).sum(axis=1)]


def triangle(x, s, t):
    s, t = s.copy(), t.copy()
    for j in range(len(s)):
        s[j:] += x[j, j:]
        t[0] = max(t[0], s[j])
    return [s, t]


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(numpy.float32)


def online(m, n, d, e, start):
    def make(rng):
        minus = numpy.full(m, -numpy.inf, numpy.float32)
        first = [numpy.zeros((m, e), numpy.float32), minus, numpy.zeros(m, numpy.float32)]
        if start:
            first = [normal(rng, m, e), normal(rng, m), abs(normal(rng, m)) + 1]
        return [normal(rng, m, d), normal(rng, n, d), normal(rng, n, e)] + first
    return ONLINE.format(M=m, N=n, D=d, E=e), make, attention, 3, PHASES + IN_ORDER


def case_sum(m, n):
    return (SUM.format(), lambda rng: [normal(rng, m, n), normal(rng, m)],
            lambda x, s: [s + x.sum(axis=1)], 1, REDUCING + IN_ORDER)


def case_total(n):
    return (TOTAL.format(N=n),
            lambda rng: [rng.integers(-9, 9, n).astype(numpy.int32), numpy.array([5], numpy.int32)],
            lambda x, s: [s + x.sum()], 1, REDUCING + IN_ORDER)


def case_softmax(m, n):
    return (SOFTMAX.format(M=m, N=n),
            lambda rng: [normal(rng, m, n)] + [numpy.zeros(s, numpy.float32) for s in ((m, n), m, m)],
            softmax, 1, PHASES + IN_ORDER)


def case_lse(m, n):
    return (LSE.format(M=m, N=n),
            lambda rng: [3 * normal(rng, m, n), numpy.full(m, -numpy.inf, numpy.float32),
                         numpy.zeros(m, numpy.float32), numpy.zeros(m, numpy.float32)],
            log_sum_exp, 1, PHASES + IN_ORDER)


def case_stacked(m, n):
    return (STACKED.format(M=m, N=n),
            lambda rng: [normal(rng, m, n), numpy.zeros(m, numpy.float32), numpy.zeros(m, numpy.float32)],
            stacked, 1, REDUCING + IN_ORDER)


def case_order(n):
    return (ORDER.format(N=n), lambda rng: [normal(rng, n), normal(rng, 1), normal(rng, n)],
            lambda x, s, b: [s + x.sum(), numpy.ones_like(b)], 1, IN_ORDER)


def case_triangle(n):
    return (TRIANGLE.format(N=n), lambda rng: [normal(rng, n, n), normal(rng, n), normal(rng, 1)],
            triangle, 1, IN_ORDER)


CASES = {
    "attention": lambda: online(5, 13, 4, 3, start=False),
    "attention-start": lambda: online(3, 70, 8, 40, start=True),
    "attention-two-keys": lambda: online(2, 2, 4, 5, start=True),
    "attention-one-row": lambda: online(1, 33, 4, 3, start=False),
    "sum": lambda: case_sum(5, 200),
    "sum-one": lambda: case_sum(1, 1),
    "sum-long": lambda: case_sum(2, 1500),
    "total": lambda: case_total(777),
    "softmax": lambda: case_softmax(3, 150),
    "log-sum-exp": lambda: case_lse(4, 90),
    "stacked": lambda: case_stacked(3, 130),
    "triangle": lambda: case_triangle(37),
    "order": lambda: case_order(50),
}


def run(args, name, treatment):
    text, make, compute, inputs, treatments = CASES[name]()
    if treatment not in treatments:
        return None
    rng = numpy.random.default_rng(len(name))
    values = make(rng)
    base = os.path.join(args.scratch, f"{name}-{treatment.replace(' ', '-')}")
    with open(base + ".mlir", "w") as f:
        f.write(text)
    if "linalg" in text:
        subprocess.run([args.attn_opt, base + ".mlir", "--convert-linalg-to-affine-loops", "-o", base + ".mlir"],
                       check=True)
    word, _, rest = treatment.partition(" ")
    schedule = [f"treatment={word}", f"loop-threads={args.threads}"] + TREATMENTS[treatment]
    if rest == "last":
        schedule.append("loop-merge=last")
    command = [args.attn_run, base + ".mlir", f"--target={args.target}", "--schedule=" + " ".join(schedule)]
    if args.target == "interpreter":
        command.append(f"--interleavings={args.interleavings}")
    for number, value in enumerate(values):
        numpy.save(f"{base}-{number}.npy", value)
        command.append(f"--input={number}={base}-{number}.npy")
        if number >= inputs:
            command.append(f"--output={number}={base}-out-{number}.npy")
    bits = None
    for _ in range(args.repeat):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=args.limit)
        except subprocess.TimeoutExpired:
            return f"no end within {args.limit:.0f} s"
        if done.returncode:
            return done.stderr.strip() or f"exit status {done.returncode}"
        results = [numpy.load(f"{base}-out-{n}.npy") for n in range(inputs, len(values))]
        now = [r.tobytes() for r in results]
        if bits is not None and now != bits and word != "atomics":
            return "other bits in another run"
        bits = now
    exact = compute(*[v.astype(numpy.float64) if v.dtype == numpy.float32 else v for v in values])
    same = compute(*values)
    for number, (got, want, rough) in enumerate(zip(results, exact, same)):
        if want.dtype.kind == "i":
            if not numpy.array_equal(got, want):
                return f"result {number}: other integers"
            continue
        error = abs(got - want).max()
        bound = 2 * abs(rough.astype(numpy.float64) - want).max() + 2 * 2.0**-24 * abs(want).max()
        # Sums in another order.
        bound += abs(want).max() * 2.0**-24 * 8
        if not error <= bound:
            return f"result {number}: error {error:.3g}, bound {bound:.3g}"
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--attn-run", required=True)
    parser.add_argument("--attn-opt", required=True)
    parser.add_argument("--target", default="interpreter")
    parser.add_argument("--scratch", default="/tmp/attn-loops")
    parser.add_argument("--only")
    parser.add_argument("--treatments")
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--interleavings", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    os.makedirs(args.scratch, exist_ok=True)
    pairs = [(name, treatment) for name in CASES for treatment in TREATMENTS
             if (not args.only or name in args.only.split(","))
             and (not args.treatments or treatment in args.treatments.split(","))]
    total = failed = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for pair, problem in zip(pairs, pool.map(lambda pair: run(args, *pair), pairs)):
            if problem is None:
                continue
            total += 1
            if problem:
                failed += 1
                print(f"{' '.join(pair)}: {problem}")
    print(f"{total - failed} of {total} cases are right")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
