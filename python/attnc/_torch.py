# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls with tensors of PyTorch: autograd, autocast, and little time per call.

There are three roads to the same compiled code. Plain tensors take an
autograd.Function, which costs the least. Tensors of a tracer, and calls under a
dispatch mode, take the operators of _torch_ops.py, and calls under the transforms
of torch.func the functions of _transforms.py.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import zip_longest
from threading import get_ident
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from . import _errors
from ._attention import aliases, bind, check_inputs, check_kind, check_rng_state
from ._errors import call_error
from ._functions import function_key
from ._torch_ops import (
    check_devices,
    device_of,
    forward_op,
    has_tangents,
    is_forward_mode,
    is_reachable,
    needs_threads,
    program_of,
    run_backward,
    run_forward,
    scalar_shapes,
    usable,
)
from ._variant import Gradient, Options, Variant, few_queries, packed_group

_errors.is_compiling = torch.compiler.is_dynamo_compiling
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_stride_of, _address_of = torch.Tensor.stride, torch.Tensor.data_ptr
_TYPE_NAMES = {
    torch.float64: "float64",
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}
_number_of_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_functorch_level = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: None)


class Packed(NamedTuple):
    """Queries of heads of a group as rows of one head, (batch, query heads / group, group * queries, d)."""

    heads: Tuple[int, int, int]  # batch, query heads, queries
    group: int

    @staticmethod
    def of(query: torch.Tensor, group: int) -> Packed:
        return Packed(tuple(query.shape[:3]), group)

    def rows(self, query: torch.Tensor) -> torch.Tensor:
        """A view where heads lie one behind the other, else a copy."""
        batch, heads, queries = self.heads
        return query.reshape(batch, heads // self.group, self.group * queries, query.shape[3])

    def unpack(self, results: Sequence[torch.Tensor]) -> Tuple[torch.Tensor, torch.Tensor]:
        o, lse = results
        return o.reshape(*self.heads, o.shape[3]), lse.reshape(self.heads)


class _PreparedGradient(NamedTuple):
    """Of a prepared call, by one thread."""

    gradient: Gradient
    plan: Any
    # Strides and types of the saved tensors.
    strides: List[Tuple[int, ...]]
    types: List[torch.dtype]
    # Per input of the function, None or which result is its gradient; None for all of
    # them, where the first tensors have the results for gradients, and `rest` has none.
    places: Optional[List[Optional[int]]]
    rest: Tuple[None, ...]
    # Results whose inputs have no dimensions.
    scalars: List[int]


class _Prepared:
    """A call with tensors of certain types, shapes and strides, all of which the
    compiled code takes as they lie, by one thread: nothing but addresses is left to be
    found out."""

    def __init__(
        self,
        variant: Variant,
        inputs: Sequence[torch.Tensor],
        positions: Tuple[int, ...],
        packed: Optional[Packed] = None,
    ) -> None:
        # Of captures, among the tensors that the functions reach.
        self.variant, self.positions, self.packed = variant, positions, packed
        self.device = device_of(inputs[0])
        # Bits of an address that have to be 0.
        self.misaligned = 15 if self.device == "cuda" else 0
        self.executable = variant.forward(self.device)
        self.plan = self.executable.prepare([usable(x) for x in inputs])
        # By thread, for autograd has threads of its own; by what is wanted; by how dO lies.
        self.backward: Dict[Any, Optional[_PreparedGradient]] = {}

    def forward(self, inputs: Sequence[torch.Tensor], addresses: Optional[List[int]] = None) -> List[torch.Tensor]:
        results = self.executable.launch(self.plan, inputs, addresses or [x.data_ptr() for x in inputs])
        return self.packed.unpack(results) if self.packed else results

    def _prepare_gradient(
        self, saved: Sequence[torch.Tensor], do: torch.Tensor, needs: Tuple[bool, ...]
    ) -> Optional[_PreparedGradient]:
        if usable(do) is not do or (self.misaligned and not (is_reachable(do) and is_reachable(saved[-2]))):
            return None
        wanted = tuple(index for index, need in enumerate(needs[_SETTINGS:]) if need)
        gradient = self.variant.gradient(self.device, wanted, False)
        plan = gradient.executable.prepare([usable(x) for x in (*saved, do)])
        places: Optional[List[Optional[int]]] = [None] * len(needs)
        for index, position in zip(wanted, gradient.positions):
            places[index + _SETTINGS] = position
        scalars = [position for index, position in zip(wanted, gradient.positions) if saved[index].dim() == 0]
        count = len(gradient.computed)
        rest = (None,) * (len(needs) - _SETTINGS - count)
        if places[_SETTINGS:] == [*range(count), *rest]:
            places = None
        strides, types = [x.stride() for x in saved], [x.dtype for x in saved]
        return _PreparedGradient(gradient, plan, strides, types, places, rest, scalars)

    def gradients(
        self, saved: Sequence[torch.Tensor], do: torch.Tensor, needs: Tuple[bool, ...]
    ) -> Optional[Tuple[Optional[torch.Tensor], ...]]:
        """What backward() returns; None where dO has to be copied, or the saved tensors
        came back in another form."""
        key = get_ident(), needs, do.stride()
        found = self.backward.get(key, key)
        if found is key:
            if len(self.backward) >= 64:
                self.backward.clear()
            found = self.backward[key] = self._prepare_gradient(saved, do, needs)
        if found is None:
            return None
        gradient, plan, strides, types, places, rest, scalars = found
        # On the device of dO is what the plan was made for: autograd checks that it is O's.
        index = do.get_device()
        if list(map(_stride_of, saved)) != strides:
            return None
        for x, type in zip(saved, types):
            if x.get_device() != index or x.dtype is not type:
                return None
        addresses = list(map(_address_of, saved))
        addresses.append(do.data_ptr())
        low = addresses[0] | addresses[1] | addresses[2] | addresses[-3] | addresses[-1]
        if 0 in addresses or low & self.misaligned:
            return None
        results = gradient.executable.launch(plan, saved, addresses)
        for position in scalars:
            results[position] = results[position].reshape(())
        if places is None:
            return (*_NO_GRADIENTS, *results, *rest)
        return tuple([None if position is None else results[position] for position in places])


# Arguments of _Attention in front of the tensors.
_SETTINGS = 4
_NO_GRADIENTS = (None,) * _SETTINGS


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        prepared: Optional[_Prepared],
        variant: Variant,
        return_lse: bool,
        addresses: Optional[List[int]],
        *inputs: torch.Tensor,
    ) -> Any:
        o, lse = run_forward(variant, inputs) if prepared is None else prepared.forward(inputs, addresses)
        ctx.prepared, ctx.variant = prepared, variant
        ctx.set_materialize_grads(False)
        if not return_lse:
            ctx.mark_non_differentiable(lse)
        ctx.save_for_backward(*inputs, o, lse)
        return o, lse

    @staticmethod
    def backward(ctx: Any, do: Optional[torch.Tensor], dlse: Optional[torch.Tensor]) -> Any:
        return _backward_of_graph(ctx, do, dlse) if torch.is_grad_enabled() else _backward(ctx, do, dlse)


def _backward(ctx: Any, do: Optional[torch.Tensor], dlse: Optional[torch.Tensor]) -> Any:
    saved, needs = ctx.saved_tensors, ctx.needs_input_grad
    if do is None and dlse is None:
        return (None,) * len(needs)
    if dlse is None and ctx.prepared is not None:
        results = ctx.prepared.gradients(saved, do, needs)
        if results is not None:
            return results
    *inputs, o, lse = saved
    wanted = tuple(index for index, need in enumerate(needs[_SETTINGS:]) if need)
    gradients = run_backward(ctx.variant, inputs, (o, lse), (do, dlse), wanted)
    found: List[Optional[torch.Tensor]] = [None] * len(needs)
    for index, gradient in zip(wanted, scalar_shapes(gradients, inputs, wanted)):
        found[index + _SETTINGS] = gradient
    return tuple(found)


# Function.apply without its look for transforms of functorch, which takes time: a
# prepared call has none (_is_observed), and its tensors have addresses.
_apply_prepared = super(torch.autograd.Function, _Attention).apply


def _backward_of_graph(ctx: Any, do: Optional[torch.Tensor], dlse: Optional[torch.Tensor]) -> Any:
    """Where a graph of the gradients is wanted."""
    from ._transforms import Backward

    needs = ctx.needs_input_grad
    results: List[Optional[torch.Tensor]] = [None] * len(needs)
    wanted = tuple(index for index, need in enumerate(needs[_SETTINGS:]) if need)
    if wanted and not (do is None and dlse is None):
        for index, gradient in zip(wanted, Backward.apply(ctx.variant, wanted, do, dlse, *ctx.saved_tensors)):
            results[index + _SETTINGS] = gradient
    return tuple(results)


def _is_observed() -> bool:
    """Whether something else than the kernels looks at what is called."""
    return torch.compiler.is_compiling() or bool(_number_of_modes()) or _functorch_level() is not None


@torch.compiler.assume_constant_result
def _is_transformed() -> bool:
    """Asked while PyTorch's compiler reads a program."""
    return _functorch_level() is not None


_MAX_PREPARED = 1024
_threads = threading.local()


def _key_of(tensors: List[Any], functions: Sequence[Any], options: Tuple) -> Tuple[Any, List[Any]]:
    """What a prepared call depends on, and the tensors that it could take, query, key and value first; None where
    no key can tell."""
    parts: List[Any] = [options]
    for function in functions:
        number = function_key(function, tensors)
        if number is None:
            return None, tensors
        parts.append(number)
    try:
        for x in tensors:
            parts += (x.shape, x.stride(), x.dtype, x.device, x.is_neg())
    except RuntimeError:  # some kinds of tensors have no shape, or no strides
        for x, name in zip_longest(tensors, ("query", "key", "value"), fillvalue="a captured tensor"):
            check_kind(name, x)
        raise
    if len(tensors) > 4:  # more than one besides
        parts.append(aliases(tensors))
    return tuple(parts), tensors


def _find_prepared(key: Any) -> Optional[_Prepared]:
    try:
        known = _threads.prepared
    except AttributeError:
        known = _threads.prepared = {}
    return known.get(key)


def _prepare(
    key: Any, variant: Variant, tensors: List[Any], inputs: Sequence[torch.Tensor], packed: Optional[Packed] = None
) -> None:
    """Keeps what the next such call needs, if it can be kept."""
    if packed and inputs[0].data_ptr() != tensors[0].data_ptr():
        return  # the query was copied
    position = {id(tensor): number for number, tensor in reversed(list(enumerate(tensors)))}
    for number, tensor in enumerate(inputs):
        is_known = id(tensor) in position or (packed and number == 0)
        if not is_known or (usable(tensor) is not tensor and tensor.dim() > 0):
            return
    if needs_threads(inputs[:3]):
        return
    known = _threads.prepared
    if len(known) >= _MAX_PREPARED:
        known.clear()
    variant = variant.for_sizes(inputs[0], inputs[1], inputs[3:])
    known[key] = _Prepared(variant, inputs, tuple(position[id(tensor)] for tensor in inputs[3:]), packed)


def _autocast(tensors: Tuple[torch.Tensor, ...]) -> Tuple[torch.Tensor, ...]:
    """In the type of the autocast region, as PyTorch's own attention."""
    type = torch.get_autocast_dtype(tensors[0].device.type)
    if type not in _TYPE_NAMES:
        return tensors
    return tuple(x if x.dtype == torch.float64 or not x.is_floating_point() else x.to(type) for x in tensors)


def _trains(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    settings: Tuple,
    score_mod: Any,
    mask_mod: Any,
    enable_gqa: bool,
    return_lse: bool,
    rng_state: Any = None,
    pages: Tuple[torch.Tensor, ...] = (),
    parts: int = 0,
    few: bool = True,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """(O, LSE); `settings` are the last fields of Options in front of `arrays`. With `pages`, a table and lengths that
    _paged.py has checked, key and value are pools (pages, heads, rows, d). Without `few` few queries have no program of their own."""
    drops = settings[-1] > 0
    is_meta = query.is_meta
    casts = not is_meta and torch.is_autocast_enabled(query.device.type)
    observed = _is_observed()
    tracing = observed and torch.compiler.is_dynamo_compiling()
    call_key = None
    plain = not (casts or observed or drops or is_forward_mode())
    if plain and type(query) in _PLAIN and type(key) in _PLAIN and type(value) in _PLAIN:
        options = settings, enable_gqa, _trains(query, key, value), len(pages), parts, few
        call_key, tensors = _key_of([query, key, value, *pages], (score_mod, mask_mod), options)
        prepared = None if call_key is None else _find_prepared(call_key)
        if prepared is not None:
            inputs = [query, key, value]
            for number in prepared.positions:
                inputs.append(tensors[number])
            try:
                addresses = [x.data_ptr() for x in inputs]
            except RuntimeError:  # a tensor that outlived a transform of functorch
                addresses = None
            # Nothing lies at 0: zeros that are no memory.
            usable_addresses = addresses and 0 not in addresses
            if usable_addresses and not (addresses[0] | addresses[1] | addresses[2]) & prepared.misaligned:
                return _run(prepared, prepared.variant, inputs, addresses, return_lse)
    if casts:
        query, key, value = _autocast((query, key, value))
    check_inputs(query, key, value, enable_gqa, len(pages) > 0)
    if tracing:
        from . import _dynamo

        if _is_transformed():
            raise call_error(
                "expected no transforms of torch.func inside of torch.compile; compile what they are applied to"
            )

        state = _rng_state(rng_state, query) if drops else None
        return _dynamo.attention(query, key, value, settings, score_mod, mask_mod, state, pages, parts, few)
    # A transform of functorch may have other shapes underneath; who trains has many lengths. (On a CPU one query has
    # other tiles, gradients too.)
    queries = None if observed or not few else few_queries(query.shape[2])
    if queries and _trains(query, key, value) and (queries > 1 or query.is_cuda):
        queries = None
    group = 1
    if queries and query.is_cuda and not drops:
        group = packed_group(query.shape[1], key.shape[1], queries)
    options = Options(
        _TYPE_NAMES[query.dtype], int(query.shape[3]), int(value.shape[3]), *settings, queries=queries, group=group,
        page=int(key.shape[2]) if pages else None, parts=parts,
    )
    bound = bind(options, score_mod, mask_mod)
    if group > 1 and any(len(getattr(capture, "shape", ())) > 2 for capture in bound.captures):
        # Tiles that lie together in memory, for heads that stay apart.
        group, options = 1, replace(options, group=1)
        bound = bind(options, score_mod, mask_mod)
    for capture in bound.captures:
        if not isinstance(capture, torch.Tensor):
            raise call_error(f"expected captured tensors of PyTorch, got a {type(capture).__name__}")
        check_kind("a captured tensor", capture)
    inputs = [query, key, value, *bound.captures]
    if options.drops:
        inputs.append(_rng_state(rng_state, query))
    inputs += pages
    if (observed and _functorch_level() is not None) or has_tangents(inputs):
        from ._transforms import Forward

        return Forward.apply(bound.variant, *inputs)
    if is_meta:
        check_devices(inputs)
    if observed or is_meta or not all(type(tensor) in _PLAIN for tensor in inputs):
        return forward_op(query, key, value, inputs[3:], program_of(bound.variant))
    packed = None if group == 1 else Packed.of(query, group)
    if packed:
        inputs[0] = packed.rows(query)
    results = _run(None, bound.variant, inputs, None, return_lse)
    if call_key is not None:
        _prepare(call_key, bound.variant, tensors, inputs, packed)
    return packed.unpack(results) if packed else results


def _rng_state(state: Any, query: torch.Tensor) -> torch.Tensor:
    """(seed, offset) of a call's dropout, drawn if need be by what a CUDA graph draws anew."""
    if state is None:
        return torch.randint(2**63 - 1, (2,), dtype=torch.int64, device=query.device)
    return check_rng_state(state, "a tensor of PyTorch", isinstance(state, torch.Tensor))


def _run(
    prepared: Optional[_Prepared],
    variant: Variant,
    inputs: List[torch.Tensor],
    addresses: Optional[List[int]],
    return_lse: bool,
) -> Any:
    if torch.is_grad_enabled():
        for tensor in inputs:
            if tensor.requires_grad:
                apply = _Attention.apply if prepared is None else _apply_prepared
                return apply(prepared, variant, return_lse, addresses, *inputs)
    return run_forward(variant, inputs) if prepared is None else prepared.forward(inputs, addresses)
