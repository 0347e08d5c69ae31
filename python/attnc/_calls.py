# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of traced numbers, functions by the names that PyTorch and NumPy give them,
and how both hand them over."""

from __future__ import annotations

import math
import sys
from typing import Any, Dict, List, Optional

from . import _division as division
from . import _elementwise as e
from . import _operations as o
from ._errors import TraceError, trace_error
from ._promotion import Function, lift
from ._rows import REDUCTIONS, Rows, elementwise, read
from ._trace import Traced
from ._types import is_float

# By the names that PyTorch and NumPy have for them.
FUNCTIONS: Dict[str, Function] = {
    "add": o.add, "sub": o.subtract, "subtract": o.subtract, "mul": o.multiply, "multiply": o.multiply,
    "div": division.divide, "divide": division.divide, "true_divide": division.divide, "floor_divide": division.floor_divide,
    "remainder": division.remainder, "mod": division.remainder, "fmod": division.fmod, "pow": o.power, "power": o.power,
    "float_power": o.float_power, "neg": o.negative, "negative": o.negative, "abs": o.absolute,
    "absolute": o.absolute, "fabs": o.absolute, "eq": o.equal, "equal": o.equal, "ne": o.not_equal,
    "not_equal": o.not_equal, "lt": o.less, "less": o.less, "le": o.less_equal, "less_equal": o.less_equal,
    "gt": o.greater, "greater": o.greater, "ge": o.greater_equal, "greater_equal": o.greater_equal,
    "bitwise_and": o.bitwise_and, "bitwise_or": o.bitwise_or, "bitwise_xor": o.bitwise_xor,
    "bitwise_not": o.bitwise_not, "invert": o.bitwise_not, "bitwise_left_shift": o.shift_left,
    "bitwise_right_shift": o.shift_right, "left_shift": o.shift_left, "right_shift": o.shift_right,
    "logical_and": o.logical_and, "logical_or": o.logical_or, "logical_xor": o.logical_xor,
    "logical_not": o.logical_not, "where": o.where, "minimum": o.minimum, "maximum": o.maximum, "min": o.minimum,
    "max": o.maximum, "exp": o.exp, "exp2": o.exp2, "expm1": o.expm1, "log": o.log, "log2": o.log2,
    "log10": o.log10, "log1p": o.log1p, "sqrt": o.sqrt, "rsqrt": o.rsqrt, "tanh": o.tanh, "sin": o.sin,
    "cos": o.cos, "tan": o.tan, "sinh": o.sinh, "cosh": o.cosh, "atan": o.atan, "arctan": o.atan, "erf": o.erf,
    "erfc": o.erfc, "floor": o.floor, "ceil": o.ceil, "trunc": o.trunc, "fix": o.trunc, "rint": o.round_even,
    "special_erf": o.erf, "special_erfc": o.erfc, "special_expm1": o.expm1, "special_log1p": o.log1p,
    "special_exp2": o.exp2, "special_expit": e.sigmoid,
    **{
        name: getattr(e, name)
        for name in (
            "sigmoid", "reciprocal", "square", "relu", "relu6", "silu", "gelu", "softplus", "leaky_relu", "elu",
            "logsigmoid", "hardswish", "hardsigmoid", "mish", "softsign", "hardtanh", "clamp", "fmin", "fmax",
            "sign", "signbit", "isnan", "isinf", "isfinite", "isposinf", "isneginf", "nan_to_num", "masked_fill",
            "logaddexp", "logaddexp2", "lerp", "atan2", "copysign", "hypot", "heaviside", "frac", "round", "addcmul",
            "addcdiv", "ldexp", "rsub", "isin", "new_tensor", "asin", "acos", "atanh", "asinh", "acosh", "sinc",
            "deg2rad", "rad2deg", "logit", "xlogy", "celu", "selu", "tanhshrink", "hardshrink", "softshrink",
            "threshold",
        )
    },
    "clip": e.clamp, "clamp_min": lambda x, min: e.clamp(x, min), "clamp_max": lambda x, max: e.clamp(x, None, max),
    "log_sigmoid": e.logsigmoid, "_threshold": e.threshold, "arctan2": e.atan2, "sgn": e.sign,
    "arcsin": e.asin, "arccos": e.acos, "arctanh": e.atanh, "arcsinh": e.asinh, "arccosh": e.acosh,
    "special_xlogy": e.xlogy, "special_logit": e.logit, "special_sinc": e.sinc,
    "to": e.convert, "type": e.convert, "astype": e.convert, "type_as": e.convert,
    "int": e.to_type("int32"), "long": e.to_type("int64"), "short": e.to_type("int16"), "char": e.to_type("int8"),
    "byte": e.to_type("uint8"), "float": e.to_type("float32"), "double": e.to_type("float64"),
    "half": e.to_type("float16"), "bfloat16": e.to_type("bfloat16"), "bool": e.to_type("bool"),
    "new_ones": e.filled(1), "new_zeros": e.filled(0), "new_full": e.filled(None), "ones_like": e.like(1),
    "zeros_like": e.like(0), "full_like": e.like(None), "clone": lambda x, **unused: x, "detach": lambda x: x,
    "contiguous": lambda x, **unused: x, "positive": lambda x: x, "any": lambda x: lift(x).cast("bool"),
    "all": lambda x: lift(x).cast("bool"), "dim": lambda x: 0, "ndimension": lambda x: 0, "numel": lambda x: 1,
    "size": lambda x: (), "is_floating_point": lambda x: is_float(lift(x).kind),
    # As a method the number comes first.
    "Tensor.where": lambda x, condition, other: o.where(condition, x, other),
}  # fmt: skip
_OPERATORS = {
    "add": o.add, "sub": o.subtract, "mul": o.multiply, "truediv": division.divide, "floordiv": division.floor_divide,
    "mod": division.remainder, "pow": o.power, "and": o.bitwise_and, "or": o.bitwise_or, "xor": o.bitwise_xor,
    "lshift": o.shift_left, "rshift": o.shift_right,
}  # fmt: skip
_COMPARISONS = {
    "eq": o.equal, "ne": o.not_equal, "lt": o.less, "le": o.less_equal, "gt": o.greater, "ge": o.greater_equal,
}  # fmt: skip
_UNARY = {
    "neg": o.negative, "abs": o.absolute, "invert": o.bitwise_not, "floor": o.floor, "ceil": o.ceil, "trunc": o.trunc,
    "pos": lambda x: x,
}  # fmt: skip


def _reverse(function: Function) -> Function:
    return lambda a, b: function(b, a)


for _name, _function in _OPERATORS.items():
    setattr(Traced, f"__{_name}__", lambda a, b, f=_function: f(a, b))
    setattr(Traced, f"__r{_name}__", lambda a, b, f=_function: f(b, a))
    FUNCTIONS.setdefault(f"__{_name}__", _function)
    FUNCTIONS.setdefault(f"__r{_name}__", _reverse(_function))
for _name, _function in _COMPARISONS.items():
    setattr(Traced, f"__{_name}__", lambda a, b, f=_function: f(a, b))
    FUNCTIONS[f"__{_name}__"] = _function
for _name, _function in _UNARY.items():
    setattr(Traced, f"__{_name}__", lambda a, f=_function: f(a))
Traced.__round__ = lambda a, digits=None: e.round(a, digits or 0)  # type: ignore[attr-defined]


for _name in (*_OPERATORS, *(f"r{name}" for name in _OPERATORS), *_COMPARISONS, *_UNARY, "matmul"):
    setattr(Rows, f"__{_name}__", lambda *args, name=f"__{_name}__": call_named(name, args, {}))


def _dtype(x: Traced) -> Any:
    """PyTorch's where it is in use, else NumPy's."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return getattr(torch, x.kind)
    import numpy

    return numpy.dtype(x.kind)


def _attribute(self: Traced, name: str) -> Any:
    """Methods of tensors, and the few attributes that make sense."""
    if name == "dtype":
        return _dtype(self)
    if name == "device":
        return None
    if name == "shape":
        return ()
    if name == "ndim":
        return 0
    function = FUNCTIONS.get("Tensor.where" if name == "where" else name)
    if function is None or name.startswith("_"):
        raise AttributeError(name) if name.startswith("__") else trace_error(f"cannot trace .{name} of a number")
    return lambda *args, **keywords: call_named(name, (self, *args), keywords, function)


Traced.__getattr__ = _attribute  # type: ignore[attr-defined]


def _attribute_of_rows(self: Rows, name: str) -> Any:
    if name == "dtype":
        first = self.at(next(self.places()))
        return _dtype(first)
    if name == "ndim":
        return len(self.shape)
    if name.startswith("__"):
        raise AttributeError(name)
    if name not in REDUCTIONS and name not in FUNCTIONS:
        raise trace_error(f"cannot trace .{name} of a row of a captured tensor")
    return lambda *args, **keywords: call_named(name, (self, *args), keywords)


Rows.__getattr__ = _attribute_of_rows  # type: ignore[attr-defined]


def _call_of_rows(name: str, args: tuple, keywords: dict) -> Any:
    if name in _OF_SHAPES:
        return _OF_SHAPES[name](args[0], *args[1:], **keywords)
    if name in REDUCTIONS:
        return REDUCTIONS[name](*args, **keywords)
    function = FUNCTIONS.get(name)
    if function is None:
        raise trace_error(f"cannot trace '{name}' of a row of a captured tensor")
    return elementwise(function, args, keywords)


_OF_SHAPES: Dict[str, Function] = {
    "dim": lambda x: len(x.shape), "ndimension": lambda x: len(x.shape), "numel": lambda x: math.prod(x.shape),
    "size": lambda x, dim=None: x.shape if dim is None else x.shape[dim],
}  # fmt: skip


def call_named(name: str, args: tuple, keywords: dict, function: Optional[Function] = None) -> Any:
    """A function of PyTorch or NumPy that got traced numbers."""
    if name == "__getitem__":
        tensor, index = args
        if isinstance(tensor, Traced):
            if index is Ellipsis or (isinstance(index, tuple) and not index):
                return tensor
            raise trace_error("cannot index a traced number")
        return read(tensor, index if isinstance(index, tuple) else (index,))
    keywords = dict(keywords)
    if keywords.pop("out", None) is not None:
        raise trace_error(f"cannot trace '{name}' with out=")
    of_rows = any(isinstance(value, Rows) for value in (*args, *keywords.values()))
    function = function or FUNCTIONS.get(name)
    if function is None and not of_rows:
        raise trace_error(f"cannot trace '{name}'")
    if name in ("min", "max") and len(args) < 2 and not of_rows:
        raise trace_error(f"'{name}' needs two numbers here")
    for long in ("input", "self"):
        if long in keywords:
            args = (keywords.pop(long), *args)
    if "other" in keywords and name not in ("to", "type_as", "where"):
        args = (*args, keywords.pop("other"))
    try:
        if function is None or of_rows:
            return _call_of_rows(name, args, keywords)
        return function(*args, **keywords)
    except TypeError as error:
        if any("attnc" not in frame for frame in _files_of(error)):
            raise
        raise trace_error(f"cannot trace '{name}' with these arguments: {error}") from None


def _files_of(error: BaseException) -> List[str]:
    found, step = [], error.__traceback__
    while step:
        found.append(step.tb_frame.f_globals.get("__name__", ""))
        step = step.tb_next
    return found


def name_of(function: Any) -> str:
    """That in FUNCTIONS; methods whose arguments have another order have their own."""
    name = getattr(function, "__name__", "")
    return "Tensor.where" if name == "where" and hasattr(function, "__objclass__") else name


def _torch_function(cls: type, function: Any, types: Any, args: tuple = (), keywords: Optional[dict] = None) -> Any:
    return call_named(name_of(function), args, dict(keywords or {}))


for _kind in (Traced, Rows):
    setattr(_kind, "__torch_function__", classmethod(_torch_function))


def _array_ufunc(self: Traced, ufunc: Any, method: str, *args: Any, **keywords: Any) -> Any:
    if method != "__call__":
        raise trace_error(f"cannot trace '{ufunc.__name__}.{method}'")
    # NumPy hands its own scalars over as arrays without dimensions.
    args = tuple(x.item() if type(x).__name__ == "ndarray" and x.ndim == 0 else x for x in args)
    return call_named(ufunc.__name__, args, keywords)


def _array_function(self: Traced, function: Any, types: Any, args: tuple, keywords: dict) -> Any:
    return call_named(function.__name__, args, dict(keywords))


for _kind in (Traced, Rows):
    setattr(_kind, "__array_ufunc__", _array_ufunc)
    setattr(_kind, "__array_function__", _array_function)


def has_traced(values: Any) -> bool:
    """Whether a traced number is among them, also within tuples."""
    return any(isinstance(v, (Traced, Rows)) or (isinstance(v, (tuple, list)) and has_traced(v)) for v in values)


__all__ = ["FUNCTIONS", "TraceError", "call_named", "has_traced", "name_of"]
