# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the compiler makes of an attention, and why, for people to read."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from ._attention import LAYOUTS, bind, dropout_of, flag_of, scale_of, window_of
from ._capi import emit_ptx, take_tile_counts, targets, transform
from ._errors import Error
from ._executable import Executable
from ._pipeline import Kernel, draw_svg, draw_text, read_kernels
from ._trace import type_name
from ._variant import Options, Variant, few_queries


def _levels_of(target: str, precision: str) -> Dict[str, str]:
    """The levels of docs/index.md and the passes that lead there from the first."""
    if target == "cpu":
        return {"nest": "attn-nest-pipeline", "tiles": "attn-tile-pipeline", "llvm": "attn-cpu-pipeline"}
    chip = "sm_90a" if target in ("cuda", "sm_90") else target
    return {"nest": "attn-nest-pipeline", "hopper": f"attn-lower-to-hopper{{chip={chip} precision={precision}}}", "ptx": ""}


_SAVED = "saved-results results=0"


def _variant_for(query: Any, key: Any, value: Any, options: dict) -> Tuple[Variant, List[Any], List[Any]]:
    """The variant of a call, its captures, and (query, key, value) as (B, H, S, D)."""
    options = dict(options)
    functions = options.pop("score_mod", None), options.pop("mask_mod", None)
    layout = options.pop("layout", "bhsd")
    if layout not in LAYOUTS:
        raise Error(f"expected layout 'bhsd' or 'bshd', got {layout!r}")
    for unused in ("enable_gqa", "return_lse"):
        options.pop(unused, None)
    for name, convert in (("window", window_of), ("scale", scale_of), ("is_causal", flag_of)):
        if options.get(name) is not None:
            options[name] = convert(options[name])
    rng_state = options.pop("rng_state", None)
    options["dropout_p"] = dropout_of(options.get("dropout_p", 0.0), rng_state)
    arrays = [x.swapaxes(1, 2) if layout == "bshd" else x for x in (query, key, value)]
    try:
        numpy = type(query).__module__ == "numpy"
        chosen = Options(
            type_name(query), int(query.shape[-1]), int(value.shape[-1]), arrays=numpy,
            queries=few_queries(arrays[0].shape[2] if len(arrays[0].shape) == 4 else None), **options
        )
    except TypeError as error:
        raise Error(str(error)) from None
    bound = bind(chosen, *functions)
    captures = list(bound.captures)
    if chosen.drops:
        import numpy as np

        captures.append(np.zeros(2, np.int64) if rng_state is None else rng_state)
    return bound.variant, captures, arrays


def _target_of(query: Any, target: Optional[str]) -> str:
    if target is None:
        target = "cuda" if getattr(query, "is_cuda", False) else "cpu"
    known = ["cuda", *targets()]
    if target not in known:
        raise Error(f"expected a target of {', '.join(map(repr, known))}, got {target!r}")
    return target


def _gradient_module(text: str) -> str:
    """The gradient function alone."""
    both, _ = transform(text, f"builtin.module(attn-differentiate{{function=attention {_SAVED}}})")
    return "module {\n  " + both[both.index("func.func @attention_gradient") :]


def _resources(ptx: str) -> Dict[str, str]:
    """Per kernel what NVIDIA's assembler says of it, where the machine has one."""
    assembler = os.environ.get("ATTNC_PTXAS") or shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")
    if not assembler:
        return {}
    found = {}
    for number, module in enumerate(re.split(r"(?m)^(?=\.version)", ptx)[1:]):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "kernel.ptx")
            with open(path, "w") as file:
                file.write(module)
            chip = re.search(r"\.target (\w+)", module)[1]
            command = [assembler, "-v", f"-arch={chip}", path, "-o", os.path.join(directory, "kernel.cubin")]
            said = subprocess.run(command, capture_output=True, text=True).stderr
        for name, text in re.findall(r"Compiling entry function '([^']+)'[^\n]*\n((?:(?!Compiling).*\n?)*)", said):
            lines = re.findall(r"(?:ptxas info\s*: )?((?:Used|\d+ bytes stack frame)[^\n]*)", text)
            # Versions of a kernel have one name.
            found[f"{name} ({number})" if name in found else name] = "; ".join(line.strip() for line in lines)
    return found


@dataclass
class Lowered:
    """IR at each level, by name; `resources` of kernels where an assembler was found;
    `kernels` of GPUs, of which pipeline() and pipeline_svg() draw the inner loops."""

    levels: Dict[str, str]
    resources: Dict[str, str] = field(default_factory=dict)
    kernels: List[Kernel] = field(default_factory=list)

    def pipeline(self) -> str:
        return draw_text(self.kernels)

    def pipeline_svg(self) -> str:
        return draw_svg(self.kernels)

    def __getitem__(self, level: str) -> str:
        return self.levels[level]

    def __iter__(self) -> Any:
        return iter(self.levels)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} ({len(text.splitlines())} lines)" for name, text in self.levels.items())
        kernels = "".join(f"\n  {name}: {said}" for name, said in self.resources.items())
        return f"Lowered: {sizes}{kernels}"

    def __str__(self) -> str:
        return "\n".join(f"// ----- {name} -----\n{text}" for name, text in self.levels.items())

    def _repr_html_(self) -> str:
        parts = [
            f"<details><summary>{html.escape(name)} ({len(text.splitlines())} lines)</summary>"
            f"<pre>{html.escape(text)}</pre></details>"
            for name, text in self.levels.items()
        ]
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{html.escape(said)}</td></tr>"
            for name, said in self.resources.items()
        )
        chart = self.pipeline_svg() if self.kernels else ""
        return "".join(parts) + (f"<table>{rows}</table>" if rows else "") + chart


def lower(
    query: Any, key: Any, value: Any, *, target: Optional[str] = None, gradient: bool = False, **options: Any
) -> Lowered:
    """The IR of attention(query, key, value, **options) at each level, for one of targets()
    or "cuda", the GPU at hand (default: where the query is; neither a GPU nor its driver is
    needed), and of its gradient instead. Of the arrays only types and head dimensions matter."""
    target = _target_of(query, target)
    variant, _, _ = _variant_for(query, key, value, options)
    module, _ = transform(variant.text, "builtin.module(canonicalize)")
    if gradient:
        module = _gradient_module(variant.text)
    levels = {"attn": module}
    for name, passes in _levels_of(target, variant.precision).items():
        if name == "ptx":
            pipeline = variant.pipeline("cuda", gradient=gradient)
            levels[name] = emit_ptx(variant.text, "attention", _SAVED if gradient else None, pipeline, target=target)
        else:
            levels[name] = transform(module, f"builtin.module({passes})")[0]
    if "hopper" not in levels:
        return Lowered(levels)
    return Lowered(levels, _resources(levels["ptx"]), read_kernels(levels["hopper"], _arguments(variant, gradient)))


def _arguments(variant: Variant, gradient: bool) -> List[str]:
    """Names of what the compiled function takes, results included."""
    captures = [f"c{n}" for n in range(variant.code.partition(" -> ")[0].count("%c"))]
    names = ["Q", "K", "V", *captures, "O", "LSE"]
    return [*names, "dO", "dQ", "dK", "dV", *(f"d{c}" for c in captures)] if gradient else names


def _outcomes(said: str) -> Tuple[List[str], List[str]]:
    """What passes did and left, and the other lines of what they said."""
    lines = [re.sub(r"^\S*: (remark|note): ", "", line) for line in said.splitlines()]
    outcomes = [line for line in lines if line.startswith(("[Passed]", "[Missed]"))]
    return outcomes, [line for line in lines if line not in outcomes]


def _kernels(variant: Variant, module: str) -> Tuple[List[Kernel], str, List[str]]:
    """What a Hopper GPU would run, or why there is nothing; the schedules."""
    passes = _levels_of("cuda", variant.precision)["hopper"]
    try:
        text, said = transform(module, f"builtin.module({passes})", passes="hopper-select-schedule")
    except Error as error:
        return [], str(error), []
    return read_kernels(text, _arguments(variant, False)), "", _outcomes(said)[0]


# What one H200 has, as docs/performance.md measured or its data sheet says.
_PRODUCTS_PER_SECOND = {"bfloat16": 780e12, "float16": 780e12}
_BYTES_PER_SECOND = 4.3e12


@dataclass
class Explanation:
    """`dependences`: statements of the definition, which depend on which, and the loops
    that carry each; `dot`: the same as a graph. `order`: the loop orders that are legal
    and what each would cost. `tiles`: (visited, of them with mask arithmetic) for these
    sizes, None where it was not run. `kept`: pairs per head and batch that count, on
    average. `prediction`: of the time on an H200, by its ceilings. `kernels`: what a GPU
    runs, drawn by pipeline() as text and by pipeline_svg(); `no_kernels` says why there are
    none. `remarks`: what the passes that make tiles did, and what they left and why; the
    schedules of a GPU's kernels, with the instructions of their products (wgmma, mma)."""

    dependences: str
    dot: str
    order: str
    tiles: Optional[Tuple[int, int]]
    flops: Optional[float]
    bytes: float
    prediction: str
    kernels: List[Kernel] = field(default_factory=list)
    no_kernels: str = ""
    remarks: List[str] = field(default_factory=list)

    def pipeline(self) -> str:
        """The inner loop of each role of a GPU's kernels, and which products are under way."""
        return draw_text(self.kernels) if self.kernels else f"no kernels for GPUs: {self.no_kernels}"

    def pipeline_svg(self) -> str:
        return draw_svg(self.kernels)

    def svg(self) -> Optional[str]:
        """The graph, drawn by graphviz; None where the machine does not have it."""
        if not shutil.which("dot"):
            return None
        return subprocess.run(["dot", "-Tsvg"], input=self.dot, capture_output=True, text=True, check=True).stdout

    def __str__(self) -> str:
        lines = [self.dependences.rstrip(), "", self.order.rstrip()]
        if self.tiles is not None:
            lines.append(f"tiles: {self.tiles[0]} visited, {self.tiles[1]} of them with mask arithmetic")
        lines += [self.prediction, "", self.pipeline(), "", *self.remarks]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        picture = self.svg()
        graph = picture[picture.index("<svg") :] if picture else f"<pre>{html.escape(self.dependences)}</pre>"
        text = str(self).replace(self.dependences.rstrip(), "")
        chart = self.pipeline_svg() if self.kernels else ""
        text = text.replace(self.pipeline(), "") if chart else text
        return graph + f"<pre>{html.escape(text.strip())}</pre>" + chart


def _dependences(module: str, form: str) -> str:
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "graph")
        passes = f"attn-expand,canonicalize,cse,attn-print-dependences{{format={form} file={path}}}"
        transform(module, f"builtin.module({passes})")
        with open(path) as file:
            return file.read()


def _count_tiles(variant: Variant, arrays: List[Any], captures: List[Any]) -> Tuple[int, int]:
    code = variant.for_sizes(arrays[0], arrays[1], captures).code
    counting = Executable(code, "cpu", entry="attention", pipeline="count-tiles=true")
    take_tile_counts()
    counting(*arrays, *captures)
    masked, full = take_tile_counts()
    return masked + full, masked


def _predict(dtype: str, flops: Optional[float], moved: float) -> str:
    memory = moved / _BYTES_PER_SECOND
    if flops is None or dtype not in _PRODUCTS_PER_SECOND:
        return f"moves at least {moved / 1e6:.2f} MB: {memory * 1e6:.1f} us of an H200's memory"
    products = flops / _PRODUCTS_PER_SECOND[dtype]
    bound = "products" if products > memory else "memory"
    return (
        f"{flops / 1e9:.3f} GFLOP in tiles that are visited, {moved / 1e6:.2f} MB: on an H200 at least "
        f"{max(products, memory) * 1e6:.1f} us, by {bound}"
    )


def explain(query: Any, key: Any, value: Any, *, run: bool = True, **options: Any) -> Explanation:
    """Why attention(query, key, value, **options) is compiled as it is. With `run`, it is
    also run on the CPU, to count the tiles that its mask leaves."""
    variant, captures, arrays = _variant_for(query, key, value, options)
    module, _ = transform(variant.text, "builtin.module(canonicalize)")
    _, said = transform(module, "builtin.module(attn-tile-pipeline{explain=true})", passes="attn-.*")
    outcomes, order = _outcomes(said)
    kernels, no_kernels, schedules = _kernels(variant, module)
    tiles = flops = None
    b, h, sq, d = query.shape if options.get("layout", "bhsd") == "bhsd" else arrays[0].shape
    sk, dv = arrays[1].shape[2], arrays[2].shape[3]
    if run:
        on_host = [_on_host(x) for x in (*arrays, *captures)]
        tiles = _count_tiles(variant, on_host[:3], on_host[3:])
        whole = max(1, b * h * _tiles(sq, 64) * _tiles(sk, 128))
        flops = 2.0 * b * h * sq * sk * (d + dv) * min(1.0, tiles[0] / whole)
    size = {"float64": 8, "float32": 4}.get(type_name(query), 2)
    moved = float(size * sum(_count(x) for x in arrays) + size * b * h * sq * dv + 4 * b * h * sq)
    return Explanation(
        _dependences(module, "text"),
        _dependences(module, "dot"),
        "\n".join(order),
        tiles,
        flops,
        moved,
        _predict(type_name(query), flops, moved),
        kernels,
        no_kernels,
        remarks=outcomes + schedules,
    )


def _tiles(size: int, tile: int) -> int:
    return -(-size // tile)


def _count(array: Any) -> int:
    total = 1
    for size in array.shape:
        total *= size
    return total


def _on_host(array: Any) -> Any:
    if hasattr(array, "data_ptr"):
        array = array.detach().cpu()
        return array.reshape(1) if array.dim() == 0 else array
    return array.reshape(1) if array.ndim == 0 else array
