# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a Python function depends on besides its arguments, and calling it so that
tensors can be indexed by traced numbers.

A key of a function stands for all that its trace could depend on: its code and
the numbers, functions and kinds of tensors that it reaches by name. Where it
reaches anything else, such as an object whose attributes may change, there is no
key, and the function is traced at each call; that costs time, never a wrong
result, and compiles nothing new.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ._calls import call_named, has_traced, name_of
from ._errors import trace_error
from ._trace import Trace, Traced, is_tensor

# Modules that do not change under their users.
_CONSTANT_MODULES = {"torch", "numpy", "math", "operator", "attnc"}
_NUMBERS = (int, bool, str, type(None), bytes)


class _Opaque(Exception):
    """Something that no key can stand for."""


_names: Dict[int, Tuple[types.CodeType, Tuple[str, ...]]] = {}


def _global_names(code: types.CodeType) -> Tuple[str, ...]:
    """Names that a function and those within it may look up."""
    known = _names.get(id(code))
    if known is not None:
        return known[1]
    found = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.update(dict.fromkeys(_global_names(constant)))
    # The code object is kept, so that its id stays its own.
    _names[id(code)] = code, tuple(found)
    return _names[id(code)][1]


class _Reached:
    """What functions reach: the parts of a key, tensors in order, and where each value
    was found, so that a second look can be short."""

    def __init__(self) -> None:
        self.key: List[Any] = []
        self.tensors: List[Any] = []
        self.kinds: List[Tuple[Any, int]] = []
        self.cells: List[Tuple[Any, Any]] = []
        self.globals: List[Tuple[dict, str, Any]] = []
        self.defaults: List[Tuple[Any, Any, Any, Any]] = []  # of functions, by weak references
        self.seen: set = set()

    def is_as_before(self) -> bool:
        """Whether all names still stand for the same objects. (Tensors that are the same
        objects may have changed in type and shape.)"""
        for cell, value in self.cells:
            if cell.cell_contents is not value:
                return False
        for space, name, value in self.globals:
            if space.get(name) is not value:
                return False
        for reference, code, defaults, keywords in self.defaults:
            function = reference()
            if function is None or function.__code__ is not code or function.__defaults__ is not defaults:
                return False
            if keywords is not None or function.__kwdefaults__ is not None:
                return False
        return True


def _add_value(value: Any, reached: _Reached) -> None:
    key, kind = reached.key, type(value)
    if kind is float:
        key.append(value.hex())  # tells -0.0 from 0.0, and NaN is equal to NaN
    elif kind in _NUMBERS:
        key.append((kind, value))
    elif kind is types.FunctionType:
        _add_function(value, reached)
    elif kind.__module__ == "numpy" and hasattr(value, "item") and not hasattr(value, "__setitem__"):
        key.append((kind, value.item()))  # a NumPy scalar is a number
    elif is_tensor(value):
        key.append((value.dtype, len(value.shape), kind))
        reached.tensors.append(value)
        reached.kinds.append((value.dtype, len(value.shape)))
    elif kind is types.ModuleType:
        if value.__name__.partition(".")[0] not in _CONSTANT_MODULES:
            raise _Opaque
        key.append(value.__name__)
    elif kind is tuple:
        key.append(len(value))
        for item in value:
            _add_value(item, reached)
    elif kind is types.BuiltinFunctionType or getattr(value, "__module__", "").partition(".")[0] in _CONSTANT_MODULES:
        if kind is not types.BuiltinFunctionType and not isinstance(value, type) and not _is_name(value):
            raise _Opaque
        key.append(id(value))
    else:
        raise _Opaque


def _is_name(value: Any) -> bool:
    """A dtype, a ufunc: values that are what they are."""
    return type(value).__name__ in ("dtype", "ufunc", "device", "_TensorMeta")


def _add_function(function: types.FunctionType, reached: _Reached) -> None:
    code = function.__code__
    names = _global_names(code)
    reached.key.append(id(code))
    if function.__module__ is not None and function.__module__.partition(".")[0] in _CONSTANT_MODULES:
        # Their globals do not change; their closures are the user's.
        names = ()
    if id(function) in reached.seen:
        return
    reached.seen.add(id(function))
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # empty
            raise _Opaque from None
        reached.cells.append((cell, value))
        _add_value(value, reached)
    reached.defaults.append((weakref.ref(function), code, function.__defaults__, function.__kwdefaults__))
    for value in function.__defaults__ or ():
        _add_value(value, reached)
    for value in (function.__kwdefaults__ or {}).values():
        _add_value(value, reached)
    space = function.__globals__
    for name in names:
        if name in space:
            reached.globals.append((space, name, space[name]))
            _add_value(space[name], reached)


# Keys as numbers, which are compared sooner; and what functions reached when last seen,
# as long as they live: nothing else is to keep their tensors.
_numbers: Dict[Any, int] = {}
_last_seen: Dict[int, Tuple[Any, int, _Reached]] = {}


def function_key(function: Optional[Callable], tensors: List[Any]) -> Optional[int]:
    """A number that stands for the function, and appended to `tensors` those that it
    reaches; None where there is no such number."""
    if function is None:
        return 0
    known = _last_seen.get(id(function))
    if known is not None and known[0]() is function and known[2].is_as_before():
        found = known[2].tensors
        # A tensor may have got another type or rank in place.
        if all(x.dtype == kind and len(x.shape) == rank for x, (kind, rank) in zip(found, known[2].kinds)):
            tensors += found
            return known[1]
    if type(function) is not types.FunctionType:
        return None
    reached = _Reached()
    try:
        _add_function(function, reached)
    except _Opaque:
        return None
    number = _numbers.setdefault(tuple(reached.key), len(_numbers) + 1)
    place = id(function)
    _last_seen[place] = weakref.ref(function, lambda _: _last_seen.pop(place, None)), number, reached
    tensors += reached.tensors
    return number


# NumPy arrays cannot be told to accept other indices: while tracing, a function
# finds views of them that do.


def _array_type() -> Any:
    import numpy

    class TracedArray(numpy.ndarray):
        original: Any = None

        def __getitem__(self, index: Any) -> Any:
            indices = index if isinstance(index, tuple) else (index,)
            if has_traced(indices):
                return call_named("__getitem__", (self if self.original is None else self.original, indices), {})
            return super().__getitem__(index)

    return TracedArray


_traced_array: Any = None


def _view(value: Any) -> Any:
    global _traced_array
    if _traced_array is None:
        _traced_array = _array_type()
    view = value.view(_traced_array)
    view.original = value
    return view


def _rebind(value: Any, done: Dict[int, Any]) -> Any:
    """The value with arrays replaced by views, in functions too."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and type(value) is numpy.ndarray:
        return _view(value)
    if type(value) is tuple:
        items = tuple(_rebind(item, done) for item in value)
        return value if all(a is b for a, b in zip(items, value)) else items
    if type(value) is not types.FunctionType:
        return value
    if id(value) in done:
        return done[id(value)]
    done[id(value)] = value  # of a function that reaches itself
    cells = tuple(_rebind_cell(cell, done) for cell in value.__closure__ or ())
    defaults = _rebind(value.__defaults__, done) if value.__defaults__ else value.__defaults__
    space = value.__globals__
    changed = {}
    for name in _global_names(value.__code__):
        if name in space:
            bound = _rebind(space[name], done)
            if bound is not space[name]:
                changed[name] = bound
    same_cells = all(a is b for a, b in zip(cells, value.__closure__ or ()))
    if same_cells and not changed and defaults is value.__defaults__:
        return value
    copy = types.FunctionType(
        value.__code__, {**space, **changed} if changed else space, value.__name__, defaults, cells or None
    )
    copy.__kwdefaults__ = value.__kwdefaults__
    done[id(value)] = copy
    return copy


def _rebind_cell(cell: Any, done: Dict[int, Any]) -> Any:
    try:
        value = cell.cell_contents
    except ValueError:
        return cell
    bound = _rebind(value, done)
    return cell if bound is value else types.CellType(bound)


_index_mode: Any = None


def _is_numbers(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_numbers, value))
    return isinstance(value, (int, float))


def _torch_mode(torch: Any, trace: Trace) -> Any:
    """Hands calls of PyTorch that get traced numbers to the tracer: indexing of a
    tensor would not ask the index."""
    global _index_mode
    if _index_mode is None:

        class TraceMode(torch.overrides.TorchFunctionMode):
            def __init__(self, trace: Trace) -> None:
                super().__init__()
                self.trace = trace

            def __torch_function__(self, function: Any, kinds: Any, args: Any = (), keywords: Any = None) -> Any:
                keywords = keywords or {}
                name = name_of(function)
                if has_traced(args) or has_traced(keywords.values()):
                    return call_named(name, args, dict(keywords))
                result = function(*args, **keywords)
                if name in ("tensor", "scalar_tensor") and args and _is_numbers(args[0]):
                    # A constant, not a tensor to capture.
                    self.trace.constants[id(result)] = result
                return result

        _index_mode = TraceMode
    return _index_mode(trace)


_tracing = threading.Lock()
_traces = 0
_apply: Any = None


@contextlib.contextmanager
def _refusing_functions(torch: Any) -> Iterator[None]:
    """While anything is traced, an autograd.Function that gets a traced number is an error: nothing of PyTorch
    hands it over, and what it does would be differentiated instead of what it says."""
    global _traces, _apply
    kind = torch.autograd.Function

    def apply(cls: Any, *args: Any, **keywords: Any) -> Any:
        if has_traced(args) or has_traced(keywords.values()):
            raise trace_error(
                f"cannot trace the torch.autograd.Function {cls.__name__}: its backward() would be ignored; write what "
                "it computes, or compute it before and capture the result"
            )
        return original.__func__(cls, *args, **keywords)

    with _tracing:
        if _traces == 0:
            original = _apply = kind.__dict__["apply"]
            kind.apply = classmethod(apply)
        _traces += 1
    try:
        yield
    finally:
        with _tracing:
            _traces -= 1
            if _traces == 0:
                kind.apply = _apply


def call_for_trace(function: Callable, arguments: Tuple[Traced, ...]) -> Any:
    """Calls a user's function with traced arguments."""
    torch = sys.modules.get("torch")
    bound = _rebind(function, {})
    with contextlib.ExitStack() as stack:
        if torch is not None and hasattr(torch, "overrides"):
            stack.enter_context(_torch_mode(torch, arguments[0].region.trace))
            stack.enter_context(_refusing_functions(torch))
        return bound(*arguments)
