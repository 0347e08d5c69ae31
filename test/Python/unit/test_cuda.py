# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attnc.attention on a Hopper GPU."""

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
    tensors = captures()
    b, h, _, sq, sk = shape[:5]
    tensors["bias"] = torch.randn(h, sq, sk).to(dtype)
    tensors["document"] = torch.randint(0, 4, (b, max(sq, sk))).sort().values.int()
    return Case(function, {name: tensors[name] for name in names}, shape=shape, dtype=dtype, device="cuda")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("function", [nothing, alibi, softcap, bias, documents])
def test_forward(function, dtype):
    case(function, dtype).compare(attend(), gradients=False)


@pytest.mark.parametrize("alignment", ["top_left", "bottom_right"])
@pytest.mark.parametrize("sq,sk", [(300, 333), (333, 300), (1, 256)])
def test_causal(alignment, sq, sk):
    offset = sk - sq if alignment == "bottom_right" else 0
    case(nothing, shape=(1, 2, 2, sq, sk, 128, 128)).compare(
        attend(is_causal=True, causal_alignment=alignment), lambda b, h, i, j: j <= i + offset, gradients=False
    )


@pytest.mark.parametrize("function", [nothing, alibi])
def test_gradients_or_a_clear_error(function):
    c = case(function)
    try:
        c.compare(attend())
    except attnc.Error as error:
        assert "cannot compile the gradient of this attention for GPUs" in str(error)


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
    """Microseconds per call on a warm cache: under 25, forward."""
    q = torch.randn(1, 8, 128, 128, device="cuda", dtype=torch.bfloat16)
    slope = torch.rand(8, device="cuda")
    calls = {
        "causal": lambda: attnc.attention(q, q, q, is_causal=True),
        "score_mod": lambda: attnc.attention(q, q, q, score_mod=f),
        "sdpa": lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True),
    }

    def f(s, b, h, i, j):
        return s - slope[h] * (i - j).abs()

    spent = {}
    for name, call in calls.items():
        for _ in range(20):
            call()
        times = []
        for _ in range(30):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(50):
                call()
            times.append((time.perf_counter() - begin) / 50)
        spent[name] = min(times) * 1e6
    print("microseconds of the host per call:", {name: round(x, 1) for name, x in spent.items()})
    assert spent["causal"] < 25 and spent["score_mod"] < 30
