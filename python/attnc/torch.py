# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that stand in for those of PyTorch, with their signatures and semantics.

    from attnc.torch import flex_attention, scaled_dot_product_attention

The calls behind them are attnc.attention's: autograd, torch.compile, torch.export,
autocast and checkpointing work as there.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import torch

from ._attention import attention, check_kind
from ._blocks import mask_of_blocks
from ._errors import call_error
from ._paged import paged_attention
from ._varlen import varlen_attention

__all__ = ["flex_attention", "scaled_dot_product_attention", "varlen_attn"]


# FlexAttention.


def _mask_of(block_mask: Any, query: torch.Tensor, key: torch.Tensor) -> Optional[Callable]:
    """The mask function that a BlockMask stands for."""
    from torch.nn.attention import flex_attention as flex

    mask_mod = getattr(block_mask, "mask_mod", None)
    if mask_mod is getattr(flex, "_sliced_mask_mod_error", ()):
        raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")
    length = block_mask.shape[-2:]
    whole = getattr(flex, "_LARGE_SPARSE_BLOCK_SIZE", None)
    if tuple(block_mask.BLOCK_SIZE) == (whole, whole):
        return None if mask_mod is flex.noop_mask else mask_mod
    if tuple(length) != (query.shape[-2], key.shape[-2]):
        raise ValueError(
            f"expected a block_mask for the lengths {query.shape[-2]} and {key.shape[-2]}, got one for {tuple(length)}"
        )
    return mask_of_blocks(block_mask, None if mask_mod is flex.noop_mask else mask_mod)


# What PyTorch 2.11 has for kernel_options, also with fwd_ or bwd_ in front: how its kernels run.
KERNEL_OPTIONS = frozenset(
    {
        "BACKEND", "BLOCKS_ARE_CONTIGUOUS", "BLOCK_M", "BLOCK_M1", "BLOCK_M2", "BLOCK_N", "BLOCK_N1", "BLOCK_N2",
        "FORCE_USE_FLEX_ATTENTION", "PRESCALE_QK", "ROWS_GUARANTEED_SAFE", "USE_TMA", "WRITE_DQ", "kpack",
        "matrix_instr_nonkdim", "num_stages", "num_warps", "waves_per_eu",
    }
)  # fmt: skip


def flex_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Optional[Callable] = None,
    block_mask: Any = None,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Optional[dict] = None,
    *,
    return_aux: Any = None,
    mask_mod: Optional[Callable] = None,
) -> Any:
    """torch.nn.attention.flex_attention.flex_attention.

    A pair counts if its block is listed in the BlockMask and, unless the block is a full
    one, its function says so. Where the blocks follow from the function, as
    create_block_mask makes them, which is found out once for each BlockMask, the function
    alone is compiled: attnc finds by itself which tiles a mask leaves. `mask_mod` may be
    given instead of a BlockMask. `kernel_options` tune kernels that are not used here:
    those that are known change nothing. Of `return_aux`, `max_scores` is refused.
    """
    for name in kernel_options or ():
        if name.removeprefix("fwd_").removeprefix("bwd_") not in KERNEL_OPTIONS:
            raise NotImplementedError(f"attnc does not know {name} of kernel_options")
    if block_mask is not None and mask_mod is not None:
        raise ValueError("expected block_mask or mask_mod, got both")
    if return_lse and return_aux is not None:
        raise ValueError("expected return_lse or return_aux, got both")
    if return_aux is not None and getattr(return_aux, "max_scores", False):
        raise NotImplementedError("attnc does not return the largest scores")
    if block_mask is not None:
        mask_mod = _mask_of(block_mask, query, key)
    if query.dim() == 4 and key.dim() == 4 and value.dim() == 4 and key.shape[0] == 1 != query.shape[0]:
        key, value = (x.expand(query.shape[0], *x.shape[1:]) for x in (key, value))
    wants_lse = return_lse or bool(getattr(return_aux, "lse", False))
    o, lse = attention(
        query,
        key,
        value,
        score_mod=score_mod,
        mask_mod=mask_mod,
        scale=scale,
        enable_gqa=enable_gqa,
        return_lse=True,
    )
    if return_aux is not None:
        from torch.nn.attention.flex_attention import AuxOutput

        return o, AuxOutput(lse=lse if wants_lse else None, max_scores=None)
    return (o, lse) if return_lse else o


# scaled_dot_product_attention.


def _keep(mask: torch.Tensor) -> Callable:
    def attn_mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return mask[b, h, q_idx, kv_idx]

    return attn_mask


def _add(bias: torch.Tensor) -> Callable:
    def attn_mask(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score + bias[b, h, q_idx, kv_idx]

    return attn_mask


def broadcast_mask(mask: torch.Tensor, shape: Tuple[int, ...], name: str = "attn_mask") -> torch.Tensor:
    """The mask in the shape of the scores. Nothing is copied: dimensions of size 1 get a
    stride of 0."""
    try:
        return mask.expand(shape)
    except RuntimeError:
        raise call_error(f"expected {name} to broadcast to {tuple(shape)}, got {tuple(mask.shape)}") from None


def _flatten_mask(mask: torch.Tensor, batch: Tuple[int, ...], rows: int, columns: int) -> torch.Tensor:
    """A mask for scores of (*batch, rows, columns) with four dimensions. Dimensions in front
    of the heads are copied where they do not lie like one."""
    broadcast_mask(mask, (*batch, rows, columns))
    mask = mask[(None,) * (len(batch) + 2 - mask.dim())]
    if len(batch) > 2:
        mask = mask.expand(*batch[:-1], *mask.shape[-3:]).flatten(0, -4)
    elif len(batch) < 2:
        mask = mask.unsqueeze(-3)[(None,) * (1 - len(batch))]
    return mask


def _is_plain(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, enable_gqa: bool) -> bool:
    """Whether nothing has to be broadcast."""
    if query.is_nested or key.is_nested or value.is_nested:
        return False
    q, k, v = query.shape, key.shape, value.shape
    if len(q) != 4 or len(k) != 4 or len(v) != 4:
        return False
    return q[0] == k[0] == v[0] and (enable_gqa or q[1] == k[1] == v[1])


def _broadcast_inputs(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, enable_gqa: bool
) -> Tuple[Tuple[torch.Tensor, ...], Tuple[int, ...], bool]:
    """Query, key and value with four dimensions, (..., H, L, E) with the leading ones as one;
    the dimensions in front of (L, E); and whether heads are shared."""
    inputs = query, key, value
    for name, x in zip(("query", "key", "value"), inputs):
        check_kind(name, x)
    dims = max(x.dim() for x in inputs)
    if min(x.dim() for x in inputs) < 2:
        raise call_error(f"expected query, key and value of 2 dimensions or more, got {[x.dim() for x in inputs]}")
    inputs = tuple(x[(None,) * (dims - x.dim())] for x in inputs)
    try:
        if dims < 4:
            batch = tuple(torch.broadcast_shapes(*(x.shape[:-2] for x in inputs)))
            inputs = tuple(x.expand(*batch, *x.shape[-2:]) for x in inputs)
            inputs = tuple(x.unsqueeze(-3)[(None,) * (3 - dims)] for x in inputs)
            return inputs, batch, False
        leading = tuple(torch.broadcast_shapes(*(x.shape[:-3] for x in inputs)))
        heads = [x.shape[-3] for x in inputs]
        if not enable_gqa:
            most = torch.broadcast_shapes(*((n,) for n in heads))[0]
            # One head of keys and values is shared as it is.
            shared = heads[1] == heads[2] == 1
            heads = [most, 1, 1] if shared else [most] * 3
            enable_gqa = shared
    except RuntimeError:
        shapes = ", ".join(str(tuple(x.shape)) for x in inputs)
        raise call_error(f"expected the shapes of query, key and value to broadcast, got {shapes}") from None
    inputs = tuple(x.expand(*leading, n, *x.shape[-2:]) for x, n in zip(inputs, heads))
    if dims > 4:
        inputs = tuple(x.flatten(0, -4) for x in inputs)
    return inputs, (*leading, heads[0]), enable_gqa


def _causal_bias(mask: Any) -> Optional[str]:
    """The alignment of a torch.nn.attention.bias.CausalBias; None for other masks."""
    if type(mask) is torch.Tensor or not hasattr(mask, "variant"):
        return None
    from torch.nn.attention.bias import CausalVariant

    return "top_left" if mask.variant == CausalVariant.UPPER_LEFT else "bottom_right"


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Optional[torch.Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """torch.nn.functional.scaled_dot_product_attention. A mask may have a gradient. Dropout is PyTorch's in
    distribution, by other random numbers (see attnc.attention)."""
    if attn_mask is not None and not isinstance(attn_mask, torch.Tensor):
        raise call_error(f"expected attn_mask to be a tensor of PyTorch, got a {type(attn_mask).__name__}")
    if attn_mask is not None and is_causal:
        raise RuntimeError("expected attn_mask or is_causal, got both")
    q, k, v, batch = query, key, value, None
    if not _is_plain(query, key, value, enable_gqa):
        (q, k, v), batch, enable_gqa = _broadcast_inputs(query, key, value, enable_gqa)
    settings: dict = {"is_causal": is_causal}
    alignment = None if attn_mask is None else _causal_bias(attn_mask)
    if alignment:
        settings = {"is_causal": True, "causal_alignment": alignment}
    elif attn_mask is not None:
        check_kind("attn_mask", attn_mask)
        mask = attn_mask if batch is None else _flatten_mask(attn_mask, batch, q.shape[2], k.shape[2])
        mask = broadcast_mask(mask, (*q.shape[:3], k.shape[2]))
        if mask.dtype == torch.bool:
            settings["mask_mod"] = _keep(mask)
        elif mask.is_floating_point():
            settings["score_mod"] = _add(mask)
        else:
            raise call_error(f"expected a boolean or floating-point attn_mask, got {mask.dtype}")
    o = attention(q, k, v, scale=scale, enable_gqa=enable_gqa, dropout_p=dropout_p, **settings)
    return o if batch is None else o.reshape(*batch, *o.shape[-2:])


# Packed batches.


def varlen_attn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: Optional[torch.Tensor],
    max_q: int,
    max_k: int,
    *,
    return_aux: Any = None,
    scale: Optional[float] = None,
    window_size: Tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Optional[torch.Tensor] = None,
    block_table: Optional[torch.Tensor] = None,
    num_splits: Optional[int] = None,
) -> Any:
    """torch.nn.attention.varlen.varlen_attn: (T, H, D) by offsets, with return_aux.lse a pair with the LSE, (H, T). A
    window of (-1, 0) is a causal mask, aligned at the bottom right. With block_table, int32, keys and values are pools (pages, rows,
    Hkv, D), of whose rows a sequence has seqused_k, or what cu_seq_k says; then there are no gradients. Without pages the
    greatest lengths bound nothing here and are not read, and num_splits above 1 is refused."""
    settings = dict(window=tuple(window_size), scale=scale, enable_gqa=enable_gqa, return_lse=True)
    if block_table is not None:
        if seqused_k is None and cu_seq_k is None:
            raise call_error("expected seqused_k or cu_seq_k with block_table")
        o, lse = paged_attention(
            query, key, value, block_table, cu_seq_k.diff() if seqused_k is None else seqused_k, cu_seqlens_q=cu_seq_q,
            max_seqlen_q=int(max_q), num_splits=num_splits or 0, **settings,
        )  # fmt: skip
        return (o, lse) if return_aux is not None and return_aux.lse else o
    if num_splits is not None and num_splits > 1:
        raise call_error(f"expected num_splits of None, 0 or 1, got {num_splits}: parts of keys are not chosen here")
    o, lse = varlen_attention(query, key, value, cu_seq_q, cu_seq_k, seqused_k=seqused_k, **settings)
    return (o, lse) if return_aux is not None and return_aux.lse else o
