# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is said of calls that cannot be: what was expected, what was found, and the user's line."""

import inspect
import re

import numpy as np
import pytest
import torch

import attnc
import attnc.torch
from attnc.torch import flex_attention, scaled_dot_product_attention

Q = torch.randn(1, 2, 8, 16)
PARTS = [torch.randn(2, 3, 16), torch.randn(2, 5, 16)]
SPARSE, META = torch.eye(8).to_sparse(), torch.zeros(8, 8, device="meta")


def attend(query, key=None, value=None, **options):
    key = query if key is None else key
    return attnc.attention(query, key, key if value is None else value, **options)


def nested():
    return torch.nested.nested_tensor(PARTS)


def jagged():
    return torch.nested.nested_tensor([x.transpose(0, 1) for x in PARTS], layout=torch.jagged).transpose(1, 2)


CASES = {
    "nested": (lambda: attend(nested()), "query to be a dense tensor, got a nested one"),
    "jagged": (lambda: attend(jagged()), "query to be a dense tensor, got a nested one"),
    "nested keys": (lambda: attend(Q, nested()), "key to be a dense tensor, got a nested one"),
    "nested sdpa": (lambda: scaled_dot_product_attention(*[nested()] * 3), "query to be a dense tensor, got a nested"),
    "jagged sdpa": (lambda: scaled_dot_product_attention(*[jagged()] * 3), "query to be a dense tensor, got a nested"),
    "jagged flex": (lambda: flex_attention(*[jagged()] * 3), "query to be a dense tensor, got a nested"),
    "sparse": (lambda: attend(Q.to_sparse()), "query to be a dense tensor, got torch.sparse_coo"),
    "sparse mask": (lambda: scaled_dot_product_attention(Q, Q, Q, SPARSE), "attn_mask to be .*, got torch.sparse_coo"),
    "sparse capture": (
        lambda: attend(Q, score_mod=lambda s, b, h, i, j: s + SPARSE[i, j]), "captured .*, got torch.sparse_coo"),
    "mkldnn": (lambda: attend(Q.to_mkldnn()), "query to be a dense tensor, got torch._mkldnn"),
    "quantized": (
        lambda: attend(torch.quantize_per_tensor(Q, 0.1, 0, torch.qint8)), "dense tensor, got a quantized one"),
    "complex": (lambda: attend(Q + 0j), "of float64, float32, float16 or bfloat16, got torch.complex64"),
    "integers": (lambda: attend(Q.int()), "of float64, float32, float16 or bfloat16, got torch.int32"),
    "strings": (lambda: attend(np.full((1, 1, 1, 1), "a")), "of float64, .*, got <U1"),
    "two types": (lambda: attend(Q, Q.half()), "key to be of float32 as query is, got float16"),
    "two devices": (lambda: attend(Q, Q.to("meta")), "on cpu, got one on meta"),
    "mask of another device": (lambda: scaled_dot_product_attention(Q, Q, Q, META), "on cpu, got one on meta"),
    "query of another device": (lambda: attend(Q.to("meta"), Q), "on meta, got one on cpu"),
    "two libraries": (lambda: attend(Q.numpy(), Q), "of one library, got ndarray, Tensor, Tensor"),
    "no tensor": (lambda: attend([1.0]), "query to be a tensor of PyTorch, an array of NumPy"),
    "dimensions": (lambda: attend(Q[0]), r"query to have 4 dimensions, got shape \(2, 8, 16\)"),
    "heads": (lambda: attend(Q, torch.randn(1, 3, 8, 16), enable_gqa=True), "2 heads to be a multiple of the key's 3"),
    "lengths": (lambda: attend(Q, Q, Q[:, :, :7]), r"the same heads and length, got \(1, 2, 8, 16\)"),
    "one number of a window": (lambda: attend(Q, window=4), r"a window \(left, right\) of integers from -1"),
    "a window of floats": (lambda: attend(Q, window=(4.0, 4)), r"window \(left, right\) of integers .*got \(4.0, 4\)"),
    "a window of booleans": (lambda: attend(Q, window=(True, 4)), r"window \(left, right\) of integers"),
    "a window of three": (lambda: attend(Q, window=[1, 2, 3]), r"window \(left, right\) of integers"),
    "below -1": (lambda: attend(Q, window=(-2, 0)), r"window \(left, right\) of integers"),
    "a scale with a gradient": (lambda: attend(Q, scale=torch.tensor(0.3)), "scale to be a number, got a tensor"),
    "a scale of letters": (lambda: attend(Q, scale="0.3"), "scale to be a number, got '0.3'"),
    "a flag of letters": (lambda: attend(Q, is_causal="no"), "is_causal to be True or False, got 'no'"),
    "a flag that is a tensor": (lambda: attend(Q, is_causal=torch.tensor(True)), "is_causal to be True or False"),
    "alignment": (lambda: attend(Q, is_causal=True, causal_alignment=["top_left"]), "causal_alignment 'top_left' or"),
    "layout": (lambda: attend(Q, layout="sbhd"), "layout 'bhsd' or 'bshd', got 'sbhd'"),
    "mask of NumPy": (lambda: scaled_dot_product_attention(Q, Q, Q, np.ones((8, 8))), "a tensor .*, got a ndarray"),
    "mask of five dimensions": (
        lambda: scaled_dot_product_attention(Q, Q, Q, torch.ones(1, 1, 1, 8, 8)),
        r"attn_mask to broadcast to \(1, 2, 8, 8\), got \(1, 1, 1, 8, 8\)"),
    "mask for five dimensions": (
        lambda: scaled_dot_product_attention(Q[None], Q[None], Q[None], torch.ones(3, 1, 1, 8)),
        r"attn_mask to broadcast to \(1, 1, 2, 8, 8\), got \(3, 1, 1, 8\)"),
    "mask of numbers": (
        lambda: scaled_dot_product_attention(Q, Q, Q, torch.ones(8, 8, dtype=torch.int32)), "got torch.int32"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_messages(name):
    call, message = CASES[name]
    with pytest.raises(attnc.Error, match=rf"^{re.escape(__file__)}:\d+: (?s:.)*expected (?s:.)*{message}"):
        call()


def test_numbers_of_numpy():
    exact = attend(Q, window=(4, 2), scale=0.25, is_causal=True)
    for window in ([4, 2], np.array([4, 2]), (np.int64(4), np.int32(2)), torch.tensor([4, 2])):
        scale, flag = np.float64(0.25), np.bool_(True)
        assert torch.equal(attend(Q, window=window, scale=scale, is_causal=flag), exact)
    near, factor = np.int64(3), np.float32(0.5)
    got = attend(Q, mask_mod=lambda b, h, i, j: i - j < near, score_mod=lambda s, b, h, i, j: s * factor)
    want = attend(Q, mask_mod=lambda b, h, i, j: i - j < 3, score_mod=lambda s, b, h, i, j: s * 0.5)
    assert torch.equal(got, want)
    assert attnc.lower(Q, Q, Q, window=[4, np.int64(2)]).levels == attnc.lower(Q, Q, Q, window=(4, 2)).levels


def test_meta_tensors_have_shapes():
    q = torch.empty(2, 4, 10, 16, device="meta", requires_grad=True)
    k = torch.empty(2, 2, 12, 16, device="meta")
    v = torch.empty(2, 2, 12, 24, device="meta")
    o, lse = attnc.attention(q, k, v, enable_gqa=True, return_lse=True)
    assert o.is_meta and o.shape == (2, 4, 10, 24) and lse.shape == (2, 4, 10)
    o.sum().backward()
    assert q.grad.is_meta and q.grad.shape == q.shape
    assert scaled_dot_product_attention(q, q, q, torch.empty(10, 10, device="meta")).is_meta


def test_zeros_without_memory():
    """What PyTorch has for gradients that are 0 everywhere, also behind a call of the same form."""
    zeros = torch._efficientzerotensor(Q.shape)
    for _ in range(2):
        assert torch.equal(attend(zeros, Q), attend(torch.zeros_like(Q), Q))
        attend(Q)
    leaf = Q.clone().requires_grad_()
    for _ in range(2):
        assert torch.autograd.grad(attend(leaf), leaf, zeros)[0].count_nonzero() == 0
        torch.autograd.grad(attend(leaf), leaf, Q)


# Drop-ins have all parameters of what they stand for, so that none is dropped.


def test_parameters_of_sdpa():
    schema = torch.ops.aten.scaled_dot_product_attention.default._schema
    own = inspect.signature(scaled_dot_product_attention).parameters
    assert [argument.name for argument in schema.arguments] == list(own)
    for argument in schema.arguments:
        if argument.has_default_value():
            assert own[argument.name].default == argument.default_value, argument.name
    with pytest.raises(attnc.Error, match=r"dropout_p from 0 to 1, got 1\.1"):
        scaled_dot_product_attention(Q, Q, Q, dropout_p=1.1)
    with pytest.raises(TypeError, match="another"):
        scaled_dot_product_attention(Q, Q, Q, another=1)


def test_parameters_of_flex_attention():
    from torch.nn.attention import flex_attention as original

    theirs = inspect.signature(original.flex_attention).parameters
    own = inspect.signature(flex_attention).parameters
    assert set(own) - set(theirs) == {"mask_mod"} and set(theirs) <= set(own)
    for name, parameter in theirs.items():
        assert own[name].default == parameter.default and own[name].kind == parameter.kind, name
    options = set(original.FlexKernelOptions.__annotations__)
    assert options == attnc.torch.KERNEL_OPTIONS
    flex_attention(Q, Q, Q, kernel_options={"fwd_BLOCK_M": 64, "bwd_num_warps": 4})
    with pytest.raises(NotImplementedError, match="ANOTHER of kernel_options"):
        flex_attention(Q, Q, Q, kernel_options={"ANOTHER": 1})
    fields = set(original.AuxRequest.__dataclass_fields__ if hasattr(original.AuxRequest, "__dataclass_fields__")
                 else original.AuxRequest._fields)  # fmt: skip
    assert fields == {"lse", "max_scores"}
    with pytest.raises(NotImplementedError, match="largest scores"):
        flex_attention(Q, Q, Q, return_aux=original.AuxRequest(max_scores=True))


def test_options_of_lower_and_explain():
    """Those of attention(), by name."""
    names = list(inspect.signature(attnc.attention).parameters)[3:]
    given = dict(score_mod=None, mask_mod=None, is_causal=True, causal_alignment="top_left", window=(4, 0), scale=0.5,
                 enable_gqa=True, return_lse=True, deterministic=True, precision="ieee", dropout_p=0.1,
                 rng_state=None, layout="bhsd")  # fmt: skip
    assert names == list(given)
    assert attnc.lower(Q, Q, Q, **given).levels
    attnc.explain(Q, Q, Q, **given)
    for function in (attnc.lower, attnc.explain):
        with pytest.raises((attnc.Error, TypeError), match="another"):
            function(Q, Q, Q, another=1)
