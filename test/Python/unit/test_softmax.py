# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attnc.softmax beside float64, and beside torch.softmax where both round."""

import attnc
import numpy
import pytest
import torch
from attnc import Error

TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
SHAPES = [(1, 1), (3, 7), (5, 64), (33, 100), (4, 781), (2, 3, 1000), (7,), (2, 2, 2, 33), (3, 5000)]


def check(found, exact, peer):
    """No further from float64 than twice the peer's error and two roundings; in float64, whose peer is what it is
    compared with, eight."""
    assert found.shape == exact.shape and found.dtype == peer.dtype
    rounding = torch.finfo(found.dtype).eps * exact.abs().max() * (4 if found.dtype == torch.float64 else 1)
    error, other = ((x.double() - exact).abs().max() for x in (found, peer))
    assert error <= 2 * other + 2 * rounding


def draw(shape, dtype=torch.float32, device="cpu", scale=3.0):
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype).to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward_and_backward(shape, dtype, device):
    x = draw(shape, dtype, device).requires_grad_()
    if device == "cuda" and dtype == torch.float64:
        with pytest.raises(Error, match="expected float32, float16 or bfloat16 on a GPU, got float64"):
            attnc.softmax(x)
        return
    wide = x.detach().double().requires_grad_()
    peer = x.detach().clone().requires_grad_()
    y, exact, other = attnc.softmax(x), torch.softmax(wide, -1), torch.softmax(peer, -1)
    check(y.detach(), exact.detach(), other.detach())
    dy = draw(shape, dtype, device).flip(-1)
    for result, incoming in ((y, dy), (exact, dy.double()), (other, dy)):
        result.backward(incoming)
    check(x.grad, wide.grad, peer.grad)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_views(dtype, device):
    base = draw((12, 10, 301), dtype, device)
    views = [base[:, :, 1:], base[..., 5:200], base[::2], base.transpose(0, 1), base[:, 3], base[..., ::2],
             base.expand(2, 12, 10, 301), base[:0], base[..., :0], base[..., 4]]
    for view in views:
        before = view.clone()
        found = attnc.softmax(view)
        assert torch.equal(view, before)
        if view.numel():
            check(found, torch.softmax(view.double(), -1), torch.softmax(view, -1))
        assert found.shape == view.shape


@pytest.mark.parametrize("device", DEVICES)
def test_infinities(device):
    infinity = float("inf")
    x = draw((6, 50), torch.float32, device)
    x[0] = -infinity
    x[1, 1:] = -infinity
    x[2, 3] = infinity
    x[3, 4] = float("nan")
    x[4] = 3e38
    x[5] = -3e38
    assert torch.equal(attnc.softmax(x).isnan(), torch.softmax(x, -1).isnan())
    torch.testing.assert_close(attnc.softmax(x), torch.softmax(x, -1), equal_nan=True)


def test_numpy_and_others():
    x = numpy.random.default_rng(0).standard_normal((4, 5, 77)).astype(numpy.float32)
    wanted = torch.softmax(torch.from_numpy(x).double(), -1).numpy()
    assert isinstance(attnc.softmax(x), numpy.ndarray)
    assert abs(attnc.softmax(x) - wanted).max() < 1e-7
    assert abs(attnc.softmax(x.transpose(2, 1, 0)) - torch.softmax(torch.from_numpy(x).permute(2, 1, 0), -1).numpy()).max() < 1e-6
    assert attnc.softmax(x, dtype=numpy.float64).dtype == numpy.float64
    assert attnc.softmax(numpy.float32(3).reshape(())) == 1


def test_dimensions_and_types():
    x = draw((4, 6))
    assert torch.equal(attnc.softmax(x, 1), attnc.softmax(x))
    assert attnc.softmax(torch.tensor(2.0), 0).item() == 1
    half = attnc.softmax(x.half(), dtype=torch.float32)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, torch.softmax(x.half(), -1, dtype=torch.float32))
    with pytest.raises(Error, match=r"expected dim to be the last one, -1 or 1, got 0: move it there"):
        attnc.softmax(x, 0)
    with pytest.raises(Error, match=r"expected dim to be an integer from -2 to 1, got 2"):
        attnc.softmax(x, 2)
    with pytest.raises(Error, match=r"expected dim to be an integer from -2 to 1, got 1.0"):
        attnc.softmax(x, 1.0)
    with pytest.raises(Error, match="expected a tensor of float64, float32, float16 or bfloat16, got int64"):
        attnc.softmax(torch.arange(4))
    with pytest.raises(Error, match="expected dtype to be one of PyTorch's"):
        attnc.softmax(x, dtype="float32")
    with pytest.raises(Error, match="dense tensor"):
        attnc.softmax(x.to_sparse())


def test_autograd_and_transforms():
    x = draw((3, 9), torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(attnc.softmax, (x,))
    with pytest.raises(Error, match="no gradient of a gradient"):
        (g,) = torch.autograd.grad(attnc.softmax(x).square().sum(), x, create_graph=True)
        g.sum().backward()
    wanted = torch.softmax(x, -1)
    torch.testing.assert_close(torch.func.vmap(attnc.softmax)(x), wanted)
    torch.testing.assert_close(torch.func.vmap(attnc.softmax, 1, 1)(x[None, :, :].expand(2, 3, 9)), wanted[None].expand(2, 3, 9))
    grad = lambda f: torch.func.grad(lambda x: f(x).square().sum())(x)
    torch.testing.assert_close(grad(attnc.softmax), grad(lambda x: torch.softmax(x, -1)))
    jacobian = lambda f: torch.func.jacrev(f)(x[0])
    torch.testing.assert_close(jacobian(attnc.softmax), jacobian(lambda x: torch.softmax(x, -1)))
    with pytest.raises(Error, match="no forward-mode derivatives"):
        torch.func.jvp(attnc.softmax, (x.detach(),), (x.detach(),))


def test_compiler_and_fakes():
    assert attnc.softmax(torch.empty(3, 4, device="meta")).shape == (3, 4)
    torch.library.opcheck(torch.ops.attnc.softmax.default, (draw((3, 9)).requires_grad_(),))
    compiled = torch.compile(lambda x: attnc.softmax(x * 2) + 1, backend="aot_eager", fullgraph=True)
    x = draw((3, 9)).requires_grad_()
    torch.testing.assert_close(compiled(x), torch.softmax(x * 2, -1) + 1)
    compiled(x).square().sum().backward()
    wide = x.detach().requires_grad_()
    (torch.softmax(wide * 2, -1) + 1).square().sum().backward()
    torch.testing.assert_close(x.grad, wide.grad)


def test_one_program_for_all_lengths(compiled):
    for length in (3, 500, 70000):
        attnc.softmax(draw((2, length), torch.bfloat16))
    assert compiled() <= 1


@pytest.mark.cuda
def test_autocast():
    with torch.autocast("cuda", torch.bfloat16):
        assert attnc.softmax(draw((3, 9), torch.bfloat16, "cuda")).dtype == torch.float32


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("length", [255, 1024, 4096, 8200, 20000, 32768, 70001, 131072, 200000, 262144, 300001, 1000003])
def test_long_rows(length, dtype):
    """A group of threads, a CTA, clusters, and parts."""
    x = draw((3, length), dtype, "cuda").requires_grad_()
    wide, peer = x.detach().double().requires_grad_(), x.detach().clone().requires_grad_()
    y, exact, other = attnc.softmax(x), torch.softmax(wide, -1), torch.softmax(peer, -1)
    check(y.detach(), exact.detach(), other.detach())
    dy = draw((3, length), dtype, "cuda").flip(-1)
    for result, incoming in ((y, dy), (exact, dy.double()), (other, dy)):
        result.backward(incoming)
    check(x.grad, wide.grad, peer.grad)


@pytest.mark.cuda
@pytest.mark.parametrize("length", [1000, 20000, 131072, 1000003])
def test_same_bits(length):
    x = draw((4, length), torch.bfloat16, "cuda")
    first = attnc.softmax(x)
    assert all(torch.equal(attnc.softmax(x), first) for _ in range(100))
