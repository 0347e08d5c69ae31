#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The backward on a GPU: attnc beside cuDNN, FlashAttention and FlexAttention.

    python3 benchmarks/gpu_backward.py [--library libattnc.so] [--cells REGEX] [--deterministic] [--captures] [--json FILE]

Needs a Hopper GPU and PyTorch; everything runs in this process, from Python, by torch.autograd.grad.
Per cell: the gradients of one head against float64, then times by turns, medians of CUDA events,
all kernels of the backward. FLOPs are 10 d per kept pair and head (causal: exactly half of all
pairs). With --captures, gradients of the bias and of ALiBi's slopes, too. The exit status is 0 if
attnc was right in all cells.
"""

import argparse
import functools
import json
import math
import os
import re
import statistics
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "python")]
from gpu import report as reports  # noqa: E402
from gpu.cells import all_cells  # noqa: E402
from gpu_forward import choose_library  # noqa: E402

PEERS = ("cuDNN", "FA2", "Flex")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="libattnc.so (default: ATTNC_LIBRARY, else the newest under build)")
    parser.add_argument("--cells", metavar="REGEX", default="", help="such as 'd128-.*-causal' or 's(512|1024)-'")
    parser.add_argument("--without", metavar="NAME", action="append", default=[], help="leave a peer out")
    parser.add_argument("--seconds", type=float, default=1.0, help="of timing, per cell")
    parser.add_argument("--deterministic", action="store_true", help="attnc without atomic additions, beside it")
    parser.add_argument("--captures", action="store_true",
                        help="gradients of the captured floats, too; cells that capture none are left out")
    parser.add_argument("--by-threads", action="store_true",
                        help="attnc's kernels for all GPUs (products=mma), as where TMA does not reach")
    parser.add_argument("--type", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    try:
        pattern = re.compile(options.cells)
    except re.error as error:
        parser.error(f"--cells: {error}")
    options.chosen = [cell for cell in all_cells() if pattern.search(cell.name)]
    if not options.chosen:
        parser.error(f"no cell matches '{options.cells}'")
    return options


def gradients_of_head(torch, case, q, k, v, do, captures, of_captures, rounds):
    """dQ, dK and dV of the first head of the first batch element by the definition, in float64; with
    `rounds`, a random generator, in float32, with O and what the tensor core multiplies rounded to the
    inputs' type, the weights relative to what the generator says, as it is an implementation's choice.
    With `of_captures` this head's part of the gradients of captured floats, too, over the whole batch."""
    heads = [gradients_of_element(torch, case, *(x[b, 0].detach() for x in (q, k, v, do)), captures, of_captures,
                                  rounds) for b in range(q.shape[0] if of_captures else 1)]
    return *heads[0][:3], *(sum(each) for each in zip(*(head[3:] for head in heads)))


def gradients_of_element(torch, case, q, k, v, do, captures, of_captures, rounds):
    from attnc._bench.variants import mask_of, score_of

    kind = q.dtype
    wide = torch.float32 if rounds else torch.float64
    shorten = (lambda x, by=1: (x * by).to(kind).to(wide) / by) if rounds else (lambda x, by=1: x)
    q, k, v, do = (x.to(wide) for x in (q, k, v, do))
    index = torch.zeros((), dtype=torch.long, device=q.device)
    i = torch.arange(case.length, device=q.device)[:, None]
    j = torch.arange(case.length, device=q.device)[None, :]
    scale = case.d ** -0.5
    captures = {name: x.detach().to(wide) if x.is_floating_point() else x for name, x in captures.items()}
    floats = [x.requires_grad_() for x in captures.values() if of_captures and x.is_floating_point()]
    score, mask = score_of(case, captures), mask_of(case, captures)
    s = ((q @ k.T) * scale).requires_grad_()
    t = score(s, index, index, i, j).to(wide) if score else s
    if mask:
        t = t.masked_fill(~mask(index, index, i, j), -math.inf)
    p = torch.softmax(t.detach(), -1)
    largest = torch.rand(len(p), 1, generator=rounds, device=p.device, dtype=wide).exp2() if rounds else 1
    o = shorten(shorten(p, largest) @ v)
    dt = p * (do @ v.T - (do * o).sum(-1, keepdim=True))
    ds, *rest = torch.autograd.grad(t, (s, *floats), dt) if score or mask else (dt,)
    ds = shorten(ds)
    # Of what heads have each of their own, this head's.
    return (ds @ k) * scale, (ds.T @ q) * scale, shorten(p).T @ do, *(x[0] for x in rest)


def is_small(result):
    return result.numel() < 64


def judge(torch, gradients, exact, plain):
    """Why the gradients are not good enough: the largest and the mean error may be twice those of the
    rounded definition (of a result of few elements, whose error is luck, the worst of all evaluations)
    and two roundings of the largest, or the mean, element."""
    why = []
    for n, (got, right, *rounded) in enumerate(zip(gradients, exact, *plain)):
        name = ("dQ", "dK", "dV")[n] if n < 3 else "gradient of a capture"
        got = got[0, 0] if n < 3 else got[0]  # captures have no batch
        counted = rounded if is_small(right) else rounded[:1]
        error, *measures = ((x.double() - right).abs() for x in (got, *counted))
        eps = torch.finfo(got.dtype).eps
        for kind, of in (("largest", torch.max), ("mean", torch.mean)):
            allowed = 2 * max(of(measure) for measure in measures) + eps * of(right.abs())
            if not of(error) <= allowed:
                why.append(f"{name}: {kind} error {of(error):.2e}, allowed {allowed:.2e}")
    return why


def main():
    options = parse_arguments()
    choose_library(options)
    import torch
    from attnc import _torch, _torch_ops
    from attnc._bench import contenders, timing, variants

    if options.by_threads:
        _torch_ops.needs_threads = _torch.needs_threads = lambda operands: True
    element = getattr(torch, options.type)
    if not torch.cuda.is_available():
        sys.exit("gpu_backward: no CUDA device")
    warnings.filterwarnings("ignore")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch._dynamo.config.cache_size_limit = 1000
    device = torch.device("cuda", 0)
    timer = timing.Timer(device)
    makers = {"attnc": contenders.attnc_attention}
    makers |= {name: make for name, make in contenders.peers(device).items()
               if name in PEERS and name not in options.without}
    rows = []
    print(f"{torch.cuda.get_device_name()}, {options.type}; TFLOP/s", flush=True)
    for cell in options.chosen:
        inputs = variants.Inputs(cell, element, device, cache_bytes=1)
        q, k, v = (x.requires_grad_() for x in inputs.copies[0])
        floats = [x.requires_grad_() for x in inputs.captures.values()
                  if options.captures and x.is_floating_point()]
        if options.captures and not floats:
            continue
        do = torch.randn_like(q)
        row = {"cell": cell.name, "rates": {}, "why": []}
        calls = {}

        def add(name, peer):
            with peer.context():
                result = peer.call(q, k, v)
            output = result[0] if isinstance(result, tuple) else result
            call = lambda: torch.autograd.grad(output, (q, k, v, *floats), do, retain_graph=True)
            call()
            calls[name] = contenders.Contender([call])

        for name, make in makers.items():
            try:
                peer = make(cell, inputs.captures)
                add(name, peer)
                if name == "attnc" and options.deterministic:
                    peer.call.keywords["deterministic"] = True
                    add("attnc, deterministic", peer)
            except contenders.Unsupported:
                pass
            except Exception as error:  # a peer that cannot, which is its own affair
                if name == "attnc":
                    row["why"].append(str(error).splitlines()[0])
        ours = [name for name in calls if name.startswith("attnc")]
        if ours:
            find = functools.partial(gradients_of_head, torch, cell, q, k, v, do, inputs.captures, bool(floats))
            exact, generator = find(None), torch.Generator(device)
            plain = [find(generator) for _ in range(32 if any(is_small(x[0]) for x in floats) else 1)]
            for name in ours:
                row["why"] += judge(torch, calls[name].calls[0](), exact, plain)
            del exact, plain
        for name, times in (timer.measure(calls, options.seconds) if calls else {}).items():
            row["rates"][name] = 2.5 * cell.flops() / statistics.median(times) * 1e-12
        rates = row["rates"]
        shown = "  ".join(f"{name} {rate:.0f}" for name, rate in rates.items())
        reports.add_scaled(cell, "bf16", rates, reports.FA3_BACKWARD_TO_CUDNN)
        row |= reports.ratios(rates)
        row["to"] = {name: rates["attnc"] / rates[name] for name in (*PEERS, reports.SCALED)
                     if name in rates and "attnc" in rates}
        rows.append(row)
        against = "  ".join(f"/{name} {ratio:.2f}" for name, ratio in row["to"].items())
        print(f"{cell.name:24s} {shown}  {against}  {'; '.join(row['why']) or 'right'}", flush=True)
        del q, k, v, do, calls, inputs
    mean = reports.geometric_mean
    for name in (*PEERS, reports.SCALED):
        ratios = [row["to"][name] for row in rows if name in row["to"]]
        if ratios:
            print(f"attnc / {name}: geometric mean {mean(ratios):.3f}, least {min(ratios):.3f}, {len(ratios)} cells")
    best = [row["to_best"] for row in rows if "to_best" in row]
    if best:
        print(f"attnc / best: geometric mean {mean(best):.3f}, least {min(best):.3f}")
    wrong = [row["cell"] for row in rows if row["why"]]
    print(f"{len(rows) - len(wrong)} of {len(rows)} cells right" + (f"; wrong: {', '.join(wrong)}" if wrong else ""))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
