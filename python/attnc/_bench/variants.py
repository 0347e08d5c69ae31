# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The variants for PyTorch: what they capture, and their score changes and masks as FlexAttention
takes them. The float64 reference evaluates the same functions on index tensors."""

import torch

from .cases import CAP


def make_captures(case, dtype, device):
    """By name, in the order of the IR's arguments."""
    if case.variant == "alibi":
        slopes = [2.0 ** (-8.0 * (h + 1) / case.heads) for h in range(case.heads)]
        return {"slope": torch.tensor(slopes, dtype=torch.float32, device=device)}
    if case.variant == "documents":
        rows = [[n for n, length in enumerate(lengths) for _ in range(length)]
                for lengths in case.document_lengths()]
        return {"document": torch.tensor(rows, dtype=torch.int32, device=device)}
    if case.variant == "bias":
        return {"bias": torch.randn(case.heads, case.length, case.length, device=device, dtype=dtype)}
    return {}


def score_of(case, captures):
    """(score, b, h, i, j) -> score, or None."""
    if case.variant == "alibi":
        slope = captures["slope"]
        return lambda s, b, h, i, j: s - slope[h] * (i - j).abs()
    if case.variant == "softcap":
        return lambda s, b, h, i, j: CAP * torch.tanh(s / CAP)
    if case.variant == "bias":
        bias = captures["bias"]
        return lambda s, b, h, i, j: s + bias[h, i, j]
    return None


def mask_of(case, captures):
    """(b, h, i, j) -> whether the pair is kept, or None."""
    if case.variant == "causal":
        return lambda b, h, i, j: i >= j
    if case.variant == "window":
        return lambda b, h, i, j: (i >= j) & (i - j < case.window)
    if case.variant == "documents":
        document = captures["document"]
        return lambda b, h, i, j: (document[b, i] == document[b, j]) & (i >= j)
    return None


class Inputs:
    """Normal random Q, K and V, as many copies of them as are more than a cache holds."""

    def __init__(self, case, dtype, device, cache_bytes):
        torch.manual_seed(hash_of(case.name))
        bytes_read = 3 * case.batch * case.heads * case.length * case.d * dtype.itemsize
        self.case = case
        self.dtype, self.device = dtype, device
        self.copies = [tuple(torch.randn(case.shape, device=device).to(dtype) for _ in range(3))
                       for _ in range(max(1, -(-3 * cache_bytes // bytes_read)))]
        self.captures = make_captures(case, dtype, device)


def hash_of(text):
    value = 0
    for letter in text.encode():
        value = (value * 257 + letter) % (2**31 - 1)
    return value
