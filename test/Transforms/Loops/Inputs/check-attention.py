# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares printed float64 bits with attention computed directly."""
import math
import struct
import sys

ROWS, KEYS, SIZE, COLUMNS = 5, 7, 4, 3


def fill(rows, columns, seed):
    return [[((r * 5 + c * 3 + seed) * 7 % 17 - 8) / 4 for c in range(columns)]
            for r in range(rows)]


def attention(q, k, v):
    result = []
    for row in q:
        scores = [math.fsum(a * b for a, b in zip(row, key)) for key in k]
        top = max(scores)
        weights = [math.exp(s - top) for s in scores]
        total = math.fsum(weights)
        result += [math.fsum(w * value[c] for w, value in zip(weights, v)) / total
                   for c in range(COLUMNS)]
    return result


with open(sys.argv[1]) as file:
    actual = [struct.unpack("<d", struct.pack("<q", int(line)))[0]
              for line in file if line.strip()]
expected = attention(fill(ROWS, SIZE, 1), fill(KEYS, SIZE, 2), fill(KEYS, COLUMNS, 3))
assert len(actual) == len(expected), (len(actual), len(expected))
for index, (a, e) in enumerate(zip(actual, expected)):
    # Some tens of roundings of numbers of size one.
    assert abs(a - e) <= 1e-14, (index, a, e)
