# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What attnc raises."""

from __future__ import annotations

import linecache
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


class Error(RuntimeError):
    """What the library says is wrong."""


class TraceError(Error):
    """A Python function that cannot become part of a kernel. The message names
    the line of the user's code."""


def _belongs_to_user(path: str) -> bool:
    if path.startswith(_HERE) or path.startswith("<frozen"):
        return False
    return f"{os.sep}torch{os.sep}" not in path and f"{os.sep}numpy{os.sep}" not in path


def user_line() -> tuple[str, int]:
    """The file and line that called into this package, innermost."""
    frame = sys._getframe(1)
    while frame:
        if _belongs_to_user(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "<unknown>", 0


def trace_error(message: str) -> TraceError:
    """An error at the user's line."""
    path, line = user_line()
    source = linecache.getline(path, line).strip()
    where = f"{path}:{line}: "
    return TraceError(f"{where}{message}" + (f"\n    {source}" if source else ""))
