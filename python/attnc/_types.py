# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element types by the names that PyTorch and NumPy have for them: which IR holds
them, and which type an operation on several has."""

from __future__ import annotations

from functools import reduce
from typing import Iterable, Optional, Tuple

# IR types: integers as they lie in tensors, and floats that are computed with.
INTEGERS = ("i8", "i16", "i32", "i64")
FLOATS = ("bf16", "f16", "f32", "f64")
ELEMENT_TYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "bool": "i1",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "i8",
}  # fmt: skip
_ALIASES = {
    "float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64", "short": "int16",
    "byte": "uint8", "char": "int8", "bool_": "bool", "FloatTensor": "float32", "DoubleTensor": "float64",
    "HalfTensor": "float16", "BFloat16Tensor": "bfloat16", "IntTensor": "int32", "LongTensor": "int64",
    "ShortTensor": "int16", "ByteTensor": "uint8", "CharTensor": "int8", "BoolTensor": "bool",
}  # fmt: skip
_SIGNED = ("int8", "int16", "int32", "int64")
_REAL = ("float16", "bfloat16", "float32", "float64")


def canonical(target: object) -> Optional[str]:
    """The name of a type that a user named, None for what is no type."""
    # In Python's own words the widest: torch.tensor([1]).to(int) has 64 bits.
    if target in (bool, int):
        return "bool" if target is bool else "int64"
    if target is float:
        return "float32"
    name = str(getattr(target, "__name__", target)).rsplit(".", 1)[-1]
    name = _ALIASES.get(name, name)
    return name if name in ELEMENT_TYPES else None


def category(dtype: str) -> int:
    """0 for booleans, 1 for integers, 2 for floats."""
    return 0 if dtype == "bool" else 2 if dtype in _REAL else 1


def is_float(dtype: str) -> bool:
    return dtype in _REAL


def bits(dtype: str) -> int:
    return 8 if dtype == "uint8" else int(dtype[3:])


def limits(dtype: str) -> Tuple[int, int]:
    """Least and greatest value of an integer type."""
    if dtype == "bool":
        return 0, 1
    if dtype == "uint8":
        return 0, 255
    return -(2 ** (bits(dtype) - 1)), 2 ** (bits(dtype) - 1) - 1


def register(dtype: str) -> str:
    """The IR type that values are computed in. Integers are indices within their
    limits; 16-bit floats are f32 that were rounded."""
    if is_float(dtype):
        return "f64" if dtype == "float64" else "f32"
    return "i1" if dtype == "bool" else "index"


def promote(a: str, b: str) -> str:
    """The type of an operation on tensors of two types, as PyTorch has it."""
    if a == b:
        return a
    if category(a) != category(b):
        return max(a, b, key=category)
    if is_float(a):
        return "float32" if {a, b} == {"float16", "bfloat16"} else max(a, b, key=_REAL.index)
    if "uint8" in (a, b):
        other = b if a == "uint8" else a
        return "int16" if other == "int8" else other
    return max(a, b, key=_SIGNED.index)


def result_type(tensors: Iterable[str], numbers: Iterable[str], default: str) -> str:
    """The type of an operation on tensors and Python numbers ("bool", "int64" or
    "float32"), which count where no tensor is of their kind; `default`: that of a
    float among integers."""
    numbers = [default if is_float(number) else number for number in numbers]
    tensors = list(tensors)
    if not tensors:
        return reduce(promote, numbers)
    common = reduce(promote, tensors)
    if numbers and category(reduce(promote, numbers)) > category(common):
        return reduce(promote, numbers)
    return common
