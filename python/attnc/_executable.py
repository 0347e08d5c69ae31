# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled functions, called with tensors of PyTorch or, on the CPU, arrays of NumPy. Neither is
imported before a result has to be allocated."""

from __future__ import annotations

import ctypes
import threading
from functools import partial
from typing import Any, List, Optional, Sequence, Tuple

from . import _capi
from ._capi import Options, Tensor, check, encode, get_library
from ._errors import Error

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

    def __init__(self, value: _capi.Value) -> None:
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
        self.arguments = (Tensor * max(len(values), 1))()
        for index, (expected, value) in enumerate(zip(executable.arguments, values)):
            if expected.shape is None:
                if keys[index] is not None or expected.type not in _SCALARS:
                    raise Error(f"argument {index}: expected a number of type {expected.type}")
                scalar = _SCALARS[expected.type](value)
                self.scalars.append((index, scalar))
                self.arguments[index].data = ctypes.addressof(scalar)
            else:
                self.fill(self.arguments, index, expected, value, executable._cuda)
        self.results = (Tensor * max(len(executable.results), 1))()
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
    `entry` the function (default `main` or the only one), `pipeline` options such as "block-m=64", `gradient`
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
        lib = self._library = get_library()
        options = Options(
            ctypes.sizeof(Options),
            0,
            encode(entry),
            encode(pipeline),
            encode(cache_directory),
            encode(gradient),
            encode(target),
        )
        handle = ctypes.c_void_p()
        text = ir.encode()
        check(lib.attnc_compile(text, len(text), ctypes.byref(options), ctypes.byref(handle)))
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
            self._library.attnc_executable_destroy(self._handle)
            self._handle = None

    def _make_plan(self, values: Sequence[Any], out: Optional[Sequence[Any]], keys: Sequence[Any]) -> _Plan:
        if len(values) != len(self.arguments):
            raise Error(f"expected {len(self.arguments)} arguments, got {len(values)}")
        plan = _Plan(self, values, keys)
        count = sum(len(result.shape) for result in self.results)
        sizes = (ctypes.c_int64 * max(count, 1))()
        check(self._library.attnc_result_shapes(self._handle, plan.arguments, sizes))
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
        check(self._library.attnc_workspace_bytes(self._handle, plan.arguments, plan.results, ctypes.byref(bytes)))
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
            error = self._library.attnc_run(self._handle, arguments, outputs, None, 0, None)
        elif is_elsewhere:
            return self._run_cuda(plan, tensors[0], None) or results
        elif not plan.workspace_bytes:
            stream = plan.current_stream(plan.device_index)
            error = self._library.attnc_run(self._handle, arguments, outputs, None, 0, stream)
        elif plan.allocate is None or plan.free is None:
            return self._run_cuda(plan, tensors[0], None) or results
        else:
            stream = plan.current_stream(plan.device_index)
            # Freed before it is used: later calls on this stream get it, no others.
            workspace = plan.allocate(plan.workspace_bytes, stream)
            try:
                error = self._library.attnc_run(
                    self._handle, arguments, outputs, workspace, plan.workspace_bytes, stream
                )
            finally:
                plan.free(workspace)
        if error:
            check(error)
        return results

    def _run(self, plan: _Plan, like: Any, stream: Optional[int]) -> None:
        if self._cuda and like is not None:
            return self._run_cuda(plan, like, stream)
        error = self._library.attnc_run(self._handle, plan.arguments, plan.results, None, 0, stream)
        if error:
            check(error)

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
        error = self._library.attnc_run(
            self._handle,
            plan.arguments,
            plan.results,
            workspace.data_ptr() if workspace is not None else None,
            plan.workspace_bytes,
            stream,
        )
        if error:
            check(error)
