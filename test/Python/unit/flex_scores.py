# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scores of PyTorch's documentation and tests, and of collections of examples."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from flex_registry import FLOAT16, INF, score

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
    without=FLOAT16,
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
