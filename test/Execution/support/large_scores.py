# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows whose scores are large: biases of up to finfo.min at all keys, at some, or a little apart.

    large_scores.py --attn-run BIN --target cpu --work DIR [--d 64] [--schedule OPTIONS] [--grad]

O and LSE beside numpy in float64, from scores rounded to float32, as they are defined. The largest
error of O is at most two roundings to the tensors' type at its size plus 0.3.

With --grad the gradients of Q, K, V and the biases too. Each element is a sum of products: its error is at
most four roundings to the tensors' type of the sum of their sizes.
"""

import argparse
import os
import subprocess
import sys

import numpy as np

LOWEST = float(np.finfo(np.float32).min)
SIZES = (-1e3, -1e4, -1e5, -1e6, -1e7, -1e8, -2e8, -1e9, -1e10, -1e12, -1e30, LOWEST, 1e5, 1e7, 1e9, 1e30)
QUERIES, KEYS = 70, 300

MODULE = """
func.func @main(%q: {t}, %k: {t}, %v: {t}, %bias: tensor<?x?xf32>) -> ({t}, tensor<?x?x?xf32>) {{
  %o, %lse = attn.forward %q, %k, %v captures(%bias : tensor<?x?xf32>)
    score {{
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<?x?xf32>):
      %x = tensor.extract %c[%i, %j] : tensor<?x?xf32>
      %y = arith.addf %s, %x : f32
      attn.yield %y : f32
    }} : {t}, {t}, {t} -> {t}, tensor<?x?x?xf32>
  return %o, %lse : {t}, tensor<?x?x?xf32>
}}
"""


def biases():
    bias = np.zeros((QUERIES, KEYS), np.float32)
    for n, size in enumerate(SIZES):
        bias[4 * n] = size
        bias[4 * n + 1, : KEYS - 1] = size
        bias[4 * n + 2, 100:] = size
        apart = size * (1 + np.arange(KEYS) % 3 * 1e-7)
        bias[4 * n + 3] = np.maximum(apart, LOWEST)
    bias[-2] = LOWEST
    bias[-2, 3] = -np.inf
    bias[-1] = -np.inf
    return bias


def scores_of(q, k, bias):
    products = np.einsum("bhid,bhjd->bhij", q.astype(float), k.astype(float)) / np.sqrt(q.shape[-1])
    return (products.astype(np.float32) + bias).astype(float)


def expected(q, k, v, bias):
    scores = scores_of(q, k, bias)
    maximum = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(maximum), 0, maximum))
    total = weights.sum(-1, keepdims=True)
    output = np.einsum("bhij,bhje->bhie", weights, v.astype(float)) / np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        return output, (maximum + np.log(total))[..., 0], weights / np.where(total == 0, 1, total)


def expected_gradients(tensors, output, weights, do):
    """Gradients of O times dO, each with the sum of the sizes of its terms."""
    q, k, v, do = (x.astype(float) for x in (tensors["q"], tensors["k"], tensors["v"], do))
    scale = 1 / np.sqrt(q.shape[-1])
    dead = (weights.sum(-1, keepdims=True) == 0)
    do = np.where(dead, 0, do)
    difference = np.einsum("bhie,bhje->bhij", do, v) - np.sum(do * output, -1, keepdims=True)
    ds = weights * difference
    # dO V and D are sums themselves; D is one of O, which is rounded.
    sizes = weights * (np.einsum("bhie,bhje->bhij", np.abs(do), np.abs(v)) + np.sum(np.abs(do * output), -1, keepdims=True))
    results = {}
    for name, what, first, second, factor in (
        ("dq", "bhij,bhjd->bhid", (ds, sizes), k, scale),
        ("dk", "bhij,bhid->bhjd", (ds, sizes), q, scale),
        ("dv", "bhij,bhid->bhjd", (weights, weights), do, 1.0),
    ):
        results[name] = (np.einsum(what, first[0], second) * factor, np.einsum(what, first[1], np.abs(second)) * factor)
    results["dbias"] = (ds.sum((0, 1)), sizes.sum((0, 1)))
    return results


def check_gradients(path, tensors, output, weights, do):
    failures = 0
    for name, (wanted, size) in expected_gradients(tensors, output, weights, do).items():
        found = np.load(path(name + ".npy")).astype(float)
        # An underflow of the tensors' type beside it.
        limit = 4 * 2.0**-11 * size + 2.0**-24
        wrong = ~(np.abs(found - wanted) <= limit)
        print(f"{name}: {wrong.sum()} of {wrong.size} elements wrong")
        if wrong.any():
            failures += 1
            at = tuple(np.argwhere(wrong)[0])
            print(f"  first at {at}: {found[at]} for {wanted[at]}, limit {limit[at]:.2e}")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attn-run", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--d", type=int, default=64)
    parser.add_argument("--schedule")
    parser.add_argument("--grad", action="store_true")
    options = parser.parse_args()
    os.makedirs(options.work, exist_ok=True)
    path = lambda name: os.path.join(options.work, name)
    random = np.random.default_rng(0)
    draw = lambda length: random.normal(size=(1, 2, length, options.d)).astype(np.float16)
    tensors = {"q": draw(QUERIES), "k": draw(KEYS), "v": draw(KEYS), "bias": biases()}
    command = [options.attn_run, path("case.mlir"), f"--target={options.target}"]
    for n, (name, value) in enumerate(tensors.items()):
        np.save(path(name + ".npy"), value)
        command.append(f"--input={n}={path(name + '.npy')}")
    command += [f"--output={n}={path(name + '.npy')}" for n, name in enumerate(("o", "lse"))]
    do = draw(QUERIES)
    if options.grad:
        np.save(path("do.npy"), do)
        command += ["--grad", f"--grad-input=0={path('do.npy')}", "--grad-fill=1=0"]
        command += [f"--grad-output={n}={path(name + '.npy')}" for n, name in enumerate(("dq", "dk", "dv", "dbias"))]
    if options.schedule:
        command.append(f"--schedule={options.schedule}")
    with open(path("case.mlir"), "w") as file:
        file.write(MODULE.format(t=f"tensor<?x?x?x{options.d}xf16>"))
    subprocess.run(command, check=True)
    output, lse = np.load(path("o.npy")).astype(float), np.load(path("lse.npy")).astype(float)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted, wanted_lse, weights = expected(**tensors)
    failures = 0
    for row in range(QUERIES):
        error = np.abs(output[:, :, row] - wanted[:, :, row]).max()
        limit = 2 * (np.abs(wanted[:, :, row]).max() + 0.3) * 2.0**-11
        one, other = lse[:, :, row], wanted_lse[:, :, row]
        with np.errstate(invalid="ignore"):
            same = np.all((one == other) | (np.abs(one - other) <= 1e-6 * np.maximum(1, np.abs(other))))
        if not (error <= limit) or not same:
            failures += 1
            print(f"row {row} (bias {tensors['bias'][row, :2]}): error {error:.2e} of {limit:.2e}, LSE {one} for {other}")
    print(f"{QUERIES - failures} of {QUERIES} rows")
    if options.grad:
        failures += check_gradients(path, tensors, wanted, weights, do)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
