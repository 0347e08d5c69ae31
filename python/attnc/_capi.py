# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Executables through the C API (attn-c/attnc.h), called with tensors of PyTorch
or, on the CPU, arrays of NumPy.

The library is the one that ATTNC_LIBRARY names, else libattnc.so beside this file,
in the newest build of the source tree, or where the system looks. Neither PyTorch nor NumPy is imported before a result
has to be allocated.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import partial
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ._errors import Error

_API_VERSION = 3
# By attnc_type; PyTorch and NumPy use the same names.
_TYPES = ("float64", "float32", "float16", "bfloat16", "bool", "int8", "int16", "int32", "int64")
_SCALARS = {
    "float64": ctypes.c_double,
    "float32": ctypes.c_float,
    "bool": ctypes.c_bool,
    "int8": ctypes.c_int8,
    "int16": ctypes.c_int16,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
}
# Per executable and thread; more lengths than this are planned anew now and then.
_MAX_PLANS = 1024


class _Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("target", ctypes.c_int),
        ("entry", ctypes.c_char_p),
        ("pipeline", ctypes.c_char_p),
        ("cache_directory", ctypes.c_char_p),
        ("gradient", ctypes.c_char_p),
        ("target_name", ctypes.c_char_p),
    ]


class _Value(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
    ]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    ]


class _Counts(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("compiled", ctypes.c_uint64),
        ("from_disk", ctypes.c_uint64),
        ("from_memory", ctypes.c_uint64),
    ]


def library_path() -> str:
    """The library that is, or would be, loaded."""
    path = os.environ.get("ATTNC_LIBRARY")
    if path:
        return path
    here = os.path.dirname(os.path.abspath(__file__))
    beside = os.path.join(here, "libattnc.so")
    if os.path.exists(beside):
        return beside
    # A source tree, and its newest build.
    build = os.path.join(here, "..", "..", "build")
    found = []
    if os.path.exists(os.path.join(here, "..", "..", "include", "attn-c")) and os.path.isdir(build):
        found = [os.path.join(build, name, "lib", "libattnc.so") for name in os.listdir(build)]
        found = [path for path in found if os.path.exists(path)]
    return max(found, key=os.path.getmtime) if found else "libattnc.so.1"


def _load() -> ctypes.CDLL:
    path = library_path()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise Error(f"cannot load libattnc ({error}); ATTNC_LIBRARY may name it") from None
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    version = library.attnc_api_version()
    if version < _API_VERSION:
        raise Error(f"{path} has API version {version}, expected {_API_VERSION}")
    for name, result, arguments in (
        ("error_message", ctypes.c_char_p, [pointer]),
        ("error_destroy", None, [pointer]),
        ("compile", pointer, [ctypes.c_char_p, size, pointer, pointer]),
        ("executable_destroy", None, [pointer]),
        ("num_targets", size, []),
        ("target_name", ctypes.c_char_p, [size]),
        ("is_on_gpu", ctypes.c_int, [pointer]),
        ("num_arguments", size, [pointer]),
        ("num_results", size, [pointer]),
        ("argument", _Value, [pointer, size]),
        ("result", _Value, [pointer, size]),
        ("result_shapes", pointer, [pointer, pointer, pointer]),
        ("workspace_bytes", pointer, [pointer, pointer, pointer, pointer]),
        ("run", pointer, [pointer, pointer, pointer, pointer, size, pointer]),
        ("get_counts", pointer, [pointer]),
        ("set_num_threads", None, [ctypes.c_uint]),
        ("num_threads", ctypes.c_uint, []),
        ("take_tile_counts", None, [pointer, pointer]),
        ("text_data", pointer, [pointer]),
        ("text_length", size, [pointer]),
        ("text_destroy", None, [pointer]),
        ("transform", pointer, [ctypes.c_char_p, size, ctypes.c_char_p, pointer, pointer]),
        ("emit_ptx", pointer, [ctypes.c_char_p, size, pointer, pointer]),
    ):
        function = getattr(library, "attnc_" + name)
        function.restype = result
        function.argtypes = arguments
    return library


_library: Any = None
_library_lock = threading.Lock()


def _get_library() -> Any:
    global _library
    if _library is None:
        with _library_lock:
            if _library is None:
                _library = _load()
    return _library


def _check(error: Optional[int]) -> None:
    if error:
        message = _library.attnc_error_message(error).decode()
        _library.attnc_error_destroy(error)
        raise Error(message)


def _encode(text: Optional[str]) -> Optional[bytes]:
    return None if text is None else os.fsencode(text)


def _take_text(handle: ctypes.c_void_p) -> str:
    if not handle:
        return ""
    text = ctypes.string_at(_library.attnc_text_data(handle), _library.attnc_text_length(handle)).decode()
    _library.attnc_text_destroy(handle)
    return text


def compile_counts() -> Dict[str, int]:
    """How many executables this process has made: "compiled" from IR, "from_disk" out
    of the cache, "from_memory" because it had the same before."""
    counts = _Counts(ctypes.sizeof(_Counts))
    _get_library()
    _check(_library.attnc_get_counts(ctypes.byref(counts)))
    return {"compiled": counts.compiled, "from_disk": counts.from_disk, "from_memory": counts.from_memory}


def set_num_threads(threads: int) -> None:
    """Threads that calls on the CPU share; 0 for one per hardware thread."""
    if threads < 0:
        raise Error(f"expected a number of threads, got {threads}")
    _get_library().attnc_set_num_threads(threads)


def get_num_threads() -> int:
    return _get_library().attnc_num_threads()


def take_tile_counts() -> Tuple[int, int]:
    """Tiles visited since the last call by executables with the option count-tiles: with
    mask arithmetic, and without."""
    masked, full = ctypes.c_int64(), ctypes.c_int64()
    _get_library().attnc_take_tile_counts(ctypes.byref(masked), ctypes.byref(full))
    return masked.value, full.value


def transform(ir: str, pipeline: str) -> Tuple[str, str]:
    """Runs passes, such as "builtin.module(attn-tile-pipeline)", on a module's text. The
    new text, and what the passes remarked."""
    _get_library()
    result, said, text = ctypes.c_void_p(), ctypes.c_void_p(), ir.encode()
    error = _library.attnc_transform(text, len(text), pipeline.encode(), ctypes.byref(result), ctypes.byref(said))
    remarks = _take_text(said)
    try:
        _check(error)
    except Error as problem:
        raise Error(f"{problem}: {remarks.strip()}") from None
    return _take_text(result), remarks


def targets() -> List[str]:
    """The targets that the library compiles for, by name."""
    library = _get_library()
    return [library.attnc_target_name(index).decode() for index in range(library.attnc_num_targets())]


def emit_ptx(
    ir: str, entry: Optional[str] = None, gradient: Optional[str] = None, pipeline: Optional[str] = None
) -> str:
    """PTX of a function's kernels; needs no GPU."""
    _get_library()
    options = _Options(ctypes.sizeof(_Options), 1, _encode(entry), _encode(pipeline), None, _encode(gradient), None)
    result, text = ctypes.c_void_p(), ir.encode()
    _check(_library.attnc_emit_ptx(text, len(text), ctypes.byref(options), ctypes.byref(result)))
    return _take_text(result)


def _is_torch(tensor: Any) -> bool:
    return hasattr(tensor, "data_ptr")


def _key(value: Any) -> Any:
    """What a plan depends on: all but the addresses."""
    if hasattr(value, "data_ptr"):
        return value.shape, value.stride(), value.dtype, value.get_device()
    if hasattr(value, "__array_interface__"):
        return value.shape, value.strides, value.dtype.str
    return None


def _address(tensor: Any) -> int:
    if hasattr(tensor, "data_ptr"):
        return tensor.data_ptr()
    return tensor.__array_interface__["data"][0]


def _element_strides(tensor: Any) -> Tuple[int, ...]:
    if _is_torch(tensor):
        return tuple(tensor.stride())
    return tuple(stride // tensor.itemsize for stride in tensor.strides)


def _strides_in_order_of(strides: Sequence[int], shape: Sequence[int]) -> List[int]:
    """Dense strides of a shape whose dimensions lie in memory in the order that these
    strides have, the last one innermost."""
    outer = sorted(range(len(shape) - 1), key=lambda dim: -strides[dim])
    result, step = [1] * len(shape), shape[-1] if shape else 1
    for dim in reversed(outer):
        result[dim] = step
        step *= shape[dim]
    return result


def _current_stream(torch: Any, device: int) -> int:
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw(device) if raw else torch.cuda.current_stream(device).cuda_stream


class Value:
    """An argument or a result: its type's name, and sizes, -1 where any is
    accepted; the shape of a scalar is None."""

    def __init__(self, value: _Value) -> None:
        self.type = _TYPES[value.type]
        self.shape = None if value.rank < 0 else tuple(value.shape[: value.rank])

    def __repr__(self) -> str:
        return f"Value({self.type!r}, {self.shape})"


class _Plan:
    """The C structs of calls with tensors of certain shapes and strides, by one
    thread."""

    def __init__(self, executable: Executable, values: Sequence[Any], keys: Sequence[Any]) -> None:
        self.keep: List[Any] = []  # arrays that the structs point to
        self.scalars: List[Tuple[int, Any]] = []
        self.arguments = (_Tensor * max(len(values), 1))()
        for index, (expected, value) in enumerate(zip(executable.arguments, values)):
            if expected.shape is None:
                if keys[index] is not None or expected.type not in _SCALARS:
                    raise Error(f"argument {index}: expected a number of type {expected.type}")
                scalar = _SCALARS[expected.type](value)
                self.scalars.append((index, scalar))
                self.arguments[index].data = ctypes.addressof(scalar)
            else:
                self.fill(self.arguments, index, expected, value, executable._cuda)
        self.results = (_Tensor * max(len(executable.results), 1))()
        # The structs by themselves: finding them in the arrays takes time.
        self.argument_structs = list(self.arguments)
        self.result_structs = list(self.results)
        self.shapes: List[Tuple[int, ...]] = []
        self.strides: List[Sequence[int]] = []
        self.types: List[Any] = []
        self.workspace_bytes = 0

    def prepare_for_torch(self, executable: Executable, tensors: Sequence[Any]) -> None:
        """What launch() asks PyTorch for, looked up once."""
        import torch

        like = tensors[0]
        device = like.device
        self.device_index = like.get_device()
        self.outputs = [
            (self.result_structs[index], self.shapes[index], tuple(self.strides[index]), getattr(torch, result.type))
            for index, result in enumerate(executable.results)
        ]

        def allocate_on_device(shape: Any, strides: Any, type: Any) -> Any:
            return torch.empty_strided(shape, strides, dtype=type, device=device)

        # What compiled graphs of PyTorch call, on the current device; it takes half the time.
        quick = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
        self.allocate_on_device = allocate_on_device
        self.allocate_tensor = getattr(quick, f"_empty_strided_{like.device.type}", allocate_on_device)
        if executable._cuda:
            self.current_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
            self.current_stream = partial(_current_stream, torch)
            self.current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", self.current_stream)
            # Memory as PyTorch's allocator gives it to tensors, without a tensor.
            self.allocate = getattr(torch._C, "_cuda_cudaCachingAllocator_raw_alloc", None)
            self.free = getattr(torch._C, "_cuda_cudaCachingAllocator_raw_delete", None)
        self.addresses = ctypes.addressof(self.arguments), ctypes.addressof(self.results)

    def fill(self, structs: Any, index: int, expected: Value, tensor: Any, cuda: bool) -> None:
        if _key(tensor) is None:
            raise Error(f"argument {index}: expected a tensor")
        name = str(tensor.dtype).rsplit(".", 1)[-1]
        # Integers of the IR have no sign; whoever reads them knows.
        known = name == expected.type or (name, expected.type) == ("uint8", "int8")
        if not known or len(tensor.shape) != len(expected.shape):
            raise Error(
                f"expected a {expected.type} tensor of {len(expected.shape)} dimensions "
                f"at {index}, got {name} of {len(tensor.shape)}"
            )
        if cuda != (_is_torch(tensor) and tensor.is_cuda):
            raise Error(f"expected the tensor at {index} to be on the {'GPU' if cuda else 'CPU'}")
        self.describe(structs, index, tuple(tensor.shape), _element_strides(tensor))

    def describe(self, structs: Any, index: int, shape: Sequence[int], strides: Sequence[int]) -> None:
        array = ctypes.c_int64 * max(len(shape), 1)
        sizes, steps = array(*shape), array(*strides)
        self.keep += [sizes, steps]
        structs[index].shape, structs[index].strides = sizes, steps


class Executable:
    """A compiled function.

    `ir` is MLIR as text, `target` one of targets() or "cuda", that of the GPU at hand,
    `entry` the function (default `main` or the only one), `pipeline` options such as "row-tile=64", `gradient`
    options of attn-differentiate where its gradient is meant. Calls take tensors and
    numbers by position and return the results; one executable serves all shapes and
    strides that its types leave open, and any number of threads.
    """

    def __init__(
        self,
        ir: str,
        target: str = "cuda",
        entry: Optional[str] = None,
        pipeline: Optional[str] = None,
        cache_directory: Optional[str] = None,
        gradient: Optional[str] = None,
    ) -> None:
        self._handle = None
        lib = _get_library()
        options = _Options(
            ctypes.sizeof(_Options),
            0,
            _encode(entry),
            _encode(pipeline),
            _encode(cache_directory),
            _encode(gradient),
            _encode(target),
        )
        handle = ctypes.c_void_p()
        text = ir.encode()
        _check(lib.attnc_compile(text, len(text), ctypes.byref(options), ctypes.byref(handle)))
        self._handle = handle
        self._cuda = bool(lib.attnc_is_on_gpu(handle))
        self.arguments = [Value(lib.attnc_argument(handle, i)) for i in range(lib.attnc_num_arguments(handle))]
        self.results = [Value(lib.attnc_result(handle, i)) for i in range(lib.attnc_num_results(handle))]
        # Per result the argument whose order of dimensions in memory it gets, or None
        # for row-major order.
        self.layouts: List[Optional[int]] = [None] * len(self.results)
        self._plans = threading.local()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _library.attnc_executable_destroy(self._handle)
            self._handle = None

    def _make_plan(self, values: Sequence[Any], out: Optional[Sequence[Any]], keys: Sequence[Any]) -> _Plan:
        if len(values) != len(self.arguments):
            raise Error(f"expected {len(self.arguments)} arguments, got {len(values)}")
        plan = _Plan(self, values, keys)
        count = sum(len(result.shape) for result in self.results)
        sizes = (ctypes.c_int64 * max(count, 1))()
        _check(_library.attnc_result_shapes(self._handle, plan.arguments, sizes))
        start = 0
        for result in self.results:
            plan.shapes.append(tuple(sizes[start : start + len(result.shape)]))
            start += len(result.shape)
        if out is not None:
            if len(out) != len(self.results):
                raise Error(f"expected {len(self.results)} results, got {len(out)}")
            for index, (expected, tensor) in enumerate(zip(self.results, out)):
                plan.fill(plan.results, index, expected, tensor, self._cuda)
        else:
            for index, shape in enumerate(plan.shapes):
                like = self.layouts[index]
                strides = _element_strides(values[like]) if like is not None else range(len(shape), 0, -1)
                plan.strides.append(_strides_in_order_of(strides, shape))
                plan.describe(plan.results, index, shape, plan.strides[-1])
        bytes = ctypes.c_size_t()
        _check(_library.attnc_workspace_bytes(self._handle, plan.arguments, plan.results, ctypes.byref(bytes)))
        plan.workspace_bytes = bytes.value
        return plan

    def _allocate(self, plan: _Plan, like: Any) -> List[Any]:
        if like is not None and _is_torch(like):
            import torch

            if not plan.types:
                plan.types = [getattr(torch, result.type) for result in self.results]
            device = like.device
            return [
                torch.empty_strided(shape, strides, dtype=type, device=device)
                for shape, strides, type in zip(plan.shapes, plan.strides, plan.types)
            ]
        import numpy

        results = []
        for result, shape, strides in zip(self.results, plan.shapes, plan.strides):
            order = sorted(range(len(shape)), key=lambda dim: -strides[dim])
            if order and order[-1] != len(shape) - 1:  # strides of equal size
                order.remove(len(shape) - 1)
                order.append(len(shape) - 1)
            dense = numpy.empty([shape[dim] for dim in order], dtype=result.type)
            results.append(dense.transpose(numpy.argsort(order)) if order else dense)
        return results

    def __call__(self, *values: Any, out: Optional[Sequence[Any]] = None, stream: Optional[int] = None) -> Any:
        """Calls the function; `out` gives tensors for all results. On the GPU the
        call goes to `stream` (an address), or PyTorch's current one, and returns
        before it has run."""
        results = self.call(values, out, stream)
        return results[0] if len(results) == 1 else tuple(results)

    def call(self, values: Sequence[Any], out: Optional[Sequence[Any]] = None, stream: Optional[int] = None) -> List:
        """The results as a list."""
        keys = tuple(map(_key, values))
        key = keys if out is None else (keys, tuple(map(_key, out)))
        # The structs are filled in anew by each call: each thread has its own.
        try:
            plans = self._plans.known
        except AttributeError:
            plans = self._plans.known = {}
        plan = plans.get(key)
        if plan is None:
            if len(plans) >= _MAX_PLANS:
                plans.clear()
            plan = plans[key] = self._make_plan(values, out, keys)
        like = next((value for value, k in zip(values, keys) if k is not None), None)
        results = list(out) if out is not None else self._allocate(plan, like)
        for struct, value, known in zip(plan.argument_structs, values, keys):
            if known is not None:
                struct.data = _address(value)
        for index, scalar in plan.scalars:
            scalar.value = values[index]
        for struct, tensor in zip(plan.result_structs, results):
            struct.data = _address(tensor)
        self._run(plan, like, stream)
        return results

    def prepare(self, tensors: Sequence[Any]) -> _Plan:
        """What launch() needs for tensors of PyTorch of these shapes and strides, in one
        thread."""
        plan = self._make_plan(tensors, None, tuple(map(_key, tensors)))
        plan.prepare_for_torch(self, tensors)
        return plan

    def launch(self, plan: _Plan, tensors: Sequence[Any], addresses: Sequence[int]) -> List[Any]:
        """call() with tensors that are known to be as those of the plan, and where they
        are."""
        is_elsewhere = self._cuda and plan.current_device() != plan.device_index
        allocate = plan.allocate_on_device if is_elsewhere else plan.allocate_tensor
        results = []
        for struct, shape, strides, type in plan.outputs:
            tensor = allocate(shape, strides, type)
            struct.data = tensor.data_ptr()
            results.append(tensor)
        for struct, address in zip(plan.argument_structs, addresses):
            struct.data = address
        arguments, outputs = plan.addresses
        if not self._cuda:
            error = _library.attnc_run(self._handle, arguments, outputs, None, 0, None)
        elif is_elsewhere:
            return self._run_cuda(plan, tensors[0], None) or results
        elif not plan.workspace_bytes:
            stream = plan.current_stream(plan.device_index)
            error = _library.attnc_run(self._handle, arguments, outputs, None, 0, stream)
        elif plan.allocate is None or plan.free is None:
            return self._run_cuda(plan, tensors[0], None) or results
        else:
            stream = plan.current_stream(plan.device_index)
            # Freed before it is used: later calls on this stream get it, no others.
            workspace = plan.allocate(plan.workspace_bytes, stream)
            try:
                error = _library.attnc_run(
                    self._handle, arguments, outputs, workspace, plan.workspace_bytes, stream
                )
            finally:
                plan.free(workspace)
        if error:
            _check(error)
        return results

    def _run(self, plan: _Plan, like: Any, stream: Optional[int]) -> None:
        if self._cuda and like is not None:
            return self._run_cuda(plan, like, stream)
        error = _library.attnc_run(self._handle, plan.arguments, plan.results, None, 0, stream)
        if error:
            _check(error)

    def _run_cuda(self, plan: _Plan, like: Any, stream: Optional[int]) -> None:
        import torch

        device = like.get_device()
        if device != torch.cuda.current_device():
            with torch.cuda.device(like.device):
                return self._run_cuda(plan, like, stream)
        if stream is None:
            stream = _current_stream(torch, device)
        workspace = None
        if plan.workspace_bytes:
            # The allocator keeps it for this stream until the call has run.
            workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device=like.device)
        error = _library.attnc_run(
            self._handle,
            plan.arguments,
            plan.results,
            workspace.data_ptr() if workspace is not None else None,
            plan.workspace_bytes,
            stream,
        )
        if error:
            _check(error)
