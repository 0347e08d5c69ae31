# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Score changes and masks, each as IR and as numpy.

A variant of attention is a list of parts. A part is written twice: as the lines
of a scalar region (what the compiler reads) and as a numpy function of index
arrays (what the reference evaluates). Score parts are applied in order, mask
parts are and-ed.

In the IR text `{T}` is the type of scores (f32, or f64), `{E}` the element
type of the tensors, and `$x` stands for a name private to the part. The
region's arguments are %b, %h, %i, %j, captured tensors are `$name`, and a
score part reads `%in`; every part defines `$out`.
"""

from dataclasses import dataclass, field
from typing import Callable, Dict, List, Tuple

import numpy as np


@dataclass
class Part:
    """One score change or mask."""

    name: str
    kind: str  # "score" or "mask"
    body: str
    # (x, b, h, i, j, captures, shape): i is a column, j a row. A score part gets
    # the scores as x and returns new ones of the same dtype; a mask part gets
    # None and returns booleans.
    evaluate: Callable
    # name -> fn(shape, rng) giving an integer (i32) or float (score type) array.
    captures: Dict[str, Callable] = field(default_factory=dict)
    # Captures stored in the element type of Q, K and V instead.
    narrow: Tuple[str, ...] = ()
    # Lengths the region reads as index captures: "sq" and "sk".
    lengths: Tuple[str, ...] = ()
    # Captures that are scalars of the score type, not tensors.
    scalars: Tuple[str, ...] = ()
    # (x, dt, b, h, i, j, captures, shape, out): the gradient of the scores x
    # that a score part got, from that of those it gave; adds the gradients of
    # its float captures to out[name].
    derive: Callable = None


def _bounds(shape, rng):
    """First and last key of each row, with empty rows in the middle, at the
    edges of tiles of 32 to 128 rows, and at both ends."""
    lo = rng.integers(0, max(shape.sk, 1), shape.sq)
    hi = np.minimum(lo + rng.integers(1, shape.sk + 2, shape.sq), shape.sk)
    for row in (0, 5, 31, 32, 63, 64, 95, 96, 127, 128, 129, shape.sq - 1):
        if 0 <= row < shape.sq:
            hi[row] = lo[row] - rng.integers(0, 3)
    return lo, hi


def _seeded(shape, salt):
    """Captures of one part that depend on each other draw from the same seed."""
    return np.random.default_rng((salt, shape.sq, shape.sk, shape.b))


def _documents(length, batch, rng):
    return np.sort(rng.integers(0, max(2, length // 60), (batch, length)), axis=1)


def _kept(shape, rng):
    """Keys that are none at the end, in the middle and here and there; whole tiles of them."""
    kept = (rng.random((shape.b, shape.sk)) < 0.9).astype(np.int64)
    for batch in range(shape.b):
        first = rng.integers(0, shape.sk + 1)
        kept[batch, first : first + rng.integers(0, 300)] = 0
        kept[batch, rng.integers(shape.sk // 2, shape.sk + 1) :] = 0
    return kept


def _permutation(shape):
    return _seeded(shape, 7).permutation(shape.sk)


def t5_bucket(i, j):
    """Bidirectional T5 buckets: 32 in all, exact to 8, logarithmic to 128. The
    added 0.01 moves the boundaries off the integers, so that the bucket does
    not depend on how log is rounded."""
    distance = np.abs(j - i)
    large = 8 + np.trunc(np.log((distance + 0.01) / 8) / np.log(16.0) * 8)
    within = np.where(distance < 8, distance, np.minimum(large, 15)).astype(np.int64)
    return within + np.where(j > i, 16, 0)


WINDOW = 48
CAP = 2.0


def _derive_alibi(x, dt, b, h, i, j, c, n, out):
    out["slope"][h] -= (dt * np.abs(i - j).astype(dt.dtype)).sum()
    return dt


def _derive_t5(x, dt, b, h, i, j, c, n, out):
    bucket = t5_bucket(i, j)
    for number in range(32):
        out["table"][h, number] += dt[bucket == number].sum()
    return dt


def _add_at(name, where):
    """The derivative of a part that adds c[name][where(h, i, j, n)] to the scores."""
    def derive(x, dt, b, h, i, j, c, n, out):
        at = np.broadcast_arrays(*where(h, i, j, n), dt)[:-1]
        np.add.at(out[name], tuple(at), dt)
        return dt
    return derive


def _relative(h, i, j, n):
    return h, j - i + n.sq - 1


def _strip(h, i, j, n):
    return (i + j) % 7, h


def _cell(h, i, j, n):
    return j % 5, i % 3


def _derive_bias(x, dt, b, h, i, j, c, n, out):
    out["bias"][h, i[:, 0]] += dt
    return dt


def _derive_key_bias(x, dt, b, h, i, j, c, n, out):
    out["bias"][b] += dt.sum(axis=0)
    return dt


def _derive_softcap(x, dt, b, h, i, j, c, n, out):
    return dt * (1 - np.tanh(x / x.dtype.type(CAP)) ** 2)


def _derive_learned_cap(x, dt, b, h, i, j, c, n, out):
    # y = c tanh(x / c): dy/dx = 1 - t^2, dy/dc = t - (x / c) (1 - t^2)
    cap = c["cap"].astype(x.dtype)
    t = np.tanh(x / cap)
    slope = 1 - t * t
    out["cap"] += (dt * (t - x / cap * slope)).sum()
    return dt * slope


def _derive_gate(x, dt, b, h, i, j, c, n, out):
    # y = x g[h, i]
    out["gate"][h, i[:, 0]] += (dt * x).sum(axis=1)
    return dt * c["gate"][h, i].astype(x.dtype)


def _narrow_bias(name, over):
    """A bias in the inputs' type, with an element for each pair and each index of `over`
    (batch, head)."""
    def at(b, h):
        return tuple({"b": b, "h": h}[index] for index in over)

    def derive(x, dt, b, h, i, j, c, n, out):
        out["bias"][at(b, h)][i[:, 0]] += dt
        return dt

    indices, sizes = ", ".join(f"%{index}" for index in over + "ij"), "?x" * (len(over) + 2)
    return Part(
        name, "score",
        f"""
        $e = tensor.extract $bias[{indices}] : tensor<{sizes}{{E}}>
        {{widen}}
        $out = arith.addf %in, $v : {{T}}
        """,
        lambda s, b, h, i, j, c, n: s + c["bias"][at(b, h)][i[:, 0]].astype(s.dtype),
        {"bias": lambda n, rng: rng.standard_normal((*at(n.b, n.hq), n.sq, n.sk))}, narrow=("bias",),
        derive=derive)


PARTS: List[Part] = [
    Part(
        "alibi", "score",
        """
        $d = arith.subi %j, %i : index
        $di = arith.index_cast $d : index to i32
        $df = arith.sitofp $di : i32 to {T}
        $a = math.absf $df : {T}
        $m = tensor.extract $slope[%h] : tensor<?x{T}>
        $p = arith.mulf $m, $a : {T}
        $out = arith.subf %in, $p : {T}
        """,
        lambda s, b, h, i, j, c, n: s - c["slope"][h].astype(s.dtype) * np.abs(i - j).astype(s.dtype),
        {"slope": lambda n, rng: 2.0 ** (-8.0 * (np.arange(n.hq) + 1) / max(n.hq, 1))},
        derive=_derive_alibi),
    Part(
        "t5", "score",
        """
        $d = arith.subi %j, %i : index
        $di = arith.index_cast $d : index to i32
        $n = math.absi $di : i32
        $c8 = arith.constant 8 : i32
        $c15 = arith.constant 15 : i32
        $c16 = arith.constant 16 : i32
        $c0 = arith.constant 0 : i32
        $small = arith.cmpi slt, $n, $c8 : i32
        $nf = arith.sitofp $n : i32 to f32
        $eps = arith.constant 0.01 : f32
        $ne = arith.addf $nf, $eps : f32
        $eighth = arith.constant 0.125 : f32
        $r = arith.mulf $ne, $eighth : f32
        $l = math.log $r : f32
        $k = arith.constant 2.8853900817779268 : f32
        $lf = arith.mulf $l, $k : f32
        $li = arith.fptosi $lf : f32 to i32
        $la = arith.addi $li, $c8 : i32
        $lm = arith.minsi $la, $c15 : i32
        $w = arith.select $small, $n, $lm : i32
        $right = arith.cmpi sgt, $di, $c0 : i32
        $w16 = arith.addi $w, $c16 : i32
        $bucket = arith.select $right, $w16, $w : i32
        $bi = arith.index_cast $bucket : i32 to index
        $v = tensor.extract $table[%h, $bi] : tensor<?x32x{T}>
        $out = arith.addf %in, $v : {T}
        """,
        lambda s, b, h, i, j, c, n: s + c["table"][h].astype(s.dtype)[t5_bucket(i, j)],
        {"table": lambda n, rng: rng.standard_normal((n.hq, 32))}, derive=_derive_t5),
    # A bias for each distance of query and key.
    Part(
        "relative", "score",
        """
        $d = arith.subi %j, %i : index
        $c1 = arith.constant 1 : index
        $o = arith.addi $d, $sq : index
        $at = arith.subi $o, $c1 : index
        $v = tensor.extract $distance[%h, $at] : tensor<?x?x{T}>
        $out = arith.addf %in, $v : {T}
        """,
        lambda s, b, h, i, j, c, n: s + c["distance"].astype(s.dtype)[_relative(h, i, j, n)],
        {"distance": lambda n, rng: rng.standard_normal((n.hq, n.sq + n.sk - 1))},
        lengths=("sq",), derive=_add_at("distance", _relative)),
    # Two computed indices, and none that is the head's.
    Part(
        "cells", "score",
        """
        $c5 = arith.constant 5 : index
        $c3 = arith.constant 3 : index
        $x = arith.remui %j, $c5 : index
        $y = arith.remui %i, $c3 : index
        $v = tensor.extract $grid[$x, $y] : tensor<?x?x{T}>
        $out = arith.addf %in, $v : {T}
        """,
        lambda s, b, h, i, j, c, n: s + c["grid"].astype(s.dtype)[_cell(h, i, j, n)],
        {"grid": lambda n, rng: rng.standard_normal((5, 3))}, derive=_add_at("grid", _cell)),
    # The head's index last.
    Part(
        "strips", "score",
        """
        $c7 = arith.constant 7 : index
        $x = arith.addi %i, %j : index
        $at = arith.remui $x, $c7 : index
        $v = tensor.extract $strip[$at, %h] : tensor<?x?x{T}>
        $out = arith.addf %in, $v : {T}
        """,
        lambda s, b, h, i, j, c, n: s + c["strip"].astype(s.dtype)[_strip(h, i, j, n)],
        {"strip": lambda n, rng: rng.standard_normal((7, n.hq))}, derive=_add_at("strip", _strip)),
    Part(
        "bias", "score",
        """
        $v = tensor.extract $bias[%h, %i, %j] : tensor<?x?x?x{T}>
        $out = arith.addf %in, $v : {T}
        """,
        lambda s, b, h, i, j, c, n: s + c["bias"][h][i[:, 0]].astype(s.dtype),
        {"bias": lambda n, rng: rng.standard_normal((n.hq, n.sq, n.sk))}, derive=_derive_bias),
    _narrow_bias("bias_narrow", "b"), _narrow_bias("bias_heads", "h"), _narrow_bias("bias_each", "bh"),
    _narrow_bias("bias_pair", ""),
    Part(
        "key_bias", "score",
        """
        $v = tensor.extract $bias[%b, %j] : tensor<?x?x{T}>
        $out = arith.addf %in, $v : {T}
        """,
        lambda s, b, h, i, j, c, n: s + c["bias"][b].astype(s.dtype)[None, :],
        {"bias": lambda n, rng: rng.standard_normal((n.b, n.sk))}, derive=_derive_key_bias),
    Part(
        "softcap", "score",
        f"""
        $cap = arith.constant {CAP} : {{T}}
        $d = arith.divf %in, $cap : {{T}}
        $t = math.tanh $d : {{T}}
        $out = arith.mulf $t, $cap : {{T}}
        """,
        lambda s, b, h, i, j, c, n: np.tanh(s / s.dtype.type(CAP)) * s.dtype.type(CAP),
        derive=_derive_softcap),
    # A cap that is learned: a scalar capture.
    Part(
        "learned_cap", "score",
        """
        $d = arith.divf %in, $cap : {T}
        $t = math.tanh $d : {T}
        $out = arith.mulf $t, $cap : {T}
        """,
        lambda s, b, h, i, j, c, n: np.tanh(s / c["cap"].astype(s.dtype)) * c["cap"].astype(s.dtype),
        {"cap": lambda n, rng: np.asarray(1.5)}, scalars=("cap",), derive=_derive_learned_cap),
    # A factor per row.
    Part(
        "gate", "score",
        """
        $g = tensor.extract $gate[%h, %i] : tensor<?x?x{T}>
        $out = arith.mulf %in, $g : {T}
        """,
        lambda s, b, h, i, j, c, n: s * c["gate"][h, i].astype(s.dtype),
        {"gate": lambda n, rng: rng.uniform(0.5, 1.5, (n.hq, n.sq))}, derive=_derive_gate),
    Part(
        "shift", "score",
        """
        $c = arith.constant -120.0 : {T}
        $out = arith.addf %in, $c : {T}
        """,
        lambda s, b, h, i, j, c, n: s - s.dtype.type(120),
        derive=lambda x, dt, b, h, i, j, c, n, out: dt),
    Part(
        "causal", "mask",
        """
        $out = arith.cmpi sge, %i, %j : index
        """,
        lambda s, b, h, i, j, c, n: j <= i),
    Part(
        "causal_br", "mask",
        """
        $o = arith.subi $sk, $sq : index
        $e = arith.addi %i, $o : index
        $out = arith.cmpi sle, %j, $e : index
        """,
        lambda s, b, h, i, j, c, n: j <= i + (n.sk - n.sq), lengths=("sq", "sk")),
    Part(
        "window", "mask",
        f"""
        $w = arith.constant {WINDOW} : index
        $l = arith.subi %i, $w : index
        $r = arith.addi %i, $w : index
        $a = arith.cmpi sge, %j, $l : index
        $z = arith.cmpi sle, %j, $r : index
        $out = arith.andi $a, $z : i1
        """,
        lambda s, b, h, i, j, c, n: (j >= i - WINDOW) & (j <= i + WINDOW)),
    Part(
        "window_br", "mask",
        f"""
        $w = arith.constant {WINDOW} : index
        $o = arith.subi $sk, $sq : index
        $e = arith.addi %i, $o : index
        $l = arith.subi $e, $w : index
        $a = arith.cmpi sge, %j, $l : index
        $z = arith.cmpi sle, %j, $e : index
        $out = arith.andi $a, $z : i1
        """,
        lambda s, b, h, i, j, c, n: (j >= i + n.sk - n.sq - WINDOW) & (j <= i + n.sk - n.sq),
        lengths=("sq", "sk")),
    Part(
        "prefix", "mask",
        """
        $p = tensor.extract $length[%b] : tensor<?xi32>
        $pi = arith.index_cast $p : i32 to index
        $a = arith.cmpi slt, %j, $pi : index
        $z = arith.cmpi sle, %j, %i : index
        $out = arith.ori $a, $z : i1
        """,
        lambda s, b, h, i, j, c, n: (j < c["length"][b]) | (j <= i),
        {"length": lambda n, rng: rng.integers(1, max(2, n.sk // 2), n.b)}),
    Part(
        "documents", "mask",
        """
        $q = tensor.extract $qdoc[%b, %i] : tensor<?x?xi32>
        $k = tensor.extract $kdoc[%b, %j] : tensor<?x?xi32>
        $out = arith.cmpi eq, $q, $k : i32
        """,
        lambda s, b, h, i, j, c, n: c["qdoc"][b][i] == c["kdoc"][b][j],
        {"qdoc": lambda n, rng: _documents(n.sq, n.b, rng),
         "kdoc": lambda n, rng: _documents(n.sk, n.b, rng)}),
    Part(
        "padding", "mask",
        """
        $p = tensor.extract $kept[%b, %j] : tensor<?x?xi32>
        $zero = arith.constant 0 : i32
        $out = arith.cmpi ne, $p, $zero : i32
        """,
        lambda s, b, h, i, j, c, n: c["kept"][b][j] != 0,
        {"kept": lambda n, rng: _kept(n, rng)}),
    Part(
        "bounds", "mask",
        """
        $l = tensor.extract $lo[%i] : tensor<?xi32>
        $h = tensor.extract $hi[%i] : tensor<?xi32>
        $li = arith.index_cast $l : i32 to index
        $hi2 = arith.index_cast $h : i32 to index
        $a = arith.cmpi sge, %j, $li : index
        $z = arith.cmpi slt, %j, $hi2 : index
        $out = arith.andi $a, $z : i1
        """,
        lambda s, b, h, i, j, c, n: (j >= c["lo"][i]) & (j < c["hi"][i]),
        {"lo": lambda n, rng: _bounds(n, _seeded(n, 3))[0],
         "hi": lambda n, rng: _bounds(n, _seeded(n, 3))[1]}),
    Part(
        "key_length", "mask",
        """
        $n = tensor.extract $length[%b] : tensor<?xi32>
        $ni = arith.index_cast $n : i32 to index
        $out = arith.cmpi slt, %j, $ni : index
        """,
        lambda s, b, h, i, j, c, n: j < c["length"][b],
        {"length": lambda n, rng: rng.integers(0, n.sk + 1, n.b)}),
    Part(
        "strided", "mask",
        """
        $d = arith.addi %i, %j : index
        $c = arith.constant 3 : index
        $z = arith.constant 0 : index
        $r = arith.remui $d, $c : index
        $out = arith.cmpi eq, $r, $z : index
        """,
        lambda s, b, h, i, j, c, n: (i + j) % 3 == 0),
    Part(
        "hole", "mask",
        f"""
        $w = arith.constant {WINDOW} : index
        $l = arith.subi %i, $w : index
        $r = arith.addi %i, $w : index
        $a = arith.cmpi sgt, %j, $l : index
        $z = arith.cmpi slt, %j, $r : index
        $in = arith.andi $a, $z : i1
        $true = arith.constant true
        $out = arith.xori $in, $true : i1
        """,
        lambda s, b, h, i, j, c, n: ~((j > i - WINDOW) & (j < i + WINDOW))),
    Part(
        "per_head", "mask",
        """
        $two = arith.constant 2 : index
        $r = arith.remui %h, $two : index
        $z = arith.constant 0 : index
        $even = arith.cmpi eq, $r, $z : index
        $c = arith.cmpi sle, %j, %i : index
        $out = arith.ori $even, $c : i1
        """,
        lambda s, b, h, i, j, c, n: (j <= i) | (h % 2 == 0)),
    Part(
        "nothing", "mask",
        """
        $out = arith.constant false
        """,
        lambda s, b, h, i, j, c, n: (i < 0) & (j < 0)),
    # The keys' true positions: keys in another order give the same result.
    Part(
        "causal_position", "mask",
        """
        $p = tensor.extract $position[%j] : tensor<?xi32>
        $pi = arith.index_cast $p : i32 to index
        $out = arith.cmpi sle, $pi, %i : index
        """,
        lambda s, b, h, i, j, c, n: c["position"][j] <= i,
        {"position": lambda n, rng: _permutation(n)}),
]

_BY_NAME = {part.name: part for part in PARTS}

# A variant is named by its parts; "sink" is an operand of the op.
VARIANTS = [
    "none", "causal", "causal_br", "window", "window+causal", "prefix", "documents",
    "alibi", "t5", "bias", "softcap", "sink", "alibi+window+documents",
]
MORE_VARIANTS = [
    "bounds", "key_length", "window_br", "hole", "strided", "per_head", "bias_narrow",
    "key_bias", "causal+sink", "softcap+causal_br", "alibi+softcap+bounds", "t5+prefix",
    "causal_position", "documents+causal", "nothing", "nothing+sink", "alibi+causal",
    "learned_cap+causal", "gate+bounds", "gate+t5", "padding", "padding+causal_br",
]
# Scores that read a table at computed indices.
TABLES = ["t5", "t5+causal", "relative", "relative+causal", "cells", "strips+causal_br", "t5+bounds"]

# Scores with an element for each query and key, which heads and batch elements share or not.
BIASES = [
    "bias", "bias_narrow", "bias_heads", "bias_each", "bias_pair", "bias_heads+causal",
    "bias_pair+window", "bias_each+documents", "softcap+bias_heads",
]


def parts_of(variant: str) -> List[Part]:
    names = [name for name in variant.split("+") if name not in ("none", "sink")]
    return [_BY_NAME[name] for name in names]


def has_sink(variant: str) -> bool:
    return "sink" in variant.split("+")
