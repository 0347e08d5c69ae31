# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The backward on the CPU, from attn.forward to its gradients, beside OpenBLAS.

    benchmarks/cpu_backward.py [--attn-run BIN] [--threads N] [--orders auto,m_outer] [--json FILE]

For each loop order and for the one that the cost model takes: GFLOP/s of the
gradient function at B1 H8 S2048 (f32, without the forward, whose output and
log-sum-exp it is given), against sgemm (2048^3, as many threads), and the
speed-up of causal over dense. Then, at 32,768 keys, what memory grows by where
the data (inputs, outputs, their gradients) grow, and the time from IR to code of
both functions. The pieces run alternately several times and the medians are
compared, so that a slow minute of the machine hits all of them. FLOPs are those
of five products over the kept pairs, 10 * pairs * d, also for the orders that
compute seven.
"""

import statistics
import sys
import tempfile

from common import Attention, Sgemm, Table, pairs, parse_arguments

HEADS, LENGTH = 8, 2048
ORDERS = ("auto", "m_outer", "n_outer", "split_kv")
# The cost model's order where the number of heads is known when it runs only.
DYNAMIC = "auto with dynamic heads"
# The two forms' own targets, as in cpu_backward_tiles.py: in one pass, in two.
TARGETS = {"auto": 0.75, "n_outer": 0.75, "m_outer": 0.6}


def add_arguments(parser):
    parser.add_argument("--orders", default=",".join(ORDERS), type=lambda text: text.split(","))
    parser.add_argument("--skip-memory", action="store_true", help="leave out the case of 32,768 keys")
    parser.add_argument("--json", help="write the figures to a file")


def measure(attention, dynamic, sgemm, options):
    """sgemm's GFLOP/s; per (order, mask, d) the seconds of a run and of compiling."""
    cases = [(order, mask, d) for d in (64, 128) for mask in ("full", "causal")
             for order in options.orders + [DYNAMIC] * (d == 64)]
    gemm, runs, compiles = [], {case: [] for case in cases}, {case: [] for case in cases}
    for _ in range(options.rounds):
        gemm.append(sgemm.gflops(options.reps))
        for order, mask, d in cases:
            runner, order_option = (dynamic, "auto") if order == DYNAMIC else (attention, order)
            report = runner.report(mask, d, HEADS, LENGTH, f"--loop-order={order_option}", f"--bench={options.reps}")
            runs[order, mask, d].append(report["gradient"]["median_s"])
            compiles[order, mask, d].append(report["compile_s"])
    middle = lambda lists: {case: statistics.median(values) for case, values in lists.items()}
    return statistics.median(gemm), gemm, middle(runs), middle(compiles)


def add_rates(table, gemm, runs):
    for (order, mask, d), seconds in runs.items():
        rate = 10 * HEADS * pairs(mask, LENGTH) * d / seconds / 1e9
        table.add(f"backward f32 {mask}, d {d}, {order}", rate, f"{rate:.1f} GF/s {1e3 * seconds:.1f} ms")
    for order, mask, d in runs:
        if mask != "full":
            continue
        ratio = 10 * HEADS * LENGTH**2 * d / runs[order, "full", d] / 1e9 / gemm
        target = TARGETS.get(order)
        table.add(f"d {d}, {order}: full against sgemm", ratio, f"{100 * ratio:.0f} %",
                  target and f">= {100 * target:.0f} %", ratio >= target if target else None)
        ratio = runs[order, "full", d] / runs[order, "causal", d]
        least = {"auto": 1.7, DYNAMIC: 1.6}.get(order)
        table.add(f"d {d}, {order}: causal against full", ratio, f"{ratio:.2f} x", least and f">= {least} x",
                  ratio >= least if least else None)


def main():
    options = parse_arguments(__doc__, rounds=3, reps=5, add=add_arguments)
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        attention = Attention(options, folder, ["--grad"])
        dynamic = Attention(options, folder, ["--grad"], dynamic_heads=True)
        gemm, rounds, runs, compiles = measure(attention, dynamic, Sgemm(2048, options.threads), options)
        table.add(f"sgemm 2048^3, {options.threads} threads", gemm, f"{gemm:.1f} GFLOP/s")
        # How far apart its rounds are says how quiet the machine was.
        spread = max(rounds) / min(rounds) - 1
        table.add("  spread over the rounds", spread, f"{100 * spread:.0f} %")
        add_rates(table, gemm, runs)
        for order in options.orders:
            seconds = compiles[order, "causal", 64]
            table.add(f"IR to code, causal, forward and {order}", seconds, f"{seconds:.2f} s")
        if not options.skip_memory:
            for order in options.orders:
                attention.add_memory(table, "causal", 64, 32768, f"--loop-order={order}")
    return table.finish(options)


if __name__ == "__main__":
    sys.exit(main())
