# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiny models of many families with random weights, in float64 beside eager: logits and
gradients of all parameters with padding on either side, and generated tokens with both
kinds of caches. Each is right, or refused by name. A few families run by default, all
with ATTNC_ALL_MODELS=1, others with ATTNC_ALL_MODELS=Llama,T5."""

import inspect
import os

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")
import attnc.transformers  # noqa: E402

attnc.transformers.register()

VOCABULARY = 128
# What the configurations of all families have in common, under all the names for it.
TINY = {
    "vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0,
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "word_embed_proj_dim"), 64),
    **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "n_inner", "hidden_dim", "encoder_ffn_dim",
                     "decoder_ffn_dim", "moe_intermediate_size", "shared_expert_intermediate_size"), 96),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "encoder_layers",
                     "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads",
                     "decoder_attention_heads"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "query_pre_attn_scalar"), 32), "num_key_value_heads": 1,
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"), 130),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 4), "num_experts_per_tok": 2,
    **dict.fromkeys(("image_size",), 32), **dict.fromkeys(("patch_size",), 8),
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "hidden_dropout", "hidden_dropout_prob",
                     "attention_probs_dropout_prob", "attn_pdrop", "resid_pdrop", "embd_pdrop", "dropout_rate",
                     "classifier_dropout", "encoder_layerdrop", "decoder_layerdrop", "layerdrop", "embedding_dropout",
                     "attn_dropout", "mlp_dropout", "feat_proj_dropout", "final_dropout", "hidden_dropout_rate",
                     "drop_path_rate"), 0.0),
}  # fmt: skip

CAUSAL, MASKED, BOTH = "AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM"
IMAGE, SOUND = "image", "sound"
_MLA = dict(q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16, n_group=1,
            topk_group=1, first_k_dense_replace=1, num_key_value_heads=2, head_dim=16)  # fmt: skip
_CONV = dict(conv_dim=(32,), conv_stride=(4,), conv_kernel=(8,), num_feat_extract_layers=1, num_conv_pos_embeddings=4,
             num_conv_pos_embedding_groups=2, apply_spec_augment=False)  # fmt: skip
# Family: what it is, and settings of its own.
FAMILIES = {
    "Llama": (CAUSAL, {}), "Mistral": (CAUSAL, dict(sliding_window=8)), "Mixtral": (CAUSAL, {}),
    "Qwen2": (CAUSAL, dict(use_sliding_window=True, sliding_window=8, max_window_layers=1)), "Qwen3": (CAUSAL, {}),
    "Qwen2Moe": (CAUSAL, {}), "Qwen3Moe": (CAUSAL, {}), "Gemma": (CAUSAL, {}),
    "Gemma2": (CAUSAL, dict(sliding_window=8, attn_logit_softcapping=5.0)),
    "Gemma3Text": (CAUSAL, dict(sliding_window=8)), "Phi": (CAUSAL, {}), "Phi3": (CAUSAL, dict(sliding_window=8)),
    "StableLm": (CAUSAL, {}), "GPTNeoX": (CAUSAL, {}),
    "GPT2": (CAUSAL, dict(scale_attn_by_inverse_layer_idx=True)),
    "GPTBigCode": (CAUSAL, {}), "OPT": (CAUSAL, {}), "Bloom": (CAUSAL, {}), "Mpt": (CAUSAL, {}),
    "Falcon": (CAUSAL, dict(alibi=True)), "GPTJ": (CAUSAL, dict(rotary_dim=16)),
    "CodeGen": (CAUSAL, dict(rotary_dim=16)), "GPTNeo": (CAUSAL, dict(attention_types=[[["global", "local"], 1]])),
    "Olmo": (CAUSAL, {}), "Olmo2": (CAUSAL, {}), "Cohere": (CAUSAL, {}), "Cohere2": (CAUSAL, dict(sliding_window=8)),
    "Granite": (CAUSAL, dict(attention_multiplier=0.3)), "GptOss": (CAUSAL, dict(sliding_window=8)),
    "MiMoV2Flash": (CAUSAL, dict(sliding_window=8)),
    "DeepseekV3": (CAUSAL, _MLA), "DeepseekV32": (CAUSAL, dict(_MLA, index_topk=8, index_n_heads=2, index_head_dim=16)),
    "Starcoder2": (CAUSAL, dict(sliding_window=8)), "Persimmon": (CAUSAL, {}), "Glm": (CAUSAL, {}),
    "Nemotron": (CAUSAL, {}), "SmolLM3": (CAUSAL, {}), "Exaone4": (CAUSAL, dict(sliding_window=8)),
    "Ernie4_5": (CAUSAL, {}), "BioGpt": (CAUSAL, {}), "XGLM": (CAUSAL, {}), "Doge": (CAUSAL, {}),
    "GraniteSWA": (CAUSAL, dict(sliding_window=8)), "GraniteMoeSWA": (CAUSAL, dict(sliding_window=8)),
    "OpenAIPrivacyFilter": ("AutoModelForTokenClassification", dict(sliding_window=8)),
    "DiffLlama": (CAUSAL, dict(num_key_value_heads=2)), "CTRL": (CAUSAL, {}),
    "Bert": (MASKED, {}), "Roberta": (MASKED, {}), "Electra": (MASKED, {}), "DistilBert": (MASKED, {}),
    "Albert": (MASKED, {}), "MPNet": (MASKED, {}), "DebertaV2": (MASKED, dict(relative_attention=True)),
    "ModernBert": (MASKED, dict(local_attention=8, global_attn_every_n_layers=2)), "Esm": (MASKED, {}),
    "RoFormer": (MASKED, {}), "BigBird": (MASKED, {}), "Longformer": (MASKED, dict(attention_window=[8, 8])),
    "T5": (BOTH, {}), "MT5": (BOTH, {}), "UMT5": (BOTH, {}), "LongT5": (BOTH, {}), "SwitchTransformers": (BOTH, {}),
    "Bart": (BOTH, {}), "MBart": (BOTH, {}), "Pegasus": (BOTH, {}), "Marian": (BOTH, {}), "M2M100": (BOTH, {}),
    "Blenderbot": (BOTH, {}), "ProphetNet": (BOTH, {}), "PegasusX": (BOTH, {}), "NllbMoe": (BOTH, {}),
    "ViT": (IMAGE, {}), "DeiT": (IMAGE, {}), "Dinov2": (IMAGE, {}), "SiglipVision": (IMAGE, {}),
    "CLIPVision": (IMAGE, {}), "Beit": (IMAGE, dict(use_relative_position_bias=True)),
    "Swin": (IMAGE, dict(embed_dim=32, depths=[1, 1], num_heads=[2, 2], window_size=2)),
    "Segformer": (IMAGE, dict(num_attention_heads=[1, 1, 2, 2], hidden_sizes=[16, 16, 32, 32], depths=[1] * 4)),
    "Wav2Vec2": (SOUND, _CONV), "Hubert": (SOUND, _CONV), "WavLM": (SOUND, _CONV),
}  # fmt: skip
REFUSED = {
    "Bloom", "Mpt", "Falcon", "GPTJ", "CodeGen", "GPTNeo", "XGLM", "MPNet", "DebertaV2", "RoFormer", "BigBird",
    "Longformer", "LongT5", "SwitchTransformers", "ProphetNet", "PegasusX", "NllbMoe", "WavLM",
}  # fmt: skip
# When the attention is called, for it depends on what it is given.
REFUSED_CALLS = {"DeepseekV32": "indices"}
DEFAULT = "Llama Gemma2 GptOss Bloom Falcon GPTJ MPNet DeepseekV32 ModernBert T5 UMT5 Bart Swin".split()


def chosen():
    named = os.environ.get("ATTNC_ALL_MODELS", "")
    return list(FAMILIES) if named == "1" else (named.split(",") if named else DEFAULT)


def make(family, implementation):
    kind, own = FAMILIES[family]
    config = getattr(transformers, f"{family}Config")
    known = inspect.signature(config.__init__).parameters
    config = config(**{**{name: value for name, value in TINY.items() if name in known}, **own})
    torch.manual_seed(0)
    auto = getattr(transformers, kind if kind.startswith("Auto") else "AutoModel")
    model = auto.from_config(
        config, attn_implementation=implementation, experts_implementation="eager", dtype=torch.float64
    ).train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Small random weights would hide what attention does.
            if parameter.dim() < 2 or "bias" in name:
                parameter.add_(torch.randn_like(parameter) * (1.0 if "bias" in name or "sink" in name else 0.1))
            else:
                parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def keep_float64(monkeypatch):
    """eager rounds scores to float32, where masked ones of float64 are infinite."""
    softmax = torch.nn.functional.softmax

    def wide(x, dim=None, _stacklevel=3, dtype=None):
        return softmax(x, dim, dtype=torch.float64 if x.dtype == torch.float64 else dtype)

    monkeypatch.setattr(torch.nn.functional, "softmax", wide)


def inputs_of(family, side):
    kind = FAMILIES[family][0]
    generator = torch.Generator().manual_seed(1)
    if kind == IMAGE:
        return {"pixel_values": torch.randn(2, 3, 32, 32, generator=generator, dtype=torch.float64)}, None
    mask = torch.ones(2, 24, dtype=torch.long)
    if side == "left":
        mask[1, :7] = 0
    elif side == "right":
        mask[1, -7:] = 0
    if kind == SOUND:
        return {"input_values": torch.randn(2, 400, generator=generator, dtype=torch.float64)}, None
    ids = torch.randint(5, VOCABULARY, (2, 24), generator=generator) * mask
    inputs = {"input_ids": ids, "attention_mask": mask}
    if kind == BOTH:
        inputs["decoder_input_ids"] = torch.randint(5, VOCABULARY, (2, 17), generator=generator)
        return inputs, None
    return inputs, mask


def run(model, family, side):
    inputs, mask = inputs_of(family, side)
    output = model(**inputs)
    output = output.logits if hasattr(output, "logits") else output.last_hidden_state
    output = output if mask is None else output[mask.bool()]
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    model.zero_grad()
    (output * weights).sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"output": output.detach(), **gradients}


def generate(model, family, cache):
    inputs, _ = inputs_of(family, "left")
    if inputs.pop("decoder_input_ids", None) is not None:
        inputs["decoder_start_token_id"] = 0
    with torch.no_grad():
        return model.eval().generate(
            **inputs, max_new_tokens=6, min_new_tokens=6, do_sample=False, cache_implementation=cache,
            disable_compile=True,
        )  # fmt: skip


# Whose eager rounds to float32 by other functions than softmax.
ROUNDED = {"GraniteSWA", "GraniteMoeSWA"}


def compare(family, got, exact):
    """Same values to the rounding of float64, by the size of each tensor."""
    limit, share = (16 * torch.finfo(torch.float32).eps, 1) if family in ROUNDED else (1e-10, 1e-3)
    assert got.keys() == exact.keys()
    for name in got:
        difference = (got[name] - exact[name]).abs().max().item()
        size = exact[name].abs().max().item() + exact["output"].abs().max().item() * share
        assert difference <= limit * size, f"{name}: {difference:.2e} of {size:.2e}"


@pytest.mark.parametrize("family", chosen())
def test_family(family, monkeypatch):
    kind = FAMILIES[family][0]
    if family in REFUSED:
        with pytest.raises(attnc.Error, match=r'expected attn_implementation="eager", got "attnc"'):
            make(family, "attnc")
        return
    exact, model = make(family, "eager"), make(family, "attnc")
    keep_float64(monkeypatch)
    if family in REFUSED_CALLS:
        with pytest.raises(NotImplementedError, match=REFUSED_CALLS[family]):
            run(model, family, "right")
        return
    for side in ("left", "right") if kind in (CAUSAL, MASKED, BOTH) else ("none",):
        compare(family, run(model, family, side), run(exact, family, side))
    if kind in (CAUSAL, BOTH):
        for cache in ("dynamic", "static"):
            try:
                tokens = generate(exact, family, cache)
            except Exception as error:  # what eager does not do by itself
                print(f"{family}: no {cache} cache: {error}")
                continue
            assert torch.equal(generate(model, family, cache), tokens), cache


@pytest.mark.parametrize("family", ["Gemma2", "Bert"])
def test_compiled(family):
    """In one graph."""
    model = make(family, "attnc").eval()
    inputs, _ = inputs_of(family, "right")
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(**inputs).logits, model(**inputs).logits, rtol=1e-10, atol=1e-10)


def test_set_in_a_configuration_afterwards():
    model = make("Bloom", "eager")
    model.config._attn_implementation = "attnc"
    with pytest.raises(attnc.Error, match="BloomModel computes attention by itself"):
        model(**inputs_of("Bloom", "right")[0])
