# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attnc.attention on the CPU: values and gradients against the definition in float64."""

import math

import attnc
import numpy as np
import pytest
import torch
from support import Case, dense


def attend(**options):
    def call(q, k, v, score_mod, mask_mod):
        return attnc.attention(
            q, k, v, score_mod=score_mod, mask_mod=mask_mod, enable_gqa=True, return_lse=True, **options
        )

    return call


def alibi(c):
    return (lambda s, b, h, i, j: s - c["slope"][h] * (i - j).abs()), None


def softcap(c):
    return (lambda s, b, h, i, j: torch.tanh(s / 5.0) * 5.0), None


def learned_cap(c):
    return (lambda s, b, h, i, j: torch.tanh(s / c["cap"]) * c["cap"]), (lambda b, h, i, j: i >= j)


def bias(c):
    return (lambda s, b, h, i, j: s + c["bias"][h, i, j]), None


def relative(c):
    return (lambda s, b, h, i, j: s + c["table"][h, (j - i).clamp(-8, 8) + 8]), None


def documents(c):
    return None, lambda b, h, i, j: c["document"][b, i] == c["document"][b, j]


def everything(c):
    def score_mod(s, b, h, i, j):
        s = s + c["bias"][h, i, j] - c["slope"][h] * torch.relu((i - j) / 4)
        return torch.where((i // 4 + j % 3) % 2 == 0, s, s * 0.5 + torch.sigmoid(s))

    def mask_mod(b, h, i, j):
        return (c["document"][b, i] == c["document"][b, j]) & ~((i - j).abs() > 40) | (j < 3)

    return score_mod, mask_mod


def captures(dtype=torch.float32):
    g = torch.Generator().manual_seed(3)
    return {
        "slope": torch.rand(4, generator=g).to(dtype),
        "cap": torch.tensor(3.0, dtype=dtype),
        "bias": torch.randn(4, 70, 90, generator=g).to(dtype),
        "table": torch.randn(4, 17, generator=g).to(dtype),
        "document": torch.randint(0, 3, (2, 90), generator=g).sort().values.int(),
    }


def case(function, dtype=torch.float32, **options):
    names = {
        alibi: ["slope"], learned_cap: ["cap"], bias: ["bias"], relative: ["table"], documents: ["document"],
        everything: ["bias", "slope", "document"],
    }.get(function, [])  # fmt: skip
    kind = torch.float64 if dtype == torch.float64 else torch.float32
    return Case(function, {name: captures(kind)[name] for name in names}, dtype=dtype, **options)


def nothing(c):
    return None, None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_types(dtype):
    case(everything, dtype).compare(attend())


@pytest.mark.parametrize("function", [nothing, alibi, softcap, learned_cap, bias, relative, documents])
def test_variants(function):
    case(function).compare(attend())


@pytest.mark.parametrize("queries,heads", [(1, 2), (1, 1), (3, 4)])
@pytest.mark.parametrize("function", [nothing, learned_cap, bias, everything])
def test_few_queries(function, queries, heads):
    # Without gradients up to 16 make programs of their own: heads of a group as rows.
    few = case(function, shape=(2, 4, heads, queries, 90, 32, 24))
    with torch.no_grad():
        few.compare(attend(), gradients=False)
    few.compare(attend())


@pytest.mark.parametrize("queries", [1, 3])
def test_few_queries_at_the_end(queries):
    shape = (2, 4, 2, queries, 300, 32, 32)
    offset = 300 - queries
    with torch.no_grad():
        Case(shape=shape).compare(
            attend(is_causal=True, window=(100, 0), causal_alignment="bottom_right"),
            lambda b, h, i, j: (j <= i + offset) & (j >= i + offset - 100),
            gradients=False,
        )


@pytest.mark.parametrize("window", [None, (20, 0), (3, 40)])
@pytest.mark.parametrize("causal,alignment", [(False, "top_left"), (True, "top_left"), (True, "bottom_right")])
@pytest.mark.parametrize("heads,kv_heads,queries", [(8, 2, 4), (8, 1, 5), (6, 3, 16), (16, 1, 8)])
def test_queries_of_a_group_as_rows(heads, kv_heads, queries, causal, alignment, window):
    """What GPUs compile for few queries of grouped heads, on the CPU."""
    from attnc._attention import bind
    from attnc._torch import Packed
    from attnc._torch_ops import run_forward
    from attnc._variant import Options, packed_group

    group = packed_group(heads, kv_heads, queries)
    assert group == min(heads // kv_heads, 8)
    q, k, v = (torch.randn(2, h, n, 32) for h, n in ((heads, queries), (kv_heads, 90), (kv_heads, 90)))
    options = Options("float32", 32, 32, causal, alignment, window, queries=queries, group=group)
    packed = Packed.of(q, group)
    o, lse = packed.unpack(run_forward(bind(options, None, None).variant, [packed.rows(q), k, v]))
    offset = 90 - queries if alignment == "bottom_right" else 0
    left, right = window or (200, 200)
    right = 0 if causal else right
    mask = lambda b, h, i, j: (j <= i + offset + right) & (j >= i + offset - left)
    exact, exact_lse = dense(q.double(), k.double(), v.double(), mask_mod=mask)
    torch.testing.assert_close(o.double(), exact, rtol=0, atol=2e-6)
    torch.testing.assert_close(lse.double(), exact_lse, rtol=0, atol=2e-6)


@pytest.mark.parametrize("heads,kv_heads,queries", [(8, 2, 4), (6, 3, 16)])
def test_functions_of_a_group_as_rows(heads, kv_heads, queries):
    """Functions are asked at a row's head and query."""
    from attnc._attention import bind
    from attnc._torch import Packed
    from attnc._torch_ops import run_forward
    from attnc._variant import Options, packed_group

    score = lambda s, b, h, i, j: 20 * (s / 20).tanh() + (h + 1) * 0.25 * (j - i) / 90
    mask = lambda b, h, i, j: (j <= i * 7 + 3) | (j % (h + 2) == 0)
    group = packed_group(heads, kv_heads, queries)
    q, k, v = (torch.randn(2, h, n, 32) for h, n in ((heads, queries), (kv_heads, 90), (kv_heads, 90)))
    packed = Packed.of(q, group)
    options = Options("float32", 32, 32, queries=queries, group=group)
    o, lse = packed.unpack(run_forward(bind(options, score, mask).variant, [packed.rows(q), k, v]))
    exact, exact_lse = dense(q.double(), k.double(), v.double(), score_mod=score, mask_mod=mask)
    torch.testing.assert_close(o.double(), exact, rtol=0, atol=2e-6)
    torch.testing.assert_close(lse.double(), exact_lse, rtol=0, atol=4e-6)


def test_groups_that_are_no_rows():
    from attnc._variant import packed_group

    assert packed_group(8, 8, 4) == 1  # no group
    assert packed_group(8, 2, 1) == 1  # the compiler has them as rows
    assert packed_group(8, 2, None) == 1  # any number of queries
    assert packed_group(64, 4, 8) == 8  # of 16, for a tile has 64 rows
    assert packed_group(12, 4, 16) == 3 and packed_group(10, 2, 16) == 1


def test_narrow_captures_are_read_as_they_are():
    c = case(bias, torch.bfloat16)
    c.captures = {"bias": c.captures["bias"].bfloat16()}
    c.compare(attend())


@pytest.mark.parametrize("alignment", ["top_left", "bottom_right"])
@pytest.mark.parametrize("sq,sk", [(70, 90), (90, 70), (64, 64)])
def test_causal_and_window(alignment, sq, sk):
    shape = (1, 2, 1, sq, sk, 16, 24)
    offset = sk - sq if alignment == "bottom_right" else 0
    Case(shape=shape).compare(
        attend(is_causal=True, causal_alignment=alignment), lambda b, h, i, j: j <= i + offset
    )
    Case(shape=shape).compare(
        attend(window=(9, 4), causal_alignment=alignment),
        lambda b, h, i, j: (j <= i + offset + 4) & (j >= i + offset - 9),
    )
    Case(shape=shape).compare(
        attend(window=(9, -1), is_causal=True, causal_alignment=alignment),
        lambda b, h, i, j: (j <= i + offset) & (j >= i + offset - 9),
    )


def test_scale():
    Case(scale=0.37).compare(attend(scale=0.37))


def test_queries_without_keys():
    c = Case()
    o, lse = attnc.attention(
        c.q, c.k, c.v, mask_mod=lambda b, h, i, j: (i % 7 != 3) & (j < 50), enable_gqa=True, return_lse=True
    )
    assert (o[:, :, 3::7] == 0).all() and (lse[:, :, 3::7] == -math.inf).all()
    assert not o.isnan().any() and lse[:, :, 0].isfinite().all()


def test_empty():
    for sq, sk in [(0, 5), (5, 0), (0, 0)]:
        q, k = torch.randn(1, 2, sq, 8, requires_grad=True), torch.randn(1, 2, sk, 8, requires_grad=True)
        o, lse = attnc.attention(q, k, k, return_lse=True)
        assert o.shape == (1, 2, sq, 8) and (o == 0).all() and (lse == -math.inf).all()
        o.sum().backward()
        assert (q.grad == 0).all() and (k.grad == 0).all()


def test_layout_and_strides():
    c = Case(shape=(2, 4, 2, 33, 45, 16, 16))
    expected = dense(c.q, c.k, c.v)[0]
    # Heads inside of the sequence, in memory that has other things too.
    packed = torch.randn(2, 45, 10, 16)
    q, k, v = packed[:, :33, :4], packed[:, :, 4:6], packed[:, :, 7:9]
    for view, x in zip((q, k, v), (c.q, c.k, c.v)):
        view.copy_(x.transpose(1, 2))
    got = attnc.attention(q, k, v, layout="bshd", enable_gqa=True)
    assert got.shape == (2, 33, 4, 16)
    # The output lies in memory as the query does.
    assert got.is_contiguous()
    torch.testing.assert_close(got.transpose(1, 2), expected, rtol=1e-5, atol=1e-5)
    # An innermost stride other than 1, and a stride of 0.
    q = c.q.transpose(-1, -2).contiguous().transpose(-1, -2)
    k = c.k[:1].expand(2, -1, -1, -1)
    got = attnc.attention(q, k, c.v, enable_gqa=True)
    torch.testing.assert_close(got, dense(c.q, k, c.v)[0], rtol=1e-5, atol=1e-5)


def test_captures_of_any_stride():
    table = torch.randn(90, 70, 4).permute(2, 1, 0).requires_grad_()
    steps = torch.randn(8, requires_grad=True)
    c = Case()

    def score_mod(s, b, h, i, j):
        return s + table[h, i, j] * steps[::2][h]

    o = attnc.attention(c.q, c.k, c.v, score_mod=score_mod, enable_gqa=True)
    expected = dense(c.q, c.k, c.v, lambda s, *n: s + table * steps[::2][:, None, None])[0]
    torch.testing.assert_close(o, expected, rtol=1e-5, atol=1e-5)
    for a, b in zip(torch.autograd.grad(o, [table, steps], c.do), torch.autograd.grad(expected, [table, steps], c.do)):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_numpy():
    c = case(everything)
    bias_, slope, document = (x.numpy() for x in c.captures.values())

    def score_mod(s, b, h, i, j):
        s = s + bias_[h, i, j] - slope[h] * np.maximum((i - j) / 4, 0)
        return np.where((i // 4 + j % 3) % 2 == 0, s, s * 0.5 + 1 / (1 + np.exp(-s)))

    def mask_mod(b, h, i, j):
        return (document[b, i] == document[b, j]) & ~(abs(i - j) > 40) | (j < 3)

    o, lse = attnc.attention(
        c.q.numpy(), c.k.numpy(), c.v.numpy(), score_mod=score_mod, mask_mod=mask_mod, enable_gqa=True, return_lse=True
    )
    assert isinstance(o, np.ndarray)
    expected = c.run(lambda *x: dense(*x), gradients=False)
    np.testing.assert_allclose(o, expected["O"].detach(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(lse, expected["LSE"].detach(), rtol=1e-5, atol=1e-5)
    turned = [np.asarray(x.numpy().swapaxes(1, 2)) for x in (c.q, c.k, c.v)]
    o = attnc.attention(*turned, layout="bshd", enable_gqa=True)
    np.testing.assert_allclose(o.swapaxes(1, 2), dense(c.q, c.k, c.v)[0], rtol=1e-5, atol=1e-5)


class ByDlpack:
    """An array that can do nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack():
    c = Case()
    o = attnc.attention(*(ByDlpack(x.numpy()) for x in (c.q, c.k, c.v)), enable_gqa=True)
    np.testing.assert_allclose(o, dense(c.q, c.k, c.v)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "change,message",
    [
        (dict(layout="sbhd"), "expected layout 'bhsd' or 'bshd'"),
        (dict(causal_alignment="left"), "expected causal_alignment 'top_left' or 'bottom_right'"),
        (dict(window=(3, -2)), "expected a window"),
        (dict(window=3), "expected a window"),
        (dict(scale=math.inf), "expected a finite scale"),
        (dict(enable_gqa=False), "enable_gqa=True"),
        (dict(key=torch.randn(2, 3, 90, 32)), "the same heads and length"),
        (dict(query=torch.randn(2, 5, 70, 32)), "multiple of the key's 2"),
        (dict(key=torch.randn(2, 2, 90, 16)), "one head dimension"),
        (dict(key=torch.randn(2, 2, 90, 32).double()), "expected key to be of float32 as query is, got float64"),
        (dict(value=torch.randn(2, 2, 80, 32)), "the same heads and length"),
        (dict(query=torch.randn(4, 70, 32)), "expected query to have 4 dimensions"),
        (dict(query=torch.randn(3, 4, 70, 32)), "one batch size"),
        (dict(query=[1.0]), "expected query to be a tensor"),
        (dict(query=torch.zeros(2, 4, 70, 32, dtype=torch.int32)), "as query is"),
    ],
)
def test_wrong_arguments(change, message):
    c = Case()
    arguments = dict(query=c.q, key=c.k, value=c.v, enable_gqa=True) | change
    with pytest.raises(attnc.Error, match=message):
        attnc.attention(arguments.pop("query"), arguments.pop("key"), arguments.pop("value"), **arguments)


def test_integers_are_refused():
    x = torch.zeros(1, 1, 4, 8, dtype=torch.int32)
    with pytest.raises(attnc.Error, match="expected tensors of float64"):
        attnc.attention(x, x, x)
    with pytest.raises(attnc.Error, match="expected tensors of float64"):
        attnc.attention(x.numpy(), x.numpy(), x.numpy())


def test_captures_are_read_within_their_bounds():
    c = Case()
    short = torch.randn(4, 60)
    with pytest.raises(attnc.Error, match=r"test_attention.py:\d+: dimension 1 of a captured tensor has 60 elements"):
        attnc.attention(c.q, c.k, c.v, score_mod=lambda s, b, h, i, j: s + short[h, i], enable_gqa=True)
    table = torch.randn(4, 68)
    with pytest.raises(attnc.Error, match="read from -69 to 67: clamp the index"):
        attnc.attention(
            c.q, c.k, c.v, score_mod=lambda s, b, h, i, j: s + table[h, (j - i).clamp(max=67)], enable_gqa=True
        )
    # What fits in one call need not in the next.
    f = lambda s, b, h, i, j: s + short[h, i]
    attnc.attention(c.q[:, :, :60], c.k, c.v, score_mod=f, enable_gqa=True)
    with pytest.raises(attnc.Error, match="60 elements"):
        attnc.attention(c.q[:, :, :61], c.k, c.v, score_mod=f, enable_gqa=True)


@pytest.mark.parametrize(
    "index",
    [
        lambda i, j: (i - j).clamp(0, 7),
        lambda i, j: (i - j) % 8,
        lambda i, j: torch.where((i >= j) & (i - j < 8), i - j, 0),
        lambda i, j: torch.where((i < j) | (7 < i - j), 3, i - j),
        lambda i, j: torch.where(~(i - j >= 8) & (i - j > -1), i - j, 7),
        lambda i, j: (i * 5 + 3) // 100 + (j > i) * 2,
        lambda i, j: abs(i // 20 - 2),
    ],
)
def test_indices_that_stay_within(index):
    table = torch.randn(8)
    f = lambda s, b, h, i, j: s + table[index(i, j)]
    c = Case()
    torch.testing.assert_close(
        attnc.attention(c.q, c.k, c.v, score_mod=f, enable_gqa=True),
        dense(c.q, c.k, c.v, f)[0], rtol=1e-5, atol=1e-5,
    )  # fmt: skip
    short = torch.randn(2)
    with pytest.raises(attnc.Error, match="clamp the index"):
        g = lambda s, b, h, i, j: s + short[index(i, j)]
        attnc.attention(c.q, c.k, c.v, score_mod=g, enable_gqa=True)
