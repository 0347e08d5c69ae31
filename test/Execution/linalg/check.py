# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a hand-written linalg program through attn-run and compares it with
numpy in float64, under the gates of support/reference.py. The reference is
chosen by the name of the program's function.

The programs leave the order of their sums open, and what is not fused runs in
the order of the text. So there are two baselines: numpy's own sums and
products, and plain loops in increasing order of the index."""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support import reference


class Numpy:
    matmul = staticmethod(np.matmul)

    @staticmethod
    def sum(x):
        return x.sum(axis=-1, keepdims=True)


class InOrder:
    @staticmethod
    def matmul(a, b):
        result = np.zeros(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + (a.shape[-2], b.shape[-1]), a.dtype)
        for k in range(a.shape[-1]):
            result += a[..., :, k, None] * b[..., k, None, :]
        return result

    @staticmethod
    def sum(x):
        return np.cumsum(x, axis=-1)[..., -1:]


def _softmax_parts(ops, s, sink=None):
    m = s.max(axis=-1, initial=-np.inf, keepdims=True)
    if sink is not None:
        m = np.maximum(m, sink)
    p = np.exp(s - m)
    l = ops.sum(p)
    return m, p, l if sink is None else l + np.exp(sink - m)


def _attention(ops, q, k, v, sink=None, causal=False):
    s = ops.matmul(q, np.swapaxes(k * q.dtype.type(1 / np.sqrt(q.shape[-1])), -1, -2))
    if causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, q.dtype.type(-np.inf))
    _, p, l = _softmax_parts(ops, s, None if sink is None else sink[:, None, None])
    return ops.matmul(p, v) / l


def _log_sum_exp(ops, x):
    m, _, l = _softmax_parts(ops, x)
    return (m + np.log(l))[:, 0]


def _softmax(ops, x):
    _, p, l = _softmax_parts(ops, x)
    return p / l


# Name: (numpy in the type of its inputs, shapes of the inputs from two lengths)
PROGRAMS = {
    "attention": (_attention, lambda n, m: [(n, 64), (m, 64), (m, 48)]),
    "attention_normalised_first": (
        lambda ops, q, k, v: _attention(ops, q, k, v, causal=True),
        lambda n, m: [(3, n, 32), (3, m, 32), (3, m, 32)]),
    "attention_sink": (_attention, lambda n, m: [(3, n, 32), (3, m, 32), (3, m, 32), (3,)]),
    "attention_sink_first": (_attention, lambda n, m: [(3, n, 32), (3, m, 32), (3, m, 32), (3,)]),
    "softmax": (_softmax, lambda n, m: [(n, m)]),
    "log_sum_exp": (_log_sum_exp, lambda n, m: [(n, m)]),
    "norm_then_project": (
        lambda ops, x, w: ops.matmul(x / np.sqrt(ops.sum(x * x)), w),
        lambda n, m: [(n, m), (m, 24)]),
    "scale_then_project": (
        lambda ops, x, w: ops.matmul(x / np.abs(x).max(axis=1, keepdims=True, initial=0), w),
        lambda n, m: [(n, m), (m, 24)]),
}
LENGTHS = [(1, 1), (100, 300), (257, 129), (64, 128), (1023, 1024)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--attn-run", default="attn-run")
    parser.add_argument("--work", required=True)
    options = parser.parse_args()
    entry = re.search(r"func\.func @(\w+)", open(options.file).read()).group(1)
    compute, shapes = PROGRAMS[entry]
    shutil.rmtree(options.work, ignore_errors=True)
    os.makedirs(options.work)
    failed = False
    for number, (n, m) in enumerate(LENGTHS):
        rng = np.random.default_rng(number)
        inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes(n, m)]
        output = os.path.join(options.work, f"{number}-out.npy")
        command = [options.attn_run, options.file, f"--entry={entry}", "--target=cpu",
                   "--output", f"0={output}", f"--stride-pad={5 * (number % 2)}"]
        for index, array in enumerate(inputs):
            path = os.path.join(options.work, f"{number}-in{index}.npy")
            np.save(path, array)
            command += ["--input", f"{index}={path}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            problems = [f"exit status {done.returncode}: {done.stderr.strip()[-1500:]}"]
        else:
            exact = compute(Numpy, *(x.astype(np.float64) for x in inputs))
            baselines = [compute(ops, *inputs) for ops in (Numpy, InOrder)]
            problems, _ = reference.check("result 0", "f32", np.load(output), exact, baselines)
        for problem in problems:
            failed = True
            print(f"FAIL {entry} with lengths {n} and {m}: {problem}\n  {shlex.join(command)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
