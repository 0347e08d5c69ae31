# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a transport of context parallel attention takes, by a model of its link and its kernels."""

from __future__ import annotations

import time
import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from ._attention import attention
from ._context import Layout, Transport
from ._peers import Message, peers_of
from ._shards import Mask, ShardMap


class Link(NamedTuple):
    """Of a group of ranks: the slowest of them."""

    bandwidth: float  # bytes per second that a rank sends while it receives as many
    latency: float  # seconds of a message
    flops: float  # floating-point operations per second of attention forward, 2 (D + Dv) per pair


_measured: weakref.WeakKeyDictionary[Any, Dict[torch.device, Link]] = weakref.WeakKeyDictionary()


def measure(group: Any = None, device: Any = "cpu") -> Link:
    """The link of a group, measured once: messages of 64 B and 4 MiB to the next rank, and attention of 1,024 tokens, in
    bfloat16 on a GPU and float32 on a CPU. Every rank has to call it. Raises Error."""
    device = torch.device(device)
    peers = peers_of(group)
    key = torch.distributed.group.WORLD if group is None else group
    known = _measured.setdefault(key, {})
    if device in known:
        return known[device]
    after, before = (peers.rank + 1) % peers.size, (peers.rank - 1) % peers.size

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def seconds(work: Any) -> float:
        work()
        wait()
        found = []
        for _ in range(3):
            start = time.perf_counter()
            work()
            wait()
            found.append(time.perf_counter() - start)
        return min(found)

    def message(size: int) -> float:
        ours, theirs = (torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2))
        return seconds(lambda: peers.finish(peers.start([Message(after, ours)], [Message(before, theirs)])))

    small, large = (message(size) for size in (64, 2**22)) if peers.size > 1 else (1e-9, 1e-6)
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    x = torch.randn(1, 8, 1024, 64, dtype=kind, device=device)
    attend = seconds(lambda: attention(x, x, x))
    # The slowest decides, and all ranks have to choose alike.
    worst = torch.tensor([small, max(large - small, 1e-9), attend], dtype=torch.float64)
    worst = worst.to(device)
    torch.distributed.all_reduce(worst, torch.distributed.ReduceOp.MAX, group=group)
    small, large, attend = worst.tolist()
    known[device] = Link(2**22 / large, small, 8 * 1024**2 * 4 * 64 / attend)
    return known[device]


def candidates(shards: ShardMap, heads: int, kv_heads: int) -> List[Transport]:
    """All that a call could take."""
    found = []
    for lanes in range(1, shards.ranks + 1):
        if shards.ranks % lanes == 0 and heads % lanes == 0 and kv_heads % lanes == 0:
            found.append(Transport("gather", lanes))
            if lanes < shards.ranks:
                found.append(Transport("ring", lanes))
    return found


def predict(
    shards: ShardMap,
    link: Link,
    query: Sequence[int],
    key: Sequence[int],
    dv: int,
    transport: Transport,
    mask: Optional[Mask] = None,
    element_size: int = 2,
    outside: Optional[Link] = None,
    host: int = 8,
) -> float:
    """Seconds of a forward of the slowest rank, by a model: what a rank has to compute is spread over its rounds as the
    keys that it needs are; a round takes the longer of its kernel and of the next one's messages. How much it has to
    compute is counted for the mask of the map.

    query, key: shapes (B, H, T, D) of a rank.
    outside: the link between hosts of `host` ranks each; one link for all where None.
    """
    needs = shards.needs(shards.mask if mask is None else mask)
    model = _Model(link, link if outside is None else outside, host, tuple(query), tuple(key), dv, element_size)
    return max(model.seconds(Layout(shards, rank, transport.lanes, needs), transport) for rank in range(shards.ranks))


class _Model(NamedTuple):
    inside: Link
    outside: Link
    host: int
    query: Tuple[int, ...]
    key: Tuple[int, ...]
    dv: int
    element_size: int

    def link(self, rank: int, other: int) -> Link:
        return self.inside if rank // self.host == other // self.host else self.outside

    def coming(self, layout: Layout, source: int, tokens: int) -> float:
        """Until a node's keys and values are here."""
        if source == layout.node or not tokens:
            return 0.0
        link = self.link(layout.rank, layout.rank_of(source))
        size = self.query[0] * self.key[1] / layout.lanes * (self.query[3] + self.dv) * self.element_size
        return link.latency + tokens * size / link.bandwidth

    def exchanging(self, layout: Layout) -> float:
        """Heads of queries, keys and values, and those of outputs."""
        if layout.lanes == 1:
            return 0.0
        batch, heads, each, d = self.query
        link = self.link(layout.members()[0], layout.members()[-1])
        size = batch * each * self.element_size * (heads + self.key[1]) * (d + self.dv)
        return 2 * link.latency + size * (layout.lanes - 1) / layout.lanes / link.bandwidth

    def seconds(self, layout: Layout, transport: Transport) -> float:
        shards = layout.shards
        pairs = float(sum(shards.kept_tiles[rank] for rank in layout.members())) * shards.tile**2
        work = pairs * self.query[0] * self.query[1] / layout.lanes * 2 * (self.query[3] + self.dv) / self.inside.flops
        order = [(layout.node - offset) % layout.nodes for offset in range(layout.nodes)]
        tokens = [len(layout.needed(source, layout.node)) * shards.chunk for source in order]
        coming = [self.coming(layout, source, size) for source, size in zip(order, tokens)]
        if transport.kind == "gather":
            return self.exchanging(layout) + sum(coming) + work
        shares = [work * size / max(sum(tokens), 1) for size in tokens]
        return self.exchanging(layout) + sum(max(share, next) for share, next in zip(shares, [*coming[1:], 0.0]))
