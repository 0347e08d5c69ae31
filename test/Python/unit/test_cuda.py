# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attnc.attention on a Hopper GPU."""

import itertools
import time

import attnc
import attnc.torch
import pytest
import torch
from support import Case, dense
from test_attention import alibi, attend, bias, captures, documents, nothing, softcap

pytestmark = pytest.mark.cuda
SHAPE = (2, 4, 2, 300, 333, 64, 64)


def case(function, dtype=torch.bfloat16, shape=SHAPE):
    names = {alibi: ["slope"], bias: ["bias"], documents: ["document"]}.get(function, [])
    tensors = captures(dtype if dtype == torch.float64 else torch.float32)
    b, h, _, sq, sk = shape[:5]
    tensors["bias"] = torch.randn(h, sq, sk).to(dtype)
    tensors["document"] = torch.randint(0, 4, (b, max(sq, sk))).sort().values.int()
    return Case(function, {name: tensors[name] for name in names}, shape=shape, dtype=dtype, device="cuda")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("function", [nothing, alibi, softcap, bias, documents])
def test_forward(function, dtype):
    case(function, dtype).compare(attend(), gradients=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("d,dv", [(64, 64), (320, 320), (40, 513)])
def test_all_types_and_head_dimensions(dtype, d, dv):
    case(alibi, dtype, shape=(1, 4, 2, 130, 200, d, dv)).compare(attend())


def test_precision():
    q, k, v = (torch.randn(1, 2, 200, 64, device="cuda") for _ in range(3))
    want = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
    errors = {
        precision: (attnc.attention(q, k, v, precision=precision) - want).norm() / want.norm()
        for precision in ("ieee", "tf32x3", "tf32")
    }
    assert errors["ieee"] < 1e-6 and errors["tf32x3"] < 2e-6 and 1e-5 < errors["tf32"] < 2e-3


@pytest.mark.parametrize("alignment", ["top_left", "bottom_right"])
@pytest.mark.parametrize("sq,sk", [(300, 333), (333, 300), (1, 256)])
def test_causal(alignment, sq, sk):
    offset = sk - sq if alignment == "bottom_right" else 0
    case(nothing, shape=(1, 2, 2, sq, sk, 128, 128)).compare(
        attend(is_causal=True, causal_alignment=alignment), lambda b, h, i, j: j <= i + offset, gradients=False
    )


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("function", [nothing, alibi, softcap, bias, documents])
def test_gradients(function, deterministic):
    case(function).compare(attend(deterministic=deterministic))


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("function", [nothing, alibi, softcap, bias, documents])
def test_same_bits(function, d, deterministic):
    """Of O and the log-sum-exp, dK, dV and what captures get, in a thousand runs; of dQ if `deterministic`."""
    c = case(function, shape=(2, 4, 2, 700, 700, d, d))
    named = {name: x.detach() for name, x in c.captures.items()}
    score_mod, mask_mod = c.functions(named)
    leaves = [x.detach().requires_grad_() for x in (c.q, c.k, c.v)]
    leaves += [x.requires_grad_() for x in named.values() if x.is_floating_point()]
    settings = dict(score_mod=score_mod, mask_mod=mask_mod, is_causal=function is nothing, enable_gqa=True, return_lse=True,
                    deterministic=deterministic)
    do = torch.randn_like(c.q)

    def step():
        o, lse = attnc.attention(*leaves[:3], **settings)
        return [o, lse, *torch.autograd.grad(o, leaves, do)]

    same = torch.ones((), dtype=torch.bool, device="cuda")
    first = step()
    for _ in range(1000):
        for index, (a, b) in enumerate(zip(step(), first)):
            if deterministic or index != 2:
                same &= (a.view(torch.int16) == b.view(torch.int16)).all()
    assert same.item()


@pytest.mark.parametrize("others", ["", "v", "qkv"])
@pytest.mark.parametrize("function", [alibi, bias])
def test_gradients_of_captures(function, others):
    c = case(function)
    (capture,) = c.captures.values()
    leaves = dict(zip("qkv", (c.q, c.k, c.v)))
    wanted = [leaves[other] for other in others] + [capture]
    for x in wanted:
        x.requires_grad_()
    score_mod, mask_mod = c.functions(c.captures)
    o = attnc.attention(c.q, c.k, c.v, score_mod=score_mod, mask_mod=mask_mod, enable_gqa=True)
    expected = dense(c.q, c.k, c.v, score_mod, mask_mod)[0]
    for a, b in zip(torch.autograd.grad(o, wanted, c.do), torch.autograd.grad(expected, wanted, c.do)):
        a, b = a.float(), b.float()
        assert (a - b).norm() < 2e-2 * b.norm()


@pytest.mark.parametrize("sq,sk", [(300, 333), (1030, 700), (1, 17)])
def test_gradients_of_tables(sq, sk):
    """Read at computed indices: few buckets, a place for each distance, and two indices; the
    same bits each time."""
    tables = [torch.randn(shape, device="cuda", requires_grad=True) for shape in ((4, 32), (4, sq + sk), (5, 3))]
    mods = [
        lambda s, b, h, i, j: s + tables[0][h, (i - j).abs().clamp(max=31)],
        lambda s, b, h, i, j: s + tables[1][h, i - j + sk],
        lambda s, b, h, i, j: s + tables[2][j % 5, i % 3],
    ]
    q, k, v = (torch.randn(2, h, n, 64, device="cuda", dtype=torch.bfloat16) for h, n in ((4, sq), (2, sk), (2, sk)))
    do = torch.randn_like(q)
    for table, mod in zip(tables, mods):
        o = attnc.attention(q, k, v, score_mod=mod, enable_gqa=True)
        (found,) = torch.autograd.grad(o, table, do, retain_graph=True)
        expected = dense(q, k, v, mod)[0]
        (wanted,) = torch.autograd.grad(expected, table, do)
        assert (found - wanted).norm() < 2e-2 * wanted.norm()
        for _ in range(20):
            assert torch.equal(torch.autograd.grad(o, table, do, retain_graph=True)[0], found)


def compare_drop_in(ours, own, tensors):
    leaves = [x.clone().requires_grad_() for x in tensors]
    results = []
    for function in (ours, own):
        o = function(*leaves)
        do = torch.randn(o.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(0)).to(o.dtype)
        results.append([o, *torch.autograd.grad(o, leaves, do)])
    for a, b in zip(*results):
        assert (a.float() - b.float()).norm() < 1e-2 * b.float().norm()


@pytest.mark.parametrize("settings", [{}, {"is_causal": True}, {"enable_gqa": True}, {"scale": 0.3}], ids=str)
def test_sdpa(settings):
    heads = 2 if "enable_gqa" in settings else 4
    tensors = [torch.randn(2, h, 200, 64, device="cuda", dtype=torch.bfloat16) for h in (4, heads, heads)]
    compare_drop_in(
        lambda *x: attnc.torch.scaled_dot_product_attention(*x, **settings),
        lambda *x: torch.nn.functional.scaled_dot_product_attention(*x, **settings),
        tensors,
    )


@pytest.mark.parametrize("masked", [False, True])
def test_flex(masked):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    slope = torch.rand(4, device="cuda")
    settings = {"score_mod": lambda s, b, h, i, j: torch.tanh(s / 20) * 20 - slope[h] * (i - j).abs()}
    if masked:
        mask = lambda b, h, i, j: (i >= j) & (i - j < 90)
        settings["block_mask"] = create_block_mask(mask, None, None, 256, 256, device="cuda")
    tensors = [torch.randn(2, 4, 256, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    compare_drop_in(
        lambda *x: attnc.torch.flex_attention(*x, **settings), lambda *x: flex_attention(*x, **settings), tensors
    )


def test_strides_and_layout():
    x = [torch.randn(2, 200, 4, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    o = attnc.attention(*x, layout="bshd", is_causal=True)
    assert o.is_contiguous()
    expected = torch.nn.functional.scaled_dot_product_attention(*(y.transpose(1, 2) for y in x), is_causal=True)
    torch.testing.assert_close(o.transpose(1, 2), expected, rtol=2e-2, atol=2e-2)
    # Not aligned to 16 bytes, and heads by a stride of 0: copied on the way.
    q = torch.randn(2 * 4 * 200 * 64 + 1, device="cuda", dtype=torch.bfloat16)[1:].view(2, 4, 200, 64)
    k = x[1].transpose(1, 2)[:, :1].expand(-1, 4, -1, -1)
    # (PyTorch's own attention is wrong for such addresses.)
    expected = torch.nn.functional.scaled_dot_product_attention(q.clone(), k.contiguous(), k.contiguous())
    torch.testing.assert_close(attnc.attention(q, k, k), expected, rtol=2e-2, atol=2e-2)


def test_the_callers_stream_and_no_waiting():
    q = torch.randn(1, 4, 256, 64, device="cuda", dtype=torch.bfloat16)
    attnc.attention(q, q, q)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # some 0.1 s
        x = q * 2
        begin = time.perf_counter()
        o = attnc.attention(x, x, x)
        spent = time.perf_counter() - begin
        assert not stream.query() and spent < 0.05
    stream.synchronize()
    torch.testing.assert_close(o, torch.nn.functional.scaled_dot_product_attention(2 * q, 2 * q, 2 * q), rtol=2e-2, atol=2e-2)


def test_cuda_graph():
    q = torch.randn(1, 4, 256, 64, device="cuda", dtype=torch.bfloat16)
    attnc.attention(q, q, q, is_causal=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = attnc.attention(q, q, q, is_causal=True)
    q.copy_(torch.randn_like(q))
    graph.replay()
    expected = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    torch.testing.assert_close(o, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile(backend):
    torch._dynamo.reset()
    slope = torch.rand(4, device="cuda")
    f = lambda q: attnc.attention(q * 2, q, q, score_mod=lambda s, b, h, i, j: s - slope[h] * (i - j).abs()) + 1
    q = torch.randn(1, 4, 256, 64, device="cuda", dtype=torch.bfloat16)
    torch.testing.assert_close(torch.compile(f, fullgraph=True, backend=backend)(q), f(q), rtol=2e-2, atol=2e-2)


def test_lengths_do_not_compile(compiled):
    f = lambda s, b, h, i, j: s * 0.5 + j * 0.001
    for index, (b, h, n) in enumerate([(1, 4, 128), (2, 4, 512), (1, 2, 77), (3, 8, 1025)]):
        q = torch.randn(b, h, n, 64, device="cuda", dtype=torch.bfloat16)
        torch.testing.assert_close(attnc.attention(q, q, q, score_mod=f), dense(q, q, q, f)[0], rtol=2e-2, atol=2e-2)
        assert compiled() == (0 if index else 1)


def test_wrong_devices():
    q = torch.randn(1, 4, 64, 64, device="cuda", dtype=torch.bfloat16)
    slope = torch.rand(4)
    with pytest.raises(attnc.Error, match="expected all tensors, captured ones too, on cuda:0"):
        attnc.attention(q, q, q, score_mod=lambda s, b, h, i, j: s + slope[h])


def test_time_of_the_host():
    """Microseconds per call on a warm cache; the least of three times, for other processes
    take the host's time, too."""
    from attnc._bench.host import measure_host

    rounds = [measure_host("cuda", "bfloat16") for _ in range(3)]
    spent = {name: min(x[name] for x in rounds) for name in rounds[0]}
    print("microseconds of the host per call:", {name: round(x, 1) for name, x in spent.items()})
    assert spent["attnc, causal: forward"] < 25 and spent["attnc, score_mod: forward"] < 30
    assert spent["attnc, causal: backward"] < 25 and spent["attnc, score_mod: backward"] < 35


@pytest.mark.parametrize("size", [1, 10**6, 2**31 - 1, 1 - 2**31])
def test_score_that_is_a_product(size):
    """Of one key the weight is 1, whatever its score is: kernels for rows of large scores compute the same scores."""
    q, k = (torch.zeros(1, 1, n, 64, device="cuda", dtype=torch.bfloat16) for n in (5, 1))
    q[..., 0], k[..., 0] = torch.linspace(-3, 3, 5), 1
    factor = torch.tensor([size], dtype=torch.int32, device="cuda")
    score_mod = lambda s, b, h, i, j: factor[0] / (s.abs() + 0.5) * (s - 3 * s)
    _, lse = attnc.attention(q.requires_grad_(), k, k, score_mod=score_mod, scale=1.0, return_lse=True)
    lse.sum().backward()
    s = q.detach()[..., 0].float().requires_grad_()
    score_mod(s, 0, 0, 0, 0).sum().backward()
    torch.testing.assert_close(q.grad[..., 0].float(), s.grad, rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize("heads,kv_heads,queries", [(8, 2, 4), (32, 8, 16)])
def test_functions_of_few_queries_of_groups(heads, kv_heads, queries):
    """Rows of one tile are asked at their own head and query; with a bias of each pair heads stay apart."""
    keys = 900
    sizes = (heads, queries), (kv_heads, keys), (kv_heads, keys)
    q, k, v = (torch.randn(2, h, n, 128, device="cuda", dtype=torch.bfloat16) for h, n in sizes)
    slopes, gate = torch.rand(heads, device="cuda") / 100, torch.rand(heads, queries, device="cuda")
    bias, of_keys = torch.rand(heads, queries, keys, device="cuda"), torch.rand(heads, keys, device="cuda")
    scores = [
        lambda s, b, h, i, j: 20 * torch.tanh(s / 20) + (h + 1) * 0.01 * (j - i),
        lambda s, b, h, i, j: s * gate[h, i] + slopes[h] * (j - i),
        lambda s, b, h, i, j: s + of_keys[h, j],
        lambda s, b, h, i, j: s + bias[h, i, j],
    ]
    kept = (torch.rand(2, keys, device="cuda") < 0.7).int()
    masks = [lambda b, h, i, j: j % (h % 3 + 2) <= i, lambda b, h, i, j: kept[b, j] != 0]
    for score, mask in itertools.product(scores, masks):
        o, lse = attnc.attention(q, k, v, score_mod=score, mask_mod=mask, enable_gqa=True, return_lse=True)
        exact, exact_lse = dense(q.double(), k.double(), v.double(), score_mod=score, mask_mod=mask)
        peer, _ = dense(q, k, v, score_mod=score, mask_mod=mask)
        assert (o - exact).abs().max() <= 2 * (peer - exact).abs().max() + 2**-8 * exact.abs().max()
        torch.testing.assert_close(lse.double(), exact_lse, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("window", [None, (100, 0), (300, 70)])
@pytest.mark.parametrize("alignment", [None, "top_left", "bottom_right"])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("heads,kv_heads,queries", [(8, 2, 4), (8, 1, 8), (12, 4, 16), (64, 8, 2), (32, 8, 16), (8, 2, 5)])
def test_few_queries_of_groups(heads, kv_heads, queries, layout, alignment, window):
    """Rows of one tile, where they are not too many."""
    keys = 777
    sizes = (heads, queries), (kv_heads, keys), (kv_heads, keys)
    q, k, v = (torch.randn(2, h, n, 128, device="cuda", dtype=torch.bfloat16) for h, n in sizes)
    if layout == "bshd":
        q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
    options = dict(is_causal=alignment is not None, causal_alignment=alignment or "top_left", layout=layout, window=window)
    for _ in range(2):  # prepared, the second time
        o, lse = attnc.attention(q, k, v, enable_gqa=True, return_lse=True, **options)
        assert o.shape == q.shape and lse.shape == (2, heads, queries)
        h = (lambda x: x.transpose(1, 2)) if layout == "bshd" else lambda x: x
        offset = keys - queries if alignment == "bottom_right" else 0
        left, right = window or (keys, keys)
        right = 0 if alignment else right
        mask = lambda b, h, i, j: (j <= i + offset + right) & (j >= i + offset - left)
        exact, exact_lse = dense(h(q).double(), h(k).double(), h(v).double(), mask_mod=mask)
        peer, _ = dense(h(q), h(k), h(v), mask_mod=mask)
        assert (h(o) - exact).abs().max() <= 2 * (peer - exact).abs().max() + 2**-8 * exact.abs().max()
        torch.testing.assert_close(lse.double(), exact_lse, rtol=1e-5, atol=1e-4)
