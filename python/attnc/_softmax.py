# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""softmax(): of rows, compiled once for each type and number of dimensions."""

from __future__ import annotations

import operator
import threading
from typing import Any, Dict, Tuple

from ._attention import _adopt, check_kind
from ._errors import call_error
from ._executable import Executable
from ._trace import type_name
from ._types import ELEMENT_TYPES
from ._variant import DTYPES

_softmax_torch: Any = None
_executables: Dict[Tuple, Executable] = {}
_lock = threading.Lock()


def executable_of(dtype: str, rank: int, device: str, gradient: bool = False) -> Executable:
    """Code for tensors of a type and a number of dimensions: it takes x, or of the gradient (y, y, dy), for
    only y is read."""
    key = dtype, rank, device, gradient
    known = _executables.get(key)
    if known is None:
        type = f"tensor<{'?x' * rank}{ELEMENT_TYPES[dtype]}>"
        text = (
            f"func.func @softmax(%x: {type}) -> {type} {{\n"
            f"  %y = attn.softmax %x : {type}\n"
            f"  return %y : {type}\n}}\n"
        )
        options = "saved-results arguments=0 results=0" if gradient else None
        with _lock:
            known = _executables.get(key)
            if known is None:
                known = Executable(text, device, "softmax", gradient=options)
                known.layouts = [0]  # the result lies in memory as the argument does
                _executables[key] = known
    return known


def dimension_of(dim: Any, rank: int) -> None:
    """Refuses all but the last dimension."""
    try:
        number = None if isinstance(dim, bool) else operator.index(dim)
    except TypeError:
        number = None
    least = max(rank, 1)
    if number is None or not -least <= number < least:
        raise call_error(f"expected dim to be an integer from {-least} to {least - 1}, got {dim!r}")
    if number % least != least - 1:
        raise call_error(
            f"expected dim to be the last one, -1 or {least - 1}, got {dim}: move it there, x.movedim({dim}, -1)"
        )


def check_type(x: Any, device: str) -> None:
    if type_name(x) not in DTYPES:
        raise call_error(f"expected a tensor of {', '.join(DTYPES[:-1])} or {DTYPES[-1]}, got {type_name(x)}")


def softmax(input: Any, dim: int = -1, dtype: Any = None) -> Any:
    """exp(x - max x) / sum exp(x - max x) along the last dimension, as torch.softmax.

    input: a tensor of PyTorch (CPU or CUDA), an array of NumPy, or another one with
        DLPack, of float64 (on CPUs), float32, float16 or bfloat16, of any shape and
        strides; nothing is copied if the innermost stride is 1. Sums are float32, or
        float64 where the input is.
    dim: the last dimension, -1 or its number; others are refused.
    dtype: the type that the input is cast to before, None for its own.

    Returns a tensor of the shape of input, which has a gradient in PyTorch. A row of
    which all elements are -inf, and one with +inf or NaN, gives NaN. Raises Error.
    """
    global _softmax_torch
    x = _adopt(input, "input")
    if hasattr(x, "data_ptr"):
        if _softmax_torch is None:
            from . import _torch_softmax

            _softmax_torch = _torch_softmax.softmax
        return _softmax_torch(x, dim, dtype)
    import numpy

    check_kind("input", x)
    if dtype is not None:
        x = x.astype(dtype)
    check_type(x, "cpu")
    dimension_of(dim, x.ndim)
    shape = x.shape
    if x.ndim == 0:
        x = x.reshape(1)
    if x.shape[-1] > 1 and x.strides[-1] != x.itemsize:
        x = numpy.ascontiguousarray(x)
    return executable_of(type_name(x), x.ndim, "cpu").call([x])[0].reshape(shape)
