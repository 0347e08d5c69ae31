# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a transport of context parallel attention takes, by a model of its link and its kernels."""

from __future__ import annotations

import time
import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

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


_measured: "weakref.WeakKeyDictionary[Any, Dict[torch.device, Link]]" = weakref.WeakKeyDictionary()


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
) -> float:
    """Seconds of a forward of the slowest rank, by a model: what a rank has to compute is spread over its rounds as the
    keys that it needs are; a round takes the longer of its kernel and of the next one's messages.

    query, key: shapes (B, H, T, D) of a rank.
    """
    batch, heads, each, d = query
    needs = shards.needs(shards.mask if mask is None else mask)
    row = batch * key[1] * (d + dv) * element_size  # bytes of a token's key and value
    lanes = transport.lanes
    slowest = 0.0
    for rank in range(shards.ranks):
        layout = Layout(shards, rank, lanes, needs)
        pairs = sum(shards.kept_tiles[r] for r in layout.members()) / sum(shards.kept_tiles) if any(shards.kept_tiles) else 0
        total = pairs * _kept_pairs(shards) * batch * heads / lanes * 2 * (d + dv) / link.flops
        sizes = [len(layout.needed(source, layout.node)) * shards.chunk for source in range(layout.nodes)]
        share = [total * size / max(sum(sizes), 1) for size in sizes]
        order = [(layout.node - offset) % layout.nodes for offset in range(layout.nodes)]
        cost = lambda source: 0.0 if source == layout.node or not sizes[source] else (
            link.latency + sizes[source] * row / lanes / link.bandwidth)  # fmt: skip
        seconds = 0.0
        if lanes > 1:
            moved = batch * each * element_size * (heads * (d + dv) + key[1] * (d + dv))
            seconds += 2 * link.latency + moved * (lanes - 1) / lanes / link.bandwidth
        if transport.kind == "gather":
            seconds += sum(map(cost, order)) + total
        else:
            for number, source in enumerate(order):
                coming = cost(order[number + 1]) if number + 1 < len(order) else 0.0
                seconds += max(share[source], coming)
        slowest = max(slowest, seconds)
    return slowest


def _kept_pairs(shards: ShardMap) -> float:
    """Pairs of kept tiles."""
    return float(sum(shards.kept_tiles)) * shards.tile**2
