# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls with tensors of PyTorch: autograd, autocast, and operators that its compiler
traces through.

There are two roads to the same compiled code. Plain tensors take an
autograd.Function, which costs the least per call. Tensors of a tracer, and calls
under a dispatch mode, take the operators attnc::forward and attnc::backward.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from ._attention import Bound, bind, check_inputs
from ._errors import Error
from ._variant import Options, Variant, variant_of

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_TYPE_NAMES = {
    torch.float64: "float64",
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}
_number_of_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_functorch_level = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: None)


def _device_of(tensor: torch.Tensor) -> str:
    kind = tensor.device.type
    if kind not in ("cpu", "cuda"):
        raise Error(f"expected tensors on the CPU or on a CUDA device, got {tensor.device}")
    return kind


# By shape, strides and size of an element: whether copies by TMA reach a tensor.
_reachable: Dict[Any, bool] = {}


def _is_reachable(tensor: torch.Tensor) -> bool:
    key = tensor.shape, tensor.stride(), tensor.element_size()
    known = _reachable.get(key)
    if known is None:
        steps = [stride * key[2] for size, stride in zip(key[0][:-1], key[1]) if size > 1]
        known = all(step > 0 and step % 16 == 0 for step in steps)
        if len(_reachable) >= 4096:
            _reachable.clear()
        _reachable[key] = known
    return known and tensor.data_ptr() % 16 == 0


def _usable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as the compiled code takes it: as it is, or a copy."""
    if tensor.dim() == 0:
        return tensor.reshape(1)
    if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def _operand(tensor: torch.Tensor) -> torch.Tensor:
    """Likewise of Q, K, V, O or dO, which a GPU copies by TMA."""
    tensor = _usable(tensor)
    if tensor.is_cuda and not _is_reachable(tensor):
        return tensor.clone(memory_format=torch.contiguous_format)
    return tensor


def _run_forward(variant: Variant, inputs: Sequence[torch.Tensor], out: Optional[Sequence] = None) -> List:
    query = inputs[0]
    device = _device_of(query)
    for tensor in inputs:
        if tensor.device != query.device:
            raise Error(f"expected all tensors, captured ones too, on {query.device}, got one on {tensor.device}")
    variant.check(query, inputs[1], inputs[3:])
    captures = map(_usable, inputs[3:])
    return variant.forward(device).call([*map(_operand, inputs[:3]), *captures], out)


def _run_backward(
    variant: Variant,
    inputs: Sequence[torch.Tensor],
    saved: Sequence[torch.Tensor],
    incoming: Sequence[Optional[torch.Tensor]],
    wanted: Tuple[int, ...],
    out: Optional[Sequence] = None,
) -> List[torch.Tensor]:
    """Gradients of the inputs at the positions `wanted`; `saved` are (O, LSE), and
    `incoming` their gradients."""
    do, dlse = incoming
    if do is None:
        do = torch.zeros_like(saved[0])
    arguments = [*map(_operand, inputs[:3]), *map(_usable, inputs[3:]), _operand(saved[0]), saved[1], _operand(do)]
    if dlse is not None:
        arguments.append(_usable(dlse))
    executable = variant.gradient(_device_of(inputs[0]), wanted, dlse is not None)
    return executable.call(arguments, out)


def _scalar_shapes(gradients: List[Any], inputs: Sequence[torch.Tensor], wanted: Sequence[int]) -> List[Any]:
    """Captures without dimensions were read as tensors of one."""
    return [
        gradient.reshape(()) if inputs[index].dim() == 0 else gradient for gradient, index in zip(gradients, wanted)
    ]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, variant: Variant, return_lse: bool, *inputs: torch.Tensor) -> Any:
        o, lse = _run_forward(variant, inputs)
        ctx.variant = variant
        ctx.set_materialize_grads(False)
        if not return_lse:
            ctx.mark_non_differentiable(lse)
        ctx.save_for_backward(*inputs, o, lse)
        return o, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, do: Optional[torch.Tensor], dlse: Optional[torch.Tensor]) -> Any:
        *inputs, o, lse = ctx.saved_tensors
        needed = ctx.needs_input_grad
        wanted = tuple(index for index in range(len(inputs)) if needed[index + 2])
        results: List[Any] = [None] * (len(inputs) + 2)
        if do is None and dlse is None:
            return tuple(results)
        gradients = _run_backward(ctx.variant, inputs, (o, lse), (do, dlse), wanted)
        for index, gradient in zip(wanted, _scalar_shapes(gradients, inputs, wanted)):
            results[index + 2] = gradient
        return tuple(results)


# The operators. A variant travels as its text, so that an exported program stands by
# itself; results are dense.


@torch.library.custom_op("attnc::forward", mutates_args=())
def forward_op(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, captures: List[torch.Tensor], program: str
) -> Tuple[torch.Tensor, torch.Tensor]:
    o, lse = _empty_results(query, value)
    _run_forward(variant_of(program), [query, key, value, *captures], (o, lse))
    return o, lse


def _empty_results(query: torch.Tensor, value: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    type = torch.float64 if query.dtype == torch.float64 else torch.float32
    b, h, s = query.shape[:3]
    return query.new_empty((b, h, s, value.shape[3])), query.new_empty((b, h, s), dtype=type)


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
    results = _empty_gradients(inputs, wanted)
    out = [result.reshape(1) if result.dim() == 0 else result for result in results]
    _run_backward(variant_of(program), inputs, (o, lse), (do, dlse), tuple(wanted), out)
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


forward_op.register_autograd(_differentiate, setup_context=_setup)


def attend(bound: Bound, inputs: Sequence[torch.Tensor], return_lse: bool) -> Tuple[torch.Tensor, torch.Tensor]:
    """(O, LSE) by the road that fits these tensors."""
    variant = bound.variant
    plain = all(type(tensor) in _PLAIN for tensor in inputs)
    if not plain or _number_of_modes() or _functorch_level() is not None or torch.compiler.is_compiling():
        return forward_op(inputs[0], inputs[1], inputs[2], list(inputs[3:]), variant.text)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        return _Attention.apply(variant, return_lse, *inputs)
    o, lse = _run_forward(variant, inputs)
    return o, lse


def _autocast(tensors: Tuple[torch.Tensor, ...]) -> Tuple[torch.Tensor, ...]:
    """In the type of the autocast region, as PyTorch's own attention."""
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    type = torch.get_autocast_dtype(kind)
    if type not in _TYPE_NAMES:
        return tensors
    return tuple(x if x.dtype == torch.float64 or not x.is_floating_point() else x.to(type) for x in tensors)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    settings: Tuple,
    score_mod: Any,
    mask_mod: Any,
    enable_gqa: bool,
    return_lse: bool,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """(O, LSE); `settings` are the last fields of Options."""
    if torch.is_autocast_enabled(query.device.type):
        query, key, value = _autocast((query, key, value))
    check_inputs(query, key, value, enable_gqa)
    if torch.compiler.is_dynamo_compiling():
        from . import _dynamo

        return _dynamo.attention(query, key, value, settings, score_mod, mask_mod)
    type = _TYPE_NAMES.get(query.dtype)
    if type is None:
        raise Error(f"expected tensors of float64, float32, float16 or bfloat16, got {query.dtype}")
    bound = bind(Options(type, int(query.shape[3]), int(value.shape[3]), *settings), score_mod, mask_mod)
    for capture in bound.captures:
        if not isinstance(capture, torch.Tensor):
            raise Error(f"expected captured tensors of PyTorch, got a {type_of(capture)}")
    return attend(bound, (query, key, value, *bound.captures), return_lse)


def type_of(value: Any) -> str:
    return type(value).__name__
