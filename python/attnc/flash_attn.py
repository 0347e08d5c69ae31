# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that stand in for those of the package flash_attn, with their signatures, defaults and semantics.

    from attnc.flash_attn import flash_attn_func, flash_attn_varlen_func

Causal masks and windows are aligned at the bottom right. A query without keys gives 0. Dropout is theirs in
distribution, by other random numbers. The calls behind them are attnc.attention's and attnc.varlen_attention's.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Optional, Tuple

import torch

from ._attention import attention
from ._errors import call_error
from ._paged import append_kv, paged_attention, rotary
from ._varlen import varlen_attention

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]


def _settings(
    dropout_p: float,
    softmax_scale: Optional[float],
    causal: bool,
    window_size: Tuple[int, int],
    deterministic: bool,
    return_attn_probs: bool,
) -> dict:
    if return_attn_probs:
        raise call_error(
            "expected return_attn_probs=False: weights are never in memory (attnc.attention and attnc.varlen_attention "
            "return the LSE with return_lse=True)"
        )
    return dict(
        dropout_p=dropout_p,
        scale=softmax_scale,
        is_causal=causal,
        causal_alignment="bottom_right",
        window=tuple(window_size),
        deterministic=deterministic,
        enable_gqa=True,
    )


def _score(softcap: float, slopes: Optional[torch.Tensor], heads: int, place: Callable) -> Optional[Callable]:
    """`place(b, i)`: the key that query i is aligned with."""
    if slopes is not None and (slopes.dim() not in (1, 2) or slopes.shape[-1] != heads):
        raise call_error(f"expected alibi_slopes of shape ({heads},) or (batch, {heads}), got {tuple(slopes.shape)}")
    if softcap < 0:
        raise call_error(f"expected a softcap of at least 0, got {softcap}")
    if not softcap and slopes is None:
        return None
    by_batch = slopes is not None and slopes.dim() == 2
    has_slopes, cap = slopes is not None, float(softcap)

    def score(s: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        if cap:
            s = cap * torch.tanh(s / cap)
        if has_slopes:
            slope = slopes[b, h] if by_batch else slopes[h]
            s = s - slope * (place(b, q_idx) - kv_idx).abs()
        return s

    return score


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[torch.Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> torch.Tensor:
    """q (B, Sq, Hq, D), k and v (B, Sk, Hkv, D), to (B, Sq, Hq, D). alibi_slopes are float32, (Hq,) or (B, Hq).
    return_attn_probs is refused."""
    settings = _settings(dropout_p, softmax_scale, causal, window_size, deterministic, return_attn_probs)
    ahead = k.shape[1] - q.shape[1]
    score = _score(softcap, alibi_slopes, q.shape[2], lambda b, i: i + ahead)
    return attention(q, k, v, score_mod=score, layout="bshd", **settings)


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[torch.Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """q (Tq, Hq, D), k and v (Tk, Hkv, D), to (Tq, Hq, D); with block_table (sequences, pages), int32, k and v are pools
    (pages, rows of a page, Hkv, D), without gradients. Without pages the greatest lengths bound nothing and are not read;
    with them tokens of a sequence behind max_seqlen_q are left out. return_attn_probs is refused, with block_table
    dropout too."""
    settings = _settings(dropout_p, softmax_scale, causal, window_size, deterministic, return_attn_probs)
    lengths = cu_seqlens_k.diff() if alibi_slopes is not None or block_table is not None else None
    ahead = lengths - cu_seqlens_q.diff() if alibi_slopes is not None else None
    score = _score(softcap, alibi_slopes, q.shape[1], lambda b, i: i + ahead[b])
    if block_table is not None:
        del settings["deterministic"]  # a forward always is
        if settings.pop("dropout_p"):
            raise call_error("expected dropout_p=0 with block_table: keys in pages are for inference")
        packed = dict(cu_seqlens_q=cu_seqlens_q, max_seqlen_q=int(max_seqlen_q))
        return paged_attention(q, k, v, block_table, lengths, score_mod=score, **packed, **settings)
    return varlen_attention(q, k, v, cu_seqlens_q, cu_seqlens_k, score_mod=score, **settings)


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: Optional[torch.Tensor] = None,
    v: Optional[torch.Tensor] = None,
    rotary_cos: Optional[torch.Tensor] = None,
    rotary_sin: Optional[torch.Tensor] = None,
    cache_seqlens: int | torch.Tensor | None = None,
    cache_batch_idx: Optional[torch.Tensor] = None,
    cache_leftpad: Optional[torch.Tensor] = None,
    block_table: Optional[torch.Tensor] = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Optional[torch.Tensor] = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """q (B, Sq, Hq, D) over a cache (B, S, Hkv, D), or with block_table (B, pages of a sequence), int32, over pools (pages,
    rows of a page, Hkv, D) with any number of rows, to (B, Sq, Hq, D), and the LSE (B, Hq, Sq).

    k and v (B, Snew, Hkv, D) are written behind the cache_seqlens rows that a sequence has, in place; k, and q too, are
    rotated before by rotary_cos and rotary_sin (positions, R): rows at their positions, queries from cache_seqlens on
    with a causal mask or window, else all at cache_seqlens. cache_batch_idx (B) names the rows of the cache (without
    pages), cache_leftpad (B) the first key that counts. The length of the cache may be an integer; None is all of it, without
    k. num_splits: as of attnc.paged_attention. No gradients.
    """
    batch, count = q.shape[:2]
    if block_table is None:
        pools, block_table = _pages_of_cache(k_cache, v_cache, cache_batch_idx, batch)
    elif cache_batch_idx is not None:
        raise call_error("expected cache_batch_idx=None with block_table, whose rows are those of the batch")
    else:
        pools = k_cache, v_cache
    if (k is None) != (v is None):
        raise call_error("expected k and v, or neither")
    space = block_table.shape[1] * pools[0].shape[1]
    if cache_seqlens is None:
        if k is not None:
            raise call_error("expected cache_seqlens with k and v")
        cache_seqlens = space
    if isinstance(cache_seqlens, int):
        cache_seqlens = torch.full((batch,), cache_seqlens, dtype=torch.int32, device=q.device)
    used = cache_seqlens
    if (rotary_cos is None) != (rotary_sin is None) or (rotary_cos is not None and k is None):
        raise call_error("expected rotary_cos and rotary_sin together, with k and v")
    left, right = window_size
    if k is not None:
        if rotary_cos is not None:
            step = torch.arange(max(count, k.shape[1]), device=q.device)
            place = used[:, None].to(torch.int64) + step
            k = rotary(k, rotary_cos, rotary_sin, place[:, : k.shape[1]], rotary_interleaved)
            moves = causal or left >= 0 or right >= 0
            q_place = place[:, :count] if moves else place[:, :1].expand(batch, count)
            q = rotary(q, rotary_cos, rotary_sin, q_place, rotary_interleaved)
        append_kv(k, v, *pools, block_table, used, layout="bshd")
        used = used + k.shape[1]
    ahead = used - count if alibi_slopes is not None else None
    score = _score(softcap, alibi_slopes, q.shape[2], lambda b, i: i + ahead[b])
    mask = None
    if cache_leftpad is not None:
        mask = lambda b, h, q_idx, kv_idx: kv_idx >= cache_leftpad[b]
    return paged_attention(
        q,
        *pools,
        block_table,
        used,
        score_mod=score,
        mask_mod=mask,
        is_causal=causal,
        window=(int(left), int(right)),
        scale=softmax_scale,
        enable_gqa=True,
        return_lse=return_softmax_lse,
        num_splits=num_splits,
        layout="bshd",
    )


# Rows of a page of a cache without pages: a divisor of its length.
_ROWS_OF_CACHE = 64


def _pages_of_cache(
    k_cache: torch.Tensor, v_cache: torch.Tensor, batch_index: Optional[torch.Tensor], batch: int
) -> Tuple[Tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A cache (B, S, H, D) as pools of pages, views of it, and the table."""
    sequences, length = k_cache.shape[:2]
    rows = math.gcd(length, _ROWS_OF_CACHE)
    if any(x.stride(0) != length * x.stride(1) for x in (k_cache, v_cache)):
        rows = length  # sequences do not follow each other: each is a page
    pools = tuple(x.unflatten(1, (length // max(rows, 1), rows)).flatten(0, 1) for x in (k_cache, v_cache))
    entries = length // max(rows, 1)
    if batch_index is None:
        if sequences != batch:
            raise call_error(f"expected a cache of {batch} sequences, as q has, or cache_batch_idx; got {sequences}")
        batch_index = torch.arange(batch, dtype=torch.int32, device=k_cache.device)
    table = batch_index[:, None] * entries + torch.arange(entries, dtype=torch.int32, device=k_cache.device)
    return pools, table.to(torch.int32)


def flash_attn_qkvpacked_func(qkv: torch.Tensor, *arguments: Any, **keywords: Any) -> torch.Tensor:
    """flash_attn_func of qkv (B, S, 3, H, D)."""
    return flash_attn_func(*qkv.unbind(2), *arguments, **keywords)


def flash_attn_kvpacked_func(q: torch.Tensor, kv: torch.Tensor, *arguments: Any, **keywords: Any) -> torch.Tensor:
    """flash_attn_func of q (B, Sq, Hq, D) and kv (B, Sk, 2, Hkv, D)."""
    return flash_attn_func(q, *kv.unbind(2), *arguments, **keywords)


def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: int, *arguments: Any, **keywords: Any
) -> torch.Tensor:
    """flash_attn_varlen_func of qkv (T, 3, H, D)."""
    lengths = cu_seqlens, cu_seqlens, max_seqlen, max_seqlen
    return flash_attn_varlen_func(*qkv.unbind(1), *lengths, *arguments, **keywords)


def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *arguments: Any,
    **keywords: Any,
) -> torch.Tensor:
    """flash_attn_varlen_func of q (Tq, Hq, D) and kv (Tk, 2, Hkv, D)."""
    lengths = cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
    return flash_attn_varlen_func(q, *kv.unbind(1), *lengths, *arguments, **keywords)
