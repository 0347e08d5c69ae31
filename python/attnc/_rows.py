# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of captured tensors: those that got fewer indices than they have dimensions.

A row is read where something is computed of it, element by element; lengths of rows are
so part of the code, and a call with other lengths is traced anew.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

from . import _division as division
from . import _operations as o
from ._errors import trace_error
from ._promotion import Function, lift, region_of, unify, widened
from ._trace import Traced, is_tensor
from ._types import is_float

# Elements of a row that code is written for.
MOST = 256

Place = Tuple[int, ...]


class Rows:
    """Numbers with dimensions. Operators and methods are those of tensors."""

    # As a tensor of PyTorch does it, and before NumPy's scalars do.
    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]

    shape: Tuple[int, ...]

    def at(self, place: Place) -> Any:
        raise NotImplementedError

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError

    def places(self) -> Iterator[Place]:
        return itertools.product(*(range(size) for size in self.shape))

    def _refuse(self, *unused: Any) -> Any:
        raise trace_error(
            f"expected a number, got a row of {'x'.join(map(str, self.shape))} elements: read one, or reduce it by "
            "sum(), mean(), amax() or the like"
        )

    __bool__ = __float__ = __int__ = __index__ = _refuse

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(self.shape[0]))


class Computed(Rows):
    """Of elements that are known."""

    def __init__(self, shape: Sequence[int], elements: Dict[Place, Any]) -> None:
        self.shape, self.elements = tuple(shape), elements

    def at(self, place: Place) -> Any:
        return self.elements[place]

    def __getitem__(self, index: Any) -> Any:
        ranges = _expand(index if isinstance(index, tuple) else (index,), self.shape)
        if any(isinstance(x, Traced) for x in ranges):
            raise trace_error("cannot index a computed row by a traced number: index the captured tensor")
        chosen = [(range(size)[x],) if isinstance(x, int) else x for x, size in zip(ranges, self.shape)]
        kept = [x for x in ranges if isinstance(x, range)]
        elements = [self.at(place) for place in itertools.product(*chosen)]
        return _computed([len(x) for x in kept], elements)


class Captured(Rows):
    """Of a captured tensor: for each of its dimensions an index, or a range that is left."""

    def __init__(self, tensor: Any, indices: Tuple[Any, ...]) -> None:
        self.tensor, self.indices = tensor, indices
        self.shape = tuple(len(x) for x in indices if isinstance(x, range))

    def _read(self, place: Place) -> Any:
        rest = iter(place)
        return region_of(*self.indices).read(
            self.tensor, tuple(x[next(rest)] if isinstance(x, range) else x for x in self.indices)
        )

    def at(self, place: Place) -> Any:
        self._fix_sizes()
        return self._read(place)

    def _fix_sizes(self) -> None:
        count = math.prod(self.shape)
        if count > MOST:
            raise trace_error(f"expected a row of at most {MOST} elements, got {'x'.join(map(str, self.shape))}")
        trace = region_of(*self.indices).trace
        for dim, index in enumerate(self.indices):
            if isinstance(index, range):
                trace.fix_size(self.tensor, dim)

    def __getitem__(self, index: Any) -> Any:
        found = iter(_expand(index if isinstance(index, tuple) else (index,), self.shape))
        indices: List[Any] = []
        for dim, old in enumerate(self.indices):
            if not isinstance(old, range):
                indices.append(old)
                continue
            new = next(found)
            if old != range(self.tensor.shape[dim]):  # of a slice
                if isinstance(new, Traced):
                    raise trace_error("cannot index a slice by a traced number: index the captured tensor")
                region_of(*self.indices).trace.fix_size(self.tensor, dim)
                new = old[new] if isinstance(new, int) else old[new.start : new.stop : new.step]
            indices.append(new)
        return read(self.tensor, tuple(indices))


def _expand(index: Tuple[Any, ...], shape: Sequence[int]) -> List[Any]:
    """An index, or a range, for each dimension."""
    given = [x for x in index if x is not Ellipsis]
    if len(given) > len(shape) or len(index) - len(given) > 1:
        raise trace_error(f"expected {len(shape)} indices into a captured tensor, got {len(index)}")
    place = next((n for n, x in enumerate(index) if x is Ellipsis), len(index))
    missing = (slice(None),) * (len(shape) - len(given))
    index = (*index[:place], *missing, *index[place + 1 :])
    return [_index_or_range(x, size) for x, size in zip(index, shape)]


def _index_or_range(index: Any, size: int) -> Any:
    if isinstance(index, slice):
        if any(isinstance(x, (Traced, Rows)) for x in (index.start, index.stop, index.step)):
            raise trace_error("cannot slice with traced indices: the length of a row is part of the code")
        return range(size)[index]
    if index is None:
        raise trace_error("cannot add a dimension to a captured tensor while tracing")
    return index


def read(tensor: Any, indices: Tuple[Any, ...]) -> Any:
    """An element of a captured tensor, or what its other indices are still to be told."""
    expanded = _expand(indices, tensor.shape)
    if any(isinstance(x, Rows) for x in expanded):
        raise trace_error("cannot index a captured tensor by a row: index it by numbers")
    if any(isinstance(x, range) for x in expanded):
        return Captured(tensor, tuple(expanded))
    return region_of(*expanded).read(tensor, tuple(expanded))


def _computed(shape: Sequence[int], elements: Sequence[Any]) -> Any:
    """A row, or without dimensions its only element."""
    if not shape:
        return elements[0]
    places = itertools.product(*(range(size) for size in shape))
    return Computed(shape, dict(zip(places, elements)))


# What is computed of them.


def _broadcast(shapes: Sequence[Tuple[int, ...]]) -> Tuple[int, ...]:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    sizes = []
    for of_dim in zip(*padded):
        wide = {size for size in of_dim if size != 1}
        if len(wide) > 1:
            raise trace_error(f"expected rows of one shape, or that broadcast, got {' and '.join(map(str, shapes))}")
        sizes.append(wide.pop() if wide else 1)
    return tuple(sizes)


def _is_row(value: Any) -> bool:
    return isinstance(value, Rows) or (is_tensor(value) and not isinstance(value, Traced) and len(value.shape) > 0)


def _row_at(row: Any, place: Place, trace_of: Any) -> Any:
    """Its element at a place of the shape that it broadcasts to."""
    own = place[len(place) - len(row.shape) :]
    own = tuple(0 if size == 1 else n for n, size in zip(own, row.shape))
    if isinstance(row, Rows):
        return row.at(own)
    for dim in range(len(row.shape)):
        trace_of.trace.fix_size(row, dim)
    return trace_of.read(row, own)


def _region(values: Sequence[Any]) -> Any:
    for value in values:
        if isinstance(value, Captured):
            return region_of(*value.indices)
        if isinstance(value, Computed):
            return region_of(*value.elements.values())
        if isinstance(value, Traced):
            return value.region
    raise trace_error("expected a row of a captured tensor")


def elementwise(function: Function, args: Sequence[Any], keywords: Dict[str, Any]) -> Any:
    region, rows = _region((*args, *keywords.values())), [x for x in (*args, *keywords.values()) if _is_row(x)]
    shape = _broadcast([tuple(x.shape) for x in rows])
    if math.prod(shape) > MOST:
        raise trace_error(f"expected a row of at most {MOST} elements, got {'x'.join(map(str, shape))}")
    elements = []
    for place in itertools.product(*(range(size) for size in shape)):
        element = lambda x: _row_at(x, place, region) if _is_row(x) else x
        elements.append(function(*map(element, args), **{name: element(x) for name, x in keywords.items()}))
    return _computed(shape, elements)


def _dims(dim: Any, rank: int) -> Tuple[int, ...]:
    if dim is None:
        return tuple(range(rank))
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    if not all(isinstance(n, int) and -rank <= n < rank for n in dims):
        raise trace_error(f"expected dim to be from {-rank} to {rank - 1}, got {dim!r}")
    return tuple(sorted(n % rank for n in dims))


def _reduction(combine: Callable[[List[Any]], Any]) -> Function:
    def apply(row: Any, dim: Any = None, keepdim: bool = False, *, axis: Any = None, **keywords: Any) -> Any:
        if any(value is not None for value in keywords.values()):
            raise trace_error(f"cannot trace a reduction with {', '.join(keywords)}")
        shape, keepdim = row.shape, bool(keepdim)
        dims = _dims(dim if axis is None else axis, len(shape))
        kept = [1 if n in dims else size for n, size in enumerate(shape)]
        groups: Dict[Place, List[Any]] = {}
        for place in row.places():
            groups.setdefault(tuple(0 if n in dims else x for n, x in enumerate(place)), []).append(row.at(place))
        if not groups:
            raise trace_error("expected a row with elements, got an empty one")
        found = [combine(group) for group in groups.values()]
        return _computed(kept if keepdim else [size for n, size in enumerate(kept) if n not in dims], found)

    return apply


def _accumulate(function: Function) -> Callable[[List[Any]], Traced]:
    """16-bit floats are accumulated in float32, integers in int64."""

    def combine(values: List[Any]) -> Traced:
        first = lift(values[0])
        kind = first.kind
        wide = {"float16": "float32", "bfloat16": "float32"}.get(kind, kind if is_float(kind) else "int64")
        total = first.cast(wide)
        for value in values[1:]:
            total = function(total, lift(value).cast(wide))
        return total.cast(kind) if is_float(kind) else total

    return combine


_sum = _accumulate(o.add)


def _mean(values: List[Any]) -> Traced:
    kind = lift(values[0]).kind
    if not is_float(kind):
        raise trace_error(f"'mean' is defined for floats in PyTorch, got {kind}: convert it with .float()")
    wide = [x.cast("float32") if kind in ("float16", "bfloat16") else x for x in values]
    return division.divide(_sum(wide), float(len(values))).cast(kind)


def _fold(function: Function) -> Callable[[List[Any]], Any]:
    def combine(values: List[Any]) -> Any:
        result = values[0]
        for value in values[1:]:
            result = function(result, value)
        return result

    return combine


_total = _reduction(_sum)


def _norm(row: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, *, ord: Any = None) -> Any:
    p = p if ord is None else ord
    if p in (2, 2.0, "fro"):
        return _apply("sqrt", _total(_apply("square", row), dim, keepdim))
    if p in (1, 1.0):
        return _total(_apply("abs", row), dim, keepdim)
    if p == math.inf:
        return REDUCTIONS["amax"](_apply("abs", row), dim, keepdim)
    raise trace_error(f"expected a norm of order 1, 2 or inf, got {p!r}")


def _apply(name: str, *args: Any) -> Any:
    from ._calls import FUNCTIONS

    function = FUNCTIONS[name]
    return elementwise(function, args, {}) if any(map(_is_row, args)) else function(*args)


def _dot(a: Any, b: Any) -> Any:
    """Products of 16-bit floats are not rounded."""
    if len(a.shape) != 1 or tuple(a.shape) != tuple(b.shape):
        raise trace_error(f"expected two rows of one length, got {tuple(a.shape)} and {tuple(b.shape)}")
    if a.shape[0] == 0:
        raise trace_error("expected a row with elements, got an empty one")
    region, kind = _region((a, b)), ""
    products = []
    for n in range(a.shape[0]):
        kind, pair = unify(*(lift(_row_at(x, (n,), region)) for x in (a, b)))
        products.append(o.multiply(*widened(*pair)))
    return _sum(products).cast(kind)


REDUCTIONS: Dict[str, Function] = {
    "sum": _total, "mean": _reduction(_mean), "prod": _reduction(_accumulate(o.multiply)),
    "amax": _reduction(_fold(o.maximum)), "amin": _reduction(_fold(o.minimum)),
    "any": _reduction(_fold(o.logical_or)), "all": _reduction(_fold(o.logical_and)),
    "norm": _norm, "vector_norm": lambda x, ord=2, dim=None, keepdim=False: _norm(x, ord, dim, keepdim),
    "linalg_vector_norm": lambda x, ord=2, dim=None, keepdim=False: _norm(x, ord, dim, keepdim),
    "dot": _dot, "inner": _dot, "vdot": _dot, "matmul": _dot, "__matmul__": _dot, "__rmatmul__": _dot,
}  # fmt: skip


def _whole(name: str) -> Function:
    """max and min without a dimension; with one PyTorch returns places, too."""

    def apply(row: Any, *args: Any, **keywords: Any) -> Any:
        if len(args) == 1 and not keywords and (_is_row(args[0]) or isinstance(args[0], Traced)):
            return _apply("maximum" if name == "amax" else "minimum", row, args[0])
        if args or keywords:
            raise trace_error(f"cannot trace places of largest and smallest elements: use {name}")
        return REDUCTIONS[name](row)

    return apply


REDUCTIONS.update({"max": _whole("amax"), "min": _whole("amin")})
