# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention in numpy: the float64 reference, and the baseline whose error sets
the gates.

Reference: the definition of attn.forward evaluated in float64 (in extended
precision for f64 tensors) on inputs already rounded to the tensors' type.
Baseline: the same, naively, in the precision a straightforward implementation
uses: float32 scores and sums (float64 for f64 tensors), p rounded to the type
of V before the product with V, the output rounded to it.

On a GPU there is a second baseline, with the sums of its units (`unit_product`).

Gates (after FlashAttention's own tests): the largest error at most twice the
baseline's plus two roundings of the result, the mean error at most 1.5 times
the baseline's plus one rounding; no NaN; a fully masked row exactly 0 with an
LSE of -inf (the sink's value where there is a sink).
"""

import numpy as np

ACCUMULATOR = {"f64": np.float64, "f32": np.float32, "bf16": np.float32, "f16": np.float32}
# Half the distance between 1 and the next number.
ROUNDOFF = {"f64": 2.0**-53, "f32": 2.0**-24, "bf16": 2.0**-9, "f16": 2.0**-11}


def round_to(dtype, x):
    """Rounds to the values of `dtype` (ties to even), kept in a type numpy has."""
    if dtype == "f64":
        return np.asarray(x, np.float64)
    if dtype == "f16":
        return np.asarray(x).astype(np.float16).astype(np.float32)
    x = np.asarray(x).astype(np.float32)
    if dtype == "f32":
        return x
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, rounded.astype(np.uint32).view(np.float32))


def _multiply(a, b):
    return a @ b.T


def tensor_core(a, b, total=None):
    """a b^T, added to `total` where it is given, as Hopper's tensor core sums it: 16 products and the sum so far at a
    time, each cut off toward zero two bits below the last bit of a float with the
    largest one's exponent, and their sum cut off to a float. (Khattak and Mikaitis,
    "Accurate models of NVIDIA tensor cores", 2025.) Where all terms have one sign,
    so have the errors."""
    rows = max(1, (1 << 18) // max(len(b), 1))
    total = np.zeros((len(a), len(b))) if total is None else total.astype(np.float64)
    if len(a) > rows:
        return np.concatenate([tensor_core(a[i:i + rows], b, total[i:i + rows]) for i in range(0, len(a), rows)])
    a, b = a.astype(np.float64), b.astype(np.float64)
    for start in range(0, a.shape[1], 16):
        terms = a[:, None, start:start + 16] * b[None, :, start:start + 16]
        terms = np.concatenate([total[..., None], terms], axis=2)
        unit = np.frexp(np.abs(terms).max(axis=2))[1] - 26
        total = np.trunc(np.ldexp(terms, -unit[..., None])).sum(axis=2)
        excess = np.maximum(np.frexp(total)[1] - 24, 0)
        total = np.ldexp(np.trunc(np.ldexp(total, -excess)), excess + unit)
    return total.astype(np.float32)


def one_by_one(a, b, total=None):
    """a b^T, added to `total` where it is given, as units of f32 and f64 sum it: a product at a time, with one rounding each.
    (numpy's library sums several parts of a row beside each other, with smaller errors.)"""
    wide = np.float64 if a.dtype == np.float32 else np.longdouble
    total = np.zeros((len(a), len(b)), a.dtype) if total is None else total
    for x, y in zip(a.T.astype(wide), b.T.astype(wide)):
        total = (total + x[:, None] * y[None, :]).astype(a.dtype)
    return total


def power_of_two(s, lse):
    """exp(s - lse) as a GPU's units compute it: s log2(e) - lse log2(e) with one rounding, and one of the product
    lse log2(e); then a power of two."""
    kind, wide = s.dtype.type, np.float64 if s.dtype == np.float32 else np.longdouble
    log2e = kind(np.log2(np.exp(wide(1))))
    return np.exp2((s.astype(wide) * log2e - (lse * log2e).astype(wide)).astype(kind))


def _rows(shape, parts, q, k, v, scale, sink, captures, b, h, rows, kind, dtype, narrow, product, rng):
    """Rows `rows` of the output and of the LSE for batch b and head h."""
    i, j = rows[:, None], np.arange(shape.sk)[None, :]
    if kind == np.longdouble:
        s = np.einsum("id,jd->ij", q[rows], k) * scale
    elif dtype is None or product is not _multiply:
        s = product(q[rows], k) * scale
    else:
        # Scaling the keys first keeps the baseline from matching another
        # implementation's roundings by luck.
        s = q[rows] @ (k * scale).T
    for part, values in zip(parts, captures):
        if part.kind == "score":
            s = part.evaluate(s, b, h, i, j, values, shape)
            assert s.dtype == kind, (part.name, s.dtype, kind)
    for part, values in zip(parts, captures):
        if part.kind == "mask":
            s = np.where(part.evaluate(None, b, h, i, j, values, shape), s, kind(-np.inf))
    m = s.max(axis=1, initial=-np.inf)
    if sink is not None:
        m = np.maximum(m, sink[h])
    safe = np.where(np.isneginf(m), kind(0), m).astype(kind)
    p = np.exp(s - safe[:, None])
    total = p.sum(axis=1)
    if sink is not None:
        total = total + np.exp(sink[h] - safe)
    if dtype is not None and narrow:
        # What p is relative to when it is rounded is an implementation's choice: the largest
        # score of the row, or of the part that it has seen.
        factor = np.exp2(rng.random((len(rows), 1))).astype(kind) if rng else kind(1)
        p = round_to(dtype, p * factor).astype(kind) / factor
    o = np.einsum("ij,je->ie", p, v) if kind == np.longdouble else product(p, v.T)
    empty = total == 0
    o = np.where(empty[:, None], kind(0), o / np.where(empty, kind(1), total)[:, None])
    lse = np.where(empty, kind(-np.inf), safe + np.log(np.where(empty, kind(1), total)))
    return o, lse


def attention(shape, parts, q, k, v, scale, sink, captures, exact, narrow=True,
              product=_multiply, rng=None):
    """O and LSE of the definition (exact) or of the baseline; `narrow`: with p
    rounded to the tensors' type, relative to what `rng` says; `product`: a b^T."""
    dtype = shape.dtype
    if exact:
        kind = np.longdouble if dtype == "f64" else np.float64
    else:
        kind = ACCUMULATOR[dtype]
    output = np.zeros((shape.b, shape.hq, shape.sq, shape.dv), kind)
    lse = np.zeros((shape.b, shape.hq, shape.sq), kind)
    q, k, v = (x.astype(kind) for x in (q, k, v))
    sink = None if sink is None else sink.astype(kind)
    chunk = max(1, min(shape.sq, (1 << 22) // max(shape.sk, 1)))
    for b in range(shape.b):
        for h in range(shape.hq):
            kv = h // (shape.hq // shape.hkv)
            for start in range(0, shape.sq, chunk):
                rows = np.arange(start, min(start + chunk, shape.sq))
                o, l = _rows(shape, parts, q[b, h], k[b, kv], v[b, kv], kind(scale), sink,
                             captures, b, h, rows, kind, None if exact else dtype, narrow, product, rng)
                output[b, h, rows], lse[b, h, rows] = o, l
    return (output, lse) if exact else (round_to(dtype, output), lse)


def unit_product(dtype):
    """a b^T as a GPU sums it."""
    return one_by_one if dtype in ("f32", "f64") else tensor_core


def baselines(shape, parts, q, k, v, scale, sink, captures, product=_multiply):
    """Baselines of (O, LSE). The error of one evaluation is luck where there are
    few results: then the products of a score are summed in several orders."""
    few = shape.b * shape.hq * shape.sq < 256
    rng = np.random.default_rng(7)
    orders = [np.arange(q.shape[-1])] + [rng.permutation(q.shape[-1]) for _ in range(15 if few else 0)]
    return [attention(shape, parts, q[..., d], k[..., d], v, scale, sink, captures, exact=False,
                      product=product)
            for d in orders]


def two_roundings(dtype, x):
    """Twice the largest error of adding 0.3 to a number as large as the largest
    result and taking it away again, in the result's own type. (Measured on the
    results themselves this would depend on luck where there are few.)"""
    largest = float(np.abs(x).max(initial=0)) + 0.3
    return 2 * ROUNDOFF[dtype] * 2.0 ** np.floor(np.log2(largest))


def check(name, dtype, got, exact, baselines, zeros=None, mean=True):
    """Problems of a result, as a list of sentences, and its figures. `zeros`:
    the rows that must be exactly 0; those that are 0 in `exact` if not given.
    `mean`: whether the errors are enough to judge by their mean."""
    if got.shape != exact.shape:
        return [f"{name}: expected shape {exact.shape}, got {got.shape}"], {}
    if got.size == 0:
        return [], {}
    problems = []
    if np.isnan(got).any():
        where = tuple(int(x) for x in np.argwhere(np.isnan(got))[0])
        problems.append(f"{name}: NaN at {where} ({int(np.isnan(got).sum())} in all)")
    infinite = np.isneginf(exact)
    if not (np.isneginf(got) == infinite).all() or np.isposinf(got).any():
        bad = (np.isneginf(got) != infinite) | np.isposinf(got)
        where = tuple(int(x) for x in np.argwhere(bad)[0])
        problems.append(f"{name}: expected {exact[where]} at {where}, got {got[where]}")
    if got.ndim == 4:  # the output: a row without keys is exactly 0
        if zeros is None:
            zeros = (exact == 0).all(axis=-1)
        dirty = zeros & (got != 0).any(axis=-1)
        if dirty.any():
            where = tuple(int(x) for x in np.argwhere(dirty)[0])
            problems.append(f"{name}: expected zeros in the masked row {where}, got {got[where][:4]}...")
    finite = ~infinite
    if problems or not finite.any():
        return problems, {}
    wide = np.longdouble if dtype == "f64" else np.float64
    want = exact[finite].astype(wide)
    error = np.abs(got[finite].astype(wide) - want)
    base = np.abs(np.stack([b[finite] for b in baselines]).astype(wide) - want)
    figures = {
        "max": float(error.max()), "base_max": float(base.max()),
        "mean": float(error.mean()), "base_mean": max(float(b.mean()) for b in base),
        "max_gate": 2 * float(base.max()) + two_roundings(dtype, want),
        "mean_gate": 1.5 * max(float(b.mean()) for b in base) + ROUNDOFF[dtype] * float(np.abs(want).mean()),
    }
    if not figures["max"] <= figures["max_gate"]:
        where = tuple(int(x) for x in np.argwhere(finite)[int(error.argmax())])
        problems.append(
            f"{name}: largest error {figures['max']:.3g} at {where}, expected at most "
            f"{figures['max_gate']:.3g} (baseline {figures['base_max']:.3g})")
    # The mean of a handful of errors is as much luck as their largest.
    if mean and error.size >= 16 and not figures["mean"] <= figures["mean_gate"]:
        problems.append(
            f"{name}: mean error {figures['mean']:.3g}, expected at most "
            f"{figures['mean_gate']:.3g} (baseline {figures['base_mean']:.3g})")
    return problems, figures
