# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of scores and masks as users of FlexAttention write them: those of its documentation,
of its tests and of collections of examples, and one for each function of PyTorch that a score may
meet. Each has a name, captures, and a maker that gets the captures."""

from __future__ import annotations

# In this order: tests number the functions.
import flex_scores
import flex_masks
import flex_operators
from flex_registry import FUNCTIONS, Function, Sizes, names

__all__ = ["FUNCTIONS", "Function", "Sizes", "flex_masks", "flex_operators", "flex_scores", "names"]
