# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times of contenders by turns, on the GPU or on the CPU; times on the host; memory."""

import gc
import math
import statistics
import time

import torch

# Of one contender's turn: long beside the resolution of events and the gap between kernels.
BURST_SECONDS = 2e-3
MOST_CALLS = 64
# At least this many turns each, whatever the time.
LEAST_ROUNDS = 7


class Turn:
    """`count` calls between two events, while the GPU is kept busy until they are all enqueued, so
    that the time of the host is not in them."""

    def __init__(self, contender, count, flush, cycles):
        self.start, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.count = count
        with contender.context():
            torch.cuda._sleep(cycles)
            contender.poison()
            flush.zero_()  # last, so that all start with the same in the cache
            calls = contender.calls
            self.start.record()
            begin = time.perf_counter()
            for index in range(count):
                calls[index % len(calls)]()
            self.host = (time.perf_counter() - begin) / count
            self.end.record()

    def seconds(self):
        """Of one call."""
        return self.start.elapsed_time(self.end) * 1e-3 / self.count


class Timer:
    """On a GPU."""

    def __init__(self, device):
        self.cache_bytes = torch.cuda.get_device_properties(device).L2_cache_size
        self.flush = torch.empty(2 * self.cache_bytes, dtype=torch.uint8, device=device)

    def _warm_up(self, contenders):
        """(calls per turn, cycles to wait for the host)"""
        counts, host = {}, 0.0
        for name, contender in contenders.items():
            Turn(contender, 2, self.flush, 0)
            turn = Turn(contender, 3, self.flush, 4_000_000)
            torch.cuda.synchronize()
            counts[name] = min(MOST_CALLS, max(1, math.ceil(BURST_SECONDS / max(turn.seconds(), 1e-6))))
            host = max(host, turn.host * counts[name])
        # The same for all: a pause cools. 2 GHz is above every clock.
        return counts, int(min(1.5 * host + 50e-6, 50e-3) * 2e9)

    def measure(self, contenders, seconds):
        """Per contender the seconds of a call, in each round."""
        counts, cycles = self._warm_up(contenders)
        names, times = list(contenders), {name: [] for name in contenders}
        begin = None
        rounds = -3  # the first are warm-up
        while rounds < LEAST_ROUNDS or time.perf_counter() - begin < seconds:
            if rounds == 0:
                begin = time.perf_counter()
            # Each follows each in turn: whoever heats the chip before others does not stay the same.
            shift = rounds % len(names)
            turns = {name: Turn(contenders[name], counts[name], self.flush, cycles)
                     for name in names[shift:] + names[:shift]}
            torch.cuda.synchronize()
            if rounds >= 0:
                for name, turn in turns.items():
                    times[name].append(turn.seconds())
            rounds += 1
        return times


class HostTimer:
    """On a CPU, where a call returns when all is done."""

    cache_bytes = 0

    def measure(self, contenders, seconds):
        """Per contender the seconds of a call, in each round."""
        names, times = list(contenders), {name: [] for name in contenders}
        begin, rounds = None, -1
        while rounds < 3 or time.perf_counter() - begin < seconds:
            if rounds == 0:
                begin = time.perf_counter()
            shift = rounds % len(names)
            for name in names[shift:] + names[:shift]:
                with contenders[name].context():
                    start = time.perf_counter()
                    contenders[name].calls[0]()
                    spent = time.perf_counter() - start
                if rounds >= 0:
                    times[name].append(spent)
            rounds += 1
        return times


def make_timer(device):
    return Timer(device) if torch.device(device).type == "cuda" else HostTimer()


def _resident(peak):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM:" if peak else "VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


def peak_memory(call, device):
    """Bytes above what was there before; None where the system does not say."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # forget the peak
        before = _resident(peak=False)
        call()
        return max(0, _resident(peak=True) - before)
    except OSError:
        return None


def quartiles(values):
    ordered = sorted(values)
    return [statistics.median(ordered)] + [ordered[int(p * (len(ordered) - 1))] for p in (0.25, 0.75)]


GEMM_SIZE = 8192
GEMM_FLOPS = 2 * GEMM_SIZE**3


def make_gemm(device):
    """A call of cuBLAS: bf16, normal random matrices."""
    a, b = (torch.randn(GEMM_SIZE, GEMM_SIZE, device=device).bfloat16() for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def gemm_tflops(device, rounds=20):
    """By itself, not by turns with others."""
    call, times = make_gemm(device), []
    for _ in range(rounds + 3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e-3)
    return GEMM_FLOPS / statistics.median(times[3:]) * 1e-12


def host_microseconds(call, calls=100, rounds=15, device="cuda"):
    """Of a call that returns before it has run, on an idle GPU; without garbage collections, as
    timeit measures."""
    wait = torch.cuda.synchronize if torch.device(device).type == "cuda" else lambda: None
    times = []
    collects = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds + 5):
            wait()
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            times.append((time.perf_counter() - begin) / calls)
        wait()
    finally:
        if collects:
            gc.enable()
    return statistics.median(times[5:]) * 1e6
