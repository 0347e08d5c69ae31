# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attnc: compiled attention."""

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING, Any

from ._attention import attention
from ._capi import compile_counts, get_num_threads, set_num_threads, targets
from ._errors import Error, TraceError
from ._executable import Executable
from ._inspect import Explanation, Lowered, explain, lower
from ._softmax import softmax

# Of PyTorch, which attnc does without: imported when they are asked for.
_OF_TORCH = {
    "append_kv": "_paged",
    "merge_states": "_merge",
    "paged_attention": "_paged",
    "varlen_attention": "_varlen",
}

if TYPE_CHECKING:
    from ._merge import merge_states as merge_states
    from ._paged import append_kv as append_kv
    from ._paged import paged_attention as paged_attention
    from ._varlen import varlen_attention as varlen_attention


def __getattr__(name: str) -> Any:
    if name not in _OF_TORCH:
        raise AttributeError(f"module 'attnc' has no attribute {name!r}")
    return getattr(_import_module(f".{_OF_TORCH[name]}", __name__), name)


__all__ = [
    "Error",
    "Executable",
    "Explanation",
    "Lowered",
    "TraceError",
    "attention",
    "compile_counts",
    "explain",
    "get_num_threads",
    "lower",
    "set_num_threads",
    "softmax",
    "targets",
]
if _find_spec("torch") is not None:
    __all__ += list(_OF_TORCH)
