# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention under the transforms of torch.func. vmap, grad, vjp and jacrev work; there is no
forward-mode differentiation and no gradient of a gradient, and asking for either is an
error, never a zero."""

from __future__ import annotations

import re
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from ._errors import Error
from ._torch_ops import (
    NO_FORWARD_MODE,
    NO_SECOND_GRADIENT,
    backward_op,
    forward_op,
    program_of,
    run_backward,
    run_forward,
    scalar_shapes,
)
from ._variant import Variant

_PLAIN = (torch.Tensor, torch.nn.Parameter)
number_of_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)


def _seen_by_modes(tensors: Sequence[torch.Tensor]) -> bool:
    return bool(number_of_modes()) or not all(x is None or type(x) in _PLAIN for x in tensors)


def _has_captures(variant: Variant) -> bool:
    return "%c0:" in variant.code


def _reads_batch(variant: Variant) -> bool:
    return re.search(r"%b\b(?!:)", variant.code) is not None


def _batched(
    apply: Callable, variant: Variant, count: int, tensors: Sequence[torch.Tensor], dims: Sequence[Optional[int]]
) -> Tuple[Tuple[torch.Tensor, ...], Tuple[int, ...]]:
    """Results of `count` calls, for samples along `dims` of the tensors: one call with a larger
    batch where that is the same, else one after the other."""
    if count == 0:
        raise Error("expected a dimension of vmap with elements, got one of size 0")
    if not _has_captures(variant) and not _reads_batch(variant):
        moved = [x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in zip(tensors, dims)]
        batch = moved[0].shape[1]
        results = tuple(x.unflatten(0, (count, batch)) for x in apply(*(x.flatten(0, 1) for x in moved)))
    else:
        calls = [
            apply(*(x if dim is None else x.select(dim, sample) for x, dim in zip(tensors, dims)))
            for sample in range(count)
        ]
        results = tuple(torch.stack(parts) for parts in zip(*calls))
    return results, (0,) * len(results)


class Forward(torch.autograd.Function):
    """(O, LSE) of a variant and its inputs."""

    @staticmethod
    def forward(variant: Variant, *inputs: torch.Tensor) -> Any:
        if _seen_by_modes(inputs):
            return forward_op(*inputs[:3], list(inputs[3:]), program_of(variant))
        o, lse = run_forward(variant, inputs)
        return o, lse

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.variant = inputs[0]
        ctx.save_for_backward(*inputs[1:], *output)

    @staticmethod
    def backward(ctx: Any, do: torch.Tensor, dlse: torch.Tensor) -> Any:
        wanted = tuple(index for index, need in enumerate(ctx.needs_input_grad[1:]) if need)
        results: List[Optional[torch.Tensor]] = [None] * len(ctx.needs_input_grad)
        if wanted:
            for index, gradient in zip(wanted, Backward.apply(ctx.variant, wanted, do, dlse, *ctx.saved_tensors)):
                results[index + 1] = gradient
        return tuple(results)

    @staticmethod
    def vmap(info: Any, in_dims: Any, variant: Variant, *inputs: torch.Tensor) -> Any:
        return _batched(lambda *x: Forward.apply(variant, *x), variant, info.batch_size, inputs, in_dims[1:])

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise Error(NO_FORWARD_MODE)


class Backward(torch.autograd.Function):
    """Gradients of the inputs `wanted`, from those of (O, LSE), the inputs, O and LSE."""

    @staticmethod
    def forward(variant: Variant, wanted: Tuple[int, ...], *tensors: torch.Tensor) -> Any:
        do, dlse, *inputs, o, lse = tensors
        if _seen_by_modes(tensors):
            return tuple(backward_op(list(inputs), o, lse, do, dlse, program_of(variant), list(wanted)))
        gradients = run_backward(variant, inputs, (o, lse), (do, dlse), wanted)
        return tuple(scalar_shapes(gradients, inputs, wanted))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *incoming: Any) -> Any:
        raise Error(NO_SECOND_GRADIENT)

    @staticmethod
    def vmap(info: Any, in_dims: Any, variant: Variant, wanted: Tuple[int, ...], *tensors: torch.Tensor) -> Any:
        apply = lambda *x: Backward.apply(variant, wanted, *x)
        return _batched(apply, variant, info.batch_size, tensors, in_dims[2:])

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise Error(NO_FORWARD_MODE)
