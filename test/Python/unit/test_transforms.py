# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The transforms of torch.func, and second gradients on every road that leads to them, beside PyTorch's
own attention; what there is not is refused."""

import pytest
import torch
from torch.autograd import forward_ad

import attnc.torch
from attnc.torch import scaled_dot_product_attention as own
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

SIZES = (2, 3, 5, 8)


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


K, V, BIAS = randn(*SIZES, seed=1), randn(*SIZES, seed=2), randn(2, 3, 5, 5, seed=3)
# A loss of one tensor, by an attention.
LOSSES = {
    "query": lambda x, attend: attend(x, K, V).square().sum(),
    "key": lambda x, attend: attend(V, x, K, is_causal=True).square().sum(),
    "masked": lambda x, attend: attend(x, K, V, attn_mask=BIAS > -0.5).square().sum(),
    "bias": lambda x, attend: attend(K, K, V, attn_mask=x[..., :5]).square().sum(),
}


def close(got, exact):
    torch.testing.assert_close(got, exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", LOSSES)
def test_reverse_mode_and_vmap(kind):
    def of(attend):
        f = lambda x: LOSSES[kind](x, attend)
        x, several = randn(*SIZES, seed=4), randn(4, *SIZES, seed=5)
        leaf = several.clone().requires_grad_()
        torch.vmap(f)(leaf).sum().backward()
        return {
            "grad": torch.func.grad(f)(x),
            "vjp": torch.func.vjp(f, x)[1](torch.tensor(2.0, dtype=torch.float64))[0],
            "jacrev": torch.func.jacrev(lambda x: torch.stack([f(x), f(2 * x)]))(x),
            "vmap": torch.vmap(f)(several),
            "vmap of another dimension": torch.vmap(f, in_dims=2)(several.movedim(0, 2)),
            "vmap of vmap": torch.vmap(torch.vmap(f))(several[None]),
            "gradients of samples": torch.vmap(torch.func.grad(f))(several),
            "gradient of vmap": torch.func.grad(lambda x: torch.vmap(f)(x).sum())(several),
            "backward of vmap": leaf.grad,
        }

    got = of(own)
    with sdpa_kernel(SDPBackend.MATH):  # others have no gradients of masks
        exact = of(sdpa)
    for name in exact:
        close(got[name], exact[name])


def test_vmap_of_all_inputs_and_the_batch():
    """What differs by sample: inputs, captures, and what a function reads of the batch."""
    q, k, v, bias = randn(3, *SIZES), randn(3, *SIZES, seed=1), randn(3, *SIZES, seed=2), randn(3, 2, 1, 5, 5, seed=3)
    call = lambda attend: torch.vmap(lambda q, k, v, bias: attend(q, k, v, attn_mask=bias))(q, k, v, bias)
    close(call(own), call(sdpa))

    def plain(q, k, v):
        return attnc.torch.flex_attention(q, k, v, lambda s, b, h, i, j: s * (b + 1) + h * j)

    close(torch.vmap(plain)(q, k, v), torch.stack([plain(*x) for x in zip(q, k, v)]))
    samples = torch.vmap(lambda q, k, v: attnc.attention(q, k, v, return_lse=True)[1])(q, k, v)
    close(samples, torch.stack([attnc.attention(*x, return_lse=True)[1] for x in zip(q, k, v)]))
    shared = torch.vmap(torch.func.grad(lambda k, q: own(q, k, V).square().sum()), in_dims=(None, 0))(k[0], q)
    close(shared, torch.stack([torch.func.grad(lambda k: own(x, k, V).square().sum())(k[0]) for x in q]))


def dual(f, x):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(f(forward_ad.make_dual(x, x)))


def create_graph(f, x):
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(f(x), x, create_graph=True)
    return torch.autograd.grad(gradient.sum(), x, allow_unused=True)


def compiled(f):
    torch._dynamo.reset()
    return torch.compile(f, backend="aot_eager")


class Module(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.forward = f


def jvp(f, x):
    return torch.func.jvp(f, (x,), (x,))


ROADS = {
    "jvp": jvp,
    "jacfwd": lambda f, x: torch.func.jacfwd(f)(x),
    "hessian": lambda f, x: torch.func.hessian(f)(x),
    "jvp of grad": lambda f, x: jvp(torch.func.grad(f), x),
    "grad of jvp": lambda f, x: torch.func.grad(lambda x: jvp(f, x)[1])(x),
    "jvp of vmap": lambda f, x: jvp(lambda x: torch.vmap(f)(x[None]), x),
    "vmap of jvp": lambda f, x: torch.vmap(lambda x: jvp(f, x))(x[None]),
    "dual": dual,
    "dual with a gradient": lambda f, x: dual(f, x.clone().requires_grad_()),
    "dual under vmap": lambda f, x: dual(torch.vmap(f), x[None].clone()),
    "create_graph": create_graph,
    "grad of grad": lambda f, x: torch.func.grad(lambda x: torch.func.grad(f)(x).square().sum())(x),
    "jacrev of jacrev": lambda f, x: torch.func.jacrev(torch.func.jacrev(f))(x),
    "jacrev of jacfwd": lambda f, x: torch.func.jacrev(torch.func.jacfwd(f))(x),
    "autograd.functional.hessian": torch.autograd.functional.hessian,
    "autograd.functional.jvp": lambda f, x: torch.autograd.functional.jvp(f, x, x),
    "autograd.functional.vhp": lambda f, x: torch.autograd.functional.vhp(f, x, x),
    "jvp of compiled": lambda f, x: jvp(compiled(f), x),
    "compiled jvp": lambda f, x: compiled(lambda x: jvp(f, x))(x),
    "create_graph under vmap": lambda f, x: create_graph(lambda x: torch.vmap(f)(x[None]).sum(), x),
}
REFUSED = {
    "linearize": lambda f, x: torch.func.linearize(f, x),
    "dual of compiled": lambda f, x: dual(compiled(f), x),
    "jvp of exported": lambda f, x: jvp(torch.export.export(Module(f), (x,)).module(), x),
}


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("road", ROADS)
def test_forward_mode_and_second_gradients(road, kind):
    x = randn(*SIZES) if "jac" not in road and "hessian" not in road else randn(1, 1, 5, 8)
    others = (K, V, BIAS) if x.shape == SIZES else (K[:1, :1], V[:1, :1], BIAS[:1, :1])

    def loss(attend):
        k, v, bias = others
        return {
            "query": lambda x: attend(x, k, v).square().sum(),
            "key": lambda x: attend(v, x, k, is_causal=True).square().sum(),
            "masked": lambda x: attend(x, k, v, attn_mask=bias > -0.5).square().sum(),
            "bias": lambda x: attend(k, k, v, attn_mask=x[..., :5]).square().sum(),
        }[kind]

    with sdpa_kernel(SDPBackend.MATH):
        exact = ROADS[road](loss(sdpa), x)
    got = ROADS[road](loss(own), x)
    flat = lambda result: [result] if isinstance(result, torch.Tensor) else [y for part in result for y in flat(part)]
    for y, expected in zip(flat(got), flat(exact)):
        close(y, expected)


@pytest.mark.parametrize("road", REFUSED)
def test_forward_mode_of_operators_is_refused(road):
    with pytest.raises(Exception, match="have no forward-mode derivatives"):
        REFUSED[road](lambda x: LOSSES["query"](x, own), randn(*SIZES))


def test_tangents_elsewhere_do_no_harm():
    x = randn(*SIZES)
    o = own(x, K, V)
    value, tangent = torch.func.jvp(lambda y: (own(x, K, V) * y).sum(), (x,), (x,))
    close((value, tangent), ((o * x).sum(), (o * x).sum()))
    close(dual(lambda y: (own(x, K, V) * y).sum(), x)[1], (o * x).sum())


@pytest.mark.parametrize("kind", LOSSES)
def test_compiled_transforms(kind):
    x = randn(*SIZES)
    f, exact = (lambda x: LOSSES[kind](x, own)), (lambda x: LOSSES[kind](x, sdpa))
    with sdpa_kernel(SDPBackend.MATH):
        gradient = torch.func.grad(exact)(x)
    close(compiled(lambda x: torch.func.grad(f)(x))(x), gradient)
    close(compiled(lambda x: torch.vmap(f)(x))(x[None]), exact(x)[None])
