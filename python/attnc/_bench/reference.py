# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention in float64, and how far results are from it."""

import torch

from .variants import mask_of, score_of

# Scores that are held at a time.
CHUNK = 2**26
# Of the relative Frobenius norm of O's error. Rounding O alone gives about 1.7e-3 (bf16), rounding
# the probabilities about as much again, independently. Sums and exponentials in float32 make more
# of their 24 bits.
RELATIVE = {torch.bfloat16: 3e-3, torch.float16: 4e-4, torch.float32: 3e-6}
# Of each row, by its own norm. Rows that see few keys are a hundred times larger than others, and
# hide them in the norm of the whole.
ROW = {kind: 3 * limit for kind, limit in RELATIVE.items()}
# Of the absolute error of the log-sum-exp, which is float32 throughout.
LSE = 1e-4


def _attend(q, k, v, score, mask, index):
    """Every intermediate is of q's type."""
    s = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    if score:
        s = score(s, *index).to(q.dtype)
    if mask:
        s = s.masked_fill(~mask(*index), float("-inf"))
    return torch.softmax(s, -1) @ v, torch.logsumexp(s, -1)


def _chunks(case, count):
    """(batch element, slice of heads, slice of `count` rows)"""
    heads = min(case.heads, max(1, CHUNK // (count * case.length)))
    rows = min(count, max(1, CHUNK // (case.length * heads)))
    for b in range(case.batch):
        for h in range(0, case.heads, heads):
            for i in range(0, count, rows):
                yield b, slice(h, min(h + heads, case.heads)), slice(i, min(i + rows, count))


class Reference:
    """O and LSE of each `step`-th row, and the last, in float64; and what the definition gives when
    every intermediate is rounded to the inputs' type, whose error is the measure for others'."""

    def __init__(self, case, q, k, v, captures, step=1):
        device = q.device
        wide = {name: x.double() if x.is_floating_point() else x for name, x in captures.items()}
        both = [(score_of(case, c), mask_of(case, c)) for c in (wide, captures)]
        self.all = step == 1
        self.rows = torch.tensor(sorted({*range(0, case.length, step), case.length - 1}), device=device)
        shape = case.batch, case.heads, len(self.rows), case.d
        self.o = torch.empty(shape, dtype=torch.float64, device=device)
        self.lse = torch.empty(shape[:3], dtype=torch.float64, device=device)
        self.plain = torch.empty(shape, dtype=q.dtype, device=device)
        range_of = lambda part: torch.arange(part.start, part.stop, device=device)
        j = torch.arange(case.length, device=device)[None, None, :]
        for b, h, i in _chunks(case, len(self.rows)):
            rows = self.rows[i]
            index = torch.tensor(b, device=device), range_of(h)[:, None, None], rows[None, :, None], j
            parts = q[b, h][:, rows], k[b, h], v[b, h]
            self.o[b, h, i], self.lse[b, h, i] = _attend(*(x.double() for x in parts), *both[0], index)
            self.plain[b, h, i] = _attend(*parts, *both[1], index)[0]
        self.row_norms = self.o.norm(dim=-1)
        self.largest = self.o.abs().max().item()
        self.plain_error = (self.plain.double() - self.o).abs().max().item()
        # Two roundings of the largest element.
        self.allowed = 2 * self.plain_error + torch.finfo(q.dtype).eps * self.largest

    def judge(self, o, lse=None):
        """The errors, and `why` not good enough (empty: it is)."""
        o = o if self.all else o[:, :, self.rows]
        lse = lse if self.all or lse is None else lse[:, :, self.rows]
        difference = o.double() - self.o
        rows = difference.norm(dim=-1)
        errors = {"relative": (rows.norm() / self.row_norms.norm()).item(), "row": (rows / self.row_norms).max().item(),
                  "max": difference.abs().max().item(), "max_allowed": self.allowed}
        limits = [("relative", RELATIVE[o.dtype]), ("row", ROW[o.dtype]), ("max", self.allowed)]
        if lse is not None:
            errors["lse"] = (lse.double() - self.lse).abs().max().item()
            limits.append(("lse", LSE))
        # NaN is not at most anything.
        errors["why"] = ", ".join(f"{name} error {errors[name]:.2e}, allowed {limit:.2e}"
                                  for name, limit in limits if not errors[name] <= limit)
        return errors
