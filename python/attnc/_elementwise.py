# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of traced numbers that are made of others. Where two formulas have one value
but different derivatives, the one with PyTorch's is taken: `where` gives the gradient to
the side taken, `maximum` halves to equal ones."""

from __future__ import annotations

import math
import sys
from typing import Any, Optional

from . import _types as types_of
from ._division import divide
from ._errors import trace_error
from ._operations import (
    absolute, add, equal, erf, exp, expm1, greater, greater_equal, less, less_equal, log, log1p, logical_and,
    logical_not, logical_or, maximum, minimum, multiply, negative, not_equal, power, round_even, select, sin,
    sqrt, subtract, tanh, trunc, where,
)  # fmt: skip
from ._promotion import Function, common_type, emit, floats, lift, region_of, unify, widened
from ._trace import Traced
from ._types import is_float


def _only_floats(name: str, x: Any) -> Traced:
    x = lift(x)
    if not is_float(x.kind):
        raise trace_error(f"'{name}' is defined for floats in PyTorch, got {x.kind}: convert it with .float()")
    return x


def _in_float32(name: str) -> Any:
    """PyTorch computes these of 16-bit floats in float32 and rounds once."""

    def decorate(function: Function) -> Function:
        def apply(x: Any, *args: Any, inplace: bool = False, **keywords: Any) -> Traced:
            x = _only_floats(name, x)
            return function(*widened(x), *args, **keywords).cast(x.kind)

        apply.__name__ = name
        return apply

    return decorate


def _of_floats(function: Function) -> Any:
    """Of integers, too, which count as floats; 16-bit floats are computed in float32."""

    def apply(x: Any, *args: Any, **keywords: Any) -> Traced:
        dtype, (x,) = floats(lift(x))
        return function(*widened(x), *args, **keywords).cast(dtype)

    apply.__name__ = function.__name__
    return apply


def _odd(function: Function) -> Function:
    """An odd function of one that is right for what is not negative."""

    def apply(x: Traced) -> Traced:
        negatives = less(x, 0.0)
        result = function(where(negatives, negative(x), x))
        return where(negatives, negative(result), result)

    apply.__name__ = function.__name__
    return apply


@_of_floats
def asin(x: Traced) -> Traced:
    return atan2(x, sqrt(multiply(subtract(1.0, x), add(1.0, x))))


@_of_floats
def acos(x: Traced) -> Traced:
    return atan2(sqrt(multiply(subtract(1.0, x), add(1.0, x))), x)


@_of_floats
@_odd
def atanh(x: Traced) -> Traced:
    return multiply(0.5, log1p(divide(multiply(2.0, x), subtract(1.0, x))))


def _log_of_large(x: Traced, function: Function) -> Traced:
    """log(2 x) where the square of x could overflow, else the function."""
    large = greater(x, 1e8)
    return where(large, add(log(x), math.log(2)), function(where(large, 1.0, x)))


@_of_floats
@_odd
def asinh(x: Traced) -> Traced:
    def small(x: Traced) -> Traced:
        square = multiply(x, x)
        return log1p(add(x, divide(square, add(1.0, sqrt(add(1.0, square))))))

    return _log_of_large(x, small)


@_of_floats
def acosh(x: Traced) -> Traced:
    def small(x: Traced) -> Traced:
        more = subtract(x, 1.0)
        return log1p(add(more, sqrt(multiply(more, add(more, 2.0)))))

    return _log_of_large(x, small)


@_of_floats
def sinc(x: Traced) -> Traced:
    zero = equal(x, 0.0)
    angle = multiply(where(zero, 1.0, x), math.pi)
    return where(zero, 1.0, divide(sin(angle), angle))


@_of_floats
def deg2rad(x: Traced) -> Traced:
    return multiply(x, math.pi / 180)


@_of_floats
def rad2deg(x: Traced) -> Traced:
    return multiply(x, 180 / math.pi)


@_of_floats
def logit(x: Traced, eps: Optional[float] = None) -> Traced:
    x = x if eps is None else clamp(x, float(eps), 1.0 - float(eps))
    return log(divide(x, subtract(1.0, x)))


def xlogy(a: Any, b: Any) -> Traced:
    """0 where a is, unless b is NaN."""
    dtype, (a, b) = floats(a, b)
    a, b = widened(a, b)
    zero = logical_and(equal(a, 0.0), logical_not(isnan(b)))
    return where(zero, 0.0, multiply(a, log(where(zero, 1.0, b)))).cast(dtype)


def square(x: Any) -> Traced:
    x = lift(x)
    return power(x, 2)


def sigmoid(x: Any) -> Traced:
    dtype, (x,) = floats(lift(x))
    (x,) = widened(x)
    # The exponential of what is not positive: it does not overflow, nor does the derivative.
    negatives = less(x, 0.0)
    e = exp(where(negatives, x, negative(x)))
    return divide(where(negatives, e, 1.0), add(e, 1.0)).cast(dtype)


def reciprocal(x: Any) -> Traced:
    return divide(1.0, x)


def relu(x: Any, inplace: bool = False) -> Traced:
    x = lift(x)
    if x.kind == "bool":
        raise trace_error("relu of booleans is not defined in PyTorch")
    return maximum(x, 0) if not is_float(x.kind) else where(less_equal(x, 0.0), 0.0, x)


@_in_float32("silu")
def silu(x: Traced) -> Traced:
    return multiply(x, sigmoid(x))


@_in_float32("gelu")
def gelu(x: Traced, approximate: str = "none") -> Traced:
    if approximate == "tanh":
        inner = multiply(math.sqrt(2 / math.pi), add(x, multiply(0.044715, multiply(x, multiply(x, x)))))
        return multiply(multiply(0.5, x), add(1.0, tanh(inner)))
    if approximate != "none":
        raise trace_error(f"expected approximate 'none' or 'tanh', got {approximate!r}")
    return multiply(multiply(0.5, x), add(1.0, erf(multiply(x, math.sqrt(0.5)))))


@_in_float32("softplus")
def softplus(x: Traced, beta: float = 1, threshold: float = 20) -> Traced:
    scaled = multiply(x, float(beta))
    return where(greater(scaled, float(threshold)), x, divide(log1p(exp(scaled)), float(beta)))


@_in_float32("leaky_relu")
def leaky_relu(x: Traced, negative_slope: float = 0.01) -> Traced:
    return where(greater(x, 0.0), x, multiply(x, float(negative_slope)))


@_in_float32("elu")
def elu(x: Traced, alpha: float = 1.0) -> Traced:
    return where(greater(x, 0.0), x, multiply(expm1(x), float(alpha)))


@_in_float32("celu")
def celu(x: Traced, alpha: float = 1.0) -> Traced:
    return where(greater(x, 0.0), x, multiply(expm1(divide(x, float(alpha))), float(alpha)))


@_in_float32("selu")
def selu(x: Traced) -> Traced:
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    return where(greater(x, 0.0), multiply(x, scale), multiply(expm1(x), scale * alpha))


def tanhshrink(x: Any) -> Traced:
    return subtract(x, tanh(x))


def hardshrink(x: Any, lambd: float = 0.5) -> Traced:
    x = _only_floats("hardshrink", x)
    return where(logical_and(greater_equal(x, -float(lambd)), less_equal(x, float(lambd))), 0.0, x)


def softshrink(x: Any, lambd: float = 0.5) -> Traced:
    x = _only_floats("softshrink", x)
    shrunk = where(less(x, -float(lambd)), add(x, float(lambd)), 0.0)
    return where(greater(x, float(lambd)), subtract(x, float(lambd)), shrunk)


def threshold(x: Any, threshold: Any, value: Any, inplace: bool = False) -> Traced:
    x = lift(x)
    return where(less_equal(x, threshold), x.region.lift(value).cast(x.kind), x)


@_in_float32("logsigmoid")
def logsigmoid(x: Traced) -> Traced:
    low = where(less(x, 0.0), x, 0.0)
    return subtract(low, log1p(exp(where(less(x, 0.0), x, negative(x)))))


@_in_float32("hardswish")
def hardswish(x: Traced) -> Traced:
    middle = divide(multiply(x, add(x, 3.0)), 6.0)
    # No number at -inf, as in PyTorch.
    return where(less_equal(x, -3.0), multiply(x, 0.0), where(greater_equal(x, 3.0), x, middle))


@_in_float32("hardsigmoid")
def hardsigmoid(x: Traced) -> Traced:
    inside = add(divide(x, 6.0), 0.5)
    return where(less_equal(x, -3.0), 0.0, where(greater_equal(x, 3.0), 1.0, inside))


@_in_float32("mish")
def mish(x: Traced) -> Traced:
    return multiply(x, tanh(softplus(x)))


@_in_float32("softsign")
def softsign(x: Traced) -> Traced:
    return divide(x, add(absolute(x), 1.0))


def hardtanh(x: Any, min_val: Any = -1.0, max_val: Any = 1.0, inplace: bool = False) -> Traced:
    """Unlike clamp, without a gradient at the bounds."""
    x = lift(x)
    low, high = (x.region.lift(bound).cast(x.kind) for bound in (min_val, max_val))
    return where(less_equal(x, low), low, where(greater_equal(x, high), high, x))


def relu6(x: Any, inplace: bool = False) -> Traced:
    return hardtanh(x, 0.0, 6.0)


def clamp(x: Any, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None) -> Traced:
    """The gradient at the bounds goes to x."""
    low, high = (min if min is not None else a_min), (max if max is not None else a_max)
    region = region_of(x, low, high)
    if low is None and high is None:
        raise trace_error("clamp needs a bound")
    x, bounds = region.lift(x), [region.lift(bound) for bound in (low, high) if bound is not None]
    dtype = common_type(x, *bounds)
    if not is_float(dtype):
        result = x if low is None else maximum(x, low)
        return result.cast(dtype) if high is None else minimum(result, high)
    result = x.cast(dtype)
    for bound, outside in ((low, less), (high, greater)):
        if bound is None:
            continue
        limit = region.lift(bound)
        limited = outside(result, limit)
        if limit.number is None:  # a bound that is NaN
            limited = logical_or(limited, isnan(limit))
        result = where(limited, limit.cast(dtype), result)
    return result


def fmax(a: Any, b: Any) -> Traced:
    """Of what is a number; equal ones give the gradient to the first."""
    dtype, (a, b) = unify(a, b)
    return where(logical_or(greater_equal(a, b), isnan(b)), a, b) if is_float(dtype) else maximum(a, b)


def fmin(a: Any, b: Any) -> Traced:
    dtype, (a, b) = unify(a, b)
    return where(logical_or(less_equal(a, b), isnan(b)), a, b) if is_float(dtype) else minimum(a, b)


def sign(x: Any) -> Traced:
    x = lift(x)
    if x.kind == "bool":
        return x
    one, zero = (x.region.constant(n, x.kind) for n in (1, 0))
    return where(greater(x, 0), one, where(less(x, 0), negative(one) if x.kind != "uint8" else zero, zero))


def signbit(x: Any) -> Traced:
    x = lift(x)
    if not is_float(x.kind):
        return less(x, 0)
    return less(emit("math.copysign", (x.region.constant(1, x.kind), x), x.kind), 0)


def isnan(x: Any) -> Traced:
    x = lift(x)
    return not_equal(x, x) if is_float(x.kind) else x.region.constant(False, "bool")


def isinf(x: Any) -> Traced:
    x = lift(x)
    return equal(absolute(x), math.inf) if is_float(x.kind) else x.region.constant(False, "bool")


def isfinite(x: Any) -> Traced:
    x = lift(x)
    return less(absolute(x), math.inf) if is_float(x.kind) else x.region.constant(True, "bool")


def isposinf(x: Any) -> Traced:
    return equal(lift(x).cast("float64" if lift(x).kind == "float64" else "float32"), math.inf)


def isneginf(x: Any) -> Traced:
    return equal(lift(x).cast("float64" if lift(x).kind == "float64" else "float32"), -math.inf)


_LARGEST = {"float64": sys.float_info.max, "float32": 3.4028234663852886e38, "float16": 65504.0,
            "bfloat16": 3.3895313892515355e38}  # fmt: skip


def nan_to_num(x: Any, nan: Any = 0.0, posinf: Any = None, neginf: Any = None, copy: bool = True) -> Traced:
    x = lift(x)
    if not is_float(x.kind):
        return x
    largest = _LARGEST[x.kind]
    result = where(isnan(x), 0.0 if nan is None else float(nan), x)
    result = where(equal(x, math.inf), largest if posinf is None else float(posinf), result)
    return where(equal(x, -math.inf), -largest if neginf is None else float(neginf), result)


def masked_fill(x: Any, mask: Any, value: Any) -> Traced:
    region = region_of(x, mask, value)
    x, mask = region.lift(x), region.lift(mask)
    if mask.kind != "bool":
        raise trace_error(f"masked_fill needs a boolean mask, got {mask.kind}")
    return select(mask, region.lift(value).cast(x.kind), x.cast(x.kind), x.kind)


def logaddexp(a: Any, b: Any, base2: bool = False) -> Traced:
    region = region_of(a, b)
    _only_floats("logaddexp", region.lift(a)), _only_floats("logaddexp", region.lift(b))
    dtype, (a, b) = unify(a, b)
    a, b = widened(a, b)
    first = greater_equal(a, b)
    factor = math.log(2) if base2 else 1.0
    e = exp(multiply(where(first, subtract(b, a), subtract(a, b)), factor))
    result = add(where(first, a, b), divide(log1p(e), factor))
    return where(logical_and(isinf(a), equal(a, b)), a, result).cast(dtype)


def logaddexp2(a: Any, b: Any) -> Traced:
    return logaddexp(a, b, True)


def lerp(start: Any, end: Any, weight: Any) -> Traced:
    region = region_of(start, end, weight)
    dtype, (start, end) = unify(region.lift(start), region.lift(end))
    weight = region.lift(weight)
    start, end = widened(start, end)
    weight = weight if weight.number is not None else weight.cast(start.kind)
    difference = subtract(end, start)
    near = add(start, multiply(weight, difference))
    far = subtract(end, multiply(difference, subtract(1.0, weight)))
    return where(less(absolute(weight), 0.5), near, far).cast(dtype)


def atan2(a: Any, b: Any) -> Traced:
    """Of two zeros and of two infinities it is that of numbers with their signs."""
    dtype, (a, b) = floats(a, b)
    one = a.region.constant(1, dtype)
    zeros, infinite = logical_and(equal(a, 0), equal(b, 0)), logical_and(isinf(a), isinf(b))
    unit_a, unit_b = (emit("math.copysign", (one, x), dtype) for x in (a, b))
    result = emit("math.atan2", (where(infinite, unit_a, a), where(logical_or(zeros, infinite), unit_b, b)), dtype)
    return where(zeros, emit("math.copysign", (result, a), dtype), result)


def copysign(a: Any, b: Any) -> Traced:
    dtype, (a, b) = floats(a, b)
    return emit("math.copysign", (a, b), dtype)


def hypot(a: Any, b: Any) -> Traced:
    """Scaled, so that squares do not overflow."""
    dtype, (a, b) = floats(a, b)
    a, b = map(absolute, widened(a, b))
    first = greater_equal(a, b)
    large, small = where(first, a, b), where(first, b, a)
    ratio = divide(small, where(equal(large, 0.0), 1.0, large))
    scaled = multiply(large, sqrt(add(1.0, multiply(ratio, ratio))))
    return where(isinf(large), large, scaled).cast(dtype)


def heaviside(x: Any, values: Any) -> Traced:
    region = region_of(x, values)
    x, values = region.lift(x), region.lift(values)
    return where(equal(x, 0), values, where(less(x, 0), 0, 1)).cast(types_of.promote(x.kind, values.kind))


def frac(x: Any) -> Traced:
    x = _only_floats("frac", x)
    return subtract(x, trunc(x))


def round(x: Any, decimals: int = 0) -> Traced:
    """Half to even."""
    x = lift(x)
    if decimals == 0 or not is_float(x.kind):
        return round_even(x)
    scale, dtype = float(10 ** abs(decimals)), x.kind
    (x,) = widened(x)
    if decimals > 0:
        return divide(round_even(multiply(x, scale)), scale).cast(dtype)
    return multiply(round_even(divide(x, scale)), scale).cast(dtype)


def addcmul(x: Any, a: Any, b: Any, *, value: Any = 1) -> Traced:
    dtype, (x, a, b) = unify(x, a, b)
    x, a, b = widened(x, a, b)
    product = multiply(a if value == 1 else multiply(a, value), b)
    return add(x, product).cast(dtype)


def addcdiv(x: Any, a: Any, b: Any, *, value: Any = 1) -> Traced:
    dtype, (x, a, b) = floats(x, a, b)
    x, a, b = widened(x, a, b)
    return add(x, divide(a if value == 1 else multiply(a, value), b)).cast(dtype)


def ldexp(x: Any, exponent: Any) -> Traced:
    return multiply(x, power(2.0, exponent))


def rsub(a: Any, b: Any, alpha: Any = None) -> Traced:
    return subtract(b, a, alpha)


def isin(elements: Any, tests: Any, *, assume_unique: bool = False, invert: bool = False) -> Traced:
    """Among numbers that are known: a list, or a tensor made of one."""
    region = region_of(elements)
    known = region.trace.constants.get(id(tests))
    if known is None and not isinstance(tests, (list, tuple)):
        raise trace_error("cannot trace 'isin' of a captured tensor: its length is not part of the code")
    found = region.constant(False, "bool")
    for number in known.flatten().tolist() if known is not None else tests:
        found = logical_or(found, equal(elements, number))
    return logical_not(found) if invert else found


def convert(x: Any, *targets: Any, **keywords: Any) -> Traced:
    """Tensor.to and its like."""
    x = region_of(x, *targets, *keywords.values()).lift(x)
    for target in (*targets, *(value for name, value in keywords.items() if name in ("dtype", "other"))):
        if isinstance(target, Traced):
            x = x.cast(target.kind)
            continue
        if isinstance(target, bool) or target is None:
            continue
        dtype = types_of.canonical(target)
        if dtype is not None:
            x = x.cast(dtype)
        elif hasattr(target, "dtype") and hasattr(target, "shape"):
            x = x.cast(types_of.canonical(target.dtype) or _unknown(target.dtype))
        elif not _is_device(target):
            _unknown(target)
    return x


def _is_device(target: Any) -> bool:
    names = ("cpu", "cuda")
    return type(target).__name__ == "device" or (isinstance(target, str) and target.partition(":")[0] in names)


def _unknown(target: Any) -> Any:
    raise trace_error(f"cannot convert a traced number to {target}")


def to_type(dtype: str) -> Function:
    return lambda x, **unused: lift(x).cast(dtype)


def filled(value: Optional[int]) -> Function:
    """new_ones and its like."""

    def apply(x: Any, *shape: Any, dtype: Any = None, size: Any = None, **rest: Any) -> Traced:
        x = lift(x)
        arguments = list(shape)
        wanted: Any = size
        if wanted is None:
            wanted = arguments.pop(0) if arguments and not isinstance(arguments[0], int) else ()
        number = rest.get("fill_value", arguments[0] if arguments else None) if value is None else value
        if tuple(wanted) != () or number is None or (value is not None and arguments):
            raise trace_error("expected the shape (): a traced number has no dimensions")
        return _of_type(x, number, dtype)

    return apply


def _of_type(x: Traced, number: Any, dtype: Any) -> Traced:
    return convert(x.region.lift(number).cast(x.kind) if dtype is None else x.region.lift(number), dtype)


def like(value: Optional[int]) -> Function:
    """ones_like and its like."""

    def apply(x: Any, fill: Any = None, dtype: Any = None, **rest: Any) -> Traced:
        return _of_type(lift(x), rest.get("fill_value", fill) if value is None else value, dtype)

    return apply


def new_tensor(x: Any, data: Any, dtype: Any = None, **unused: Any) -> Traced:
    return _of_type(lift(x), data, dtype)
