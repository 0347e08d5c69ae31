# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models of Hugging Face transformers with random weights: logits and gradients
beside sdpa, both measured against float64."""

import os

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")
import attnc.transformers  # noqa: E402
from support import check  # noqa: E402

attnc.transformers.register()


def llama():
    config = transformers.LlamaConfig(
        vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128,
    )  # fmt: skip
    return transformers.LlamaForCausalLM, config


def roberta():
    config = transformers.RobertaConfig(
        vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=130, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=1,
    )  # fmt: skip
    return transformers.RobertaForMaskedLM, config


def gemma2():
    config = transformers.Gemma2Config(
        vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, sliding_window=16, attn_logit_softcapping=20.0, attention_dropout=0.0,
    )  # fmt: skip
    return transformers.Gemma2ForCausalLM, config


def run(kind, implementation, dtype, device="cpu", padded=True):
    """Logits and the gradients of all parameters, for a batch with padding."""
    cls, config = kind()
    config._attn_implementation = implementation
    torch.manual_seed(0)
    model = cls(config).double()
    for parameter in model.parameters():  # the same for all types
        parameter.data = parameter.data.bfloat16().double()
    model = model.to(device, dtype).train()
    ids = torch.randint(5, 97, (2, 40), generator=torch.Generator().manual_seed(1)).to(device)
    mask = torch.ones_like(ids)
    if padded:
        mask[1, 30:] = 0
    logits = model(input_ids=ids, attention_mask=mask).logits[mask.bool()]
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    loss = (logits * weights.to(logits)).sum() / logits.numel() ** 0.5
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"logits": logits, **gradients}


def compare(kind, dtype, device="cpu", own="sdpa", padded=True):
    exact = run(kind, "eager", torch.float64, device, padded)
    baselines = [run(kind, name, dtype, device, padded) for name in dict.fromkeys((own, "eager"))]
    got = run(kind, "attnc", dtype, device, padded)
    assert got.keys() == exact.keys()
    for name in got:
        check(name, got[name], exact[name], [x[name] for x in baselines], dtype)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("kind", [llama, roberta])
def test_models(kind, padded):
    compare(kind, torch.float32, padded=padded)


def test_soft_cap_and_window():
    compare(gemma2, torch.float32, own="eager")


def test_generation():
    cls, config = llama()
    tokens = []
    for implementation in ("sdpa", "attnc"):
        config._attn_implementation = implementation
        torch.manual_seed(0)
        model = cls(config).eval()
        ids = torch.randint(5, 97, (2, 7), generator=torch.Generator().manual_seed(1))
        tokens.append(model.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0))
    assert torch.equal(*tokens)


@pytest.mark.cuda
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("kind", [llama, roberta])
def test_models_on_a_gpu(kind, padded):
    compare(kind, torch.bfloat16, "cuda", padded=padded)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", [llama, roberta])
def test_logits_on_a_gpu(kind):
    cls, config = kind()
    ids = torch.randint(5, 97, (2, 40), generator=torch.Generator().manual_seed(1)).cuda()
    results = []
    for implementation, dtype in (("eager", torch.float64), ("sdpa", torch.bfloat16), ("attnc", torch.bfloat16)):
        config._attn_implementation = implementation
        torch.manual_seed(0)
        model = cls(config).bfloat16().to("cuda", dtype).eval()
        with torch.no_grad():
            results.append(model(input_ids=ids).logits)
    check("logits", results[2], results[0], [results[1]], torch.bfloat16)
