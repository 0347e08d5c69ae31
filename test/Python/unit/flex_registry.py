# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a function of a score or a mask is to the tests of FlexAttention's functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

INF = float("inf")
FLOAT16 = (torch.bfloat16, torch.float16)


@dataclass
class Sizes:
    """What captures are made for."""

    b: int
    h: int
    s: int
    t: int
    dtype: torch.dtype
    generator: torch.Generator

    def normal(self, *shape: int) -> torch.Tensor:
        """In the type of the inputs; it has a gradient."""
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(self.dtype)

    def scores(self, *shape: int) -> torch.Tensor:
        """In the type of scores; it has a gradient."""
        return self.of(torch.float64 if self.dtype == torch.float64 else torch.float32, *shape)

    def of(self, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(dtype)

    def integers(self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=self.generator).to(dtype)

    def documents(self, length: int) -> torch.Tensor:
        """The document of each place; the first ones are short."""
        return (torch.arange(length) / 7).sqrt().to(torch.int32)


Make = Callable[[Sizes], Dict[str, torch.Tensor]]


@dataclass
class Function:
    name: str
    make: Callable[..., Callable]  # of the captures, by their names
    captures: Make
    is_mask: bool = False
    # It reads sizes besides: `make` gets them, too.
    of_sizes: bool = False
    # Types of inputs that it is not defined for.
    without: Tuple[torch.dtype, ...] = ()  # or that it leaves for a coarser one
    # PyTorch's compiler cannot read it: there indices have one element.
    eager_only: bool = False
    # What the message says where it is refused as expected.
    refused: Optional[str] = None


FUNCTIONS: Dict[str, Function] = {}


def _add(name: str, make: Callable, is_mask: bool, captures: Make, options: Dict[str, Any]) -> None:
    assert name not in FUNCTIONS, name
    FUNCTIONS[name] = Function(name, make, captures, is_mask, **options)


def score(name: str, make: Callable, captures: Make = lambda z: {}, **options: Any) -> None:
    _add(name, make, False, captures, options)


def mask(name: str, make: Callable, captures: Make = lambda z: {}, **options: Any) -> None:
    _add(name, make, True, captures, options)


def names(kind: Optional[bool] = None) -> List[str]:
    """Of all functions, or of those that are masks, or not."""
    return [name for name, function in FUNCTIONS.items() if kind in (None, function.is_mask)]
