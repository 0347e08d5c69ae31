# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The mask that a BlockMask of FlexAttention stands for.

A pair counts if its block is listed among the full ones, or among the partial ones and the mask
function says so. Where the lists are what the mask function alone gives, as those that
create_block_mask makes, the function is all that the compiler needs: it finds the tiles by itself,
without tables. That is proved once per BlockMask, by evaluating the function for all pairs.
"""

from __future__ import annotations

import re
from typing import Any, Callable, List, Optional, Tuple

import torch

from ._functions import call_for_trace, function_key
from ._trace import Trace, trace_region

ABSENT, PARTIAL, FULL = 0, 1, 2
# Pairs that the function is evaluated for at a time; and for which that is not done any more.
_CHUNK, _MOST = 2**26, 2**38


def _listed(counts: torch.Tensor, indices: torch.Tensor, columns: int) -> torch.Tensor:
    """(..., rows, columns): whether a block is one of the first `counts` of its row's indices."""
    place = torch.arange(indices.shape[-1], device=indices.device)
    # What a row does not list goes to a column that is cut off.
    index = torch.where(place < counts[..., None], indices, columns).to(torch.int64)
    table = torch.zeros((*indices.shape[:-1], columns + 1), dtype=torch.bool, device=indices.device)
    return table.scatter(-1, index, torch.ones_like(index, dtype=torch.bool))[..., :columns]


def block_states(block_mask: Any) -> torch.Tensor:
    """(B, H, rows, columns), int8: ABSENT, PARTIAL or FULL for each block. Nothing is copied to the host."""
    columns = -(-block_mask.seq_lengths[1] // block_mask.BLOCK_SIZE[1])
    columns = max(columns, block_mask.kv_indices.shape[-1])
    states = _listed(block_mask.kv_num_blocks, block_mask.kv_indices, columns).to(torch.int8)
    if block_mask.full_kv_num_blocks is not None:
        full = _listed(block_mask.full_kv_num_blocks, block_mask.full_kv_indices, columns)
        states = torch.where(full, torch.full_like(states, FULL), states)
    while states.dim() < 4:
        states = states[None]
    return states


class _Function:
    """What the tracer finds of a mask function."""

    def __init__(self, mask_mod: Callable) -> None:
        trace = Trace("f32")
        region = trace_region(trace, "mask", lambda *indices: call_for_trace(mask_mod, indices), mask_mod)
        words = set(re.findall(r"%\w+", " ".join((*region.lines, region.result))))
        self.reads_batch, self.reads_head = "%b" in words, "%h" in words
        self.tensors = [capture.tensor for capture in trace.captures]

    def is_shared(self, states: torch.Tensor) -> bool:
        """Whether it is the same for all batches, and all heads, that one state stands for."""
        return not (states.shape[0] == 1 and self.reads_batch) and not (states.shape[1] == 1 and self.reads_head)


def _versions(block_mask: Any, mask_mod: Optional[Callable], function: Optional[_Function]) -> Tuple:
    """What changes where a tensor is written to in place, or the function is another one or reaches something
    else than before."""
    lists = [block_mask.kv_num_blocks, block_mask.kv_indices, block_mask.full_kv_num_blocks, block_mask.full_kv_indices]
    reached: List[Any] = []
    key = mask_mod, function_key(mask_mod, reached)
    tensors = [x for x in (*lists, *reached, *(function.tensors if function else ())) if isinstance(x, torch.Tensor)]
    return key, tuple((id(x), x._version) for x in tensors)


def _agrees(block_mask: Any, mask_mod: Callable, function: _Function, states: torch.Tensor) -> bool:
    """Whether the blocks follow from the function: no pair of an absent block is kept, all of a full one
    are."""
    from torch.nn.attention.flex_attention import _vmap_for_bhqkv

    rows, columns = block_mask.BLOCK_SIZE
    s, t = block_mask.seq_lengths
    b, h = states.shape[:2]
    if not 0 < b * h * s * t <= _MOST or not function.is_shared(states):
        return False
    device = states.device
    mask = _vmap_for_bhqkv(mask_mod, prefix=())
    index = lambda start, end: torch.arange(start, end, device=device)
    keys = index(0, t)
    step = max(1, _CHUNK // (b * h * t * rows)) * rows
    fits = torch.ones((), dtype=torch.bool, device=device)
    for start in range(0, s, step):
        queries = index(start, min(start + step, s))
        kept = mask(index(0, b), index(0, h), queries, keys).expand(b, h, len(queries), t)
        state = states[:, :, queries // rows][..., keys // columns]
        fits &= torch.where(kept, state != ABSENT, state != FULL).all()
    return bool(fits)


def _by_blocks(states: torch.Tensor, block_mask: Any, mask_mod: Optional[Callable]) -> Callable:
    rows, columns = block_mask.BLOCK_SIZE
    # Sizes of 1 are shared by all batches or heads.
    one_batch, one_head = states.shape[0] == 1, states.shape[1] == 1

    def mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        state = states[0 if one_batch else b, 0 if one_head else h, q_idx // rows, kv_idx // columns]
        if mask_mod is None:
            return state > ABSENT
        return (state == FULL) | ((state == PARTIAL) & mask_mod(b, h, q_idx, kv_idx))

    return mask


def mask_of_blocks(block_mask: Any, mask_mod: Optional[Callable]) -> Optional[Callable]:
    """The mask of a BlockMask, whose function is `mask_mod`, or None where it has none; None if all pairs count.

    What is proved of a BlockMask stays with it until its function is another one, or reaches other numbers or
    tensors, or a tensor of it, or of its function, is written to.
    Under torch.compile nothing can be proved: there its blocks are read, unless an earlier call has
    found that they need not be."""
    known = getattr(block_mask, "_attnc_mask", None)
    if torch.compiler.is_compiling():
        if known is not None and known[1] and known[2][0][0] is mask_mod:
            return mask_mod
        return _by_blocks(block_states(block_mask), block_mask, mask_mod)
    if known is not None and known[2] == _versions(block_mask, mask_mod, known[3]):
        return known[0]
    states = block_states(block_mask)
    function = None if mask_mod is None else _Function(mask_mod)
    if mask_mod is None:
        follows = bool((states > ABSENT).all())
    else:
        follows = _agrees(block_mask, mask_mod, function, states)
    mask = mask_mod if follows else _by_blocks(states, block_mask, mask_mod)
    block_mask._attnc_mask = (mask, follows, _versions(block_mask, mask_mod, function), function)
    return mask
