# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forms of FlexAttention: a function of flex_functions.py, how it is called, and the type of the
inputs. Each is run forward and backward and compared with the definition in float64.

    python test/Python/unit/flex_forms.py [--functions REGEX] [--features ...] [--dtypes ...] [--log FILE]

prints a table of those that are right, refused and wrong."""

from __future__ import annotations

import argparse
import collections
import functools
import re
import sys
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
from attnc import Error
from attnc.torch import flex_attention
from flex_functions import FUNCTIONS, Function, Sizes
from support import Case, _Call, _Definition, baseline_orders, check
from torch.nn.attention.experimental._paged_attention import PagedAttention
from torch.nn.attention.flex_attention import (
    AuxRequest,
    _vmap_for_bhqkv,
    create_block_mask,
    noop_mask,
)

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}


@dataclass
class Feature:
    """How a function is called: shapes, and what is done to inputs and options."""

    shape: Tuple[int, int, int, int, int, int, int] = (2, 4, 4, 48, 48, 16, 16)  # b hq hkv sq sk d dv
    blocks: Any = 32
    one_batch: bool = False  # of keys and values
    layouts: Tuple[str, ...] = ("", "", "", "")  # of query, key, value and the gradient of the output
    causal: bool = False  # in the block mask, besides
    all_blocks: bool = False  # a block mask where nothing is masked, too
    compiled: bool = False
    result: str = "return_lse"
    scale: Optional[float] = None
    gradients: bool = True
    options: Optional[dict] = None
    page: Optional[int] = None  # keys and values lie in pages of this length, without gradients


FEATURES: Dict[str, Feature] = {
    "plain": Feature(),
    "more keys": Feature((2, 4, 4, 40, 72, 16, 16)),
    "more queries": Feature((2, 4, 4, 72, 40, 16, 16)),
    "odd lengths": Feature((2, 4, 4, 37, 53, 16, 16)),
    "one query": Feature((2, 4, 4, 1, 77, 16, 16)),
    "grouped heads": Feature((2, 4, 2, 40, 48, 16, 16)),
    "one head of keys": Feature((2, 4, 1, 48, 40, 16, 16)),
    "one batch of keys": Feature((3, 4, 2, 48, 48, 16, 16), one_batch=True),
    "transposed": Feature(layouts=("heads inside",) * 4),
    "padded": Feature(layouts=("padded",) * 4, scale=0.3),
    "paged": Feature(page=16),
    "wide values": Feature((2, 4, 4, 48, 48, 16, 32)),
    "narrow values": Feature((2, 4, 4, 48, 48, 32, 16), result="aux"),
    "causal blocks": Feature((2, 4, 4, 64, 64, 16, 16), causal=True, blocks=(32, 16)),
    "blocks of 16 by 64": Feature((2, 4, 4, 80, 80, 16, 16), blocks=(16, 64), options={"BLOCK_M": 16}),
    "output only": Feature((1, 4, 2, 33, 33, 16, 16), result="output"),
    "torch.compile": Feature(compiled=True),
}  # fmt: skip


def _laid_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values with other strides. As the gradient of the result has the layout of its
    own, that of `x` has another one, too."""
    if layout == "offset":
        return torch.cat([x.new_zeros(997), x.flatten()])[997:].view(x.shape)
    if layout == "batch inside":
        return x.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)
    if layout == "heads inside":
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "padded":
        return torch.nn.functional.pad(x.transpose(0, 1), (0, 1, 0, 3))[..., : x.shape[2], : x.shape[3]].transpose(0, 1)
    return x


def _causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i >= j


def _pointwise(function: Optional[Callable], is_score: bool) -> Optional[Callable]:
    """A function of scalars as one of tensors that broadcast, as FlexAttention calls it."""
    if function is None:
        return None
    inner = _vmap_for_bhqkv(function, prefix=(0,) if is_score else ())
    return lambda *args: inner(*args[:-4], *(x.reshape(-1) for x in args[-4:]))


def _paged(k: Any, v: Any, score_mod: Any, blocks: Any, page: int) -> Tuple:
    """Keys and values in pages that lie in no order, and the functions that follow them."""
    b, h, t = k.shape[:3]
    count = -(-t // page)
    table = PagedAttention(b * count, page, b, device=k.device)
    for length in range(page, t + page, page):  # page by page, so that those of a batch are apart
        for batch in range(b):
            table.reserve(torch.tensor(batch), torch.tensor(min(length, t)))
    k, v = k.detach(), v.detach()
    caches = [x.new_zeros(1, h, b * count * page, x.shape[3]) for x in (k, v)]
    places = torch.arange(t, dtype=torch.int32).expand(b, t)
    with torch.no_grad():
        table.assign(torch.arange(b, dtype=torch.int32), places, k, v, *caches)
    return *caches, table.get_score_mod(score_mod), table.convert_logical_block_mask(blocks)


class Form(Case):
    def __init__(self, function: Function, feature: Feature, dtype: torch.dtype) -> None:
        b, hq, _, s, t, _, _ = feature.shape
        self.function, self.feature = function, feature
        generator = torch.Generator().manual_seed(1)
        self.sizes = Sizes(b, hq, s, t, dtype, generator)
        captures = function.captures(self.sizes)
        super().__init__(self._functions, captures, feature.shape, dtype, scale=feature.scale)
        if feature.one_batch:
            self.k, self.v = self.k[:1], self.v[:1]

    def _functions(self, captures: Dict[str, torch.Tensor]) -> Tuple[Optional[Callable], Optional[Callable]]:
        sizes = (self.sizes,) if self.function.of_sizes else ()
        made = self.function.make(*sizes, **captures)
        return (None, made) if self.function.is_mask else (made, None)

    def attend(self, q: Any, k: Any, v: Any, score_mod: Any, mask_mod: Any) -> Tuple[torch.Tensor, torch.Tensor]:
        feature = self.feature
        q, k, v = (_laid_out(x, layout) for x, layout in zip((q, k, v), feature.layouts))
        if feature.causal:
            first = mask_mod
            mask_mod = _causal if first is None else lambda b, h, i, j: _causal(b, h, i, j) & first(b, h, i, j)
        if mask_mod is None and (feature.all_blocks or feature.page):
            mask_mod = noop_mask
        blocks = None
        if mask_mod is not None:
            b, h, s, t = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
            size = (32, feature.page) if feature.page else feature.blocks
            blocks = create_block_mask(mask_mod, b, h, s, t, device=q.device, BLOCK_SIZE=size)
        if feature.page:
            k, v, score_mod, blocks = _paged(k, v, score_mod, blocks, feature.page)
        call = functools.partial(
            flex_attention,
            score_mod=score_mod,
            block_mask=blocks,
            scale=feature.scale,
            enable_gqa=q.shape[1] != k.shape[1],
            kernel_options=feature.options,
        )
        if feature.compiled:
            call = torch.compile(call, backend="aot_eager", fullgraph=True)
        if feature.result == "output":
            o, lse = call(q, k, v), None
        elif feature.result == "aux":
            o, aux = call(q, k, v, return_aux=AuxRequest(lse=True))
            lse = aux.lse
        else:
            o, lse = call(q, k, v, return_lse=True)
        return _laid_out(o, feature.layouts[3]), lse

    def _run(self, attend: Callable, wide: bool, raw: bool) -> Dict[str, torch.Tensor]:
        leaves = self.leaves(wide)
        functions = leaves[3:] if raw else self._functions(dict(zip(self.captures, leaves[3:])))
        o, lse = attend(*leaves[:3], *functions)
        only_output = self.feature.result == "output"
        results = {"O": o} if only_output else {"O": o, "LSE": lse}
        if not self.feature.gradients or self.feature.page:
            return results
        outputs, incoming = ([o], [self.do]) if only_output else ([o, lse], [self.do, self.dlse])
        incoming = [x.to(y.dtype) for x, y in zip(incoming, outputs)]
        names = ["dQ", "dK", "dV", *(f"d {name}" for name in self.captures)]
        wanted = [(name, x) for name, x in zip(names, leaves) if x.requires_grad]
        found = torch.autograd.grad(outputs, [x for _, x in wanted], incoming, allow_unused=True)
        for (name, leaf), gradient in zip(wanted, found):
            results[name] = torch.zeros_like(leaf) if gradient is None else gradient
        return results

    def compare(self) -> None:
        """Against the definition, as Case.compare does it."""
        scale = self.q.shape[-1] ** -0.5 if self.scale is None else self.scale

        def pointwise(captures: Dict) -> Tuple:
            score_mod, mask_mod = self._functions(captures)
            return _pointwise(score_mod, True), _pointwise(mask_mod, False)

        mask = _causal if self.feature.causal else None
        names = list(self.captures)

        def widen(q, k, v):
            return q, *(x.expand(q.shape[0], *x.shape[1:]) for x in (k, v))

        got = self._run(self.attend, False, False)
        orders = range(baseline_orders(got.values()))
        calls = [_Call(pointwise, names, mask, scale, order) for order in orders]
        exact = self._run(lambda q, k, v, *c: calls[0](*widen(q, k, v), c), True, True)
        baselines = [
            self._run(lambda q, k, v, *c: _Definition.apply(call, *widen(q, k, v), *c), False, True) for call in calls
        ]
        assert got.keys() == exact.keys()
        for name in got:
            kind = self.dlse.dtype if name == "LSE" else got[name].dtype
            check(name, got[name], exact[name], [x[name] for x in baselines], kind)


def judge(check: Callable[[], None]) -> Tuple[str, str]:
    """What became of a form: ("right" | "refused" | "wrong", why)."""
    refusals = (Error, NotImplementedError)
    torch._dynamo.reset()
    try:
        check()
    except Exception as error:
        # PyTorch's compiler wraps them.
        if isinstance(error.__cause__, refusals):
            error = error.__cause__
        kind = "refused" if isinstance(error, refusals) or "TraceError" in str(error) else "wrong"
        return kind, " ".join(f"{type(error).__name__}: {error}".split("\n")[:4])
    return "right", ""


def run(function: str, feature: str, dtype: str) -> Tuple[str, str]:
    return judge(lambda: Form(FUNCTIONS[function], FEATURES[feature], DTYPES[dtype]).compare())


def forms(functions: str = "", features: str = "", dtypes: str = "") -> Iterator[Tuple[str, str, str]]:
    for name, function in FUNCTIONS.items():
        for dtype, kind in DTYPES.items():
            for feature in FEATURES:
                if kind in function.without or not re.search(functions, name):
                    continue
                if function.eager_only and FEATURES[feature].compiled:
                    continue
                if re.search(features, feature) and re.fullmatch(dtypes or ".*", dtype):
                    yield name, feature, dtype


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", default="", help="a regular expression")
    parser.add_argument("--features", default="", help="a regular expression")
    parser.add_argument("--dtypes", default="", help="a regular expression: f32|bf16")
    parser.add_argument("--turn", action="store_true", help="one type for each function, in turn")
    parser.add_argument("--log", help="where a line per form goes")
    options = parser.parse_args(arguments)
    counts: Dict[Tuple[str, str], collections.Counter] = collections.defaultdict(collections.Counter)
    log = open(options.log, "a") if options.log else sys.stderr
    found = forms(options.functions, options.features, options.dtypes)
    order = {name: list(DTYPES)[number % len(DTYPES)] for number, name in enumerate(FUNCTIONS)}
    for function, feature, dtype in found:
        if options.turn and dtype != order[function]:
            continue
        start = time.time()
        what, why = run(function, feature, dtype)
        counts["feature", feature][what] += 1
        counts["dtype", dtype][what] += 1
        counts["", "all"][what] += 1
        if what != "right" or options.log:
            print(f"{what}\t{function}\t{feature}\t{dtype}\t{time.time() - start:.1f}\t{why}", file=log, flush=True)
    print(f"| {'':24} | right | refused | wrong |\n|---|---|---|---|")
    for (_, name), count in counts.items():
        print(f"| {name:24} | {count['right']} | {count['refused']} | {count['wrong']} |")
    return 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
