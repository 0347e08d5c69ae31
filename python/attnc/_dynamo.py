# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""score_mod and mask_mod under torch.compile.

PyTorch's compiler cannot run the tracer while it reads a program. It can read the
functions themselves, as the body of a higher-order operator: they become a graph
that has what they captured as inputs. When the graph is run, to be lowered, the
operator hands that graph to the tracer and calls attnc::forward.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ._errors import Error
from ._trace import type_name
from ._variant import Options, build, few_queries, variant_of

try:
    from torch._higher_order_ops.base_hop import BaseHOP
except ImportError:  # before PyTorch 2.7
    BaseHOP = None  # type: ignore[assignment,misc]


@torch.library.custom_op("attnc::argument", mutates_args=())
def argument_op(like: torch.Tensor, number: int) -> torch.Tensor:
    """Stands for argument `number` of score_mod, or with -1 for a result; a body is
    never run as it is."""
    raise Error("attnc::argument is not to be run")


@argument_op.register_fake
def _(like: Any, number: int) -> Any:
    return torch.empty_like(like)


class _Output:
    """An output of a body's graph as a function of traced numbers. Only what it
    depends on is evaluated."""

    def __init__(self, graph: Any, operands: Tuple, output: int, name: str) -> None:
        nodes = list(graph.graph.nodes)
        self.graph = graph
        placeholders = [node for node in nodes if node.op == "placeholder"]
        self.inputs: Dict[Any, Any] = dict(zip(placeholders, operands))
        self.result = nodes[-1].args[0][output]
        self.__name__ = name

    def __call__(self, *numbers: Any) -> Any:
        if len(numbers) == 4:  # a mask has no score
            numbers = (None, *numbers)
        known = dict(self.inputs)

        def value(node: Any) -> Any:
            if node not in known:
                known[node] = self._evaluate(node, numbers, value)
            return known[node]

        return value(self.result) if isinstance(self.result, torch.fx.Node) else self.result

    def _evaluate(self, node: Any, numbers: Tuple, value: Callable) -> Any:
        if node.op == "get_attr":
            result = self.graph
            for name in node.target.split("."):
                result = getattr(result, name)
            return result
        if node.target in (torch.ops.attnc.argument, torch.ops.attnc.argument.default):
            return value(node.args[0]) if node.args[1] < 0 else numbers[node.args[1]]
        if "autograd_function_apply" in str(node.target):
            raise Error(
                "cannot trace a torch.autograd.Function in score_mod or mask_mod: its backward() would be ignored; write "
                "what it computes, or compute it before and capture the result"
            )
        args, keywords = torch.fx.node.map_arg((node.args, node.kwargs), value)
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **keywords)
        return node.target(*args, **keywords)


def _stand_in_operands(graph: Any, operands: Tuple, count: int) -> Tuple:
    """Query, key, value and what else no function reads: the last `count` results. Where operands stand is up to
    PyTorch."""
    nodes = list(graph.graph.nodes)
    inputs = dict(zip([node for node in nodes if node.op == "placeholder"], operands))
    return tuple(inputs[node.args[0]] for node in nodes[-1].args[0][-count:])


if BaseHOP is not None:

    class _Body(BaseHOP):
        def __init__(self) -> None:
            super().__init__("attnc_attention")

        def __call__(self, graph: Any, *operands: Any, **settings: Any) -> Any:
            from ._torch_ops import forward_op, program_of

            has_score, has_mask = settings.pop("has_score"), settings.pop("has_mask")
            rest = settings.pop("rest")
            query, key, value, *others = _stand_in_operands(graph, operands, rest)
            page = int(key.shape[2]) if settings.pop("in_pages") else None
            window = settings.pop("window")
            settings["window"] = None if window is None else tuple(window)
            few = settings.pop("few")
            queries = few_queries(query.shape[2]) if few else None  # a SymInt is not known
            options = Options(
                type_name(query), int(query.shape[3]), int(value.shape[3]), queries=queries, page=page, **settings
            )
            text, captures = build(
                options,
                _Output(graph, operands, 2, "score_mod") if has_score else None,
                _Output(graph, operands, 2 + has_score, "mask_mod") if has_mask else None,
            )
            o, lse = forward_op(query, key, value, [*captures, *others], program_of(variant_of(text)))
            # What a body returns besides, which nothing reads.
            return o, lse, *(query.new_zeros(1) for _ in range(has_score + has_mask + rest))

    _body = _Body()


@torch._dynamo.allow_in_graph
def _apart(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor. PyTorch's compiler, which refuses operands of a body that share memory, as parts of one projection do,
    takes it for another one while it reads a program; what runs is the tensor itself."""
    return tensor.clone() if type(tensor) is FakeTensor else tensor


def _tensor(result: Any, like: torch.Tensor) -> torch.Tensor:
    """A result that is a tensor, and no other one of the body."""
    if not isinstance(result, torch.Tensor):
        result = torch.full_like(like, result)
    return torch.ops.attnc.argument(result, -1)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    settings: Tuple,
    score_mod: Optional[Callable],
    mask_mod: Optional[Callable],
    rng_state: Optional[torch.Tensor],
    pages: Tuple[torch.Tensor, ...],
    parts: int,
    few: bool,
) -> Tuple[torch.Tensor, torch.Tensor]:
    if BaseHOP is None:
        raise Error("score_mod and mask_mod under torch.compile need PyTorch 2.7 or newer")
    accumulator = torch.float64 if query.dtype == torch.float64 else torch.float32

    others = pages if rng_state is None else (rng_state, *pages)

    def body(query: Any, key: Any, value: Any) -> Any:
        # Stand-ins of the right shapes and with the right gradients, never computed.
        keys, values = key, value
        if pages:
            keys, values = (x[pages[0].long()].transpose(1, 2).flatten(2, 3) for x in (key, value))
        o = torch.nn.functional.scaled_dot_product_attention(query, keys, values, enable_gqa=True)
        lse = o.sum(-1).to(accumulator)
        # One element each, so that tensors can be indexed by them.
        index = torch.zeros(1, dtype=torch.int64, device=query.device)
        b, h, q_idx, kv_idx = [torch.ops.attnc.argument(index, number) for number in (1, 2, 3, 4)]
        results = [o, lse]
        if score_mod is not None:
            # It has a gradient where the query has one: PyTorch's compiler asks that of autograd.Functions.
            score = torch.ops.attnc.argument(query.sum().to(accumulator).reshape(1), 0)
            results.append(_tensor(score_mod(score, b, h, q_idx, kv_idx), score))
        if mask_mod is not None:
            results.append(_tensor(mask_mod(b, h, q_idx, kv_idx), b == b))
        results += [torch.ops.attnc.argument(x, -1) for x in (query, key, value, *others)]
        return results

    is_causal, causal_alignment, window, scale, deterministic, precision, dropout_p = settings
    results = _body(
        body,
        _apart(query),
        _apart(key),
        _apart(value),
        is_causal=is_causal,
        causal_alignment=causal_alignment,
        window=window,
        scale=scale,
        deterministic=deterministic,
        precision=precision,
        dropout_p=dropout_p,
        has_score=score_mod is not None,
        has_mask=mask_mod is not None,
        in_pages=len(pages) > 0,
        parts=parts,
        few=few,
        rest=3 + len(others),
    )
    return results[0], results[1]
