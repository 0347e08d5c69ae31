# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keys and values in pages: attention over them, and appending to them."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import torch

from ._attention import LAYOUTS, check_alignment, check_kind, flag_of, scale_of, window_of
from ._errors import call_error
from ._torch import attention
from ._variant import MOST_FEW_QUERIES
from ._varlen import check_integers, check_offsets

POOL_LAYOUTS = ("nhd", "hnd")


def pool_of(name: str, pool: Any, layout: str) -> torch.Tensor:
    """A pool as (pages, heads, rows, d)."""
    if layout not in POOL_LAYOUTS:
        raise call_error(f"expected pool_layout 'nhd' or 'hnd', got {layout!r}")
    if not isinstance(pool, torch.Tensor):
        raise call_error(f"expected {name} to be a tensor of PyTorch, got a {type(pool).__name__}")
    check_kind(name, pool)
    if pool.dim() != 4 or pool.shape[1 if layout == "nhd" else 2] == 0:
        shape = "(pages, rows, heads, d)" if layout == "nhd" else "(pages, heads, rows, d)"
        raise call_error(f"expected {name} of shape {shape} with rows in a page, got {tuple(pool.shape)}")
    return pool.transpose(1, 2) if layout == "nhd" else pool


def check_table(table: Any, sequences: int, tokens: torch.Tensor) -> None:
    if not isinstance(table, torch.Tensor):
        raise call_error(f"expected block_table to be a tensor of PyTorch, got a {type(table).__name__}")
    check_kind("block_table", table)
    if table.dim() != 2 or table.shape[0] != sequences or table.dtype != torch.int32:
        found = f"{table.dtype} of shape {tuple(table.shape)}"
        raise call_error(f"expected block_table to be int32 of shape ({sequences}, pages of a sequence), got {found}")
    if table.device != tokens.device:
        raise call_error(f"expected block_table on {tokens.device}, got {table.device}")


def check_pages(table: torch.Tensor, lengths: torch.Tensor, pages: int, rows: int) -> None:
    """On the CPU, where that waits for nothing: what sequences use lies in the pool."""
    if not table.is_cpu or torch.compiler.is_compiling():
        return
    longest = int(lengths.max()) if len(lengths) else 0
    if longest > table.shape[1] * rows:
        raise call_error(
            f"expected lengths of at most {table.shape[1] * rows}, which {table.shape[1]} pages of {rows} rows hold, got {longest}"
        )
    used = torch.arange(table.shape[1])[None] * rows < lengths[:, None]
    wrong = used & ((table < 0) | (table >= pages))
    if bool(wrong.any()):
        sequence, entry = (int(n) for n in wrong.nonzero()[0])
        raise call_error(
            f"expected pages from 0 to {pages - 1}, got {int(table[sequence, entry])} in block_table[{sequence}, {entry}]"
        )


def paged_attention(
    query: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    block_table: torch.Tensor,
    seqused_k: torch.Tensor,
    *,
    cu_seqlens_q: Optional[torch.Tensor] = None,
    max_seqlen_q: Optional[int] = None,
    score_mod: Optional[Callable] = None,
    mask_mod: Optional[Callable] = None,
    is_causal: bool = False,
    causal_alignment: str = "bottom_right",
    window: Optional[Tuple[int, int]] = None,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    precision: str = "ieee",
    num_splits: int = 0,
    batch_invariant: bool = False,
    layout: str = "bhsd",
    pool_layout: str = "nhd",
) -> Any:
    """attnc.attention of queries over keys and values that lie in pages of a pool.

    query: (B, Hq, Sq, D), with layout="bshd" (B, Sq, Hq, D); with cu_seqlens_q the tokens of all sequences one behind the
        other, (Tq, Hq, D). Tensors of PyTorch.
    key_pool, value_pool: (pages, rows, Hkv, D) and (pages, rows, Hkv, Dv); with pool_layout="hnd" the heads stand in front
        of the rows. Any number of rows of a page, of which code is a function; any strides.
    block_table: int32, (B, T): row j of sequence b lies in page block_table[b, j // rows], at j % rows. Entries behind the
        last used page of a sequence, and rows behind its last one, may hold anything: neither is read.
    seqused_k: int32 or int64, (B): how many rows of each sequence there are, at most T * rows.
    cu_seqlens_q, max_seqlen_q: offsets (B + 1) of the sequences among the tokens of the query, and a bound of their
        lengths: a sequence's tokens behind that many give zeros and an LSE of -inf.
    score_mod, mask_mod: as for attnc.attention, with positions in the sequence.
    is_causal, causal_alignment, window: by each sequence's lengths. "bottom_right", the default here, is of a cache that has
        the keys of the queries at its end: j <= i + keys - queries.
    return_lse: also returns the LSE, (B, Hq, Sq), of packed queries (Hq, Tq); -inf for a query without keys.
    num_splits: into how many parts the keys of each sequence are divided, which different workers compute; 0 for what the
        sizes ask for, which do not tell lengths: of a batch whose lengths differ much, 4 to 8 parts are better balanced.
    batch_invariant: a query's bits do not depend on what else is in the call: the batch, other queries of its sequence (a
        prompt at once, in pieces, or token by token), entries of the table behind its length. Its keys are then summed by one
        worker, in their order: with few sequences on a GPU that takes longer.
    Others: as for attnc.attention.

    Table, lengths and offsets are on the device of the query and read when the kernels run: nothing waits for them, and a
    captured CUDA graph reads them anew. On the CPU pages that are no pages of the pool are an error; on a GPU used
    entries have to be right. There are no gradients: where one would be needed is an error.

    Returns the output, as the query lies, or with return_lse a pair. Raises Error.

    Source: Kwon et al., Efficient Memory Management for Large Language Model Serving with PagedAttention (2023).
    """
    if layout not in LAYOUTS:
        raise call_error(f"expected layout 'bhsd' or 'bshd', got {layout!r}")
    if not isinstance(query, torch.Tensor):
        raise call_error(f"expected query to be a tensor of PyTorch, got a {type(query).__name__}")
    check_kind("query", query)
    key, value = pool_of("key_pool", key_pool, pool_layout), pool_of("value_pool", value_pool, pool_layout)
    if key.shape[:3] != value.shape[:3]:
        found = f"{tuple(key_pool.shape)} and {tuple(value_pool.shape)}"
        raise call_error(f"expected key_pool and value_pool with the same pages, heads and rows, got {found}")
    if torch.is_grad_enabled() and any(x.requires_grad for x in (query, key_pool, value_pool)):
        raise call_error("attention over pages has no gradients: call it under torch.no_grad(), or with tensors detached")
    check_alignment(causal_alignment)
    if type(num_splits) is not int or num_splits < 0:
        raise call_error(f"expected num_splits to be an integer of at least 0, got {num_splits!r}")
    few = True
    if batch_invariant:
        if num_splits > 1:
            raise call_error(f"expected num_splits of 0 or 1 with batch_invariant, got {num_splits}")
        num_splits = 1
        # Tiles of few queries have as many keys as those of many for products of 16-bit elements on GPUs alone.
        few = query.is_cuda and query.element_size() == 2
    is_packed = cu_seqlens_q is not None
    if query.dim() != (3 if is_packed else 4):
        shape = "(tokens, heads, d)" if is_packed else "of 4 dimensions"
        raise call_error(f"expected a query {shape}, got {tuple(query.shape)}")
    if is_packed:
        check_offsets("cu_seqlens_q", cu_seqlens_q, query)
        if type(max_seqlen_q) is not int or max_seqlen_q < 0:
            raise call_error(f"expected max_seqlen_q, an integer of at least 0, with cu_seqlens_q, got {max_seqlen_q!r}")
        sequences = cu_seqlens_q.shape[0] - 1
    else:
        if max_seqlen_q is not None:
            raise call_error("expected max_seqlen_q with cu_seqlens_q only")
        query = query.transpose(1, 2) if layout == "bshd" else query
        sequences = query.shape[0]
    check_table(block_table, sequences, query)
    check_integers("seqused_k", seqused_k, sequences, f"{sequences},", query)
    check_pages(block_table, seqused_k, key.shape[0], key.shape[2])
    left, right = (-1, -1) if window is None else window_of(window)
    if flag_of(is_causal):
        right = 0 if right < 0 else min(right, 0)
    scale = None if scale is None else scale_of(scale)
    used = seqused_k.to(torch.int32)
    packed = None
    if is_packed:
        packed = PackedQueries(cu_seqlens_q, query, max_seqlen_q)
        query = packed.apart(query)
    queries = query.shape[2]
    if packed is None and queries == 1 and right == 0 and causal_alignment == "bottom_right":
        right = -1  # the last key is the last one that there is
    aligned = (left >= 0 or right >= 0) and causal_alignment == "bottom_right"
    ahead = None
    if aligned and (packed is not None or not 0 < queries <= MOST_FEW_QUERIES):
        ahead = used - (queries if packed is None else packed.lengths)
    mask = _mask(used, ahead, queries if aligned else 0, None if packed is None else packed.lengths, left, right, mask_mod)
    settings = False, "top_left", None, scale, False, precision, 0.0
    o, lse = attention(
        query, key, value, settings, score_mod, mask, enable_gqa, True, pages=(block_table, used), parts=num_splits, few=few
    )
    if packed is not None:
        o, lse = packed.together(o, 0), packed.together(lse.unsqueeze(-1), -torch.inf).squeeze(-1).transpose(0, 1)
    elif layout == "bshd":
        o = o.transpose(1, 2)
    return (o, lse) if return_lse else o


def append_kv(
    key: torch.Tensor,
    value: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    block_table: torch.Tensor,
    seqused_k: torch.Tensor,
    *,
    layout: str = "bhsd",
    pool_layout: str = "nhd",
) -> None:
    """Writes new keys and values behind the rows that sequences have in their pages, in place.

    key, value: (B, Hkv, S, D) and (B, Hkv, S, Dv), with layout="bshd" (B, S, Hkv, D), in the type of the pools: row i of
        sequence b becomes its row seqused_k[b] + i.
    key_pool, value_pool, block_table, pool_layout: as of paged_attention. The table has pages for the new rows.
    seqused_k: int32 or int64, (B): the rows that there are before; it is not changed.

    By operations of PyTorch that wait for nothing, in a CUDA graph too. On the CPU pages that are none of the pool, or that
    the table has not, are an error. Raises Error.
    """
    if layout not in LAYOUTS:
        raise call_error(f"expected layout 'bhsd' or 'bshd', got {layout!r}")
    pools = pool_of("key_pool", key_pool, pool_layout), pool_of("value_pool", value_pool, pool_layout)
    for name, x, pool in (("key", key, pools[0]), ("value", value, pools[1])):
        if not isinstance(x, torch.Tensor) or x.dim() != 4 or x.dtype != pool.dtype:
            found = f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, torch.Tensor) else f"a {type(x).__name__}"
            raise call_error(f"expected {name} to have 4 dimensions and to be {pool.dtype} as its pool, got {found}")
    if layout == "bhsd":
        key, value = key.transpose(1, 2), value.transpose(1, 2)
    sequences, new = key.shape[:2]
    for name, x, pool in (("key", key, pools[0]), ("value", value, pools[1])):
        wanted = (sequences, new, pool.shape[1], pool.shape[3])
        if tuple(x.shape) != wanted:
            raise call_error(f"expected {name} of (batch, rows, heads, d) {wanted}, got {tuple(x.shape)}")
    check_table(block_table, sequences, key)
    check_integers("seqused_k", seqused_k, sequences, f"{sequences},", key)
    rows = pools[0].shape[2]
    check_pages(block_table, seqused_k + new, pools[0].shape[0], rows)
    place = seqused_k.to(torch.int64)[:, None] + torch.arange(new, device=key.device)
    page = block_table.gather(1, place // rows).to(torch.int64)
    for x, pool in ((key, pools[0]), (value, pools[1])):
        pool.transpose(1, 2)[page, place % rows] = x


def rotary(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor, interleaved: bool
) -> torch.Tensor:
    """Rotary position embedding of x (B, S, H, D) at `positions` (B, S): pairs of the first 2 R columns are rotated by the
    angles whose cosines and sines are (positions, R); neighbours with `interleaved`, else halves. Computed in float32.

    Source: Su et al., RoFormer (2021), equation 34.
    """
    columns = cos.shape[-1]
    cos, sin = (t[positions][:, :, None].float() for t in (cos, sin))
    turned = x[..., : 2 * columns].float()
    shape = (columns, 2) if interleaved else (2, columns)
    a, b = turned.unflatten(-1, shape).unbind(-1 if interleaved else -2)
    turned = torch.stack((a * cos - b * sin, a * sin + b * cos), -1 if interleaved else -2).flatten(-2)
    return torch.cat((turned.to(x.dtype), x[..., 2 * columns :]), -1)


class PackedQueries:
    """Tokens of sequences one behind the other, as a batch in which each has the room of the longest."""

    def __init__(self, offsets: torch.Tensor, tokens: torch.Tensor, most: int) -> None:
        self.most, self.sequences, self.count = most, offsets.shape[0] - 1, tokens.shape[0]
        offsets = offsets.to(torch.int64)
        self.first = offsets[:-1]
        self.lengths = offsets.diff().clamp(max=most).to(torch.int32)
        self.end = offsets[-1:]
        token = torch.arange(self.count, device=tokens.device)
        sequence = torch.bucketize(token, offsets[1:], right=True)
        self.sequence = sequence.clamp(max=max(self.sequences - 1, 0))
        self.place = token - self.first[self.sequence] if self.sequences else token
        self.is_used = (token < self.end) & (self.place < most)

    def apart(self, tokens: torch.Tensor) -> torch.Tensor:
        """(tokens, heads, d) as (sequences, heads, most, d); rows behind a sequence's last one are those of others."""
        if not self.count:
            return tokens.new_zeros(self.sequences, self.most, *tokens.shape[1:]).transpose(1, 2)
        place = self.first[:, None] + torch.arange(self.most, device=tokens.device)
        return tokens[place.clamp(max=self.count - 1)].transpose(1, 2)

    def together(self, x: torch.Tensor, empty: float) -> torch.Tensor:
        """(sequences, heads, most, d) as (tokens, heads, d), `empty` where no sequence has the token."""
        if not x.numel():
            return x.new_full((self.count, x.shape[1], x.shape[3]), empty)
        found = x[self.sequence, :, self.place.clamp(max=self.most - 1)]
        return torch.where(self.is_used[:, None, None], found, empty)


def _mask(
    used: torch.Tensor,
    ahead: Optional[torch.Tensor],
    queries: int,
    lengths: Optional[torch.Tensor],
    left: int,
    right: int,
    function: Optional[Callable],
) -> Callable:
    """Keys that there are, queries that there are (`lengths`), the window around the diagonal: `ahead`, or used less
    `queries` where that is None."""

    def keep(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        count = used[b]
        kept = kv_idx < count
        if lengths is not None:
            kept = kept & (q_idx < lengths[b])
        if left >= 0 or right >= 0:
            place = q_idx
            if ahead is not None:
                place = q_idx + ahead[b]
            elif queries:
                place = (q_idx - queries) + count
            if left >= 0:
                kept = kept & (kv_idx >= place - left)
            if right >= 0:
                kept = kept & (kv_idx <= place + right)
        if function is not None:
            kept = kept & function(b, h, q_idx, kv_idx)
        return kept

    return keep
