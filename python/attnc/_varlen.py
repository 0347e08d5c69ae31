# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sequences of unequal lengths, one behind the other in one tensor."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional, Tuple

import torch

from ._attention import attention, check_alignment, check_kind, flag_of, window_of
from ._errors import call_error


class _Tokens(NamedTuple):
    """Of the queries, or of the keys."""

    offsets: torch.Tensor
    # Of each token the number of its sequence, int32; without one that of sequences, and of keys one more.
    sequence: torch.Tensor


def check_integers(name: str, numbers: Any, count: Optional[int], what: str, tokens: torch.Tensor) -> None:
    """A tensor of `count` integers where that is known, described by `what`, beside the tokens."""
    if not isinstance(numbers, torch.Tensor):
        raise call_error(f"expected {name} to be a tensor of PyTorch, got a {type(numbers).__name__}")
    check_kind(name, numbers)
    fits = numbers.dim() == 1 and (numbers.shape[0] > 0 if count is None else numbers.shape[0] == count)
    if not fits or numbers.dtype not in (torch.int32, torch.int64):
        found = f"{numbers.dtype} of shape {tuple(numbers.shape)}"
        raise call_error(f"expected {name} to be int32 or int64 of shape ({what}), got {found}")
    if numbers.device != tokens.device:
        raise call_error(f"expected {name} on {tokens.device}, got {numbers.device}")


def check_offsets(name: str, offsets: Any, tokens: torch.Tensor) -> None:
    check_integers(name, offsets, None, "sequences + 1", tokens)
    if offsets.is_cpu and not torch.compiler.is_compiling():  # elsewhere that would wait for the device
        steps = offsets.diff()
        if int(offsets[0]) != 0 or bool((steps < 0).any()) or int(offsets[-1]) > tokens.shape[0]:
            raise call_error(
                f"expected {name} to begin with 0, not to fall, and to end at up to {tokens.shape[0]} tokens, got "
                f"{offsets.tolist()}"
            )


def _number_tokens(offsets: torch.Tensor, count: int, are_keys: bool) -> torch.Tensor:
    tokens = torch.arange(count, dtype=offsets.dtype, device=offsets.device)
    ends = torch.cat([offsets[1:], offsets[-1:]]) if are_keys else offsets[1:]
    return torch.bucketize(tokens, ends, right=True, out_int32=True)


# On a GPU PyTorch's compiler takes the first boundary of a view for that of what it is a view of.
_opaque = torch.library.custom_op("attnc::number_tokens", _number_tokens, mutates_args=())


@_opaque.register_fake
def _(offsets: Any, count: int, are_keys: bool) -> Any:
    return offsets.new_empty((count,), dtype=torch.int32)


def _number(offsets: torch.Tensor, count: int, are_keys: bool) -> _Tokens:
    number = _opaque if torch.compiler.is_compiling() else _number_tokens
    return _Tokens(offsets, number(offsets, count, are_keys))


def varlen_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: Optional[torch.Tensor] = None,
    *,
    seqused_k: Optional[torch.Tensor] = None,
    score_mod: Optional[Callable] = None,
    mask_mod: Optional[Callable] = None,
    is_causal: bool = False,
    causal_alignment: str = "bottom_right",
    window: Optional[Tuple[int, int]] = None,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    deterministic: bool = False,
    precision: str = "ieee",
    dropout_p: float = 0.0,
    rng_state: Optional[torch.Tensor] = None,
) -> Any:
    """attnc.attention of each sequence of a packed batch, in one call.

    query, key, value: tensors of PyTorch of the shapes (Tq, Hq, D), (Tk, Hkv, D) and (Tk, Hkv, Dv): the tokens of
        all sequences, one sequence behind the other.
    cu_seqlens_q: int32 or int64 of shape (sequences + 1) on the device of the query, beginning with 0 and not
        falling: sequence n has the tokens from cu_seqlens_q[n] to cu_seqlens_q[n + 1]. It is read when the kernels
        run, nothing waits for it, and a captured CUDA graph reads it anew. A sequence may be empty. Tokens behind the
        last one belong to none: they give zeros and an LSE of -inf, and get gradients of zero. Checked on the CPU;
        on a GPU offsets that fall give results without meaning, never an access out of bounds.
    cu_seqlens_k: of the keys; those of the queries where None.
    seqused_k: how many keys of each sequence count, int32 or int64 of shape (sequences); all where None. The others may
        hold anything: keys and values are copied without them.
    score_mod(score, n, h, q_idx, kv_idx), mask_mod(n, h, q_idx, kv_idx): as for attnc.attention, with the number of
        the sequence for the batch and positions in the sequence.
    is_causal, causal_alignment, window: of each sequence by its own lengths. "bottom_right", the default here, lets a
        sequence's last query see all its keys: j <= i + keys - queries.
    return_lse: also returns the LSE, (Hq, Tq).
    What a token holds has to be finite, those behind the last sequence too: sequences that lie side by side share tiles,
    and a weight of 0 times NaN is NaN.
    Others: as for attnc.attention. Dropout takes the numbers of tokens for those of queries and keys, and batch 0.

    Returns the output, (Tq, Hq, Dv), or with return_lse a pair. Raises Error.
    """
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, torch.Tensor):
            raise call_error(f"expected {name} to be a tensor of PyTorch, got a {type(x).__name__}")
        check_kind(name, x)
        if x.dim() != 3:
            raise call_error(f"expected {name} of shape (tokens, heads, d), got {tuple(x.shape)}")
    if key.shape[0] != value.shape[0]:
        raise call_error(f"expected as many tokens of keys as of values, got {key.shape[0]} and {value.shape[0]}")
    check_alignment(causal_alignment)
    is_causal = flag_of(is_causal)
    left, right = (-1, -1) if window is None else window_of(window)
    if is_causal:
        right = 0
    check_offsets("cu_seqlens_q", cu_seqlens_q, query)
    is_self = cu_seqlens_k is None or cu_seqlens_k is cu_seqlens_q
    if is_self:
        if query.shape[0] != key.shape[0]:
            found = f"{query.shape[0]} and {key.shape[0]}"
            raise call_error(f"expected cu_seqlens_k where there are not as many keys as queries ({found})")
        cu_seqlens_k = cu_seqlens_q
    else:
        check_offsets("cu_seqlens_k", cu_seqlens_k, key)
        if cu_seqlens_k.shape != cu_seqlens_q.shape:
            found = f"{tuple(cu_seqlens_q.shape)} and {tuple(cu_seqlens_k.shape)}"
            raise call_error(f"expected cu_seqlens_q and cu_seqlens_k of one shape, got {found}")
    sequences = cu_seqlens_q.shape[0] - 1
    if seqused_k is not None:
        check_integers("seqused_k", seqused_k, sequences, f"{sequences},", query)

    rows = _number(cu_seqlens_q, query.shape[0], are_keys=False)
    columns = _number(cu_seqlens_k, key.shape[0], are_keys=True)
    numbers = columns.sequence
    if sequences == 0:
        left = right = -1
        seqused_k = None
    ends = cu_seqlens_k[1:]
    if seqused_k is not None:
        ends = torch.minimum(cu_seqlens_k[:-1] + seqused_k, ends)
        token = torch.arange(key.shape[0], dtype=torch.int32, device=key.device)
        used = token < ends[numbers.clamp(max=sequences - 1)]
        columns = columns._replace(sequence=torch.where(used, numbers, sequences + 1))
        # A weight of 0 times what is not finite would count.
        key, value = (torch.where(used[:, None, None], x, 0) for x in (key, value))
    diagonal = None  # the key that a query is aligned with
    if (left >= 0 or right >= 0) and not (is_self and (seqused_k is None or causal_alignment == "top_left")):
        ahead = cu_seqlens_k[:-1] - cu_seqlens_q[:-1] if causal_alignment == "top_left" else ends - cu_seqlens_q[1:]
        token = torch.arange(query.shape[0], dtype=torch.int32, device=query.device)
        diagonal = token + ahead.to(torch.int32)[rows.sequence.clamp(max=sequences - 1)]

    inside = None
    if score_mod is not None or mask_mod is not None:
        in_sequence = _in_sequence(rows, None if is_self else columns._replace(sequence=numbers))
        inside = None if mask_mod is None else in_sequence(lambda _, *places: mask_mod(*places))
        score_mod = None if score_mod is None else in_sequence(score_mod)
    o, lse = attention(
        query.transpose(0, 1).unsqueeze(0),
        key.transpose(0, 1).unsqueeze(0),
        value.transpose(0, 1).unsqueeze(0),
        score_mod=score_mod,
        mask_mod=_mask(rows, columns, diagonal, left, right, inside),
        scale=scale,
        enable_gqa=enable_gqa,
        return_lse=True,
        deterministic=deterministic,
        precision=precision,
        dropout_p=dropout_p,
        rng_state=rng_state,
    )
    o = o.squeeze(0).transpose(0, 1)
    return (o, lse.squeeze(0)) if return_lse else o


def _starts(tokens: _Tokens) -> torch.Tensor:
    """Of each token, int32, the first one of its sequence; the token itself without one."""
    offsets = tokens.offsets.to(torch.int32)
    token = torch.arange(tokens.sequence.shape[0], dtype=torch.int32, device=offsets.device)
    starts = offsets[tokens.sequence.clamp(max=offsets.shape[0] - 1)]
    return torch.where(token < offsets[-1], starts, token)


def _in_sequence(rows: _Tokens, columns: Optional[_Tokens]) -> Callable:
    """Makes of functions of positions in a sequence, with its number for the batch, functions of tokens. Without
    `columns` keys are the tokens of queries."""
    sequence = rows.sequence.clamp(max=max(rows.offsets.shape[0] - 2, 0))
    first_query = _starts(rows)
    first_key = first_query if columns is None else _starts(columns)

    def convert(function: Callable) -> Callable:
        def of_tokens(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
            n, i, j = sequence[q_idx], q_idx - first_query[q_idx], kv_idx - first_key[kv_idx]
            return function(score, n, h, i, j)

        return of_tokens

    return convert


def _mask(
    rows: _Tokens, columns: _Tokens, diagonal: Optional[torch.Tensor], left: int, right: int, function: Optional[Callable]
) -> Callable:
    of_queries, of_keys = rows.sequence, columns.sequence
    bounded = left >= 0 or right >= 0
    has_diagonal = diagonal is not None

    def keep(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        kept = of_queries[q_idx] == of_keys[kv_idx]
        if bounded:
            place = diagonal[q_idx] if has_diagonal else q_idx
            if left >= 0:
                kept = kept & (kv_idx >= place - left)
            if right >= 0:
                kept = kept & (kv_idx <= place + right)
        if function is not None:
            kept = kept & function(None, b, h, q_idx, kv_idx)
        return kept

    return keep
