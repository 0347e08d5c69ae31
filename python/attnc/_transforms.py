# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention under the transforms of torch.func, and derivatives of derivatives. vmap, grad, vjp, jvp,
jacrev, jacfwd and hessian work, and so do create_graph and dual tensors. There is no derivative of the third order,
and none of the second by forward mode twice; asking for either is an error, never a zero.

A gradient is a function of Q, K, V, captures, dO and dLSE: O and LSE, which it is handed, are what the first
three give. So their tangents are those of the forward, and they have no gradients of their own."""

from __future__ import annotations

import re
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from ._errors import Error
from ._torch_ops import (
    NO_THIRD_ORDER,
    backward_op,
    forward_op,
    program_of,
    run_backward,
    run_backward_jvp,
    run_forward,
    run_jvp,
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


def _present(tensors: Sequence[Optional[torch.Tensor]]) -> Tuple[Tuple[int, ...], List[torch.Tensor]]:
    """Positions of those that are not None, and those."""
    positions = tuple(index for index, x in enumerate(tensors) if x is not None)
    return positions, [tensors[index] for index in positions]  # type: ignore[misc]


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
        ctx.save_for_forward(*inputs[1:], *output)

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
    def jvp(ctx: Any, _: None, *tangents: Optional[torch.Tensor]) -> Any:
        given, present = _present(tangents)
        return Jvp.apply(ctx.variant, given, *ctx.saved_tensors, *present)


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
        ctx.variant, ctx.wanted = inputs[:2]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[2:])
        ctx.save_for_forward(*inputs[2:])

    @staticmethod
    def backward(ctx: Any, *incoming: Optional[torch.Tensor]) -> Any:
        do, dlse, *inputs, o, lse = ctx.saved_tensors
        needs = ctx.needs_input_grad[2:]
        positions, present = _present(incoming)
        results: List[Optional[torch.Tensor]] = [None] * len(ctx.needs_input_grad)
        if not present:
            return tuple(results)
        # The Hessian is symmetric: what comes in are tangents of what the gradients are of.
        given = tuple(ctx.wanted[position] for position in positions)
        tangents = Jvp.apply(ctx.variant, given, *inputs, o, lse, *present)
        for index, incoming_of_output in enumerate((do, dlse)):
            if incoming_of_output is not None and needs[index]:
                results[index + 2] = tangents[index]
        wanted = tuple(index for index, need in enumerate(needs[2:-2]) if need)
        if wanted:
            gradients = _second(ctx.variant, wanted, (do, dlse), inputs, (o, lse), tangents, given, present)
            for index, gradient in zip(wanted, gradients):
                results[index + 4] = gradient
        return tuple(results)

    @staticmethod
    def vmap(info: Any, in_dims: Any, variant: Variant, wanted: Tuple[int, ...], *tensors: torch.Tensor) -> Any:
        apply = lambda *x: Backward.apply(variant, wanted, *x)
        return _batched(apply, variant, info.batch_size, tensors, in_dims[2:])

    @staticmethod
    def jvp(ctx: Any, _: None, __: None, *tangents: Optional[torch.Tensor]) -> Any:
        do, dlse, *inputs, o, lse = ctx.saved_tensors
        given, present = _present(tangents[2:-2])
        of_saved = [torch.zeros_like(x) if tangent is None else tangent for x, tangent in zip((o, lse), tangents[-2:])]
        return _second(ctx.variant, ctx.wanted, (do, dlse), inputs, (o, lse), of_saved, given, present, tangents[:2])


def _second(
    variant: Variant,
    wanted: Tuple[int, ...],
    incoming: Sequence[Optional[torch.Tensor]],
    inputs: Sequence[torch.Tensor],
    saved: Sequence[torch.Tensor],
    saved_tangents: Sequence[torch.Tensor],
    given: Tuple[int, ...],
    tangents: Sequence[torch.Tensor],
    incoming_tangents: Sequence[Optional[torch.Tensor]] = (None, None),
) -> Tuple[torch.Tensor, ...]:
    """Tangents of the gradients of the inputs `wanted`."""
    of_incoming, present = _present([*incoming, *incoming_tangents])
    settings = wanted, given, of_incoming
    return BackwardJvp.apply(variant, settings, *inputs, *saved, *saved_tangents, *tangents, *present)


class Jvp(torch.autograd.Function):
    """Tangents of (O, LSE), from the inputs, O, LSE and the tangents of the inputs `given`."""

    @staticmethod
    def forward(variant: Variant, given: Tuple[int, ...], *tensors: torch.Tensor) -> Any:
        count = len(tensors) - 2 - len(given)
        return tuple(run_jvp(variant, tensors[:count], tensors[count : count + 2], given, tensors[count + 2 :]))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.variant, ctx.given = inputs[:2]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[2:], *output)

    @staticmethod
    def backward(ctx: Any, do: Optional[torch.Tensor], dlse: Optional[torch.Tensor]) -> Any:
        results: List[Optional[torch.Tensor]] = [None] * len(ctx.needs_input_grad)
        if do is None and dlse is None:
            return tuple(results)
        count, given = len(results) - 4 - len(ctx.given), ctx.given
        inputs, saved = ctx.saved_tensors[:count], ctx.saved_tensors[count : count + 2]
        tangents, of_saved = ctx.saved_tensors[count + 2 : -2], ctx.saved_tensors[-2:]
        needs = ctx.needs_input_grad[2:]
        wanted = tuple(index for index, need in enumerate(needs[:count]) if need)
        if wanted:
            gradients = _second(ctx.variant, wanted, (do, dlse), inputs, saved, of_saved, given, tangents)
            for index, gradient in zip(wanted, gradients):
                results[index + 2] = gradient
        # Linear in the tangents.
        places = tuple(place for place in range(len(given)) if needs[count + 2 + place])
        if places:
            wanted = tuple(given[place] for place in places)
            for place, gradient in zip(places, Backward.apply(ctx.variant, wanted, do, dlse, *inputs, *saved)):
                results[count + 4 + place] = gradient
        return tuple(results)

    @staticmethod
    def vmap(info: Any, in_dims: Any, variant: Variant, given: Tuple[int, ...], *tensors: torch.Tensor) -> Any:
        apply = lambda *x: Jvp.apply(variant, given, *x)
        return _batched(apply, variant, info.batch_size, tensors, in_dims[2:])

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise Error(NO_THIRD_ORDER)


class BackwardJvp(torch.autograd.Function):
    """Tangents of gradients. `settings`: the inputs whose gradients' are wanted, those that have tangents, and which of
    dO, dLSE and their tangents there are; tensors: inputs, O, LSE, their tangents, the inputs', and these."""

    @staticmethod
    def forward(variant: Variant, settings: Any, *tensors: torch.Tensor) -> Any:
        wanted, given, present = settings
        count = len(tensors) - 4 - len(given) - len(present)
        incoming: List[Optional[torch.Tensor]] = [None] * 4
        for index, tensor in zip(present, tensors[len(tensors) - len(present) :]):
            incoming[index] = tensor
        inputs, saved, of_saved = tensors[:count], tensors[count : count + 2], tensors[count + 2 : count + 4]
        tangents = tensors[count + 4 : count + 4 + len(given)]
        gradients = run_backward_jvp(variant, inputs, saved, of_saved, given, tangents, incoming, wanted)
        return tuple(scalar_shapes(gradients, inputs, wanted))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *incoming: Any) -> Any:
        # Also of the tangents alone, in which this is linear: what is needed cannot be told from what has a graph.
        raise Error(NO_THIRD_ORDER)

    @staticmethod
    def vmap(info: Any, in_dims: Any, variant: Variant, settings: Any, *tensors: torch.Tensor) -> Any:
        apply = lambda *x: BackwardJvp.apply(variant, settings, *x)
        return _batched(apply, variant, info.batch_size, tensors, in_dims[2:])

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise Error(NO_THIRD_ORDER)
