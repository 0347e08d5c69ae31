# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models of Hugging Face transformers with random weights: logits and gradients
beside sdpa, both measured against float64."""

import importlib.util
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


# The interface function alone.


def attend(query, key, value, mask=None, is_causal=False, **keywords):
    module = torch.nn.Module()
    module.is_causal = is_causal
    return attnc.transformers.attention_forward(module, query, key, value, mask, **keywords)[0]


def sinks_by_definition(q, k, v, sinks, bias=None, keep=None, by_lse=False):
    """As another column of the scores, or by the log-sum-exp, which is rounded."""
    s = q @ k.repeat_interleave(2, 1).transpose(-1, -2) * q.shape[-1] ** -0.5
    s = s if bias is None else s + bias
    s = s if keep is None else s.masked_fill(~keep, -float("inf"))
    if by_lse:
        lse = torch.logsumexp(s.to(torch.promote_types(s.dtype, torch.float32)), -1, keepdim=True)
        share = torch.sigmoid(lse - sinks.view(1, -1, 1, 1))
        o = s.softmax(-1).nan_to_num(0.0) @ v.repeat_interleave(2, 1) * share
        return o.to(v.dtype).transpose(1, 2)
    p = torch.cat([s, sinks.view(1, -1, 1, 1).expand(*s.shape[:3], 1)], -1).softmax(-1)[..., :-1]
    return (p @ v.repeat_interleave(2, 1)).transpose(1, 2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_sinks_and_position_biases(dtype):
    generator = torch.Generator().manual_seed(3)
    shapes = (2, 4, 9, 16), (2, 2, 13, 16), (2, 2, 13, 16), (4,), (1, 4, 9, 13)
    inputs = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    keep = torch.rand(2, 1, 9, 13, generator=generator) > 0.3
    keep[1, :, 4] = False  # a row without keys
    weights = torch.randn(2, 9, 4, 16, generator=generator, dtype=torch.float64)

    def results(call, wide):
        leaves = [x.to(wide).detach().requires_grad_() for x in inputs]
        o = call(*leaves)
        return [o, *torch.autograd.grad((o * weights.to(o)).sum(), leaves)]

    def definition(seed):
        """Other orders are other roundings."""
        order = torch.Generator().manual_seed(seed)
        i, j = torch.randperm(9, generator=order), torch.randperm(13, generator=order)

        def call(q, k, v, sinks, bias):
            changed = bias[:, :, i][..., j], keep[:, :, i][..., j]
            by_lse = seed % 2 == 1
            return sinks_by_definition(q[:, :, i], k[:, :, j], v[:, :, j], sinks, *changed, by_lse)[:, i.argsort()]

        return call

    own = lambda q, k, v, sinks, bias: attend(q, k, v, keep, s_aux=sinks, position_bias=bias)
    exact, got = results(definition(0), torch.float64), results(own, dtype)
    baselines = zip(*(results(definition(seed), dtype) for seed in range(32)))
    for name, a, b, c in zip("O dQ dK dV dsinks dbias".split(), got, exact, baselines):
        check(name, a, b, c, dtype)


def test_windows_without_a_mask():
    q, k, v = (torch.randn(1, 2, 12, 16, generator=torch.Generator().manual_seed(n)) for n in range(3))
    i = torch.arange(12)
    keep = (i[None] <= i[:, None]) & (i[None] > i[:, None] - 3)
    torch.testing.assert_close(attend(q, k, v, is_causal=True, sliding_window=3), attend(q, k, v, keep[None, None]))
    with pytest.raises(NotImplementedError, match="sliding_window=3"):
        attend(q, k, v, sliding_window=3)
    assert torch.equal(attend(q, k, v, sliding_window=12), attend(q, k, v))


def test_dropout():
    q = torch.randn(1, 2, 40, 16)
    for keywords in ({}, {"softcap": 5.0}):
        torch.manual_seed(2)
        got = attend(q, q, q, dropout=0.5, **keywords)
        torch.manual_seed(2)
        score = (lambda s, b, h, i, j: torch.tanh(s / 5.0) * 5.0) if keywords else None
        want = attnc.attention(q, q, q, score_mod=score, dropout_p=0.5)
        torch.testing.assert_close(got, want.transpose(1, 2), rtol=1e-5, atol=1e-5)
        assert not torch.allclose(got, attend(q, q, q, **keywords))


def test_what_is_refused_by_name():
    q = torch.randn(1, 2, 6, 16)
    for keyword, given in {
        "head_mask": torch.zeros(2), "indices": torch.zeros(1), "block_indices": torch.zeros(1),
        "cu_seq_lens_q": torch.tensor([0, 6]), "output_attentions": True, "another": 1,
    }.items():  # fmt: skip
        with pytest.raises(NotImplementedError, match=keyword):
            attend(q, q, q, **{keyword: given})
    for keyword in attnc.transformers.HARMLESS:
        attend(q, q, q, **{keyword: 1})
    attend(q, q, q, another=None)
    with pytest.raises(attnc.Error, match="one sink for each of 2 heads"):
        attend(q, q, q, s_aux=torch.zeros(3))
    with pytest.raises(attnc.Error, match="expected position_bias to broadcast"):
        attend(q, q, q, position_bias=torch.zeros(1, 3, 6, 6))


def test_weights_are_refused():
    cls, config = llama()
    config._attn_implementation = "attnc"
    model = cls(config).eval()
    with pytest.raises(NotImplementedError, match="output_attentions"):
        model(input_ids=torch.arange(8)[None], output_attentions=True)


def test_every_keyword_of_transformers_is_decided():
    """What models hand over, and what transformers' own functions take: each is honoured,
    harmless, or refused."""
    import ast
    import inspect
    import pathlib

    from transformers.integrations import flash_attention, flex_attention, sdpa_attention

    functions = [
        sdpa_attention.sdpa_attention_forward, flash_attention.flash_attention_forward,
        flex_attention.flex_attention_forward,
    ]  # fmt: skip
    keywords = {name for function in functions for name in inspect.signature(function).parameters}
    for path in pathlib.Path(transformers.__file__).parent.glob("models/*/modeling_*.py"):
        text = path.read_text()
        if "attention_interface(" in text:
            calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
            calls = [call for call in calls if getattr(call.func, "id", None) == "attention_interface"]
            keywords |= {keyword.arg for call in calls for keyword in call.keywords if keyword.arg}
    honoured = set(inspect.signature(attnc.transformers.attention_forward).parameters)
    decided = honoured | attnc.transformers.HARMLESS | attnc.transformers.REFUSED.keys()
    assert len(keywords) > 15 and keywords - decided - {"kwargs"} == set()


@pytest.mark.skipif(importlib.util.find_spec("psutil") is None, reason="continuous batching on a CPU needs psutil")
@pytest.mark.parametrize("window", [None, 16])
def test_continuous_batching(window):
    """Pieces of prompts and single tokens of several requests in one call; a window has a cache of its own."""
    torch.manual_seed(0)
    config = transformers.MistralConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=512, sliding_window=window, head_dim=16,
    )  # fmt: skip
    model = transformers.MistralForCausalLM(config).eval()
    prompts = [torch.randint(0, 256, (length,)).tolist() for length in (5, 90, 30)]
    settings = dict(max_new_tokens=8, do_sample=False, pad_token_id=0)
    want = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        found = model.generate(ids, attention_mask=torch.ones_like(ids), eos_token_id=None, **settings)
        want.append(found[0, len(prompt) :].tolist())
    model.set_attn_implementation("paged|attnc")
    results = model.generate_batch(
        inputs=prompts, generation_config=transformers.GenerationConfig(eos_token_id=-1, **settings), progress_bar=False,
        continuous_batching_config=transformers.ContinuousBatchingConfig(num_blocks=64, block_size=16, max_batch_tokens=64),
    )  # fmt: skip
    assert [result.generated_tokens for result in results.values()] == want
