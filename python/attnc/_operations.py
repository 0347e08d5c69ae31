# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What can be done to traced numbers, with PyTorch's types, but for division (_division.py): the
operators and functions that are made of these are in _elementwise.py, their names in _calls.py."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from . import _intervals as intervals
from . import _types as types_of
from ._errors import trace_error
from ._promotion import Function, common_type, emit, floats, integer, lift, refuse_boolean, region_of, unify, widened
from ._trace import Region, Traced, number_type
from ._types import INTEGERS, is_float

_BOOLEAN = ["join", ["c", 0], ["c", 1]]


def _arithmetic(name: str, on_floats: str, on_integers: str, rule: str, on_booleans: Optional[str]) -> Function:
    def apply(a: Any, b: Any, alpha: Any = None) -> Traced:
        dtype, (a, b) = unify(a, b)
        if alpha is not None:
            if number_type(alpha) == "float32" and not is_float(dtype):
                raise trace_error("for integers, alpha must be one")
            # 16-bit floats are rounded once, behind the sum, as in PyTorch.
            a, b = widened(a, b)
            return apply(a, multiply(b, alpha)).cast(dtype)
        if dtype == "bool":
            if on_booleans is None:
                refuse_boolean(name, dtype)
            return emit(str(on_booleans), (a, b), "bool", _BOOLEAN)
        if is_float(dtype):
            return emit(on_floats, (a, b), dtype)
        return integer(on_integers, dtype, a, b, rule)

    apply.__name__ = name
    return apply


add = _arithmetic("addition", "arith.addf", "arith.addi", "add", "arith.ori")
subtract = _arithmetic("subtraction", "arith.subf", "arith.subi", "sub", None)
multiply = _arithmetic("multiplication", "arith.mulf", "arith.muli", "mul", "arith.andi")
minimum = _arithmetic("minimum", "arith.minimumf", "arith.minsi", "min", "arith.andi")
maximum = _arithmetic("maximum", "arith.maximumf", "arith.maxsi", "max", "arith.ori")


def negative(x: Any) -> Traced:
    x = lift(x)
    refuse_boolean("negation", x.kind)
    if is_float(x.kind):
        return emit("arith.negf", (x,), x.kind)
    return subtract(0, x)


def absolute(x: Any) -> Traced:
    x = lift(x)
    refuse_boolean("abs", x.kind)
    if is_float(x.kind):
        return emit("math.absf", (x,), x.kind)
    x, (low, high) = x.to_index(), x.bounds()
    result = emit("math.absi", (x,), "int64", ["abs", x.interval])
    return result.wrapped(x.kind, (0, max(-low, high)))


def _integer_power(a: Traced, exponent: int, dtype: str) -> Traced:
    result, factor = None, a
    while exponent:
        if exponent & 1:
            result = factor if result is None else multiply(result, factor)
        exponent >>= 1
        factor = multiply(factor, factor) if exponent else factor
    return a.region.constant(1, dtype) if result is None else result


def power(a: Any, b: Any) -> Traced:
    region = region_of(a, b)
    base, exponent = region.lift(a), region.lift(b)
    dtype = common_type(base, exponent)
    refuse_boolean("a power", dtype)
    number = exponent.number
    if number is not None and float(number).is_integer() and 0 <= number <= 8 and is_float(dtype):
        wide = base.cast("float32" if dtype == "float16" else dtype)
        return _integer_power(wide, int(number), wide.kind).cast(dtype)
    if is_float(dtype):
        return emit("math.powf", (base.cast(dtype), exponent.cast(dtype)), dtype)
    if number is not None:
        if number < 0:
            raise trace_error("integers to negative integer powers are not allowed: convert to a float first")
        return _integer_power(base.cast(dtype), int(number), dtype)
    value = base.number
    if value is None or value < 2 or value & (value - 1):
        raise trace_error(
            "cannot trace an integer to the power of one that is not constant, but for powers of 2: convert to a float"
        )
    # 2^(k n), and 0 where it is a fraction.
    return shift_left(region.constant(1, dtype), multiply(exponent.cast(dtype), value.bit_length() - 1))


def float_power(a: Any, b: Any) -> Traced:
    region = region_of(a, b)
    return power(region.lift(a).cast("float64"), region.lift(b).cast("float64") if isinstance(b, Traced) else b)


# Comparisons and booleans.


def _comparison(integers: str, on_floats: str) -> Function:
    def apply(a: Any, b: Any) -> Traced:
        region = region_of(a, b)
        a, b = region.lift(a), region.lift(b)
        if a.ir == b.ir and a.kind == b.kind and a.ir in INTEGERS and a.kind != "uint8":
            # As they were loaded.
            return region.emit(f"arith.cmpi {integers}, {a.name}, {b.name} : {a.ir}", "i1", "bool", _BOOLEAN)
        dtype = common_type(a, b)
        a, b = a.cast(dtype), b.cast(dtype)
        if dtype == "bool" and integers not in ("eq", "ne"):
            a, b = a.to_index(), b.to_index()
        op = f"arith.cmpf {on_floats}" if is_float(dtype) else f"arith.cmpi {integers}"
        result = region.emit(f"{op}, {a.name}, {b.name} : {a.ir}", "i1", "bool", _BOOLEAN)
        if a.ir == "index" and integers not in ("eq", "ne"):
            fact = (integers, a.name, b.name, a.interval, b.interval)
            result.facts, result.denials = (fact,), (intervals.negate(fact),)
        return result

    return apply


equal = _comparison("eq", "oeq")
not_equal = _comparison("ne", "une")
less = _comparison("slt", "olt")
less_equal = _comparison("sle", "ole")
greater = _comparison("sgt", "ogt")
greater_equal = _comparison("sge", "oge")


def _bitwise(op: str) -> Function:
    def apply(a: Any, b: Any) -> Traced:
        dtype, (a, b) = unify(a, b)
        if is_float(dtype):
            raise trace_error("expected booleans or integers, got a floating-point number")
        # Of values within the limits of a type, so is the result.
        result = emit(op, (a, b), dtype, _BOOLEAN if dtype == "bool" else _bits_of(op, a, b))
        if op == "arith.andi":
            result.facts = a.facts + b.facts
        elif op == "arith.ori":
            result.denials = a.denials + b.denials
        return result

    return apply


def _bits_of(op: str, a: Traced, b: Traced) -> list:
    """What is not negative stays so; a mask bounds."""
    masks = [x.interval for x in (a, b) if x.interval[0] == "c" and x.interval[1] >= 0]
    if op == "arith.andi" and masks:
        return ["join", ["c", 0], masks[0]]
    return ["at least", intervals.ANY, ["c", 0]] if a.bounds()[0] >= 0 and b.bounds()[0] >= 0 else intervals.ANY


bitwise_and, bitwise_or, bitwise_xor = (_bitwise(f"arith.{op}") for op in ("andi", "ori", "xori"))


def _shift_operands(a: Any, b: Any) -> Tuple[str, Traced, Traced, Traced]:
    """The type, the operands, and whether the distance is one of the type's bits."""
    dtype, (a, b) = unify(a, b)
    if dtype == "bool" or is_float(dtype):
        raise trace_error(f"cannot shift a number of type {dtype}")
    low, high = b.bounds()
    bits = types_of.bits(dtype)
    if 0 <= low and high < bits:
        return dtype, a, b, a.region.constant(True, "bool")
    zero, end = a.region.constant(0, dtype), a.region.constant(bits - 1, dtype)
    known = logical_and(greater_equal(b, zero), less_equal(b, end))
    return dtype, a, where(known, b, zero if low >= 0 else end), known


def shift_left(a: Any, b: Any) -> Traced:
    dtype, a, b, known = _shift_operands(a, b)
    shifted = emit("arith.shli", (a, b), "int64", intervals.ANY)
    (low, high), (_, most) = a.bounds(), b.bounds()
    bounds = (low * 2**most, high * 2**most) if low >= 0 and most < 64 else (float("-inf"), float("inf"))
    result = shifted.wrapped(dtype, bounds)
    return where(known, result, a.region.constant(0, dtype))


def shift_right(a: Any, b: Any) -> Traced:
    """With copies of the sign; further than there are bits, nothing else is left."""
    dtype, a, b, known = _shift_operands(a, b)
    interval = ["at least", intervals.ANY, ["c", 0]] if a.bounds()[0] >= 0 else intervals.ANY
    result = emit("arith.shrsi", (a, b), dtype, interval)
    all_of = a.region.constant(63, "int64")
    return where(known, result, emit("arith.shrsi", (a, all_of), dtype, interval))


def _logical(bitwise: Function) -> Function:
    def apply(a: Any, b: Any) -> Traced:
        region = region_of(a, b)
        return bitwise(region.lift(a).cast("bool"), region.lift(b).cast("bool"))

    return apply


logical_and, logical_or, logical_xor = (_logical(op) for op in (bitwise_and, bitwise_or, bitwise_xor))


def logical_not(x: Any) -> Traced:
    x = lift(x).cast("bool")
    result = bitwise_xor(x, x.region.constant(True, "bool"))
    result.facts, result.denials = x.denials, x.facts
    return result


def bitwise_not(x: Any) -> Traced:
    x = lift(x)
    if is_float(x.kind):
        raise trace_error("expected a boolean or an integer, got a floating-point number")
    return logical_not(x) if x.kind == "bool" else subtract(-1, x)


def _with_differences(region: Region, facts: tuple) -> tuple:
    """Facts, and what a comparison of two values says of their difference."""
    zero, found = ["c", 0], list(facts)
    for predicate, left, right, *_ in facts:
        for a, b, says in ((left, right, predicate), (right, left, intervals.mirror(predicate))):
            difference = region.known.get(f"arith.subi {a}, {b} : index")
            if difference:
                found.append((says, difference, "0", intervals.ANY, zero))
    return tuple(found)


def select(condition: Traced, a: Traced, b: Traced, dtype: str) -> Traced:
    """Of values that are of this type already."""
    interval = None
    if a.ir == "index":
        region = condition.region
        chosen = intervals.narrow(a.name, a.interval, _with_differences(region, condition.facts))
        other = intervals.narrow(b.name, b.interval, _with_differences(region, condition.denials))
        interval = ["join", chosen, other]
    elif a.ir == "i1":
        interval = _BOOLEAN
    text = f"arith.select {condition.name}, {a.name}, {b.name} : {a.ir}"
    return condition.region.emit(text, a.ir, dtype, interval)


def where(condition: Any, a: Any, b: Any) -> Traced:
    """`a` where the condition holds, else `b`."""
    region = region_of(condition, a, b)
    condition, a, b = region.lift(condition).cast("bool"), region.lift(a), region.lift(b)
    dtype = common_type(a, b)
    return select(condition, a.cast(dtype), b.cast(dtype), dtype)


# Functions of one float.


def _math(op: str) -> Function:
    def apply(x: Any) -> Traced:
        dtype, (x,) = floats(lift(x))
        return emit(op, (x,), dtype)

    apply.__name__ = op.rsplit(".", 1)[-1]
    return apply


def _rounding(op: str) -> Function:
    def apply(x: Any) -> Traced:
        x = lift(x)
        refuse_boolean("rounding", x.kind)
        return emit(op, (x,), x.kind) if is_float(x.kind) else x

    return apply


exp, exp2, expm1, log, log2, log10, log1p, sqrt, rsqrt, tanh, sin, cos, tan, sinh, cosh, atan, erf, erfc = (
    _math(f"math.{name}")
    for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "tanh", "sin", "cos", "tan",
        "sinh", "cosh", "atan", "erf", "erfc",
    )
)  # fmt: skip
floor, ceil, trunc, round_even = (_rounding(f"math.{name}") for name in ("floor", "ceil", "trunc", "roundeven"))
