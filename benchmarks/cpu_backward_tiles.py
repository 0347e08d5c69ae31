# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The backward on the CPU as hand-written tile programs, beside OpenBLAS.

    benchmarks/cpu_backward_tiles.py [--attn-run BIN] [--threads N] [--rounds N] [--types f32,bf16]

Measures what attn-lower-tiles makes of the two forms in
test/Execution/support/backward_tiles.py, at B1 H8 S2048: fused (keys outside)
and distributed (a nest for dQ, one for dK and dV). FLOPs are those of five
products over all pairs, 2 * (3 d + 2 dv) * pairs, although the distributed form
computes seven. Beside them sgemm and the forward; the pieces run alternately and
the best of each is compared, so that a busy machine hits all of them.
"""

import json
import os
import subprocess
import sys
import tempfile

from common import ROOT, Sgemm, module, parse_arguments

sys.path.insert(0, os.path.join(ROOT, "test", "Execution", "support"))
from backward_tiles import Program

HEADS, LENGTH = 8, 2048
TARGETS = {"fused": 0.75, "distributed": 0.6}


def seconds(options, path, shapes):
    command = [options.attn_run, path, "--entry=main", "--target=cpu", f"--threads={options.threads}",
               f"--bench={options.reps}", "--json"]
    for index, shape in enumerate(shapes):
        command += ["--shape", f"{index}={shape}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"attn-run failed ({path}):\n{done.stderr}")
    return json.loads(done.stdout)["median_s"]


def programs(types):
    """(name, form or None for the forward, IR, shapes, FLOPs)"""
    pairs = HEADS * LENGTH**2
    for d in (64, 128):
        tensor, line = f"1x{HEADS}x{LENGTH}x{d}", f"1x{HEADS}x{LENGTH}"
        yield f"forward f32 d {d}", None, module("full", d, HEADS), [tensor] * 3, 4 * d * pairs
        for form in TARGETS:
            for element in types:
                text = Program(form, d, d, element).text()
                yield f"{form} {element} d {d}", form, text, [tensor] * 4 + [line] * 2, 10 * d * pairs


def main():
    options = parse_arguments(__doc__, rounds=4, reps=3, add=lambda parser: parser.add_argument(
        "--types", default="f32", help="element types of the backward's inputs"))
    sgemm, gemm, best, missed = Sgemm(2048, options.threads), 0, {}, False
    with tempfile.TemporaryDirectory() as folder:
        cases = list(programs(options.types.split(",")))
        for _ in range(options.rounds):
            gemm = max(gemm, sgemm.gflops(options.reps))
            for name, _, text, shapes, flops in cases:
                path = os.path.join(folder, name.replace(" ", "-") + ".mlir")
                with open(path, "w") as file:
                    file.write(text)
                best[name] = max(best.get(name, 0), flops / seconds(options, path, shapes) / 1e9)
    print(f"{f'sgemm 2048^3, {options.threads} threads':32} {gemm:7.1f} GFLOP/s")
    for name, form, *_ in cases:
        ratio, target = best[name] / gemm, TARGETS.get(form)
        verdict = f"   target >= {100 * target:.0f} %  {'ok' if ratio >= target else 'MISSED'}" if target else ""
        missed |= bool(target) and ratio < target
        print(f"{name:32} {best[name]:7.1f} GFLOP/s {100 * ratio:5.0f} %{verdict}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
