# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quotients and remainders of traced numbers: true, floored and truncated ones."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from . import _intervals as intervals
from ._errors import trace_error
from ._operations import absolute, add, equal, less, logical_and, negative, not_equal, subtract, where
from ._promotion import emit, floats, integer, refuse_boolean, unify
from ._trace import Traced
from ._types import is_float


def divide(a: Any, b: Any, rounding_mode: Optional[str] = None) -> Traced:
    if rounding_mode not in (None, "floor", "trunc"):
        raise trace_error(f"expected a rounding_mode None, 'floor' or 'trunc', got {rounding_mode!r}")
    if rounding_mode == "floor":
        return floor_divide(a, b)
    if rounding_mode == "trunc":
        return _truncate_divide(a, b)
    dtype, (a, b) = floats(a, b)
    return emit("arith.divf", (a, b), dtype)


def _refuse_zero(divisor: Traced) -> None:
    if divisor.interval == ["c", 0]:
        raise trace_error("division by zero")


def _truncate_divide(a: Any, b: Any) -> Traced:
    dtype, (a, b) = unify(a, b)
    refuse_boolean("division", dtype)
    if is_float(dtype):
        return emit("math.trunc", (emit("arith.divf", (a, b), dtype),), dtype)
    _refuse_zero(b)
    # Of what is not negative the same as floored.
    rule = "div" if a.bounds()[0] >= 0 and b.bounds()[0] >= 0 else "any"
    if rule == "div":
        return integer("arith.floordivsi", dtype, a, b, rule)
    return integer("arith.divsi", dtype, a, b, rule)


def _divide_with_rest(a: Traced, b: Traced, dtype: str, op: str) -> Tuple[Traced, Traced]:
    """Of floats: the quotient rounded by `op`, and a - quotient * b, exact for quotients
    that are. A quotient that was rounded up to an integer leaves a rest of the wrong
    sign: both are stepped back."""
    quotient = emit(op, (emit("arith.divf", (a, b), a.kind),), a.kind)
    zero, one = (a.region.constant(n, a.kind) for n in (0, 1))
    rest = emit("math.fma", (emit("arith.negf", (quotient,), a.kind), b, a), a.kind)
    rest = where(equal(quotient, zero), a, rest)  # where b is infinite
    sign = b if op == "math.floor" else a
    wrong = logical_and(not_equal(rest, zero), not_equal(less(rest, zero), less(sign, zero)))
    if op == "math.floor":
        back, step = b, one
    else:
        same = equal(less(a, zero), less(b, zero))
        back, step = where(same, b, negative(b)), where(same, one, negative(one))
    return where(wrong, subtract(quotient, step), quotient), where(wrong, add(rest, back), rest)


def _float_rest(a: Any, b: Any, dtype: str, op: str, part: int) -> Traced:
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    a, b = a.cast(wide), b.cast(wide)
    if part == 0:
        quotient = _divide_with_rest(a, b, wide, op)[0]
        zero, infinity = (a.region.constant(x, a.kind) for x in (0, float("inf")))
        # The rest of an infinity, which PyTorch subtracts first, is not a number.
        has_no_rest = logical_and(equal(absolute(a), infinity), not_equal(b, zero))
        return where(has_no_rest, subtract(a, a), quotient).cast(dtype)
    # A quotient with more digits than the type has leaves an exact rest that is larger than b.
    zero = a.region.constant(0, a.kind)
    quotient = emit(op, (emit("arith.divf", (a, b), a.kind),), a.kind)
    rest = emit("math.fma", (emit("arith.negf", (quotient,), a.kind), b, a), a.kind)
    first = where(equal(quotient, zero), a, rest)
    rest = _divide_with_rest(first, b, wide, op)[1]
    if op == "math.trunc":  # it has the sign of that larger rest
        wrong = logical_and(not_equal(rest, zero), not_equal(less(rest, zero), less(a, zero)))
        size = absolute(b)
        rest = where(wrong, add(rest, where(less(a, zero), negative(size), size)), rest)
    else:  # just below zero, a + b is rounded to b
        rest = where(logical_and(equal(quotient, a.region.constant(-1, a.kind)), equal(first, b)), first, rest)
    # Zero has the sign of a.
    mirrored = negative(emit("math.fma", (quotient, b, negative(a)), a.kind))
    return where(logical_and(equal(first, zero), less(a, zero)), mirrored, rest).cast(dtype)


def floor_divide(a: Any, b: Any) -> Traced:
    dtype, (a, b) = unify(a, b)
    refuse_boolean("division", dtype)
    if is_float(dtype):
        return _float_rest(a, b, dtype, "math.floor", 0)
    _refuse_zero(b)
    return integer("arith.floordivsi", dtype, a, b, "div")


def remainder(a: Any, b: Any) -> Traced:
    """With the sign of the divisor, as Python's %."""
    dtype, (a, b) = unify(a, b)
    refuse_boolean("remainder", dtype)
    if is_float(dtype):
        return _float_rest(a, b, dtype, "math.floor", 1)
    _refuse_zero(b)
    quotient = emit("arith.floordivsi", (a, b), "int64", ["div", a.interval, b.interval])
    product = emit("arith.muli", (quotient, b), "int64", intervals.ANY)
    result = emit("arith.subi", (a, product), dtype, ["mod", a.interval, b.interval])
    # Between 0 and the divisor.
    return Traced(result.region, result.name, "index", dtype, result.interval)


def fmod(a: Any, b: Any) -> Traced:
    """With the sign of the dividend."""
    dtype, (a, b) = unify(a, b)
    refuse_boolean("remainder", dtype)
    if is_float(dtype):
        return _float_rest(a, b, dtype, "math.trunc", 1)
    _refuse_zero(b)
    # The quotient is not wrapped: it is one more than the largest number where b is -1.
    quotient = emit("arith.divsi", (a, b), "int64", intervals.ANY)
    product = emit("arith.muli", (quotient, b), "int64", intervals.ANY)
    return emit("arith.subi", (a, product), dtype, intervals.ANY)
