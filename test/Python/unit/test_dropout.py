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
    with pytest.raises(Exception, match="dropout_p=0 inside"):
        torch.func.grad(lambda x: attnc.attention(x, x, x, dropout_p=0.1).sum())(q)


def test_drop_in():
    q = torch.randn(1, 2, 64, 32)
    torch.manual_seed(0)
    o = attnc.torch.scaled_dot_product_attention(q, q, q, dropout_p=0.5, is_causal=True)
    torch.manual_seed(0)
    assert torch.equal(o, attnc.attention(q, q, q, dropout_p=0.5, is_causal=True))
