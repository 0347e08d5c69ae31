# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What attnc raises."""

from __future__ import annotations

import linecache
import sys
import types
from typing import Callable, Optional

class Error(RuntimeError):
    """What the library says is wrong."""


class TraceError(Error):
    """A Python function that cannot become part of a kernel. The message names
    the line of the user's code."""


_NOT_USERS = {"attnc", "torch", "numpy", "contextlib", "functools", "importlib"}


def is_user(frame: types.FrameType) -> bool:
    """Whether a frame runs the user's code."""
    return frame.f_globals.get("__name__", "").partition(".")[0] not in _NOT_USERS


def user_line() -> tuple[str, int]:
    """The file and line that called into this package, innermost."""
    frame: Optional[types.FrameType] = sys._getframe(1)
    while frame:
        if is_user(frame):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "<unknown>", 0


def _at_user_line(message: str) -> str:
    path, line = user_line()
    source = linecache.getline(path, line).strip()
    return f"{path}:{line}: {message}" + (f"\n    {source}" if source else "")


def trace_error(message: str) -> TraceError:
    """An error at the user's line."""
    return TraceError(_at_user_line(message))


# Whether PyTorch's compiler reads the program: it has no frames. Set where there is PyTorch.
is_compiling: Callable[[], bool] = lambda: False


def call_error(message: str) -> Error:
    """Likewise of a call that is wrong."""
    return Error(message if is_compiling() else _at_user_line(message))
