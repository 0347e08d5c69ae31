# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attnc: compiled attention."""

from ._attention import attention
from ._capi import Executable, compile_counts, get_num_threads, set_num_threads
from ._errors import Error, TraceError

__all__ = ["attention", "Error", "Executable", "TraceError", "compile_counts", "get_num_threads", "set_num_threads"]
