# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention by its definition, in PyTorch, and how far from it a result may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

Functions = Callable[[Dict[str, torch.Tensor]], Tuple[Optional[Callable], Optional[Callable]]]


def permutation(size: int, order: int) -> torch.Tensor:
    """As they come, backwards, and at random."""
    if order < 2:
        return torch.arange(size).flip(0) if order else torch.arange(size)
    return torch.randperm(size, generator=torch.Generator().manual_seed(order))


def baseline_orders(results) -> int:
    """How many baselines results are judged beside: the error of one sum is luck, which shows
    where they have few elements."""
    return 32 if any(0 < x.numel() < 64 for x in results) else 2


def dense(q, k, v, score_mod=None, mask_mod=None, scale=None, order=0):
    """(O, LSE) with all scores in memory: scores in float32 or wider, the rest in the
    inputs' type. Functions get index tensors that broadcast. `order` is that of the sums over
    queries and keys, by number of their permutation()."""
    accumulator = torch.float64 if q.dtype == torch.float64 else torch.float32
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    # The keys are scaled first: another implementation should not get the same roundings by luck.
    s = q.to(accumulator) @ (k.to(accumulator) * scale).transpose(-1, -2)
    shapes = (-1, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1)
    index = [torch.arange(n, device=q.device).view(shape) for n, shape in zip(s.shape, shapes)]
    rows, columns = (permutation(n, order).to(q.device) for n in s.shape[2:])
    if order:
        v, s = v[:, :, columns], s[:, :, rows][..., columns]
        index[2:] = index[2][:, :, rows], index[3][..., columns]
    if score_mod is not None:
        s = score_mod(s, *index)
    if mask_mod is not None:
        s = torch.where(mask_mod(*index), s, -float("inf"))
    lse = torch.logsumexp(s, -1)
    p = torch.exp(s - torch.where(lse.isinf(), 0.0, lse)[..., None])
    o = (p.to(q.dtype) @ v).to(q.dtype)
    back = rows.argsort()
    return (o[:, :, back], lse[:, :, back]) if order else (o, lse)


class _Definition(torch.autograd.Function):
    """The backward by its definition in the precision of the inputs, from the rounded
    output: what the gradient of a score is multiplied with is rounded too."""

    @staticmethod
    def forward(ctx, call, q, k, v, *captures):
        with torch.no_grad():
            o, lse = call(q, k, v, captures)
        ctx.call = call
        ctx.save_for_backward(q, k, v, o, lse, *captures)
        return o, lse

    @staticmethod
    def backward(ctx, do, dlse):
        q, k, v, o, lse, *captures = ctx.saved_tensors
        group = q.shape[1] // k.shape[1]
        keys, values = (x.repeat_interleave(group, 1) for x in (k, v))
        kind = lse.dtype
        with torch.enable_grad():
            floats = [c.detach().requires_grad_() if c.is_floating_point() else c for c in captures]
            s, t, keep = ctx.call(q, k, v, floats, scores=True)
        rows, columns = (permutation(x.shape[2], ctx.call.order).to(q.device) for x in (q, k))
        finite = torch.where(lse.isinf(), 0.0, lse)[:, :, rows, None]
        p = torch.where(keep, torch.exp(t.detach() - finite), 0.0)
        d = (do.to(kind) * o.to(kind)).sum(-1) - dlse
        dp = do.to(kind) @ values.to(kind).transpose(-1, -2) - d[..., None]
        dt = p * (dp[:, :, rows][..., columns] if ctx.call.order else dp)
        wanted = [s, *(c for c in floats if c.requires_grad)]
        ds, *found = torch.autograd.grad(t, wanted, dt, allow_unused=True)
        ds = ds.to(k.dtype).to(kind)
        if ctx.call.order:
            q, do, keys = q[:, :, rows], do[:, :, rows], keys[:, :, columns]
        dq = (ds @ keys.to(kind)) * ctx.call.scale
        dk = (ds.transpose(-1, -2) @ q.to(kind)) * ctx.call.scale
        dv = p.to(v.dtype).to(kind).transpose(-1, -2) @ do.to(kind)
        if ctx.call.order:
            dq, dk, dv = (x[:, :, to.argsort()] for x, to in ((dq, rows), (dk, columns), (dv, columns)))
        dk, dv = (x.unflatten(1, (-1, group)).sum(2) for x in (dk, dv))
        rest = iter(found)
        return None, dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), *(
            next(rest) if c.requires_grad else None for c in floats
        )


class _Call:
    """dense() of functions of the captures, or its scores: raw, changed, and which count."""

    def __init__(self, functions, names, mask, scale, order):
        self.functions, self.names, self.mask, self.scale, self.order = functions, names, mask, scale, order

    def __call__(self, q, k, v, captures, scores=False):
        score_mod, mask_mod = self.functions(dict(zip(self.names, captures)))
        masks = [m for m in (self.mask, mask_mod) if m is not None]
        both = (lambda *index: masks[0](*index) & masks[-1](*index)) if masks else None
        if not scores:
            return dense(q, k, v, score_mod, both, self.scale, self.order)
        seen = []

        def look(s, *index):
            seen.append(s.detach().requires_grad_())
            seen.append(seen[0] if score_mod is None else score_mod(seen[0], *index))
            keep = torch.ones_like(s, dtype=torch.bool) if both is None else both(*index).expand(s.shape)
            seen.append(keep)
            return s

        dense(q, k, v, look, None, self.scale, self.order)
        return seen


def check(name: str, got, exact, baselines, dtype) -> None:
    """The largest error is at most twice that of the baselines and two roundings, the
    mean error of 16 elements or more 1.5 times and one; see docs/numerics.md."""
    assert got.shape == exact.shape, (name, got.shape, exact.shape)
    got, baselines = got.detach().double(), torch.stack([x.detach().double() for x in baselines])
    exact = exact.detach()
    infinite = exact.isinf()
    assert torch.equal(got.isinf(), infinite), f"{name}: infinities in other places"
    got, baselines, exact = (torch.where(infinite, 0.0, x) for x in (got, baselines, exact))
    assert not got.isnan().any(), f"{name}: NaN"
    if not exact.numel():
        return
    eps = torch.finfo(dtype).eps
    error, allowed = (got - exact).abs(), (baselines - exact).abs()
    largest = exact.abs().max().item() + 0.3
    if dtype == torch.float64:
        # The reference itself is rounded: sums of some hundred terms.
        limit = 100 * eps * largest
        assert error.max().item() <= limit, f"{name}: max error {error.max().item():.2e}, allowed {limit:.2e}"
        return
    limit = 2 * allowed.max().item() + eps * largest
    assert error.max().item() <= limit, f"{name}: max error {error.max().item():.2e}, allowed {limit:.2e}"
    limit = 1.5 * allowed.mean().item() + eps / 2 * largest
    if exact.numel() < 16:
        return
    assert error.mean().item() <= limit, f"{name}: mean error {error.mean().item():.2e}, allowed {limit:.2e}"


@dataclass
class Case:
    """Inputs of one attention, and functions of its captures."""

    functions: Functions = lambda captures: (None, None)
    captures: Dict[str, torch.Tensor] = field(default_factory=dict)
    shape: Tuple[int, int, int, int, int, int, int] = (2, 4, 2, 70, 90, 32, 32)  # b hq hkv sq sk d dv
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    scale: Optional[float] = None
    seed: int = 0

    def __post_init__(self):
        generator = torch.Generator().manual_seed(self.seed)
        b, hq, hkv, sq, sk, d, dv = self.shape
        sizes = (b, hq, sq, d), (b, hkv, sk, d), (b, hkv, sk, dv), (b, hq, sq, dv), (b, hq, sq)
        tensors = [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]
        self.q, self.k, self.v, self.do = (x.to(self.dtype).to(self.device) for x in tensors[:4])
        lse_type = torch.float64 if self.dtype == torch.float64 else torch.float32
        self.dlse = tensors[4].to(lse_type).to(self.device)
        self.captures = {name: x.to(self.device) for name, x in self.captures.items()}

    def leaves(self, wide: bool) -> List[torch.Tensor]:
        tensors = [self.q, self.k, self.v, *self.captures.values()]
        copies = [x.double() if wide and x.is_floating_point() else x.clone() for x in tensors]
        return [x.detach().requires_grad_(x.is_floating_point()) for x in copies]

    def run(self, attend: Callable[..., Any], wide: bool = False, gradients: bool = True, raw: bool = False) -> Dict:
        """What `attend(q, k, v, score_mod, mask_mod)` gives, and the gradients; it gets the
        captures instead of functions of them where `raw`."""
        leaves = self.leaves(wide)
        functions = leaves[3:] if raw else self.functions(dict(zip(self.captures, leaves[3:])))
        o, lse = attend(*leaves[:3], *functions)
        results = {"O": o, "LSE": lse}
        if not gradients:
            return results
        outputs, incoming = [o, lse], [self.do, self.dlse]
        incoming = [x.to(y.dtype) for x, y in zip(incoming, outputs)]
        names = ["dQ", "dK", "dV", *(f"d {name}" for name in self.captures)]
        wanted = [(name, x) for name, x in zip(names, leaves) if x.requires_grad]
        found = torch.autograd.grad(outputs, [x for _, x in wanted], incoming, allow_unused=True)
        for (name, leaf), gradient in zip(wanted, found):
            results[name] = torch.zeros_like(leaf) if gradient is None else gradient
        return results

    def compare(self, attend: Callable[..., Any], mask: Optional[Callable] = None, gradients: bool = True) -> None:
        """`attend` against the definition; `mask` is what it masks by itself."""

        scale = self.q.shape[-1] ** -0.5 if self.scale is None else self.scale
        got = self.run(attend, gradients=gradients)
        orders = range(baseline_orders(got.values()))
        calls = [_Call(self.functions, list(self.captures), mask, scale, order) for order in orders]
        exact = self.run(lambda q, k, v, *captures: calls[0](q, k, v, captures), True, gradients, raw=True)
        baselines = [
            self.run(lambda *x: _Definition.apply(call, *x), gradients=gradients, raw=True) for call in calls
        ]
        assert got.keys() == exact.keys()
        for name in got:
            kind = self.dlse.dtype if name == "LSE" else got[name].dtype
            check(name, got[name], exact[name], [x[name] for x in baselines], kind)
