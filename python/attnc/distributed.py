# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One attention over several processes, each with a part of the tokens (context parallelism).

    shards = attnc.distributed.shard_map(tokens, ranks, is_causal=True)
    x = attnc.distributed.shard(x, shards, dim=1)             # positions and labels, too
    o = attnc.distributed.context_parallel_attention(q, k, v, shards=shards, enable_gqa=True)

What is sent goes through a process group of PyTorch: NCCL between GPUs, gloo between CPUs.
"""

from __future__ import annotations

import math
from typing import Any, Callable, NamedTuple, Optional, Tuple

import torch
import torch.distributed as dist

from ._attention import bind, check_inputs, flag_of, scale_of
from ._context import Attend, Call, Functions, Layout, Transport
from ._costs import Link, candidates, measure, predict
from ._errors import call_error
from ._peers import Peers, peers_of
from ._shards import Mask, ShardMap, shard_map
from ._torch import _TYPE_NAMES, _autocast
from ._variant import Options

__all__ = [
    "Link",
    "Mask",
    "ShardMap",
    "Transport",
    "context_parallel_attention",
    "measure",
    "predict",
    "shard",
    "shard_map",
    "unshard",
]
TRANSPORTS = ("auto", "gather", "ring", "heads")


def _rank_in(shards: ShardMap, peers: Peers) -> int:
    if not isinstance(shards, ShardMap):
        raise call_error(f"expected shards to be a ShardMap, as shard_map() makes it, got a {type(shards).__name__}")
    if peers.size != shards.ranks:
        raise call_error(f"expected a group of {shards.ranks} ranks, which shards was made for, got one of {peers.size}")
    return peers.rank


def shard(x: torch.Tensor, shards: ShardMap, *, dim: int, rank: Optional[int] = None, group: Any = None) -> torch.Tensor:
    """This rank's tokens of a tensor that has all of them along `dim`, a copy; it has a gradient.

    rank: another one's, without any group. Raises Error.
    """
    if rank is None:
        rank = _rank_in(shards, peers_of(group))
    if not 0 <= rank < shards.ranks:
        raise call_error(f"expected a rank from 0 to {shards.ranks - 1}, got {rank}")
    if x.shape[dim] != shards.tokens:
        raise call_error(f"expected {shards.tokens} tokens in dimension {dim}, got {tuple(x.shape)}")
    return x.index_select(dim, shards.positions[rank].to(x.device))


def unshard(x: torch.Tensor, shards: ShardMap, *, dim: int, group: Any = None) -> torch.Tensor:
    """All tokens in their true order, on every rank, from each rank's along `dim`. Without a gradient: expects
    torch.no_grad() or a tensor without one. Raises Error."""
    peers = peers_of(group)
    _rank_in(shards, peers)
    if x.requires_grad and torch.is_grad_enabled():
        raise call_error("unshard has no gradient: expected a detached tensor, or a call under torch.no_grad()")
    each = shards.tokens // shards.ranks
    if x.shape[dim] != each:
        raise call_error(f"expected {each} tokens in dimension {dim}, got {tuple(x.shape)}")
    x = x.detach().contiguous()
    parts = [torch.empty_like(x) for _ in range(peers.size)]
    dist.all_gather(parts, x, group=group)
    return torch.cat(parts, dim).index_select(dim, shards.permutation.argsort().to(x.device))


class _Arguments(NamedTuple):
    """Of a call, checked."""

    shards: ShardMap
    mask: Mask
    score_mod: Optional[Callable]
    transport: str
    lanes: Optional[int]


def _mask_of(shards: ShardMap, mask_mod: Any, is_causal: Any, window: Any, documents: Any) -> Mask:
    """What is said here, or where nothing is, what the map was made for."""
    if mask_mod is None and is_causal is None and window is None and documents is None:
        return shards.mask
    return Mask.of(False if is_causal is None else flag_of(is_causal), window, mask_mod, documents, shards.tokens)


def _lanes_of(arguments: _Arguments, query: torch.Tensor, key: torch.Tensor) -> Transport:
    """The transport that was asked for."""
    ranks, heads = arguments.shards.ranks, math.gcd(query.shape[1], key.shape[1])
    kind, lanes = arguments.transport, arguments.lanes
    if lanes is None:
        lanes = ranks if kind == "heads" else 1
    if kind == "heads":
        if lanes != ranks:
            raise call_error(f"expected {ranks} lanes for transport 'heads', got {lanes}")
        kind = "gather"
    if type(lanes) is not int or lanes < 1 or ranks % lanes:
        raise call_error(f"expected a number of lanes that divides {ranks} ranks, got {lanes!r}")
    if heads % lanes:
        found = f"{query.shape[1]} and {key.shape[1]}"
        raise call_error(f"expected heads of queries and keys that are multiples of {lanes} lanes, got {found}")
    return Transport(kind, lanes)


def _check(query: Any, key: Any, value: Any, arguments: _Arguments, enable_gqa: bool) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, torch.Tensor):
            raise call_error(f"expected {name} to be a tensor of PyTorch, got a {type(x).__name__}")
    check_inputs(query, key, value, enable_gqa)
    each = arguments.shards.tokens // arguments.shards.ranks
    for name, x in (("queries", query), ("keys", key)):
        if x.shape[2] != each:
            raise call_error(f"expected {each} {name}, a shard of {arguments.shards.tokens} tokens, got {tuple(x.shape)}")
    if not (query.device == key.device == value.device):
        raise call_error(f"expected tensors on one device, got {query.device}, {key.device} and {value.device}")
    if arguments.transport not in TRANSPORTS:
        raise call_error(f"expected transport 'auto', 'gather', 'ring' or 'heads', got {arguments.transport!r}")
    if arguments.transport == "auto" and arguments.lanes is not None:
        raise call_error("expected no lanes with transport 'auto', which chooses them")


def _signature(query: Any, key: Any, value: Any, arguments: _Arguments, options: Options) -> str:
    """What all ranks have to have in common."""
    needs = [x.requires_grad and torch.is_grad_enabled() for x in (query, key, value)]
    return (
        f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)} of {options.dtype} on "
        f"{query.device.type}, gradients {needs}, scale {options.scale}, deterministic {options.deterministic}, precision "
        f"{options.precision}, transport {arguments.transport}, lanes {arguments.lanes}, shards "
        f"{arguments.shards.digest()}, causal {arguments.mask.is_causal}, window {arguments.mask.window}, functions "
        f"{arguments.score_mod is not None} {arguments.mask.mask_mod is not None}"
    )


@torch.compiler.disable
def context_parallel_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    shards: ShardMap,
    group: Any = None,
    score_mod: Optional[Callable] = None,
    mask_mod: Optional[Callable] = None,
    is_causal: Optional[bool] = None,
    window: Optional[Tuple[int, int]] = None,
    documents: Optional[torch.Tensor] = None,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    deterministic: bool = False,
    precision: str = "ieee",
    transport: str = "auto",
    lanes: Optional[int] = None,
    timeout: float = 300.0,
) -> Any:
    """attnc.attention of all tokens of a sequence, of which each rank of a group has some.

    query, key, value: tensors of PyTorch of the shapes (B, Hq, T, D), (B, Hkv, T, D) and (B, Hkv, T, Dv), where T is
        tokens / ranks: this rank's tokens as `shards` deals them. Or DTensors that are sharded along dimension 2 over a
        mesh of one dimension, whose group is taken.
    shards: shard_map()'s, the same on all ranks.
    group: a process group of PyTorch; the default one where None.
    score_mod, mask_mod, is_causal, window: as of attnc.attention, with true positions and heads.
    documents: as of shard_map: pairs of different documents do not count.
        Where none of mask_mod, is_causal, window and documents is given, the mask is the one that `shards` was made for;
        else it is what is given here, and nothing besides.
        Only keys that a query may keep are sent: that is found from is_causal, window and documents, from the mask_mod
        that `shards` was made for, and from others that read no tensors, up to 2^28 pairs.
    return_lse: also returns the LSE of this rank's queries, (B, Hq, T).
    transport: "gather": keys of all ranks come, then are attended to at once. "ring": those of one rank at a time, while
        those before are attended to; memory for two of them. "heads": every rank gets all tokens of some heads. "auto"
        takes what predict() finds the fastest with the group's measured link.
    lanes: with "ring" and "gather", so many neighbouring ranks exchange heads, and their keys go round together. It
        divides the ranks and the heads of queries and keys.
    deterministic: the same bits in each run. Sums over ranks have one order anyhow.
    timeout: seconds to wait for the call to come from every rank. A rank that does not come, that fails, or that calls
        with other shapes is an error on all ranks, by number. What happens while tensors are sent is bounded by the
        timeout of the group.
    Results of rounds are in the type of the tensors and are merged in float32 (float64 of float64). Gradients of what
    functions capture are added up over the group: each rank has those of the whole sequence. There is no dropout, and
    under torch.compile the call is a break of the graph.

    Returns the output, (B, Hq, T, Dv), of this rank's tokens, or with return_lse a pair. Raises Error on all ranks.
    """
    if _is_dtensor(query) or _is_dtensor(key) or _is_dtensor(value):
        return _of_dtensors(query, key, value, group, locals())
    peers = peers_of(group)
    _rank_in(shards, peers)
    problem, signature, call = None, "", None
    device = query.device if isinstance(query, torch.Tensor) else torch.device("cpu")
    arguments = None
    try:
        mask = _mask_of(shards, mask_mod, is_causal, window, documents)
        arguments = _Arguments(shards, mask, score_mod, transport, lanes)
        _check(query, key, value, arguments, enable_gqa)
        if torch.is_autocast_enabled(query.device.type):
            query, key, value = _autocast((query, key, value))
        scale = None if scale is None else scale_of(scale)
        options = Options(
            _TYPE_NAMES[query.dtype], int(query.shape[3]), int(value.shape[3]), scale=scale,
            deterministic=deterministic, precision=precision,
        )  # fmt: skip
        options.check()
        chosen = None if transport == "auto" else _lanes_of(arguments, query, key)
        signature = _signature(query, key, value, arguments, options)
        bind(options, score_mod, mask.mask_mod)  # what cannot be traced is an error here
        if chosen is not None:
            call = _plan(peers, arguments, chosen, options, query)
    except Exception as error:  # every rank is told
        problem = error
    peers.agree(signature, problem, timeout, device)
    assert arguments is not None
    if call is None:  # all ranks measure alike, and choose alike
        link = measure(group, query.device)
        chosen = min(
            candidates(shards, query.shape[1], key.shape[1]),
            key=lambda t: predict(shards, link, query.shape, key.shape, value.shape[3], t, mask, query.element_size()),
        )
        call = _plan(peers, arguments, chosen, options, query)
    o, lse = Attend.apply(call, timeout, query, key, value, *call.tensors)
    return (o, lse) if return_lse else o


def _plan(peers: Peers, arguments: _Arguments, chosen: Transport, options: Options, query: torch.Tensor) -> Call:
    shards, mask = arguments.shards, arguments.mask
    layout = Layout(shards, peers.rank, chosen.lanes, shards.needs(mask))
    functions = Functions(arguments.score_mod, mask, layout.lane * (query.shape[1] // chosen.lanes))
    return Call(peers, layout, chosen, options, functions, query.device)


# Distributed tensors.


def _is_dtensor(x: Any) -> bool:
    return type(x).__name__ == "DTensor" and hasattr(x, "to_local")


def _of_dtensors(query: Any, key: Any, value: Any, group: Any, given: dict) -> Any:
    from torch.distributed.tensor import DTensor, Shard

    for name, x in (("query", query), ("key", key), ("value", value)):
        if not _is_dtensor(x):
            raise call_error(f"expected query, key and value to be DTensors, or none of them, got {name} as a tensor")
        if x.device_mesh.ndim != 1 or tuple(x.placements) != (Shard(2),):
            raise call_error(f"expected {name} sharded along dimension 2 over a mesh of one dimension, got {x.placements}")
        if x.device_mesh != query.device_mesh:
            raise call_error(f"expected one mesh, got {query.device_mesh} and {x.device_mesh}")
    if group is not None:
        raise call_error("expected no group with DTensors, which have a mesh")
    mesh = query.device_mesh
    names = ("query", "key", "value", "group")
    others = {name: x for name, x in given.items() if name not in names}
    found = context_parallel_attention(
        query.to_local(), key.to_local(), value.to_local(), group=mesh.get_group(), **others
    )
    wrap = lambda x: DTensor.from_local(x, mesh, (Shard(2),))
    return tuple(map(wrap, found)) if others["return_lse"] else wrap(found)
