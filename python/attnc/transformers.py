# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attnc as an attention implementation of Hugging Face transformers.

    import attnc.transformers
    attnc.transformers.register()
    model = AutoModel.from_config(config, attn_implementation="attnc")

Where a model gives no mask, or one that only says "causal", the kernel has the mask
as arithmetic; a tensor of any other mask is read as it is. A keyword that changes the
result is honoured, or refused by its name; so are keywords that are not known, and
models that do not leave their attention to the interface.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from typing import Any, Callable, Dict, Optional, Set, Tuple

import torch

from ._attention import attention
from ._errors import Error
from ._merge import with_sinks
from ._varlen import varlen_attention
from .torch import broadcast_mask, scaled_dot_product_attention

NAME = "attnc"

# Of transformers, from register() on: PyTorch's compiler does not follow imports.
_sdpa_mask: Any = None
_collector: Any = None

# Keywords of an attention function that change nothing here: what they say is in the mask
# already, or is about other parts of the model.
HARMLESS = frozenset(
    {
        "cache_position", "input_ids", "inputs_embeds", "logits_to_keep", "num_items_in_batch", "output_hidden_states",
        "output_router_logits", "position_embeddings", "position_ids", "return_dict", "seq_idx", "use_cache",
    }
)  # fmt: skip

# Those that would change it, and what to do instead.
_PACKED = "packed sequences are told by position_ids, without attention_mask"
_SPARSE = "attnc reads no lists of keys"
REFUSED: Dict[str, str] = {
    "block_indices": _SPARSE,
    "cu_seq_lens_k": _PACKED,
    "cu_seq_lens_q": _PACKED,
    "head_mask": "attnc has no weights to multiply",
    "indices": _SPARSE,
    "layer_head_mask": "attnc has no weights to multiply",
    "max_length_k": _PACKED,
    "max_length_q": _PACKED,
}


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Optional[torch.Tensor],
    dropout: float = 0.0,
    scaling: Optional[float] = None,
    is_causal: Optional[bool] = None,
    *,
    sliding_window: Optional[int] = None,
    softcap: Optional[float] = None,
    position_bias: Optional[torch.Tensor] = None,
    s_aux: Optional[torch.Tensor] = None,
    deterministic: Optional[bool] = None,
    output_attentions: Optional[bool] = None,
    **others: Any,
) -> Tuple[torch.Tensor, None]:
    """The interface of transformers: query (B, Hq, Sq, D), key and value (B, Hkv, Sk, D),
    heads shared where there are fewer; returns (B, Sq, Hq, D) and no weights."""
    _refuse(module, output_attentions, others)
    is_causal = _is_causal(module, query, attention_mask, is_causal)
    window = _window(query, key, attention_mask, is_causal, sliding_window)
    mask = _of_keys(attention_mask, key)
    if softcap is None and position_bias is None and s_aux is None and window is None and not deterministic:
        output = scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=is_causal, scale=scaling, enable_gqa=True
        )
        return output.transpose(1, 2), None
    score_mod, mask_mod = _functions(query, key, mask, _of_keys(position_bias, key), softcap)
    output = attention(
        query,
        key,
        value,
        score_mod=score_mod,
        mask_mod=mask_mod,
        is_causal=is_causal,
        window=window,
        scale=scaling,
        enable_gqa=True,
        return_lse=s_aux is not None,
        deterministic=bool(deterministic),
        dropout_p=dropout,
    )
    if s_aux is not None:
        output = with_sinks(*output, s_aux)[0]
    return output.transpose(1, 2), None


def paged_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Optional[torch.Tensor],
    dropout: float = 0.0,
    scaling: Optional[float] = None,
    *,
    cache: Any = None,
    cu_seq_lens_q: Optional[torch.Tensor] = None,
    cu_seq_lens_k: Any = None,
    read_index: Any = None,
    write_index: Any = None,
    sliding_window: Optional[int] = None,
    softcap: Optional[float] = None,
    s_aux: Optional[torch.Tensor] = None,
    output_attentions: Optional[bool] = None,
    **others: Any,
) -> Tuple[torch.Tensor, None]:
    """The paged interface of transformers' continuous batching: query (1, Hq, T, D) and the new keys and values (1, Hkv, T, D)
    of all sequences; the cache writes them and gives those that the sequences see. Returns (1, T, Hq, D)."""
    if cache is None or cu_seq_lens_q is None or attention_mask is not None:
        raise NotImplementedError(f"expected a call of continuous batching: paged|{NAME} has no other use; use {NAME}")
    # Greatest lengths bound nothing here; the table is of decoding, for which transformers asks kernels of flash_attn only.
    _refuse(module, output_attentions, {name: x for name, x in others.items() if name not in _OF_BATCHES})
    window = sliding_window or getattr(module, "sliding_window", None)
    if isinstance(cu_seq_lens_k, dict):
        cu_seq_lens_k = cu_seq_lens_k["sliding_attention" if window else "full_attention"]
    keys, values = cache.update(key, value, module.layer_idx, read_index, write_index)
    score_mod = None if softcap is None else lambda s, b, h, i, j: torch.tanh(s / softcap) * softcap
    output, lse = varlen_attention(
        query[0].transpose(0, 1),
        keys,
        values,
        cu_seq_lens_q,
        cu_seq_lens_k,
        score_mod=score_mod,
        is_causal=True,
        window=(int(window) - 1, 0) if window else None,
        scale=scaling,
        enable_gqa=True,
        return_lse=True,
        dropout_p=dropout,
    )
    if s_aux is not None:
        output = with_sinks(output.transpose(0, 1)[None], lse[None], s_aux)[0][0].transpose(0, 1)
    return output[None], None


# Keywords of continuous batching that say nothing more.
_OF_BATCHES = frozenset({"logits_indices", "logits_processor_args", "max_seqlen_k", "max_seqlen_q"})


def _refuse(module: Any, output_attentions: Optional[bool], others: Dict[str, Any]) -> None:
    """What is not honoured, by its name."""
    name = type(module).__name__
    if output_attentions or _collects_weights():
        raise NotImplementedError(
            'attnc computes no attention weights: output_attentions=True needs attn_implementation="eager"'
        )
    for keyword, given in others.items():
        if given is None or keyword in HARMLESS:
            continue
        why = REFUSED.get(keyword, "attnc does not know it, and it could change the result")
        raise NotImplementedError(f"{name} calls its attention with {keyword}, which attnc does not honour: {why}")


def _collects_weights() -> bool:
    """Whether a model is about to gather the weights that its layers return."""
    if _collector is None:
        return False
    collected = _collector.global_var if torch.compiler.is_compiling() else _collector.get()
    return bool(collected) and any("attentions" in name for name in collected)


def _is_causal(module: Any, query: torch.Tensor, mask: Optional[torch.Tensor], is_causal: Optional[bool]) -> bool:
    """As sdpa has it: without a mask, as the module says; a single query sees all keys."""
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    return bool(is_causal) and mask is None and query.shape[2] > 1


def _window(
    query: torch.Tensor, key: torch.Tensor, mask: Optional[torch.Tensor], is_causal: bool, sliding_window: Optional[int]
) -> Optional[Tuple[int, int]]:
    """Masks have windows in them; without one, only causal attention from the first token on
    says which keys are in the window."""
    if sliding_window is None or mask is not None or key.shape[2] <= sliding_window:
        return None
    if not is_causal:
        raise NotImplementedError(
            f"expected an attention_mask where sliding_window={sliding_window} leaves out some of the "
            f"{key.shape[2]} keys and the {query.shape[2]} queries are not causal"
        )
    return int(sliding_window) - 1, -1


def _of_keys(mask: Optional[torch.Tensor], key: torch.Tensor) -> Optional[torch.Tensor]:
    """A cache may have been given more room than there are keys."""
    if mask is not None and mask.dim() == 4 and mask.shape[-1] > key.shape[2]:
        return mask[..., : key.shape[2]]
    return mask


def _functions(
    query: torch.Tensor,
    key: torch.Tensor,
    mask: Optional[torch.Tensor],
    bias: Optional[torch.Tensor],
    softcap: Optional[float],
) -> Tuple[Optional[Callable], Optional[Callable]]:
    """The score is capped first, as Gemma 2 has it; then come biases, then the mask."""
    shape = (*query.shape[:3], key.shape[2])
    if bias is not None:
        bias = broadcast_mask(bias, shape, "position_bias")
    if mask is not None:
        mask = broadcast_mask(mask, shape, "attention_mask")
    mask_mod = None
    if mask is not None and mask.dtype == torch.bool:
        mask_mod = lambda b, h, i, j: mask[b, h, i, j]
    elif mask is not None and bias is not None:
        bias, mask = bias + mask, None
    added = bias if bias is not None else (mask if mask_mod is None else None)

    def score_mod(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        if softcap is not None:
            s = torch.tanh(s / softcap) * softcap
        return s if added is None else s + added[b, h, i, j]

    return (None if softcap is None and added is None else score_mod), mask_mod


# Models.


def _leaves_attention(cls: type) -> bool:
    """Whether a model's attention is left to the interface; models without attention of
    their own consist of others, which are asked too."""
    from transformers import PreTrainedModel

    for base in cls.__mro__:
        if base is PreTrainedModel or not issubclass(base, PreTrainedModel):
            continue
        try:
            source = inspect.getsource(sys.modules[base.__module__])
        except (KeyError, OSError, TypeError):  # made in a notebook
            continue
        own = re.search(r"^class \w*Attention\w*\(nn\.Module\):", source, re.MULTILINE)
        if own and "ALL_ATTENTION_FUNCTIONS" not in source:
            return False
    return True


@functools.cache
def _problem_of(cls: type) -> Optional[str]:
    if not _leaves_attention(cls):
        return "computes attention by itself and does not leave it to the interface of transformers"
    if not (getattr(cls, "_supports_sdpa", False) or getattr(cls, "_supports_attention_backend", False)):
        return "does not support other implementations of its attention, says transformers"
    return None


def _check_model(cls: type, name: str) -> None:
    """Refuses models that would ignore the implementation, or part of what it needs."""
    problem = _problem_of(cls)
    if problem:
        raise Error(f'{cls.__name__} {problem}: expected attn_implementation="eager", got "{name}"')


# Registered names.
_names: Set[str] = set()


def _check_models_when_made() -> None:
    """Has transformers ask us where it looks whether a model may have an implementation."""
    from transformers import PreTrainedModel

    original = getattr(PreTrainedModel, "get_correct_attn_implementation", None)
    if original is None:
        raise Error("expected transformers 4.56 or newer")
    if hasattr(original, "asks_attnc"):
        return

    @functools.wraps(original)
    def get_correct_attn_implementation(self: Any, *args: Any, **keywords: Any) -> str:
        found = original(self, *args, **keywords)
        if found.removeprefix("paged|") in _names:
            _check_model(type(self), found)
        return found

    get_correct_attn_implementation.asks_attnc = True  # type: ignore[attr-defined]
    PreTrainedModel.get_correct_attn_implementation = get_correct_attn_implementation


def _check_config(config: Any) -> None:
    from transformers import MODEL_MAPPING

    if type(config) in MODEL_MAPPING:
        classes = MODEL_MAPPING[type(config)]
        for cls in classes if isinstance(classes, (tuple, list)) else (classes,):
            _check_model(cls, config._attn_implementation)


def _make_mask(*args: Any, config: Any = None, **keywords: Any) -> Any:
    """The mask of sdpa; the implementation may have been set in the configuration of a
    model that had been made before."""
    if config is not None and not torch.compiler.is_compiling():
        _check_config(config)
    if hasattr(config, "relative_attention_num_buckets"):
        # Not all of these say which of their layers are causal. Where each pair has a bias, a
        # mask costs little.
        keywords["allow_is_causal_skip"] = False
    return _sdpa_mask(*args, config=config, **keywords)


def register(name: str = NAME) -> None:
    """Makes attn_implementation=`name` known to transformers, with the masks of sdpa, and for continuous batching
    "paged|" with the name behind it."""
    global _sdpa_mask, _collector
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    try:
        from transformers.utils.output_capturing import _active_collector as collector
    except ImportError:  # of older versions, whose layers are asked for weights by a keyword
        collector = None
    _sdpa_mask, _collector = sdpa_mask, collector
    _check_models_when_made()
    _names.add(name)
    AttentionInterface.register(name, attention_forward)
    AttentionInterface.register(f"paged|{name}", paged_forward)
    AttentionMaskInterface.register(name, _make_mask)
