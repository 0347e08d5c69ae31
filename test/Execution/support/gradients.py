# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gradients of attention in numpy: the reference, and baselines for the
gates. As in reference.py, the reference is float64 (extended precision for f64
tensors) and a baseline is naive in the tensors' own precision, from its own
forward: the gates are on the whole, forward and gradient.

What is written here is the chain rule on the definition; each score change has
its derivative written beside it in variants.py. `self_test` compares all of it
with central differences of the forward.
"""

import numpy as np

from . import reference
from .reference import ACCUMULATOR, round_to


def scores_of(parts, captures, shape, s, b, h, i, j):
    """The scores before each score change, those after all, and the mask."""
    before = []
    for part, values in zip(parts, captures):
        before.append(s)
        if part.kind == "score":
            s = part.evaluate(s, b, h, i, j, values, shape)
    keep = np.ones(s.shape, bool)
    for part, values in zip(parts, captures):
        if part.kind == "mask":
            keep &= part.evaluate(None, b, h, i, j, values, shape)
    return before, s, keep


class Backward:
    """One evaluation. `order` permutes sums where it is not 0; `multiply` forms a b^T."""

    def __init__(self, shape, parts, data, scale, sink, captures, do, dlse, exact, order=0, multiply=None):
        self.shape, self.parts, self.captures = shape, parts, captures
        self.dtype = shape.dtype
        self.kind = kind = (np.longdouble if self.dtype == "f64" else np.float64) if exact else ACCUMULATOR[self.dtype]
        self.exact, self.multiply = exact, multiply
        self.rng = np.random.default_rng(order)
        self.shuffled = order > 0
        # Each second baseline keeps p and ds in the accumulator's type: its O is
        # then rounded as that of a more exact program is, whose luck this is too.
        self.rounds = not exact and order % 2 == 0
        inner = self.rng.permutation(shape.d) if order else slice(None)
        outer = self.rng.permutation(shape.dv) if order else slice(None)
        q, k, v = data
        o, lse = reference.attention(shape, parts, q[..., inner], k[..., inner], v, scale, sink, captures, exact,
                                     narrow=self.rounds, rng=self.rng if order else None)
        self.inner, self.outer = inner, outer
        self.q, self.k, self.v, self.o, self.lse = (x.astype(kind) for x in (q, k, v, o, lse))
        self.do = do.astype(kind)
        self.dlse = np.zeros(lse.shape, kind) if dlse is None else dlse.astype(kind)
        self.scale = kind(scale)
        self.sink = None if sink is None else sink.astype(kind)
        self.dq, self.dk, self.dv = (np.zeros(x.shape, kind) for x in (q, k, v))
        self.dscale = np.zeros(1, kind)
        self.dsink = np.zeros(shape.hq, kind)
        self.dcaptures = [{name: np.zeros(x.shape, kind) for name, x in values.items() if x.dtype.kind == "f"}
                          for values in captures]
        # Rows and keys without a pair: their gradients are exactly 0. So are those
        # of the scores of a row with one key and no sink, whose output is the
        # key's value, where the log-sum-exp has no gradient.
        self.row_lives = np.zeros(lse.shape, bool)
        self.key_lives = np.zeros(k.shape[:3], bool)
        self.row_moves = np.zeros(lse.shape, bool)
        self.key_moves = np.zeros(k.shape[:3], bool)
        self.settled = dlse is None and sink is None

    def product(self, a, b, total=None):
        """a b, or `total` + a b: on a GPU one chain of sums, of all heads of a group."""
        if self.multiply:
            return self.multiply(a, b.T, total).astype(self.kind)
        product = np.einsum("ij,jk->ik", a, b) if self.kind == np.longdouble else a @ b
        return product if total is None else total + product

    def narrow(self, x):
        return round_to(self.dtype, x).astype(self.kind) if self.rounds else x

    def rows(self, b, h, rows):
        shape, kv = self.shape, h // (self.shape.hq // self.shape.hkv)
        i, j = rows[:, None], np.arange(shape.sk)[None, :]
        q, k, v = self.q[b, h, rows], self.k[b, kv], self.v[b, kv]
        raw = self.product(q[:, self.inner], k[:, self.inner].T)
        before, s, keep = scores_of(self.parts, self.captures, shape, raw * self.scale, b, h, i, j)
        lives = keep.any(axis=1)
        self.row_lives[b, h, rows] = lives
        self.key_lives[b, kv] |= keep.any(axis=0)
        moves = keep.any(axis=1) & ~(self.settled & (keep.sum(axis=1) == 1))
        self.row_moves[b, h, rows] = moves
        self.key_moves[b, kv] |= keep[moves].any(axis=0)
        # Where nothing is kept the output is 0 whatever the inputs are.
        do = np.where(lives[:, None], self.do[b, h, rows], self.kind(0))
        lse = self.lse[b, h, rows]
        finite = np.isfinite(lse)
        safe = np.where(finite, lse, self.kind(0))
        with np.errstate(invalid="ignore", over="ignore"):
            weights = reference.power_of_two(s, safe[:, None]) if self.multiply else np.exp(s - safe[:, None])
            p = np.where(keep & finite[:, None], weights, self.kind(0))
        delta = (do * self.o[b, h, rows])[:, self.outer].sum(axis=1) - np.where(finite, self.dlse[b, h, rows], 0)
        dt = p * (self.product(do[:, self.outer], v[:, self.outer].T) - delta[:, None])
        if self.sink is not None:
            share = np.where(finite, np.exp(self.sink[h] - safe), self.kind(0))
            self.dsink[h] -= (share * delta).sum()
        ds = dt
        for part, values, x, out in reversed(list(zip(self.parts, self.captures, before, self.dcaptures))):
            if part.kind == "score":
                ds = part.derive(x, ds, b, h, i, j, values, shape, out)
                assert ds.dtype == self.kind, (part.name, ds.dtype)
        self.dscale += (ds * raw).sum()
        ds, p = self.narrow(ds), self.narrow(p)
        self.dq[b, h, rows] = self.product(ds, k) * self.scale
        self.dk[b, kv] = self.product(ds.T, q, self.dk[b, kv])
        self.dv[b, kv] = self.product(p.T, do, self.dv[b, kv])

    def run(self):
        shape = self.shape
        chunk = max(1, min(shape.sq, (1 << 22) // max(shape.sk, 1)))
        if self.shuffled:
            chunk = min(chunk, int(self.rng.integers(16, 80)))
        for b in range(shape.b):
            for h in range(shape.hq):
                order = self.rng.permutation(shape.sq) if self.shuffled else np.arange(shape.sq)
                for start in range(0, shape.sq, chunk):
                    self.rows(b, h, order[start:start + chunk])
        self.dk *= self.scale
        return self

    def results(self, names):
        """The gradients by name: q, k, v, sink, scale or (part, capture), each
        with its type."""
        wide = "f64" if self.dtype == "f64" else "f32"
        found = {"q": (self.dq, self.dtype), "k": (self.dk, self.dtype), "v": (self.dv, self.dtype),
                 "sink": (self.dsink, wide), "scale": (self.dscale, wide)}
        for number, (part, out) in enumerate(zip(self.parts, self.dcaptures)):
            for name, value in out.items():
                found[number, name] = (value, self.dtype if name in part.narrow else wide)
        return [(x if self.exact else round_to(dtype, x), dtype) for x, dtype in (found[name] for name in names)]


def baseline_orders(results):
    """For each result how many baselines it is judged beside. The error of one evaluation is luck where a
    result has few rows: those of a row have causes in common, and most pairs fall into a few cells of a
    table. More so where it has few elements."""
    sizes = [(x.size, (x.shape or (1,))[-1]) for x, _ in results if x.size]
    if any(size == 1 for size, _ in sizes):
        others = 32
    else:
        others = 8 if any(size < 64 * columns for size, columns in sizes) else 1
    return [32 if 0 < x.size < 64 else others for x, _ in results]


def self_test(make_case, kinds):
    """Problems: gradients that are not the central differences of the forward.
    `make_case(variant)` gives (shape, parts, data, scale, sink, captures)."""
    problems = []
    for variant in kinds:
        shape, parts, data, scale, sink, captures = make_case(variant)
        rng = np.random.default_rng(1)
        do = rng.standard_normal((shape.b, shape.hq, shape.sq, shape.dv))
        dlse = rng.standard_normal((shape.b, shape.hq, shape.sq))

        def loss():
            o, lse = reference.attention(shape, parts, *data, scale[0], sink, captures, True)
            return (o * do).sum() + (np.where(np.isfinite(lse), lse, 0) * dlse).sum()

        inputs = {"q": data[0], "k": data[1], "v": data[2], "scale": scale}
        if sink is not None:
            inputs["sink"] = sink
        for number, values in enumerate(captures):
            inputs.update({(number, name): x for name, x in values.items() if x.dtype.kind == "f"})
        found = Backward(shape, parts, data, scale[0], sink, captures, do, dlse, True).run().results(inputs)
        for (name, x), (gradient, _) in zip(inputs.items(), found):
            flat = x.reshape(-1)
            for n in rng.permutation(flat.size)[:12]:
                kept, slopes = flat[n], []
                for h in (1e-4, 5e-5):
                    flat[n] = kept + h
                    up = loss()
                    flat[n] = kept - h
                    slopes.append((up - loss()) / (2 * h))
                    flat[n] = kept
                expected = (4 * slopes[1] - slopes[0]) / 3
                got = gradient.reshape(-1)[n]
                if not abs(got - expected) <= 1e-6 * max(1, abs(expected)):
                    problems.append(f"{variant}: gradient of {name} at {n}: {got}, central difference {expected}")
    return problems
