# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A variant of attention: the IR that options and Python functions stand for, and
what it was compiled to."""

from __future__ import annotations

import json
import math
import re
import threading
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import _intervals as intervals
from ._capi import transform
from ._errors import Error
from ._executable import Executable
from ._functions import call_for_trace
from ._operations import add, greater_equal, less_equal, logical_and, subtract
from ._trace import MAX_SIZE, Check, Trace, Traced, TracedRegion, trace_region
from ._types import ELEMENT_TYPES

_HEADER = "// attnc: "
ALIGNMENTS = ("top_left", "bottom_right")
DTYPES = ("float64", "float32", "float16", "bfloat16")
PRECISIONS = ("ieee", "tf32x3", "tf32")
# Products of single warps, and copies by threads: of any address and any strides.
_BY_THREADS = "products=mma"


# Fewer than hopper-select-schedule divides the keys for, which is as many rows as a warpgroup has: each number is a
# program of its own.
MOST_FEW_QUERIES = 16
MOST_ROWS = 64


@dataclass(frozen=True)
class Options:
    """What the code of a variant depends on besides functions and captures."""

    dtype: str  # of Q, K and V, such as "float32"
    d: int
    dv: int
    is_causal: bool = False
    causal_alignment: str = "top_left"
    window: Optional[Tuple[int, int]] = None
    scale: Optional[float] = None
    deterministic: bool = False
    precision: str = "ieee"
    dropout_p: float = 0.0
    arrays: bool = False  # of NumPy, whose default type is float64
    queries: Optional[int] = None  # how many, where that makes another program
    group: int = 1  # query heads of one key head whose queries are rows of one head
    page: Optional[int] = None  # rows of a page, where keys and values lie in pages
    parts: int = 0  # that keys are divided into; 0 for as many as the sizes ask for

    def check(self) -> None:
        if self.causal_alignment not in ALIGNMENTS:
            raise Error(f"expected causal_alignment 'top_left' or 'bottom_right', got {self.causal_alignment!r}")
        window = self.window
        if window is not None and not (
            isinstance(window, tuple) and len(window) == 2 and all(type(n) is int and n >= -1 for n in window)
        ):
            raise Error(f"expected a window (left, right) of integers from -1 (no bound), got {window!r}")
        if self.scale is not None and not math.isfinite(self.scale):
            raise Error(f"expected a finite scale, got {self.scale}")
        if self.precision not in PRECISIONS:
            raise Error(f"expected precision 'ieee', 'tf32x3' or 'tf32', got {self.precision!r}")
        if self.precision != "ieee" and self.dtype != "float32":
            raise Error(f"expected precision 'ieee' for {self.dtype}: {self.precision!r} is of products of float32")
        if not 0 <= self.dropout_p <= 1:
            raise Error(f"expected a dropout_p from 0 to 1, got {self.dropout_p}")

    @property
    def kept(self) -> int:
        """Of 2^32 random numbers, how many keep a weight."""
        return round((1 - self.dropout_p) * 2**32)

    @property
    def drops(self) -> bool:
        return self.kept < 2**32


def few_queries(number: Any) -> Optional[int]:
    """The number of queries, if it is known and so small that keys are divided, not
    queries: such programs are written for it."""
    return number if type(number) is int and 0 < number <= MOST_FEW_QUERIES else None


def packed_group(heads: int, kv_heads: int, queries: Optional[int]) -> int:
    """How many query heads of those that share a key head may have their few queries as rows of one: keys are then read
    and multiplied once for all of them."""
    if not queries or queries == 1 or heads == kv_heads:
        return 1
    shared = heads // kv_heads
    return max(group for group in range(1, shared + 1) if shared % group == 0 and group * queries <= MOST_ROWS)


def _place(options: Options, h: Traced, i: Traced) -> Tuple[Any, Any]:
    """The head and the query of row i of the head h."""
    if options.group == 1:
        return h, i
    queries = options.queries or 1
    return h * options.group + i // queries, i % queries


def _named_mask(options: Options) -> Optional[Callable]:
    """is_causal and window as a mask function; `offset` is what j may be ahead of i
    on the diagonal."""
    left, right = options.window or (-1, -1)
    if options.is_causal:
        right = 0 if right < 0 else min(right, 0)
    if left < 0 and right < 0:
        return None

    def mask(offset: Any, i: Traced, j: Traced) -> Any:
        diagonal = i if offset is None else add(i, offset)
        keep = None
        if right >= 0:
            keep = greater_equal(diagonal if right == 0 else add(diagonal, right), j)
        if left >= 0:
            near = less_equal(diagonal if left == 0 else subtract(diagonal, left), j)
            keep = near if keep is None else logical_and(keep, near)
        return keep

    return mask


def _mask_function(options: Options, mask_mod: Optional[Callable]) -> Optional[Callable]:
    named = _named_mask(options)
    if named is None:
        return mask_mod and (lambda b, h, i, j: call_for_trace(mask_mod, (b, *_place(options, h, i), j)))

    def mask(b: Traced, h: Traced, i: Traced, j: Traced) -> Any:
        offset = None
        if options.causal_alignment == "bottom_right":
            # keys less queries, which the function computes.
            offset = Traced(i.region, "%offset", "index", "int64", intervals.ANY)
        h, i = _place(options, h, i)
        keep = named(offset, i, j)
        return keep if mask_mod is None else logical_and(keep, call_for_trace(mask_mod, (b, h, i, j)))

    return mask


def _dropout_text(options: Options, declared: str, accumulator: str) -> str:
    """The factor region: 0, or the reciprocal of the probability that a weight is kept."""
    kept = options.kept
    threshold = kept - 2**32 if kept >= 2**31 else kept  # i32 has a sign
    scale = 2**32 / kept if kept else 0.0
    return (
        f"    factor {{\n    ^bb0(%b: index, %h: index, %i: index, %j: index{declared}):\n"
        "      %zero = arith.constant 0 : index\n"
        "      %one = arith.constant 1 : index\n"
        "      %seed = tensor.extract %rng[%zero] : tensor<2xi64>\n"
        "      %counter = tensor.extract %rng[%one] : tensor<2xi64>\n"
        "      %bits = attn.random_bits %seed, %counter at %b, %h, %i, %j : i32\n"
        f"      %threshold = arith.constant {threshold} : i32\n"
        "      %keep = arith.cmpi ult, %bits, %threshold : i32\n"
        f"      %scale = arith.constant {scale:.17e} : {accumulator}\n"
        f"      %none = arith.constant 0.0 : {accumulator}\n"
        f"      %factor = arith.select %keep, %scale, %none : {accumulator}\n"
        f"      attn.yield %factor : {accumulator}\n    }}\n"
    )


def _tensor(sizes: Sequence[Any], element: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in sizes)}{element}>"


def _is_trivial(region: Optional[TracedRegion]) -> bool:
    if region is None:
        return True
    if region.kind == "score":
        return region.result == "%s"
    return len(region.lines) == 1 and "arith.constant true" in region.lines[0]


def build(options: Options, score_mod: Optional[Callable], mask_mod: Optional[Callable]) -> Tuple[str, List[Any]]:
    """The module's text and the captured tensors, in the order of its arguments
    behind Q, K and V; behind them are the table of pages and the lengths, if there are. Its
    first line holds what a call is checked against."""
    options.check()
    element = ELEMENT_TYPES[options.dtype]
    accumulator = "float64" if element == "f64" else "float32"
    trace = Trace(accumulator, accumulator if options.arrays else "float32")
    regions: List[Optional[TracedRegion]] = [None, None]
    if score_mod is not None:
        score = lambda s, b, h, i, j: call_for_trace(score_mod, (s, b, *_place(options, h, i), j))
        regions[0] = trace_region(trace, "score", score, score_mod)
    mask = _mask_function(options, mask_mod)
    if mask is not None:
        regions[1] = trace_region(trace, "mask", mask, mask_mod or mask)
    regions = [None if _is_trivial(region) else region for region in regions]
    offset = options.causal_alignment == "bottom_right" and _named_mask(options) is not None
    return _module_text(options, trace, regions, element, offset), [c.tensor for c in trace.captures]


def _module_text(
    options: Options, trace: Trace, regions: List[Optional[TracedRegion]], element: str, offset: bool
) -> str:
    queries = "?" if options.queries is None else options.queries * options.group
    q, o = (_tensor(["?", "?", queries, d], element) for d in (options.d, options.dv))
    k, v = (_tensor(["?", "?", "?", d], element) for d in (options.d, options.dv))
    pools = k, v
    if options.page is not None:
        pools = tuple(_tensor(["?", "?", options.page, d], element) for d in (options.d, options.dv))
    lse = _tensor(["?", "?", queries], ELEMENT_TYPES[trace.accumulator])
    captures = [(f"%c{n}", capture.ir) for n, capture in enumerate(trace.captures)]
    if options.drops:
        captures.append(("%rng", "tensor<2xi64>"))
    names, paged = "%k: {}, %v: {}", []
    lines, seen = "", list(captures)
    if options.page is not None:
        names, paged = "%k_pool: {}, %v_pool: {}", [("%table", "tensor<?x?xi32>"), ("%used", "tensor<?xi32>")]
        for name, pool, whole in zip("kv", pools, (k, v)):
            lines += (
                f"  %{name} = attn.pages %{name}_pool[%table] lengths(%used)\n"
                f"    : {pool}, tensor<?x?xi32>, tensor<?xi32> -> {whole}\n"
            )
    arguments = "".join(f", {name}: {type}" for name, type in [*captures, *paged])
    if offset:
        seen.append(("%offset", "index"))
        count = f"tensor.dim %q, %two : {q}" if options.group == 1 else f"arith.constant {options.queries} : index"
        lines += (
            "  %two = arith.constant 2 : index\n"
            f"  %queries = {count}\n"
            f"  %keys = tensor.dim %k, %two : {k}\n"
            "  %offset = arith.subi %keys, %queries : index\n"
        )
    declared = "".join(f", {name}: {type}" for name, type in seen)
    scale = "" if options.scale is None else f" scale {options.scale:.17e}"
    used = ""
    if seen:
        used = f" captures({', '.join(n for n, _ in seen)} : {', '.join(t for _, t in seen)})"
    body = "".join(region.text(declared) for region in regions if region)
    if options.drops:
        body += _dropout_text(options, declared, ELEMENT_TYPES[trace.accumulator])
    header = {
        "checks": [[c.capture, c.dim, c.interval, c.where] for c in trace.checks],
        "deterministic": bool(options.deterministic),
        "precision": options.precision,
        "wraps": trace.wraps,
        "sizes": trace.sizes,
        "page": options.page,
        "parts": options.parts,
    }
    return (
        f"{_HEADER}{json.dumps(header)}\n"
        f"func.func @attention(%q: {q}, {names.format(*pools)}{arguments}) -> ({o}, {lse}) {{\n{lines}"
        f"  %o, %lse = attn.forward %q, %k, %v{scale}{used}\n{body}"
        f"    : {q}, {k}, {v} -> {o}, {lse}\n"
        f"  return %o, %lse : {o}, {lse}\n}}\n"
    )


def _options_of(function: str, arguments: Sequence[int]) -> str:
    """Of a pass that differentiates."""
    return f"function={function} arguments={','.join(map(str, arguments))}"


class Gradient(NamedTuple):
    """Code for gradients of the arguments `computed`; `positions` among them are those
    that were asked for."""

    executable: Executable
    computed: Tuple[int, ...]
    positions: Tuple[int, ...]

    def select(self, results: List[Any]) -> List[Any]:
        if len(results) == len(self.positions):
            return results
        return [results[position] for position in self.positions]


class Variant:
    """IR with the executables that were made of it, for all threads. The result of a
    call is (O, LSE); a gradient takes Q, K, V, the captures, O, LSE, dO and, where it
    has one, dLSE."""

    def __init__(self, text: str, wraps: bool = False) -> None:
        self.text = text
        header = json.loads(text[len(_HEADER) : text.index("\n")])
        self.checks = [Check(*check) for check in header["checks"]]
        self.deterministic: bool = header["deterministic"]
        self.precision: str = header["precision"]
        # Of captures, that the code is written for: (capture, dimension, size).
        self.sizes: List[List[int]] = header["sizes"]
        # Rows of a page; the table and the lengths are then the last inputs.
        self.page: Optional[int] = header["page"]
        self.parts: int = header["parts"]
        # Without the header, for what it says is nothing to the compiler.
        self.code = text[text.index("\n") + 1 :]
        self._wraps: List[Tuple[str, str]] = [] if wraps else header["wraps"]
        if wraps:
            for line, lines in header["wraps"]:
                self.code = self.code.replace(line, lines)
        # The same where computed indices are negative.
        self._wrapped: Optional[Variant] = None
        self._executables: Dict[Any, Executable] = {}
        self._forward: Dict[Any, Executable] = {}
        self._gradients: Dict[Any, Gradient] = {}
        self._tangents: Dict[Any, Executable] = {}
        self._gradient_tangents: Dict[Any, Gradient] = {}
        self._checked: Dict[Any, bool] = {}
        self._lock = threading.Lock()

    def pipeline(
        self, device: str, gradient: bool = False, by_threads: bool = False, partial: bool = False
    ) -> Optional[str]:
        """Options of the pipeline; None for none. `by_threads` as of forward(), `partial` as of gradient()."""
        if device == "cpu":
            if self.precision != "ieee":
                raise Error(f"expected precision 'ieee' on a CPU, which has no products of TF32; got {self.precision!r}")
            if partial:
                return "single-queries=false large-scores=inexact"
            if self.parts == 0:
                return None
            order = "m_outer" if self.parts == 1 else f"split_kv parts={self.parts}"
            return f"single-queries=false order={order}"
        schedule = [_BY_THREADS] if by_threads else []
        if self.precision != "ieee":
            schedule.append(f"precision={self.precision}")
        # Orders of a gradient whose sums are always the same.
        options = ["deterministic=true"] if gradient and self.deterministic else []
        if self.parts:
            options.append(f"parts={self.parts}")
        if partial:
            options.append("large-scores=false")
        if schedule:
            options.append(f"schedule={{{' '.join(schedule)}}}")
        return " ".join(options) or None

    def executable(self, device: str, gradient: Optional[str] = None, pipeline: Optional[str] = None) -> Executable:
        """For "cpu" or "cuda"; `gradient` are options of attn-differentiate."""
        key = device, gradient, pipeline
        known = self._executables.get(key)
        if known is None:
            with self._lock:
                known = self._executables.get(key)
                if known is None:
                    # A call with one query has code of its own.
                    asked = "single-queries=false" if device == "cpu" and pipeline is None else pipeline
                    known = Executable(self.code, device, "attention", asked, gradient=gradient)
                    self._executables[key] = known
        return known

    def forward(self, device: str, by_threads: bool = False) -> Executable:
        """`by_threads`: on a GPU, threads copy tiles, from any address, where TMA would not reach."""
        key = device, by_threads
        executable = self._forward.get(key)
        if executable is None:
            executable = self.executable(device, pipeline=self.pipeline(device, by_threads=by_threads))
            executable.layouts = [0, None]  # O lies in memory as Q does
            self._forward[key] = executable
        return executable

    def gradient(
        self, device: str, wanted: Tuple[int, ...], has_dlse: bool, by_threads: bool = False, partial: bool = False
    ) -> Gradient:
        """The gradients of the arguments at the positions `wanted`; `by_threads` as of forward(). `partial`: the LSE may
        be that of more keys than these; where it is large it then says no more than float32 does."""
        key = device, wanted, has_dlse, by_threads, partial
        known = self._gradients.get(key)
        if known is None:
            known = self._gradients[key] = self._compile_gradient(*key)
        return known

    def jvp(self, device: str, given: Tuple[int, ...]) -> Executable:
        """Tangents of (O, LSE), from the arguments, O, LSE and tangents of the arguments at the positions `given`."""
        key = device, given
        known = self._tangents.get(key)
        if known is None:
            known = self._derive(device, [f"attn-build-jvp{{{_options_of('attention', given)} saved-results}}"], "_jvp")
            known.layouts = [0, None]
            self._tangents[key] = known
        return known

    def backward_jvp(
        self, device: str, wanted: Tuple[int, ...], given: Tuple[int, ...], present: Tuple[bool, bool, bool]
    ) -> Gradient:
        """Tangents of the gradients of the arguments at the positions `wanted`. Arguments: the function's, O, LSE, dO;
        dLSE, if it is `present`; tangents of the function's at the positions `given`, of O and LSE; then those of dO
        and of dLSE, if they are."""
        key = device, wanted, given, present
        known = self._gradient_tangents.get(key)
        if known is None:
            known = self._gradient_tangents[key] = self._compile_backward_jvp(*key)
        return known

    def _compile_backward_jvp(
        self, device: str, wanted: Tuple[int, ...], given: Tuple[int, ...], present: Tuple[bool, bool, bool]
    ) -> Gradient:
        has_dlse, has_do_tangent, has_dlse_tangent = present
        saved = self.num_arguments
        tangents = [*given, saved, saved + 1]
        tangents += [saved + 2] * has_do_tangent + [saved + 3] * has_dlse_tangent
        sets = [wanted, tuple(sorted({0, 1, 2, *wanted}))]
        problem: Optional[Error] = None
        for computed in sets:
            first = f"{_options_of('attention', computed)} saved-results results={'0,1' if has_dlse else '0'}"
            passes = [
                f"attn-differentiate{{{first}}}",
                f"attn-build-jvp{{{_options_of('attention_gradient', tangents)}}}",
            ]
            try:
                executable = self._derive(device, passes, "_gradient_jvp")
            except Error as error:
                problem = problem or error
                continue
            executable.layouts = list(computed)
            return Gradient(executable, computed, tuple(computed.index(index) for index in wanted))
        raise Error(f"cannot compile the second derivatives of this attention: {problem}") from None

    @property
    def num_arguments(self) -> int:
        """Of the function: Q, K, V, captures, what dropout reads, a table of pages and its lengths."""
        head = self.code[self.code.index("func.func @attention(") : self.code.index("{\n")]
        return len(re.findall(r"%\w+:", head))

    def _derive(self, device: str, passes: List[str], suffix: str) -> Executable:
        """The function that passes add. On a GPU threads copy its tiles: it has products of warps."""
        if self.page is not None:
            raise Error("expected a call without pages where it is differentiated")
        text, _ = transform(self.code, f"builtin.module({','.join(passes)})")
        pipeline = self.pipeline(device, gradient=True, by_threads=device != "cpu")
        asked = "single-queries=false" if device == "cpu" and pipeline is None else pipeline
        return Executable(text, device, f"attention{suffix}", asked)

    def _compile_gradient(
        self, device: str, wanted: Tuple[int, ...], has_dlse: bool, by_threads: bool, partial: bool
    ) -> Gradient:
        pipeline = self.pipeline(device, gradient=True, by_threads=by_threads, partial=partial)
        # There are gradients that the compiler fuses with all others only.
        sets = [wanted, tuple(sorted({0, 1, 2, *wanted}))]
        problem: Optional[Error] = None
        for computed in sets if max(wanted) > 2 else sets[:1]:
            arguments, results = ",".join(map(str, computed)), "0,1" if has_dlse else "0"
            try:
                executable = self.executable(device, f"saved-results arguments={arguments} results={results}", pipeline)
            except Error as error:
                problem = problem or error
                continue
            executable.layouts = list(computed)
            return Gradient(executable, computed, tuple(computed.index(index) for index in wanted))
        where = "GPUs" if device == "cuda" else "the CPU"
        raise Error(f"cannot compile the gradient of this attention for {where}: {problem}") from None

    def for_sizes(self, q: Any, k: Any, captures: Sequence[Any]) -> Variant:
        """The variant for these sizes: where computed indices are negative for some, they
        count from the end as in PyTorch. Refuses sizes for which a capture would be read
        out of its bounds. What is read at an index that was itself read from a tensor is
        the caller's business."""
        shapes = q.shape, k.shape, *(capture.shape for capture in captures)
        negative = self._checked.get(shapes)
        if negative is None:
            negative = self._check_sizes(q, k, captures)
            if len(self._checked) >= 1024:
                self._checked.clear()
            self._checked[shapes] = negative
        if not negative or not self._wraps:
            return self
        if self._wrapped is None:
            with self._lock:
                self._wrapped = self._wrapped or Variant(self.text, True)
        return self._wrapped

    def is_for(self, captures: Sequence[Any]) -> bool:
        """Whether the rows that the functions read have the lengths that they had while tracing."""
        return all(captures[capture].shape[dim] == size for capture, dim, size in self.sizes)

    def _check_sizes(self, q: Any, k: Any, captures: Sequence[Any]) -> bool:
        """Whether a computed index may be negative."""
        for capture, dim, size in self.sizes:
            found = captures[capture].shape[dim]
            if found != size:
                raise Error(
                    f"expected {size} elements in dimension {dim} of captured tensor {capture}, as while tracing, got "
                    f"{found}"
                )
        keys = k.shape[2] if self.page is None else captures[-2].shape[1] * self.page
        sizes = {"b": q.shape[0], "h": q.shape[1], "i": q.shape[2], "j": keys}
        if any(size > MAX_SIZE for size in sizes.values()):
            raise Error(f"expected sizes up to {MAX_SIZE}, got {tuple(sizes.values())}")
        negative = False
        if 0 in sizes.values():
            return negative
        for check in self.checks:
            low, high = intervals.evaluate(check.interval, sizes)
            shape = tuple(captures[check.capture].shape) or (1,)
            size = shape[check.dim]
            if (low < -size and not math.isinf(low)) or (high >= size and not math.isinf(high)) or size == 0:
                raise Error(
                    f"{check.where}: dimension {check.dim} of a captured tensor has {size} elements, and is read from "
                    f"{low} to {high}: clamp the index, tensors are read for masked pairs too"
                )
            negative = negative or -size <= low < 0
        return negative


_variants: Dict[str, Variant] = {}
_variants_lock = threading.Lock()


def variant_of(text: str) -> Variant:
    """The one variant of this text."""
    with _variants_lock:
        known = _variants.get(text)
        if known is None:
            known = _variants[text] = Variant(text)
        return known
