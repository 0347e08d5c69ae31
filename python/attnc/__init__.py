# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attnc: compiled attention."""

from ._attention import attention
from ._capi import compile_counts, get_num_threads, set_num_threads, targets
from ._errors import Error, TraceError
from ._executable import Executable
from ._inspect import Explanation, Lowered, explain, lower
from ._softmax import softmax


def __getattr__(name: str) -> object:
    # Of PyTorch, which attnc does without.
    if name == "merge_states":
        from ._merge import merge_states

        return merge_states
    if name == "varlen_attention":
        from ._varlen import varlen_attention

        return varlen_attention
    raise AttributeError(f"module 'attnc' has no attribute {name!r}")


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
    "merge_states",
    "set_num_threads",
    "softmax",
    "targets",
    "varlen_attention",
]
