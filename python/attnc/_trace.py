# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Python functions of scores and indices, traced to the regions of attn.forward.

A function is called once with `Traced` values. What it does to them is written
down as arithmetic; what it does besides, with numbers of its own, happens while
tracing and leaves constants. Tensors that it indexes with traced values become
captures. Whatever asks for the value of a traced number (`if`, `int()`, `range()`)
is refused with the line that did.
"""

from __future__ import annotations

import json
import math
import types
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _intervals as intervals
from . import _types as types_of
from ._errors import TraceError, is_user, trace_error, user_line
from ._types import ELEMENT_TYPES, FLOATS

# Larger lengths are refused when a function is called.
MAX_SIZE = 2**31 - 1
_LARGEST = {"b": MAX_SIZE, "h": MAX_SIZE, "i": MAX_SIZE, "j": MAX_SIZE}


def type_name(tensor: Any) -> str:
    """The name of a tensor's element type, as PyTorch and NumPy have it."""
    return str(tensor.dtype).rsplit(".", 1)[-1]


def is_tensor(value: Any) -> bool:
    if isinstance(value, (Traced, type, types.ModuleType)):
        return False
    return hasattr(value, "dtype") and hasattr(value, "shape")


@dataclass
class Capture:
    """A tensor that regions read."""

    tensor: Any
    kind: str
    rank: int

    @property
    def ir(self) -> str:
        return f"tensor<{'?x' * self.rank}{ELEMENT_TYPES[self.kind]}>"


@dataclass
class Check:
    """`capture` is read along `dim` at an index of this interval."""

    capture: int
    dim: int
    interval: list
    where: str


@dataclass
class Trace:
    """What the regions of one attention share."""

    accumulator: str  # "float32" or "float64", the type of scores
    # Of quotients and functions of integers.
    default_float: str = "float32"
    captures: List[Capture] = field(default_factory=list)
    checks: List[Check] = field(default_factory=list)
    # Reads at computed indices that are negative for some sizes: the line, and lines
    # that count from the end then, as code for such sizes has.
    wraps: List[Tuple[str, str]] = field(default_factory=list)
    # Sizes of captures that the code is written for: (capture, dimension, size).
    sizes: List[Tuple[int, int, int]] = field(default_factory=list)
    # Tensors that torch.tensor() made of numbers while tracing, by their ids.
    constants: Dict[int, Any] = field(default_factory=dict)

    def capture(self, tensor: Any) -> int:
        for number, known in enumerate(self.captures):
            if known.tensor is tensor:
                return number
        name = type_name(tensor)
        if name not in ELEMENT_TYPES:
            raise trace_error(f"cannot read a captured tensor of type {name}")
        # A number by itself is read as the only element of a tensor.
        self.captures.append(Capture(tensor, name, max(len(tensor.shape), 1)))
        return len(self.captures) - 1

    def fix_size(self, tensor: Any, dim: int) -> None:
        found = self.capture(tensor), dim, int(tensor.shape[dim])
        if found not in self.sizes:
            self.sizes.append(found)


class Region:
    """The lines of one region; equal operations are written once."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.lines: List[str] = []
        self.known: Dict[str, str] = {}

    def emit(self, text: str, type: str, dtype: str, interval: Optional[list] = None) -> Traced:
        """The result of an operation: `text` is all after the equals sign."""
        name = self.known.get(text)
        if name is None:
            name = self.known[text] = f"%t{len(self.known)}"
            self.lines.append(self._line(name, text))
        return Traced(self, name, type, dtype, interval)

    def _line(self, name: str, text: str) -> str:
        path, line = user_line()
        return f"{name} = {text} loc({json.dumps(path)}:{line}:1)"

    def constant(self, value: Any, dtype: str) -> Traced:
        """A number in a type; integers wrap."""
        type = types_of.register(dtype)
        if dtype == "bool":
            text = f"arith.constant {'true' if value else 'false'}"
            return self.emit(text, "i1", dtype, intervals.constant(int(bool(value))))
        if type in FLOATS:
            return self.emit(f"arith.constant {_float_text(float(value), type)} : {type}", type, dtype)
        value, (low, high) = int(value), types_of.limits(dtype)
        if not -(2**63) <= value < 2**63:
            raise trace_error(f"{value} does not fit into 64 bits")
        value = (value - low) % (high - low + 1) + low
        return self.emit(f"arith.constant {value} : index", type, dtype, intervals.constant(value))

    def lift(self, value: Any) -> Traced:
        """A number or a tensor with one element as a traced value."""
        if isinstance(value, Traced):
            if value.region is not self:
                raise trace_error("a value of another function's trace is used here")
            return value
        dtype = number_type(value)
        if dtype is not None:
            number = {"bool": bool, "int64": int, "float32": float}[dtype](value)
            result = self.constant(number, self.trace.default_float if dtype == "float32" else dtype)
            result.number = number
            return result
        if is_tensor(value):
            if math.prod(value.shape) != 1:
                raise trace_error(
                    f"expected a number or a tensor with one element, got one of shape {tuple(value.shape)}: "
                    "index captured tensors with b, h, q_idx or kv_idx"
                )
            if hasattr(value, "at"):  # a row of one element
                return value.at((0,) * len(value.shape))
            if type(value).__module__ == "numpy" and not hasattr(value, "__setitem__"):
                return self.lift(value.item())  # a NumPy scalar is a number
            known = self.trace.constants.get(id(value))
            if known is not None:
                return self.constant(known.item(), type_name(known))
            return self.read(value, (0,) * max(len(value.shape), 1))
        raise trace_error(f"cannot use a {type(value).__name__} here")

    def read(self, tensor: Any, indices: Tuple[Any, ...]) -> Traced:
        """An element of a captured tensor. Negative indices count from its end."""
        rank = max(len(tensor.shape), 1)
        if len(indices) != rank:
            raise trace_error(f"expected {rank} indices into a captured tensor, got {len(indices)}")
        number = self.trace.capture(tensor)
        capture = self.trace.captures[number]
        names, negative = [], []
        for dim, index in enumerate(indices):
            name, may_wrap = self._index(number, dim, index)
            names.append(name)
            if may_wrap:
                negative.append(dim)
        known = ["join", ["c", 0], ["c", 1]] if capture.kind == "bool" else intervals.ANY
        type = ELEMENT_TYPES[capture.kind]
        text = f"tensor.extract %c{number}[{', '.join(names)}] : {capture.ir}"
        value = self.emit(text, type, capture.kind, known)
        if negative:
            self._add_wrap(number, value.name, text, names, negative)
        return value.loaded()

    def _index(self, capture: int, dim: int, index: Any) -> Tuple[str, bool]:
        """The name of an index, and whether it is negative for some sizes."""
        if isinstance(index, slice) or index is None or index is Ellipsis:
            raise trace_error("cannot slice with traced indices: read one element")
        index = self.lift(index)
        if types_of.is_float(index.kind) or index.kind in ("bool", "uint8"):
            raise trace_error(f"expected an integer index, got one of type {index.kind}")
        index = index.to_index()
        path, line = user_line()
        check = Check(capture, dim, index.interval, f"{path}:{line}")
        if check not in self.trace.checks:
            self.trace.checks.append(check)
        low, _ = intervals.evaluate(index.interval, _LARGEST)
        if low == -math.inf:  # loaded
            index = self._counted_from_end(capture, dim, index)
        return index.name, -math.inf < low < 0

    def _counted_from_end(self, capture: int, dim: int, index: Traced) -> Traced:
        kind = self.trace.captures[capture].ir
        zero, place = self.constant(0, "int64"), self.constant(dim, "int64")
        size = self.emit(f"tensor.dim %c{capture}, {place.name} : {kind}", "index", "int64", intervals.ANY)
        less = self.emit(f"arith.cmpi slt, {index.name}, {zero.name} : index", "i1", "bool")
        moved = self.emit(f"arith.addi {index.name}, {size.name} : index", "index", "int64", intervals.ANY)
        text = f"arith.select {less.name}, {moved.name}, {index.name} : index"
        return self.emit(text, "index", "int64", intervals.ANY)

    def _add_wrap(self, capture: int, name: str, text: str, indices: List[str], negative: List[int]) -> None:
        """Notes how to read at `indices` that are negative along these dimensions."""
        kind, lines, changed = self.trace.captures[capture].ir, [], list(indices)
        for dim in negative:
            new, old = f"{name}w{dim}", indices[dim]
            lines += [
                f"{new}c = arith.constant {dim} : index", f"{new}z = arith.constant 0 : index",
                f"{new}d = tensor.dim %c{capture}, {new}c : {kind}", f"{new}a = arith.addi {old}, {new}d : index",
                f"{new}l = arith.cmpi slt, {old}, {new}z : index",
                f"{new} = arith.select {new}l, {new}a, {old} : index",
            ]  # fmt: skip
            changed[dim] = new
        line = next(line for line in self.lines if line.startswith(f"{name} = "))
        before, after = f"[{', '.join(indices)}]", f"[{', '.join(changed)}]"
        wrap = line, "\n".join([*lines, line.replace(before, after, 1)])
        if wrap not in self.trace.wraps:
            self.trace.wraps.append(wrap)


def number_type(value: Any) -> Optional[str]:
    """That of a Python number, None for others."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int) or type(value).__name__ == "SymInt":
        return "int64"
    return "float32" if isinstance(value, float) or type(value).__name__ == "SymFloat" else None


def _float_text(value: float, type: str) -> str:
    if math.isnan(value):
        return {"f64": "0x7FF8000000000000", "f32": "0x7FC00000"}[type]
    if math.isinf(value):
        bits = {"f64": 0x7FF0000000000000, "f32": 0x7F800000}[type]
        digits = {"f64": 16, "f32": 8}[type]
        return f"0x{bits | (1 << (4 * digits - 1) if value < 0 else 0):0{digits}X}"
    return f"{value:.17e}"


class Traced:
    """A number that is not known while tracing. Its operators are in
    _operations.py."""

    __slots__ = ("region", "name", "ir", "kind", "number", "interval", "facts", "denials")
    # NumPy's scalars then leave binary operators to this class.
    __array_priority__ = 1000

    def __init__(self, region: Region, name: str, type: str, dtype: str, interval: Optional[list] = None) -> None:
        # `kind` is its type in PyTorch, `ir` that in the IR: integers that were loaded
        # lie as in their tensor until they are computed with.
        self.region, self.name, self.ir, self.kind = region, name, type, dtype
        self.interval = interval
        # Of a Python number, which adapts to the types of others: its value.
        self.number: Any = None
        # Of a boolean: comparisons that hold where it is true, and where it is false.
        self.facts: tuple = ()
        self.denials: tuple = ()

    def __repr__(self) -> str:
        return f"<traced {self.kind}>"

    # Conversions that arithmetic needs.

    def loaded(self) -> Traced:
        """An element of a tensor, ready to be computed with."""
        if self.ir not in ("f16", "bf16"):
            return self
        return self.region.emit(f"arith.extf {self.name} : {self.ir} to f32", "f32", self.kind)

    def _new(self, text: str, type: str, dtype: str, interval: Optional[list] = None) -> Traced:
        return self.region.emit(text, type, dtype, interval)

    def _select(self, dtype: str) -> Traced:
        """Of a boolean: 1 or 0 in another type."""
        one, zero = (self.region.constant(n, dtype) for n in (1, 0))
        interval = None if one.ir in FLOATS else ["join", ["c", 0], ["c", 1]]
        return self._new(f"arith.select {self.name}, {one.name}, {zero.name} : {one.ir}", one.ir, dtype, interval)

    def to_index(self) -> Traced:
        """As an index, of the same type in PyTorch."""
        if self.ir == "index":
            return self
        if self.ir == "i1":
            return self._select("int64")
        if types_of.is_float(self.kind):
            raise trace_error("expected an integer, got a floating-point number")
        if self.kind == "uint8":
            wide = self._new(f"arith.extui {self.name} : i8 to i64", "i64", self.kind)
            interval = ["at least", self.interval, ["c", 0]]
            return self._new(f"arith.index_cast {wide.name} : i64 to index", "index", self.kind, interval)
        return self._new(f"arith.index_cast {self.name} : {self.ir} to index", "index", self.kind, self.interval)

    def bounds(self) -> Tuple[float, float]:
        """Least and greatest value of an integer, for all sizes."""
        low, high = types_of.limits(self.kind)
        if self.kind == "bool":
            return low, high
        least, greatest = intervals.evaluate(self.interval, _LARGEST)
        return max(low, least), min(high, greatest)

    def wrapped(self, dtype: str, bounds: Tuple[float, float]) -> Traced:
        """This index, which lies within bounds, in an integer type that may be narrower."""
        low, high = types_of.limits(dtype)
        if dtype == "int64" or (low <= bounds[0] and bounds[1] <= high):
            return Traced(self.region, self.name, "index", dtype, self.interval)
        if dtype == "uint8":
            mask = self.region.constant(255, "int64")
            interval = ["at least", intervals.ANY, ["c", 0]]
            return self._new(f"arith.andi {self.name}, {mask.name} : index", "index", dtype, interval)
        narrow = f"i{types_of.bits(dtype)}"
        wide = self._new(f"arith.index_cast {self.name} : index to i64", "i64", "int64", intervals.ANY)
        cut = self._new(f"arith.trunci {wide.name} : i64 to {narrow}", narrow, dtype, intervals.ANY)
        return cut.to_index()

    def cast(self, dtype: str) -> Traced:
        """In another type, as PyTorch converts, and in the IR type of computations."""
        if self.number is not None:
            if dtype == "bool":
                return self._to_bool()
            result = self.region.constant(self.number, dtype)
            return result.rounded(dtype) if dtype in ("float16", "bfloat16") else result
        if dtype == "bool":
            return self._to_bool()
        if self.ir == "i1":
            return self._select(dtype)
        if types_of.is_float(dtype):
            return self._to_float(dtype)
        if types_of.is_float(self.kind):
            # Towards zero.
            type, kind = ("i64", "int64") if dtype == "int64" else ("i32", "int32")
            integer = self._new(f"arith.fptosi {self.name} : {self.ir} to {type}", type, kind, intervals.ANY)
            return integer.to_index().wrapped(dtype, types_of.limits(kind))
        return self.to_index().wrapped(dtype, self.bounds())

    def _to_float(self, dtype: str) -> Traced:
        type, value = types_of.register(dtype), self
        if value.ir not in FLOATS:
            if value.kind == "uint8":
                value = value.to_index()
            if value.ir == "index":
                low, high = value.bounds()
                integer = "i32" if -(2**31) <= low and high < 2**31 else "i64"
                value = self._new(
                    f"arith.index_cast {value.name} : index to {integer}", integer, "int64", self.interval
                )
            value = self._new(f"arith.sitofp {value.name} : {value.ir} to {type}", type, self.default_of(type))
        elif value.ir != type:
            op = "arith.truncf" if value.ir == "f64" else "arith.extf"
            value = self._new(f"{op} {value.name} : {value.ir} to {type}", type, self.default_of(type))
        if value.kind == dtype or dtype not in ("float16", "bfloat16"):
            return Traced(self.region, value.name, type, dtype)
        return value.rounded(dtype)

    @staticmethod
    def default_of(type: str) -> str:
        return "float64" if type == "f64" else "float32"

    def rounded(self, dtype: str) -> Traced:
        """An f32 with the precision of a half."""
        narrow = ELEMENT_TYPES[dtype]
        cut = self._new(f"arith.truncf {self.name} : f32 to {narrow}", narrow, dtype)
        return cut.loaded()

    def _to_bool(self) -> Traced:
        """Whether it is not zero."""
        if self.ir == "i1":
            return self
        if self.number is not None:
            return self.region.constant(bool(self.number), "bool")
        if self.ir in FLOATS:
            zero = self.region.constant(0, self.default_of(self.ir)).name
        else:
            zero = self._new(f"arith.constant 0 : {self.ir}", self.ir, self.kind).name
        op = "arith.cmpf une" if self.ir in FLOATS else "arith.cmpi ne"
        return self._new(f"{op}, {self.name}, {zero} : {self.ir}", "i1", "bool", ["join", ["c", 0], ["c", 1]])

    # What asks for a value. Messages say what to write instead.

    def __bool__(self) -> bool:
        raise trace_error(
            "the value is not known while tracing: write `&`, `|`, `~` for `and`, `or`, `not` and chained comparisons, "
            "where(...) for `if`, minimum(...) and maximum(...) for min and max"
        )

    def __int__(self) -> int:
        raise trace_error("the value is not known while tracing: cannot convert it to a Python int")

    def __float__(self) -> float:
        raise trace_error("the value is not known while tracing: use the functions of attnc or torch, not of math")

    def __index__(self) -> int:
        raise trace_error(
            "the value is not known while tracing: it indexes tensors of PyTorch, and NumPy arrays that the function "
            "reaches by a variable of its own, not ranges, lists or NumPy arrays that are attributes"
        )

    def __iter__(self) -> Any:
        raise trace_error("cannot iterate over a traced number")

    def __len__(self) -> int:
        raise trace_error("a traced number has no length")

    def __hash__(self) -> int:
        raise trace_error("the value is not known while tracing: it cannot be a key")


_ARGUMENTS = (("b", "index"), ("h", "index"), ("i", "index"), ("j", "index"))


@dataclass
class TracedRegion:
    """The text of a region; `kind` is "score" or "mask"."""

    kind: str
    lines: List[str]
    result: str
    ir: str

    def text(self, captures: str) -> str:
        """With the declarations of the captures' arguments."""
        head = ", ".join(f"%{name}: {type}" for name, type in _ARGUMENTS)
        if self.kind == "score":
            head = f"%s: {self.ir}, {head}"
        lines = "".join(f"      {line}\n" for line in self.lines)
        result = f"      attn.yield {self.result} : {self.ir}\n"
        return f"    {self.kind} {{\n    ^bb0({head}{captures}):\n{lines}{result}    }}\n"


def _line_of(error: Exception) -> str:
    """Where in the user's code an error came from."""
    where, step = "", error.__traceback__
    while step:
        if is_user(step.tb_frame):
            where = f"{step.tb_frame.f_code.co_filename}:{step.tb_lineno}: "
        step = step.tb_next
    return where


def trace_region(trace: Trace, kind: str, function: Callable, user: Callable) -> TracedRegion:
    """Traces `function`, which calls the user's function `user`."""
    region = Region(trace)
    arguments = [Traced(region, f"%{name}", type, "int64", ["v", name]) for name, type in _ARGUMENTS]
    if kind == "score":
        arguments.insert(0, Traced(region, "%s", types_of.register(trace.accumulator), trace.accumulator))
    try:
        result = function(*arguments)
    except TraceError:
        raise
    except Exception as error:
        where = _line_of(error) or _place(user)
        raise TraceError(f"{where}cannot trace: {type(error).__name__}: {error}") from error
    name = getattr(user, "__name__", kind)
    if result is None:
        raise TraceError(f"{_place(user)}'{name}' returns nothing")
    try:
        result = region.lift(result)
    except TraceError as error:
        raise TraceError(f"{_place(user)}'{name}' returns what is not a number: {error}") from None
    if kind == "mask" and result.ir != "i1":
        raise TraceError(f"{_place(user)}expected '{name}' to return a boolean, got {result!r}")
    result = result.cast(trace.accumulator) if kind == "score" else result
    return TracedRegion(kind, region.lines, result.name, result.ir)


def _place(function: Callable) -> str:
    """Where a function begins."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}: " if code else ""
