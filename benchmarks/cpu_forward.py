# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The forward on the CPU, measured beside OpenBLAS in one run.

    benchmarks/cpu_forward.py [--attn-run BIN] [--threads N] [--reps N] [--json FILE]

Prints, each beside its target: GFLOP/s of the dense forward against sgemm
(2048^3, as many threads); the speed-up of causal and of a window over dense;
what memory grows by where inputs and outputs grow, to 65,536 keys; time from IR to code.
The pieces run alternately several times and the medians are compared, so that
a slow minute of the machine hits all of them. FLOPs are those of the two
products over the kept pairs, 4 * pairs * d.
"""

import statistics
import sys
import tempfile

from common import Attention, Sgemm, Table, pairs, parse_arguments


def add_arguments(parser):
    parser.add_argument("--skip-memory", action="store_true", help="leave out the case of 65,536 keys")
    parser.add_argument("--json", help="write the figures to a file")


CASES = [("full", 64, 8, 2048), ("causal", 64, 8, 2048), ("full", 128, 8, 2048), ("causal", 128, 8, 2048),
         ("full", 64, 1, 8192), ("window", 64, 1, 8192)]


def measure(attention, sgemm, options):
    """sgemm's GFLOP/s, the seconds of each case, those of compiling causal."""
    gemm, times, compiles = [], {case: [] for case in CASES}, []
    for _ in range(options.rounds):
        gemm.append(sgemm.gflops(options.reps))
        for case in CASES:
            report = attention.report(*case, f"--bench={options.reps}")
            times[case].append(report["median_s"])
            if case[0] == "causal":
                compiles.append(report["compile_s"])
    return statistics.median(gemm), {c: statistics.median(t) for c, t in times.items()}, statistics.median(compiles)


def main():
    options = parse_arguments(__doc__, rounds=3, reps=5, add=add_arguments)
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        attention = Attention(options, folder)
        gemm, seconds, compile_time = measure(attention, Sgemm(2048, options.threads), options)

        def gflops(case):
            mask, d, heads, s = case
            return 4 * heads * pairs(mask, s) * d / seconds[case] / 1e9

        table.add(f"sgemm 2048^3, {options.threads} threads", gemm, f"{gemm:.1f} GFLOP/s")
        for c in CASES:
            table.add(f"forward f32 {c[0]}, H {c[2]} S {c[3]} d {c[1]}", gflops(c),
                      f"{gflops(c):.1f} GF/s {1e3 * seconds[c]:.1f} ms")
        for d in (64, 128):
            ratio = gflops(("full", d, 8, 2048)) / gemm
            table.add(f"d {d}: full against sgemm", ratio, f"{100 * ratio:.0f} %", ">= 45 % (aim 65 %)", ratio >= 0.45)
        for d in (64, 128):
            ratio = seconds[("full", d, 8, 2048)] / seconds[("causal", d, 8, 2048)]
            table.add(f"d {d}: causal against full", ratio, f"{ratio:.2f} x", ">= 1.7 x", ratio >= 1.7)
        ratio = seconds[("full", 64, 1, 8192)] / seconds[("window", 64, 1, 8192)]
        table.add("window 256 against full, S 8192", ratio, f"{ratio:.2f} x", ">= 6 x", ratio >= 6)
        table.add("IR to code, causal", compile_time, f"{compile_time:.2f} s", "< 1 s", compile_time < 1)
        if not options.skip_memory:
            attention.add_memory(table, "full", 64, 65536)
    return table.finish(options)


if __name__ == "__main__":
    sys.exit(main())
