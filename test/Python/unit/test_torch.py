# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The drop-ins against PyTorch's own functions, on the CPU."""

import attnc
import attnc.torch
import pytest
import torch
from attnc._blocks import mask_of_blocks
from support import check
from torch.nn.attention import SDPBackend, flex_attention as flex, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.functional import scaled_dot_product_attention as sdpa


def randn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + len(shape)), dtype=torch.float64).to(dtype)


def compare_sdpa(q, k, v, mask=None, **options):
    """Values and gradients, those of a mask too, within twice PyTorch's error."""
    do = randn(*q.shape[:-1], v.shape[-1], seed=9).to(q.dtype)

    def run(function, dtype):
        # A bias between other layers is of the inputs' type.
        leaves = [x.detach().to(dtype).requires_grad_() for x in (q, k, v)]
        bias = mask
        if isinstance(mask, torch.Tensor) and type(mask) is torch.Tensor and mask.is_floating_point():
            bias = mask.detach().to(dtype).requires_grad_()
            leaves.append(bias)
        o = function(*leaves[:3], attn_mask=bias, **options)
        return [o, *torch.autograd.grad(o, leaves, do.to(dtype).expand(o.shape))]

    exact = run(sdpa, torch.float64)
    got, own = run(attnc.torch.scaled_dot_product_attention, q.dtype), run(sdpa, q.dtype)
    with sdpa_kernel(SDPBackend.MATH):
        other = run(sdpa, q.dtype)
    for name, a, b, *baselines in zip(("O", "dQ", "dK", "dV", "d mask"), got, exact, own, other):
        check(name, a, b, baselines, q.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
# One query has few keys: of more, the rounded log-sum-exp alone reaches the limit now and then (docs/numerics.md).
@pytest.mark.parametrize("sq,sk", [(40, 40), (24, 40), (40, 24), (1, 12)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_sdpa_lengths(dtype, sq, sk, is_causal):
    q, k = randn(8, 3, sq, 16, dtype=dtype), randn(8, 3, sk, 16, dtype=dtype, seed=1)
    v = randn(8, 3, sk, 24, dtype=dtype, seed=2)
    compare_sdpa(q, k, v, is_causal=is_causal)


@pytest.mark.parametrize("shape", [(40, 40), (1, 40), (2, 1, 40, 40), (2, 3, 1, 40), (3, 40, 40), (2, 1, 1, 40)])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_sdpa_masks(shape, kind):
    q, k, v = (randn(2, 3, 40, 16, seed=n) for n in range(3))
    mask = randn(*shape, seed=4)
    compare_sdpa(q, k, v, mask=mask > -0.5 if kind == "bool" else mask)


def test_sdpa_rows_without_keys():
    q, k, v = (randn(1, 2, 8, 16, seed=n) for n in range(3))
    mask = torch.ones(8, 8, dtype=torch.bool)
    mask[3] = False
    compare_sdpa(q, k, v, mask=mask)
    compare_sdpa(q, k, v, mask=torch.where(mask, 0.0, -float("inf")))


@pytest.mark.parametrize("dims", [2, 3, 5])
def test_sdpa_dimensions(dims):
    lead = {2: (), 3: (4,), 5: (2, 2, 3)}[dims]
    q, k, v = randn(*lead, 10, 16), randn(*lead, 12, 16, seed=1), randn(*lead, 12, 8, seed=2)
    compare_sdpa(q, k, v)
    compare_sdpa(q, k, v, is_causal=True, scale=0.3)
    if dims == 3:
        compare_sdpa(q, k, v, mask=randn(4, 10, 12) > 0)


def test_sdpa_grouped_heads():
    q, k, v = randn(2, 6, 20, 16), randn(2, 2, 30, 16, seed=1), randn(2, 2, 30, 16, seed=2)
    compare_sdpa(q, k, v, enable_gqa=True)


@pytest.mark.parametrize("make", [causal_upper_left, causal_lower_right])
def test_sdpa_causal_biases(make):
    q, k, v = randn(2, 3, 20, 16), randn(2, 3, 30, 16, seed=1), randn(2, 3, 30, 16, seed=2)
    got = attnc.torch.scaled_dot_product_attention(q, k, v, attn_mask=make(20, 30))
    torch.testing.assert_close(got, sdpa(q, k, v, attn_mask=make(20, 30)), rtol=2e-5, atol=2e-5)


def test_sdpa_refuses():
    q = randn(1, 2, 8, 16)
    with pytest.raises(RuntimeError, match="got both"):
        attnc.torch.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(8, 8), is_causal=True)
    with pytest.raises(attnc.Error, match="expected attn_mask to broadcast to"):
        attnc.torch.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(8, 7))
    with pytest.raises(attnc.Error, match="boolean or floating-point"):
        attnc.torch.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(8, 8, dtype=torch.int32))
    with pytest.raises(attnc.Error, match="2 dimensions or more"):
        attnc.torch.scaled_dot_product_attention(q, q[0, 0, 0], q)
    with pytest.raises(attnc.Error, match="shapes of query, key and value to broadcast"):
        attnc.torch.scaled_dot_product_attention(q, q.expand(3, 2, 8, 16), q.expand(2, 2, 8, 16))


# FlexAttention. PyTorch has no backward of it on the CPU; test_attention.py has gradients.

SLOPE, TABLE = randn(4, seed=3), randn(4, 200, seed=4)
DOCUMENT = torch.randint(0, 3, (2, 96), generator=torch.Generator().manual_seed(5)).sort().values


def score_alibi(score, b, h, q_idx, kv_idx):
    return score + SLOPE[h] * (kv_idx - q_idx)


def score_table(score, b, h, q_idx, kv_idx):
    return torch.tanh((score + TABLE[h, q_idx - kv_idx + 95]) / 8) * 8


def mask_causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def mask_window(b, h, q_idx, kv_idx):
    return (q_idx - kv_idx).abs() <= 20


def mask_document(b, h, q_idx, kv_idx):
    return DOCUMENT[b, q_idx] == DOCUMENT[b, kv_idx]


def compare_flex(score_mod, mask_mod, sq=96, sk=96, **options):
    q, k, v = randn(2, 4, sq, 16), randn(2, 2, sk, 16, seed=1), randn(2, 2, sk, 16, seed=2)
    block_mask = None
    if mask_mod is not None:
        block_mask = flex.create_block_mask(mask_mod, 2, 4, sq, sk, device="cpu", BLOCK_SIZE=32)
    options = dict(score_mod=score_mod, block_mask=block_mask, enable_gqa=True, **options)
    o, lse = attnc.torch.flex_attention(q, k, v, return_lse=True, **options)
    expected, expected_lse = flex.flex_attention(q, k, v, return_lse=True, **options)
    torch.testing.assert_close(o, expected, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(lse, expected_lse, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("score_mod", [None, score_alibi, score_table])
@pytest.mark.parametrize("mask_mod", [None, mask_causal, mask_window, mask_document])
def test_flex(score_mod, mask_mod):
    compare_flex(score_mod, mask_mod)


def test_flex_combinations():
    compare_flex(None, flex.and_masks(mask_causal, mask_document))
    compare_flex(score_alibi, flex.or_masks(mask_window, mask_document), scale=0.2)
    compare_flex(None, flex.noop_mask, sq=40, sk=96)


def test_flex_rows_without_keys():
    compare_flex(None, lambda b, h, i, j: (i % 5 != 2) & (i >= j))


def test_flex_blocks_without_a_function():
    q, k, v = (randn(1, 2, 64, 16, seed=n) for n in range(3))
    # Block (0, 0) and blocks (1, 0), (1, 1) of 32 by 32.
    mask = flex.BlockMask.from_kv_blocks(
        torch.tensor([[[1, 2]]], dtype=torch.int32),
        torch.tensor([[[[0, 1], [0, 1]]]], dtype=torch.int32),
        BLOCK_SIZE=32,
    )
    # As PyTorch's compiled kernels; its eager evaluation does not look at blocks.
    got = attnc.torch.flex_attention(q, k, v, block_mask=mask)
    keep = torch.ones(64, 64, dtype=torch.bool)
    keep[:32, 32:] = False
    torch.testing.assert_close(got, sdpa(q, k, v, attn_mask=keep), rtol=2e-5, atol=2e-5)


def picked_blocks(heads, rows, columns, size, mask_mod, full=None):
    """A BlockMask of blocks at random, and the pairs that it keeps, by PyTorch's definition."""
    generator = torch.Generator().manual_seed(heads + rows)
    pick = torch.rand(1, heads, rows, columns, generator=generator) < 0.4
    full = torch.rand(pick.shape, generator=generator) < 0.2 if full else torch.zeros_like(pick)
    pick &= ~full
    lists = lambda table: (table.sum(-1).int(), torch.argsort(table.int(), dim=-1, descending=True, stable=True).int())
    mask = flex.BlockMask.from_kv_blocks(*lists(pick), *lists(full), BLOCK_SIZE=size, mask_mod=mask_mod)
    i, j = torch.arange(rows * size[0])[:, None], torch.arange(columns * size[1])[None]
    at = lambda table: table[0, :, i // size[0], j // size[1]]
    return mask, at(full) | (at(pick) & mask_mod(0, 0, i, j))


@pytest.mark.parametrize("heads, size, full", [(1, (32, 32), False), (4, (32, 32), True), (4, (48, 16), True)])
def test_flex_chosen_blocks(heads, size, full):
    mask_mod = lambda b, h, i, j: i + 3 >= j
    mask, keep = picked_blocks(heads, 192 // size[0], 192 // size[1], size, mask_mod, full)
    q, k, v = (randn(2, 4, 192, 16, seed=n).requires_grad_() for n in range(3))
    got = attnc.torch.flex_attention(q, k, v, block_mask=mask)
    do = randn(2, 4, 192, 16, seed=4)
    gradients = torch.autograd.grad(got, (q, k, v), do)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    exact = sdpa(*wide, attn_mask=keep[None]).nan_to_num(0.0)
    torch.testing.assert_close(got, exact.float(), rtol=2e-5, atol=2e-5)
    for x, right in zip(gradients, torch.autograd.grad(exact, wide, do.double())):
        torch.testing.assert_close(x, right.nan_to_num(0.0).float(), rtol=2e-5, atol=2e-5)


def test_flex_blocks_follow_from_the_function(compiled):
    """What create_block_mask makes is read by its function alone, until a list is written to."""
    q = randn(1, 2, 64, 16)
    mask = flex.create_block_mask(mask_causal, None, None, 64, 64, device="cpu", BLOCK_SIZE=32)
    attnc.torch.flex_attention(q, q, q, block_mask=mask)
    assert mask_of_blocks(mask, mask_causal) is mask_causal
    mask.kv_num_blocks[0, 0, 1] = 0  # and the full block (1, 0) stays
    got = attnc.torch.flex_attention(q, q, q, block_mask=mask)
    keep = torch.ones(64, 64, dtype=torch.bool).tril()
    keep[32:, 32:] = False
    torch.testing.assert_close(got, sdpa(q, q, q, attn_mask=keep), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("change", ["mask_mod", "number", "tensor"])
def test_flex_blocks_of_another_function(change):
    """What was found out of a BlockMask is of its function as it was."""
    shift, rows = 0, torch.arange(64)

    def below(b, h, i, j):
        return rows[i] + shift >= j

    q = randn(1, 2, 64, 16)
    mask = flex.create_block_mask(below, None, None, 64, 64, device="cpu", BLOCK_SIZE=32)
    attnc.torch.flex_attention(q, q, q, block_mask=mask)
    if change == "mask_mod":
        mask.mask_mod = lambda b, h, i, j: i + 3 >= j
    elif change == "number":
        shift = 3
    else:
        rows = torch.arange(64) + 3
    got = attnc.torch.flex_attention(q, q, q, block_mask=mask)
    i, j = torch.arange(64)[:, None], torch.arange(64)
    # Block (1, 0) is full, block (0, 1) absent: its pairs, which are new, do not count.
    keep = (i + 3 >= j) & ((i >= 32) | (j < 32))
    torch.testing.assert_close(got, sdpa(q, q, q, attn_mask=keep), rtol=2e-5, atol=2e-5)


def test_flex_blocks_for_all_batches():
    """One list for all batches, though the function tells them apart: the list counts."""
    q = randn(2, 1, 64, 16)
    by_batch = lambda b, h, i, j: (j >= 32) | (b == 1)
    mask = flex.create_block_mask(lambda b, h, i, j: j >= 32, None, None, 64, 64, device="cpu", BLOCK_SIZE=32)
    mask.mask_mod = by_batch
    got = attnc.torch.flex_attention(q, q, q, block_mask=mask)
    keep = (torch.arange(64) >= 32).expand(64, 64)
    torch.testing.assert_close(got, sdpa(q, q, q, attn_mask=keep), rtol=2e-5, atol=2e-5)


def test_flex_keys_of_one_batch():
    q, k, v = randn(3, 4, 40, 16), randn(1, 2, 48, 16, seed=1), randn(1, 2, 48, 24, seed=2)
    got = attnc.torch.flex_attention(q, k, v, enable_gqa=True)
    exact = sdpa(q, k.expand(3, -1, -1, -1), v.expand(3, -1, -1, -1), enable_gqa=True)
    torch.testing.assert_close(got, exact, rtol=2e-5, atol=2e-5)


def test_flex_results_and_refusals():
    q = randn(1, 2, 32, 16)
    assert isinstance(attnc.torch.flex_attention(q, q, q, kernel_options={"BLOCK_M": 64}), torch.Tensor)
    _, aux = attnc.torch.flex_attention(q, q, q, return_aux=flex.AuxRequest(lse=True))
    assert aux.lse.shape == (1, 2, 32) and aux.max_scores is None
    with pytest.raises(NotImplementedError, match="largest"):
        attnc.torch.flex_attention(q, q, q, return_aux=flex.AuxRequest(max_scores=True))
    block_mask = flex.create_block_mask(mask_causal, None, None, 64, 64, device="cpu")
    with pytest.raises(ValueError, match="for the lengths 32 and 32, got one for"):
        attnc.torch.flex_attention(q, q, q, block_mask=block_mask)
    got = attnc.torch.flex_attention(q, q, q, mask_mod=mask_causal)
    torch.testing.assert_close(got, sdpa(q, q, q, is_causal=True), rtol=2e-5, atol=2e-5)
