# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which tokens of a sequence lie on which rank, from what a mask keeps.

Tokens are dealt in chunks of neighbours, each rank as many. How much a chunk costs is how many tiles of its queries and
any keys have a kept pair.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from ._attention import flag_of, window_of
from ._blocks import _CHUNK, _MOST, _Function
from ._errors import call_error
from ._functions import function_key

TILE = 128  # tokens
_MOST_CHUNKS = 4096
_MOST_PER_RANK = 64
_MOST_UNASKED = 2**28  # pairs that a mask is evaluated for without a map being made for it


@dataclass(frozen=True)
class Mask:
    """Which pairs count, by true positions: what is_causal, window, documents and mask_mod say, all of them."""

    is_causal: bool = False
    window: Tuple[int, int] = (-1, -1)
    mask_mod: Optional[Callable] = None
    # Of each token the number of its document, not falling, on the CPU; all of one where None.
    documents: Optional[torch.Tensor] = None

    @staticmethod
    def of(is_causal: Any, window: Any, mask_mod: Any, documents: Any, tokens: int) -> Mask:
        if documents is not None:
            _check_documents(documents, tokens)
        return Mask(flag_of(is_causal), (-1, -1) if window is None else window_of(window), mask_mod, documents)

    def intervals(self, tokens: int) -> Optional[Tuple[torch.Tensor, torch.Tensor]]:
        """Of each query the first key and the one behind the last that mask_mod is asked for; None for all."""
        left, right = self.window
        if self.is_causal:
            right = 0
        if left < 0 and right < 0 and self.documents is None:
            return None
        token = torch.arange(tokens)
        first, last = torch.zeros_like(token), torch.full_like(token, tokens)
        if self.documents is not None:
            _, lengths = torch.unique_consecutive(self.documents, return_counts=True)
            ends = lengths.cumsum(0).repeat_interleave(lengths)
            first, last = ends - lengths.repeat_interleave(lengths), ends
        if left >= 0:
            first = torch.maximum(first, token - left)
        if right >= 0:
            last = torch.minimum(last, token + right + 1)
        return first, last

    def key(self) -> Tuple[Any, List[Any]]:
        """Equal where the same pairs count; None where a function reaches what may change unseen. And the tensors,
        which have to be kept with the key, for it has their addresses."""
        tensors: List[Any] = []
        function = function_key(self.mask_mod, tensors)
        if self.mask_mod is not None and function is None:
            return None, []
        tensors = [x for x in (*tensors, self.documents) if isinstance(x, torch.Tensor)]
        return (self.is_causal, self.window, function, tuple((id(x), x._version) for x in tensors)), tensors


def _check_documents(documents: Any, tokens: int) -> None:
    if not isinstance(documents, torch.Tensor) or documents.dtype not in (torch.int32, torch.int64):
        raise call_error(f"expected documents to be a tensor of int32 or int64, got {_kind(documents)}")
    if tuple(documents.shape) != (tokens,):
        raise call_error(f"expected documents of shape ({tokens},), the number of each token's, got {tuple(documents.shape)}")
    if not documents.is_cpu:
        raise call_error(f"expected documents on the CPU, where tokens are dealt, got them on {documents.device}")
    if bool((documents.diff() < 0).any()):
        raise call_error("expected documents that do not fall from token to token: each lies in one piece")


def _kind(x: Any) -> str:
    return f"one of {x.dtype}" if isinstance(x, torch.Tensor) else f"a {type(x).__name__}"


def kept_tiles(mask: Mask, tokens: int, tile: int, batch: int, heads: int) -> torch.Tensor:
    """(query tiles, key tiles), int64 on the CPU: for how many batches and heads a tile has a kept pair. (Where a mask
    does not read them they count as one.)"""
    tiles = -(-tokens // tile)
    intervals = mask.intervals(tokens)
    if mask.mask_mod is None:
        if intervals is None:
            return torch.ones(tiles, tiles, dtype=torch.int64)
        # The intervals of a tile's queries overlap or touch: each contains its query.
        first, last = (x.reshape(-1) for x in intervals)
        pad = tiles * tile - tokens
        first = torch.cat([first, first[-1:].expand(pad)]).reshape(tiles, tile).amin(1)
        last = torch.cat([last, last[-1:].expand(pad)]).reshape(tiles, tile).amax(1)
        begins = torch.arange(tiles)[None] * tile
        return ((begins < last[:, None]) & (begins + tile > first[:, None]) & (first < last)[:, None]).to(torch.int64)
    return _evaluate(mask, intervals, tokens, tile, batch, heads)


def _evaluate(mask: Mask, intervals: Any, tokens: int, tile: int, batch: int, heads: int) -> torch.Tensor:
    """By the mask function of all pairs."""
    from torch.nn.attention.flex_attention import _vmap_for_bhqkv

    function = _Function(mask.mask_mod)
    b, h = batch if function.reads_batch else 1, heads if function.reads_head else 1
    tensors = [x for x in function.tensors if isinstance(x, torch.Tensor)]
    device = tensors[0].device if tensors else torch.device("cpu")
    if b * h * tokens**2 > _MOST:
        raise call_error(
            f"expected at most 2^38 pairs where a mask function is asked for each of them, got {tokens} x {tokens} for "
            f"{b * h} batches and heads: say what it keeps by is_causal, window and documents"
        )
    keep = _vmap_for_bhqkv(mask.mask_mod, prefix=())
    index = lambda start, end: torch.arange(start, end, device=device)
    keys, tiles = index(0, tokens), -(-tokens // tile)
    bounds = None if intervals is None else [x.to(device) for x in intervals]
    step = max(1, _CHUNK // (b * h * tokens * tile)) * tile
    pad = tiles * tile - tokens
    counts = []
    for start in range(0, tokens, step):
        queries = index(start, min(start + step, tokens))
        kept = keep(index(0, b), index(0, h), queries, keys).expand(b, h, len(queries), tokens)
        if bounds is not None:
            first, last = (x[queries, None] for x in bounds)
            kept = kept & (keys >= first) & (keys < last)
        rows = -(-len(queries) // tile)
        kept = torch.nn.functional.pad(kept, (0, pad, 0, rows * tile - len(queries)))
        counts.append(kept.reshape(b, h, rows, tile, tiles, tile).any(dim=5).any(dim=3).sum((0, 1)).cpu())
    return torch.cat(counts)


def _deal(costs: Sequence[int], ranks: int) -> List[List[int]]:
    """Chunks of each rank, as many for all: the costliest first, each to the rank with the least that has room; then
    chunks of the fullest rank are exchanged while that makes it less full."""
    each = len(costs) // ranks
    if each == 1:
        return [[chunk] for chunk in range(ranks)]
    heap = [(0, rank) for rank in range(ranks)]
    dealt: List[List[int]] = [[] for _ in range(ranks)]
    for chunk in sorted(range(len(costs)), key=lambda c: (-costs[c], -c)):
        load, rank = heapq.heappop(heap)
        dealt[rank].append(chunk)
        if len(dealt[rank]) < each:
            heapq.heappush(heap, (load + costs[chunk], rank))
    loads = [sum(costs[c] for c in chunks) for chunks in dealt]
    for _ in range(8 * len(costs)):
        full = max(range(ranks), key=loads.__getitem__)
        swap = _best_swap(dealt, loads, costs, full)
        if swap is None:
            break
        mine, rank, other = swap
        change = costs[dealt[full][mine]] - costs[dealt[rank][other]]
        dealt[full][mine], dealt[rank][other] = dealt[rank][other], dealt[full][mine]
        loads[full] -= change
        loads[rank] += change
    return sorted((sorted(chunks) for chunks in dealt), key=lambda chunks: chunks[0])


def _best_swap(dealt: List[List[int]], loads: List[int], costs: Sequence[int], full: int) -> Optional[Tuple[int, int, int]]:
    best, found = loads[full], None
    for rank in sorted(range(len(dealt)), key=loads.__getitem__)[:8]:
        for mine, chunk in enumerate(dealt[full]):
            for other, theirs in enumerate(dealt[rank]):
                change = costs[chunk] - costs[theirs]
                worst = max(loads[full] - change, loads[rank] + change)
                if rank != full and change > 0 and worst < best:
                    best, found = worst, (mine, rank, other)
    return found


@dataclass(frozen=True)
class ShardMap:
    """Which tokens lie on which rank of a group; made by shard_map()."""

    tokens: int
    ranks: int
    chunk: int  # tokens that are neighbours
    chunks: Tuple[Tuple[int, ...], ...]  # of each rank
    # (ranks, tokens / ranks), int64 on the CPU: the true position of each token of each rank.
    positions: torch.Tensor
    tile: int  # rows and columns of what is counted: 128, less where chunks are no multiples of it
    # Tiles with a kept pair, of each rank's queries.
    kept_tiles: Tuple[int, ...]
    mask: Mask
    _needs: Dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    _moved: Dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def imbalance(self) -> float:
        """The fullest rank's kept tiles over the mean of all."""
        return max(self.kept_tiles) * self.ranks / max(sum(self.kept_tiles), 1)

    @property
    def permutation(self) -> torch.Tensor:
        """True positions in the order of ranks, (tokens,): x[permutation] lies as the ranks have it."""
        return self.positions.reshape(-1)

    def positions_of(self, chunks: Tuple[int, ...], device: torch.device) -> torch.Tensor:
        """int32: those of the tokens of these chunks, one behind the other."""
        return self._kept_on(("positions", chunks, device), [], lambda: self._tokens_of(chunks).to(device, torch.int32))

    def documents_of(self, documents: torch.Tensor, chunks: Tuple[int, ...], device: torch.device) -> torch.Tensor:
        """int32: the numbers of documents of these tokens."""
        key = "documents", id(documents), documents._version, chunks, device
        return self._kept_on(key, [documents], lambda: documents[self._tokens_of(chunks)].to(device, torch.int32))

    def order_of(self, chunks: Tuple[int, ...], back: bool, device: torch.device) -> torch.Tensor:
        """Which of the tokens of these chunks come first in the sequence; with `back` the inverse."""

        def make() -> torch.Tensor:
            order = self._tokens_of(chunks).argsort()
            return (order.argsort() if back else order).to(device)

        return self._kept_on(("order", chunks, back, device), [], make)

    def _tokens_of(self, chunks: Tuple[int, ...]) -> torch.Tensor:
        starts = torch.tensor(chunks, dtype=torch.int64) * self.chunk
        return (starts[:, None] + torch.arange(self.chunk)).reshape(-1)

    def _kept_on(self, key: Any, tensors: List[torch.Tensor], make: Callable[[], torch.Tensor]) -> torch.Tensor:
        found = self._moved.get(key)
        if found is None:
            if len(self._moved) >= 4096:
                self._moved.clear()
            found = self._moved[key] = make(), tensors
        return found[0]

    def needs(self, mask: Mask) -> torch.Tensor:
        """(ranks, chunks), bool on the CPU: which chunks of keys some query of a rank may keep. Never too few."""
        key, tensors = mask.key()
        if key is not None and key in self._needs:
            return self._needs[key][0]
        known = mask
        if mask.mask_mod is not None:
            # A function that reads tensors may be another one at each call: what it leaves out is not looked for.
            function = _Function(mask.mask_mod)
            varies = key is None or function.tensors or function.reads_batch or function.reads_head
            if varies or self.tokens**2 > _MOST_UNASKED:
                known = Mask(mask.is_causal, mask.window, None, mask.documents)
        needs = self._needs_of(kept_tiles(known, self.tokens, self.chunk, 1, 1))
        if key is not None:
            if len(self._needs) >= 256:
                self._needs.clear()
            self._needs[key] = needs, tensors
        return needs

    def _needs_of(self, tiles: torch.Tensor) -> torch.Tensor:
        """From kept tiles, of which a chunk has one or several."""
        count = self.tokens // self.chunk
        each = tiles.shape[0] // count
        kept = (tiles > 0).reshape(count, each, count, each).any(3).any(1)
        return torch.stack([kept[list(chunks)].any(0) for chunks in self.chunks])

    def digest(self) -> str:
        """Equal on all ranks that have the same map."""
        return hashlib.sha256(self.positions.numpy().tobytes()).hexdigest()[:16]


def shard_map(
    tokens: int,
    ranks: int,
    *,
    is_causal: bool = False,
    window: Optional[Tuple[int, int]] = None,
    mask_mod: Optional[Callable] = None,
    documents: Optional[torch.Tensor] = None,
    batch: int = 1,
    heads: int = 1,
    tolerance: float = 1.03,
) -> ShardMap:
    """Deals the tokens of a sequence to ranks so that each has as many tokens and nearly as many kept tiles.

    Chunks of neighbouring tokens are dealt, as few for each rank as make the fullest rank's kept tiles at most
    `tolerance` times the mean: one each where that is so already (full attention, windows), two for a causal mask, where
    a rank gets one from the head and one from the tail. Where no number of chunks reaches it, the best one is taken;
    ShardMap.imbalance says what came out.

    tokens: of the whole sequence, a multiple of ranks.
    is_causal, window, mask_mod: as of attnc.attention, with true positions. A mask_mod is evaluated for all pairs, by
        PyTorch on the device of the tensors that it reads, 2^38 at most.
    documents: int32 or int64 of shape (tokens,): the number of each token's document, not falling. Pairs of different
        documents do not count. Costs nothing to evaluate.
    batch, heads: for a mask_mod that reads them.

    Every rank has to call it with the same arguments: nothing is sent. Raises Error.
    """
    if ranks < 1 or tokens < ranks or tokens % ranks:
        raise call_error(f"expected a number of tokens that is a multiple of {ranks} ranks, got {tokens}")
    mask = Mask.of(is_causal, window, mask_mod, documents, tokens)
    each = tokens // ranks
    # How many chunks a rank may get: of whole tiles where there are such.
    sizes = [n for n in range(1, min(_MOST_PER_RANK, each) + 1) if each % n == 0 and n * ranks <= _MOST_CHUNKS]
    whole = [n for n in sizes if (each // n) % TILE == 0]
    sizes = whole or [n for n in sizes if each // n >= min(TILE, each // 2)] or [1]
    grain = TILE if whole else math.gcd(*(each // n for n in sizes))
    best: Optional[Tuple[float, List[List[int]], int, List[int]]] = None
    kept = kept_tiles(mask, tokens, grain, batch, heads)
    tiles = kept.sum(1)
    for count in sizes:
        costs = tiles.reshape(ranks * count, -1).sum(1).tolist()
        dealt = _deal(costs, ranks)
        loads = [sum(costs[c] for c in chunks) for chunks in dealt]
        imbalance = max(loads) * ranks / max(sum(loads), 1)
        if best is None or imbalance < best[0] - 1e-9:
            best = imbalance, dealt, count, loads
        if imbalance <= tolerance:
            break
    assert best is not None
    _, dealt, count, loads = best
    chunk = each // count
    starts = torch.tensor(dealt, dtype=torch.int64) * chunk
    positions = (starts[..., None] + torch.arange(chunk)).reshape(ranks, each)
    result = ShardMap(tokens, ranks, chunk, tuple(map(tuple, dealt)), positions, grain, tuple(loads), mask)
    key, tensors = mask.key()
    if key is not None:
        result._needs[key] = result._needs_of(kept), tensors
    return result
