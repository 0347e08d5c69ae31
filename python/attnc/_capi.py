# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of the C API (attn-c/attnc.h): finding the library, what it takes and returns, its
errors as exceptions, and those functions that need no tensors. Executables are in _executable.py.

The library is the one that ATTNC_LIBRARY names, else libattnc.so beside this file,
in the newest build of the source tree, or where the system looks. Neither PyTorch nor
NumPy is imported before a result has to be allocated.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Dict, List, Optional, Tuple

from ._errors import Error

_API_VERSION = 3


class Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("target", ctypes.c_int),
        ("entry", ctypes.c_char_p),
        ("pipeline", ctypes.c_char_p),
        ("cache_directory", ctypes.c_char_p),
        ("gradient", ctypes.c_char_p),
        ("target_name", ctypes.c_char_p),
    ]


class Value(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
    ]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    ]


class Counts(ctypes.Structure):
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
    try:
        version = library.attnc_api_version()
    except AttributeError:
        raise Error(f"{path} is no libattnc: it has no function attnc_api_version") from None
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
        ("argument", Value, [pointer, size]),
        ("result", Value, [pointer, size]),
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
        ("explain", pointer, [ctypes.c_char_p, size, ctypes.c_char_p, ctypes.c_char_p, pointer, pointer]),
        ("emit_ptx", pointer, [ctypes.c_char_p, size, pointer, pointer]),
    ):
        function = getattr(library, "attnc_" + name)
        function.restype = result
        function.argtypes = arguments
    return library


_library: Any = None
_library_lock = threading.Lock()


def get_library() -> Any:
    global _library
    if _library is None:
        with _library_lock:
            if _library is None:
                _library = _load()
    return _library


def api_version() -> int:
    """That of the library, as include/attn-c/attnc.h counts."""
    return get_library().attnc_api_version()


def check(error: Optional[int]) -> None:
    if error:
        message = _library.attnc_error_message(error).decode()
        _library.attnc_error_destroy(error)
        raise Error(message)


def encode(text: Optional[str]) -> Optional[bytes]:
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
    counts = Counts(ctypes.sizeof(Counts))
    get_library()
    check(_library.attnc_get_counts(ctypes.byref(counts)))
    return {"compiled": counts.compiled, "from_disk": counts.from_disk, "from_memory": counts.from_memory}


def set_num_threads(threads: int) -> None:
    """Threads that calls on the CPU share; 0 for one per hardware thread."""
    if threads < 0:
        raise Error(f"expected a number of threads, got {threads}")
    get_library().attnc_set_num_threads(threads)


def get_num_threads() -> int:
    return get_library().attnc_num_threads()


def take_tile_counts() -> Tuple[int, int]:
    """Tiles visited since the last call by executables with the option count-tiles: with
    mask arithmetic, and without."""
    masked, full = ctypes.c_int64(), ctypes.c_int64()
    get_library().attnc_take_tile_counts(ctypes.byref(masked), ctypes.byref(full))
    return masked.value, full.value


def transform(ir: str, pipeline: str, passes: str = "") -> Tuple[str, str]:
    """Runs passes, such as "builtin.module(attn-tile-pipeline)", on a module's text. The
    new text, and what the passes remarked; those whose names match the regular expression
    `passes`, if it is not empty, also remark what they did."""
    get_library()
    result, said, text = ctypes.c_void_p(), ctypes.c_void_p(), ir.encode()
    results = ctypes.byref(result), ctypes.byref(said)
    if passes:
        error = _library.attnc_explain(text, len(text), pipeline.encode(), passes.encode(), *results)
    else:
        error = _library.attnc_transform(text, len(text), pipeline.encode(), *results)
    remarks = _take_text(said)
    try:
        check(error)
    except Error as problem:
        raise Error(f"{problem}: {remarks.strip()}") from None
    return _take_text(result), remarks


def targets() -> List[str]:
    """The targets that the library compiles for, by name."""
    library = get_library()
    return [library.attnc_target_name(index).decode() for index in range(library.attnc_num_targets())]


def emit_ptx(
    ir: str,
    entry: Optional[str] = None,
    gradient: Optional[str] = None,
    pipeline: Optional[str] = None,
    cache_directory: Optional[str] = None,
    target: Optional[str] = None,
) -> str:
    """PTX of a function's kernels for a target, or for the GPU at hand; needs no GPU."""
    get_library()
    cache = encode(cache_directory)
    options = Options(ctypes.sizeof(Options), 1, encode(entry), encode(pipeline), cache, encode(gradient), encode(target))
    result, text = ctypes.c_void_p(), ir.encode()
    check(_library.attnc_emit_ptx(text, len(text), ctypes.byref(options), ctypes.byref(result)))
    return _take_text(result)
