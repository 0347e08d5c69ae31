# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a hand-written forward of head dimension 128 in the interpreter and compares
it with numpy in float64.

    forward.py ATTN_RUN FILE

A row of O is a mean of rows of V with weights rounded to bf16 (2^-9 each), and is
rounded itself: its error is at most 2^-8 of the mean of |V| with the same weights,
and 2^-8 of its own size. LSE is a sum in f32.
"""

import os
import subprocess
import sys
import tempfile

import numpy as np


def to_bfloat(values):
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32)


def reference(q, k, v):
    """O, LSE, and the mean of |V|."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    rows = q.shape[:3]
    if k.shape[2] == 0:
        return np.zeros(q.shape), np.full(rows, -np.inf), np.zeros(q.shape)
    scores = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(q.shape[3])
    largest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(-1, keepdims=True)
    weights /= total
    return weights @ v, (largest + np.log(total))[..., 0], weights @ np.abs(v)


def check(run, file, batch, heads, queries, keys, options):
    random = np.random.default_rng(queries * 1000 + keys)
    arrays = [to_bfloat(random.standard_normal((batch, heads, length, 128)))
              for length in (queries, keys, keys)]
    with tempfile.TemporaryDirectory() as folder:
        command = [run, file, "--target=interpreter", "--fill=3=nan", "--fill=4=nan",
                   f"--shape=3={batch}x{heads}x{queries}x128",
                   f"--shape=4={batch}x{heads}x{queries}"] + options
        for position, array in enumerate(arrays):
            path = os.path.join(folder, f"in{position}.npy")
            np.save(path, array)
            command.append(f"--input={position}={path}")
        paths = [os.path.join(folder, name) for name in ("o.npy", "lse.npy")]
        command += [f"--output=3={paths[0]}", f"--output=4={paths[1]}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        output, lse = (np.load(path) for path in paths)
    exact, exact_lse, size = reference(*arrays)
    error = np.abs(output - exact) - 2.0**-8 * (size + np.abs(exact))
    empty = np.isneginf(exact_lse)
    assert (error <= 1e-6).all(), (queries, keys, error.max())
    assert (np.isneginf(lse) == empty).all()
    assert (np.abs(lse[~empty] - exact_lse[~empty]) <= 1e-5).all()


def main():
    run, file = sys.argv[1:]
    for length in (1, 63, 64, 127, 128, 129, 300):
        check(run, file, 1, 2, length, length, ["--interleavings=8", "--stride-pad=8"])
    check(run, file, 2, 3, 130, 257, ["--interleavings=3"])
    check(run, file, 1, 1, 200, 1, ["--interleavings=8", "--seed=9"])
    check(run, file, 1, 1, 70, 0, ["--interleavings=8"])
    for order in ("random", "round-robin", "ahead", "behind"):
        for timing in ("early", "late", "random"):
            check(run, file, 1, 1, 129, 400,
                  [f"--interpreter-order={order}", f"--interpreter-timing={timing}"])


if __name__ == "__main__":
    main()
