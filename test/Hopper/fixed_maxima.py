# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention with scores that the maximum of a row's first tile is wrong for: fix-maxima=true must be
as right as fix-maxima=false, both against numpy in float64.

    fixed_maxima.py FILE.mlir --attn-run BIN --target interpreter|cuda [--causal] [--head 64]
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

import numpy

ROUNDING = {"bf16": 2.0**-8, "f16": 2.0**-11}


def round_to(kind, values):
    if kind == "f16":
        return values.astype(numpy.float16).astype(numpy.float32)
    bits = values.astype(numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(numpy.float32)


def make_inputs(how, kind, head, rows, keys):
    """Two heads; what is unusual is so in some rows of one of them only."""
    random = numpy.random.default_rng(7)
    q, k, v = (random.standard_normal((1, 2, n, head)) for n in (rows, keys, keys))
    some, behind = slice(rows // 2, rows // 2 + 5), 140  # a key behind the first tile
    if how == "large":  # scores grow by a hundred behind the first tile
        q[0, 1, some, 0], k[0, 1, behind, 0] = 40, 20
    elif how == "small":  # all scores are far below 0
        q[0, 1, some, 0], k[..., 0] = -400, 8
    elif how == "offset":  # all scores are far above 0, by as much: nothing to report
        q[0, 1, some, 0], k[..., 0] = 400, 8
    elif how == "values":  # products beyond f32 where weights are not in [0, 1]
        q[0, 1, some], k[0, 1, behind], v[0, 1, behind] = 4, 0.9, 1e36 if kind == "bf16" else 6e4
    elif how == "infinite":
        q[0, 1, some.start, 3] = numpy.inf
    elif how == "nan":
        v[0, 1, 0, 0] = numpy.nan
    return [round_to(kind, each) for each in (q, k, v)]


def attend(q, k, v, causal):
    q, k, v = (each.astype(numpy.float64) for each in (q, k, v))
    with numpy.errstate(all="ignore"):
        s = q @ k.swapaxes(-1, -2) / numpy.sqrt(q.shape[-1])
        if causal:
            s[..., numpy.arange(s.shape[-1]) > numpy.arange(s.shape[-2])[:, None]] = -numpy.inf
        m = s.max(-1, keepdims=True)
        p = numpy.exp(s - m)
        total = p.sum(-1, keepdims=True)
        return p @ v / total, (m + numpy.log(total))[..., 0]


def run(options, folder, inputs, schedule):
    command = [options.attn_run, options.file, f"--target={options.target}",
               f"--schedule=ctas=3 {schedule}"]
    for number, each in enumerate(inputs):
        path = os.path.join(folder, f"in{number}.npy")
        numpy.save(path, each)
        command += [f"--input={number}={path}"]
    outputs = [os.path.join(folder, f"out{number}.npy") for number in range(2)]
    command += [f"--output={number}={path}" for number, path in enumerate(outputs)]
    result = subprocess.run(command + ["--explain"], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(command)}\n{result.stdout}{result.stderr}")
    products = re.search(r"(\d+) products", result.stdout + result.stderr)
    return [numpy.load(path).astype(numpy.float64) for path in outputs], products and int(products[1])


def find_fault(name, got, baseline, expected, rounding):
    """By rows that hold numbers: errors at most twice the baseline's, and two roundings."""
    if not numpy.array_equal(numpy.isfinite(got), numpy.isfinite(expected)):
        return f"{name}: other elements are finite"
    is_number = numpy.isfinite(expected)
    scale = numpy.abs(expected[is_number]).max()
    own, other = (numpy.abs(each - expected)[is_number] for each in (got, baseline))
    for what, of in (("largest", numpy.max), ("mean", numpy.mean)):
        most = 2 * of(other) + 2 * rounding * (scale if what == "largest" else
                                               numpy.abs(expected[is_number]).mean())
        if of(own) > most:
            return f"{name}: {what} error {of(own):.3g}, at most {most:.3g} expected"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--attn-run", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--type", choices=["bf16", "f16"], default="bf16")
    parser.add_argument("--head", type=int, default=64)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--keys", type=int, default=700)
    options = parser.parse_args()
    failed = False
    for how in ("usual", "large", "small", "offset", "values", "infinite", "nan"):
        inputs = make_inputs(how, options.type, options.head, options.rows, options.keys)
        with tempfile.TemporaryDirectory() as folder:
            got, products = run(options, folder, inputs, "fix-maxima=true")
            baseline, fewest = run(options, folder, inputs, "fix-maxima=false")
        expected = attend(*inputs, options.causal)
        fault = (find_fault("O", got[0], baseline[0], expected[0], ROUNDING[options.type]) or
                 find_fault("LSE", got[1], baseline[1], expected[1], 2.0**-23))
        if not fault and fewest:
            # Of three CTAs, those that have such a row compute again.
            least, most = {"usual": (0, 0), "offset": (0, 0),
                           "nan": (fewest, fewest)}.get(how, (1, fewest - 1))
            if not least <= products - fewest <= most:
                fault = f"{products} products, {fewest} without a fixed maximum"
        failed |= bool(fault)
        print(f"{how}: {fault or 'ok'}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
