#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random calls of attention and its gradient on a GPU, watched.

    python3 test/Execution/gpu_sweep.py [--seed N] [--count N] [--limit SECONDS]

Needs a Hopper GPU, PyTorch and libattnc.so (ATTNC_LIBRARY). Calls run in processes, some in each.
A call that takes longer than the limit is a failure, as is a process that dies: it is killed, the
call is printed, and others go on with the rest. Results are compared with float64 by the criteria
of docs/numerics.md. The exit status is 0 if all are right.
"""

import argparse
import collections
import glob
import os
import queue
import selectors
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
from support.sweep_cases import PER_VARIANT, draw  # noqa: E402

WORKER = os.path.join(HERE, "support", "sweep_worker.py")
# Of a process; the start of the next one is worth so many.
BATCH = 4 * PER_VARIANT
# Seconds for what is no call: to start, to compile, to compare.
PATIENCE = 240


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=2000, help="of calls, forward and backward each (default 2000)")
    parser.add_argument("--limit", type=float, default=20, metavar="SECONDS", help="for one call (default 20)")
    parser.add_argument("--only", metavar="N,N...", help="these numbers, to run a failure again")
    parser.add_argument("--jobs", type=int, default=min(12, max(1, (os.cpu_count() or 1) - 2)), help="processes")
    parser.add_argument("--largest", type=int, default=3072, help="length of queries and keys")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: to test this script")
    parser.add_argument("--self-test", action="store_true", help="whether faults that are made are found")
    options = parser.parse_args()
    found = glob.glob(os.path.join(ROOT, "build", "*", "lib", "libattnc.so"))
    library = os.environ.get("ATTNC_LIBRARY") or max(found, key=os.path.getmtime, default="")
    if not os.path.exists(library):
        sys.exit("gpu_sweep: no library; expected ATTNC_LIBRARY=/path/to/libattnc.so")
    os.environ["ATTNC_LIBRARY"] = os.path.abspath(library)
    return options


class Sweep:
    def __init__(self, options, faults=()):
        self.options, self.faults = options, faults
        numbers = [int(n) for n in options.only.split(",")] if options.only else list(range(options.count))
        self.total, self.counts, self.failures = len(numbers), collections.Counter(), []
        self.batches = queue.Queue()
        for start in range(0, len(numbers), BATCH):
            self.batches.put(numbers[start:start + BATCH])
        self.lock = threading.Lock()
        self.start = time.monotonic()

    def run(self):
        threads = [threading.Thread(target=self.work) for _ in range(min(self.options.jobs, self.batches.qsize()))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def work(self):
        while True:
            try:
                numbers = self.batches.get_nowait()
            except queue.Empty:
                return
            while numbers:
                numbers = self.run_process(numbers)

    def run_process(self, numbers):
        """Returns the numbers that are left."""
        options = self.options
        command = [sys.executable, WORKER, f"--seed={options.seed}", f"--device={options.device}",
                   f"--largest={options.largest}", *(f"--fault={fault}" for fault in self.faults), *map(str, numbers)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        said = collections.deque(maxlen=20)
        drain = threading.Thread(target=lambda: said.extend(process.stderr), daemon=True)
        drain.start()
        left, doing = list(numbers), "start"
        for line in self.lines(process, lambda: options.limit if doing == "run" else PATIENCE):
            if line is None:
                kill(process)
                verdict = "HANG" if doing == "run" else "SLOW"
                self.record(verdict, left.pop(0), f"{doing}: longer than {options.limit if doing == 'run' else PATIENCE} s")
                return left
            doing, _, rest = line.partition(" ")
            number, _, why = rest.partition(": ")
            if doing in ("right", "wrong", "refused"):
                left.remove(int(number))
                self.record(doing, int(number), why)
                doing = "start"
        process.wait()
        drain.join(5)
        if left:
            text = b"".join(said).decode(errors="replace").strip()
            self.record("DIED", left.pop(0), f"{doing}: exit status {process.returncode}\n{text}")
        return left

    @staticmethod
    def lines(process, get_limit):
        """What the process says; None where that takes too long."""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            rest = b""
            while True:
                if not selector.select(get_limit()):
                    yield None
                    return
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                if not chunk:
                    return
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    yield line.decode()

    def record(self, verdict, number, why):
        with self.lock:
            self.counts[verdict] += 1
            done = sum(self.counts.values())
            if verdict != "right":
                options = self.options
                self.failures.append((verdict, number))
                call = draw(options.seed, number, options.largest)
                print(f"{verdict} {call}\n  {why}\n  again: gpu_sweep.py --seed {options.seed} --only {number}"
                      + (f" --largest {options.largest}" if options.largest != 3072 else ""), flush=True)
            elif done % 100 == 0:
                print(f"{done} of {self.total}, {time.monotonic() - self.start:.0f} s", flush=True)

    def summary(self):
        parts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.counts.items()))
        return (f"seed {self.options.seed}: {self.counts['right']} of {self.total} right ({parts}), "
                f"{time.monotonic() - self.start:.0f} s")


def kill(process):
    process.kill()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        print("gpu_sweep: a process does not end; others go on", flush=True)


def self_test(options):
    """A hang, a crash and wrong elements are what is reported, and all others are right."""
    options.count, options.limit, options.largest, options.jobs = 12, 5, 160, 2
    sweep = Sweep(options, ["1=hang", "4=crash", "9=zero"])
    sweep.run()
    print(sweep.summary())
    expected = [("DIED", 4), ("HANG", 1), ("wrong", 9)]
    if sorted(sweep.failures) != expected or sweep.counts["right"] != 9:
        sys.exit(f"gpu_sweep: expected {expected}, got {sorted(sweep.failures)}")


def main():
    options = parse_arguments()
    if options.self_test:
        return self_test(options)
    sweep = Sweep(options)
    sweep.run()
    print(sweep.summary())
    return 1 if sweep.failures else 0


if __name__ == "__main__":
    sys.exit(main())
