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
from ._errors import TraceError, is_user, trace_error, user_line

INTEGERS = ("i8", "i16", "i32", "i64")
FLOATS = ("bf16", "f16", "f32", "f64")
ELEMENT_TYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "bool": "i1",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
}  # fmt: skip
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
    element: str
    rank: int

    @property
    def type(self) -> str:
        return f"tensor<{'?x' * self.rank}{self.element}>"


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

    accumulator: str  # "f32" or "f64", the type of scores
    captures: List[Capture] = field(default_factory=list)
    checks: List[Check] = field(default_factory=list)

    def capture(self, tensor: Any) -> int:
        for number, known in enumerate(self.captures):
            if known.tensor is tensor:
                return number
        name = type_name(tensor)
        if name not in ELEMENT_TYPES:
            raise trace_error(f"cannot read a captured tensor of type {name}")
        # A number by itself is read as the only element of a tensor.
        self.captures.append(Capture(tensor, ELEMENT_TYPES[name], max(len(tensor.shape), 1)))
        return len(self.captures) - 1


class Region:
    """The lines of one region; equal operations are written once."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.lines: List[str] = []
        self.known: Dict[str, str] = {}

    def emit(self, text: str, type: str, interval: Optional[list] = None) -> Traced:
        """The result of an operation: `text` is all after the equals sign."""
        name = self.known.get(text)
        if name is None:
            name = self.known[text] = f"%t{len(self.known)}"
            path, line = user_line()
            self.lines.append(f"{name} = {text} loc({json.dumps(path)}:{line}:1)")
        return Traced(self, name, type, interval)

    def constant(self, value: Any, type: str) -> Traced:
        if type == "i1":
            return self.emit(f"arith.constant {'true' if value else 'false'}", "i1", intervals.constant(int(value)))
        if type in FLOATS:
            return self.emit(f"arith.constant {_float_text(float(value), type)} : {type}", type)
        value = int(value)
        if not -(2**63) <= value < 2**63:
            raise trace_error(f"{value} does not fit into 64 bits")
        return self.emit(f"arith.constant {value} : {type}", type, intervals.constant(value))

    def lift(self, value: Any) -> Traced:
        """A number or a tensor with one element as a traced value."""
        if isinstance(value, Traced):
            if value.region is not self:
                raise trace_error("a value of another function's trace is used here")
            return value
        if isinstance(value, bool):
            return self.constant(value, "i1")
        if isinstance(value, int) or type(value).__name__ == "SymInt":
            return self.constant(int(value), "index")
        if isinstance(value, float) or type(value).__name__ == "SymFloat":
            return self.constant(float(value), self.trace.accumulator)
        if is_tensor(value):
            if math.prod(value.shape) != 1:
                raise trace_error(
                    f"expected a number or a tensor with one element, got one of shape {tuple(value.shape)}: "
                    "index captured tensors with b, h, q_idx or kv_idx"
                )
            if type(value).__module__ == "numpy" and not hasattr(value, "__setitem__"):
                return self.lift(value.item())  # a NumPy scalar is a number
            return self.read(value, (0,) * max(len(value.shape), 1))
        raise trace_error(f"cannot use a {type(value).__name__} here")

    def read(self, tensor: Any, indices: Tuple[Any, ...]) -> Traced:
        """An element of a captured tensor."""
        rank = max(len(tensor.shape), 1)
        if len(indices) != rank:
            raise trace_error(f"expected {rank} indices into a captured tensor, got {len(indices)}")
        number = self.trace.capture(tensor)
        capture = self.trace.captures[number]
        names = []
        for dim, index in enumerate(indices):
            if isinstance(index, slice) or index is None or index is Ellipsis:
                raise trace_error("cannot slice with traced indices: read one element")
            index = self.lift(index)
            if index.type in FLOATS or index.type == "i1":
                raise trace_error("expected an integer index")
            index = index.to_index()
            path, line = user_line()
            check = Check(number, dim, index.interval, f"{path}:{line}")
            if check not in self.trace.checks:
                self.trace.checks.append(check)
            names.append(index.name)
        known = ["join", ["c", 0], ["c", 1]] if capture.element == "i1" else intervals.ANY
        text = f"tensor.extract %c{number}[{', '.join(names)}] : {capture.type}"
        value = self.emit(text, capture.element, known)
        return value.to_float() if capture.element in FLOATS else value


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

    __slots__ = ("region", "name", "type", "interval", "facts", "denials")
    # NumPy's scalars then leave binary operators to this class.
    __array_priority__ = 1000

    def __init__(self, region: Region, name: str, type: str, interval: Optional[list] = None) -> None:
        self.region, self.name, self.type, self.interval = region, name, type, interval
        # Of a boolean: comparisons that hold where it is true, and where it is false.
        self.facts: tuple = ()
        self.denials: tuple = ()

    def __repr__(self) -> str:
        return f"<traced {self.type}>"

    # Conversions that arithmetic needs.

    def to_index(self) -> Traced:
        """As an index: all integer arithmetic has 64 bits."""
        if self.type == "index":
            return self
        if self.type == "i1":
            one, zero = (self.region.constant(n, "index") for n in (1, 0))
            text = f"arith.select {self.name}, {one.name}, {zero.name} : index"
            return self.region.emit(text, "index", ["join", ["c", 0], ["c", 1]])
        if self.type in INTEGERS:
            return self.region.emit(f"arith.index_cast {self.name} : {self.type} to index", "index", self.interval)
        raise trace_error("expected an integer, got a floating-point number")

    def to_float(self) -> Traced:
        """In the type of scores."""
        type = self.region.trace.accumulator
        if self.type == type:
            return self
        if self.type in FLOATS:
            op = "arith.truncf" if self.type == "f64" else "arith.extf"
            return self.region.emit(f"{op} {self.name} : {self.type} to {type}", type)
        if self.type == "i1":
            one, zero = (self.region.constant(n, type) for n in (1.0, 0.0))
            return self.region.emit(f"arith.select {self.name}, {one.name}, {zero.name} : {type}", type)
        value = self
        if self.type == "index":
            low, high = intervals.evaluate(self.interval, _LARGEST)
            integer = "i32" if -(2**31) <= low and high < 2**31 else "i64"
            value = self.region.emit(f"arith.index_cast {self.name} : index to {integer}", integer, self.interval)
        return self.region.emit(f"arith.sitofp {value.name} : {value.type} to {type}", type)

    def to_bool(self) -> Traced:
        """Whether it is not zero."""
        if self.type == "i1":
            return self
        zero = self.region.constant(0, self.type)
        op = "arith.cmpf une" if self.type in FLOATS else "arith.cmpi ne"
        return self.region.emit(f"{op}, {self.name}, {zero.name} : {self.type}", "i1")

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
    type: str

    def text(self, captures: str) -> str:
        """With the declarations of the captures' arguments."""
        head = ", ".join(f"%{name}: {type}" for name, type in _ARGUMENTS)
        if self.kind == "score":
            head = f"%s: {self.type}, {head}"
        lines = "".join(f"      {line}\n" for line in self.lines)
        result = f"      attn.yield {self.result} : {self.type}\n"
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
    arguments = [Traced(region, f"%{name}", type, ["v", name]) for name, type in _ARGUMENTS]
    if kind == "score":
        arguments.insert(0, Traced(region, "%s", trace.accumulator))
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
    if kind == "mask" and result.type != "i1":
        raise TraceError(f"{_place(user)}expected '{name}' to return a boolean, got {result!r}")
    result = result.to_float() if kind == "score" else result
    return TracedRegion(kind, region.lines, result.name, result.type)


def _place(function: Callable) -> str:
    """Where a function begins."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}: " if code else ""

