# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One attention over the ranks of a group, forward and backward.

Ranks are laid out as nodes x lanes. Lanes of a node exchange heads: each then has all tokens of its node, of some heads.
Nodes then pass keys and values: in each round a rank attends to those of some nodes, and sends its own to the nodes that
have the same round's place. With one lane that is a ring, or a gather where one round has all nodes; with one node it is
the exchange of heads alone. Results of rounds are merged by their log-sum-exp (Rabe and Staats, arXiv 2112.05682; Liu et
al., "Ring attention", arXiv 2310.01889); the backward takes the log-sum-exp of all keys, so that its rounds only add up.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from ._attention import bind
from ._errors import Error, call_error
from ._peers import Message, Peers
from ._shards import Mask, ShardMap
from ._torch_ops import run_backward, run_forward
from ._variant import Options, Variant


_LARGE = 2**14  # float32 then has 2^-10 behind the point


class Transport(NamedTuple):
    """How keys come to queries: "gather" (all at once) or "ring" (those of one node at a time, while the ones before are
    attended to), with so many lanes: with as many as ranks heads are exchanged, and no keys move besides."""

    kind: str
    lanes: int


class _Round(NamedTuple):
    sources: Tuple[int, ...]  # nodes whose keys come
    targets: Tuple[int, ...]  # nodes that the own keys go to
    chunks: Dict[int, Tuple[int, ...]]  # of each source, those that are needed
    variant: Optional[Variant]  # None where nothing is needed
    captures: List[int]  # numbers of tensors


class Layout:
    """Where tokens and heads are during a call, as this rank sees it."""

    def __init__(self, shards: ShardMap, rank: int, lanes: int, needs: torch.Tensor) -> None:
        self.shards, self.rank, self.lanes = shards, rank, lanes
        self.node, self.lane, self.nodes = rank // lanes, rank % lanes, shards.ranks // lanes
        self.node_needs = needs.reshape(self.nodes, lanes, -1).any(1)

    def rank_of(self, node: int) -> int:
        """The one in this lane."""
        return node * self.lanes + self.lane

    def members(self) -> range:
        return range(self.node * self.lanes, (self.node + 1) * self.lanes)

    def chunks_of(self, node: int) -> Tuple[int, ...]:
        ranks = self.shards.chunks[node * self.lanes : (node + 1) * self.lanes]
        return tuple(sorted(chunk for chunks in ranks for chunk in chunks))

    def needed(self, source: int, target: int) -> Tuple[int, ...]:
        """Chunks of a node whose keys another one has to see."""
        return tuple(chunk for chunk in self.chunks_of(source) if self.node_needs[target, chunk])

    def order(self, device: torch.device, back: bool = False) -> Optional[torch.Tensor]:
        """Which tokens of the members, one behind the other, come in the order of the node, or the way `back`; None
        where all stay."""
        chunks = [chunk for rank in self.members() for chunk in self.shards.chunks[rank]]
        if chunks == sorted(chunks):
            return None
        return self.shards.order_of(tuple(chunks), back, device)

    def pick(self, x: torch.Tensor, chunks: Sequence[int], node: Optional[int] = None) -> torch.Tensor:
        """(B, H, tokens of these chunks, D), dense, from those of a node."""
        own = self.chunks_of(self.node if node is None else node)
        if len(chunks) == len(own):
            return x.contiguous()
        size = self.shards.chunk
        return torch.cat([x[:, :, own.index(c) * size : (own.index(c) + 1) * size] for c in chunks], 2)

    def add(self, total: torch.Tensor, x: torch.Tensor, chunks: Sequence[int]) -> None:
        """To those tokens of the own node."""
        own, size = self.chunks_of(self.node), self.shards.chunk
        if len(chunks) == len(own):
            total += x
            return
        for number, chunk in enumerate(chunks):
            at = own.index(chunk) * size
            total[:, :, at : at + size] += x[:, :, number * size : (number + 1) * size]


class Functions(NamedTuple):
    """What is computed of a pair at its true place."""

    score_mod: Optional[Callable]
    mask: Mask
    first_head: int  # of this lane


def _placed(functions: Functions, shards: ShardMap, rows: Tuple[int, ...], columns: Tuple[int, ...], device: Any) -> Tuple:
    """score_mod and mask_mod of tokens as they lie in these chunks."""
    score, mask, first = functions
    everything = tuple(range(shards.tokens // shards.chunk))
    q_at = None if rows == everything else shards.positions_of(rows, device)
    k_at = None if columns == everything else shards.positions_of(columns, device)
    place = lambda at, n: n if at is None else at[n]
    left, right = mask.window
    right = 0 if mask.is_causal else right
    of_queries = of_keys = None
    if mask.documents is not None:
        of_queries = shards.documents_of(mask.documents, rows, device)
        of_keys = shards.documents_of(mask.documents, columns, device)
    inner = mask.mask_mod

    def score_mod(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return score(s, b, h + first, place(q_at, i), place(k_at, j))

    def mask_mod(b: Any, h: Any, i: Any, j: Any) -> Any:
        parts = []
        if of_queries is not None:
            parts.append(of_queries[i] == of_keys[j])
        q, k = place(q_at, i), place(k_at, j)
        if left >= 0:
            parts.append(k >= q - left)
        if right >= 0:
            parts.append(k <= q + right)
        if inner is not None:
            parts.append(inner(b, h + first, q, k))
        kept = parts[0]
        for part in parts[1:]:
            kept = kept & part
        return kept

    has_mask = of_queries is not None or left >= 0 or right >= 0 or inner is not None
    return (None if score is None else score_mod), (mask_mod if has_mask else None)


class _Sum:
    """Of attention over parts of the keys, in the type of the LSE."""

    def __init__(self) -> None:
        self.o: Optional[torch.Tensor] = None
        self.lse: Optional[torch.Tensor] = None

    def add(self, o: torch.Tensor, lse: torch.Tensor) -> None:
        if self.o is None or self.lse is None:
            self.o, self.lse = o, lse
            return
        together = torch.logaddexp(self.lse, lse)
        safe = torch.where(together == -torch.inf, 0, together)
        wide = self.o.to(lse.dtype) * torch.exp(self.lse - safe)[..., None]
        self.o, self.lse = wide.addcmul_(o.to(lse.dtype), torch.exp(lse - safe)[..., None]), together


def _is_large(lse: torch.Tensor) -> torch.Tensor:
    limit = _LARGE if lse.dtype == torch.float32 else _LARGE * 2.0**29
    return (lse.abs() >= limit) & lse.isfinite()


class Call:
    """One call of context_parallel_attention on this rank."""

    def __init__(
        self, peers: Peers, layout: Layout, transport: Transport, options: Options, functions: Functions, device: Any
    ) -> None:
        self.peers, self.layout, self.transport = peers, layout, transport
        self.tensors: List[torch.Tensor] = []  # that functions capture
        self.rounds: List[_Round] = []
        # Those with gradients first, in an order that is the same on all ranks, whatever their rounds need.
        for tensor in bind(options, functions.score_mod, functions.mask.mask_mod).captures:
            if getattr(tensor, "requires_grad", False):
                self._number(tensor)
        self.trained = len(self.tensors)
        node, nodes = layout.node, layout.nodes
        together = transport.kind == "gather"
        self.is_partial = not together
        for offsets in [tuple(range(nodes))] if together else [(offset,) for offset in range(nodes)]:
            sources = tuple(sorted((node - offset) % nodes for offset in offsets))
            targets = tuple((node + offset) % nodes for offset in offsets)
            chunks = {source: layout.needed(source, node) for source in sources}
            columns = tuple(chunk for source in sources for chunk in chunks[source])
            variant, captures = None, []
            if columns:
                mods = _placed(functions, layout.shards, layout.chunks_of(node), columns, device)
                bound = bind(options, *mods)
                variant, captures = bound.variant, [self._number(x) for x in bound.captures]
            self.rounds.append(_Round(sources, targets, chunks, variant, captures))

    def _number(self, tensor: Any) -> int:
        if not isinstance(tensor, torch.Tensor):
            raise call_error(f"expected captured tensors of PyTorch, got a {type(tensor).__name__}")
        for number, known in enumerate(self.tensors):
            if known is tensor:
                return number
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    # Heads.

    def gather_tokens(self, *tensors: torch.Tensor) -> List[torch.Tensor]:
        """(B, H, T, D) of all heads to (B, H / lanes, lanes T, D)."""
        if self.layout.lanes == 1:
            return list(tensors)
        order = self.layout.order(tensors[0].device)
        found = self._exchange(tensors, 1, 2)
        return found if order is None else [x.index_select(2, order) for x in found]

    def scatter_tokens(self, *tensors: torch.Tensor) -> List[torch.Tensor]:
        """The other way."""
        if self.layout.lanes == 1:
            return list(tensors)
        order = self.layout.order(tensors[0].device, back=True)
        return self._exchange(tensors if order is None else [x.index_select(2, order) for x in tensors], 2, 1)

    def _exchange(self, tensors: Sequence[torch.Tensor], split: int, join: int) -> List[torch.Tensor]:
        """Each member of the node gets its part along one dimension, and puts what it gets together along another."""
        layout = self.layout
        sends, receives, parts = [], [], []
        for x in tensors:
            pieces = [piece.contiguous() for piece in x.chunk(layout.lanes, split)]
            come = [pieces[layout.lane] if r == layout.rank else torch.empty_like(pieces[0]) for r in layout.members()]
            for rank, piece, place in zip(layout.members(), pieces, come):
                if rank != layout.rank:
                    sends.append(Message(rank, piece))
                    receives.append(Message(rank, place))
            parts.append(come)
        self.peers.finish(self.peers.start(sends, receives))
        return [torch.cat(come, join) for come in parts]

    # Keys and values.

    def _fetch(self, number: int, key: torch.Tensor, value: torch.Tensor) -> Tuple[Any, Dict[int, List[torch.Tensor]], Any]:
        """Begins a round's messages: what is pending, keys and values by source, and what is being sent."""
        layout, round = self.layout, self.rounds[number]
        sends, receives, parts = [], [], {}
        for target in round.targets:
            chunks = layout.needed(layout.node, target)
            if target != layout.node and chunks:
                sends += [Message(layout.rank_of(target), layout.pick(x, chunks)) for x in (key, value)]
        for source in round.sources:
            chunks = round.chunks[source]
            if source == layout.node:
                parts[source] = [layout.pick(x, chunks) if chunks else x[:, :, :0] for x in (key, value)]
                continue
            size = len(chunks) * layout.shards.chunk
            parts[source] = [x.new_empty((*x.shape[:2], size, x.shape[3])) for x in (key, value)]
            receives += [Message(layout.rank_of(source), x) for x in parts[source]]
        return self.peers.start(sends, receives), parts, sends

    def _each_round(self, key: torch.Tensor, value: torch.Tensor) -> Any:
        """(round, keys, values), those of the next one under way."""
        coming = self._fetch(0, key, value)
        for number, round in enumerate(self.rounds):
            pending, parts, _sent = coming
            self.peers.finish(pending)
            if number + 1 < len(self.rounds):
                coming = self._fetch(number + 1, key, value)
            keys, values = ([parts[source][n] for source in round.sources] for n in (0, 1))
            yield round, (x[0] if len(x) == 1 else torch.cat(x, 2) for x in (keys, values))

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        total = _Sum()
        for round, (keys, values) in self._each_round(key, value):
            if round.variant is not None:
                captures = [self.tensors[n] for n in round.captures]
                total.add(*run_forward(round.variant, [query, keys, values, *captures]))
        if total.o is None or total.lse is None:  # no query keeps a key
            wide = torch.float64 if query.dtype == torch.float64 else torch.float32
            lse = torch.full(query.shape[:3], -torch.inf, dtype=wide, device=query.device)
            return query.new_zeros((*query.shape[:3], value.shape[3])), lse
        return total.o.to(query.dtype), total.lse

    def backward(
        self, saved: Sequence[torch.Tensor], incoming: Sequence[Optional[torch.Tensor]], needs: Sequence[bool]
    ) -> List[Optional[torch.Tensor]]:
        """Gradients of query, key, value and captures; those of captures of this rank alone."""
        query, key, value, o, lse, *tensors = saved
        layout = self.layout
        wide = lse.dtype
        if self.is_partial and lse.is_cuda:
            lse = lse.masked_fill(_is_large(lse), torch.nan)
        dq = torch.zeros_like(query, dtype=wide)
        dk, dv = (torch.zeros_like(x, dtype=wide) for x in (key, value))
        captures: List[Optional[torch.Tensor]] = [
            torch.zeros_like(x, dtype=wide) if need else None for x, need in zip(tensors, needs[3:])
        ]
        returning: Any = None

        def add_returned() -> None:
            if returning is not None:
                pending, sums, _sent = returning
                self.peers.finish(pending)
                for chunks, total, part in sums:
                    layout.add(total, part, chunks)

        for round, (keys, values) in self._each_round(key, value):
            found = [None, None]
            if round.variant is not None:
                inputs = [query, keys, values, *(tensors[n] for n in round.captures)]
                wanted = [0, 1, 2, *(3 + place for place, n in enumerate(round.captures) if needs[3 + n])]
                dq_part, *found = run_backward(
                    round.variant, inputs, (o, lse), incoming, tuple(wanted), partial=self.is_partial
                )
                dq += dq_part
                for place, part in zip(wanted[3:], found[2:]):
                    total = captures[round.captures[place - 3]]
                    assert total is not None
                    total += part.reshape(total.shape)
            latest = self._return(round, found[:2], (dk, dv))
            add_returned()
            returning = latest
        add_returned()
        return [dq, dk, dv, *captures]

    def check_lse(self, lse: torch.Tensor) -> Optional[Error]:
        """What is wrong with a row whose scores are so large that weights exp(s - LSE) of a part of its keys would be off
        by more than 2^-10. On a GPU, where that would wait, backward() makes such a row NaN instead."""
        if not self.is_partial or lse.is_cuda:
            return None
        is_large = _is_large(lse)
        if not bool(is_large.any()):
            return None
        return call_error(
            f"expected rows with a log-sum-exp below {_LARGE} in size where keys go round, got "
            f"{float(lse[is_large].abs().amax()):g}: transport 'gather' or 'heads' has their gradients"
        )

    def _return(self, round: _Round, found: Sequence[Any], totals: Sequence[torch.Tensor]) -> Any:
        """Begins to send gradients of a round's keys and values to where they lie: what is pending, what is to be added
        then, and what is being sent."""
        layout, size = self.layout, self.layout.shards.chunk
        sends, receives, sums, at = [], [], [], 0
        for source in round.sources:
            count = len(round.chunks[source]) * size
            if count:
                parts = [x[:, :, at : at + count] for x in found]
                at += count
                if source == layout.node:
                    sums += [(round.chunks[source], total, part) for total, part in zip(totals, parts)]
                else:
                    sends += [Message(layout.rank_of(source), part.contiguous()) for part in parts]
        for target in round.targets:
            chunks = layout.needed(layout.node, target)
            if target != layout.node and chunks:
                for total in totals:
                    shape = (*total.shape[:2], len(chunks) * size, total.shape[3])
                    part = total.new_empty(shape, dtype=self.dtype)
                    receives.append(Message(layout.rank_of(target), part))
                    sums.append((chunks, total, part))
        return self.peers.start(sends, receives), sums, sends

    dtype: torch.dtype = torch.float32  # of the tensors


class Attend(torch.autograd.Function):
    """`call`, and the seconds to wait for ranks; then query, key, value and what functions capture."""

    @staticmethod
    def forward(ctx: Any, call: Call, timeout: float, query: Any, key: Any, value: Any, *tensors: Any) -> Any:
        query, key, value = call.gather_tokens(query, key, value)
        call.dtype = query.dtype
        o, lse = call.forward(query, key, value)
        ctx.call, ctx.timeout = call, timeout
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(query, key, value, o, lse, *tensors)
        o, wide = call.scatter_tokens(o, lse[..., None])
        return o, wide[..., 0]

    @staticmethod
    def backward(ctx: Any, do: Optional[torch.Tensor], dlse: Optional[torch.Tensor]) -> Any:
        if torch.is_grad_enabled():
            raise Error("attnc has no gradients of gradients over several ranks: expected no create_graph")
        call, saved = ctx.call, ctx.saved_tensors
        needs = ctx.needs_input_grad[2:]
        has = f"dO {do is not None}, dLSE {dlse is not None}, wanted {needs[: 3 + call.trained]}"
        problem = call.check_lse(saved[4])
        call.peers.agree(f"backward: {has}", problem, ctx.timeout, saved[0].device)
        nothing: List[Optional[torch.Tensor]] = [None] * len(ctx.needs_input_grad)
        if do is None and dlse is None:
            return tuple(nothing)
        if do is not None:
            (do,) = call.gather_tokens(do)
        if dlse is not None:
            dlse = call.gather_tokens(dlse[..., None])[0][..., 0]
        found = call.backward(saved, (do, dlse), needs)
        dq, dk, dv = call.scatter_tokens(*(x.to(call.dtype) for x in found[:3]))
        for place, (x, need) in enumerate(zip((dq, dk, dv), needs)):
            nothing[2 + place] = x if need else None
        for place, (x, tensor) in enumerate(zip(found[3:], saved[5:])):
            if x is not None:
                nothing[5 + place] = call.peers.add_up(x).to(tensor.dtype)
        return tuple(nothing)
