# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tangents and derivatives of the second order: by differences in float64, and beside the
definition in the precision of the inputs."""

import attnc
import pytest
import torch
from attnc.torch import scaled_dot_product_attention as own
from support import dense
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.cuda, NO_GPU])]
SIZES = (1, 2, 1, 4, 5, 3)  # batch, query heads, key heads, queries, keys, d
F64 = torch.float64


def randn(*shape, seed=0, dtype=F64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def tensors(sizes=SIZES, dtype=F64, dv=None):
    b, hq, hkv, sq, sk, d = sizes
    shapes = (b, hq, sq, d), (b, hkv, sk, d), (b, hkv, sk, dv or d)
    return [randn(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes)]


def documents(captures):
    return None, lambda b, h, i, j: torch.div(i, 2, rounding_mode="floor") == torch.div(j, 2, rounding_mode="floor")


def soft_cap(captures):
    (cap,) = captures
    return lambda s, b, h, i, j: torch.tanh(s / cap) * cap, None


def gelu_gate(captures):
    gate, slope = captures
    score = lambda s, b, h, i, j: s * torch.sigmoid(gate[h, i]) + torch.erf(s * slope[h]) * slope[h]
    return score, lambda b, h, i, j: (i >= j) | (j == 0)


def table(captures):
    (values,) = captures
    return lambda s, b, h, i, j: s + values[h, (i - j).clamp(-3, 3) + 3].exp() * 0.1, None


# name: shapes of captures, functions of captures, other arguments.
VARIANTS = {
    "plain": ((), None, {}),
    "causal": ((), None, {"is_causal": True}),
    "causal, from the end": ((), None, {"is_causal": True, "causal_alignment": "bottom_right"}),
    "window": ((), None, {"window": (2, 1)}),
    "documents": ((), documents, {}),
    "slopes": (((2,),), lambda c: (lambda s, b, h, i, j: s - c[0][h] * (i - j).abs() * 0.3, None), {"is_causal": True}),
    "bias": (((1, 2, 4, 5),), lambda c: (lambda s, b, h, i, j: s + c[0][b, h, i, j], None), {}),
    "rows": (((2, 4), (5,)), lambda c: (lambda s, b, h, i, j: s * c[0][h, i] + c[1][j] ** 2, None), {}),
    "table": (((2, 7),), table, {}),
    "soft cap": (((),), soft_cap, {"is_causal": True}),
    "gate": (((2, 4), (2,)), gelu_gate, {}),
    "scale": ((), None, {"scale": 0.7}),
}


def attend_of(name, device="cpu", **more):
    shapes, functions, arguments = VARIANTS[name]
    captures = [(randn(*shape, seed=10 + number).abs() + 0.5).to(device) for number, shape in enumerate(shapes)]

    def attend(q, k, v, *captures):
        score_mod, mask_mod = functions(captures) if functions else (None, None)
        return attnc.attention(q, k, v, score_mod=score_mod, mask_mod=mask_mod, enable_gqa=True, **arguments, **more)

    return attend, captures


def results_of(attend, leaves):
    results = attend(*leaves)
    return results if isinstance(results, tuple) else (results,)


def tangents_of(attend, leaves, directions):
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x.detach(), u) for x, u in zip(leaves, directions)]
        return [forward_ad.unpack_dual(o).tangent for o in results_of(attend, duals)]


def check(attend, leaves):
    """Tangents beside differences, and derivatives of the gradients in all inputs and in dO."""
    leaves = [x.detach().requires_grad_() for x in leaves]
    count, device = len(leaves), leaves[0].device
    directions = [randn(*x.shape, seed=40 + number).to(device) for number, x in enumerate(leaves)]
    moved = [results_of(attend, [x.detach() + step * u for x, u in zip(leaves, directions)]) for step in (1e-5, -1e-5)]
    for tangent, above, below in zip(tangents_of(attend, leaves, directions), *moved):
        torch.testing.assert_close(tangent, (above - below) / 2e-5, rtol=1e-7, atol=1e-8)

    def pairing(*tensors):
        """Of the gradients with directions."""
        gradients = torch.autograd.grad(results_of(attend, tensors[:count]), tensors[:count], tensors[count:], create_graph=True)
        return sum((gradient * u).sum() for gradient, u in zip(gradients, directions))

    incoming = [randn(*o.shape, seed=60 + n).to(device).requires_grad_() for n, o in enumerate(results_of(attend, leaves))]
    # Sums on a GPU may come in another order each time.
    assert torch.autograd.gradcheck(pairing, (*leaves, *incoming), nondet_tol=1e-12)
    return leaves, directions, incoming


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", VARIANTS)
def test_by_differences(name, device):
    attend, captures = attend_of(name, device, return_lse=name in ("plain", "soft cap"))
    leaves, directions, incoming = check(attend, (*(x.to(device) for x in tensors()), *captures))
    if name not in ("plain", "rows"):
        return
    # Forward mode of reverse mode, along all that the gradients are functions of.
    of_incoming = [randn(*x.shape, seed=70 + n).to(device) for n, x in enumerate(incoming)]
    count = len(leaves)

    def gradients(*tensors):
        return torch.func.vjp(lambda *x: results_of(attend, x), *tensors[:count])[1](tensors[count:])

    at = [x.detach() for x in (*leaves, *incoming)]
    along = (*directions, *of_incoming)
    _, got = torch.func.jvp(gradients, (*at,), along)
    moved = [gradients(*(x + step * u for x, u in zip(at, along))) for step in (1e-5, -1e-5)]
    for tangent, above, below in zip(got, *moved):
        torch.testing.assert_close(tangent, (above - below) / 2e-5, rtol=1e-7, atol=1e-8)


def test_by_differences_with_a_wider_value():
    check(lambda q, k, v: attnc.attention(q, k, v, enable_gqa=True, is_causal=True), tensors((2, 2, 1, 3, 4, 2), dv=4))


@pytest.mark.parametrize("wanted", ["k", "qc", "vd"])
def test_of_some_arguments(wanted):
    """A tangent or gradient that there is not is zero, and no result is made that nobody wants."""
    attend, captures = attend_of("rows")
    leaves = dict(zip("qkvcd", (*tensors(), *captures)))
    check(lambda *chosen: attend(*{**leaves, **dict(zip(wanted, chosen))}.values()), [leaves[name] for name in wanted])


def test_dropout():
    """The factor of weights is the same in all orders."""
    state = torch.tensor([3, 4])
    check(lambda *x: attnc.attention(*x, dropout_p=0.4, rng_state=state, enable_gqa=True), tensors())


@pytest.mark.parametrize("device", DEVICES)
def test_rows_without_keys(device):
    """They have no tangents, whatever their gradient is."""
    q, k, v = (x.to(device).requires_grad_() for x in tensors((1, 2, 2, 9, 5, 8)))
    do = randn(1, 2, 9, 8, seed=5).to(device).requires_grad_()
    dead = torch.zeros(9, dtype=torch.bool, device=device)
    dead[:4] = True  # query i sees key j where j <= i - 4

    def second(do):
        o = attnc.attention(q, k, v, is_causal=True, causal_alignment="bottom_right")
        gradients = torch.autograd.grad(o, (q, k, v), do, create_graph=True)
        loss = sum((gradient * randn(*gradient.shape, seed=6).to(device)).sum() for gradient in gradients)
        return torch.autograd.grad(loss, (q, k, v, do))

    found = second(do)
    poisoned = torch.where(dead[None, None, :, None], float("nan"), do)
    for got, expected in zip(second(poisoned)[:3], found):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
    for x in (found[0], found[3]):
        assert (x[:, :, dead] == 0).all()
    with forward_ad.dual_level():
        o, lse = attnc.attention(
            forward_ad.make_dual(q, randn(*q.shape).to(device)), k, v, is_causal=True, causal_alignment="bottom_right",
            return_lse=True,
        )  # fmt: skip
        for x in (o, lse):
            tangent = forward_ad.unpack_dual(x).tangent
            assert (tangent[:, :, dead] == 0).all() and tangent.isfinite().all()


def products(attend, leaves, directions):
    """Tangents of the output, and the product of the Hessian of a loss with a direction."""
    with forward_ad.dual_level():
        o = attend(*(forward_ad.make_dual(x, u) for x, u in zip(leaves, directions)))
        tangent = forward_ad.unpack_dual(o).tangent.detach()
    leaves = [x.detach().requires_grad_() for x in leaves]
    # A loss whose gradient dO depends on O.
    loss = (attend(*leaves).to(torch.float64 if leaves[0].dtype == F64 else torch.float32) ** 2).sum() / 2
    gradients = torch.autograd.grad(loss, leaves, create_graph=True)
    pairing = sum((g.to(loss.dtype) * u.to(loss.dtype)).sum() for g, u in zip(gradients, directions))
    return [tangent, *torch.autograd.grad(pairing, leaves)]


@pytest.mark.parametrize("dtype, causal", [(torch.bfloat16, True), (torch.float16, False), (torch.float32, True)])
@pytest.mark.parametrize("device", DEVICES)
def test_beside_the_definition(dtype, causal, device):
    """Errors beside those of the definition in the same precision: at most twice the largest, and one and a half times
    the mean, and roundings."""
    leaves = [x.to(device) for x in tensors((1, 4, 2, 150, 200, 64), dtype)]
    directions = [randn(*x.shape, seed=20 + n, dtype=dtype).to(device) for n, x in enumerate(leaves)]
    mask = (lambda b, h, i, j: i + 50 >= j) if causal else None
    named = {"is_causal": True, "causal_alignment": "bottom_right"} if causal else {}
    got = products(lambda *x: attnc.attention(*x, enable_gqa=True, **named), leaves, directions)
    wide = lambda xs: [x.to(F64) for x in xs]
    definition = lambda order: lambda *x: dense(*x, None, mask, order=order)[0]
    exact = products(definition(0), wide(leaves), wide(directions))
    baselines = [products(definition(order), leaves, directions) for order in range(2)]
    for number, (x, reference) in enumerate(zip(got, exact)):
        error = (x.to(F64) - reference).abs()
        base = torch.stack([(baseline[number].to(F64) - reference).abs() for baseline in baselines])
        step = torch.finfo(dtype).eps / 2
        assert error.max() <= 2 * base.max() + 2 * step * reference.abs().max(), number
        assert error.mean() <= 1.5 * base.mean() + step * reference.abs().mean(), number


@pytest.mark.parametrize("device", DEVICES)
def test_large_scores(device):
    """Weights are exact where the logarithm of their sum is lost in LSE."""
    q, k, v = (x.to(device) for x in tensors((1, 1, 1, 3, 6, 8), torch.float32))
    directions = [randn(*x.shape, seed=30 + n, dtype=torch.float32).to(device) for n, x in enumerate((q, k, v))]
    score = lambda s, b, h, i, j: s - 1e8
    got = products(lambda *x: attnc.attention(*x, score_mod=score), (q * 0, k, v), directions)
    expected = products(lambda *x: dense(*x)[0], *([x.to(F64) for x in xs] for xs in ((q * 0, k, v), directions)))
    for x, y in zip(got, expected):
        torch.testing.assert_close(x, y.float(), rtol=1e-4, atol=1e-4)


def test_third_order_is_refused():
    q, k, v = (x.requires_grad_() for x in tensors((1, 1, 1, 3, 3, 4)))
    f = lambda q: attnc.attention(q, k, v).square().sum()
    with pytest.raises(Exception, match="no derivatives of the third order"):
        torch.func.grad(lambda q: torch.func.grad(lambda q: torch.func.grad(f)(q).square().sum())(q).sum())(q)
    with pytest.raises(Exception, match="none of the second by forward mode twice"):
        torch.func.jvp(lambda q: torch.func.jvp(f, (q,), (q,))[1], (q,), (q,))
    with pytest.raises(Exception, match="no derivatives of the third order"):
        torch.autograd.functional.hvp(f, q, q)  # reverse mode three times; vhp has it twice


def test_memory_is_linear():
    """No tensor of queries times keys, which would take 512 MB here."""
    import resource

    q, k, v = (x.requires_grad_() for x in tensors((1, 1, 1, 11585, 11585, 8), torch.float32))
    o = attnc.attention(q[:, :, :64], k[:, :, :64], v[:, :, :64])  # compiles
    torch.autograd.grad(torch.autograd.grad(o.square().sum(), q, create_graph=True)[0].sum(), k)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    o = attnc.attention(q, k, v)
    (dq,) = torch.autograd.grad(o.square().sum(), q, create_graph=True)
    torch.autograd.grad(dq.sum(), (k, v))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_heads_in_any_order():
    """Strides of tangents and of what comes in."""
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors((2, 4, 4, 6, 5, 8)))
    u = randn(2, 6, 4, 8, seed=9).transpose(1, 2)
    with sdpa_kernel(SDPBackend.MATH):
        sdpa = torch.nn.functional.scaled_dot_product_attention
        expected = torch.func.jvp(torch.func.grad(lambda q: sdpa(q, k, v).square().sum()), (q,), (u,))
    got = torch.func.jvp(torch.func.grad(lambda q: own(q, k, v).square().sum()), (q,), (u,))
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
