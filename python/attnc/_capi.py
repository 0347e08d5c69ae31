# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Executables through the C API (attn-c/attnc.h), called with tensors of PyTorch
or, on the CPU, arrays of NumPy.

The library is the one that ATTNC_LIBRARY names, else libattnc.so beside this file
or where the system looks. Neither PyTorch nor NumPy is imported before a result
has to be allocated.
"""

import ctypes
import os

_API_VERSION = 1
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


class Error(RuntimeError):
    """What the library says is wrong."""


class _Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("target", ctypes.c_int),
        ("entry", ctypes.c_char_p),
        ("pipeline", ctypes.c_char_p),
        ("cache_directory", ctypes.c_char_p),
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


def _load():
    path = os.environ.get("ATTNC_LIBRARY")
    if not path:
        beside = os.path.join(os.path.dirname(__file__), "libattnc.so")
        path = beside if os.path.exists(beside) else "libattnc.so.1"
    library = ctypes.CDLL(path)
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    for name, result, arguments in (
        ("api_version", ctypes.c_int, []),
        ("error_message", ctypes.c_char_p, [pointer]),
        ("error_destroy", None, [pointer]),
        ("compile", pointer, [ctypes.c_char_p, size, pointer, pointer]),
        ("executable_destroy", None, [pointer]),
        ("num_arguments", size, [pointer]),
        ("num_results", size, [pointer]),
        ("argument", _Value, [pointer, size]),
        ("result", _Value, [pointer, size]),
        ("result_shapes", pointer, [pointer, pointer, pointer]),
        ("workspace_bytes", pointer, [pointer, pointer, pointer, pointer]),
        ("run", pointer, [pointer, pointer, pointer, pointer, size, pointer]),
    ):
        function = getattr(library, "attnc_" + name)
        function.restype = result
        function.argtypes = arguments
    if library.attnc_api_version() < _API_VERSION:
        raise Error(f"{path} has API version {library.attnc_api_version()}, expected {_API_VERSION}")
    return library


_library = None


def _check(error):
    if error:
        message = _library.attnc_error_message(error).decode()
        _library.attnc_error_destroy(error)
        raise Error(message)


def _is_torch(tensor):
    return hasattr(tensor, "data_ptr")


def _key(value):
    """What a plan depends on: all but the addresses."""
    if hasattr(value, "data_ptr"):
        return value.shape, value.stride(), value.dtype, value.get_device()
    if hasattr(value, "__array_interface__"):
        return value.shape, value.strides, value.dtype.str
    return None


def _address(tensor):
    if hasattr(tensor, "data_ptr"):
        return tensor.data_ptr()
    return tensor.__array_interface__["data"][0]


class Value:
    """An argument or a result: its type's name, and sizes, -1 where any is
    accepted; the shape of a scalar is None."""

    def __init__(self, value):
        self.type = _TYPES[value.type]
        self.shape = None if value.rank < 0 else tuple(value.shape[: value.rank])

    def __repr__(self):
        return f"Value({self.type!r}, {self.shape})"


class _Plan:
    """The C structs of calls with tensors of certain shapes and strides."""

    def __init__(self, executable, values, keys):
        self.keep = []  # arrays that the structs point to
        self.scalars = []
        self.arguments = (_Tensor * max(len(values), 1))()
        for index, (expected, value) in enumerate(zip(executable.arguments, values)):
            if expected.shape is None:
                if keys[index] is not None or expected.type not in _SCALARS:
                    raise Error(f"argument {index}: expected a number of type {expected.type}")
                scalar = _SCALARS[expected.type](value)
                self.scalars.append((index, scalar))
                self.arguments[index].data = ctypes.addressof(scalar)
            else:
                self._fill(self.arguments, index, expected, value, executable._cuda)
        self.results = (_Tensor * max(len(executable.results), 1))()

    def _fill(self, structs, index, expected, tensor, cuda):
        if _key(tensor) is None:
            raise Error(f"argument {index}: expected a tensor")
        name = str(tensor.dtype).rsplit(".", 1)[-1]
        if name != expected.type or len(tensor.shape) != len(expected.shape):
            raise Error(
                f"expected a {expected.type} tensor of {len(expected.shape)} dimensions "
                f"at {index}, got {name} of {len(tensor.shape)}"
            )
        if cuda != (_is_torch(tensor) and tensor.is_cuda):
            raise Error(f"expected the tensor at {index} to be on the {'GPU' if cuda else 'CPU'}")
        shape = tuple(tensor.shape)
        if _is_torch(tensor):
            strides = tensor.stride()
        else:
            strides = tuple(stride // tensor.itemsize for stride in tensor.strides)
        self._describe(structs, index, shape, strides)

    def _describe(self, structs, index, shape, strides):
        array = (ctypes.c_int64 * max(len(shape), 1))
        sizes, steps = array(*shape), array(*strides)
        self.keep += [sizes, steps]
        structs[index].shape, structs[index].strides = sizes, steps


class Executable:
    """A compiled function.

    `ir` is MLIR as text, `target` "cuda" or "cpu", `entry` the function (default
    `main` or the only one), `pipeline` options such as "row-tile=64". Calls take
    tensors and numbers by position and return the results; one executable serves
    all shapes and strides that its types leave open.
    """

    def __init__(self, ir, target="cuda", entry=None, pipeline=None, cache_directory=None):
        global _library
        self._handle = None
        if _library is None:
            _library = _load()
        if target not in ("cpu", "cuda"):
            raise Error(f"expected target 'cpu' or 'cuda', got {target!r}")
        encode = lambda text: None if text is None else os.fsencode(text)
        self._cuda = target == "cuda"
        options = _Options(
            ctypes.sizeof(_Options), int(self._cuda), encode(entry), encode(pipeline), encode(cache_directory)
        )
        handle = ctypes.c_void_p()
        text = ir.encode()
        _check(_library.attnc_compile(text, len(text), ctypes.byref(options), ctypes.byref(handle)))
        self._handle = handle
        lib = _library
        self.arguments = [Value(lib.attnc_argument(handle, i)) for i in range(lib.attnc_num_arguments(handle))]
        self.results = [Value(lib.attnc_result(handle, i)) for i in range(lib.attnc_num_results(handle))]
        self._plans = {}

    def __del__(self):
        if self._handle:
            _library.attnc_executable_destroy(self._handle)
            self._handle = None

    def _make_plan(self, values, out, keys):
        if len(values) != len(self.arguments):
            raise Error(f"expected {len(self.arguments)} arguments, got {len(values)}")
        plan = _Plan(self, values, keys)
        count = sum(len(result.shape) for result in self.results)
        sizes = (ctypes.c_int64 * max(count, 1))()
        _check(_library.attnc_result_shapes(self._handle, plan.arguments, sizes))
        plan.shapes, start = [], 0
        for result in self.results:
            plan.shapes.append(tuple(sizes[start : start + len(result.shape)]))
            start += len(result.shape)
        if out is not None:
            if len(out) != len(self.results):
                raise Error(f"expected {len(self.results)} results, got {len(out)}")
            for index, (expected, tensor) in enumerate(zip(self.results, out)):
                plan._fill(plan.results, index, expected, tensor, self._cuda)
        else:
            for index, shape in enumerate(plan.shapes):
                strides, step = [], 1
                for size in reversed(shape):
                    strides.insert(0, step)
                    step *= size
                plan._describe(plan.results, index, shape, strides)
        bytes = ctypes.c_size_t()
        _check(_library.attnc_workspace_bytes(self._handle, plan.arguments, plan.results, ctypes.byref(bytes)))
        plan.workspace_bytes = bytes.value
        return plan

    def _allocate(self, plan, like):
        if like is not None and _is_torch(like):
            import torch

            return [
                torch.empty(shape, dtype=getattr(torch, result.type), device=like.device)
                for result, shape in zip(self.results, plan.shapes)
            ]
        import numpy

        return [
            numpy.empty(shape, dtype="bool" if result.type == "bool" else result.type)
            for result, shape in zip(self.results, plan.shapes)
        ]

    def __call__(self, *values, out=None, stream=None):
        """Calls the function; `out` gives tensors for all results. On the GPU the
        call goes to `stream` (an address), or PyTorch's current one, and returns
        before it has run."""
        keys = tuple(map(_key, values))
        key = keys, tuple(map(_key, out)) if out is not None else None
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._make_plan(values, out, keys)
        like = next((value for value, k in zip(values, keys) if k is not None), None)
        results = list(out) if out is not None else self._allocate(plan, like)
        for index, value in enumerate(values):
            if keys[index] is not None:
                plan.arguments[index].data = _address(value)
        for index, scalar in plan.scalars:
            scalar.value = values[index]
        for index, tensor in enumerate(results):
            plan.results[index].data = _address(tensor)
        self._run(plan, like, stream)
        return results[0] if len(results) == 1 else tuple(results)

    def _run(self, plan, like, stream):
        workspace = None
        if self._cuda and like is not None:
            import torch

            if like.get_device() != torch.cuda.current_device():
                with torch.cuda.device(like.device):
                    return self._run(plan, like, stream)
            if stream is None:
                stream = torch.cuda.current_stream().cuda_stream
            if plan.workspace_bytes:
                # The allocator keeps it for this stream until the call has run.
                workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device=like.device)
        _check(
            _library.attnc_run(
                self._handle,
                plan.arguments,
                plan.results,
                workspace.data_ptr() if workspace is not None else None,
                plan.workspace_bytes,
                stream,
            )
        )
