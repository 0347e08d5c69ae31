# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the benchmarks on the CPU share: masks and modules, OpenBLAS beside the
compiler, attn-run as a process, a table of figures beside their targets."""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")

MASKS = {
    "full": "",
    "causal": "      %keep = arith.cmpi sge, %i, %j : index\n",
    # The 256 keys up to the query itself.
    "window": """      %w = arith.constant 256 : index
      %d = arith.subi %i, %j : index
      %zero = arith.constant 0 : index
      %a = arith.cmpi sge, %d, %zero : index
      %z = arith.cmpi slt, %d, %w : index
      %keep = arith.andi %a, %z : i1
""",
}


def module(mask, d, heads):
    """Batch and length are dynamic, and heads where they are "?": these may be
    grouped, so dK and dV are computed per query head and then summed."""
    t, line = f"tensor<?x{heads}x?x{d}xf32>", f"tensor<?x{heads}x?xf32>"
    body = MASKS[mask]
    if body:
        body = ("\n    mask {\n    ^bb0(%b: index, %h: index, %i: index, %j: index):\n" + body
                + "      attn.yield %keep : i1\n    }")
    return (f"func.func @main(%q: {t}, %k: {t}, %v: {t}) -> ({t}, {line}) {{\n"
            f"  %o, %lse = attn.forward %q, %k, %v{body} : {t}, {t}, {t} -> {t}, {line}\n"
            f"  return %o, %lse : {t}, {line}\n}}\n")


def pairs(mask, s):
    if mask == "causal":
        return s * (s + 1) // 2
    if mask == "window":
        return sum(min(i + 1, 256) for i in range(s))
    return s * s


class Sgemm:
    """cblas_sgemm of Debian's OpenBLAS on n x n matrices."""

    def __init__(self, n, threads):
        for name in ("libopenblas.so.0", "libopenblas.so"):
            try:
                self.library = ctypes.CDLL(name)
                break
            except OSError:
                continue
        else:
            sys.exit("benchmarks: libopenblas not found (Debian: libopenblas-dev)")
        self.library.openblas_set_num_threads(threads)
        rng = np.random.default_rng(0)
        self.n = n
        self.a, self.b = (rng.standard_normal((n, n)).astype(np.float32) for _ in range(2))
        self.c = np.zeros((n, n), np.float32)

    def gflops(self, reps):
        pointer = lambda x: x.ctypes.data_as(ctypes.c_void_p)
        n, one, zero = ctypes.c_int(self.n), ctypes.c_float(1), ctypes.c_float(0)
        times = []
        for _ in range(reps + 1):
            start = time.perf_counter()
            self.library.cblas_sgemm(101, 111, 111, n, n, n, one, pointer(self.a), n, pointer(self.b), n,
                                     zero, pointer(self.c), n)
            times.append(time.perf_counter() - start)
        return 2 * self.n**3 / statistics.median(times[1:]) / 1e9


class Attention:
    """attn-run on the module of a mask and a head dimension."""

    def __init__(self, options, folder, extra=(), dynamic_heads=False):
        self.options, self.folder, self.extra = options, folder, list(extra)
        self.dynamic_heads = dynamic_heads

    def command(self, mask, d, heads, s, *extra):
        known = "?" if self.dynamic_heads else heads
        path = os.path.join(self.folder, f"{mask}-{known}-{d}.mlir".replace("?", "dynamic"))
        with open(path, "w") as file:
            file.write(module(mask, d, known))
        command = [self.options.attn_run, path, "--entry=main", "--target=cpu", f"--threads={self.options.threads}"]
        for index in range(3):
            command += ["--shape", f"{index}=1x{heads}x{s}x{d}"]
        return command + self.extra + list(extra)

    def report(self, mask, d, heads, s, *extra):
        """What attn-run --json says. Run by a shell of its own, for a process
        that Python starts inherits Python's peak of memory."""
        command = ["sh", "-c", '"$@"; exit $?', "sh"] + self.command(mask, d, heads, s, "--json", *extra)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"attn-run failed ({mask}, d {d}, {s} keys):\n{done.stderr}")
        return json.loads(done.stdout)

    def add_memory(self, table, mask, d, s, *extra):
        """What the peak grows by where the data do, from s / 2 keys to s, one head.
        (The peak itself contains what compiling needed, which is used again.)"""
        peaks, data = [], []
        for length in (s // 2, s):
            report = self.report(mask, d, 1, length, *extra)
            peaks.append(report["peak_rss_bytes"])
            # A gradient's inputs hold the forward's inputs and results.
            last = report.get("gradient", report)
            data.append(last["input_bytes"] + last["output_bytes"])
        ratio = (peaks[1] - peaks[0]) / (data[1] - data[0])
        table.add(f"memory at S {s}, d {d}, {mask}{''.join(extra).replace('--loop-order=', ', ')}: peak", peaks[1],
                  f"{peaks[1] / 2**20:.0f} MiB")
        table.add("  inputs and outputs, and of the gradient" if "gradient" in report else "  inputs and outputs",
                  data[1], f"{data[1] / 2**20:.0f} MiB")
        # Parts of the keys have a state each: memory is what that order costs.
        judged = "--loop-order=split_kv" not in extra
        table.add("  growth of the peak against the data's", ratio, f"{ratio:.2f} x", "< 1.5 x" if judged else None,
                  ratio < 1.5 if judged else None)


class Table:
    """Figures, printed one by one and beside their targets."""

    def __init__(self):
        self.rows = []

    def add(self, what, value, text, target=None, good=None):
        verdict = "" if good is None else ("ok" if good else "MISSED")
        self.rows.append({"what": what, "value": value, "target": target, "reached": good})
        print(f"{what:44} {text:>16}   {'' if target is None else 'target ' + target:22} {verdict}", flush=True)

    def finish(self, options):
        """Writes --json; the exit status."""
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"threads": options.threads, "results": self.rows}, file, indent=2)
        return 0 if all(r["reached"] in (None, True) for r in self.rows) else 1


def parse_arguments(doc, rounds, reps, add=lambda parser: None):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attn-run", default=os.path.join(ROOT, "build", "dev", "bin", "attn-run"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--reps", type=int, default=reps, help="runs per measurement")
    parser.add_argument("--rounds", type=int, default=rounds, help="alternations of all measurements")
    add(parser)
    return parser.parse_args()
