# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention side by side: errors, times and memory of attnc and of what else can be
imported, against the length.

    python -m attnc.bench                              # a sweep, on the GPU if there is one
    python -m attnc.bench --variants causal,alibi --lengths 256,1024,4096 --backward
    python -m attnc.bench --json out.json --plots pictures
    python -m attnc.bench --model roberta              # a step of a transformers model
    python -m attnc.bench --host                       # what a call costs before it starts

Each contender's result is compared with float64, on some rows of long sequences; then
contenders take turns, and the median counts. Memory is the peak above what was there
before the call. On a GPU, times are between two CUDA events. (benchmarks/gpu_forward.py of
the source tree has the same contenders, for single kernels of the forward, and compares
schedules.)
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import statistics
import sys
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch

from ._bench import contenders
from ._bench.cases import VARIANTS, Case
from ._bench.host import measure_host
from ._bench.models import measure_model
from ._bench.reference import Reference
from ._bench.timing import make_timer, peak_memory
from ._bench.variants import Inputs
from ._errors import Error

WINDOW = 256
# Rows that are compared with float64, about.
ROWS = 512


def all_contenders(device: str) -> Dict[str, Callable]:
    """What this machine can import, attnc first."""
    return {"attnc": contenders.attnc_attention, **contenders.peers(device)}


def _bind(peer: contenders.Peer, inputs: Inputs, gradients: Optional[List[torch.Tensor]]) -> contenders.Contender:
    """Calls of the forward, or of forward and backward."""
    if gradients is None:

        @contextlib.contextmanager
        def context() -> Iterator[None]:
            with torch.no_grad(), peer.context():
                yield

        bound = peer.bind(inputs.copies)
        return contenders.Contender(bound.calls, context)
    steps = []
    for qkv, do in zip(inputs.copies, gradients):
        qkv = [x.requires_grad_() for x in map(peer.lay_out, (x.detach() for x in qkv))]
        steps.append(partial(lambda qkv, do: torch.autograd.grad(peer.call(*qkv), qkv, do), qkv, do))
    return contenders.Contender(steps, peer.context)


def progress(cells: List[Any], quiet: bool) -> Iterator[Any]:
    """tqdm's bar, or a line on the terminal."""
    if quiet or not sys.stderr.isatty():
        yield from cells
        return
    if importlib.util.find_spec("tqdm"):
        from tqdm import tqdm

        yield from tqdm(cells, file=sys.stderr, leave=False)
        return
    for done, cell in enumerate(cells):
        width = 30 * done // len(cells)
        print(f"\r[{'#' * width}{'.' * (30 - width)}] {done}/{len(cells)}", end="", file=sys.stderr, flush=True)
        yield cell
    print("\r" + " " * 50 + "\r", end="", file=sys.stderr, flush=True)


def measure(case: Case, options: argparse.Namespace) -> List[dict]:
    """One row per contender."""
    timer = make_timer(options.device)
    inputs = Inputs(case, getattr(torch, options.dtype), options.device, timer.cache_bytes)
    gradients = [torch.randn_like(q) for q, _, _ in inputs.copies] if options.backward else None
    reference = Reference(case, *inputs.copies[0], inputs.captures, step=max(1, case.length // ROWS))
    rows, bound = [], {}
    for name, make in all_contenders(options.device).items():
        if options.only and name not in options.only:
            continue
        row: Dict[str, Any] = {"variant": case.variant, "length": case.length, "contender": name}
        try:
            peer = make(case, inputs.captures)
            if name == "naive" and 4 * case.batch * case.heads * case.length**2 > options.naive_bytes:
                row["note"] = "left out: its scores do not fit"
                rows.append(row)
                continue
            with torch.no_grad():
                errors = reference.judge(*peer.bind(inputs.copies[:1]).run())
            row["error"], row["relative_error"] = errors["max"], errors["relative"]
            # Which rounds every step; the measure of the others.
            row["wrong"] = "" if name == "naive" else errors["why"]
            step = _bind(peer, inputs, gradients)
            with step.context():
                step.calls[0]()
                row["peak_bytes"] = peak_memory(step.calls[0], options.device)
            bound[name] = step
        except contenders.Unsupported:
            continue
        except (RuntimeError, NotImplementedError, ImportError, AttributeError, ValueError) as error:
            row["note"] = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        rows.append(row)
    times = timer.measure(bound, options.seconds) if bound else {}
    flops = case.flops() * (3.5 if options.backward else 1)
    for row in rows:
        if times.get(row["contender"]):
            row["seconds"] = statistics.median(times[row["contender"]])
            row["tflops"] = flops / row["seconds"] * 1e-12
    return rows


# Results.


def format_table(rows: List[dict]) -> str:
    lines = [f"{'variant':10} {'length':>7} {'contender':15} {'ms':>10} {'TFLOP/s':>9} {'peak MB':>9} {'error':>9}"]
    for row in rows:
        head = f"{row['variant']:10} {row['length']:7} {row['contender']:15} "
        if "seconds" not in row:
            lines.append(head + row.get("note", ""))
            continue
        peak = row["peak_bytes"]
        lines.append(
            head + f"{row['seconds'] * 1e3:10.3f} {row['tflops']:9.4f} "
            f"{'-' if peak is None else format(peak / 1e6, '.1f'):>9} {row['error']:9.1e}"
            + (f"  WRONG: {row['wrong']}" if row.get("wrong") else "")
        )
    return "\n".join(lines)


def plot(rows: List[dict], directory: str, what: str) -> List[str]:
    """PNG files of time and of memory against the length, one pair per variant."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    os.makedirs(directory, exist_ok=True)
    paths = []
    for variant in dict.fromkeys(row["variant"] for row in rows):
        for key, label, factor in (("seconds", "ms", 1e3), ("peak_bytes", "peak MB above inputs", 1e-6)):
            figure, axes = pyplot.subplots(figsize=(6, 4))
            for name in dict.fromkeys(row["contender"] for row in rows):
                points = [
                    (row["length"], row[key] * factor)
                    for row in rows
                    if row["variant"] == variant and row["contender"] == name and row.get(key)
                ]
                if points:
                    axes.plot(*zip(*points), marker="o", label=name)
            axes.set(xscale="log", yscale="log", xlabel="length", ylabel=label, title=f"{variant}, {what}")
            axes.legend(fontsize="small")
            axes.grid(True, which="both", alpha=0.3)
            path = os.path.join(directory, f"{variant}-{'time' if key == 'seconds' else 'memory'}.png")
            figure.savefig(path, dpi=120, bbox_inches="tight")
            pyplot.close(figure)
            paths.append(path)
    return paths


def parse(arguments: Optional[List[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m attnc.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--variants", default="full,causal,window,alibi", help=f"of {','.join(VARIANTS)}, or all")
    parser.add_argument("--lengths", help="such as 256,512,1024 (default: by the device)")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="default: by the device")
    parser.add_argument("--backward", action="store_true", help="forward and backward")
    parser.add_argument("--model", choices=("roberta", "llama"), help="a step of it; errors are against attnc's logits")
    parser.add_argument("--host", action="store_true", help="microseconds of the host per call, and nothing else")
    parser.add_argument("--window", type=int, default=WINDOW, help="keys of the variant window")
    parser.add_argument("--only", default="", help="contenders, such as attnc,naive")
    parser.add_argument("--seconds", type=float, default=0.5, help="of timing per variant and length")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--plots", metavar="DIR", help="needs matplotlib")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    options = parser.parse_args(arguments)
    if options.device == "auto":
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = options.device == "cuda"
    options.dtype = options.dtype or ("bfloat16" if on_gpu else "float32")
    options.naive_bytes = 16e9 if on_gpu else 2e9
    options.variants = VARIANTS if options.variants == "all" else tuple(options.variants.split(","))
    unknown = [name for name in options.variants if name not in VARIANTS]
    if unknown:
        parser.error(f"no variant '{unknown[0]}', expected some of {', '.join(VARIANTS)}")
    default = "512,1024,2048,4096,8192,16384" if on_gpu else "128,256,512,1024,2048"
    try:
        options.lengths = [int(text) for text in (options.lengths or default).split(",")]
    except ValueError:
        parser.error(f"--lengths: expected numbers, got '{options.lengths}'")
    if min(options.lengths) < 1 or options.window < 1:
        parser.error("--lengths, --window: expected positive numbers")
    options.only = [name for name in options.only.split(",") if name]
    known = ("attnc", "sdpa", "eager") if options.model else all_contenders(options.device)
    wrong = [name for name in options.only if name not in known]
    if wrong:
        parser.error(f"no contender '{wrong[0]}' here, there are {', '.join(known)}")
    if options.plots and not importlib.util.find_spec("matplotlib"):
        parser.error("--plots needs matplotlib")
    return options


def main(arguments: Optional[List[str]] = None) -> int:
    options = parse(arguments)
    machine = torch.cuda.get_device_name() if options.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    what = (
        f"{machine}, {options.dtype}, batch {options.batch}, {options.heads} heads, d {options.dim}, "
        f"{'forward and backward' if options.backward else 'forward'}"
    )
    print(what)
    rows: List[dict] = []
    if options.host:
        spent = measure_host(options.device, options.dtype)
        for name, microseconds in spent.items():
            print(f"{name:44} {microseconds:8.1f} us")
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"machine": machine, "torch": torch.__version__, "host_us": spent}, file, indent=1)
        return 0
    variants = (options.model,) if options.model else options.variants
    cells: List[Tuple[str, int]] = [(variant, length) for variant in variants for length in options.lengths]
    with contextlib.suppress(KeyboardInterrupt):  # what was measured is shown
        for variant, length in progress(cells, options.quiet):
            if options.model:
                rows += measure_model(options.model, length, options)
                continue
            case = Case(variant, options.dim, length, options.batch, options.heads, options.window)
            rows += measure(case, options)
    print(format_table(rows))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"machine": machine, "torch": torch.__version__, "what": what, "rows": rows}, file, indent=1)
    if options.plots:
        print("\n".join(plot(rows, options.plots, what)))
    failed = [row for row in rows if row["contender"] == "attnc" and ("seconds" not in row or row.get("wrong"))]
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Error as problem:
        sys.exit(f"attnc.bench: {problem}")
