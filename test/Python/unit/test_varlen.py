# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attnc.varlen_attention, and what stands in for flash_attn, against each sequence by the definition."""

import math
import os
import subprocess
import sys

import attnc
import attnc.flash_attn
import attnc.torch
import pytest
import torch

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.cuda, NO_GPU])]
LENGTHS = {
    "equal": ([40, 40], None),
    "self": ([1, 37, 0, 130, 64, 3], None),
    "one": ([77], None),
    "other": ([5, 60, 33, 0, 1, 70], [40, 60, 7, 20, 90, 0]),
    "none": ([], None),
    "empty": ([0, 0], [0, 5]),
}


def definition(q, k, v, lengths, used, *, causal, window, alignment, score, scale=None):
    """(O, LSE) of each sequence, in the type of the tensors."""
    outputs, sums, i0, j0 = [], [], 0, 0
    group = q.shape[1] // k.shape[1]
    for n, (sq, sk) in enumerate(lengths):
        size = sk if used is None else min(sk, used[n])
        qs, ks, vs = q[i0 : i0 + sq].transpose(0, 1), *(x[j0 : j0 + size].transpose(0, 1) for x in (k, v))
        s = (qs * (scale or 1 / math.sqrt(q.shape[-1]))) @ ks.repeat_interleave(group, 0).transpose(-1, -2)
        i, j = torch.arange(sq, device=q.device)[:, None], torch.arange(size, device=q.device)
        if score is not None:
            s = score(s, n, torch.arange(q.shape[1], device=q.device)[:, None, None], i, j)
        place = i + (size - sq if alignment == "bottom_right" else 0)
        keep = torch.ones(sq, size, dtype=torch.bool, device=q.device)
        left, right = window or (-1, -1)
        if left >= 0:
            keep &= j >= place - left
        if right >= 0:
            keep &= j <= place + right
        if causal:
            keep &= j <= place
        s = s.masked_fill(~keep, -math.inf)
        lse = s.logsumexp(-1)
        p = torch.exp(s - torch.where(lse.isinf(), 0, lse)[..., None]).to(v.dtype)
        outputs.append((p @ vs.repeat_interleave(group, 0)).transpose(0, 1))
        sums.append(lse)
        i0, j0 = i0 + sq, j0 + sk
    rest = q[i0:]
    outputs.append((rest * 0) @ v.new_zeros(q.shape[-1], v.shape[-1]))
    sums.append(q.new_full((q.shape[1], len(rest)), -math.inf))
    return torch.cat(outputs), torch.cat(sums, 1)


def offsets(lengths, device):
    return torch.tensor([0, *lengths], device=device).cumsum(0).to(torch.int32)


def close(found, dtype, want, base, factor):
    """At most `factor` times the error of the same precision and two roundings, as FlashAttention's own tests; of
    float64, which is its own reference, ten."""
    found, want, base = (x.detach().double() for x in (found, want, base))
    finite = want.isfinite()
    assert torch.equal(found.isfinite(), finite)
    if finite.any():
        largest = float(want[finite].abs().max())
        limit = factor * float((base - want)[finite].abs().max()) + (10 if dtype == torch.float64 else 2) * largest * torch.finfo(dtype).eps
        assert float((found - want)[finite].abs().max()) <= limit


def check(call, device, dtype, lengths, tail=0, heads=(4, 2), d=(32, 32), used=None, score=None, bias=None, **settings):
    queries, keys = LENGTHS[lengths]
    pairs = list(zip(queries, queries if keys is None else keys))
    total = [sum(column) + tail for column in zip(*pairs)] or [tail, tail]
    generator = torch.Generator().manual_seed(0)
    q, k, v, do = (
        torch.randn(n, h, size, generator=generator).to(device, dtype)
        for n, h, size in zip((*total, total[1], total[0]), (heads[0], heads[1], heads[1], heads[0]), (d[0], *d, d[1]))
    )
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    biases = [] if bias is None else [bias.to(device).requires_grad_()]
    cu_k = None if keys is None else offsets(keys, device)
    o, lse = call(*leaves, offsets(queries, device), cu_k, *biases)
    assert o.shape == (total[0], heads[0], d[1]) and lse.shape == (heads[0], total[0])
    found = [o, lse, *torch.autograd.grad(o, [*leaves, *biases], do)]
    results = []
    for type in (torch.float64, dtype):
        inputs = [x.detach().to(type).requires_grad_() for x in leaves]
        terms = [x.detach().to(type if type == torch.float64 else torch.float32).requires_grad_() for x in biases]
        this = (lambda *x: score(*x, *terms)) if score else None
        y, z = definition(*inputs, pairs, used, score=this, **settings)
        gradients = torch.autograd.grad(y, [*inputs, *terms], do.to(type), allow_unused=True)
        results.append([y, z, *(torch.zeros_like(x) if g is None else g for x, g in zip([*inputs, *terms], gradients))])
    for n, (x, want, base) in enumerate(zip(found, *results)):
        close(x, dtype, want, base, 2 if n < 2 else 3)


MASKS = {
    "full": {}, "causal": dict(is_causal=True), "top left": dict(is_causal=True, causal_alignment="top_left"),
    "window": dict(window=(9, 4)), "left": dict(window=(20, -1), is_causal=True), "right": dict(window=(-1, 3)),
}  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_masks(device, lengths, mask):
    settings = MASKS[mask]
    for dtype, tail in ((torch.float32, 0), (torch.bfloat16, 5)):
        check(
            lambda *x: attnc.varlen_attention(*x, enable_gqa=True, return_lse=True, **settings), device, dtype, lengths,
            tail, causal=settings.get("is_causal", False), window=settings.get("window"),
            alignment=settings.get("causal_alignment", "bottom_right"),
        )  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
def test_used_keys(device):
    used = [1, 30, 0, 200, 64, 2]
    for causal in (False, True):
        call = lambda *x: attnc.varlen_attention(
            *x, seqused_k=torch.tensor(used, device=device), is_causal=causal, enable_gqa=True, return_lse=True
        )
        check(call, device, torch.float64, "self", used=used, causal=causal, window=None, alignment="bottom_right")


@pytest.mark.parametrize("device", DEVICES)
def test_unused_keys_hold_anything(device):
    """Stale memory: NaN and infinity."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, do = (torch.randn(90, 2, 32, generator=generator).to(device) for _ in range(4))
    cu, used = offsets([30, 0, 30, 30], device), torch.tensor([20, 0, 30, 5], device=device)
    results = []
    for poison in (0, math.nan, math.inf):
        for first, last in ((20, 30), (65, 90)):
            k[first:last] = v[first:last] = poison
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        o = attnc.varlen_attention(*leaves, cu, seqused_k=used, is_causal=True)
        results.append([o, *torch.autograd.grad(o, leaves, do)])
    for other in results[1:]:
        assert all(torch.equal(x, y) for x, y in zip(results[0], other))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("lengths", ["self", "other"])
def test_functions(device, lengths):
    """Positions, numbers of sequences and captures with gradients; other head dimensions."""
    bias = torch.randn(6, 4)

    def score(s, n, h, i, j, bias):
        return s + bias[n, h] * (i - j)

    def call(q, k, v, cu_q, cu_k, bias):
        return attnc.varlen_attention(
            q, k, v, cu_q, cu_k, score_mod=lambda s, n, h, i, j: s + bias[n, h] * (i - j),
            mask_mod=lambda n, h, i, j: j <= i + 20, enable_gqa=True, return_lse=True,
        )  # fmt: skip

    check(
        call, device, torch.float32, lengths, d=(48, 24), score=score, bias=bias, causal=False, window=(-1, 20),
        alignment="top_left",
    )  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
def test_flash_attn(device):
    pairs = list(zip(*LENGTHS["other"]))
    slopes = torch.tensor([0.1, 0.2, 0.3, 0.4], device=device)

    def score(s, n, h, i, j):
        s = 5 * torch.tanh(s / 5)
        return s - slopes.to(s.dtype)[h] * (i + pairs[n][1] - pairs[n][0] - j).abs()

    q, k = (torch.randn(sum(x), h, 32, device=device) for x, h in zip(LENGTHS["other"], (4, 2)))
    cu = [offsets(x, device) for x in LENGTHS["other"]]
    o = attnc.flash_attn.flash_attn_varlen_func(
        q, k, k, *cu, 70, 90, softmax_scale=0.3, window_size=(30, 5), softcap=5.0, alibi_slopes=slopes
    )
    want, _ = definition(
        *(x.double() for x in (q, k, k)), pairs, None, causal=False, window=(30, 5), alignment="bottom_right",
        score=score, scale=0.3,
    )  # fmt: skip
    assert (o - want).abs().max() < 2e-6
    # In a batch of one length; packed forms.
    q, k = (torch.randn(2, n, h, 32, device=device) for n, h in ((50, 4), (80, 2)))
    o = attnc.flash_attn.flash_attn_func(q, k, k, causal=True, window_size=(30, -1))
    packed = attnc.flash_attn.flash_attn_kvpacked_func(q, torch.stack([k, k], 2), causal=True, window_size=(30, -1))
    assert torch.equal(o, packed)
    for n in range(2):
        want, _ = definition(
            *(x[n].double() for x in (q, k, k)), [(50, 80)], None, causal=True, window=(30, -1),
            alignment="bottom_right", score=None,
        )  # fmt: skip
        assert (o[n] - want).abs().max() < 2e-6
    qkv = torch.randn(60, 3, 2, 32, device=device)
    cu = offsets([20, 40], device)
    o = attnc.flash_attn.flash_attn_varlen_qkvpacked_func(qkv, cu, 40, causal=True)
    assert torch.equal(o, attnc.varlen_attention(*qkv.unbind(1), cu, is_causal=True))
    assert torch.equal(o, attnc.torch.varlen_attn(*qkv.unbind(1), cu, cu, 40, 40, window_size=(-1, 0)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", ["bhsd", "bshd", "thd"])
def test_merged(device, layout):
    """Parts of the keys, one of them without any for some queries: the whole, and its gradients."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, do = (torch.randn(1, 4, 50, 32, generator=generator, dtype=torch.float64).to(device) for _ in range(4))
    dlse = torch.randn(1, 4, 50, generator=generator, dtype=torch.float64).to(device)
    mask = lambda first, last: lambda b, h, i, j: (j >= first) & (j < last) & (j <= i - 3)
    order = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "thd": (2, 1, 3)}[layout]

    def attend(q, k, v, parts):
        states = [attnc.attention(q, k, v, mask_mod=mask(*part), return_lse=True) for part in parts]
        outputs = [(o[0] if layout == "thd" else o).permute([x - (layout == "thd") for x in order]) for o, _ in states]
        lses = [lse[0] if layout == "thd" else lse for _, lse in states]
        return attnc.merge_states(outputs, lses, layout=layout)

    results = []
    for parts in ([(0, 50)], [(0, 10), (10, 30), (30, 50)]):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        o, lse = attend(*leaves, parts)
        assert torch.equal(lse.reshape(1, 4, 50)[..., :3], torch.full_like(lse.reshape(1, 4, 50)[..., :3], -math.inf))
        incoming = do[0].permute([x - 1 for x in order]) if layout == "thd" else do.permute(order)
        finite = torch.where(lse == -math.inf, 0, lse)
        total = (o * incoming).sum() + (finite * dlse.reshape(lse.shape)).sum()
        results.append([o, finite, *torch.autograd.grad(total, leaves)])
    for x, y in zip(*results):
        assert torch.allclose(x, y, rtol=0, atol=1e-12)


def test_merge_refuses():
    o, lse = torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3)
    for outputs, lses, layout, message in (
        ([], [], "bhsd", "one at least"),
        ([o], [lse, lse], "bhsd", "as many outputs"),
        ([o, o[:, :1]], [lse, lse], "bhsd", "of one shape"),
        ([o], [lse], "bshd", "expected the LSE"),
        ([o], [lse], "bsd", "layout"),
    ):
        with pytest.raises(attnc.Error, match=message):
            attnc.merge_states(outputs, lses, layout=layout)


@pytest.mark.parametrize("device", DEVICES)
def test_compiled(device):
    q = torch.randn(100, 2, 32, device=device, requires_grad=True)
    run = lambda q, cu: attnc.varlen_attention(q, q, q, cu, is_causal=True)
    compiled = torch.compile(run, fullgraph=True)
    for lengths in ([10, 60, 30], [1, 1, 98]):
        cu = offsets(lengths, device)
        want, found = run(q, cu), compiled(q, cu)
        assert torch.allclose(want, found, atol=1e-5)
        assert torch.allclose(*(torch.autograd.grad(o.sum(), q)[0] for o in (want, found)), atol=1e-5)


@pytest.mark.cuda
@NO_GPU
def test_cuda_graph():
    """Captured once, replayed with other lengths; nothing waits for the device."""
    q, k = (torch.randn(300, h, 64, device="cuda", dtype=torch.bfloat16) for h in (4, 2))
    cu = [offsets([300], "cuda"), offsets([300], "cuda")]
    cu = [torch.cat([x, x[-1:].expand(5)]) for x in cu]
    run = lambda: attnc.varlen_attention(q, k, k, *cu, is_causal=True, enable_gqa=True)
    run()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = run()
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        for x in cu:
            x.copy_(torch.cat([torch.zeros(1), torch.randint(301, (6,), generator=generator).sort()[0]]))
        graph.replay()
        assert torch.equal(o, run())


def test_what_is_refused():
    q = torch.randn(10, 2, 16)
    cu = torch.tensor([0, 4, 10], dtype=torch.int32)
    for arguments, message in (
        ((q[None], q, q, cu), "query of shape"),
        ((q.numpy(), q, q, cu), "query to be a tensor of PyTorch"),
        ((q, q, q, [0, 4, 10]), "cu_seqlens_q to be a tensor of PyTorch"),
        ((q, q, q, cu.float()), "cu_seqlens_q to be int32 or int64"),
        ((q, q, q, cu + 1), "begin with 0"),
        ((q, q, q, torch.tensor([0, 5, 3])), "not to fall"),
        ((q, q[:8], q[:8], cu), "expected cu_seqlens_k"),
        ((q, q, q, cu, torch.tensor([0, 4])), "of one shape"),
        ((q, q, q[:5], cu), "as many tokens"),
        ((q, q[:, :1], q[:, :1], cu), "enable_gqa"),
    ):
        with pytest.raises(attnc.Error, match=message):
            attnc.varlen_attention(*arguments)
    with pytest.raises(attnc.Error, match="seqused_k"):
        attnc.varlen_attention(q, q, q, cu, seqused_k=torch.tensor([1]))
    flash = attnc.flash_attn
    with pytest.raises(attnc.Error, match="alibi_slopes of shape"):
        flash.flash_attn_func(q[None], q[None], q[None], alibi_slopes=torch.tensor(1.0))
    with pytest.raises(attnc.Error, match="return_attn_probs"):
        flash.flash_attn_varlen_func(q, q, q, cu, cu, 6, 6, return_attn_probs=True)
    with pytest.raises(attnc.Error, match="num_splits"):
        attnc.torch.varlen_attn(q, q, q, cu, cu, 6, 6, num_splits=4)


def test_without_torch():
    """The package does without PyTorch until one of these is asked for."""
    code = """
import sys
sys.modules["torch"] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else found(name, *rest)
from attnc import *
import attnc
assert "varlen_attention" not in globals()
try:
    attnc.varlen_attention
except ImportError:
    print("refused")
"""
    home = os.path.dirname(os.path.dirname(attnc.__file__))
    environment = {**os.environ, "PYTHONPATH": home}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout == "refused\n", done.stderr
    everything = {}
    exec("from attnc import *", everything)
    assert everything["varlen_attention"] is attnc.varlen_attention
