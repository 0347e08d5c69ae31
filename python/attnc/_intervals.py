# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What values a traced integer may have.

An interval is an expression over the sizes of a call, as nested lists (so that it
can be kept as JSON): ["c", 3] a constant, ["v", "i"] a variable of the region,
which runs from 0 to its size less one, ["any"] an integer that was loaded, or an
operation on intervals.
"""

from __future__ import annotations

import math
from typing import Dict, Tuple

Bounds = Tuple[float, float]
ANY = ["any"]


def constant(value: int) -> list:
    return ["c", value]


# A fact is a comparison that holds: (predicate, the operands' names, their intervals).
_NEGATION = {"slt": "sge", "sge": "slt", "sle": "sgt", "sgt": "sle"}
_MIRROR = {"slt": "sgt", "sgt": "slt", "sle": "sge", "sge": "sle"}


def negate(fact: tuple) -> tuple:
    return (_NEGATION[fact[0]], *fact[1:])


def mirror(predicate: str) -> str:
    """That of the operands the other way round."""
    return _MIRROR[predicate]


def narrow(name: str, interval: list, facts: tuple) -> list:
    """The interval of a value where these facts hold."""
    for predicate, left, right, left_interval, right_interval in facts:
        if name == right:
            predicate, left, right_interval = _MIRROR[predicate], right, left_interval
        if name != left:
            continue
        strict = ["c", int(predicate in ("slt", "sgt"))]
        if predicate in ("slt", "sle"):
            interval = ["at most", interval, ["sub", right_interval, strict]]
        else:
            interval = ["at least", interval, ["add", right_interval, strict]]
    return interval


def _product(a: float, b: float) -> float:
    return 0 if a == 0 or b == 0 else a * b


def combine(op: str, a: Bounds, b: Bounds) -> Bounds:
    if op == "add":
        return a[0] + b[0], a[1] + b[1]
    if op == "sub":
        return a[0] - b[1], a[1] - b[0]
    if op == "mul":
        corners = [_product(x, y) for x in a for y in b]
        return min(corners), max(corners)
    if op == "min":
        return min(a[0], b[0]), min(a[1], b[1])
    if op == "max":
        return max(a[0], b[0]), max(a[1], b[1])
    if op == "join":
        return min(a[0], b[0]), max(a[1], b[1])
    if op == "at most":
        return a[0], min(a[1], b[1])
    if op == "at least":
        return max(a[0], b[0]), a[1]
    if op == "any":
        return -math.inf, math.inf
    if op in ("div", "mod"):
        if b[0] != b[1] or b[0] <= 0:
            return -math.inf, math.inf
        by = int(b[0])
        floor = tuple(x if math.isinf(x) else x // by for x in a)
        if op == "div":
            return floor
        if floor[0] == floor[1]:
            return a[0] - by * floor[0], a[1] - by * floor[0]
        return 0, by - 1
    raise AssertionError(op)


def evaluate(interval: list, sizes: Dict[str, int]) -> Bounds:
    """Least and greatest value, for sizes such as {"b": 1, "h": 8, "i": 64, "j": 64}."""
    op = interval[0]
    if op == "c":
        return interval[1], interval[1]
    if op == "v":
        return 0, sizes[interval[1]] - 1
    if op == "any":
        return -math.inf, math.inf
    if op == "abs":
        low, high = evaluate(interval[1], sizes)
        least = 0 if low <= 0 <= high else min(abs(low), abs(high))
        return least, max(abs(low), abs(high))
    return combine(op, evaluate(interval[1], sizes), evaluate(interval[2], sizes))
