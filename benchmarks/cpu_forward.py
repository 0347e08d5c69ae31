# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The forward on the CPU, measured beside OpenBLAS in one run.

    benchmarks/cpu_forward.py [--attn-run BIN] [--threads N] [--reps N] [--json FILE]

Prints, each beside its target: GFLOP/s of the dense forward against sgemm
(2048^3, as many threads); the speed-up of causal and of a window over dense;
peak memory at 65,536 keys against inputs and outputs; time from IR to code.
The pieces run alternately several times and the medians are compared, so that
a slow minute of the machine hits all of them. FLOPs are those of the two
products over the kept pairs, 4 * pairs * d.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
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


def module(mask, d):
    t = f"tensor<?x?x?x{d}xf32>"
    body = MASKS[mask]
    if body:
        body = ("\n    mask {\n    ^bb0(%b: index, %h: index, %i: index, %j: index):\n" + body
                + "      attn.yield %keep : i1\n    }")
    return (f"func.func @main(%q: {t}, %k: {t}, %v: {t}) -> ({t}, tensor<?x?x?xf32>) {{\n"
            f"  %o, %lse = attn.forward %q, %k, %v{body} : {t}, {t}, {t} -> {t}, tensor<?x?x?xf32>\n"
            f"  return %o, %lse : {t}, tensor<?x?x?xf32>\n}}\n")


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
            sys.exit("cpu_forward.py: libopenblas not found (Debian: libopenblas-dev)")
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
    def __init__(self, options, folder):
        self.options, self.folder = options, folder

    def command(self, mask, d, heads, s, reps):
        path = os.path.join(self.folder, f"{mask}-{d}.mlir")
        with open(path, "w") as file:
            file.write(module(mask, d))
        command = [self.options.attn_run, path, "--entry=main", "--target=cpu", f"--threads={self.options.threads}"]
        for index in range(3):
            command += ["--shape", f"{index}=1x{heads}x{s}x{d}"]
        return command + ([f"--bench={reps}", "--json"] if reps else [])

    def measure(self, mask, d, heads, s, reps):
        """(seconds of one run, seconds of compilation)"""
        done = subprocess.run(self.command(mask, d, heads, s, reps), capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"attn-run failed ({mask}, d {d}):\n{done.stderr}")
        report = json.loads(done.stdout)
        return report["median_s"], report["compile_s"]

    def peak(self, mask, d, heads, s):
        """Peak resident bytes of a process that runs once."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            command = self.command(mask, d, heads, s, 0)
            os.execvp(command[0], command)
        os.close(write)
        os.close(read)
        _, status, usage = os.wait4(pid, 0)
        if status:
            sys.exit(f"attn-run failed at {s} keys")
        return usage.ru_maxrss * 1024


def row(results, what, value, text, target=None, good=None):
    verdict = "" if good is None else ("ok" if good else "MISSED")
    results.append({"what": what, "value": value, "target": target, "reached": good})
    print(f"{what:44} {text:>16}   {'' if target is None else 'target ' + target:22} {verdict}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attn-run", default=os.path.join(ROOT, "build", "dev", "bin", "attn-run"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--reps", type=int, default=5, help="runs per measurement")
    parser.add_argument("--rounds", type=int, default=3, help="alternations of all measurements")
    parser.add_argument("--skip-memory", action="store_true", help="leave out the case of 65,536 keys")
    parser.add_argument("--json", help="write the figures to a file")
    options = parser.parse_args()
    sgemm, results = Sgemm(2048, options.threads), []
    with tempfile.TemporaryDirectory() as folder:
        attention = Attention(options, folder)
        configurations = [("full", 64, 8, 2048), ("causal", 64, 8, 2048), ("full", 128, 8, 2048),
                          ("causal", 128, 8, 2048), ("full", 64, 1, 8192), ("window", 64, 1, 8192)]
        gemm, times, compiles = [], {c: [] for c in configurations}, []
        for _ in range(options.rounds):
            gemm.append(sgemm.gflops(options.reps))
            for configuration in configurations:
                run, compile_time = attention.measure(*configuration, options.reps)
                times[configuration].append(run)
                if configuration[0] == "causal":
                    compiles.append(compile_time)
        gemm = statistics.median(gemm)
        seconds = {c: statistics.median(t) for c, t in times.items()}

        def gflops(configuration):
            mask, d, heads, s = configuration
            return 4 * heads * pairs(mask, s) * d / seconds[configuration] / 1e9

        row(results, f"sgemm 2048^3, {options.threads} threads", gemm, f"{gemm:.1f} GFLOP/s")
        for c in configurations:
            row(results, f"forward f32 {c[0]}, H {c[2]} S {c[3]} d {c[1]}", gflops(c),
                f"{gflops(c):.1f} GFLOP/s {1e3 * seconds[c]:.1f} ms".replace(" GFLOP/s ", " GF/s "))
        for d in (64, 128):
            ratio = gflops(("full", d, 8, 2048)) / gemm
            row(results, f"d {d}: full against sgemm", ratio, f"{100 * ratio:.0f} %", ">= 45 % (aim 65 %)", ratio >= 0.45)
        for d in (64, 128):
            ratio = seconds[("full", d, 8, 2048)] / seconds[("causal", d, 8, 2048)]
            row(results, f"d {d}: causal against full", ratio, f"{ratio:.2f} x", ">= 1.7 x", ratio >= 1.7)
        ratio = seconds[("full", 64, 1, 8192)] / seconds[("window", 64, 1, 8192)]
        row(results, "window 256 against full, S 8192", ratio, f"{ratio:.2f} x", ">= 6 x", ratio >= 6)
        compile_time = statistics.median(compiles)
        row(results, "IR to code, causal", compile_time, f"{compile_time:.2f} s", "< 1 s", compile_time < 1)
        if not options.skip_memory:
            # What the process needs with next to no data, and with 65,536 keys.
            base = attention.peak("full", 64, 1, 64)
            peak = attention.peak("full", 64, 1, 65536)
            data = 4 * (65536 * 64 * 4 + 65536)
            ratio = (peak - base) / data
            row(results, "memory at S 65536, d 64: peak", peak, f"{peak / 2**20:.0f} MiB")
            row(results, "  the process alone", base, f"{base / 2**20:.0f} MiB")
            row(results, "  the rest against inputs and outputs", ratio, f"{ratio:.2f} x", "< 1.5 x", ratio < 1.5)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"threads": options.threads, "results": results}, file, indent=2)
    return 0 if all(r["reached"] in (None, True) for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
