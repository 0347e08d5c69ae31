# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Few queries on a GPU (decoding): attention from a CUDA graph, beside cuDNN and FlashAttention-2.

    python3 benchmarks/gpu_decode.py [--library libattnc.so] [--queries N] [--shapes REGEX] [--kernels] [--variants]

bf16; a graph of calls on copies of the inputs of 200 MB and more together, so that keys and values come
from memory, the contenders by turns. GB/s are of the keys and values. attnc is beside the definition in
float64 (relative Frobenius norm, the first batch element). --kernels adds the median time of each of its kernels.
--variants times masks and scores instead, beside the plain call by turns: for each the time and, for each byte of
the keys that it keeps, the ratio to the plain one; its error, with one query, is beside the definition as above.
"""

import argparse
import contextlib
import math
import os
import re
import statistics
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "python"))

# Batch, heads of queries, heads of keys, keys, head dimension.
SHAPES = [(1, 32, 8, 32768, 128), (16, 32, 8, 8192, 128), (64, 32, 8, 4096, 128), (16, 128, 8, 8192, 128),
          (4, 32, 32, 16384, 128), (1, 64, 8, 131072, 64), (1, 32, 8, 1024, 128), (1, 32, 8, 4096, 128),
          (1, 64, 8, 32768, 128), (8, 64, 8, 4096, 128)]
LEAST_BYTES, ROUNDS = 200e6, 12


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="instead of the package's own or $ATTNC_LIBRARY")
    parser.add_argument("--queries", type=int, default=1)
    parser.add_argument("--shapes", default="", metavar="REGEX", help="such as '^1x' or 'x128$', of BxHxGxKxD")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--variants", action="store_true")
    options = parser.parse_args()
    name = lambda shape: "x".join(map(str, shape))
    try:
        options.chosen = [shape for shape in SHAPES if re.search(options.shapes, name(shape))]
    except re.error as error:
        parser.error(f"--shapes: {error}")
    if not options.chosen:
        parser.error(f"no shape matches '{options.shapes}'")
    if options.queries < 1:
        parser.error("--queries: expected at least 1")
    if options.library:
        os.environ["ATTNC_LIBRARY"] = os.path.abspath(options.library)
    return options


def capture(torch, call, count):
    """A graph of `count` calls, each with its number."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for number in range(2):
            call(number)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(count):
            call(number)
    return graph


def milliseconds(torch, graph):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def medians_of(torch, graphs, count):
    """Milliseconds of a call, of each graph of `count` calls, by turns."""
    times = {name: [] for name in graphs}
    for turn in range(-2, ROUNDS):  # the first are warm-up
        for name, graph in graphs.items():
            spent = milliseconds(torch, graph) / count
            if turn >= 0:
                times[name].append(spent)
    return {name: statistics.median(each) for name, each in times.items()}


def definition(q, k, v):
    q, k, v = (x[:1].double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1) @ v


def kernel_times(torch, call):
    from torch.profiler import ProfilerActivity, profile

    times = {}
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for number in range(8):
            call(number)
        torch.cuda.synchronize()
    for event in found.events():
        if event.device_time_total > 0:
            times.setdefault(event.name[:40], []).append(event.device_time_total)
    return {name: statistics.median(each) for name, each in times.items()}


def variants_of(torch, batch, heads, keys, queries):
    """Name: arguments of attnc.attention, the kept keys (a mask of (batch, keys), or None for all), and the function of
    scores in PyTorch, or None."""
    device = "cuda"
    position = torch.arange(keys, device=device)
    window = min(4096, keys)
    documents = (position >= keys // 2).int().expand(batch, keys).contiguous()
    padding = torch.ones(batch, keys, device=device, dtype=torch.int32)
    slopes = 2.0 ** (-8.0 * (torch.arange(heads, device=device) + 1) / heads)
    first = keys - queries
    return {
        "plain": ({}, None, None),
        "window": (dict(window=(window - 1, 0), causal_alignment="bottom_right"),
                   (position >= keys - window).expand(batch, keys), None),
        "documents": (dict(mask_mod=lambda b, h, i, j: documents[b, j] == 1), documents == 1, None),
        "padding": (dict(mask_mod=lambda b, h, i, j: padding[b, j] > 0), None, None),
        "softcap": (dict(score_mod=lambda s, b, h, i, j: 30 * torch.tanh(s / 30)), None, lambda s: 30 * torch.tanh(s / 30)),
        "alibi": (dict(score_mod=lambda s, b, h, i, j: s + slopes[h] * (j - i - first)), None,
                  lambda s: s + slopes[:, None, None] * (position - first)),
    }


def measure_variants(options, shape):
    import attnc
    import torch

    batch, heads, kv_heads, keys, d = shape
    size = 2 * batch * kv_heads * keys * d * 2
    copies = max(1, min(8, math.ceil(LEAST_BYTES / size)))
    draw = lambda *shape: [torch.randn(*shape, d, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
    q, k, v = draw(batch, heads, options.queries), draw(batch, kv_heads, keys), draw(batch, kv_heads, keys)
    name = "x".join(map(str, shape))
    with torch.no_grad():
        graphs, shares, errors = {}, {}, {}
        count = 40 if size < 2 * LEAST_BYTES else max(4, 2 * copies)
        for variant, (arguments, kept, scores) in variants_of(torch, batch, heads, keys, options.queries).items():
            call = lambda number: attnc.attention(*(x[number % copies] for x in (q, k, v)), enable_gqa=True, **arguments)
            graphs[variant] = capture(torch, call, count)
            shares[variant] = 1.0 if kept is None else float(kept.float().mean())
            if options.queries == 1:  # later queries see other keys of a window
                s = q[0][:1].double() @ k[0][:1].double().repeat_interleave(heads // kv_heads, 1).transpose(-1, -2) * d**-0.5
                s = scores(s) if scores else s
                if kept is not None:
                    s = s.masked_fill(~kept[0], -math.inf)
                exact = s.softmax(-1) @ v[0][:1].double().repeat_interleave(heads // kv_heads, 1)
                errors[variant] = float((call(0)[:1].double() - exact).norm() / exact.norm())
                del s, exact
        medians = medians_of(torch, graphs, count)
        for variant, time in medians.items():
            error = f"  error {errors[variant]:.1e}" if variant in errors else ""
            print(f"{name} {variant}".ljust(34) + f"{time * 1e3:8.2f} us  {shares[variant] * size / time * 1e-6:5.0f} GB/s  "
                  f"per byte {time / shares[variant] / medians['plain']:.2f} of plain{error}", flush=True)


def measure(options, shape):
    import attnc
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    batch, heads, kv_heads, keys, d = shape
    size = 2 * batch * kv_heads * keys * d * 2
    copies = max(1, min(8, math.ceil(LEAST_BYTES / size)))
    draw = lambda *shape: [torch.randn(*shape, d, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
    q, k, v = draw(batch, heads, options.queries), draw(batch, kv_heads, keys), draw(batch, kv_heads, keys)
    inputs_of = lambda number: [x[number % copies] for x in (q, k, v)]
    grouped = heads != kv_heads

    def of_pytorch(backend):
        def call(number):
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(*inputs_of(number), enable_gqa=grouped)
        return call

    def ours(number):
        return attnc.attention(*inputs_of(number), enable_gqa=grouped)

    calls = {"attnc": ours, "cuDNN": of_pytorch(SDPBackend.CUDNN_ATTENTION),
             "FA2": of_pytorch(SDPBackend.FLASH_ATTENTION)}
    with torch.no_grad():
        exact = definition(q[0], k[0], v[0])
        error = float((ours(0)[:1].double() - exact).norm() / exact.norm())
        del exact
        count = 40 if size < 2 * LEAST_BYTES else max(4, 2 * copies)
        graphs = {}
        for name, call in calls.items():
            with contextlib.suppress(RuntimeError) if name != "attnc" else contextlib.nullcontext():
                graphs[name] = capture(torch, call, count)
        medians = medians_of(torch, graphs, count)
        best = min((time for name, time in medians.items() if name != "attnc"), default=math.nan)
        print(f"{batch}x{heads}x{kv_heads}x{keys}x{d}".ljust(22)
              + "  ".join(f"{name} {time * 1e3:8.2f} us {size / time * 1e-6:5.0f} GB/s" for name, time in medians.items())
              + f"  best/attnc {best / medians['attnc']:.3f}  error {error:.1e}", flush=True)
        if options.kernels:
            for name, time in kernel_times(torch, ours).items():
                print(f"    {name:<40} {time:8.2f} us")


def main():
    options = parse_arguments()
    import torch

    if not torch.cuda.is_available():
        sys.exit("gpu_decode: no CUDA device")
    torch.manual_seed(0)
    print(f"{torch.cuda.get_device_name()}, bf16, {options.queries} quer{'y' if options.queries == 1 else 'ies'}")
    for shape in options.chosen:
        (measure_variants if options.variants else measure)(options, shape)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
