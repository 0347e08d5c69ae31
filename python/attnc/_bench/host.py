# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long a call keeps the host, forward and backward."""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable, Dict, List

import torch

from .._attention import attention
from .timing import host_microseconds


class _Empty(torch.autograd.Function):
    """What autograd costs by itself: the tensors of attention, and no work."""

    @staticmethod
    def forward(ctx: Any, results: Any, *inputs: torch.Tensor) -> Any:
        o, lse = results
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(lse)
        ctx.save_for_backward(*inputs, o, lse)
        ctx.gradients = inputs
        return o.detach(), lse

    @staticmethod
    def backward(ctx: Any, do: Any, dlse: Any) -> Any:
        return None, *(x.detach() for x in ctx.saved_tensors[:3])


def _backward_alone(form: Callable[..., Any], leaves: List[torch.Tensor], do: torch.Tensor, device: str) -> float:
    """Of the function that autograd calls, called by this thread."""
    from .. import _torch

    o = form(*leaves)  # whose graph lives as long
    node = o.grad_fn
    with torch.no_grad():
        return host_microseconds(lambda: _torch._backward(node, do, None), device=device)


def _backward_within(device: str, step: Callable[[], Any], calls: int = 100, rounds: int = 15) -> float:
    """The same within steps: on a GPU autograd calls it on a thread of its own, which it wakes up."""
    from .. import _torch

    spent: List[float] = []
    inner = _torch._backward

    def timed(*arguments: Any) -> Any:
        begin = time.perf_counter()
        result = inner(*arguments)
        spent.append(time.perf_counter() - begin)
        return result

    _torch._backward = timed
    try:
        medians = []
        for _ in range(rounds):
            if device == "cuda":
                torch.cuda.synchronize()
            spent.clear()
            for _ in range(calls):
                step()
            medians.append(statistics.median(spent))
    finally:
        _torch._backward = inner
    return statistics.median(medians[2:]) * 1e6


def measure_host(device: str, dtype: str) -> Dict[str, float]:
    """Microseconds per call on a warm cache, of short sequences, so that a GPU is never waited for."""
    shape = (1, 8, 128, 128) if device == "cuda" else (1, 1, 1, 16)
    q, k, v, do = (torch.randn(shape, device=device).to(getattr(torch, dtype)) for _ in range(4))
    slope = torch.rand(shape[1], device=device)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    results = attention(q, k, v, return_lse=True)
    sdpa = torch.nn.functional.scaled_dot_product_attention

    def score_mod(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s - slope[h] * (i - j).abs()

    causal = lambda *x: attention(*x, is_causal=True)
    forms = {
        "attnc, causal": causal,
        "attnc, deterministic": lambda *x: attention(*x, is_causal=True, deterministic=True),
        "attnc, score_mod": lambda *x: attention(*x, score_mod=score_mod),
        "sdpa, causal": lambda *x: sdpa(*x, is_causal=True),
        "a function that does nothing": lambda *x: _Empty.apply(results, *x)[0],
    }
    spent = {}
    for name, form in forms.items():
        step = lambda: torch.autograd.grad(form(*leaves), leaves, do)
        spent[f"{name}: forward"] = host_microseconds(lambda: form(q, k, v), device=device)
        spent[f"{name}: forward for gradients"] = host_microseconds(lambda: form(*leaves), device=device)
        spent[f"{name}: forward and backward"] = host_microseconds(step, device=device)
        if name.startswith("attnc"):
            spent[f"{name}: backward"] = _backward_alone(form, leaves, do, device)
            spent[f"{name}: backward, on autograd's thread"] = _backward_within(device, step)
    return spent
