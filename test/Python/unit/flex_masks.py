# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks of PyTorch's documentation and tests, and of collections of examples."""

from __future__ import annotations

import functools
import math

import torch
from flex_registry import mask
from torch.nn.attention.flex_attention import and_masks, or_masks

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
