# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two builds of the library, by turns: is one slower?

    python3 benchmarks/gpu_compare.py BEFORE AFTER [--cells REGEX] [--rounds N] [--forward | --backward]

BEFORE and AFTER are libraries (libattnc.so), each with the folder of its Python package behind a
colon if that is not this checkout's: old/libattnc.so:old/python. Each has a process that stays
alive, BEFORE two of them; every round asks each process for one measurement of some milliseconds,
another one first each time. Printed are the medians over the rounds of the ratios of a round:
AFTER's speed relative to BEFORE's, and BEFORE's second process relative to its first, which is the
noise. One to two seconds per cell and direction resolve about 0.2%; figures of whole runs that
follow each other differ by up to 5% (power, temperature, memory).
"""

import argparse
import os
import re
import statistics
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
if "--worker" not in sys.argv:
    sys.path.insert(0, os.path.join(ROOT, "python"))
from gpu.cells import all_cells  # noqa: E402

# Of one measurement, and of the pause before it, in which the host enqueues.
MILLISECONDS = 5
CYCLES_PER_CALL = 400_000


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", metavar="BEFORE")
    parser.add_argument("after", metavar="AFTER")
    parser.add_argument("--cells", metavar="REGEX", default="", help="such as 'd128-.*-causal' or 's(512|1024)-'")
    parser.add_argument("--rounds", type=int, default=15)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--forward", action="store_true", help="the forward alone")
    only.add_argument("--backward", action="store_true", help="the backward alone")
    options = parser.parse_args()
    try:
        pattern = re.compile(options.cells)
    except re.error as error:
        parser.error(f"--cells: {error}")
    options.chosen = [cell.name for cell in all_cells() if pattern.search(cell.name)]
    if not options.chosen:
        parser.error(f"no cell matches '{options.cells}'")
    if options.rounds < 1:
        parser.error("--rounds: expected at least 1")
    for library in (options.before, options.after):
        if not os.path.isfile(library.partition(":")[0]):
            parser.error(f"no library {library.partition(':')[0]}")
    return options


def work():
    """A process of one library: answers "load CELL", "forward" and "backward" on standard input."""
    import torch
    from attnc._bench import contenders, variants

    device = torch.device("cuda", 0)
    cells = {cell.name: cell for cell in all_cells()}
    flush = torch.empty(2 * torch.cuda.get_device_properties(device).L2_cache_size, dtype=torch.uint8, device=device)

    def milliseconds(call, count):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(count * CYCLES_PER_CALL)
        flush.zero_()
        call()
        start.record()
        for _ in range(count):
            call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / count

    def load(name):
        torch.manual_seed(0)
        inputs = variants.Inputs(cells[name], torch.bfloat16, device, cache_bytes=1)
        plain = inputs.copies[0]
        leaves = [x.detach().requires_grad_() for x in plain]
        call = contenders.attnc_attention(cells[name], inputs.captures).call
        output = call(*leaves)
        gradient = torch.randn_like(output)
        calls = {"forward": lambda: call(*plain),
                 "backward": lambda: torch.autograd.grad(output, leaves, gradient, retain_graph=True)}
        for run in calls.values():
            run()
        return {which: (run, min(64, max(1, int(MILLISECONDS / milliseconds(run, 2))))) for which, run in calls.items()}

    calls = {}
    for line in sys.stdin:
        what, *rest = line.split()
        if what == "load":
            calls.clear()
            torch.cuda.empty_cache()
            calls = load(*rest)
            print("loaded", flush=True)
        else:
            print(milliseconds(*calls[what]), flush=True)


class Worker:
    def __init__(self, library):
        path, _, package = library.partition(":")
        environment = dict(os.environ, ATTNC_LIBRARY=os.path.abspath(path), ATTNC_CACHE_DIR="",
                           PYTHONPATH=os.path.abspath(package or os.path.join(ROOT, "python")))
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker"], text=True,
                                        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def tell(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("gpu_compare: a process ended; its error is above")
        return line.strip()


def main():
    options = parse_arguments()
    workers = [Worker(library) for library in (options.before, options.before, options.after)]
    directions = ["forward"] if options.forward else ["backward"] if options.backward else ["forward", "backward"]
    print(f"{'cell':<24} {'':<9} {'before':>10} {'after':>8} {'noise':>8}")
    for cell in options.chosen:
        for worker in workers:
            worker.tell(f"load {cell}")
        for worker in workers:
            worker.answer()
        for direction in directions:
            times = []
            for index in range(-3, options.rounds):  # the first are warm-up
                measured = [0.0] * len(workers)
                for turn in range(len(workers)):
                    worker = (turn + index) % len(workers)
                    workers[worker].tell(direction)
                    measured[worker] = float(workers[worker].answer())
                if index >= 0:
                    times.append(measured)
            before = statistics.median(first for first, _, _ in times)
            speed = statistics.median((first + second) / 2 / after for first, second, after in times)
            noise = statistics.median(first / second for first, second, _ in times)
            print(f"{cell:<24} {direction:<9} {before * 1e3:>7.1f} us {speed - 1:>+8.2%} {noise - 1:>+8.2%}", flush=True)


if __name__ == "__main__":
    work() if sys.argv[1:] == ["--worker"] else main()
