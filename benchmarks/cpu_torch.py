# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention on the CPU beside PyTorch's, by turns, on as many threads.

    python3 benchmarks/cpu_torch.py [--library FILE] [--threads N] [--seconds S] [--rows REGEX] [--json FILE]

Rows are shapes (batch, heads, queries by keys, head dimension) and types; attnc is
`attnc.attention` on PyTorch's tensors, its peer `scaled_dot_product_attention`. Both are compared
with float64 first, by relative error (Frobenius). Then they take turns; each figure is the median
over turns, each of as many calls as take about 30 ms. For one query the rate at which keys and
values are read is given, too, beside a loop that reads as many bytes (PyTorch's sum).
"""

import argparse
import json
import math
import os
import re
import statistics
import sys
import time

import torch
import torch.nn.functional as F

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "python"))

# Batch, heads, queries, keys, head dimension, causal.
SHAPES = [
    (1, 8, 2048, 2048, 64, False),
    (1, 8, 2048, 2048, 64, True),
    (1, 8, 2048, 2048, 128, False),
    (4, 8, 100, 100, 96, False),
    (1, 32, 1, 8192, 128, False),
]
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="libattnc.so (else the newest one under build)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=2.0, help="per row and direction")
    parser.add_argument("--types", default="f32,bf16", type=lambda text: text.split(","))
    parser.add_argument("--rows", metavar="REGEX", default="", help="such as 'bf16.*2048'")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def name_row(element, shape):
    batch, heads, queries, keys, d, causal = shape
    return f"{element} ({batch},{heads},{queries} by {keys},{d}){' causal' if causal else ''}"


def reference(q, k, v, causal):
    q, k, v = (x.detach().double() for x in (q, k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        keep = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~keep, -math.inf)
    return torch.softmax(scores, -1) @ v


def error(result, true):
    return ((result.double() - true).norm() / true.norm()).item()


def by_turns(contenders, seconds):
    """The median time of a call of each, in seconds."""
    counts = {}
    for name, call in contenders.items():
        call()
        start = time.perf_counter()
        call()
        counts[name] = max(1, int(0.03 / max(time.perf_counter() - start, 1e-7)))
    times = {name: [] for name in contenders}
    names = list(contenders)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[names[0]]) < 5:
        for name in names:
            call, count = contenders[name], counts[name]
            start = time.perf_counter()
            for _ in range(count):
                call()
            times[name].append((time.perf_counter() - start) / count)
        names = names[1:] + names[:1]
    return {name: statistics.median(values) for name, values in times.items()}


def measure(element, shape, seconds):
    import attnc

    batch, heads, queries, keys, d, causal = shape
    make = lambda rows: torch.randn(batch, heads, rows, d).to(TYPES[element]).requires_grad_()
    q, k, v = make(queries), make(keys), make(keys)
    gradient = torch.randn(batch, heads, queries, d).to(TYPES[element])
    calls = {
        "attnc": lambda: attnc.attention(q, k, v, is_causal=causal),
        "torch": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
    }
    true = reference(q, k, v, causal)
    row = {"name": name_row(element, shape), "errors": {}}
    backward = {}
    for name, call in calls.items():
        out = call()
        row["errors"][name] = error(out, true)
        backward[name] = lambda out=out: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)
    q64, k64, v64 = (x.detach().double().requires_grad_() for x in (q, k, v))
    scores = q64 @ k64.transpose(-1, -2) / math.sqrt(d)
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    true = torch.autograd.grad(torch.softmax(scores, -1) @ v64, (q64, k64, v64), gradient.double())
    for name, call in backward.items():
        row["errors"][name + " gradients"] = max(error(a, b) for a, b in zip(call(), true))

    def without_gradients(call):
        def run():
            with torch.no_grad():
                return call()
        return run

    forward = {name: without_gradients(call) for name, call in calls.items()}
    if queries == 1:
        same = torch.ones((k.numel() + v.numel()) * k.element_size() // 4)
        forward["read"] = lambda: same.sum()
    row["forward"] = by_turns(forward, seconds)
    row["backward"] = by_turns(backward, seconds)
    row["bytes"] = (k.numel() + v.numel()) * k.element_size()
    return row


def show(row):
    ratio = lambda times: times["torch"] / times["attnc"]
    line = f"{row['name']:36}"
    for direction in ("forward", "backward"):
        times = row[direction]
        line += f" {1e3 * times['attnc']:9.3f} {1e3 * times['torch']:9.3f} ms {ratio(times):6.2f}"
    errors = row["errors"]
    line += f"   {errors['attnc']:.1e}/{errors['torch']:.1e} {errors['attnc gradients']:.1e}/{errors['torch gradients']:.1e}"
    if "read" in row["forward"]:
        rate = lambda name: row["bytes"] / row["forward"][name] / 1e9
        line += f"   {rate('attnc'):.1f} GB/s of {rate('read'):.1f}"
    print(line, flush=True)


def main():
    options = parse_arguments()
    if options.library:
        os.environ["ATTNC_LIBRARY"] = options.library
    torch.set_num_threads(options.threads)  # attnc takes as many on tensors of PyTorch
    torch.manual_seed(0)
    print(f"{'row':36} {'forward: attnc, torch, torch/attnc':>31} {'backward: the same':>31}   errors attnc/torch")
    rows = []
    for element in options.types:
        for shape in SHAPES:
            if not re.search(options.rows, name_row(element, shape)):
                continue
            rows.append(measure(element, shape, options.seconds))
            show(rows[-1])
    ratios = [row[way]["torch"] / row[way]["attnc"] for row in rows for way in ("forward", "backward")]
    if ratios:
        print(f"geometric mean {statistics.geometric_mean(ratios):.3f}, least {min(ratios):.3f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"threads": options.threads, "torch": torch.__version__, "rows": rows}, file, indent=2)


if __name__ == "__main__":
    sys.exit(main())
