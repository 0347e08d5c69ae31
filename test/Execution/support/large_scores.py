# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows whose scores are large: biases of up to finfo.min at all keys, at some, or a little apart.

    large_scores.py --attn-run BIN --target cpu --work DIR [--d 64] [--schedule OPTIONS]

O and LSE beside numpy in float64, from scores rounded to float32, as they are defined. The largest
error of O is at most two roundings to the tensors' type at its size plus 0.3.
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


def expected(q, k, v, bias):
    products = np.einsum("bhid,bhjd->bhij", q.astype(float), k.astype(float)) / np.sqrt(q.shape[-1])
    scores = (products.astype(np.float32) + bias).astype(float)
    maximum = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(maximum), 0, maximum))
    total = weights.sum(-1, keepdims=True)
    output = np.einsum("bhij,bhje->bhie", weights, v.astype(float)) / np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        return output, (maximum + np.log(total))[..., 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attn-run", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--d", type=int, default=64)
    parser.add_argument("--schedule")
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
    if options.schedule:
        command.append(f"--schedule={options.schedule}")
    with open(path("case.mlir"), "w") as file:
        file.write(MODULE.format(t=f"tensor<?x?x?x{options.d}xf16>"))
    subprocess.run(command, check=True)
    output, lse = np.load(path("o.npy")).astype(float), np.load(path("lse.npy")).astype(float)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted, wanted_lse = expected(**tensors)
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
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
