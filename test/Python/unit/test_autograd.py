# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What PyTorch does around a call: gradients checked by differences, checkpointing,
autocast, its compiler and its exporter."""

import attnc
import attnc.torch
import pytest
import torch
from support import dense

SDPA = torch.nn.functional.scaled_dot_product_attention


def inputs(dtype=torch.float32, shape=(1, 4, 2, 9, 11, 8), grad=True):
    b, hq, hkv, sq, sk, d = shape
    g = torch.Generator().manual_seed(0)
    sizes = (b, hq, sq, d), (b, hkv, sk, d), (b, hkv, sk, d)
    return [torch.randn(size, generator=g, dtype=torch.float64).to(dtype).requires_grad_(grad) for size in sizes]


@pytest.mark.parametrize("return_lse", [False, True])
def test_gradcheck(return_lse):
    q, k, v = inputs(torch.float64)
    slope = torch.rand(4, dtype=torch.float64, requires_grad=True)
    table = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(9, 11, dtype=torch.float64, requires_grad=True)
    cap = torch.tensor(2.5, dtype=torch.float64, requires_grad=True)

    def attend(q, k, v, slope, table, bias, cap):
        def score_mod(s, b, h, i, j):
            s = s + slope[h] * (i - j).abs() * bias[i, j] + table[h, (i - j).clamp(-2, 2) + 2]
            return torch.tanh(s / cap) * cap

        return attnc.attention(
            q, k, v, score_mod=score_mod, is_causal=True, enable_gqa=True, return_lse=return_lse,
            causal_alignment="bottom_right",
        )  # fmt: skip

    assert torch.autograd.gradcheck(attend, (q, k, v, slope, table, bias, cap))


def test_only_what_is_asked_for(compiled):
    """Gradients that nobody wants are not computed."""
    q, k, v = inputs()
    bias = torch.randn(4, 9, 11)
    f = lambda s, b, h, i, j: s + bias[h, i, j]
    for wanted in ([q], [k, v], [q, k, v]):
        for x in (q, k, v):
            x.requires_grad_(any(x is y for y in wanted))
        o = attnc.attention(q, k, v, score_mod=f, enable_gqa=True)
        expected = dense(q, k, v, lambda s, *n: s + bias)[0]
        got = torch.autograd.grad(o.sum(), wanted)
        for a, b in zip(got, torch.autograd.grad(expected.sum(), wanted)):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    variant = next(iter(attnc._attention._known.values()))[0]
    assert variant is not None
    q.requires_grad_(False)
    k.requires_grad_(False)
    v.requires_grad_(False)
    assert not attnc.attention(q, k, v, score_mod=f, enable_gqa=True).requires_grad


BIAS, ROWS, SLOPES, TABLE = torch.randn(4, 70, 150), torch.randn(4, 70), torch.rand(4), torch.randn(4, 32)
CAPTURES = {
    "bias": (BIAS, lambda s, b, h, i, j: s + BIAS[h, i, j]),
    "rows": (ROWS, lambda s, b, h, i, j: s * ROWS[h, i]),
    "slopes": (SLOPES, lambda s, b, h, i, j: s - SLOPES[h] * (i - j).abs() * 0.1),
    "table": (TABLE, lambda s, b, h, i, j: s + TABLE[h, (i - j).clamp(0, 31)]),
}


@pytest.mark.parametrize("others", ["", "v", "kv"])
@pytest.mark.parametrize("name", CAPTURES)
def test_gradients_of_captures(name, others):
    capture, f = CAPTURES[name]
    leaves = dict(zip("qkv", inputs(shape=(2, 4, 2, 70, 150, 16), grad=False)))
    wanted = [leaves[other] for other in others] + [capture]
    for x in wanted:
        x.requires_grad_()
    try:
        o = attnc.attention(*leaves.values(), score_mod=f, is_causal=True, enable_gqa=True)
        expected = dense(*leaves.values(), f, lambda b, h, i, j: i >= j)[0]
        do = torch.randn(o.shape, generator=torch.Generator().manual_seed(1))
        got = torch.autograd.grad(o, wanted, do)
        for a, b in zip(got, torch.autograd.grad(expected, wanted, do.to(expected.dtype))):
            torch.testing.assert_close(a, b.to(a.dtype), rtol=1e-4, atol=2e-5 * b.abs().max().item())
    finally:
        capture.requires_grad_(False)


@pytest.mark.parametrize("name", CAPTURES)
def test_a_capture_alone_costs_its_own_gradient(name):
    """dQ, dK and dV are in the code only where they are wanted; test/Pipelines counts the
    products."""
    options = attnc._variant.Options("float32", 16, 16)
    variant = attnc._attention.bind(options, CAPTURES[name][1], None).variant
    for wanted in ((3,), (0, 3), (1, 3), (0, 1, 2, 3)):
        gradient = variant.gradient("cpu", wanted, False)
        assert gradient.computed == wanted and len(gradient.executable.results) == len(wanted)


PLACE, REST, FIRST = torch.tensor([3, 0, 2, 3, 1] * 14), torch.arange(150) % 3, torch.tensor(2)
COMPUTED = {
    "h // 2, i, j": ((2, 70, 150), lambda t, b, h, i, j: t[h // 2, i, j]),
    "b % 2, i, j": ((2, 70, 150), lambda t, b, h, i, j: t[b % 2, i, j]),
    "b // 2, h, i, j": ((2, 4, 70, 150), lambda t, b, h, i, j: t[b // 2, h, i, j]),
    "b // 2, h // 2, j": ((2, 2, 150), lambda t, b, h, i, j: t[b // 2, h // 2, j]),
    "h // 2, i": ((2, 70), lambda t, b, h, i, j: t[h // 2, i] * j),
    "i + 1, j": ((75, 150), lambda t, b, h, i, j: t[i + 1, j]),
    "i, -1 - j": ((70, 150), lambda t, b, h, i, j: t[i, -1 - j]),
    "first + i, j": ((72, 151), lambda t, b, h, i, j: t[FIRST + i, j]),
    "h, i, j // 2": ((4, 70, 75), lambda t, b, h, i, j: t[h, i, j // 2]),
    "i % 4, j": ((4, 150), lambda t, b, h, i, j: t[i % 4, j]),
    "place[i], j": ((4, 150), lambda t, b, h, i, j: t[PLACE[i], j]),
    "h, i, rest[j]": ((4, 70, 3), lambda t, b, h, i, j: t[h, i, REST[j]]),
    "i, i": ((70, 71), lambda t, b, h, i, j: t[i, i] * j),
    "b, h, i, distance": ((3, 4, 70, 16), lambda t, b, h, i, j: t[b, h, i, (i - j).clamp(-8, 7) + 8]),
    "b, h, j, distance": ((3, 4, 150, 16), lambda t, b, h, i, j: t[b, h, j, (i - j).clamp(-8, 7) + 8]),
    "b // 2, h // 2, distance": ((2, 2, 16), lambda t, b, h, i, j: t[b // 2, h // 2, (i - j).clamp(-8, 7) + 8]),
    "h // 2": ((2,), lambda t, b, h, i, j: t[h // 2] * j),
    "twice": ((4, 150), lambda t, b, h, i, j: t[i % 4, j] * t[h, j]),
    "outside of the mask": ((70, 150), lambda t, b, h, i, j: t[i, (i - j).clamp(0, 149)]),
}


@pytest.mark.parametrize(
    "name, others", [(n, o) for n in COMPUTED for o in ("", "qkv")] + [("h // 2, i, j", "q"), ("place[i], j", "q")]
)
def test_gradients_at_computed_indices(name, others):
    """A dimension of queries or keys, beside one that is read at a computed index."""
    shape, read = COMPUTED[name]
    leaves = dict(zip("qkv", inputs(torch.float64, (3, 4, 2, 70, 150, 16), grad=False)))
    table = torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    wanted = [leaves[other] for other in others] + [table] * (others != "q")
    for x in wanted:
        x.requires_grad_()
    f = lambda s, b, h, i, j: s + read(table, b, h, i, j)
    o = attnc.attention(*leaves.values(), score_mod=f, is_causal=True, enable_gqa=True)
    expected = dense(*leaves.values(), f, lambda b, h, i, j: i >= j)[0]
    do = torch.randn(o.shape, generator=torch.Generator().manual_seed(1), dtype=o.dtype)
    got = torch.autograd.grad(o, wanted, do)
    for a, b in zip(got, torch.autograd.grad(expected, wanted, do)):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12 * b.abs().max().item())


@pytest.mark.parametrize("threads", [1, 3])
def test_several_captures_at_computed_indices(threads):
    """Several lengths by one executable, in float32, and the same bits from any number of threads."""
    before = attnc.get_num_threads()
    pair, rows = torch.randn(2, 200, 200), torch.randn(3, 4, 200, 8)
    captures = [pair.requires_grad_(), rows.requires_grad_()]

    def f(s, b, h, i, j):
        return s * rows[b, h, i, (i - j).clamp(0, 7)] + pair[h // 2, i + 1, j]

    def run(length):
        q, k, v = inputs(shape=(3, 4, 2, length, length, 16))
        o = attnc.attention(q, k, v, score_mod=f, is_causal=True, enable_gqa=True)
        wide = [x.detach().double().requires_grad_() for x in (q, k, v, *captures)]
        wide_f = lambda s, b, h, i, j: (
            s * wide[4][b, h, i, (i - j).clamp(0, 7)] + wide[3][h // 2, i + 1, j]
        )
        expected = dense(*wide[:3], wide_f, lambda b, h, i, j: i >= j)[0]
        do = torch.randn(o.shape, generator=torch.Generator().manual_seed(1))
        got = torch.autograd.grad(o, [q, k, v, *captures], do)
        for a, b in zip(got, torch.autograd.grad(expected, wide, do.double())):
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-6 * b.abs().max().item())
        return got[3:]

    try:
        attnc.set_num_threads(2)
        usual = [run(length) for length in (70, 133)]
        attnc.set_num_threads(threads)
        for some, others in zip(usual, [run(length) for length in (70, 133)]):
            assert all(torch.equal(a, b) for a, b in zip(some, others))
    finally:
        attnc.set_num_threads(before)


def test_deterministic(monkeypatch):
    """On GPUs it chooses the loop order of the gradient, and compiles nothing else anew."""
    q, k, v = inputs()
    results = [
        torch.autograd.grad(attnc.attention(q, k, v, enable_gqa=True, deterministic=d).sum(), (q, k, v))
        for d in (False, True)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*results))

    asked = []

    class Recorded:
        def __init__(self, code, device, entry, pipeline, gradient):
            asked.append((device, pipeline, gradient is not None))

    monkeypatch.setattr(attnc._variant, "Executable", Recorded)
    for deterministic in (False, True):
        options = attnc._variant.Options("bfloat16", 40, 40, deterministic=deterministic)
        variant = attnc._attention.bind(options, None, None).variant
        for device in ("cpu", "cuda"):
            variant.forward(device)
            variant.gradient(device, (0, 1, 2), False)
    order = [pipeline for device, pipeline, gradient in asked if device == "cuda" and gradient]
    assert order == [None, "deterministic=true"]
    assert all(pipeline is None for device, pipeline, gradient in asked if device == "cuda" and not gradient)
    assert all(pipeline == "single-queries=false" for device, pipeline, _ in asked if device == "cpu")


def test_the_loop_order_reaches_the_compiler():
    options = attnc._variant.Options("bfloat16", 64, 64, deterministic=True)
    code = attnc._attention.bind(options, None, None).variant.code
    gradient = "saved-results arguments=0,1,2 results=0"
    emit = lambda order: attnc._capi.emit_ptx(code, "attention", gradient, f"order={order}")
    # Sums that are added to memory; tiles of them that others wait for; the first is who comes first.
    marks = ("cp.reduce.async.bulk", "st.release.gpu", "atom.acquire.gpu")
    assert [[mark in text for mark in marks] for text in map(emit, ("m_outer", "n_outer", "n_outer deterministic=true"))] == [
        [False, False, False],
        [True, True, True],
        [True, True, False],
    ]
    with pytest.raises(attnc.Error, match="'order=split_kv' is of forwards; gradients have the orders m_outer and n_outer"):
        emit("split_kv")


def test_gradients_lie_as_their_inputs_do():
    x = [torch.randn(2, 9, 4, 8, requires_grad=True) for _ in range(3)]
    o = attnc.attention(*x, layout="bshd")
    for gradient in torch.autograd.grad(o.sum(), x):
        assert gradient.is_contiguous()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant):
    slope = torch.rand(4, requires_grad=True)

    def layer(q, k, v):
        return attnc.attention(q * 1.5, k, v, score_mod=lambda s, b, h, i, j: s + slope[h] * j, enable_gqa=True)

    results = []
    for checkpoint in (False, True):
        leaves = inputs()
        o = torch.utils.checkpoint.checkpoint(layer, *leaves, use_reentrant=reentrant) if checkpoint else layer(*leaves)
        slope.grad = None
        o.sum().backward()
        results.append([o, *(x.grad for x in leaves), slope.grad])
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_selective_checkpointing():
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    calls = []

    def policy(context, op, *args, **kwargs):
        if op is torch.ops.attnc.forward.default:
            calls.append(op)
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    q, k, v = inputs()
    f = lambda q, k, v: attnc.attention(q * 2, k, v, enable_gqa=True)
    o = checkpoint(f, q, k, v, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy))
    (got,) = torch.autograd.grad(o.sum(), q)
    torch.testing.assert_close(got, torch.autograd.grad(f(q, k, v).sum(), q)[0])
    assert calls


def test_autocast():
    q, k, v = inputs()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        o = attnc.attention(q, k, v, enable_gqa=True)
        own = SDPA(q, k, v, enable_gqa=True)
    assert o.dtype == own.dtype == torch.bfloat16
    (gradient,) = torch.autograd.grad(o.float().sum(), q)
    assert gradient.dtype == torch.float32
    torch.testing.assert_close(o, own, rtol=2e-2, atol=2e-2)
    wide = inputs(torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert attnc.attention(*wide, enable_gqa=True).dtype == torch.float64


SLOPE, DOCUMENT, WINDOW = torch.rand(4, requires_grad=True), torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]), 6


def variant(q, k, v):
    def score_mod(s, b, h, i, j):
        return s - SLOPE[h] * (i - j).abs()

    def mask_mod(b, h, i, j):
        return (DOCUMENT[i] == DOCUMENT[j]) | (i - j < WINDOW)

    return attnc.attention(q * 2, k, v, score_mod=score_mod, mask_mod=mask_mod, window=(8, 8), enable_gqa=True) + 1


def with_lse(q, k, v):
    o, lse = attnc.attention(q, k, v, enable_gqa=True, return_lse=True, is_causal=True, causal_alignment="bottom_right")
    return o * torch.sigmoid(lse)[..., None] + SLOPE[0]


def drop_ins(q, k, v):
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    o = attnc.torch.scaled_dot_product_attention(q, k, v, attn_mask=SLOPE[:, None, None] * torch.ones(9, 11))
    return o + attnc.torch.flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: torch.tanh(s * SLOPE[h]))


@pytest.mark.parametrize("function", [variant, with_lse, drop_ins])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile(function, backend):
    torch._dynamo.reset()
    q, k, v = inputs()
    expected = function(q, k, v)
    for node_text in (attnc._torch_ops.program_of(v) for v in attnc._variant._variants.values()):
        assert "\n" not in node_text  # it ends up in comments
    wanted = torch.autograd.grad(expected.sum(), [q, k, v, SLOPE])
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    got = compiled(q, k, v)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    for a, b in zip(torch.autograd.grad(got.sum(), [q, k, v, SLOPE]), wanted):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", [None, lambda s, b, h, i, j: s * 2 + j])
def test_compile_parts_of_one_projection(function):
    """Query, key and value share memory, in the graph and as its inputs; nothing is copied for that."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.compile_fx import make_boxed_func

    graphs = []

    def backend(graph, example):
        graphs.append(str(graph.graph))
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    projected = lambda x: attnc.attention(*x.unbind(0), score_mod=function)
    leaf = torch.randn(3, 2, 4, 20, 16, requires_grad=True)
    for call in (projected, lambda x: projected(x * 2), lambda x: attnc.attention(x[0], x[1], x[1].mT.mT, score_mod=function)):
        want = call(leaf)
        got = torch.compile(call, fullgraph=True, backend=aot_autograd(fw_compiler=backend))(leaf)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        for a, b in zip(*(torch.autograd.grad(o.sin().sum(), leaf) for o in (got, want))):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert graphs and not any("clone" in graph for graph in graphs)


def test_compile_refuses_autograd_functions():
    class Reversed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, gradient):
            return -gradient

    torch._dynamo.reset()
    f = lambda q: attnc.attention(q, q, q, score_mod=lambda s, b, h, i, j: Reversed.apply(s))
    q = torch.randn(1, 2, 8, 8, requires_grad=True)
    with pytest.raises(Exception, match=r"cannot trace a torch.autograd.Function in score_mod or mask_mod"):
        torch.compile(f, fullgraph=True, backend="aot_eager")(q)


def test_compiled_results_lie_as_the_query():
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda q: attnc.attention(q, q, q, score_mod=lambda s, b, h, i, j: s * 2), backend="aot_eager"
    )
    for order in ((0, 1, 2, 3), (1, 0, 2, 3), (0, 2, 1, 3), (2, 1, 0, 3)):
        q = torch.randn(3, 4, 5, 8).permute(order).detach().requires_grad_()
        o = compiled(q)
        assert o.stride() == q.stride()
        (got,) = torch.autograd.grad(o.sin().sum(), q)
        o = attnc.attention(q, q, q, scale=2 / 8**0.5)
        torch.testing.assert_close(got, torch.autograd.grad(o.sin().sum(), q)[0], rtol=1e-4, atol=1e-5)


def test_compile_with_dynamic_lengths(compiled):
    torch._dynamo.reset()
    f = lambda q, k, v: attnc.attention(q, k, v, score_mod=lambda s, b, h, i, j: s * 2 + j * 0.1, enable_gqa=True)
    g = torch.compile(f, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (9, 10, 33):
        leaves = inputs(shape=(2, 4, 2, length, length + 3, 8))
        torch.testing.assert_close(g(*leaves), f(*leaves), rtol=1e-5, atol=1e-5)
        assert length == 9 or compiled() == 0
        compiled()


def test_compile_sees_other_numbers():
    """A number in a closure is a guard: another one is another program."""
    torch._dynamo.reset()

    def make(window):
        return lambda b, h, i, j: (i - j < window) & (i >= j)

    q, k, v = inputs(grad=False)
    compiled = torch.compile(lambda q, k, v, m: attnc.attention(q, k, v, mask_mod=m, enable_gqa=True), backend="eager")
    for window in (2, 5, 3):
        expected = attnc.attention(q, k, v, mask_mod=make(window), enable_gqa=True)
        torch.testing.assert_close(compiled(q, k, v, make(window)), expected, rtol=1e-5, atol=1e-5)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.rand(4))

    def forward(self, q, k, v):
        slope = self.slope
        return attnc.attention(
            q, k, v, score_mod=lambda s, b, h, i, j: s + slope[h] * (j - i), is_causal=True, enable_gqa=True
        )


@pytest.mark.parametrize("strict", [False, True])
def test_export(strict, tmp_path):
    layer, length = Layer(), torch.export.Dim("length")
    shapes = {0: torch.export.Dim("batch"), 2: length}
    q, k, v = inputs(shape=(2, 4, 2, 9, 9, 8))
    program = torch.export.export(layer, (q, k, v), dynamic_shapes=(shapes,) * 3, strict=strict)
    assert any(node.target is torch.ops.attnc.forward.default for node in program.graph.nodes)
    torch.export.save(program, tmp_path / "layer.pt2")
    loaded = torch.export.load(tmp_path / "layer.pt2").module()
    for shape in ((2, 4, 2, 9, 9, 8), (1, 4, 2, 30, 30, 8)):
        leaves = inputs(shape=shape, grad=False)
        torch.testing.assert_close(loaded(*leaves), layer(*leaves), rtol=1e-5, atol=1e-5)


def test_operators():
    """As PyTorch checks custom operators: schema, fake kernels, autograd."""
    q, k, v = inputs()
    table = torch.randn(20, requires_grad=True)
    bound = attnc._attention.bind(attnc._variant.Options("float32", 8, 8), lambda s, b, h, i, j: s + table[i + j], None)
    arguments = (q, k, v, bound.captures, attnc._torch_ops.program_of(bound.variant))
    torch.library.opcheck(torch.ops.attnc.forward.default, arguments)


@pytest.mark.parametrize("size", [1, 10**6, 2**31 - 1, 1 - 2**31])
def test_score_that_is_a_product(size):
    """Of one key the weight is 1, whatever its score is: the gradient takes the score's own maximum, which is rounded, and
    must not take it from a product that is not."""
    q, k = torch.zeros(1, 1, 5, 8), torch.zeros(1, 1, 1, 8)
    q[..., 0], k[..., 0] = torch.linspace(-3, 3, 5), 1
    factor = torch.tensor([size], dtype=torch.int32)
    score_mod = lambda s, b, h, i, j: factor[0] / (s.abs() + 0.5) * (s - 3 * s)
    _, lse = attnc.attention(q.requires_grad_(), k, k, score_mod=score_mod, scale=1.0, return_lse=True)
    lse.sum().backward()
    s = q.detach()[..., 0].requires_grad_()
    score_mod(s, 0, 0, 0, 0).sum().backward()
    torch.testing.assert_close(q.grad[..., 0], s.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("which", ["b", "h", "i", "j"])
def test_captured_number_under_a_condition(which):
    """Of two terms of a score one has a gradient where the other has none."""
    q, k = torch.randn(2, 2, 5, 8, requires_grad=True), torch.randn(2, 2, 3, 8)
    number = torch.randn(1, requires_grad=True)
    score_mod = lambda s, b, h, i, j: torch.where(dict(b=b, h=h, i=i, j=j)[which] >= 1, number[0], s * 2)
    _, lse = attnc.attention(q, k, k, score_mod=score_mod, scale=1.0, return_lse=True)
    weights = torch.randn_like(lse)
    found = torch.autograd.grad(lse, (q, number), weights)
    b, h, i, j = torch.meshgrid(*map(torch.arange, (2, 2, 5, 3)), indexing="ij")
    scores = score_mod(q @ k.mT, b, h, i, j)
    expected = torch.autograd.grad(torch.logsumexp(scores, -1), (q, number), weights)
    for got, want in zip(found, expected):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
