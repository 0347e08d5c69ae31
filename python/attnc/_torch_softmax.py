# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""softmax() of tensors of PyTorch: autograd, autocast, and the operators
attnc::softmax and attnc::softmax_backward, through which PyTorch's compiler and
transforms see it."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch

from ._attention import check_kind
from ._errors import Error, call_error
from ._softmax import check_type, dimension_of, executable_of
from ._torch_ops import device_of, has_tangents, is_forward_mode, usable

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_number_of_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_functorch_level = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: None)

NO_FORWARD_MODE = (
    "attnc.softmax has no forward-mode derivatives (torch.func.jvp, jacfwd, linearize, hessian, dual tensors): expected "
    "reverse mode (backward(), torch.func.grad, vjp, jacrev)"
)
NO_SECOND_GRADIENT = "attnc.softmax has no gradient of a gradient: expected the first one only (no create_graph, no hessian)"


def _rows(x: torch.Tensor) -> torch.Tensor:
    """The tensor as rows of a matrix where it can be seen so, else as it is."""
    x = usable(x)
    if x.dim() == 2:
        return x
    try:
        return x.view(x.numel() // max(x.shape[-1], 1) if x.shape[-1] else 0, x.shape[-1])
    except RuntimeError:
        return x


def _run(x: torch.Tensor) -> torch.Tensor:
    if x.numel() == 0:
        return torch.empty_like(x)
    rows = _rows(x)
    name = str(x.dtype).rsplit(".", 1)[-1]
    return executable_of(name, rows.dim(), device_of(x)).call([rows])[0].view(x.shape)


def _run_backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if y.numel() == 0:
        return torch.empty_like(y)
    y, dy = usable(y), usable(dy)
    rows, incoming = _rows(y), _rows(dy)
    if rows.dim() != incoming.dim():
        rows, incoming = y.reshape(rows.shape[0], -1) if rows.dim() == 2 else y, dy
        if rows.dim() != incoming.dim():
            incoming = dy.contiguous().view(rows.shape)
    name = str(y.dtype).rsplit(".", 1)[-1]
    executable = executable_of(name, rows.dim(), device_of(y), gradient=True)
    return executable.call([rows, rows, incoming])[0].view(y.shape)


@torch.library.custom_op("attnc::softmax", mutates_args=())
def softmax_op(x: torch.Tensor) -> torch.Tensor:
    if is_forward_mode():
        raise Error(NO_FORWARD_MODE)
    return _run(x).contiguous()


@softmax_op.register_fake
def _(x: Any) -> Any:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("attnc::softmax_backward", mutates_args=())
def softmax_backward_op(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if is_forward_mode():
        raise Error(NO_FORWARD_MODE)
    return _run_backward(dy, y).contiguous()


@softmax_backward_op.register_fake
def _(dy: Any, y: Any) -> Any:
    return torch.empty_like(y, memory_format=torch.contiguous_format)


def _differentiate(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
    return softmax_backward_op(dy, *ctx.saved_tensors)


def _refuse_second_gradient(ctx: Any, *incoming: Any) -> Any:
    raise Error(NO_SECOND_GRADIENT)


def _batched(op: Any) -> Any:
    """Rows are independent: samples are more of them."""

    def vmap(info: Any, dims: Tuple, *tensors: torch.Tensor) -> Any:
        count = info.batch_size
        moved = [x.expand(count, *x.shape) if d is None else x.movedim(d, 0) for x, d in zip(tensors, dims)]
        return op(*moved), 0

    return vmap


softmax_op.register_autograd(_differentiate, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output))
softmax_backward_op.register_autograd(_refuse_second_gradient)
softmax_op.register_vmap(_batched(softmax_op))
softmax_backward_op.register_vmap(_batched(softmax_backward_op))


class _Softmax(torch.autograd.Function):
    """In autograd, and under the transforms of torch.func."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return softmax_op(x) if _is_seen(x) else _run(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
        return _Backward.apply(dy, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, dims: Any, x: torch.Tensor) -> Any:
        return _batched(_Softmax.apply)(info, dims, x)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise Error(NO_FORWARD_MODE)


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return softmax_backward_op(dy, y) if _is_seen(dy) or _is_seen(y) else _run_backward(dy, y)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *incoming: Any) -> Any:
        raise Error(NO_SECOND_GRADIENT)

    @staticmethod
    def vmap(info: Any, dims: Any, *tensors: torch.Tensor) -> Any:
        return _batched(_Backward.apply)(info, dims, *tensors)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise Error(NO_FORWARD_MODE)


def _is_seen(x: torch.Tensor) -> bool:
    """Whether a dispatch mode, or a kind of tensor of its own, looks at what is called."""
    return bool(_number_of_modes()) or x.is_meta or type(x) not in _PLAIN


def softmax(x: torch.Tensor, dim: int, dtype: Optional[torch.dtype]) -> torch.Tensor:
    check_kind("input", x)
    dimension_of(dim, x.dim())
    if dtype is None and x.device.type == "cuda" and torch.is_autocast_enabled("cuda") and x.dtype != torch.float64:
        dtype = torch.float32  # as PyTorch's own in a region of autocast
    if dtype is not None:
        if not isinstance(dtype, torch.dtype):
            raise call_error(f"expected dtype to be one of PyTorch's, got {dtype!r}")
        x = x.to(dtype)
    check_type(x, x.device.type)
    if x.dim() == 0:
        return softmax(x.reshape(1), -1, None).reshape(())
    if torch.compiler.is_compiling() or _is_seen(x):
        return softmax_op(x)
    if _functorch_level() is not None:
        return _Softmax.apply(x)
    if has_tangents([x]):
        raise Error(NO_FORWARD_MODE)
    return _Softmax.apply(x) if torch.is_grad_enabled() and x.requires_grad else _run(x)
