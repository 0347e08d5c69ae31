# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A variant of attention at one shape, and its work. Needs no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import List, Tuple

VARIANTS = ("full", "causal", "window", "documents", "alibi", "softcap", "bias")
DOCUMENTS, CAP = 8, 8.0


@dataclass(frozen=True)
class Case:
    variant: str
    d: int
    length: int
    batch: int
    heads: int
    # Keys up to the query itself, of the variant of this name.
    window: int = 1024

    @property
    def name(self) -> str:
        return f"d{self.d}-s{self.length}-{self.variant}"

    @property
    def shape(self) -> Tuple[int, int, int, int]:
        return self.batch, self.heads, self.length, self.d

    def document_lengths(self) -> List[List[int]]:
        """Per batch element, the lengths of its documents, at random."""
        random, result = Random(self.length), []
        for _ in range(self.batch):
            cuts = sorted(random.sample(range(1, self.length), min(DOCUMENTS, self.length) - 1))
            result.append([b - a for a, b in zip([0] + cuts, cuts + [self.length])])
        return result

    def pairs(self) -> float:
        """Kept pairs of query and key, of one head of all batch elements. Causal counts as exactly
        half of all."""
        s = self.length
        if self.variant == "causal":
            return self.batch * s * s / 2
        if self.variant == "window":
            return self.batch * sum(min(i + 1, self.window) for i in range(s))
        if self.variant == "documents":
            return sum(n * (n + 1) // 2 for lengths in self.document_lengths() for n in lengths)
        return self.batch * s * s

    def flops(self) -> float:
        """Of the forward; a backward counts as 2.5 times as many."""
        return 4 * self.heads * self.d * self.pairs()
