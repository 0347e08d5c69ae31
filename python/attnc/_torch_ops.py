# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled code on tensors of PyTorch, and the operators attnc::forward and
attnc::backward, through which PyTorch's compiler and exporter see it."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch.autograd import forward_ad

from ._errors import Error, call_error
from ._variant import Variant, variant_of

NO_FORWARD_MODE = (
    "attnc's operators (what torch.compile, linearize, tensor subclasses and dispatch modes see) have no forward-mode derivatives: "
    "expected plain tensors (torch.func.jvp, jacfwd and dual tensors work with them)"
)
NO_SECOND_GRADIENT = (
    "attnc's operators (what torch.compile, tensor subclasses and dispatch modes see) have no gradient of a gradient: "
    "expected plain tensors (create_graph and torch.func.hessian work with them)"
)
NO_THIRD_ORDER = (
    "attnc has no derivatives of the third order, and none of the second by forward mode twice: expected the first, or "
    "the second by reverse mode with either (create_graph, torch.func.hessian, jvp of grad, grad of jvp)"
)


def is_forward_mode() -> bool:
    """Whether tensors may have tangents."""
    return forward_ad._current_level >= 0


def has_tangents(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether there are dual tensors among these."""
    return is_forward_mode() and any(forward_ad.unpack_dual(x).tangent is not None for x in tensors)


def _refuse_forward_mode() -> None:
    """An operator does not see the tangents of its arguments."""
    if is_forward_mode():
        raise Error(NO_FORWARD_MODE)


def device_of(tensor: torch.Tensor) -> str:
    kind = tensor.device.type
    if kind not in ("cpu", "cuda"):
        raise call_error(f"expected tensors on the CPU or on a CUDA device, got {tensor.device}")
    return kind


def check_devices(tensors: Sequence[torch.Tensor]) -> None:
    device = tensors[0].device
    for tensor in tensors:
        if tensor.device != device:
            raise call_error(f"expected all tensors, captured ones too, on {device}, got one on {tensor.device}")


# By shape, strides and size of an element: whether copies by TMA reach a tensor.
_reachable: Dict[Any, bool] = {}


def is_reachable(tensor: torch.Tensor) -> bool:
    key = tensor.shape, tensor.stride(), tensor.element_size()
    known = _reachable.get(key)
    if known is None:
        steps = [stride * key[2] for size, stride in zip(key[0][:-1], key[1]) if size > 1]
        known = all(step > 0 and step % 16 == 0 for step in steps)
        if len(_reachable) >= 4096:
            _reachable.clear()
        _reachable[key] = known
    return known and tensor.data_ptr() % 16 == 0


def usable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as the compiled code takes it: as it is, or a copy."""
    if tensor._is_zerotensor():
        tensor = torch.zeros_like(tensor)
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor.dim() == 0:
        return tensor.reshape(1)
    if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def needs_threads(operands: Sequence[torch.Tensor]) -> bool:
    """Whether TMA does not reach one of Q, K, V, O and dO on a GPU, so that threads copy their tiles."""
    return operands[0].is_cuda and not all(map(is_reachable, operands))


def run_forward(variant: Variant, inputs: Sequence[torch.Tensor], out: Optional[Sequence] = None) -> List:
    query = inputs[0]
    device = device_of(query)
    check_devices(inputs)
    variant = variant.for_sizes(query, inputs[1], inputs[3:])
    arguments = [*map(usable, inputs)]
    return variant.forward(device, needs_threads(arguments[:3])).call(arguments, out)


def run_backward(
    variant: Variant,
    inputs: Sequence[torch.Tensor],
    saved: Sequence[torch.Tensor],
    incoming: Sequence[Optional[torch.Tensor]],
    wanted: Tuple[int, ...],
    out: Optional[Sequence] = None,
    partial: bool = False,
) -> List[torch.Tensor]:
    """Gradients of the inputs at the positions `wanted`; `saved` are (O, LSE), and
    `incoming` their gradients. `partial`: those of more keys than these."""
    do, dlse = incoming
    if do is None:
        do = torch.zeros_like(saved[0])
    arguments = [*map(usable, inputs), usable(saved[0]), saved[1], usable(do)]
    by_threads = needs_threads([*arguments[:3], arguments[-3], arguments[-1]])
    if dlse is not None:
        arguments.append(usable(dlse))
    variant = variant.for_sizes(inputs[0], inputs[1], inputs[3:])
    gradient = variant.gradient(device_of(inputs[0]), wanted, dlse is not None, by_threads, partial)
    if out is not None and len(gradient.computed) > len(wanted):
        for result, computed in zip(out, gradient.select(gradient.executable.call(arguments))):
            result.copy_(computed)
        return list(out)
    return gradient.select(gradient.executable.call(arguments, out))


def run_jvp(
    variant: Variant,
    inputs: Sequence[torch.Tensor],
    saved: Sequence[torch.Tensor],
    given: Tuple[int, ...],
    tangents: Sequence[torch.Tensor],
) -> List[torch.Tensor]:
    """Tangents of (O, LSE), which are `saved`; `tangents` are those of the inputs at the positions `given`."""
    check_devices([*inputs, *saved, *tangents])
    variant = variant.for_sizes(inputs[0], inputs[1], inputs[3:])
    executable = variant.jvp(device_of(inputs[0]), given)
    return executable.call([*map(usable, (*inputs, *saved, *tangents))])


def run_backward_jvp(
    variant: Variant,
    inputs: Sequence[torch.Tensor],
    saved: Sequence[torch.Tensor],
    saved_tangents: Sequence[torch.Tensor],
    given: Tuple[int, ...],
    tangents: Sequence[torch.Tensor],
    incoming: Sequence[Optional[torch.Tensor]],
    wanted: Tuple[int, ...],
) -> List[torch.Tensor]:
    """Tangents of the gradients of the inputs at the positions `wanted`; `incoming` are dO, dLSE and their tangents."""
    do, dlse, do_tangent, dlse_tangent = incoming
    if do is None:
        do = torch.zeros_like(saved[0])
    if dlse is None and dlse_tangent is not None:
        dlse = torch.zeros_like(saved[1])
    optional = [x for x in (do_tangent, dlse_tangent) if x is not None]
    arguments = [*inputs, *saved, do] + ([] if dlse is None else [dlse])
    arguments += [*tangents, *saved_tangents, *optional]
    check_devices(arguments)
    variant = variant.for_sizes(inputs[0], inputs[1], inputs[3:])
    present = dlse is not None, do_tangent is not None, dlse_tangent is not None
    gradient = variant.backward_jvp(device_of(inputs[0]), wanted, given, present)
    return gradient.select(gradient.executable.call([*map(usable, arguments)]))


def scalar_shapes(gradients: List[Any], inputs: Sequence[torch.Tensor], wanted: Sequence[int]) -> List[Any]:
    """Captures without dimensions were read as tensors of one."""
    return [
        gradient.reshape(()) if inputs[index].dim() == 0 else gradient for gradient, index in zip(gradients, wanted)
    ]


# The operators. A variant travels as its text, so that an exported program stands by
# itself: as JSON, in one line, because PyTorch's compiler writes arguments into comments
# of the code that it makes. Results are dense.


def program_of(variant: Variant) -> str:
    return json.dumps(variant.text)


def _variant_of(program: str) -> Variant:
    known = _programs.get(program)
    if known is None:
        known = _programs[program] = variant_of(json.loads(program))
    return known


_programs: Dict[str, Variant] = {}


@torch.library.custom_op("attnc::forward", mutates_args=())
def forward_op(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, captures: List[torch.Tensor], program: str
) -> Tuple[torch.Tensor, torch.Tensor]:
    _refuse_forward_mode()
    o, lse = _empty_results(query, value)
    run_forward(_variant_of(program), [query, key, value, *captures], (o, lse))
    return o, lse


def _empty_results(query: torch.Tensor, value: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    type = torch.float64 if query.dtype == torch.float64 else torch.float32
    b, h, s = query.shape[:3]
    # O lies in memory as the query does.
    order = sorted(range(3), key=lambda dim: -query.stride(dim))
    o = torch.empty_permuted((b, h, s, value.shape[3]), (*order, 3), dtype=query.dtype, device=query.device)
    return o, query.new_empty((b, h, s), dtype=type)


@forward_op.register_fake
def _(query: Any, key: Any, value: Any, captures: Any, program: str) -> Any:
    return _empty_results(query, value)


@torch.library.custom_op("attnc::backward", mutates_args=())
def backward_op(
    inputs: List[torch.Tensor],
    o: torch.Tensor,
    lse: torch.Tensor,
    do: Optional[torch.Tensor],
    dlse: Optional[torch.Tensor],
    program: str,
    wanted: List[int],
) -> List[torch.Tensor]:
    _refuse_forward_mode()
    results = _empty_gradients(inputs, wanted)
    out = [result.reshape(1) if result.dim() == 0 else result for result in results]
    run_backward(_variant_of(program), inputs, (o, lse), (do, dlse), tuple(wanted), out)
    return results


def _empty_gradients(inputs: List[torch.Tensor], wanted: List[int]) -> List[torch.Tensor]:
    return [torch.empty_like(inputs[index], memory_format=torch.contiguous_format) for index in wanted]


@backward_op.register_fake
def _(inputs: Any, o: Any, lse: Any, do: Any, dlse: Any, program: str, wanted: List[int]) -> Any:
    return _empty_gradients(inputs, wanted)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    query, key, value, captures, program = inputs
    o, lse = output
    ctx.program = program
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(query, key, value, *captures, o, lse)


def _differentiate(ctx: Any, do: Any, dlse: Any) -> Any:
    *inputs, o, lse = ctx.saved_tensors
    needs = ctx.needs_input_grad
    needed = [*needs[:3], *(needs[3] if isinstance(needs[3], (list, tuple)) else [])]
    if len(needed) < len(inputs):
        needed += [tensor.requires_grad for tensor in inputs[len(needed) :]]
    wanted = [index for index, need in enumerate(needed) if need]
    results: List[Any] = [None] * len(inputs)
    if do is not None or dlse is not None:
        for index, gradient in zip(wanted, backward_op(inputs, o, lse, do, dlse, ctx.program, wanted)):
            results[index] = gradient
    return results[0], results[1], results[2], results[3:], None


def _refuse_second_gradient(ctx: Any, *incoming: Any) -> Any:
    raise Error(NO_SECOND_GRADIENT)


forward_op.register_autograd(_differentiate, setup_context=_setup)
backward_op.register_autograd(_refuse_second_gradient)
