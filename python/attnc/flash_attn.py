# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that stand in for those of the package flash_attn, with their signatures, defaults and semantics.

    from attnc.flash_attn import flash_attn_func, flash_attn_varlen_func

Causal masks and windows are aligned at the bottom right. A query without keys gives 0. Dropout is theirs in
distribution, by other random numbers. The calls behind them are attnc.attention's and attnc.varlen_attention's.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import torch

from ._attention import attention
from ._errors import call_error
from ._varlen import varlen_attention

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
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
    """q (Tq, Hq, D), k and v (Tk, Hkv, D), to (Tq, Hq, D). The greatest lengths bound nothing here and are not read.
    return_attn_probs and block_table are refused."""
    if block_table is not None:
        raise call_error("expected block_table=None: keys in pages are not supported")
    settings = _settings(dropout_p, softmax_scale, causal, window_size, deterministic, return_attn_probs)
    ahead = cu_seqlens_k.diff() - cu_seqlens_q.diff() if alibi_slopes is not None else None
    score = _score(softcap, alibi_slopes, q.shape[1], lambda b, i: i + ahead[b])
    return varlen_attention(q, k, v, cu_seqlens_q, cu_seqlens_k, score_mod=score, **settings)


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
