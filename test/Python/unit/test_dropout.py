# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""dropout_p of attnc.attention, against the definition with the same bits."""

import math

import attnc
import attnc.torch
import numpy as np
import pytest
import torch

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.cuda, NO_GPU])]


def philox(key, counter):
    """Philox4x32-10 of arrays of numbers below 2^32 (Salmon et al., 2011)."""
    for _ in range(10):
        first, second = (np.uint64(m) * counter[n] for m, n in ((0xD2511F53, 0), (0xCD9E8D57, 2)))
        low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
        counter = [
            (second >> shift) ^ counter[1] ^ key[0], second & low, (first >> shift) ^ counter[3] ^ key[1], first & low
        ]
        key = [(k + np.uint64(step)) & low for k, step in zip(key, (0x9E3779B9, 0xBB67AE85))]
    return counter


def bits(seed, offset, b, h, i, j):
    """By the description of attn.random_bits."""
    seed, offset, b, h, i, j = np.broadcast_arrays(*(np.asarray(x, np.uint64) for x in (seed, offset, b, h, i, j)))
    low, shift, one, eight, half = (np.uint64(x) for x in (0xFFFFFFFF, 32, 1, 8, 16))
    k = philox([seed & low, seed >> shift], [offset & low, offset >> shift, b, h])
    words = philox(k[:2], [i & ~eight, j & ~(eight | one), k[2], k[3]])
    number = ((i >> np.uint64(3)) & one) + np.uint64(2) * ((j >> np.uint64(3)) & one)
    word = np.choose(number.astype(np.int64), words)
    return np.where(j & one, (word << half | word >> half) & low, word)


def keep(shape, state, p, device="cpu"):
    index = np.ogrid[tuple(slice(n) for n in shape)]
    kept = bits(*(int(x) for x in state), *index) < round((1 - p) * 2**32)
    return torch.from_numpy(kept).to(device)


def dense(q, k, v, kept, p, causal=False):
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1), -math.inf)
    return (torch.softmax(s, -1) * kept * (2**32 / round((1 - p) * 2**32))) @ v


def test_known_answers():
    """Vectors of the paper's own library."""
    ones, pi = [0xFFFFFFFF], [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0]
    words = lambda numbers: [np.uint64(x) for x in numbers]
    assert philox(words([0, 0]), words([0] * 4)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox(words(ones * 2), words(ones * 4)) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert philox(words(pi[4:]), words(pi[:4])) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize(
    "dtype,shape,causal",
    [
        (torch.float32, (2, 4, 2, 70, 90, 32), False),
        (torch.float32, (1, 2, 2, 130, 130, 64), True),
        (torch.bfloat16, (2, 4, 2, 70, 90, 64), False),
        (torch.bfloat16, (1, 2, 1, 300, 300, 128), True),
        (torch.float64, (1, 2, 2, 40, 50, 16), False),
        (torch.float32, (2, 4, 1, 1, 90, 32), False),
        (torch.bfloat16, (2, 8, 2, 4, 200, 64), False),
    ],
)
def test_is_the_definition(device, p, dtype, shape, causal):
    b, h, hk, sq, sk, d = shape
    generator = torch.Generator().manual_seed(1)
    q, k, v, do = (
        torch.randn(b, heads, s, d, generator=generator).to(device, dtype)
        for heads, s in ((h, sq), (hk, sk), (hk, sk), (h, sq))
    )
    state = torch.tensor([2**62 + 12345, 7 * 2**40 + 3], device=device)
    kept = keep((b, h, sq, sk), state, p, device)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    o = attnc.attention(*leaves, is_causal=causal, enable_gqa=True, dropout_p=p, rng_state=state)
    found = [o, *torch.autograd.grad(o, leaves, do)]
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    o = dense(*wide, kept, p, causal)
    want = [o, *torch.autograd.grad(o, wide, do.double())]
    limit = {torch.float32: 3e-6, torch.bfloat16: 1.2e-2, torch.float64: 1e-13}[dtype]
    for name, x, y in zip(("O", "dQ", "dK", "dV"), found, want):
        error = (x.double() - y).norm() / y.norm()
        assert error < limit, (name, float(error))


@pytest.mark.parametrize("device", DEVICES)
def test_the_state_is_drawn(device):
    q = torch.randn(1, 2, 64, 32, device=device)
    torch.manual_seed(3)
    first, second = (attnc.attention(q, q, q, dropout_p=0.3) for _ in range(2))
    torch.manual_seed(3)
    again = attnc.attention(q, q, q, dropout_p=0.3)
    assert torch.equal(first, again) and not torch.equal(first, second)


def test_fraction_and_correlations():
    """Of 2^22 pairs, and of pairs that are neighbours along each index: within 5 sigma."""
    p, n = 0.3, 256
    kept = keep((8, 8, n, n), (5, 9), p).double() - (1 - p)
    sigma = math.sqrt(p * (1 - p) / kept.numel())
    assert abs(kept.mean()) < 5 * sigma
    for dim in range(4):
        for distance in (1, 2, 4, 8):
            if distance < kept.shape[dim]:
                product = kept.narrow(dim, 0, kept.shape[dim] - distance) * kept.narrow(
                    dim, distance, kept.shape[dim] - distance
                )
                assert abs(product.mean()) < 5 * p * (1 - p) / math.sqrt(product.numel()), (dim, distance)
    other = keep((8, 8, n, n), (5, 10), p).double() - (1 - p)
    assert abs((kept * other).mean()) < 5 * p * (1 - p) / math.sqrt(kept.numel())


def test_all_and_none():
    q = torch.randn(1, 2, 20, 16, requires_grad=True)
    o = attnc.attention(q, q, q, dropout_p=1.0)
    assert not o.any() and not torch.autograd.grad(o.sum(), q)[0].any()
    assert torch.equal(attnc.attention(q, q, q, dropout_p=0.0), attnc.attention(q, q, q))


def test_arrays():
    q = np.random.default_rng(0).standard_normal((1, 2, 40, 16)).astype(np.float32)
    state = np.array([3, 4], np.int64)
    want = dense(*(torch.from_numpy(q).double(),) * 3, keep((1, 2, 40, 40), state, 0.2), 0.2)
    o = attnc.attention(q, q, q, dropout_p=0.2, rng_state=state)
    assert np.abs(o - want.numpy()).max() < 2e-6


def test_what_is_refused():
    q = torch.randn(1, 1, 8, 16)
    for p in (-0.1, 1.5, float("nan")):
        with pytest.raises(attnc.Error, match="dropout_p from 0 to 1"):
            attnc.attention(q, q, q, dropout_p=p)
    for function in (attnc.attention, attnc.lower, attnc.explain):
        with pytest.raises(attnc.Error, match="no rng_state without dropout"):
            function(q, q, q, rng_state=torch.zeros(2, dtype=torch.int64))
    for state in (torch.zeros(2), torch.zeros(3, dtype=torch.int64), 5):
        with pytest.raises(attnc.Error, match="two int64"):
            attnc.attention(q, q, q, dropout_p=0.1, rng_state=state)


def test_drop_in():
    q = torch.randn(1, 2, 64, 32)
    torch.manual_seed(0)
    o = attnc.torch.scaled_dot_product_attention(q, q, q, dropout_p=0.5, is_causal=True)
    torch.manual_seed(0)
    assert torch.equal(o, attnc.attention(q, q, q, dropout_p=0.5, is_causal=True))


@pytest.mark.parametrize("device", DEVICES)
def test_compiled(device):
    """The graph has the state as an input, or draws it; score and mask functions beside it."""
    q, k, v, do = (torch.randn(1, 2, 80, 32, device=device) for _ in range(4))
    bias = torch.randn(80, device=device, requires_grad=True)
    leaves = [q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), bias]
    state = torch.tensor([5, 6], device=device)

    def run(q, k, v, bias, state):
        return attnc.attention(
            q, k, v, score_mod=lambda s, b, h, i, j: s + bias[j], is_causal=True, dropout_p=0.3, rng_state=state
        )

    compiled = torch.compile(run, fullgraph=True)
    want, found = run(*leaves, state), compiled(*leaves, state)
    assert torch.equal(found, want)
    for x, y in zip(torch.autograd.grad(found, leaves, do), torch.autograd.grad(want, leaves, do)):
        assert torch.allclose(x, y, rtol=1e-5, atol=1e-5 * float(y.abs().max()))
    first, second = compiled(*leaves, None), compiled(*leaves, None)
    assert not torch.equal(first, second)


def test_transforms():
    q = torch.randn(3, 1, 2, 40, 16)
    state = torch.tensor([5, 6])
    attend = lambda x, state: attnc.attention(x, x, x, dropout_p=0.3, rng_state=state)
    gradient = torch.func.grad(lambda x: attend(x, state).square().sum())
    x = q[0].clone().requires_grad_()
    assert torch.equal(gradient(q[0]), torch.autograd.grad(attend(x, state).square().sum(), x)[0])
    # One state for all samples, or one for each.
    states = torch.stack([state, state + 1, state + 2])
    for found, chosen in (
        (torch.func.vmap(attend, (0, None))(q, state), [state] * 3),
        (torch.func.vmap(attend)(q, states), states),
    ):
        assert all(torch.equal(o, attend(x, y)) for o, x, y in zip(found, q, chosen))
    draws = lambda x: attnc.attention(x, x, x, dropout_p=0.3)
    same = torch.func.vmap(draws, randomness="same")(q[:1].expand(2, *q.shape[1:]))
    other = torch.func.vmap(draws, randomness="different")(q[:1].expand(2, *q.shape[1:]))
    assert torch.equal(same[0], same[1]) and not torch.equal(other[0], other[1])
    with pytest.raises(RuntimeError, match="randomness"):
        torch.func.vmap(draws)(q)


def test_training_of_a_model():
    """A tiny Llama with dropout of attention: loss and gradients by the definition, which draws the same states."""
    transformers = pytest.importorskip("transformers")
    import attnc.transformers

    def definition(module, query, key, value, attention_mask, dropout=0.0, **settings):
        state = torch.randint(2**63 - 1, (2,))
        kept = keep((*query.shape[:3], key.shape[2]), state, dropout)
        return dense(query, key, value, kept, dropout, causal=True).transpose(1, 2), None

    attnc.transformers.register()
    transformers.AttentionInterface.register("definition", definition)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, attention_dropout=0.2, attn_implementation="attnc",
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).double().train()
    ids = torch.randint(64, (2, 40))
    seen = []
    for name in ("attnc", "definition"):
        model.set_attn_implementation(name)
        torch.manual_seed(7)
        loss = model(ids, labels=ids).loss
        seen.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    for x, y in zip(*seen):
        assert (x - y).norm() <= 1e-10 * y.norm()


def test_checkpointing():
    """What is computed again drops the same weights."""
    from torch.utils.checkpoint import checkpoint

    q = torch.randn(1, 2, 40, 16, requires_grad=True)
    gradients = []
    for run in (lambda f, x: f(x), lambda f, x: checkpoint(f, x, use_reentrant=False)):
        torch.manual_seed(4)
        o = run(lambda x: attnc.attention(x, x, x, dropout_p=0.5).square(), q)
        gradients.append(torch.autograd.grad(o.sum(), q)[0])
    assert torch.equal(*gradients)


@pytest.mark.cuda
@NO_GPU
def test_cuda_graph():
    """A graph reads the state when it is replayed, and draws one of its own anew."""
    q = torch.randn(1, 4, 200, 64, device="cuda", dtype=torch.bfloat16)
    state = torch.tensor([1, 2], device="cuda")
    given = lambda: attnc.attention(q, q, q, dropout_p=0.2, rng_state=state)
    drawn = lambda: attnc.attention(q, q, q, dropout_p=0.2)
    given(), drawn()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, p = given(), drawn()
    seen = []
    for seed in range(4):
        state.copy_(torch.tensor([seed, 2]))
        graph.replay()
        assert torch.equal(o, given())
        seen.append(p.clone())
    assert all(not torch.equal(x, y) for x, y in zip(seen, seen[1:]))
