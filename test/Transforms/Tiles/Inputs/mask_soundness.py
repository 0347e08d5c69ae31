# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random masks through mask projection and tables, against a direct count.

Each case is a tile program in one of four loop orders that folds a masked
matrix by sums and maxima. The program is lowered by upstream passes and run;
every result must equal the definition evaluated element by element, and for
conjunctions of unit-coefficient comparisons the visited tiles must be exactly
those that are not empty, the full ones exactly those that are full. Integers are
of 8 to 64 bits and wrap.

usage: mask_soundness.py ATTN_OPT PASSES|none SEED CASES
"""
import os
import random
import subprocess
import sys

N = 24  # padded length of every state vector
SIZE = 19  # rows and columns of the data behind the slices


def data(i, j):
    return float((i * 7 + j * 3 + i * j) % 11 - 5)


ROWS = {"lo": [(3 * i) % 7 for i in range(SIZE)], "hi": [i + (5 * i) % 9 for i in range(SIZE)],
        "doc": [(i + 1) // 4 for i in range(SIZE)]}
COLS = {"doc": [(j + 2) // 4 for j in range(SIZE)], "rank": [(j * 5) % 13 for j in range(SIZE)]}


class Case:
    """Names, sizes and emitted lines of one function."""

    def __init__(self, rng, name):
        self.rng, self.name = rng, name
        self.rows, self.cols = rng.randint(1, SIZE), rng.randint(1, SIZE)
        if rng.random() < 0.3:
            self.cols = self.rows
        self.ti, self.tj = rng.choice([(4, 4), (2, 4), (4, 2), (3, 5), (1, 4)])
        self.order = rng.choice(["rows", "forall", "columns", "state"])
        self.uniform = [rng.randint(-6, 20) for _ in range(2)]
        self.flag = rng.random() < 0.5
        self.static = rng.random() < 0.3
        self.negated, self.both, self.aside = rng.random() < 0.3, False, None
        self.lines, self.n, self.indent = [], 0, "    "

    def new(self):
        self.n += 1
        return f"%t{self.n}"

    def line(self, text):
        self.lines.append(self.indent + text)

    def emit(self, text):
        v = self.new()
        self.line(f"{v} = {text}")
        return v

    def vec(self, t):
        return f"vector<{self.ti}x{self.tj}x{t}>"


WIDTHS = {"index": 64, "i64": 64, "i32": 32, "i16": 16, "i8": 8}


def wrap(value, t):
    """The number of type t with the same bits."""
    half = 1 << (WIDTHS[t] - 1)
    return (value + half) % (2 * half) - half


def bits(value, t):
    return value % (1 << WIDTHS[t])


def truncated(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


# Operations of arith by name: of the numbers a and b of type t.
ARITH = {
    "addi": lambda a, b, t: a + b, "subi": lambda a, b, t: a - b, "muli": lambda a, b, t: a * b,
    "andi": lambda a, b, t: a & b, "ori": lambda a, b, t: a | b, "xori": lambda a, b, t: a ^ b,
    "minsi": lambda a, b, t: min(a, b), "maxsi": lambda a, b, t: max(a, b),
    "minui": lambda a, b, t: min(bits(a, t), bits(b, t)),
    "maxui": lambda a, b, t: max(bits(a, t), bits(b, t)),
    "shli": lambda a, b, t: a << b, "shrsi": lambda a, b, t: a >> b,
    "shrui": lambda a, b, t: bits(a, t) >> b,
    "divsi": lambda a, b, t: truncated(a, b), "floordivsi": lambda a, b, t: a // b,
    "ceildivsi": lambda a, b, t: -(-a // b), "remsi": lambda a, b, t: a - truncated(a, b) * b,
    "divui": lambda a, b, t: bits(a, t) // bits(b, t),
    "ceildivui": lambda a, b, t: -(-bits(a, t) // bits(b, t)),
    "remui": lambda a, b, t: bits(a, t) % bits(b, t)}


# Integer expressions: (kind, ...). Evaluated in Python and emitted as vectors.
def ev(e, i, j, c, t):
    return wrap(evaluate(e, i, j, c, t), t)


def evaluate(e, i, j, c, t):
    k = e[0]
    if k == "i":
        return i
    if k == "j":
        return j
    if k == "const":
        return e[1]
    if k == "extent":
        return c.cols
    if k == "uni":
        return c.uniform[e[1]] if t == "index" else wrap(c.uniform[e[1]], "i32")
    if k == "row":
        return ROWS[e[1]][i] if i < c.rows else 0
    if k == "col":
        return COLS[e[1]][j] if j < c.cols else 0
    if k == "cast":
        a = ev(e[3], i, j, c, e[2])
        return bits(a, e[2]) if e[1] in ("extui", "index_castui") else a
    a = ev(e[1], i, j, c, t) if k != "arith" else None
    if k == "abs":
        return abs(a)
    if k == "mul":
        return a * e[2]
    if k == "div":
        return a // e[2]
    if k == "rem":
        return a % e[2]
    if k == "arith":
        return ARITH[e[1]](ev(e[2], i, j, c, t), ev(e[3], i, j, c, t), t)
    b = ev(e[2], i, j, c, t)
    return {"add": a + b, "sub": a - b, "min": min(a, b), "max": max(a, b)}[k]


def splat(c, scalar, t):
    return c.emit(f"vector.broadcast {scalar} : {t} to {c.vec(t)}")


def emit_loaded(c, name, size, base, along_rows):
    n = c.ti if along_rows else c.tj
    v = c.emit(f"vector.transfer_read %{name}[{base}], %pad32 : tensor<?xi32>, vector<{n}xi32>")
    v = c.emit(f"arith.index_cast {v} : vector<{n}xi32> to vector<{n}xindex>")
    return spread(c, v, along_rows)


def spread(c, v, along_rows, t="index"):
    """A vector along rows (columns) as a tile."""
    if not along_rows:
        return c.emit(f"vector.broadcast {v} : vector<{c.tj}x{t}> to {c.vec(t)}")
    v = c.emit(f"vector.broadcast {v} : vector<{c.ti}x{t}> to vector<{c.tj}x{c.ti}x{t}>")
    return c.emit(f"vector.transpose {v}, [1, 0] : vector<{c.tj}x{c.ti}x{t}> to {c.vec(t)}")


def emit_aside(c):
    """What a select that is no mask adds to the rows (columns) of a tile: 2 or 0."""
    key, pred, bound = c.aside
    n = c.ti if key == "i" else c.tj
    bound = c.emit(f"arith.constant dense<{bound}> : vector<{n}xindex>")
    condition = c.emit(f"arith.cmpi {pred}, {c.axis[key]}, {bound} : vector<{n}xindex>")
    two, zero = (c.emit(f"arith.constant dense<{v}> : vector<{n}xf32>") for v in (2.0, 0.0))
    chosen = c.emit(f"arith.select {condition}, {two}, {zero} : vector<{n}xi1>, vector<{n}xf32>")
    return spread(c, chosen, key == "i", "f32")


def em(e, c, t="index"):
    k, ty = e[0], c.vec(t)
    if k in "ij":
        return c.cast[k, t]
    if k == "const":
        return c.emit(f"arith.constant dense<{wrap(e[1], t)}> : {ty}")
    if k == "extent":
        return splat(c, "%C", "index")
    if k == "uni":
        if t == "index" and e[1] == 0:
            return splat(c, "%u0", "index")
        s = c.emit("tensor.extract %unis[%c1] : tensor<2xi32>" if e[1] else "tensor.extract %unis[%c0] : tensor<2xi32>")
        if t == "index":
            s = c.emit(f"arith.index_cast {s} : i32 to index")
        elif t != "i32":
            s = c.emit(f"arith.{'extsi' if t == 'i64' else 'trunci'} {s} : i32 to {t}")
        return splat(c, s, t)
    if k in ("row", "col"):
        v = emit_loaded(c, f"{k}_{e[1]}", None, "%i0" if k == "row" else "%j0", k == "row")
        return v if t == "index" else c.emit(f"arith.index_cast {v} : {c.vec('index')} to {ty}")
    if k == "cast":
        a = em(e[3], c, e[2])
        if e[2] == "index" and t != "i64":
            # As attn-define-integers does: upstream folds two index casts that lose bits.
            a = c.emit(f"arith.index_cast {a} : {c.vec('index')} to {c.vec('i64')}")
            return c.emit(f"arith.trunci {a} : {c.vec('i64')} to {ty}")
        return c.emit(f"arith.{e[1]} {a} : {c.vec(e[2])} to {ty}")
    if k == "arith":
        a, b = em(e[2], c, t), em(e[3], c, t)
        return c.emit(f"arith.{e[1]} {a}, {b} : {ty}")
    a = em(e[1], c, t)
    if k == "abs":
        zero = c.emit(f"arith.constant dense<0> : {ty}")
        negative = c.emit(f"arith.subi {zero}, {a} : {ty}")
        return c.emit(f"arith.maxsi {a}, {negative} : {ty}")
    if k in ("mul", "div", "rem"):
        b = c.emit(f"arith.constant dense<{e[2]}> : {ty}")
        plain = e[1][0] in "ij"
        if k == "mul":
            return c.emit(f"arith.muli {a}, {b} : {ty}")
        if k == "div":
            return c.emit(f"arith.{'divsi' if plain else 'floordivsi'} {a}, {b} : {ty}")
        if plain:
            return c.emit(f"arith.remsi {a}, {b} : {ty}")
        q = c.emit(f"arith.floordivsi {a}, {b} : {ty}")
        q = c.emit(f"arith.muli {q}, {b} : {ty}")
        return c.emit(f"arith.subi {a}, {q} : {ty}")
    b = em(e[2], c, t)
    op = {"add": "addi", "sub": "subi", "min": "minsi", "max": "maxsi"}[k]
    return c.emit(f"arith.{op} {a}, {b} : {ty}")


CMP = {"slt": lambda a, b: a < b, "sle": lambda a, b: a <= b, "sgt": lambda a, b: a > b,
       "sge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b}
UNSIGNED = {"ult": CMP["slt"], "ule": CMP["sle"], "ugt": CMP["sgt"], "uge": CMP["sge"]}


def bev(p, i, j, c):
    k = p[0]
    if k == "cmp":
        a, b = (ev(e, i, j, c, p[4]) for e in p[2:4])
        if p[1] in UNSIGNED:
            return UNSIGNED[p[1]](bits(a, p[4]), bits(b, p[4]))
        return CMP[p[1]](a, b)
    if k == "flag":
        return c.flag
    if k == "not":
        return not bev(p[1], i, j, c)
    if k == "and":
        return bev(p[1], i, j, c) and bev(p[2], i, j, c)
    if k == "or":
        return bev(p[1], i, j, c) or bev(p[2], i, j, c)
    return bev(p[2], i, j, c) if bev(p[1], i, j, c) else bev(p[3], i, j, c)


def bem(p, c):
    k, ty = p[0], c.vec("i1")
    if k == "cmp":
        t = p[4]
        a, b = em(p[2], c, t), em(p[3], c, t)
        return c.emit(f"arith.cmpi {p[1]}, {a}, {b} : {c.vec(t)}")
    if k == "flag":
        return splat(c, "%flag", "i1")
    a = bem(p[1], c)
    if k == "not":
        one = c.emit(f"arith.constant dense<true> : {ty}")
        return c.emit(f"arith.xori {a}, {one} : {ty}")
    b = bem(p[2], c)
    if k == "select":
        d = bem(p[3], c)
        return c.emit(f"arith.select {a}, {b}, {d} : {ty}, {ty}")
    return c.emit(f"arith.{k}i {a}, {b} : {ty}")


def unit_atom(rng):
    """A comparison whose constraint matrix is totally unimodular."""
    shift = ("const", rng.randint(-8, 12)) if rng.random() < 0.7 else ("uni", rng.randrange(2))
    form = rng.randrange(4)
    a, b = [(("i",), ("j",)), (("j",), ("i",)), (("j",), None), (("i",), None)][form]
    rhs = shift if b is None else ("add", b, shift)
    # (A sum with any number of 32 bits may wrap.)
    t = "index" if b and shift[0] == "uni" else rng.choice(["index", "i32"])
    return ("cmp", rng.choice(["slt", "sle", "sgt", "sge", "sge", "eq"]), a, rhs, t)


def number(rng, t):
    """A constant: small, or where fewer bits than 64 may wrap."""
    if WIDTHS[t] == 64 or rng.random() < 0.5:
        return rng.randint(-20, 30)
    return wrap((1 << (WIDTHS[t] - 1)) + rng.randint(-12, 12), t)


def integer(rng, t, depth):
    """Any expression of type t, of one that is cast to it, and of what wraps."""
    r = rng.random()
    if depth == 0 or r < 0.1:
        return rng.choice([("i",), ("j",), ("j",), ("const", number(rng, t)), ("uni", rng.randrange(2)),
                           ("row", rng.choice(["lo", "hi"])), ("col", "rank")])
    if r < 0.4:
        source = rng.choice([s for s in WIDTHS if s != t])
        return cast(rng, source, t, integer(rng, source, depth - 1))
    a = integer(rng, t, depth - 1)
    if r < 0.5:
        return ("abs", a)
    if r < 0.75:
        op = rng.choice(["shli", "shrsi", "shrui", "divsi", "floordivsi", "ceildivsi", "remsi", "divui",
                         "ceildivui", "remui", "andi", "muli"])
        b = rng.randint(0, 4 if WIDTHS[t] == 64 else 7) if op.startswith("sh") else rng.choice([2, 3, 4, 7, -3, 15])
        return ("arith", op, a, ("const", b))
    op = rng.choice(["addi", "addi", "subi", "subi", "minsi", "maxsi", "minui", "maxui", "ori", "xori"])
    return ("arith", op, a, integer(rng, t, depth - 1))


def cast(rng, source, t, e):
    """e of type source as one of type t."""
    if source == t:
        return e
    if "index" in (source, t):
        op = rng.choice(["index_cast", "index_cast", "index_castui"])
    elif WIDTHS[source] < WIDTHS[t]:
        op = rng.choice(["extsi", "extui"])
    else:
        op = "trunci"
    return ("cast", op, source, e)


def wrapping(rng):
    """An expression of few bits that wraps for some of the indices, with its type."""
    t = rng.choice(["i8", "i8", "i16", "i32"])
    leaf = rng.choice([("i",), ("j",), ("j",)])
    if rng.random() < 0.5:
        near = wrap((1 << (WIDTHS[t] - 1)) + rng.randint(-16, 16), t)
        return ("arith", rng.choice(["addi", "subi"]), leaf, ("const", near)), t
    much = ("arith", "muli", leaf, ("const", rng.randint(7, 60)))
    if rng.random() < 0.5:
        return much, "i8"
    source = rng.choice(["i32", "i64", "index"])
    return cast(rng, source, "i8", ("sub", much, ("const", rng.randint(-99, 99)))), "i8"


def wrapping_atom(rng):
    """One side is easy to project: a mistake on the other one then shows."""
    if rng.random() < 0.6:
        a, source = wrapping(rng)
        t = rng.choice([source, source, "i64", "index"])
        a = cast(rng, source, t, a)
        b = rng.choice([("i",), ("j",), ("const", rng.randint(-9, 19)), ("const", 0)])
        return ("cmp", rng.choice(list(CMP)), a, b, t)
    t = rng.choice(["i8", "i8", "i8", "i16", "i32", "i64", "index"])
    a, b = integer(rng, t, rng.randint(1, 3)), integer(rng, t, rng.randint(0, 1))
    return ("cmp", rng.choice(list(CMP) * 2 + list(UNSIGNED)), a, b, t)


def atom(rng):
    if rng.random() < 0.25:
        return wrapping_atom(rng)
    r = rng.random()
    t = rng.choice(["index", "index", "i32"])
    pred = rng.choice(list(CMP))
    i, j = ("i",), ("j",)
    if r < 0.4:
        return unit_atom(rng)
    if r < 0.55:
        lhs = ("add", ("mul", i, rng.randint(-3, 3)), ("mul", j, rng.randint(-3, 3)))
        return ("cmp", pred, lhs, ("const", rng.randint(-20, 30)), t)
    if r < 0.65:
        d = rng.randint(2, 6)
        return ("cmp", pred, ("div", i, d), ("div", rng.choice([j, ("sub", j, ("const", 3))]), d), t)
    if r < 0.7:
        return ("cmp", pred, ("rem", rng.choice([i, j, ("sub", i, j)]), rng.randint(2, 5)),
                ("const", rng.randint(0, 4)), t)
    if r < 0.78:
        return ("cmp", pred, ("abs", ("sub", i, j)), ("const", rng.randint(0, 8)), t)
    if r < 0.84:
        return ("cmp", pred, j, (rng.choice(["min", "max"]), ("add", i, ("const", rng.randint(-4, 4))), ("uni", 0)), t)
    if r < 0.93:
        return ("cmp", pred, j, ("row", rng.choice(["lo", "hi"])), t)
    if r < 0.97:
        return ("cmp", "eq", ("row", "doc"), ("col", "doc"), t)
    return ("flag",) if rng.random() < 0.5 else ("cmp", pred, ("col", "rank"), ("const", rng.randint(0, 12)), t)


def tree(rng, depth):
    r = rng.random()
    if depth == 0 or r < 0.25:
        return atom(rng)
    if r < 0.35:
        return ("not", tree(rng, depth - 1))
    if r < 0.4:
        return ("select", tree(rng, 0), tree(rng, depth - 1), tree(rng, depth - 1))
    return (rng.choice(["and", "or"]), tree(rng, depth - 1), tree(rng, depth - 1))


def choose_mask(rng, c):
    """The mask and whether it is a conjunction of unit atoms."""
    tail = ("cmp", "slt", ("j",), ("extent",), "index")
    exact = rng.random() < 0.4
    if exact:
        p = unit_atom(rng)
        for _ in range(rng.randint(0, 3)):
            p = ("and", p, unit_atom(rng))
    else:
        p = wrapping_atom(rng) if rng.random() < 0.4 else tree(rng, rng.randint(1, 3))
    return (("and", p, tail) if rng.random() < 0.7 else p), exact


def emit_head(c):
    # What sizes a tensor is an extent, and has 32 bits.
    c.line("%sized = tensor.empty(%R, %C) : tensor<?x?xf32>")
    for name in [f"row_{n}" for n in ROWS] + [f"col_{n}" for n in COLS]:
        size = "%R" if name.startswith("row") else "%C"
        c.line(f"%{name} = tensor.extract_slice %{name}_all[0] [{size}] [1] : tensor<{SIZE}xi32> to tensor<?xi32>")
    c.line(f"%x = tensor.extract_slice %x_all[0, 0] [%R, %C] [1, 1] : tensor<{SIZE}x{SIZE}xf32> to tensor<?x?xf32>")


def emit_axis(c, base, n, key):
    s = c.emit(f"vector.step : vector<{n}xindex>")
    b = c.emit(f"vector.broadcast {base} : index to vector<{n}xindex>")
    c.axis[key] = c.emit(f"arith.addi {s}, {b} : vector<{n}xindex>")


def emit_tile(c, p):
    """Masked terms of the tile at (%i0, %j0) for sum and maximum."""
    for key in "ij":
        c.cast[key, "index"] = spread(c, c.axis[key], key == "i")
        for t in WIDTHS:
            if t != "index":
                c.cast[key, t] = c.emit(f"arith.index_cast {c.cast[key, 'index']} : {c.vec('index')} to {c.vec(t)}")
    keep = bem(p, c)
    x = c.emit(f"vector.transfer_read %x[%i0, %j0], %pad : tensor<?x?xf32>, {c.vec('f32')}")
    if c.aside:
        x = c.emit(f"arith.addf {x}, {emit_aside(c)} : {c.vec('f32')}")
    zero = splat(c, "%pad", "f32")
    ninf = c.emit(f"arith.constant dense<0xFF800000> : {c.vec('f32')}")
    if c.negated:
        one = c.emit(f"arith.constant dense<true> : {c.vec('i1')}")
        keep = c.emit(f"arith.xori {keep}, {one} : {c.vec('i1')}")
    arms = lambda v, kept: f"{v}, {x}" if kept == c.negated else f"{x}, {v}"
    sel = lambda v, kept=True: c.emit(f"arith.select {keep}, {arms(v, kept)} : {c.vec('i1')}, {c.vec('f32')}")
    return sel(zero), sel(ninf), sel(zero, False) if c.both else None


def emit_fold(c, p, s, m, n, dim):
    zs, xs, others = emit_tile(c, p)
    t = f"{c.vec('f32')} to vector<{n}xf32>"
    if c.both:
        s = c.emit(f"vector.multi_reduction <add>, {others}, {s} [{dim}] : {t}")
    return (c.emit(f"vector.multi_reduction <add>, {zs}, {s} [{dim}] : {t}"),
            c.emit(f"vector.multi_reduction <maxnumf>, {xs}, {m} [{dim}] : {t}"))


def emit_case(c, p):
    c.cast, c.axis = {}, {}
    T, rowfold = f"tensor<{N}xf32>", c.order != "columns"
    out_n = c.ti if rowfold else c.tj
    V = f"vector<{out_n}xf32>"
    c.line(f"%zero_t = arith.constant dense<0.0> : {T}")
    c.line(f"%ninf_t = arith.constant dense<0xFF800000> : {T}")
    c.line(f"%zero_v = arith.constant dense<0.0> : {V}")
    c.line(f"%ninf_v = arith.constant dense<0xFF800000> : {V}")
    emit_head(c)
    # The fold runs over j for "rows" and "forall", over i for the two others.
    forall = c.order == "forall"
    outer, inner = ("i", "j") if forall or c.order == "rows" else ("j", "i")
    n = {"i": c.ti, "j": c.tj}
    bound = {"i": "%R", "j": "%C"}
    yields = f"({T}, {T})"
    if forall:
        c.line(f"%n = affine.apply affine_map<()[s] -> (s ceildiv {c.ti})>()[%R]")
        c.line(f"%r:2 = scf.forall (%tile) in (%n) shared_outs(%S = %zero_t, %M = %ninf_t) -> {yields} {{")
        c.line(f"%i0 = affine.apply affine_map<(d) -> (d * {c.ti})>(%tile)")
    else:
        c.line(f"%r:2 = scf.for %{outer}0 = %c0 to {bound[outer]} step %s{outer} iter_args(%S = %zero_t, %M = %ninf_t) -> {yields} {{")
    emit_axis(c, f"%{outer}0", n[outer], outer)
    state = c.order == "state"
    inits, ty = ("%a = %S, %b = %M", T) if state else ("%a = %zero_v, %b = %ninf_v", V)
    c.line(f"%f:2 = scf.for %{inner}0 = %c0 to {bound[inner]} step %s{inner} iter_args({inits}) -> ({ty}, {ty}) {{")
    emit_axis(c, f"%{inner}0", n[inner], inner)
    s, m = "%a", "%b"
    if state:
        s, m = (c.emit(f"vector.transfer_read {v}[%i0], %pad : {T}, {V}") for v in ("%a", "%b"))
    s, m = emit_fold(c, p, s, m, out_n, 1 if rowfold else 0)
    if state:
        s, m = (c.emit(f"vector.transfer_write {v}, {t}[%i0] : {V}, {T}") for v, t in ((s, "%a"), (m, "%b")))
    c.line(f"scf.yield {s}, {m} : {ty}, {ty}")
    c.line("} {attn.fold_loop}")
    res = ["%f#0", "%f#1"]
    if forall:
        t = f"tensor<{c.ti}xf32>"
        cells = [c.emit(f"tensor.extract_slice {v}[%i0] [{c.ti}] [1] : {T} to {t}") for v in ("%S", "%M")]
        cells = [c.emit(f"vector.transfer_write {v}, {cell}[%c0] {{in_bounds = [true]}} : {V}, {t}") for v, cell in zip(res, cells)]
        c.line("scf.forall.in_parallel {")
        for cell, out in zip(cells, ("%S", "%M")):
            c.line(f"tensor.parallel_insert_slice {cell} into {out}[%i0] [{c.ti}] [1] : {t} into {T}")
        c.line("}")
    elif not state:
        res = [c.emit(f"vector.transfer_write {v}, {t}[%{outer}0] : {V}, {T}")
               for v, t in zip(res, ("%S", "%M"))]
    if not forall:
        c.line(f"scf.yield {res[0]}, {res[1]} : {T}, {T}")
    c.line("}")
    for k in range(2):
        v = c.emit(f"vector.transfer_read %r#{k}[%c0], %pad : {T}, vector<{N}xf32>")
        c.line(f"vector.print {v} : vector<{N}xf32>")
    args = ", ".join(f"%{a}{'_' if c.static and a in 'RC' else ''}: index" for a in ("R", "C", "u0"))
    head = [f"  func.func @{c.name}({args}, %flag: i1, %unis: tensor<2xi32>) {{"]
    consts = [("c0", 0), ("c1", 1), ("si", c.ti), ("sj", c.tj)]
    if c.static:
        consts += [("R", c.rows), ("C", c.cols)]
    head += [f"    %{k} = arith.constant {v} : index" for k, v in consts]
    head += ["    %pad = arith.constant 0.0 : f32", "    %pad32 = arith.constant 0 : i32"]
    for kind, table in (("row", ROWS), ("col", COLS)):
        for k, v in table.items():
            head.append(f"    %{kind}_{k}_all = arith.constant dense<{v}> : tensor<{SIZE}xi32>")
    grid = [[data(i, j) for j in range(SIZE)] for i in range(SIZE)]
    head.append(f"    %x_all = arith.constant dense<{grid}> : tensor<{SIZE}x{SIZE}xf32>")
    return "\n".join(head + c.lines + ["    return", "  }"])


def expect(c, p):
    """Results and tile counts by the definition."""
    def x(i, j):
        value = data(i, j) if i < c.rows and j < c.cols else 0.0
        if c.aside and CMP[c.aside[1]](i if c.aside[0] == "i" else j, c.aside[2]):
            value += 2.0
        return value

    rowfold = c.order != "columns"
    s, m = [0.0] * N, [float("-inf")] * N
    some = every = 0
    for i0 in range(0, c.rows, c.ti):
        for j0 in range(0, c.cols, c.tj):
            keeps = 0
            for i in range(i0, i0 + c.ti):
                for j in range(j0, j0 + c.tj):
                    kept = bev(p, i, j, c)
                    keeps += kept
                    at = i if rowfold else j
                    if at < N and (kept or c.both):
                        s[at] += x(i, j)
                        if kept:
                            m[at] = max(m[at], x(i, j))
            some += keeps > 0
            every += keeps == c.ti * c.tj
    return s, m, some, every


def module(cases):
    out = ["module {", '  memref.global "private" @tiles : memref<2xindex> = dense<0>',
           "  func.func private @attnRuntimeCountTile(%kind: i32) {",
           "    %k = arith.index_cast %kind : i32 to index", "    %c1 = arith.constant 1 : index",
           "    %g = memref.get_global @tiles : memref<2xindex>", "    %v = memref.load %g[%k] : memref<2xindex>",
           "    %n = arith.addi %v, %c1 : index", "    memref.store %n, %g[%k] : memref<2xindex>", "    return", "  }"]
    main = ["  func.func @main() {", "    %g = memref.get_global @tiles : memref<2xindex>",
            "    %c0 = arith.constant 0 : index", "    %c1 = arith.constant 1 : index"]
    for n, (c, p, _) in enumerate(cases):
        out.append(emit_case(c, p))
        names = ", ".join(f"%m{n}_{k}" for k in ("r", "c", "u", "f", "t"))
        for k, v in (("r", c.rows), ("c", c.cols), ("u", c.uniform[0])):
            main.append(f"    %m{n}_{k} = arith.constant {v} : index")
        main.append(f"    %m{n}_f = arith.constant {str(c.flag).lower()}")
        words = [wrap(value, "i32") for value in c.uniform]
        main.append(f"    %m{n}_t = arith.constant dense<{words}> : tensor<2xi32>")
        main.append("    memref.store %c0, %g[%c0] : memref<2xindex>\n    memref.store %c0, %g[%c1] : memref<2xindex>")
        main.append(f"    call @{c.name}({names}) : (index, index, index, i1, tensor<2xi32>) -> ()")
        for k in (0, 1):
            main.append(f"    %m{n}_v{k} = memref.load %g[%c{k}] : memref<2xindex>")
            main.append(f"    vector.print %m{n}_v{k} : index")
    return "\n".join(out + main + ["    return", "  }", "}", ""])


LOWER = ("--one-shot-bufferize=bufferize-function-boundaries --scf-forall-to-for --canonicalize "
         "--lower-vector-multi-reduction --convert-vector-to-scf --lower-affine --arith-expand --convert-scf-to-cf "
         "--expand-strided-metadata --lower-affine --convert-vector-to-llvm "
         "--convert-ub-to-llvm --convert-arith-to-llvm --finalize-memref-to-llvm --convert-func-to-llvm --convert-cf-to-llvm "
         "--reconcile-unrealized-casts").split()


def run(command, text):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr[:4000]}")
    return done.stdout


def main():
    attn_opt, passes, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    rng = random.Random(seed)
    cases = []
    c = Case(rng, "case0")
    c.rows, c.cols, c.ti, c.tj, c.order = 16, 16, 4, 4, "rows"
    cases.append((c, ("and", ("cmp", "sge", ("i",), ("j",), "index"), ("cmp", "slt", ("j",), ("extent",), "index")), True))
    for n in range(1, count):
        c = Case(rng, f"case{n}")
        p, exact = choose_mask(rng, c)
        # A second sum, of what the mask drops: no tile is empty for both.
        c.both = rng.random() < 0.2
        if c.both and rng.random() < 0.5:
            p = ("flag",)
        # A select along rows or columns alone, of what it adds to the terms.
        if rng.random() < 0.25:
            c.aside = rng.choice("ij"), rng.choice(["slt", "sge", "eq", "ne"]), rng.randint(0, SIZE)
        exact = exact and not c.both and not c.aside
        if not exact and rng.random() < 0.3:
            c.uniform[0] = wrap((1 << 63) + rng.randint(-9, 9), "index")
        cases.append((c, p, exact))
    text = module(cases)
    if "--dump" in sys.argv:
        print(text)
        return
    passes = [] if passes == "none" else ["--" + p for p in passes.split(",")]
    text = run([attn_opt] + passes + ["--attn-count-tiles"], text)
    text = run(["mlir-opt"] + LOWER, text)
    tools = next(d for d in os.environ["PATH"].split(os.pathsep) if os.path.exists(os.path.join(d, "mlir-runner")))
    lib = os.path.join(tools, "..", "lib", "libmlir_c_runner_utils.so")
    out = run(["mlir-runner", "-O0", "-e", "main", "--entry-point-result=void", "--shared-libs=" + lib], text).split("\n")
    total = visited = full = 0
    failures = 0
    for n, (c, p, exact) in enumerate(cases):
        sums, maxima = ([float(v) for v in line.strip("( )").split(",")] for line in out[4 * n:4 * n + 2])
        partial, whole = int(out[4 * n + 2]), int(out[4 * n + 3])
        s, m, some, every = expect(c, p)
        tiles = -(-c.rows // c.ti) * -(-c.cols // c.tj)
        total, visited, full = total + tiles, visited + partial + whole, full + whole
        wrong = sums != s or maxima != m or not some <= partial + whole <= tiles or whole > every
        if passes and exact:
            wrong |= (partial + whole, whole) != (some, every)
        if n == 0:
            print(f"causal: {partial + whole} of {tiles} tiles, {whole} full")
        if not passes:
            wrong |= partial + whole != tiles
        if wrong:
            failures += 1
            print(f"case {n}: {c.order} rows {c.rows} cols {c.cols} tile {c.ti}x{c.tj} uniform {c.uniform} flag {c.flag} aside {c.aside}\n"
                  f"  mask {p}\n  got  {sums} {maxima} partial {partial} full {whole}\n"
                  f"  want {s} {m} non-empty {some} full {every} of {tiles}{' exactly' if exact else ''}")
    print(f"{count} cases, {failures} wrong; {visited} of {total} tiles visited, {full} full")
    sys.exit(failures != 0)


main()
