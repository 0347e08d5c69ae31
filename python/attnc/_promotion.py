# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operands of one type, as PyTorch promotes them, and one operation of the IR on them: what all
operations of _operations.py and _division.py begin with."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from . import _intervals as intervals
from . import _types as types_of
from ._errors import trace_error
from ._trace import Region, Traced, number_type
from ._types import is_float

Function = Callable[..., Any]


def region_of(*values: Any) -> Region:
    for value in values:
        if isinstance(value, Traced):
            return value.region
    raise trace_error("expected a traced number: q_idx, kv_idx, or what is computed from them")


def lift(x: Any) -> Traced:
    return region_of(x).lift(x)


def emit(op: str, operands: Tuple[Traced, ...], dtype: str, interval: Any = None) -> Traced:
    """An operation on operands of one IR type; a half is rounded, a narrow integer is not."""
    names, type = ", ".join(operand.name for operand in operands), operands[0].ir
    result = operands[0].region.emit(f"{op} {names} : {type}", type, dtype, interval)
    return result.rounded(dtype) if dtype in ("float16", "bfloat16") else result


def common_type(*values: Traced) -> str:
    tensors = [x.kind for x in values if x.number is None]
    numbers = [number_type(x.number) or "" for x in values if x.number is not None]
    return types_of.result_type(tensors, numbers, values[0].region.trace.default_float)


def unify(*values: Any) -> Tuple[str, Tuple[Traced, ...]]:
    """The common type, and the values in it."""
    region = region_of(*values)
    lifted = [region.lift(value) for value in values]
    dtype = common_type(*lifted)
    # PyTorch does not round a number that meets 16-bit floats.
    is_float16 = dtype in ("float16", "bfloat16")
    return dtype, tuple(x.cast("float32" if is_float16 and x.number is not None else dtype) for x in lifted)


def floats(*values: Any) -> Tuple[str, Tuple[Traced, ...]]:
    """Likewise, where integers count as floats."""
    region = region_of(*values)
    lifted = [region.lift(value) for value in values]
    dtype = common_type(*lifted)
    if not is_float(dtype):
        dtype = region.trace.default_float
    return dtype, tuple(x.cast(dtype) for x in lifted)


def widened(*values: Traced) -> Tuple[Traced, ...]:
    """16-bit floats as float32, where PyTorch rounds a function of several steps once."""
    return tuple(x.cast("float32") if x.kind in ("float16", "bfloat16") else x for x in values)


def refuse_boolean(name: str, dtype: str) -> None:
    if dtype == "bool":
        raise trace_error(f"{name} of booleans is not defined in PyTorch: convert them with .int()")


def integer(op: str, dtype: str, a: Traced, b: Traced, rule: str) -> Traced:
    """An operation on indices, whose result wraps; `rule` is that of intervals."""
    bounds = intervals.combine(rule, a.bounds(), b.bounds())
    return emit(op, (a, b), "int64", [rule, a.interval, b.interval]).wrapped(dtype, bounds)
