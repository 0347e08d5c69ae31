# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of scores and masks as users of FlexAttention write them: those of its documentation,
of its tests and of collections of examples, and one for each function of PyTorch that a score may
meet. Each has a name, captures, and a maker that gets the captures."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import and_masks, or_masks

INF = float("inf")
HALVES = (torch.bfloat16, torch.float16)


@dataclass
class Sizes:
    """What captures are made for."""

    b: int
    h: int
    s: int
    t: int
    dtype: torch.dtype
    generator: torch.Generator

    def normal(self, *shape: int) -> torch.Tensor:
        """In the type of the inputs; it has a gradient."""
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(self.dtype)

    def scores(self, *shape: int) -> torch.Tensor:
        """In the type of scores; it has a gradient."""
        return self.of(torch.float64 if self.dtype == torch.float64 else torch.float32, *shape)

    def of(self, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(dtype)

    def integers(self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=self.generator).to(dtype)

    def documents(self, length: int) -> torch.Tensor:
        """The document of each place; the first ones are short."""
        return (torch.arange(length) / 7).sqrt().to(torch.int32)


Make = Callable[[Sizes], Dict[str, torch.Tensor]]


@dataclass
class Function:
    name: str
    make: Callable[..., Callable]  # of the captures, by their names
    captures: Make
    is_mask: bool = False
    # It reads sizes besides: `make` gets them, too.
    of_sizes: bool = False
    # Types of inputs that it is not defined for.
    without: Tuple[torch.dtype, ...] = ()  # or that it leaves for a coarser one
    # PyTorch's compiler cannot read it: there indices have one element.
    eager_only: bool = False
    # What the message says where it is refused as expected.
    refused: Optional[str] = None


FUNCTIONS: Dict[str, Function] = {}


def _add(name: str, make: Callable, is_mask: bool, captures: Make, options: Dict[str, Any]) -> None:
    assert name not in FUNCTIONS, name
    FUNCTIONS[name] = Function(name, make, captures, is_mask, **options)


def score(name: str, make: Callable, captures: Make = lambda z: {}, **options: Any) -> None:
    _add(name, make, False, captures, options)


def mask(name: str, make: Callable, captures: Make = lambda z: {}, **options: Any) -> None:
    _add(name, make, True, captures, options)


# Those that PyTorch's tests use most.

score("identity", lambda: lambda s, b, h, i, j: s)
score("times two", lambda: lambda s, b, h, i, j: s * 2)
score("squared", lambda: lambda s, b, h, i, j: s * s)
score("causal", lambda: lambda s, b, h, i, j: torch.where(i >= j, s, -INF))
score("inverse causal", lambda: lambda s, b, h, i, j: torch.where(i <= j, s, -INF))
score("relative", lambda: lambda s, b, h, i, j: s + (i - j))
score("relative causal", lambda: lambda s, b, h, i, j: torch.where(i >= j, s + (i - j), -INF))
score("alibi", lambda: lambda s, b, h, i, j: s + (j - i) * torch.exp2(-((h + 1) * 8.0 / 4)))
score("sine of cosine", lambda: lambda s, b, h, i, j: torch.sin(torch.cos(s)) + torch.tan(b))


def _two_branches():
    def score_mod(s, b, h, i, j):
        cosine, sine = torch.cos(s), torch.sin(s)
        return cosine * sine + torch.tan(b)

    return score_mod


score("sine and cosine", _two_branches)
score("even keys", lambda: lambda s, b, h, i, j: torch.where(j % 2 == 0, s, -INF))
score("floor division", lambda: lambda s, b, h, i, j: s - i // (1 + j))
score("silu", lambda: lambda s, b, h, i, j: F.silu(s))
score("batch number", lambda z: lambda s, b, h, i, j: s + z.b, of_sizes=True)


def _composed():
    def first(s, b, h, i, j):
        return s + (i - j)

    def second(s, b, h, i, j):
        return torch.where(i <= j, s, -INF)

    return lambda s, b, h, i, j: second(first(s, b, h, i, j), b, h, i, j)


score("composition", _composed)


def _neighbours(divide):
    def place(index):
        return divide(index, 8), index % 8

    def score_mod(s, b, h, i, j):
        (x, y), (u, v) = place(i), place(j)
        return torch.where(((x - u).abs() <= 3) | ((y - v).abs() <= 3), s, -INF)

    return score_mod


score("neighbours, quotients", lambda: _neighbours(lambda a, b: a / b))
score("neighbours", lambda: _neighbours(lambda a, b: a // b))

# Captured tensors.

score("head factor", lambda scale: lambda s, b, h, i, j: s * scale[h], lambda z: {"scale": z.normal(z.h)})
score(
    "captures of all dimensions",
    lambda tokens, batches, heads: lambda s, b, h, i, j: s + tokens[i] + batches[b] + heads[h],
    lambda z: {"tokens": z.scores(z.s), "batches": z.scores(z.b), "heads": z.scores(z.h)},
)
score(
    "bf16 captures",
    lambda rows, columns: lambda s, b, h, i, j: s + rows[i] + columns[j],
    lambda z: {"rows": z.of(torch.bfloat16, z.s), "columns": z.of(torch.bfloat16, z.t)},
)
score(
    "f16 factor",
    lambda rows: lambda s, b, h, i, j: s * rows[i],
    lambda z: {"rows": z.of(torch.float16, z.s)},
)
score(
    "two indexings",
    lambda bias: lambda s, b, h, i, j: s + bias[b][i],
    lambda z: {"bias": z.scores(z.b, z.s)},
)
score(
    "constant, two, one",
    lambda bias: lambda s, b, h, i, j: s + bias[0][b, h][i],
    lambda z: {"bias": z.scores(4, z.b, z.h, z.s)},
)
score(
    "captured index",
    lambda bias, which: lambda s, b, h, i, j: s + bias[b][h][which, i],
    lambda z: {"bias": z.scores(z.b, z.h, 4, z.s), "which": torch.tensor(0)},
)
score(
    "captured 0 in bf16",
    lambda scale: lambda s, b, h, i, j: s + scale,
    lambda z: {"scale": z.of(torch.bfloat16)},
)
score(
    "captured integer",
    lambda scale: lambda s, b, h, i, j: s + scale,
    lambda z: {"scale": torch.tensor(3, dtype=torch.int32)},
)
score(
    "captured factor",
    lambda scale: lambda s, b, h, i, j: s * scale,
    lambda z: {"scale": torch.tensor(2, dtype=torch.int32)},
)


def _changed(flag):
    def make(scale):
        return lambda s, b, h, i, j: s + scale if flag else s * scale

    return make


score("a flag that is set", _changed(True), lambda z: {"scale": torch.ones((), dtype=torch.int32)})
score("a flag that is not", _changed(False), lambda z: {"scale": torch.ones((), dtype=torch.int32)})
score(
    "documents by scores",
    lambda rows, columns: lambda s, b, h, i, j: torch.where((i >= j) & (rows[i] == columns[j]), s, -INF),
    lambda z: {"rows": z.documents(z.s), "columns": z.documents(z.t)},
)
score(
    "halves of a sequence",
    lambda rows, columns: lambda s, b, h, i, j: torch.where(rows[i] == columns[j], s, -INF),
    lambda z: {"rows": torch.arange(z.s) * 2 >= z.s, "columns": torch.arange(z.t) * 2 >= z.t},
)
score(
    "bidirectional start",
    lambda count: lambda s, b, h, i, j: torch.where(((i <= count[b]) & (j <= count[b])) | (i >= j), s, -INF),
    lambda z: {"count": z.integers(0, min(z.s, z.t), z.b)},
)
score(
    "scores below a length",
    lambda length: lambda s, b, h, i, j: torch.where(s <= length[b], torch.where(i >= j, s, -INF), -INF),
    lambda z: {"length": torch.arange(z.b, dtype=torch.int32) + 1},
)


def _nested(offsets, rows, columns):
    def causal(s, b, h, i, j):
        return torch.where(i >= j, s, -INF)

    return lambda s, b, h, i, j: causal(s, b, h, i - offsets[rows[i]], j - offsets[columns[j]])


score(
    "jagged causal",
    _nested,
    lambda z: {
        "offsets": torch.tensor([0, 10, 25], dtype=torch.int32),
        "rows": torch.bucketize(torch.arange(z.s), torch.tensor([10, 25]), right=True).int(),
        "columns": torch.bucketize(torch.arange(z.t), torch.tensor([10, 25]), right=True).int(),
    },
)
score(
    "mask as a number",
    lambda keep: lambda s, b, h, i, j: s + keep[b, h.new_zeros(h.shape), i, j],
    lambda z: {"keep": torch.ones(z.b, 1, z.s, z.t, dtype=torch.bool).tril()},
)


class _KeepRight(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a, keep):
        return torch.where(keep, a, -INF)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(inputs[1])

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


score(
    "an autograd function",
    lambda: lambda s, b, h, i, j: _KeepRight.apply(s, i <= j),
    refused="cannot trace",
    eager_only=True,
)


def _distance(places, others, lengths):
    def score_mod(s, b, h, i, j):
        distance = (places[i] - others[j]).pow(2).sum(-1).sqrt()
        return torch.exp(-distance / lengths[h]) * s

    return score_mod


score(
    "distances of points",
    _distance,
    lambda z: {
        "places": z.scores(z.s, 3),
        "others": z.scores(z.t, 3),
        "lengths": torch.logspace(0.001, 0.1, z.h, dtype=torch.float64).to(z.scores().dtype),
    },
)
score(
    "sum of a row",
    lambda scale: lambda s, b, h, i, j: s + scale[b].sum(dim=-1),
    lambda z: {"scale": z.scores(z.b, 8)},
)
score(
    "products of rows",
    lambda a, c: lambda s, b, h, i, j: s + torch.dot(a[b, h, i], c[b, j]),
    lambda z: {"a": z.normal(z.b, z.h, z.s, 4), "c": z.normal(z.b, z.t, 4)},
    eager_only=True,
)
score(
    "sums of products of rows",
    lambda a, c: lambda s, b, h, i, j: s + (a[b, h, i] * c[b, j]).sum() * 0.25,
    lambda z: {"a": z.normal(z.b, z.h, z.s, 4), "c": z.normal(z.b, z.t, 4)},
)

# Learned tensors.

score("bias of pairs", lambda bias: lambda s, b, h, i, j: s + bias[i, j], lambda z: {"bias": z.normal(z.s, z.t)})
score(
    "bias of batches", lambda bias: lambda s, b, h, i, j: s + bias[b, i, j], lambda z: {"bias": z.normal(z.b, z.s, z.t)}
)
score(
    "bias of heads", lambda bias: lambda s, b, h, i, j: s + bias[h, i, j], lambda z: {"bias": z.normal(z.h, z.s, z.t)}
)
score(
    "bias of all",
    lambda bias: lambda s, b, h, i, j: s + bias[b, h, i, j],
    lambda z: {"bias": z.normal(z.b, z.h, z.s, z.t)},
)
score("bias of a head", lambda bias: lambda s, b, h, i, j: s + bias[h], lambda z: {"bias": z.normal(z.h)})
score(
    "relative bias",
    lambda z, bias: lambda s, b, h, i, j: s + bias[(i - j) + z.t],
    lambda z: {"bias": z.normal(z.s + z.t)},
    of_sizes=True,
)
score(
    "bias of distances",
    lambda bias: lambda s, b, h, i, j: s + bias[torch.abs(i - j)],
    lambda z: {"bias": z.normal(z.s + z.t)},
)
score("bias of sums", lambda bias: lambda s, b, h, i, j: s + bias[i + j], lambda z: {"bias": z.normal(z.s + z.t)})
score(
    "bias of rows by two",
    lambda bias: lambda s, b, h, i, j: s + bias[i][j],
    lambda z: {"bias": z.normal(z.s, z.t)},
)
score("turned bias", lambda bias: lambda s, b, h, i, j: s + bias[j, i], lambda z: {"bias": z.normal(z.t, z.s)})
score(
    "turned bias of heads",
    lambda bias: lambda s, b, h, i, j: s + bias[h, j, i],
    lambda z: {"bias": z.normal(z.h, z.t, z.s)},
)
score("factor of queries", lambda bias: lambda s, b, h, i, j: s * bias[i], lambda z: {"bias": z.normal(z.s)})
score("bias of keys", lambda bias: lambda s, b, h, i, j: s + bias[j], lambda z: {"bias": z.normal(z.t)})
score(
    "window bias",
    lambda bias: lambda s, b, h, i, j: s + bias[torch.clamp(i - j + 8, 0, 16)],
    lambda z: {"bias": z.normal(17)},
)
score(
    "captured index of a learned bias",
    lambda bias, which: lambda s, b, h, i, j: s + bias[b, h, which, i],
    lambda z: {"bias": z.normal(z.b, z.h, 4, z.s), "which": torch.tensor(0)},
)
score(
    "indirect bias",
    lambda bias, place: lambda s, b, h, i, j: s + bias[place[i]],
    lambda z: {"bias": z.normal(z.s), "place": z.integers(0, z.s, z.s, dtype=torch.int64)},
)
score(
    "indirect row",
    lambda bias, place: lambda s, b, h, i, j: s + bias[place[i], j],
    lambda z: {"bias": z.normal(9, z.t), "place": z.integers(0, 9, z.s)},
)
score(
    "one tensor twice",
    lambda bias: lambda s, b, h, i, j: s + bias[i] + bias[j],
    lambda z: {"bias": z.normal(max(z.s, z.t))},
)
score(
    "two tensors",
    lambda rows, columns: lambda s, b, h, i, j: s + rows[i] + columns[j],
    lambda z: {"rows": z.normal(z.s), "columns": z.normal(z.t)},
)
score(
    "gate of a head",
    lambda gate: lambda s, b, h, i, j: s * torch.sigmoid(gate[h].to(torch.float32)),
    lambda z: {"gate": z.normal(z.h)},
    without=(torch.float64,),
)
score("learned scalar", lambda x: lambda s, b, h, i, j: s + x, lambda z: {"x": z.normal()})
score("learned temperature", lambda x: lambda s, b, h, i, j: s * x.exp(), lambda z: {"x": z.normal()})
score(
    "learned slopes",
    lambda slope: lambda s, b, h, i, j: s + slope[h] * (j - i) / 16,
    lambda z: {"slope": z.normal(z.h)},
)
score(
    "learned cap",
    lambda cap: lambda s, b, h, i, j: torch.tanh(s / cap[h]) * cap[h],
    lambda z: {"cap": z.normal(z.h).abs() + 1},
)
score(
    "learned gates of keys",
    lambda gate: lambda s, b, h, i, j: s + F.logsigmoid(gate[b, h, j]),
    lambda z: {"gate": z.normal(z.b, z.h, z.t)},
)
score(
    "forgetting",
    lambda rows, columns: lambda s, b, h, i, j: s + (rows[b, h, i] - columns[b, h, j]),
    lambda z: {"rows": z.normal(z.b, z.h, z.s), "columns": z.normal(z.b, z.h, z.t)},
)
score(
    "outer product",
    lambda rows, columns: lambda s, b, h, i, j: s + rows[h, i] * columns[h, j],
    lambda z: {"rows": z.normal(z.h, z.s), "columns": z.normal(z.h, z.t)},
)


def _buckets(table):
    def score_mod(s, b, h, i, j):
        distance = (i - j).clamp(min=0)
        far = 8 + (torch.log((distance + 0.01) / 8) / math.log(16) * 8).int()
        return s + table[h, torch.where(distance < 8, distance, far.clamp(8, 15))]

    return score_mod


score("buckets of distances", _buckets, lambda z: {"table": z.normal(z.h, 16)})
score(
    "graph distances",
    lambda table, far: lambda s, b, h, i, j: s + table[h, far[b, i, j]],
    lambda z: {"table": z.normal(z.h, 6), "far": z.integers(0, 6, z.b, z.s, z.t)},
)
score(
    "bias of pairs of types",
    lambda table, kind, other: lambda s, b, h, i, j: s + table[kind[b, i], other[b, j]],
    lambda z: {"table": z.normal(5, 5), "kind": z.integers(0, 5, z.b, z.s), "other": z.integers(0, 5, z.b, z.t)},
)
score(
    "bias of heads by two",
    lambda bias: lambda s, b, h, i, j: s + bias[h // 2, i, j],
    lambda z: {"bias": z.normal((z.h + 1) // 2, z.s, z.t)},
)
score(
    "shifted bias",
    lambda bias: lambda s, b, h, i, j: s + bias[i + 1, j],
    lambda z: {"bias": z.normal(z.s + 1, z.t)},
)
score(
    "bias of rows of keys",
    lambda rows: lambda s, b, h, i, j: s + rows[h, i, j // 8],
    lambda z: {"rows": z.normal(z.h, z.s, (z.t + 7) // 8)},
)
score(
    "rows of a view",
    lambda rows: lambda s, b, h, i, j: s + rows[b, h, i, j // 8],
    lambda z: {"rows": z.normal(z.b, z.h, z.s, (z.t + 7) // 8)},
)
score(
    "bias of blocks",
    lambda bias: lambda s, b, h, i, j: s + bias[i // 8, j // 8],
    lambda z: {"bias": z.normal((z.s + 7) // 8, (z.t + 7) // 8)},
)
score(
    "bias of places in blocks",
    lambda bias: lambda s, b, h, i, j: s + bias[i % 8, j % 8],
    lambda z: {"bias": z.normal(8, 8)},
)
score(
    "bias of two distances",
    lambda x, y: lambda s, b, h, i, j: s + x[(i // 8 - j // 8).clamp(-4, 4) + 4] + y[i % 8 - j % 8 + 7],
    lambda z: {"x": z.normal(9), "y": z.normal(15)},
)
score(
    "bias counted from the end",
    lambda bias: lambda s, b, h, i, j: s + bias[-1 - i],
    lambda z: {"bias": z.normal(z.s)},
)
score(
    "bias where causal",
    lambda bias: lambda s, b, h, i, j: torch.where(i >= j, s + bias[h, i, j], -INF),
    lambda z: {"bias": z.normal(z.h, z.s, z.t)},
)
score(
    "exponent",
    lambda power: lambda s, b, h, i, j: (s.abs() + 0.5) ** power[h],
    lambda z: {"power": z.normal(z.h)},
)
score(
    "mixture",
    lambda bias, gate: lambda s, b, h, i, j: torch.lerp(s, bias[i, j], torch.sigmoid(gate[h])),
    lambda z: {"bias": z.normal(z.s, z.t), "gate": z.normal(z.h)},
    without=HALVES,
)

# Of collections of examples.

score("soft cap", lambda: lambda s, b, h, i, j: 20 * torch.tanh(s / 20))
score("soft cap and causal", lambda: lambda s, b, h, i, j: torch.where(i >= j, 5 * torch.tanh(s / 5), -INF))
score(
    "alibi slopes",
    lambda slope: lambda s, b, h, i, j: s + slope[h] * (j - i),
    lambda z: {"slope": torch.exp2(-torch.arange(1, z.h + 1) * 8.0 / z.h)},
)
score("log of an activation", lambda: lambda s, b, h, i, j: torch.log(F.relu(s) + 4.0))
score("log of a square", lambda: lambda s, b, h, i, j: torch.log(torch.square(s) + 1))
score(
    "sandwich",
    lambda z, bias, scale: lambda s, b, h, i, j: s + bias[i - j + (z.t - 1)] * scale[h],
    lambda z: {
        "bias": torch.cos(
            torch.arange(1 - z.t, z.s).abs()[:, None] * torch.tensor([1, 0.1, 0.01], dtype=z.scores().dtype)
        ).sum(-1),
        "scale": z.h / (8.0 * torch.arange(1, z.h + 1, dtype=z.scores().dtype)),
    },
    of_sizes=True,
)
score(
    "log distance",
    lambda: lambda s, b, h, i, j: s - torch.log1p((i - j).abs().float()),
    without=(torch.float64,),
)
score("length scaling", lambda: lambda s, b, h, i, j: s * torch.log(i + 2), without=(torch.float64,))
score("decay of a head", lambda: lambda s, b, h, i, j: s + (j - i) * torch.log1p(-torch.exp2(-5.0 - h)))
score("sigmoid weights", lambda: lambda s, b, h, i, j: F.logsigmoid(s - 2))
score("window by scores", lambda: lambda s, b, h, i, j: torch.where((i - j).abs() <= 5, s, -INF))
score("masked_fill", lambda: lambda s, b, h, i, j: s.masked_fill(i < j, -INF))
score("a very large number", lambda: lambda s, b, h, i, j: torch.where(i >= j, s, -1e9))
score("scale by the head", lambda: lambda s, b, h, i, j: s / (h + 1))
score("sign of the place", lambda: lambda s, b, h, i, j: s * torch.where((i + j) % 2 == 0, 1.0, -1.0))


# Masks.


def _causal(b, h, i, j):
    return i >= j


def _prefix(length):
    return or_masks(lambda b, h, i, j: j < length, _causal)


mask("causal mask", lambda: _causal)
mask("inverse causal mask", lambda: lambda b, h, i, j: i <= j)
mask("nothing masked", lambda: lambda b, h, i, j: j >= 0)
mask("window mask", lambda: lambda b, h, i, j: (i >= j) & (i - j <= 16))
mask("window on both sides", lambda: lambda b, h, i, j: (i - j).abs() <= 7)
mask("dilated window", lambda: lambda b, h, i, j: ((i - j).abs() <= 12) & ((i - j).abs() % 3 == 0))
mask("prefix", lambda: _prefix(11))
mask("combined masks", lambda: and_masks(_causal, lambda b, h, i, j: i - j <= 32))
mask("no pair", lambda: and_masks(_causal, lambda b, h, i, j: i < j))
mask("first queries", lambda: lambda b, h, i, j: i < 20)
mask("far keys", lambda: lambda b, h, i, j: (i >= j) & (i - j > 16))
mask("two ranges", lambda: lambda b, h, i, j: (j < 16) | (j >= 40))
mask("even batches", lambda: lambda b, h, i, j: (i >= j) & (b % 2 == 0))
mask("windows of heads", lambda: lambda b, h, i, j: (i >= j) & (i - j < 4 << h))
mask(
    "documents",
    lambda rows, columns: lambda b, h, i, j: (rows[i] == columns[j]) & (i >= j),
    lambda z: {"rows": z.documents(z.s), "columns": z.documents(z.t)},
)
mask(
    "documents of batches",
    lambda rows, columns: lambda b, h, i, j: rows[b, i] == columns[b, j],
    lambda z: {
        "rows": torch.stack([z.documents(z.s) // (n + 1) for n in range(z.b)]),
        "columns": torch.stack([z.documents(z.t) // (n + 1) for n in range(z.b)]),
    },
)


def _inside_documents(rows, columns, starts):
    def inner(b, h, i, j):
        return (i - j).abs() <= 6

    def mask_mod(b, h, i, j):
        same = rows[i] == columns[j]
        return same & inner(b, h, i - starts[rows[i]], j - starts[columns[j]])

    return mask_mod


mask(
    "mask inside documents",
    _inside_documents,
    lambda z: {
        "rows": z.documents(z.s),
        "columns": z.documents(z.t),
        "starts": torch.searchsorted(
            z.documents(max(z.s, z.t)), torch.arange(int(z.documents(max(z.s, z.t)).max()) + 1)
        ).int(),
    },
)
mask(
    "starts of documents",
    lambda rows, starts: lambda b, h, i, j: (j >= starts[rows[i]]) & (i >= j),
    lambda z: {
        "rows": z.documents(z.s),
        "starts": torch.searchsorted(z.documents(z.s), torch.arange(int(z.documents(z.s).max()) + 1)).int(),
    },
)
mask(
    "global tokens",
    lambda rows, columns: or_masks(lambda b, h, i, j: (i - j).abs() <= 3, lambda b, h, i, j: rows[i] | columns[j]),
    lambda z: {"rows": torch.arange(z.s) % 16 == 0, "columns": torch.arange(z.t) % 16 == 0},
)
mask(
    "padding",
    lambda length: functools.partial(lambda b, h, i, j, length: (i < length[b]) & (j < length[b]), length=length),
    lambda z: {"length": z.integers(1, z.t, z.b, dtype=torch.int64)},
)
mask("padded keys", lambda length: lambda b, h, i, j: j < length[b], lambda z: {"length": z.integers(1, z.t, z.b)})
mask(
    "masked queries", lambda drop: lambda b, h, i, j: ~drop[b, i], lambda z: {"drop": z.integers(0, 2, z.b, z.s).bool()}
)
mask(
    "dense mask",
    lambda keep: lambda b, h, i, j: keep[b, h, i, j],
    lambda z: {"keep": z.integers(0, 2, z.b, z.h, z.s, z.t).bool()},
)
mask(
    "dense mask of no head",
    lambda keep: lambda b, h, i, j: keep[b, h.new_zeros(h.shape), i, j],
    lambda z: {"keep": torch.ones(z.b, 1, z.s, z.t, dtype=torch.bool).tril()},
)
mask(
    "offsets",
    lambda offset: lambda b, h, i, j: (i + offset[b] * 4) >= j,
    lambda z: {"offset": torch.arange(z.b, dtype=torch.float32)},
)
mask(
    "offset of decoding",
    lambda offset: lambda b, h, i, j: i + offset >= j,
    lambda z: {"offset": torch.tensor(z.t // 2)},
)
mask(
    "compare with a captured float",
    lambda width: lambda b, h, i, j: (i - j).abs() < width,
    lambda z: {"width": torch.tensor(7.5)},
)


def _natten(width, height, size):
    half = size // 2

    def mask_mod(b, h, i, j):
        x, y, u, v = i // width, i % width, j // width, j % width
        x, y = x.clamp(half, height - 1 - half), y.clamp(half, width - 1 - half)
        return ((x - u).abs() <= half) & ((y - v).abs() <= half)

    return mask_mod


mask("natten", lambda: _natten(8, 10, 5))


def _tiled_natten(width, height, tile, size):
    half = size // 2

    def place(index):
        number, inside = index // (tile * tile), index % (tile * tile)
        return (
            number % (width // tile) * tile + inside % tile,
            number // (width // tile) * tile + inside // tile,
        )

    def mask_mod(b, h, i, j):
        (x, y), (u, v) = place(i), place(j)
        x, y = x.clamp(half, width - 1 - half), y.clamp(half, height - 1 - half)
        return ((x - u).abs() <= half) & ((y - v).abs() <= half)

    return mask_mod


mask("tiled natten", lambda: _tiled_natten(8, 12, 4, 5))


def _sliding_tiles(tiles, size, image):
    left, right = size // 2, size // 2 + size % 2 - 1

    def mask_mod(b, h, i, j):
        x, y, u, v = (i // 8) // tiles, (i // 8) % tiles, (j // 8) // tiles, (j // 8) % tiles
        x, y = x.clamp(left, tiles - 1 - right), y.clamp(left, tiles - 1 - right)
        near = (u >= x - left) & (u <= x + right) & (v >= y - left) & (v <= y + right)
        inside = (i < image) & (j < image)
        return (inside & near) | ((i < image) & (j >= image)) | (i >= image)

    return mask_mod


mask("sliding tiles", lambda: _sliding_tiles(3, 3, 72))


def _spatial(prompt, frame):
    def mask_mod(b, h, i, j):
        return (j < prompt) | (i < prompt) | (torch.abs(i - j) < math.floor(1.5 * frame / 4) * 4)

    return mask_mod


mask("spatial", lambda: _spatial(5, 12))
mask("temporal", lambda: lambda b, h, i, j: (i < 5) | (j < 5) | (torch.abs((i - 5) % 12 - (j - 5) % 12) < 2))


def _diffusion(length, size):
    def mask_mod(b, h, i, j):
        i_noise, j_noise = i < length, j < length
        x, y = (i % length) // size, (j % length) // size
        return ((x == y) & (i_noise == j_noise)) | ((x > y) & i_noise & ~j_noise) | ((x >= y) & ~i_noise & ~j_noise)

    return mask_mod


mask("block diffusion", lambda: _diffusion(36, 4))
mask("sequences in a row", lambda: lambda b, h, i, j: (i // 16 == j // 16) & (i % 16 >= j % 16))
mask("causal blocks", lambda: lambda b, h, i, j: i // 8 >= j // 8)
mask(
    "images in text",
    lambda image, ranges: lambda b, h, i, j: (i >= ranges[image[j]][0]) & (i < ranges[image[j]][1]),
    lambda z: {
        "image": (torch.arange(z.t) * 3 // z.t).int(),
        "ranges": torch.tensor([[0, z.s], [z.s // 3, z.s], [z.s // 2, z.s]], dtype=torch.int32),
    },
    eager_only=True,
)


def _tree(parent):
    def mask_mod(b, h, i, j):
        node = (j - 16).clamp(min=0, max=parent.shape[1] - 1)
        return (j < 16) | ((j < 16 + parent.shape[1]) & parent[i, node])

    return mask_mod


mask("tree", _tree, lambda z: {"parent": torch.eye(z.s, 12, dtype=torch.bool) | (z.integers(0, 2, z.s, 12) > 0)})
mask(
    "shared prefix",
    lambda rows, starts, prefix: (
        lambda b, h, i, j: (
            ((j >= starts[rows[i]]) & (i >= j)) | ((j >= starts[prefix[rows[i]]]) & (j < starts[prefix[rows[i]] + 1]))
        )
    ),
    lambda z: {
        "rows": (torch.arange(z.s) * 4 // z.s).int(),
        "starts": torch.tensor([z.s * n // 4 for n in range(5)], dtype=torch.int32),
        "prefix": torch.tensor([0, 0, 0, 2], dtype=torch.int32),
    },
)
mask(
    "a tensor of blocks",
    lambda keep: lambda b, h, i, j: keep[i // 16, j // 16],
    lambda z: {"keep": z.integers(0, 2, z.s // 16 + 1, z.t // 16 + 1).bool()},
)
mask(
    "bits",
    lambda bits: lambda b, h, i, j: (bits[i] >> (j % 8)) & 1 == 1,
    lambda z: {"bits": z.integers(0, 256, z.s, dtype=torch.uint8)},
)

# Functions of PyTorch, each on scores for which it is defined.


def _each(names: str, argument: Callable = lambda s: s, **options: Any) -> None:
    for name in names.split():
        function = getattr(torch, name)
        score(name, lambda f=function, a=argument: lambda s, b, h, i, j: f(a(s)), **options)


_each("exp exp2 expm1 sin cos sinh cosh tanh atan erf erfc asinh sigmoid abs neg square sign relu")
_each("log log2 log10 log1p sqrt rsqrt reciprocal", lambda s: s.abs() + 0.5)
_each("lgamma digamma", lambda s: s.abs() + 0.5, refused="cannot trace")
_each("acosh", lambda s: s.abs() + 1.5)
_each("tan", lambda s: torch.tanh(s))
_each("asin acos atanh", lambda s: torch.sin(s) * 0.9)
_each("erfinv", lambda s: torch.sin(s) * 0.9, refused="cannot trace")
_each("logit", lambda s: torch.sigmoid(s / 2))
_each("nan_to_num deg2rad")
_each("rad2deg", lambda s: s / 16)
# Both PyTorch's derivative and the one here lose digits near 0.
_each("sinc", lambda s: s.abs() + 0.5)
_each("i0", refused="cannot trace")
score("isfinite", lambda: lambda s, b, h, i, j: torch.where(torch.isfinite(s) & ~torch.isnan(s), s, 0.0))
_each("floor ceil round trunc frac", lambda s: s * 4)


def _activations(names: str, **options: Any) -> None:
    for name in names.split():
        function = getattr(F, name)
        score(f"F.{name}", lambda f=function: lambda s, b, h, i, j: f(s), **options)


_activations("gelu softplus leaky_relu elu selu celu logsigmoid hardswish mish softsign hardtanh relu6")
# PyTorch's derivative of it in float64 has the digits of float32.
_activations("hardsigmoid", without=(torch.float64,))
_activations("tanhshrink softshrink hardshrink relu")
score("gelu by tanh", lambda: lambda s, b, h, i, j: F.gelu(s, approximate="tanh"))
score("threshold", lambda: lambda s, b, h, i, j: F.threshold(s, 0.1, -2.0))

score("clamp", lambda: lambda s, b, h, i, j: s.clamp(-1, 1))
score("clamp_min", lambda: lambda s, b, h, i, j: torch.clamp_min(s, -0.5))
score("minimum", lambda x: lambda s, b, h, i, j: torch.minimum(s, x[h]), lambda z: {"x": z.scores(z.h)})
score("maximum", lambda x: lambda s, b, h, i, j: torch.maximum(s, x[h]), lambda z: {"x": z.scores(z.h)})
score("fmin", lambda x: lambda s, b, h, i, j: torch.fmin(s, x[h]), lambda z: {"x": z.normal(z.h)})
score("fmax", lambda x: lambda s, b, h, i, j: torch.fmax(s, x[h]), lambda z: {"x": z.normal(z.h)})
score("cube", lambda: lambda s, b, h, i, j: s**3)
score("power", lambda: lambda s, b, h, i, j: (s.abs() + 0.1) ** 1.5)
score("power of two", lambda: lambda s, b, h, i, j: s - 2.0**-h)
score("float_power", lambda: lambda s, b, h, i, j: torch.float_power(s, 2), without=(torch.float32, *HALVES))
score(
    "logaddexp",
    lambda x: lambda s, b, h, i, j: torch.logaddexp(s, x[i]),
    lambda z: {"x": z.scores(z.s)},
    without=(torch.float64,),
)
score("lerp", lambda: lambda s, b, h, i, j: torch.lerp(s, s * s, 0.25))
score("atan2", lambda: lambda s, b, h, i, j: torch.atan2(s, s.abs() + 1))
score("copysign", lambda: lambda s, b, h, i, j: torch.copysign(s.abs() + 1, s))
score("hypot", lambda: lambda s, b, h, i, j: torch.hypot(s, s + 1))
score("addcmul", lambda: lambda s, b, h, i, j: torch.addcmul(s, s, s, value=0.5))
score("addcdiv", lambda: lambda s, b, h, i, j: torch.addcdiv(s, s, s.abs() + 1, value=0.5))
score("remainder", lambda: lambda s, b, h, i, j: torch.remainder(s, 3.0))
score("fmod", lambda: lambda s, b, h, i, j: torch.fmod(s, 3.0))
score("ldexp", lambda: lambda s, b, h, i, j: torch.ldexp(s, h))
score("xlogy", lambda: lambda s, b, h, i, j: torch.xlogy(s, s.abs() + 0.5))
score("rsub", lambda: lambda s, b, h, i, j: torch.rsub(s, 1.0))
score("div by floor", lambda: lambda s, b, h, i, j: s + torch.div(i - j, 3, rounding_mode="floor"))
score("div by trunc", lambda: lambda s, b, h, i, j: s + torch.div(i - j, 3, rounding_mode="trunc"))
score("heaviside", lambda: lambda s, b, h, i, j: s * torch.heaviside(s.detach(), torch.zeros_like(s)))
score("where, then clamp", lambda: lambda s, b, h, i, j: torch.where(s > 0, s, s * 0.1).clamp(max=2))
score("pow of a tensor", lambda: lambda s, b, h, i, j: torch.pow(torch.sigmoid(s), h + 1))
score("dist", lambda: lambda s, b, h, i, j: s - ((i - j) ** 2) / 64)
score("gaussian", lambda: lambda s, b, h, i, j: s + torch.exp(-(((i - j) / 8.0) ** 2)), without=(torch.float64,))

# Types.

score("in float32", lambda: lambda s, b, h, i, j: s.float() * 2, without=(torch.float64,))
score("in float64", lambda: lambda s, b, h, i, j: torch.exp(s.double() * 0.5))
score("rounded to half", lambda: lambda s, b, h, i, j: s + (i - j).half())
score("rounded to bf16", lambda: lambda s, b, h, i, j: s + (h + 1).to(torch.bfloat16) * 0.5)
score("integers in float", lambda: lambda s, b, h, i, j: s + (i - j).float() / 8)
score(
    "int8", lambda x: lambda s, b, h, i, j: s + x[i] * x[i], lambda z: {"x": z.integers(-8, 8, z.s, dtype=torch.int8)}
)
score(
    "int16", lambda x: lambda s, b, h, i, j: s + (x[i] >> 1), lambda z: {"x": z.integers(-8, 8, z.s, dtype=torch.int16)}
)
score(
    "uint8", lambda x: lambda s, b, h, i, j: s + (x[j] & 3), lambda z: {"x": z.integers(0, 255, z.t, dtype=torch.uint8)}
)
score("booleans", lambda x: lambda s, b, h, i, j: s * x[j], lambda z: {"x": z.integers(0, 2, z.t).bool()})
score("comparison as a number", lambda: lambda s, b, h, i, j: s + (i >= j))
score("bits of places", lambda: lambda s, b, h, i, j: s + ((i ^ j) & 3))
score("a tensor made inside", lambda: lambda s, b, h, i, j: s * torch.tensor(0.5))
score("full_like", lambda: lambda s, b, h, i, j: torch.where(i >= j, s, torch.full_like(s, -INF)))
score("new_tensor", lambda: lambda s, b, h, i, j: torch.where(i >= j, s, s.new_tensor(-INF)))
score("zeros_like", lambda: lambda s, b, h, i, j: s + torch.zeros_like(s))
score("NumPy scalar", lambda n=np.int64(3): lambda s, b, h, i, j: torch.where((n > i) | (i >= j), s, -INF))


def names(kind: Optional[bool] = None) -> List[str]:
    """Of all functions, or of those that are masks, or not."""
    return [name for name, function in FUNCTIONS.items() if kind in (None, function.is_mask)]
