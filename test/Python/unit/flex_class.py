# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The forms of the main class of PyTorch's tests of FlexAttention, and of its class of learnable
biases, in smaller sizes: which functions, how they are called, which types. `FORMS` has a name and a
check for each.

What those tests ask of PyTorch's compiler alone, such as the text of its kernels, has no counterpart
here and is left out; there are 8 such tests."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import pytest
import torch
from attnc import Error
from attnc.torch import flex_attention
from flex_forms import Feature, Form, _causal
from flex_functions import FUNCTIONS
from support import check
from torch.nn.attention.flex_attention import (
    BlockMask,
    and_masks,
    create_block_mask,
    noop_mask,
    or_masks,
)
from torch.nn.functional import scaled_dot_product_attention

F32, BF16, F16, F64 = torch.float32, torch.bfloat16, torch.float16, torch.float64
FORMS: Dict[str, Callable[[], None]] = {}
BUILTIN = (
    "identity", "times two", "squared", "causal", "inverse causal", "relative", "relative causal", "alibi",
)  # fmt: skip
KINDS = {"f32": F32, "bf16": BF16, "f16": F16, "f64": F64}


def _add(name: str, check: Callable[[], None]) -> None:
    assert name not in FORMS, name
    FORMS[name] = check


def _compare(function: str, features: Tuple[Feature, ...], dtype: torch.dtype) -> None:
    for feature in features:
        Form(FUNCTIONS[function], feature, dtype).compare()


def forms(name: str, functions: Any, dtypes: str, *features: Feature, paged: bool = False) -> None:
    """One for each function and type; where `paged`, without gradients in pages besides."""
    base = features[0] if features else Feature((2, 4, 4, 64, 64, 16, 16), all_blocks=True)
    found = features or (base,)
    if paged:
        found = (*found, dataclasses.replace(base, page=16, layouts=("",) * 4))
    for function in (functions,) if isinstance(functions, str) else functions:
        for dtype in dtypes.split():
            _add(f"{name}: {function}, {dtype}", lambda a=(function, found, KINDS[dtype]): _compare(*a))


def form(name: str) -> Callable:
    """One that is a function of its own."""

    def decorate(check: Callable[[], None]) -> Callable[[], None]:
        _add(name, check)
        return check

    return decorate


ALL = "f32 bf16 f16"
PLAIN = Feature((2, 4, 4, 64, 64, 16, 16), all_blocks=True)

forms("plain", BUILTIN, ALL, paged=True)
forms(
    "shorter than a block",
    BUILTIN,
    "f16",
    Feature((2, 4, 4, 24, 24, 16, 16), options={"FORCE_USE_FLEX_ATTENTION": True}),
)
forms(
    "shorter than a block of a causal mask", BUILTIN, "f16", Feature((2, 4, 4, 24, 24, 16, 16), causal=True, blocks=64)
)
LENGTHS = (PLAIN, *(dataclasses.replace(PLAIN, shape=(n, 4, 4, s, s, 16, 16)) for n, s in ((4, 32), (4, 16))))
forms("other sizes later", BUILTIN, "f16", *LENGTHS)
COMPILED = tuple(dataclasses.replace(x, compiled=True) for x in LENGTHS[:2])
forms("other sizes later, compiled", BUILTIN, "f16", *COMPILED)
forms("other lengths of queries", BUILTIN, "f16", Feature((2, 4, 4, 32, 64, 16, 16), all_blocks=True), paged=True)
for size in (32, 64, (32, 64), (64, 32)):
    feature = Feature((2, 4, 4, 128, 128, 16, 16), blocks=size, all_blocks=True)
    forms(f"blocks of {size}", BUILTIN, ALL, feature)
for batch, heads in itertools.product((3, 4, 5), (2, 1)):
    feature = Feature((batch, 4, heads, 48, 48, 16, 16), one_batch=True, all_blocks=True)
    forms(f"{batch} batches share keys of {heads} heads", BUILTIN, "f16", feature)
    feature = dataclasses.replace(feature, causal=True)
    forms(f"{batch} batches share keys of {heads} heads, causal", BUILTIN, "f16", feature)
forms("grouped heads", BUILTIN, "f16", Feature((2, 16, 4, 16, 64, 16, 16), all_blocks=True), paged=True)
_LAYOUTS = ("offset", "batch inside", "heads inside", "padded")
for q, (k, v), do in itertools.product(
    _LAYOUTS[:2],
    (("offset",) * 2, ("offset", "batch inside"), ("heads inside", "padded"), ("padded", "batch inside")),
    _LAYOUTS[:3],
):
    feature = Feature((2, 4, 4, 32, 64, 16, 16), layouts=(q, k, v, do), all_blocks=True)
    forms(f"query {q}, key {k}, value {v}, gradient {do}", "alibi", "f16", feature)
for d, dv in ((32, 16), (16, 32)):
    forms(f"heads of {d} and {dv}", BUILTIN, ALL, Feature((2, 4, 4, 64, 64, d, dv), all_blocks=True), paged=True)

forms(
    "functions",
    (
        "documents by scores", "two indexings", "constant, two, one", "captured index", "halves of a sequence",
        "bias of pairs", "bias of batches", "bias of all", "relative bias", "bidirectional start", "neighbours, quotients",
        "silu", "scores below a length", "captured integer", "a flag that is set", "a flag that is not",
    ),
    "f16",
    paged=True,
)  # fmt: skip
forms(
    "functions of all types",
    ("even keys", "composition", "captures of all dimensions", "jagged causal"),
    ALL,
    paged=True,
)
forms("floor division", "floor division", "f64")
forms("sum of a row", "sum of a row", "f32")
forms("rows of a view", "rows of a view", "f16", dataclasses.replace(PLAIN, compiled=True))
forms("an autograd function", "an autograd function", "f32")
forms("a mask as a number", "mask as a number", "f32", Feature((4, 1, 1, 64, 64, 16, 16), causal=True))
forms("causal mask", "causal mask", "f16")
forms("causal mask in pages", "causal mask", "f16", Feature((2, 4, 4, 64, 64, 16, 16), page=16))
forms("causal mask of grouped heads", "causal mask", "f16", Feature((2, 16, 4, 16, 16, 16, 16)), paged=True)
forms("causal mask of odd lengths", "causal mask", "f16", Feature((2, 4, 4, 127, 127, 16, 16)))
forms("causal mask of odd lengths, captures", "bf16 captures", "f16", Feature((2, 4, 4, 125, 125, 16, 16), causal=True))
forms("captures of odd lengths", "f16 factor", "bf16", Feature((2, 4, 4, 67, 67, 16, 16)))
forms("documents of odd lengths", "sequences in a row", "f16", Feature((2, 4, 4, 127, 127, 16, 16)))
forms("distances of points", "distances of points", "bf16")
forms("large heads", "identity", "f16", Feature((1, 2, 2, 64, 64, 128, 128)))
forms(
    "one query and key", "identity", "f32", Feature((1, 1, 1, 1, 1, 16, 16), options={"FORCE_USE_FLEX_ATTENTION": True})
)
forms("log-sum-exp", ("identity", "causal"), ALL)
forms("rows without keys", "first queries", "f32")
forms("rows without keys, compiled", "first queries", "f32", dataclasses.replace(PLAIN, compiled=True))
forms("zeros of rows without keys", "first queries", "bf16")
forms("zeros of rows without keys, compiled", "first queries", "bf16", dataclasses.replace(PLAIN, compiled=True))
forms("documents at an edge", "documents of batches", "f64", Feature((2, 1, 1, 64, 64, 8, 8)))
forms("documents at an edge, compiled", "documents of batches", "f64", Feature((2, 1, 1, 64, 64, 8, 8), compiled=True))
forms(
    "gradients in f64",
    ("identity", "causal", "times two", "squared", "sine of cosine", "sine and cosine"),
    "f64",
    Feature((2, 2, 2, 11, 11, 4, 4), compiled=True),
)
forms(
    "gradients in f64 of a factor",
    "head factor",
    "f64",
    Feature((2, 2, 2, 11, 11, 4, 4)),
    Feature((2, 2, 2, 11, 11, 4, 4), compiled=True),
)
forms("a factor of heads in f64", "head factor", "f64", Feature((2, 2, 2, 11, 11, 4, 4), result="output"))
forms("learned bias of heads", "bias of a head", "f16")
forms("many batches", "bias of all", "bf16", Feature((12, 4, 4, 32, 32, 16, 16), compiled=True))
forms(
    "keys of a padded batch",
    "padding",
    "f32",
    Feature((4, 2, 2, 12, 12, 32, 32)),
    Feature((4, 2, 2, 12, 12, 32, 32), compiled=True),
)
forms("every second batch", "even batches", "f32", Feature((4, 2, 2, 64, 64, 16, 16), compiled=True))
forms("dropped queries", "masked queries", "f32", *(Feature((n, 2, 2, 64, 64, 16, 16)) for n in (4, 8, 2)))
forms(
    "a number of the caller",
    "batch number",
    "f32",
    *(Feature((n, 2, 2, 32, 32, 16, 16), compiled=True) for n in (2, 3)),
)
forms("a log-sum-exp in pages", "identity", "f32", Feature((2, 2, 2, 32, 32, 16, 16)), paged=True)
forms("kernel options", "identity", "f32", Feature((2, 2, 2, 64, 64, 16, 16), options={"BLOCK_M": 16}))
forms("a compiled call with a mask", "squared", "f64", Feature((2, 2, 2, 64, 64, 4, 4), causal=True, compiled=True))
forms("twice a score, tuned", "times two", "f16", paged=True)
forms(
    "captures, tuned",
    "captures of all dimensions",
    "f16",
    Feature((2, 4, 4, 64, 64, 16, 16), options={"num_stages": 2}),
)
forms("precise products", "times two", "f32", Feature((2, 2, 2, 64, 64, 32, 32)))
forms("gradients of the log-sum-exp", "identity", "f64", Feature((2, 2, 2, 11, 11, 4, 4), compiled=True, result="aux"))
forms("gradients of the log-sum-exp, compiled", "identity", "f32", Feature((2, 2, 2, 64, 64, 16, 16), compiled=True))
forms(
    "a learned bias beside scaled_dot_product_attention",
    ("bias of sums", "bias of pairs", "bias of rows by two", "turned bias", "turned bias of heads"),
    "f16",
)


def _inputs(*shape: int, dtype: torch.dtype = F32, count: int = 3, seed: int = 0) -> Tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator, dtype=F64).to(dtype).requires_grad_() for _ in range(count))


def _agree(got: Callable, wanted: Callable, inputs: Tuple[torch.Tensor, ...]) -> None:
    """Results and gradients of two functions of the inputs; the second one is taken in float64,
    and in their own type for what an error may be."""
    weights = None
    found = []
    for function, dtype in ((got, None), (wanted, F64), (wanted, None)):
        leaves = [x.detach().to(dtype or x.dtype).requires_grad_() for x in inputs]
        result = function(*leaves)
        if weights is None:
            weights = torch.randn(result.shape, generator=torch.Generator().manual_seed(9))
        gradients = torch.autograd.grad((result * weights.to(result.dtype)).sum(), leaves, allow_unused=True)
        found.append([result, *(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, gradients))])
    for number, (a, exact, baseline) in enumerate(zip(*found)):
        check(f"result {number}", a, exact, [baseline], a.dtype)


def _sdpa(score: Optional[Callable] = None, mask: Optional[Callable] = None) -> Callable:
    """By PyTorch, of a bias and a mask of the places of a pair."""

    def call(q: Any, k: Any, v: Any) -> Any:
        i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
        bias = torch.zeros(q.shape[2], k.shape[2], dtype=q.dtype)
        if score is not None:
            bias = bias + score(i, j).to(q.dtype)
        if mask is not None:
            bias = bias.masked_fill(~mask(i, j), float("-inf"))
        return scaled_dot_product_attention(q, k, v, attn_mask=bias)

    return call


def _relative(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return s + (i - j)


def _causal_score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return torch.where(i >= j, s, -float("inf"))


def _chain(calls: Tuple[str, ...], attend: Callable) -> None:
    """Calls one behind the other: the result of each is the query of the next one."""
    q, *rest = _inputs(1, 2, 48, 16, count=1 + 2 * len(calls))
    own = {"relative": _relative, "causal": _causal_score}
    reference = {
        "relative": _sdpa(lambda i, j: i - j),
        "causal": _sdpa(mask=lambda i, j: i >= j),
    }

    def run(q: Any, *rest: Any, by: Callable) -> Any:
        for name, k, v in zip(calls, rest[::2], rest[1::2]):
            q = by(name, q, k, v)
        return q

    _agree(
        lambda *x: run(*x, by=lambda name, q, k, v: attend(q, k, v, own[name])),
        lambda *x: run(*x, by=lambda name, *qkv: reference[name](*qkv)),
        (q, *rest),
    )


def _in_pages(q: Any, k: Any, v: Any, score_mod: Callable) -> Any:
    from flex_forms import _paged

    blocks = create_block_mask(noop_mask, 1, 1, q.shape[2], k.shape[2], device="cpu", BLOCK_SIZE=16)
    caches = _paged(k, v, score_mod, blocks, 16)
    return flex_attention(q, caches[0], caches[1], score_mod=caches[2], block_mask=caches[3])


for _calls in (("relative", "causal"), ("relative", "causal", "relative")):
    _name = " and ".join(_calls)
    _add(
        f"calls in a row: {_name}", lambda c=_calls: _chain(c, lambda q, k, v, f: flex_attention(q, k, v, score_mod=f))
    )

    def _without_gradients(calls: Tuple[str, ...] = _calls) -> None:
        q, *rest = _inputs(1, 2, 48, 16, count=1 + 2 * len(calls))
        own = {"relative": _relative, "causal": _causal_score}
        with torch.no_grad():
            a = b = q
            for name, k, v in zip(calls, rest[::2], rest[1::2]):
                a = _in_pages(a, k, v, own[name])
                b = flex_attention(b, k, v, score_mod=own[name])
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-6)

    _add(f"calls in a row, in pages: {_name}", _without_gradients)


@form("two masks of one program")
def _() -> None:
    window = lambda b, h, i, j: (i >= j) & (i <= j + 8)
    masks = [create_block_mask(m, 1, None, 64, 64, device="cpu", BLOCK_SIZE=32) for m in (_causal, window)]
    f = torch.compile(
        lambda q, k, v: sum(flex_attention(q, k, v, block_mask=m) for m in masks), backend="aot_eager", fullgraph=True
    )
    wanted = [_sdpa(mask=lambda i, j: i >= j), _sdpa(mask=lambda i, j: (i >= j) & (i <= j + 8))]
    _agree(f, lambda *x: wanted[0](*x) + wanted[1](*x), _inputs(1, 4, 64, 16))


@form("a captured tensor that is computed")
def _() -> None:
    x = _inputs(48, count=1)[0].detach() * 2

    def own(q: Any, k: Any, v: Any) -> Any:
        rows = x * 2
        return flex_attention(q.sin(), k, v, score_mod=lambda s, b, h, i, j: s + rows[j]).cos()

    _agree(own, lambda q, k, v: _sdpa(lambda i, j: (x * 2)[j] + 0 * i)(q.sin(), k, v).cos(), _inputs(1, 4, 48, 16))


@form("a block mask that is compiled")
def _() -> None:
    made = [
        f(_causal, 1, 1, 96, 96, device="cpu", BLOCK_SIZE=32)
        for f in (create_block_mask, torch.compile(create_block_mask, backend="aot_eager"))
    ]
    for name in ("kv_num_blocks", "kv_indices", "q_num_blocks"):
        assert torch.equal(getattr(made[0], name), getattr(made[1], name))
    _agree(lambda *x: flex_attention(*x, block_mask=made[1]), _sdpa(mask=lambda i, j: i >= j), _inputs(1, 2, 96, 16))


@form("combined masks")
def _() -> None:
    near, after = (lambda b, h, i, j: i - j <= 20), (lambda b, h, i, j: i < j)
    blocks = lambda m: create_block_mask(m, 1, 1, 96, 96, device="cpu", BLOCK_SIZE=32)
    x = _inputs(1, 2, 96, 16)
    _agree(
        lambda *x: flex_attention(*x, block_mask=blocks(and_masks(_causal, near))),
        _sdpa(mask=lambda i, j: (i >= j) & (i - j <= 20)),
        x,
    )
    assert not flex_attention(*x, block_mask=blocks(and_masks(_causal, after))).any()
    _agree(lambda *x: flex_attention(*x, block_mask=blocks(or_masks(_causal, after))), _sdpa(), x)


@form("inputs of two types")
def _() -> None:
    q, k, v = _inputs(1, 1, 32, 16)
    with pytest.raises((ValueError, Error), match="float16"):
        flex_attention(q, k.half(), v.half())


@form("blocks that were written down")
def _() -> None:
    count = torch.arange(3, dtype=torch.int32) + 1
    places = torch.arange(3, dtype=torch.int32).expand(3, 3)
    own = BlockMask.from_kv_blocks(count[None, None], places[None, None].contiguous(), BLOCK_SIZE=32, mask_mod=_causal)
    _agree(lambda *x: flex_attention(*x, block_mask=own), _sdpa(mask=lambda i, j: i >= j), _inputs(1, 2, 96, 16))


@form("gradients of the log-sum-exp alone")
def _() -> None:
    own = lambda q, k, v: flex_attention(q, k, v, score_mod=_causal_score, return_lse=True)[1]

    def wanted(q: Any, k: Any, v: Any) -> Any:
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -float("inf")).logsumexp(-1)

    _agree(own, wanted, _inputs(2, 2, 33, 16))


@form("strides of a projection")
def _() -> None:
    x, w = _inputs(1, 48, 64, count=1)[0], _inputs(192, 64, count=1, seed=1)[0]

    def run(x: Any, w: Any, attend: Callable) -> Any:
        q, k, v = (y.reshape(1, 48, 4, 16).transpose(1, 2) for y in (x @ w.t()).split([64] * 3, dim=2))
        return attend(q, k, v)

    _agree(lambda *y: run(*y, flex_attention), lambda *y: run(*y, scaled_dot_product_attention), (x, w))


def _stride_order(how: str, order: Tuple[int, ...], shape: Tuple[int, ...]) -> None:
    q, k, v = (x.permute(order) for x in _inputs(*shape))
    if how == "in pages":
        with torch.no_grad():
            o = _in_pages(q, k, v, lambda s, b, h, i, j: s)
    else:
        call = (
            torch.compile(flex_attention, backend="aot_eager", fullgraph=True) if how == "compiled" else flex_attention
        )
        o = call(q, k, v)
    places = lambda x: sorted((n for n in range(4) if x.shape[n] > 1), key=lambda n: -x.stride(n))
    assert places(o) == places(q), (o.shape, o.stride(), q.stride())


for _how, _order, _shape in itertools.product(
    ("plain", "compiled", "in pages"),
    ((0, 1, 2, 3), (1, 0, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3)),
    ((2, 1, 32, 16), (4, 2, 16, 16)),
):
    _add(f"strides of the result: {_how}, {_order}, {_shape}", lambda a=(_how, _order, _shape): _stride_order(*a))


@form("causal by a score, by both, by a mask")
def _() -> None:
    blocks = create_block_mask(_causal, 1, 1, 64, 64, device="cpu", BLOCK_SIZE=32)
    for options in (
        {"score_mod": _causal_score},
        {"score_mod": _causal_score, "block_mask": blocks},
        {"block_mask": blocks},
    ):
        _agree(
            lambda *x: flex_attention(*x, **options), _sdpa(mask=lambda i, j: i >= j), _inputs(2, 2, 64, 32, dtype=F16)
        )


def _merged(backend: Optional[str], length: int) -> None:
    """Two parts of the keys, weighted by their log-sum-exps."""
    near = lambda b, h, i, j: (i >= j) & (i - j <= 16)
    far = lambda b, h, i, j: (i >= j) & (i - j > 16)
    masks = [create_block_mask(m, None, None, length, length, device="cpu", BLOCK_SIZE=32) for m in (near, far)]
    call = flex_attention if backend is None else torch.compile(flex_attention, backend=backend, fullgraph=True)

    def own(q: Any, k: Any, v: Any) -> Any:
        (a, x), (b, y) = (call(q, k, v, block_mask=m, return_lse=True) for m in masks)
        most = torch.maximum(x, y)
        x, y = (torch.exp(z - most)[..., None] for z in (x, y))
        return (a * x + b * y) / (x + y)

    _agree(own, _sdpa(mask=lambda i, j: i >= j), _inputs(2, 2, length, 16))


for _backend, _length in (("aot_eager", 96), ("aot_eager", 196), (None, 196)):
    _add(f"parts of the keys: {_backend}, {_length}", lambda a=(_backend, _length): _merged(*a))


@form("inputs of two devices")
def _() -> None:
    q, k, v = _inputs(1, 1, 32, 16)
    with pytest.raises((ValueError, Error), match="meta"):
        flex_attention(q, k.to("meta"), v)


@form("a capture of another device")
def _() -> None:
    q, k, v = _inputs(1, 1, 32, 16)
    rows = torch.randn(32, device="meta")
    with pytest.raises((RuntimeError, Error), match="meta"):
        flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + rows[i])


@form("a row that is too long")
def _() -> None:
    x, rows = _inputs(1, 1, 32, 16), torch.randn(32, 300)
    with pytest.raises(Error, match="a row of at most 256 elements, got 300"):
        flex_attention(*x, score_mod=lambda s, b, h, i, j: s + (rows[i] - rows[j]).pow(2).sum(-1))


@form("blocks of an odd size")
def _() -> None:
    """PyTorch refuses them."""
    blocks = create_block_mask(_causal, 1, 2, 96, 96, device="cpu", BLOCK_SIZE=24)
    _agree(lambda *x: flex_attention(*x, block_mask=blocks), _sdpa(mask=lambda i, j: i >= j), _inputs(1, 2, 96, 16))


# Learnable biases.

LEARNED: Dict[str, Callable[[], None]] = {}


def _learned() -> Iterator[Tuple[str, str, Feature, str]]:
    names = {
        "bias of distances": 2, "bias of pairs": 1, "bias of heads": 1, "bias of all": 1, "factor of queries": 1,
        "window bias": 1, "bias of keys": 1, "captured index of a learned bias": 1, "indirect bias": 1,
        "one tensor twice": 2, "turned bias": 1, "gate of a head": 2, "two tensors": 1, "learned scalar": 1,
        "head factor": 1, "buckets of distances": 1, "learned slopes": 1,
    }  # fmt: skip
    for (name, modes), length, dtype in itertools.product(names.items(), (37, 64, 69), ALL.split()):
        for mode in range(modes):
            yield (
                name,
                f"{length}{', compiled' * mode}",
                Feature((2, 4, 4, length, length, 16, 16), compiled=bool(mode)),
                dtype,
            )


for _name, _which, _feature, _dtype in _learned():
    LEARNED[f"learned: {_name}, {_which}, {_dtype}"] = lambda a=(_name, (_feature,), KINDS[_dtype]): _compare(*a)


@dataclasses.dataclass
class Verdict:
    what: str  # right, refused or wrong
    why: str = ""


def judge(check: Callable[[], None]) -> Verdict:
    torch._dynamo.reset()
    try:
        check()
    except (Error, NotImplementedError) as error:
        return Verdict("refused", str(error).splitlines()[0])
    except Exception as error:  # noqa: BLE001
        text = f"{type(error).__name__}: {error}"
        refused = isinstance(error.__cause__, Error) or "TraceError" in text
        return Verdict("refused" if refused else "wrong", (text.splitlines() or [""])[0])
    return Verdict("right")


if __name__ == "__main__":
    import collections
    import sys
    import time

    torch.set_num_threads(1)
    counts: Dict[str, collections.Counter] = {"class": collections.Counter(), "learned": collections.Counter()}
    for kind, found in (("class", FORMS), ("learned", LEARNED)):
        for name, test in found.items():
            start, verdict = time.time(), judge(test)
            counts[kind][verdict.what] += 1
            print(f"{verdict.what}\t{kind}\t{name}\t{time.time() - start:.1f}\t{verdict.why}", flush=True)
    print(counts, file=sys.stderr)
