# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention side by side: errors, times and memory of attnc and of what else can be
imported, against the length.

    python -m attnc.bench                              # a sweep, on the GPU if there is one
    python -m attnc.bench --variants causal,alibi --lengths 256,1024,4096 --backward
    python -m attnc.bench --json out.json --plots pictures
    python -m attnc.bench --model roberta              # a step of a transformers model

Each contender's result is compared with float64 on the first, middle and last rows; then
contenders take turns, and the median counts. Memory is the peak above what was there
before the call. On a GPU, times are between two CUDA events. (benchmarks/gpu_forward.py of
the source tree measures single kernels of the forward more carefully.)
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch

from ._attention import attention
from ._bench_models import measure_model
from ._errors import Error

WINDOW, CAP, DOCUMENTS = 256, 20.0, 8
Call = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass
class Case:
    """One variant at one length; functions are FlexAttention's."""

    variant: str
    length: int
    score_mod: Optional[Callable] = None
    mask_mod: Optional[Callable] = None

    def kept(self) -> float:
        """The share of pairs that count."""
        n = self.length
        if self.variant == "full" or self.variant == "softcap":
            return 1.0
        if self.variant == "window":
            w = min(WINDOW + 1, n)
            return (w * n - w * (w - 1) / 2) / n**2
        share = (n + 1) / (2 * n)
        return share / DOCUMENTS if self.variant == "documents" else share


def make_case(variant: str, length: int, heads: int, device: str) -> Case:
    causal = lambda b, h, i, j: i >= j
    if variant == "full":
        return Case(variant, length)
    if variant == "causal":
        return Case(variant, length, mask_mod=causal)
    if variant == "window":
        return Case(variant, length, mask_mod=lambda b, h, i, j: (i >= j) & (i - j <= WINDOW))
    if variant == "softcap":
        return Case(variant, length, score_mod=lambda s, b, h, i, j: torch.tanh(s / CAP) * CAP)
    if variant == "alibi":
        slopes = 2.0 ** (-8 * torch.arange(1, heads + 1, device=device) / heads)
        return Case(variant, length, lambda s, b, h, i, j: s - slopes[h] * (i - j), causal)
    document = torch.arange(length, device=device) * DOCUMENTS // length
    return Case(variant, length, mask_mod=lambda b, h, i, j: (document[i] == document[j]) & (i >= j))


VARIANTS = ("full", "causal", "window", "alibi", "softcap", "documents")


# Contenders: from a case to a call, or None where one does not do the variant.


def run_attnc(case: Case) -> Optional[Call]:
    if case.variant == "causal":
        return partial(attention, is_causal=True)
    return partial(attention, score_mod=case.score_mod, mask_mod=case.mask_mod)


def _scores(case: Case, q: torch.Tensor, k: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Of some rows, changed and masked."""
    s = (q[:, :, rows] @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    shapes = (-1, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1)
    ranges = [torch.arange(n, device=q.device) for n in (q.shape[0], q.shape[1])]
    index = [x.view(shape) for x, shape in zip((*ranges, rows, torch.arange(k.shape[2], device=q.device)), shapes)]
    if case.score_mod:
        s = case.score_mod(s, *index).to(s.dtype)
    return s.masked_fill(~case.mask_mod(*index), float("-inf")) if case.mask_mod else s


def run_naive(case: Case) -> Optional[Call]:
    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        s = _scores(case, q, k, torch.arange(q.shape[2], device=q.device))
        return torch.softmax(s, -1).to(v.dtype) @ v

    return call


def run_sdpa(backend: str, case: Case) -> Optional[Call]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if case.variant not in ("full", "causal"):
        return None
    chosen = getattr(SDPBackend, backend, None)
    if chosen is None:
        return None

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(chosen):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=case.variant == "causal")

    return call


def run_flex(case: Case) -> Optional[Call]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    blocks: Dict[Any, Any] = {}

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if case.mask_mod and not blocks:
            blocks[0] = create_block_mask(case.mask_mod, None, None, q.shape[2], k.shape[2], device=str(q.device))
        return compiled(q, k, v, score_mod=case.score_mod, block_mask=blocks.get(0))

    return call


def run_flash(module: str, case: Case) -> Optional[Call]:
    function = getattr(importlib.import_module(module), "flash_attn_func")
    settings: Optional[dict] = {
        "full": {},
        "causal": {"causal": True},
        "window": {"causal": True, "window_size": (WINDOW, 0)},
        "softcap": {"softcap": CAP},
    }.get(case.variant)
    if settings is None:
        return None

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        result = function(*(x.transpose(1, 2) for x in (q, k, v)), **settings)
        return (result[0] if isinstance(result, tuple) else result).transpose(1, 2)

    return call


def run_xformers(case: Case) -> Optional[Call]:
    from xformers import ops

    if case.variant not in ("full", "causal"):
        return None
    bias = ops.LowerTriangularMask() if case.variant == "causal" else None
    return lambda q, k, v: ops.memory_efficient_attention(
        *(x.transpose(1, 2) for x in (q, k, v)), attn_bias=bias
    ).transpose(1, 2)


def contenders(device: str) -> Dict[str, Callable[[Case], Optional[Call]]]:
    """What this machine can import, attnc first."""
    found: Dict[str, Callable[[Case], Optional[Call]]] = {"attnc": run_attnc, "naive": run_naive}
    backends = {"FLASH_ATTENTION": "sdpa flash", "MATH": "sdpa math"}
    if device == "cuda":
        backends.update(CUDNN_ATTENTION="sdpa cuDNN", EFFICIENT_ATTENTION="sdpa efficient")
        found["flex"] = run_flex
        for module, name in (("flash_attn", "FA2"), ("flash_attn_interface", "FA3")):
            if importlib.util.find_spec(module):
                found[name] = partial(run_flash, module)
        if importlib.util.find_spec("xformers"):
            found["xFormers"] = run_xformers
    for backend, name in backends.items():
        found[name] = partial(run_sdpa, backend)
    return found


# Measuring.


def _finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _time(call: Callable[[], Any], device: str) -> float:
    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _resident(peak: bool) -> int:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM:" if peak else "VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


def peak_memory(call: Callable[[], Any], device: str) -> Optional[int]:
    """Bytes above what was there before; None where the system does not say."""
    if device == "cuda":
        _finish(device)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        _finish(device)
        return torch.cuda.max_memory_allocated() - before
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # forget the peak
        before = _resident(peak=False)
        call()
        return max(0, _resident(peak=True) - before)
    except OSError:
        return None


def error_of(case: Case, result: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> float:
    """The largest error on some rows, against float64."""
    n = q.shape[2]
    rows = torch.tensor(sorted({*range(min(8, n)), *range(n // 2, min(n // 2 + 8, n)), *range(max(0, n - 8), n)}))
    rows = rows.to(q.device)
    wide = [x.detach().double() for x in (q, k, v)]
    exact = torch.softmax(_scores(case, wide[0], wide[1], rows), -1) @ wide[2]
    return (result[:, :, rows].detach().double() - exact).abs().max().item()


def _steps(call: Call, inputs: List[torch.Tensor], do: Optional[torch.Tensor]) -> Callable[[], Any]:
    if do is None:

        def forward() -> torch.Tensor:
            with torch.no_grad():
                return call(*inputs)

        return forward
    return lambda: torch.autograd.grad(call(*inputs), inputs, do)


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
    shape = options.batch, options.heads, case.length, options.dim
    generator = torch.Generator().manual_seed(0)
    type = getattr(torch, options.dtype)
    q, k, v, do = (torch.randn(shape, generator=generator).to(options.device, type) for _ in range(4))
    inputs = [x.requires_grad_(options.backward) for x in (q, k, v)]
    rows, calls = [], {}
    for name, make in contenders(options.device).items():
        if options.only and name not in options.only:
            continue
        row = {"variant": case.variant, "length": case.length, "contender": name}
        try:
            call = make(case)
            if call is None:
                continue
            if name == "naive" and 4 * options.batch * options.heads * case.length**2 > options.naive_bytes:
                row["note"] = "left out: its scores do not fit"
                rows.append(row)
                continue
            step = _steps(call, inputs, do if options.backward else None)
            with torch.no_grad():
                row["error"] = error_of(case, call(*inputs), q, k, v)
            step()
            row["peak_bytes"] = peak_memory(step, options.device)
            calls[name] = step
        except (RuntimeError, NotImplementedError, ImportError, AttributeError, ValueError) as error:
            row["note"] = (str(error).strip() or type_name(error)).splitlines()[0][:200]
        rows.append(row)
    times: Dict[str, List[float]] = {name: [] for name in calls}
    end = time.perf_counter() + options.seconds
    while calls and (time.perf_counter() < end or min(map(len, times.values())) < 3):
        for name, step in calls.items():  # by turns
            times[name].append(_time(step, options.device))
    flops = 4 * shape[0] * shape[1] * case.length**2 * options.dim * case.kept() * (3.5 if options.backward else 1)
    for row in rows:
        if times.get(row["contender"]):
            row["seconds"] = statistics.median(times[row["contender"]])
            row["tflops"] = flops / row["seconds"] * 1e-12
    return rows


def type_name(value: Any) -> str:
    return type(value).__name__


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
    if min(options.lengths) < 1:
        parser.error("--lengths: expected positive numbers")
    options.only = [name for name in options.only.split(",") if name]
    known = ("attnc", "sdpa", "eager") if options.model else contenders(options.device)
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
    variants = (options.model,) if options.model else options.variants
    cells: List[Tuple[str, int]] = [(variant, length) for variant in variants for length in options.lengths]
    with contextlib.suppress(KeyboardInterrupt):  # what was measured is shown
        for variant, length in progress(cells, options.quiet):
            if options.model:
                rows += measure_model(options.model, length, options, _time, peak_memory)
                continue
            rows += measure(make_case(variant, length, options.heads, options.device), options)
    print(format_table(rows))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"machine": machine, "torch": torch.__version__, "what": what, "rows": rows}, file, indent=1)
    if options.plots:
        print("\n".join(plot(rows, options.plots, what)))
    failed = [row for row in rows if row["contender"] == "attnc" and "seconds" not in row]
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Error as problem:
        sys.exit(f"attnc.bench: {problem}")
