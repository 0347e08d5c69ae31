# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attnc: compiled attention."""

from ._capi import Error, Executable

__all__ = ["Error", "Executable"]
