# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attnc as an attention implementation of Hugging Face transformers.

    import attnc.transformers
    attnc.transformers.register()
    model = AutoModel.from_config(config, attn_implementation="attnc")

Where a model gives no mask, or one that only says "causal", the kernel has the mask
as arithmetic; a tensor of any other mask is read as it is.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch

from .torch import scaled_dot_product_attention

NAME = "attnc"


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Optional[torch.Tensor],
    dropout: float = 0.0,
    scaling: Optional[float] = None,
    is_causal: Optional[bool] = None,
    **kwargs: Any,
) -> Tuple[torch.Tensor, None]:
    """The interface of transformers: query (B, Hq, Sq, D), key and value (B, Hkv, Sk, D),
    heads shared where there are fewer; returns (B, Sq, Hq, D) and no weights."""
    if kwargs.get("softcap") is not None:
        return _softcapped(module, query, key, value, attention_mask, scaling, is_causal, kwargs["softcap"]), None
    causal = _is_causal(module, query, attention_mask, is_causal)
    output = scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=_of_keys(attention_mask, key),
        dropout_p=dropout,
        is_causal=causal,
        scale=scaling,
        enable_gqa=True,
    )
    return output.transpose(1, 2), None


def _is_causal(module: Any, query: torch.Tensor, mask: Optional[torch.Tensor], is_causal: Optional[bool]) -> bool:
    """As sdpa has it: without a mask, as the module says; a single query sees all keys."""
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    return bool(is_causal) and mask is None and query.shape[2] > 1


def _of_keys(mask: Optional[torch.Tensor], key: torch.Tensor) -> Optional[torch.Tensor]:
    """A cache may have been given more room than there are keys."""
    if mask is not None and mask.dim() == 4 and mask.shape[-1] > key.shape[2]:
        return mask[..., : key.shape[2]]
    return mask


def _softcapped(
    module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: Any, is_causal: Any, softcap: float
) -> torch.Tensor:
    """As Gemma 2 has it: the cap comes before the mask."""
    from ._attention import attention

    mask = _of_keys(mask, key)
    mask_mod = None
    if mask is not None:
        mask = mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        if mask.dtype == torch.bool:
            mask_mod = lambda b, h, i, j: mask[b, h, i, j]

    def score_mod(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        s = torch.tanh(s / softcap) * softcap
        return s if mask is None or mask_mod is not None else s + mask[b, h, i, j]

    causal = _is_causal(module, query, mask, is_causal)
    output = attention(
        query, key, value, score_mod=score_mod, mask_mod=mask_mod, is_causal=causal, scale=scaling, enable_gqa=True
    )
    return output.transpose(1, 2)


def register(name: str = NAME) -> None:
    """Makes attn_implementation=`name` known to transformers, with the masks of sdpa."""
    from transformers import AttentionInterface

    AttentionInterface.register(name, attention_forward)
    try:
        from transformers import AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
    except ImportError:  # older versions make masks in each model
        return
    AttentionMaskInterface.register(name, sdpa_mask)
