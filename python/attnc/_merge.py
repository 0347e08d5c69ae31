# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention over parts of the keys, put together."""

from __future__ import annotations

from typing import Sequence, Tuple

import torch

from ._attention import check_kind
from ._errors import call_error

_AXES = {"bhsd": (0, 1, 2), "bshd": (0, 2, 1), "thd": (1, 0)}  # of an output, in the order of its LSE


def merge_states(
    outputs: Sequence[torch.Tensor], lses: Sequence[torch.Tensor], *, layout: str = "bhsd"
) -> Tuple[torch.Tensor, torch.Tensor]:
    """(O, LSE) over all keys from those over disjoint parts of them, such as a prefix that requests share and their own.

    outputs: tensors of PyTorch of one shape, (B, H, S, Dv), with layout="bshd" (B, S, H, Dv), with "thd", which is
        varlen_attention's, (T, H, Dv).
    lses: natural logarithms as attention(return_lse=True) gives them, (B, H, S), of "thd" (H, T); -inf where a query
        has no keys in a part.

    O = sum_p exp(LSE_p - LSE) O_p, LSE = log(sum_p exp(LSE_p)), computed in the type of the LSE, O in that of the outputs;
    zeros and -inf for a query without keys in any part. Both have gradients. By operations of PyTorch. Raises Error.
    """
    outputs, lses = list(outputs), list(lses)
    if layout not in _AXES:
        raise call_error(f"expected layout 'bhsd', 'bshd' or 'thd', got {layout!r}")
    if not outputs or len(outputs) != len(lses):
        raise call_error(f"expected as many outputs as LSEs, and one at least, got {len(outputs)} and {len(lses)}")
    axes = _AXES[layout]
    for output, lse in zip(outputs, lses):
        check_kind("an output", output)
        check_kind("an LSE", lse)
        shape = tuple(output.shape)
        if len(shape) != len(axes) + 1 or shape != tuple(outputs[0].shape):
            found = f"{tuple(outputs[0].shape)} and {shape}"
            raise call_error(f"expected outputs of one shape with {len(axes) + 1} dimensions, got {found}")
        if tuple(lse.shape) != tuple(shape[axis] for axis in axes):
            raise call_error(f"expected the LSE of an output of shape {shape}, got one of shape {tuple(lse.shape)}")
    together = torch.stack(lses)
    lse = torch.logsumexp(together, 0)
    # Where there are no keys at all every weight is 0.
    weights = torch.exp(together - torch.where(lse == -torch.inf, 0, lse))
    inverse = sorted(range(len(axes)), key=axes.__getitem__)
    o = sum(
        weight.permute(inverse).unsqueeze(-1) * output.to(weight.dtype) for weight, output in zip(weights, outputs)
    )
    return o.to(outputs[0].dtype), lse


def with_sinks(
    output: torch.Tensor, lse: torch.Tensor, sinks: torch.Tensor
) -> Tuple[torch.Tensor, torch.Tensor]:
    """(O, LSE) of (B, H, S, Dv) and (B, H, S) with a score per head that has a share of each row's weight, and no value."""
    if sinks.numel() != output.shape[1]:
        raise call_error(f"expected one sink for each of {output.shape[1]} heads, got {tuple(sinks.shape)}")
    sinks = sinks.reshape(1, -1, 1).to(lse.dtype)
    return (output * torch.sigmoid(lse - sinks)[..., None]).to(output.dtype), torch.logaddexp(lse, sinks)
