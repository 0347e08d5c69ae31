# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attention(): from arrays, options and Python functions to a call of compiled code."""

from __future__ import annotations

import operator
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ._errors import call_error
from ._functions import function_key
from ._trace import type_name
from ._variant import ALIGNMENTS, DTYPES, Options, Variant, build, few_queries, variant_of

Function = Optional[Callable]
LAYOUTS = ("bhsd", "bshd")


class Bound(NamedTuple):
    """A variant, and the tensors that its functions captured for this call."""

    variant: Variant
    captures: List[Any]


# By options and the keys of functions: the variant, and where its captures are among
# the tensors that the functions reach; None for functions that must be traced again.
_known: Dict[Any, Optional[Tuple[Variant, Tuple[int, ...]]]] = {}


def aliases(tensors: Sequence[Any]) -> Tuple[int, ...]:
    """Which of the tensors are the same: a trace takes them for one."""
    first: Dict[int, int] = {}
    return tuple(first.setdefault(id(tensor), number) for number, tensor in enumerate(tensors))


def bind(options: Options, score_mod: Function, mask_mod: Function) -> Bound:
    """The variant of these options and functions, traced if need be."""
    tensors: List[Any] = []
    score_key, mask_key = function_key(score_mod, tensors), function_key(mask_mod, tensors)
    if score_key is None or mask_key is None:
        text, captures = build(options, score_mod, mask_mod)
        return Bound(variant_of(text), captures)
    key = options, score_key, mask_key, aliases(tensors) if len(tensors) > 1 else ()
    found = _known.get(key, key)
    if found is not key and found is not None:
        variant, positions = found
        captures = [tensors[position] for position in positions]
        if variant.is_for(captures):
            return Bound(variant, captures)
    text, captures = build(options, score_mod, mask_mod)
    bound = Bound(variant_of(text), captures)
    if found is not None:
        where = {id(tensor): number for number, tensor in reversed(list(enumerate(tensors)))}
        # A tensor that the function makes is another one at each call.
        reached = all(id(capture) in where for capture in captures)
        _known[key] = (bound.variant, tuple(where[id(c)] for c in captures)) if reached else None
    return bound


def check_kind(name: str, tensor: Any) -> None:
    """Refuses tensors of PyTorch whose elements do not lie in one piece of memory."""
    if getattr(tensor, "is_nested", False):
        raise call_error(
            f"expected {name} to be a dense tensor, got a nested one: pad its parts, or put them one behind the other "
            "and let mask_mod compare the parts that query and key are of"
        )
    layout = str(getattr(tensor, "layout", "torch.strided"))
    if layout != "torch.strided" or getattr(tensor, "is_quantized", False):
        found = layout if layout != "torch.strided" else "a quantized one"
        raise call_error(f"expected {name} to be a dense tensor, got {found}: use its to_dense() or dequantize()")


def check_inputs(query: Any, key: Any, value: Any, enable_gqa: bool, in_pages: bool = False) -> None:
    """Refuses what no compiled code takes, in the words of the caller."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        check_kind(name, tensor)
        if len(tensor.shape) != 4:
            raise call_error(f"expected {name} to have 4 dimensions, got shape {tuple(tensor.shape)}")
        if tensor.dtype != query.dtype:
            raise call_error(f"expected {name} to be of {type_name(query)} as query is, got {type_name(tensor)}")
    if type_name(query) not in DTYPES:
        raise call_error(f"expected tensors of {', '.join(DTYPES[:-1])} or {DTYPES[-1]}, got {query.dtype}")
    b, h, _, d = query.shape
    if not in_pages and (key.shape[0] != b or value.shape[0] != b):
        raise call_error(f"expected one batch size, got {b}, {key.shape[0]} and {value.shape[0]}")
    if key.shape[3] != d:
        raise call_error(f"expected query and key to have one head dimension, got {d} and {key.shape[3]}")
    if key.shape[1] != value.shape[1] or key.shape[2] != value.shape[2]:
        raise call_error(
            f"expected key and value to have the same heads and length, got {tuple(key.shape)} and "
            f"{tuple(value.shape)}"
        )
    if key.shape[1] != h and not enable_gqa:
        raise call_error(f"expected {h} heads of keys, got {key.shape[1]}: enable_gqa=True shares them among query heads")
    if key.shape[1] != h and (key.shape[1] == 0 or h % key.shape[1]):
        raise call_error(f"expected the query's {h} heads to be a multiple of the key's {key.shape[1]}")


def window_of(window: Any) -> Tuple[int, int]:
    """Two integers, of Python or NumPy, in any sequence."""
    try:
        left, right = (-2 if isinstance(n, bool) else operator.index(n) for n in window)
    except (TypeError, ValueError):
        left = right = -2
    if left < -1 or right < -1:
        raise call_error(f"expected a window (left, right) of integers from -1 (no bound), got {window!r}")
    return left, right


def scale_of(scale: Any) -> float:
    if hasattr(scale, "requires_grad"):
        raise call_error("expected scale to be a number, got a tensor: multiply the scores by it in score_mod")
    if not hasattr(scale, "__float__"):
        raise call_error(f"expected scale to be a number, got {scale!r}")
    return float(scale)


def check_alignment(causal_alignment: Any) -> None:
    if causal_alignment not in ALIGNMENTS:
        raise call_error(f"expected causal_alignment 'top_left' or 'bottom_right', got {causal_alignment!r}")


def flag_of(is_causal: Any) -> bool:
    # Those of NumPy, and of PyTorch's symbolic shapes, are called so too.
    if isinstance(is_causal, int) or type(is_causal).__name__ in ("bool", "bool_", "SymBool"):
        return bool(is_causal)
    raise call_error(f"expected is_causal to be True or False, got {is_causal!r}")


def _adopt(array: Any, name: str) -> Any:
    """A PyTorch tensor or a NumPy array as it is, others by DLPack."""
    if hasattr(array, "data_ptr") or type(array).__module__ == "numpy":
        return array
    if hasattr(array, "__array_interface__") and not hasattr(array, "__dlpack__"):
        import numpy

        return numpy.asarray(array)
    if not hasattr(array, "__dlpack__"):
        raise call_error(f"expected {name} to be a tensor of PyTorch, an array of NumPy, or one with DLPack")
    if array.__dlpack_device__()[0] == 1:  # kDLCPU
        import numpy

        return numpy.from_dlpack(array)
    import torch

    return torch.from_dlpack(array)


def attention_numpy(
    query: Any, key: Any, value: Any, options: Options, score_mod: Function, mask_mod: Function, rng_state: Any = None
) -> Tuple[Any, Any]:
    """(O, LSE) of arrays in the layout (batch, heads, length, dimension)."""
    import numpy

    bound = bind(options, score_mod, mask_mod)
    arguments = [query, key, value, *bound.captures]
    if options.drops:
        if rng_state is None:
            rng_state = numpy.random.default_rng().integers(2**63, size=2, dtype=numpy.int64)
        arguments.append(check_rng_state(rng_state, "an array of NumPy", isinstance(rng_state, numpy.ndarray)))
    for index, argument in enumerate(arguments):
        if not isinstance(argument, numpy.ndarray):
            raise call_error(f"expected NumPy arrays only, got a {type(argument).__name__} among them")
        if argument.ndim == 0:
            argument = argument.reshape(1)
        if argument.shape[-1] > 1 and argument.strides[-1] != argument.itemsize:
            argument = numpy.ascontiguousarray(argument)
        arguments[index] = argument
    executable = bound.variant.for_sizes(query, key, arguments[3:]).forward("cpu")
    results = executable.call(arguments)
    return results[0], results[1]


def check_rng_state(state: Any, kind: str, is_kind: bool) -> Any:
    """A tensor (seed, offset)."""
    if not is_kind or type_name(state) != "int64" or tuple(state.shape) != (2,):
        found = f"{type_name(state)} of shape {tuple(state.shape)}" if is_kind else f"a {type(state).__name__}"
        raise call_error(f"expected rng_state to be {kind} of two int64, (seed, offset), got {found}")
    return state


def dropout_of(dropout_p: Any, rng_state: Any) -> float:
    if hasattr(dropout_p, "requires_grad") or not hasattr(dropout_p, "__float__"):
        raise call_error(f"expected dropout_p to be a number, got a {type(dropout_p).__name__}")
    if rng_state is not None and dropout_p == 0:
        raise call_error("expected no rng_state without dropout (dropout_p=0)")
    return float(dropout_p)


_attention_torch: Any = None


def _load_torch() -> Any:
    """Once there are tensors of PyTorch."""
    global _attention_torch
    from . import _torch

    _attention_torch = _torch.attention
    return _attention_torch


def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    score_mod: Function = None,
    mask_mod: Function = None,
    is_causal: bool = False,
    causal_alignment: str = "top_left",
    window: Optional[Tuple[int, int]] = None,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    deterministic: bool = False,
    precision: str = "ieee",
    dropout_p: float = 0.0,
    rng_state: Any = None,
    layout: str = "bhsd",
) -> Any:
    """softmax(mask(score_mod(scale * Q K^T))) V, compiled for this variant.

    query, key, value: tensors of PyTorch (CPU or CUDA), arrays of NumPy, or others
        with DLPack, of float64, float32, float16 or bfloat16 and of the shapes
        (B, Hq, Sq, D), (B, Hkv, Sk, D) and (B, Hkv, Sk, Dv); with layout="bshd" the
        heads stand behind the length. Any strides; nothing is copied if the
        innermost is 1.
    score_mod(score, b, h, q_idx, kv_idx): the new score of a pair. Scores are float32,
        or float64 where the tensors are, and are scaled already.
    mask_mod(b, h, q_idx, kv_idx): whether a pair counts. A query whose keys are all
        masked gives zeros and an LSE of -inf.
        Both are traced once to code: they may compute with their arguments, with
        Python numbers, and with elements of tensors that they index. Numbers are
        constants of the code; tensors are read anew by each call, and have
        gradients. docs/python.md says what can be traced.
    is_causal: query i sees the keys j <= i; causal_alignment="bottom_right" lets the
        last query see all keys: j <= i + Sk - Sq.
    window: (left, right): the keys from i - left to i + right, both included and on
        the diagonal of causal_alignment; -1 for no bound.
    scale: 1/sqrt(D) where None; a constant of the code.
    enable_gqa: permits fewer heads of keys than of queries.
    return_lse: also returns the natural logarithm of the sum of exponentials per
        query, (B, Hq, Sq), in the type of scores.
    deterministic: the same bits in each run, gradients too. On a CPU they always are;
        on a GPU this takes orders of the gradient's sums that are fixed.
    precision: of products of float32 on a GPU: "ieee" by FMAs; "tf32x3" by three products of the tensor core, with an
        error of up to about twice that; "tf32" by one, whose factors have 10 bits behind the point. Other types, and
        CPUs, have "ieee" alone.
    dropout_p: the probability that a weight is 0 behind the softmax; the others are divided by 1 - p, which is a
        multiple of 2^-32. A constant of the code.
    rng_state: (seed, offset), a tensor of two int64 on the device of the query, read when the kernels run: equal ones
        drop the same pairs, on every device (`attn.random_bits`). None draws them from PyTorch's generator of the
        device, or from NumPy's entropy for arrays. Of dropout alone.

    Returns the output, (B, Hq, Sq, Dv) in the layout of the query, or with return_lse
    a pair. Raises Error, and TraceError for functions that cannot be traced.
    """
    if layout not in LAYOUTS:
        raise call_error(f"expected layout 'bhsd' or 'bshd', got {layout!r}")
    if not (hasattr(query, "data_ptr") and hasattr(key, "data_ptr") and hasattr(value, "data_ptr")):
        query, key, value = _adopt(query, "query"), _adopt(key, "key"), _adopt(value, "value")
        kinds = [type(x).__name__ for x in (query, key, value)]
        if len({hasattr(x, "data_ptr") for x in (query, key, value)}) > 1:
            raise call_error(f"expected query, key and value to be of one library, got {', '.join(kinds)}")
    if window is not None:
        window = window_of(window)
    if scale is not None and type(scale) is not float:
        scale = scale_of(scale)
    if is_causal is not False and is_causal is not True:
        is_causal = flag_of(is_causal)
    if dropout_p != 0.0 or type(dropout_p) is not float or rng_state is not None:
        dropout_p = dropout_of(dropout_p, rng_state)
    check_alignment(causal_alignment)
    swapped = layout == "bshd"
    if swapped:
        query, key, value = (x.swapaxes(1, 2) if len(x.shape) == 4 else x for x in (query, key, value))
    settings = is_causal, causal_alignment, window, scale, deterministic, precision, dropout_p
    if hasattr(query, "data_ptr"):
        attend = _attention_torch or _load_torch()
        o, lse = attend(query, key, value, settings, score_mod, mask_mod, enable_gqa, return_lse, rng_state)
    else:
        check_inputs(query, key, value, enable_gqa)
        options = Options(type_name(query), query.shape[3], value.shape[3], *settings, arrays=True,
                          queries=few_queries(query.shape[2]))
        o, lse = attention_numpy(query, key, value, options, score_mod, mask_mod, rng_state)
    if swapped:
        o = o.swapaxes(1, 2)
    return (o, lse) if return_lse else o


