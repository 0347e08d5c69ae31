# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that stand in for those of PyTorch, with their signatures and semantics.

    from attnc.torch import flex_attention, scaled_dot_product_attention

The calls behind them are attnc.attention's: autograd, torch.compile, torch.export,
autocast and checkpointing work as there.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import torch

from ._attention import attention
from ._blocks import mask_of_blocks
from ._errors import Error

__all__ = ["flex_attention", "scaled_dot_product_attention"]


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
    create_block_mask makes them, which is found out once for each BlockMask, by the function alone:
    attnc finds by itself which tiles a mask leaves. `mask_mod` may be
    given instead of a BlockMask. `kernel_options` tune kernels that are not used here
    and are not looked at. Of `return_aux`, `max_scores` is refused.
    """
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


def _with_four_dimensions(x: torch.Tensor) -> torch.Tensor:
    """(..., H, L, E) with the leading dimensions as one; without heads, one head."""
    if x.dim() == 4:
        return x
    if x.dim() == 2:
        return x[None, None]
    return x.unsqueeze(1) if x.dim() == 3 else x.flatten(0, -4)


def _mask_with_four_dimensions(mask: torch.Tensor, shape: Tuple[int, ...], dims: int) -> torch.Tensor:
    """Broadcast to `shape`, (B, H, L, S), for inputs of `dims` dimensions. Nothing is
    copied: dimensions of size 1 get a stride of 0."""
    if dims == 3 and mask.dim() == 3:
        mask = mask.unsqueeze(1)
    elif dims > 4 and mask.dim() > 4:
        mask = mask.flatten(0, -4)
    try:
        return mask.expand(shape)
    except RuntimeError:
        raise ValueError(f"expected attn_mask to broadcast to {shape}, got {tuple(mask.shape)}") from None


def _broadcast_batch(tensors: Tuple[torch.Tensor, ...]) -> Tuple[torch.Tensor, ...]:
    shapes = {tuple(x.shape[:-3]) for x in tensors}
    if tensors[0].dim() < 4 or len(shapes) == 1:
        return tensors
    batch = torch.broadcast_shapes(*shapes)
    return tuple(x.expand(*batch, *x.shape[-3:]) for x in tensors)


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
    """torch.nn.functional.scaled_dot_product_attention. Dropout is refused; a mask may
    have a gradient."""
    if dropout_p > 0:
        raise NotImplementedError("attnc has no dropout: expected dropout_p=0")
    if attn_mask is not None and is_causal:
        raise RuntimeError("expected attn_mask or is_causal, got both")
    dims = query.dim()
    if dims < 2 or key.dim() != dims or value.dim() != dims:
        raise Error(f"expected query, key and value of equal dimensions, got {dims}, {key.dim()} and {value.dim()}")
    batch = query.shape[:-2]
    query, key, value = _broadcast_batch((query, key, value))
    if dims > 3:
        batch = query.shape[:-2]
    q, k, v = (_with_four_dimensions(x) for x in (query, key, value))
    settings: dict = {"is_causal": is_causal}
    alignment = None if attn_mask is None else _causal_bias(attn_mask)
    if alignment:
        settings = {"is_causal": True, "causal_alignment": alignment}
    elif attn_mask is not None:
        mask = _mask_with_four_dimensions(attn_mask, (*q.shape[:3], k.shape[2]), dims)
        if mask.dtype == torch.bool:
            settings["mask_mod"] = _keep(mask)
        elif mask.is_floating_point():
            settings["score_mod"] = _add(mask)
        else:
            raise Error(f"expected a boolean or floating-point attn_mask, got {mask.dtype}")
    o = attention(q, k, v, scale=scale, enable_gqa=enable_gqa, **settings)
    return o if dims == 4 else o.reshape(*batch, *o.shape[-2:])
