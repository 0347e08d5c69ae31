# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What can be done to traced numbers: operators, functions by the names that
PyTorch and NumPy give them, and how both hand them over."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, Optional

from . import _intervals as intervals
from ._errors import trace_error
from ._trace import FLOATS, INTEGERS, Region, Traced

Function = Callable[..., Any]


def _region_of(*values: Any) -> Region:
    for value in values:
        if isinstance(value, Traced):
            return value.region
    raise trace_error("expected a traced number: q_idx, kv_idx, or what is computed from them")


def _emit(op: str, type: str, *operands: Traced, result: Optional[str] = None, interval: Any = None) -> Traced:
    names = ", ".join(operand.name for operand in operands)
    return operands[0].region.emit(f"{op} {names} : {type}", result or type, interval)


# Two operands of one type: floats if one of them is, else indices.


def _unify(a: Any, b: Any) -> tuple[Traced, Traced, bool]:
    region = _region_of(a, b)
    a, b = region.lift(a), region.lift(b)
    if a.type in FLOATS or b.type in FLOATS:
        return a.to_float(), b.to_float(), True
    return a.to_index(), b.to_index(), False


def _arithmetic(floats: str, integers: str, interval: str) -> Function:
    def apply(a: Any, b: Any) -> Traced:
        a, b, is_float = _unify(a, b)
        if is_float:
            return _emit(floats, a.type, a, b)
        return _emit(integers, "index", a, b, interval=[interval, a.interval, b.interval])

    return apply


add = _arithmetic("arith.addf", "arith.addi", "add")
subtract = _arithmetic("arith.subf", "arith.subi", "sub")
multiply = _arithmetic("arith.mulf", "arith.muli", "mul")
minimum = _arithmetic("arith.minimumf", "arith.minsi", "min")
maximum = _arithmetic("arith.maximumf", "arith.maxsi", "max")


def divide(a: Any, b: Any) -> Traced:
    region = _region_of(a, b)
    return _emit("arith.divf", region.trace.accumulator, region.lift(a).to_float(), region.lift(b).to_float())


def floor_divide(a: Any, b: Any) -> Traced:
    a, b, is_float = _unify(a, b)
    if is_float:
        return floor(divide(a, b))
    _refuse_zero(b)
    return _emit("arith.floordivsi", "index", a, b, interval=["div", a.interval, b.interval])


def remainder(a: Any, b: Any) -> Traced:
    """With the sign of the divisor, as Python's %."""
    a, b, is_float = _unify(a, b)
    if is_float:
        return subtract(a, multiply(floor_divide(a, b), b))
    _refuse_zero(b)
    result = subtract(a, multiply(floor_divide(a, b), b))
    return Traced(result.region, result.name, "index", ["mod", a.interval, b.interval])


def _refuse_zero(divisor: Traced) -> None:
    if divisor.interval == ["c", 0]:
        raise trace_error("division by zero")


def negative(x: Any) -> Traced:
    x = _region_of(x).lift(x)
    if x.type in FLOATS:
        return _emit("arith.negf", x.type, x)
    return subtract(0, x)


def absolute(x: Any) -> Traced:
    x = _region_of(x).lift(x)
    if x.type in FLOATS:
        return _emit("math.absf", x.type, x)
    x = x.to_index()
    return _emit("math.absi", "index", x, interval=["abs", x.interval])


def power(a: Any, b: Any) -> Traced:
    if isinstance(b, int) and not isinstance(b, bool) and 0 <= b <= 8:
        a = _region_of(a).lift(a)
        if b == 0:
            return a.region.lift(1.0 if a.type in FLOATS else 1)
        result = a
        for _ in range(b - 1):
            result = multiply(result, a)
        return result
    region = _region_of(a, b)
    return _emit("math.powf", region.trace.accumulator, region.lift(a).to_float(), region.lift(b).to_float())


# Comparisons and booleans.


def _comparison(integers: str, floats: str) -> Function:
    def apply(a: Any, b: Any) -> Traced:
        region = _region_of(a, b)
        a, b = region.lift(a), region.lift(b)
        if a.type == b.type and a.type in INTEGERS:
            return _emit(f"arith.cmpi {integers},", a.type, a, b, result="i1")
        if a.type == b.type == "i1" and integers in ("eq", "ne"):
            return _emit(f"arith.cmpi {integers},", "i1", a, b)
        a, b, is_float = _unify(a, b)
        op = f"arith.cmpf {floats}," if is_float else f"arith.cmpi {integers},"
        result = _emit(op, a.type, a, b, result="i1")
        if not is_float and integers not in ("eq", "ne"):
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
        region = _region_of(a, b)
        a, b = region.lift(a), region.lift(b)
        if a.type in FLOATS or b.type in FLOATS:
            raise trace_error("expected booleans or integers, got a floating-point number")
        if a.type == b.type == "i1":
            result = _emit(op, "i1", a, b)
            if op == "arith.andi":
                result.facts = a.facts + b.facts
            elif op == "arith.ori":
                result.denials = a.denials + b.denials
            return result
        return _emit(op, "index", a.to_index(), b.to_index(), interval=["any"])

    return apply


bitwise_and, bitwise_or, bitwise_xor = (_bitwise(f"arith.{op}") for op in ("andi", "ori", "xori"))


def _logical(bitwise: Function) -> Function:
    def apply(a: Any, b: Any) -> Traced:
        region = _region_of(a, b)
        return bitwise(region.lift(a).to_bool(), region.lift(b).to_bool())

    return apply


logical_and, logical_or, logical_xor = (_logical(op) for op in (bitwise_and, bitwise_or, bitwise_xor))


def logical_not(x: Any) -> Traced:
    x = _region_of(x).lift(x).to_bool()
    result = bitwise_xor(x, True)
    result.facts, result.denials = x.denials, x.facts
    return result


def bitwise_not(x: Any) -> Traced:
    x = _region_of(x).lift(x)
    if x.type in FLOATS:
        raise trace_error("expected a boolean or an integer, got a floating-point number")
    return logical_not(x) if x.type == "i1" else subtract(-1, x)


def _with_differences(region: Region, facts: tuple) -> tuple:
    """Facts, and what a comparison of two values says of their difference."""
    zero, found = ["c", 0], list(facts)
    for predicate, left, right, *_ in facts:
        for a, b, says in ((left, right, predicate), (right, left, intervals.mirror(predicate))):
            difference = region.known.get(f"arith.subi {a}, {b} : index")
            if difference:
                found.append((says, difference, "0", intervals.ANY, zero))
    return tuple(found)


def where(condition: Any, a: Any, b: Any) -> Traced:
    """`a` where the condition holds, else `b`."""
    region = _region_of(condition, a, b)
    condition, a, b = region.lift(condition).to_bool(), region.lift(a), region.lift(b)
    if not a.type == b.type == "i1":
        a, b, _ = _unify(a, b)
    interval = None
    if a.type not in FLOATS:
        chosen = intervals.narrow(a.name, a.interval, _with_differences(region, condition.facts))
        other = intervals.narrow(b.name, b.interval, _with_differences(region, condition.denials))
        interval = ["join", chosen, other]
    return _emit("arith.select", a.type, condition, a, b, interval=interval)


def clamp(x: Any, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None) -> Traced:
    low, high = (min if min is not None else a_min), (max if max is not None else a_max)
    region = _region_of(x, low, high)
    result = region.lift(x)
    if low is not None:
        result = maximum(result, low)
    if high is not None:
        result = minimum(result, high)
    return result


# Functions of one float.


def _math(op: str) -> Function:
    def apply(x: Any) -> Traced:
        x = _region_of(x).lift(x).to_float()
        return _emit(op, x.type, x)

    apply.__name__ = op.rsplit(".", 1)[-1]
    return apply


def _rounding(op: str) -> Function:
    apply_float = _math(op)

    def apply(x: Any) -> Traced:
        x = _region_of(x).lift(x)
        return apply_float(x) if x.type in FLOATS else x

    return apply


exp, exp2, expm1, log, log2, log10, log1p, sqrt, rsqrt, tanh, sin, cos, tan, sinh, cosh, atan, erf = (
    _math(f"math.{name}")
    for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "tanh", "sin", "cos", "tan",
        "sinh", "cosh", "atan", "erf",
    )
)  # fmt: skip
floor, ceil, trunc, round = (_rounding(f"math.{name}") for name in ("floor", "ceil", "trunc", "roundeven"))


def sigmoid(x: Any) -> Traced:
    return divide(1.0, add(exp(negative(_region_of(x).lift(x).to_float())), 1.0))


def reciprocal(x: Any) -> Traced:
    return divide(1.0, x)


def square(x: Any) -> Traced:
    return multiply(x, x)


def relu(x: Any) -> Traced:
    return maximum(x, 0)


def convert(x: Any, *targets: Any, **keywords: Any) -> Traced:
    """Tensor.to and its like: integers are 64 bits wide and floats are of the type
    of scores, whatever width is asked for."""
    x = _region_of(x).lift(x)
    for target in (*targets, *keywords.values()):
        if isinstance(target, (bool, Traced)) or target is None:
            continue
        name = str(getattr(target, "__name__", target)).rsplit(".", 1)[-1]
        if name.startswith(("float", "bfloat", "half", "double")):
            x = x.to_float()
        elif name.startswith("bool"):
            x = x.to_bool()
        elif name.startswith(("int", "long")) and x.type in FLOATS:
            # Towards zero, as a cast in PyTorch.
            integer = _emit("arith.fptosi", f"{x.type} to i64", x, result="i64", interval=["any"])
            x = integer.to_index()
        elif name.startswith(("int", "long")):
            x = x.to_index()
        elif not isinstance(target, str) and not hasattr(target, "index"):
            raise trace_error(f"cannot convert a traced number to {target}")
    return x


def _filled(value: Any) -> Function:
    def apply(x: Any, *shape: Any, dtype: Any = None, size: Any = None, device: Any = None, **rest: Any) -> Traced:
        region = _region_of(x)
        wanted = size if size is not None else (shape[0] if shape and not isinstance(shape[0], int) else shape)
        if tuple(wanted) != () or rest.get("fill_value", 0) is None:
            raise trace_error("expected the shape (): a traced number has no dimensions")
        number = rest["fill_value"] if value is None else value
        return convert(region.lift(number), dtype) if dtype is not None else region.lift(number)

    return apply


def _like(value: Any) -> Function:
    def apply(x: Any, fill: Any = None, dtype: Any = None, **rest: Any) -> Traced:
        x = _region_of(x).lift(x)
        number = x.region.lift(rest.get("fill_value", fill) if value is None else value)
        if dtype is not None:
            return convert(number, dtype)
        return number.to_float() if x.type in FLOATS else number

    return apply


# By the names that PyTorch and NumPy have for them.
FUNCTIONS: Dict[str, Function] = {
    "add": add, "sub": subtract, "subtract": subtract, "mul": multiply, "multiply": multiply,
    "div": divide, "divide": divide, "true_divide": divide, "floor_divide": floor_divide,
    "remainder": remainder, "mod": remainder, "pow": power, "power": power, "float_power": power,
    "neg": negative, "negative": negative, "abs": absolute, "absolute": absolute, "fabs": absolute,
    "eq": equal, "equal": equal, "ne": not_equal, "not_equal": not_equal, "lt": less, "less": less,
    "le": less_equal, "less_equal": less_equal, "gt": greater, "greater": greater, "ge": greater_equal,
    "greater_equal": greater_equal, "bitwise_and": bitwise_and, "bitwise_or": bitwise_or,
    "bitwise_xor": bitwise_xor, "bitwise_not": bitwise_not, "invert": bitwise_not, "logical_and": logical_and,
    "logical_or": logical_or, "logical_xor": logical_xor, "logical_not": logical_not, "where": where,
    "minimum": minimum, "maximum": maximum, "min": minimum, "max": maximum, "fmin": minimum, "fmax": maximum,
    "clamp": clamp, "clip": clamp, "exp": exp, "exp2": exp2, "expm1": expm1, "log": log, "log2": log2,
    "log10": log10, "log1p": log1p, "sqrt": sqrt, "rsqrt": rsqrt, "tanh": tanh, "sin": sin, "cos": cos, "tan": tan,
    "sinh": sinh, "cosh": cosh, "atan": atan, "arctan": atan, "erf": erf, "floor": floor, "ceil": ceil,
    "trunc": trunc, "fix": trunc, "round": round, "rint": round, "sigmoid": sigmoid, "reciprocal": reciprocal,
    "square": square, "relu": relu, "to": convert, "type": convert, "astype": convert,
    "int": lambda x: convert(x, "int"), "long": lambda x: convert(x, "int"), "float": lambda x: convert(x, "float"),
    "double": lambda x: convert(x, "float"), "bool": lambda x: convert(x, "bool"), "type_as": lambda x, y: (
        _region_of(y).lift(x).to_float() if _region_of(y).lift(y).type in FLOATS else _region_of(y).lift(x)),
    "new_ones": _filled(1), "new_zeros": _filled(0), "new_full": _filled(None), "ones_like": _like(1),
    "zeros_like": _like(0), "full_like": _like(None), "clone": lambda x: x, "detach": lambda x: x,
    "contiguous": lambda x: x,
}  # fmt: skip
_OPERATORS = {
    "add": add, "sub": subtract, "mul": multiply, "truediv": divide, "floordiv": floor_divide, "mod": remainder,
    "pow": power, "and": bitwise_and, "or": bitwise_or, "xor": bitwise_xor,
}  # fmt: skip


def _reverse(function: Function) -> Function:
    return lambda a, b: function(b, a)


for _name, _function in _OPERATORS.items():
    setattr(Traced, f"__{_name}__", lambda a, b, f=_function: f(a, b))
    setattr(Traced, f"__r{_name}__", lambda a, b, f=_function: f(b, a))
    FUNCTIONS.setdefault(f"__{_name}__", _function)
    FUNCTIONS.setdefault(f"__r{_name}__", _reverse(_function))
# What PyTorch calls some of them on its own side.
FUNCTIONS.update(rsub=_reverse(subtract), __rpow__=_reverse(power))
for _name, _function in {"eq": equal, "ne": not_equal, "lt": less, "le": less_equal, "gt": greater,
                         "ge": greater_equal}.items():  # fmt: skip
    setattr(Traced, f"__{_name}__", lambda a, b, f=_function: f(a, b))
    FUNCTIONS[f"__{_name}__"] = _function
for _name, _function in {"neg": negative, "abs": absolute, "invert": bitwise_not, "floor": floor, "ceil": ceil,
                         "trunc": trunc}.items():  # fmt: skip
    setattr(Traced, f"__{_name}__", lambda a, f=_function: f(a))
Traced.__pos__ = lambda a: a  # type: ignore[attr-defined]
Traced.__round__ = lambda a, digits=None: round(a)  # type: ignore[attr-defined]


def _dtype(x: Traced) -> Any:
    """PyTorch's where it is in use, else NumPy's."""
    name = {"f64": "float64", "i1": "bool"}.get(x.type, "float32" if x.type in FLOATS else "int64")
    torch = sys.modules.get("torch")
    if torch is not None:
        return getattr(torch, name)
    import numpy

    return numpy.dtype(name)


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
    function = FUNCTIONS.get(name)
    if function is None or name.startswith("_"):
        raise AttributeError(name) if name.startswith("__") else trace_error(f"cannot trace .{name} of a number")
    return lambda *args, **keywords: function(self, *args, **keywords)


Traced.__getattr__ = _attribute  # type: ignore[attr-defined]


def call_named(name: str, args: tuple, keywords: dict) -> Any:
    """A function of PyTorch or NumPy that got traced numbers."""
    if name == "__getitem__":
        tensor, index = args
        if isinstance(tensor, Traced):
            if index is Ellipsis or (isinstance(index, tuple) and not index):
                return tensor
            raise trace_error("cannot index a traced number")
        indices = index if isinstance(index, tuple) else (index,)
        return _region_of(*indices).read(tensor, indices)
    function = FUNCTIONS.get(name)
    if function is None:
        raise trace_error(f"cannot trace '{name}'")
    for unused in ("out",):
        keywords.pop(unused, None)
    if name in ("min", "max") and len(args) < 2:
        raise trace_error(f"'{name}' needs two numbers here")
    if name in ("add", "sub") and keywords.pop("alpha", 1) != 1:
        raise trace_error(f"cannot trace '{name}' with alpha")
    mode = keywords.pop("rounding_mode", None)
    if name in ("div", "divide") and mode:
        return floor_divide(*args) if mode == "floor" else convert(trunc(divide(*args)), "int")
    return function(*args, **keywords)


def _torch_function(cls: type, function: Any, types: Any, args: tuple = (), keywords: Optional[dict] = None) -> Any:
    return call_named(function.__name__, args, dict(keywords or {}))


Traced.__torch_function__ = classmethod(_torch_function)  # type: ignore[attr-defined]


def _array_ufunc(self: Traced, ufunc: Any, method: str, *args: Any, **keywords: Any) -> Any:
    if method != "__call__":
        raise trace_error(f"cannot trace '{ufunc.__name__}.{method}'")
    return call_named(ufunc.__name__, args, keywords)


def _array_function(self: Traced, function: Any, types: Any, args: tuple, keywords: dict) -> Any:
    return call_named(function.__name__, args, dict(keywords))


Traced.__array_ufunc__ = _array_ufunc  # type: ignore[attr-defined]
Traced.__array_function__ = _array_function  # type: ignore[attr-defined]


def has_traced(values: Any) -> bool:
    """Whether a traced number is among them, also within tuples."""
    return any(isinstance(v, Traced) or (isinstance(v, (tuple, list)) and has_traced(v)) for v in values)


__all__ = ["FUNCTIONS", "call_named", "has_traced"]
