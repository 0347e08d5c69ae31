# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What stands in for FlashInfer's decoding without a plan, with its signature, defaults and semantics.

    from attnc.flashinfer import trtllm_batch_decode_with_kv_cache
"""

from __future__ import annotations

import math
from typing import Any, Optional, Tuple

import torch

from ._errors import call_error
from ._merge import with_sinks
from ._paged import paged_attention

__all__ = ["trtllm_batch_decode_with_kv_cache"]


def trtllm_batch_decode_with_kv_cache(
    query: torch.Tensor,
    kv_cache: torch.Tensor | Tuple[torch.Tensor, torch.Tensor],
    workspace_buffer: Optional[torch.Tensor],
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    max_seq_len: int,
    bmm1_scale: float | torch.Tensor = 1.0,
    bmm2_scale: float | torch.Tensor = 1.0,
    window_left: int = -1,
    out: Optional[torch.Tensor] = None,
    out_dtype: Optional[torch.dtype] = None,
    o_sf_scale: Optional[float] = None,
    o_sf_vec_size: Optional[int] = None,
    sinks: Any = None,
    kv_layout: str = "HND",
    enable_pdl: Optional[bool] = None,
    backend: str = "auto",
    q_len_per_req: Optional[int] = 1,
    o_scale: Optional[float] = 1.0,
    mask: Optional[torch.Tensor] = None,
    max_q_len: Optional[int] = None,
    cum_seq_lens_q: Optional[torch.Tensor] = None,
    skip_softmax_threshold_scale_factor: Optional[float] = None,
    kv_cache_sf: Any = None,
    uses_shared_paged_kv_idx: bool = True,
    lse: Optional[torch.Tensor] = None,
    return_lse: bool = False,
    bmm1_scale_log2: Optional[torch.Tensor] = None,
    multi_ctas_kv_counter_buffer: Optional[torch.Tensor] = None,
    enable_block_sparse_attention: bool = False,
    bf16q_fp8kv_transform_mode: Optional[str] = None,
) -> Any:
    """query (tokens, H, D) over keys and values in pages, (pages, Hkv, rows, D) each or together as (pages, 1 or 2, Hkv,
    rows, D), of kv_layout "NHD" with rows in front of the heads, to (tokens, H, D).

    block_tables (batch, pages of a sequence), int32; seq_lens (batch): the rows of each sequence, those of the queries among
    them. The last query of a sequence sees all keys, those before it one less each; window_left keys in front of its
    own, -1 for all. A sequence has q_len_per_req queries, or, with cum_seq_lens_q (batch + 1) and max_q_len, its own number.
    Scores are multiplied by bmm1_scale, the output by bmm2_scale; sinks are float32, one per head. `out` and `lse` are written
    in place; the LSE is to the base 2, (tokens, H), as FlashInfer's states are.

    Read by nobody: workspace_buffer and multi_ctas_kv_counter_buffer (nothing is kept in them), max_seq_len (it bounds nothing),
    enable_pdl. Everything else that is not at its default is refused by name. Raises Error.
    """
    refused = dict(
        o_sf_scale=o_sf_scale, o_sf_vec_size=o_sf_vec_size, mask=mask, kv_cache_sf=kv_cache_sf, bmm1_scale_log2=bmm1_scale_log2,
        skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor, bf16q_fp8kv_transform_mode=bf16q_fp8kv_transform_mode,
        o_scale=None if o_scale == 1.0 else o_scale, backend=None if backend == "auto" else backend,
        uses_shared_paged_kv_idx=None if uses_shared_paged_kv_idx else False,
        enable_block_sparse_attention=enable_block_sparse_attention or None,
    )  # fmt: skip
    for name, given in refused.items():
        if given is not None:
            raise call_error(f"attnc does not honour {name}={given!r} of trtllm_batch_decode_with_kv_cache")
    if kv_layout not in ("HND", "NHD"):
        raise call_error(f"expected kv_layout 'HND' or 'NHD', got {kv_layout!r}")
    if isinstance(kv_cache, torch.Tensor):
        if kv_cache.dim() != 5 or kv_cache.shape[1] not in (1, 2):
            raise call_error(f"expected a kv_cache (pages, 1 or 2, ...) of 5 dimensions, got {tuple(kv_cache.shape)}")
        kv_cache = kv_cache[:, 0], kv_cache[:, -1]
    if (max_q_len is None) != (cum_seq_lens_q is None):
        raise call_error("expected max_q_len and cum_seq_lens_q together")
    packed = {}
    if cum_seq_lens_q is not None:
        packed = dict(cu_seqlens_q=cum_seq_lens_q, max_seqlen_q=int(max_q_len or 0))
    else:
        count = int(q_len_per_req or 1)
        if query.dim() != 3 or query.shape[0] != count * block_tables.shape[0]:
            wanted = f"({block_tables.shape[0]} * {count}, heads, d)"
            raise call_error(f"expected a query {wanted}, got {tuple(query.shape)}")
        query = query.unflatten(0, (block_tables.shape[0], count))
    factor = bmm1_scale if isinstance(bmm1_scale, torch.Tensor) else None
    score = None if factor is None else lambda s, b, h, i, j: s * factor[0]
    if factor is not None and factor.dim() != 1:
        factor = factor.reshape(1)
    o, found = paged_attention(
        query, *kv_cache, block_tables, seq_lens.to(torch.int32), score_mod=score, is_causal=True,
        window=(int(window_left), 0), scale=1.0 if factor is not None else float(bmm1_scale), enable_gqa=True, return_lse=True,
        layout="bshd", pool_layout=kv_layout.lower(), **packed,
    )  # fmt: skip
    if cum_seq_lens_q is None:
        o, found = o.flatten(0, 1), found.transpose(1, 2).flatten(0, 1)
    else:
        found = found.transpose(0, 1)
    if sinks is not None:
        sinks = sinks[0] if isinstance(sinks, (list, tuple)) else sinks
        # (tokens, H, D) as a batch of one query each.
        o, found = (x.squeeze(2) for x in with_sinks(o.unsqueeze(2), found.unsqueeze(2), sinks))
    if isinstance(bmm2_scale, torch.Tensor) or bmm2_scale != 1.0:
        o = (o * bmm2_scale).to(o.dtype)
    if lse is not None:
        lse.copy_(found / math.log(2))
    if out is not None:
        o = out.copy_(o)
    elif out_dtype is not None:
        o = o.to(out_dtype)
    if not return_lse:
        return o
    return o, (found / math.log(2) if lse is None else lse)
