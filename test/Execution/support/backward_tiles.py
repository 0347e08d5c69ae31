# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The backward of attention as tile programs (L2), and its meaning in numpy.

    S = scale Q K^T, P = exp(S - lse), dP = dO V^T, dS = scale P (dP - delta)
    dQ = dS K, dK = dS^T Q, dV = P^T dO

`main(Q, K, V, dO, lse, delta) -> (dQ, dK, dV)` takes [b, h, i, d] and
[b, h, j, d] tensors; with groups Q, dO, lse, delta and dQ have the query heads
of a key head as a dimension after h. Two forms:

fused        keys outside, queries inside: dK and dV are carried, dQ is read
             from memory, added to and written back for each pair of tiles;
distributed  one nest over queries for dQ, one over keys for dK and dV.
"""

import numpy as np

CONTRACT = ('vector.contract {{indexing_maps = [{maps}], iterator_types = [{kinds}], '
            'kind = #vector.kind<add>}} {a}, {b}, {acc} : {at}, {bt} into {rt}')


def contract(a, b, acc, spec, at, bt, rt):
    """`spec` as in einsum, for example "id,jd->ij"."""
    inputs, out = spec.split("->")
    left, right = inputs.split(",")
    dims = sorted(set(left + right))
    maps = ", ".join(f"affine_map<({', '.join(dims)}) -> ({', '.join(x)})>" for x in (left, right, out))
    kinds = ", ".join('"parallel"' if x in out else '"reduction"' for x in dims)
    return CONTRACT.format(maps=maps, kinds=kinds, a=a, b=b, acc=acc, at=at, bt=bt, rt=rt)


class Program:
    """`rows` and `keys` are the lengths, None for dynamic ones; `tile` is that of
    queries and keys."""

    def __init__(self, form, d, dv, element="f32", grouped=False, rows=None, keys=None, tile=(64, 128)):
        self.form, self.d, self.dv, self.t, self.grouped = form, d, dv, element, grouped
        self.sq, self.sk = (("?" if n is None else str(n)) for n in (rows, keys))
        self.ti, self.tj = tile

    # Types.
    def tensor(self, *dims, element=None):
        return f"tensor<{'x'.join(map(str, dims))}x{element or self.t}>"

    def lead(self):
        return ["?"] * (3 if self.grouped else 2)

    def of_query(self, *inner, element=None):
        return self.tensor(*self.lead(), self.sq, *inner, element=element)

    def of_key(self, inner, element=None):
        return self.tensor("?", "?", self.sk, inner, element=element)

    def vec(self, *dims, element="f32"):
        return f"vector<{'x'.join(map(str, dims))}x{element}>"

    def text(self):
        head = [f"func.func @main(%q: {self.of_query(self.d)}, %k: {self.of_key(self.d)}, %v: {self.of_key(self.dv)},",
                f"    %do: {self.of_query(self.dv)}, %lse: {self.of_query(element='f32')}, "
                f"%delta: {self.of_query(element='f32')})",
                f"    -> ({self.of_query(self.d, element='f32')}, {self.of_key(self.d, element='f32')}, "
                f"{self.of_key(self.dv, element='f32')}) {{"]
        body = self.constants()
        body += self.fused() if self.form == "fused" else self.rows_nest() + self.keys_nest()
        body += [f"return %dq, %dk, %dv : {self.of_query(self.d, element='f32')}, "
                 f"{self.of_key(self.d, element='f32')}, {self.of_key(self.dv, element='f32')}"]
        return "\n".join(head + ["  " + line for line in body] + ["}"]) + "\n"

    def constants(self):
        lines = [f"%c{n} = arith.constant {n} : index" for n in sorted({0, 1, 2, 3, self.ti, self.tj})]
        lines += [f"%pad = arith.constant 0.0 : {self.t}"]
        if self.t != "f32":
            lines += ["%padf = arith.constant 0.0 : f32"]
        s, ij = self.d**-0.5, self.vec(self.ti, self.tj)
        lines += [f"%scale = arith.constant dense<{s:.9e}> : {ij}", f"%zij = arith.constant dense<0.0> : {ij}",
                  f"%low = arith.constant dense<0xFF800000> : {ij}"]
        for name, shape in (("zid", (self.ti, self.d)), ("zjd", (self.tj, self.d)), ("zje", (self.tj, self.dv))):
            lines += [f"%{name} = arith.constant dense<0.0> : {self.vec(*shape)}"]
        where = 3 if self.grouped else 2
        lines += [f"%cw = arith.constant {where} : index",
                  f"%sq = tensor.dim %q, %cw : {self.of_query(self.d)}",
                  f"%sk = tensor.dim %k, %c2 : {self.of_key(self.d)}",
                  f"%nb = tensor.dim %k, %c0 : {self.of_key(self.d)}",
                  f"%nh = tensor.dim %k, %c1 : {self.of_key(self.d)}"]
        if self.grouped:
            lines += [f"%ng = tensor.dim %q, %c2 : {self.of_query(self.d)}"]
        return lines

    # Tiles of inputs: the read, and its widening where the inputs are narrow.
    def read(self, name, tensor, at, shape, kind, whole, element=None):
        element = element or self.t
        pad = "%pad" if element == self.t else "%padf"
        inside = [whole] + ["true"] * (len(shape) - 1)
        flags = f" {{in_bounds = [{', '.join(str(x).lower() for x in inside)}]}}"
        raw = name if element == "f32" else name + "n"
        lines = [f"%{raw} = vector.transfer_read %{tensor}[{', '.join(at)}], {pad}{flags} : "
                 f"{kind}, {self.vec(*shape, element=element)}"]
        if element != "f32":
            lines += [f"%{name} = arith.extf %{raw} : {self.vec(*shape, element=element)} to {self.vec(*shape)}"]
        return lines

    def query_lead(self):
        return ["%b", "%h"] + (["%g"] if self.grouped else [])

    def read_queries(self, whole):
        at = self.query_lead() + ["%i0"]
        lines = self.read("qt", "q", at + ["%c0"], (self.ti, self.d), self.of_query(self.d), whole)
        lines += self.read("dot", "do", at + ["%c0"], (self.ti, self.dv), self.of_query(self.dv), whole)
        for name in ("lse", "delta"):
            lines += self.read(name + "t", name, at, (self.ti,), self.of_query(element="f32"), whole, "f32")
        return lines

    def read_keys(self, whole):
        at = ["%b", "%h", "%j0", "%c0"]
        return (self.read("kt", "k", at, (self.tj, self.d), self.of_key(self.d), whole)
                + self.read("vt", "v", at, (self.tj, self.dv), self.of_key(self.dv), whole))

    def scores(self, whole):
        """P and dS of the pair of tiles at %i0, %j0."""
        ti, tj = self.ti, self.tj
        id_, je, ij = self.vec(ti, self.d), self.vec(tj, self.dv), self.vec(ti, tj)
        ji, jd, ie = self.vec(tj, ti), self.vec(tj, self.d), self.vec(ti, self.dv)
        lines = [f"%s = {contract('%qt', '%kt', '%zij', 'id,jd->ij', id_, jd, ij)}",
                 f"%ss = arith.mulf %s, %scale : {ij}"]
        masked = "%ss"
        if not whole:
            lines += ["%si = vector.step : " + self.vec(ti, element="index"),
                      "%sj = vector.step : " + self.vec(tj, element="index")]
            for x, n, size in (("i", ti, "%sq"), ("j", tj, "%sk")):
                line = self.vec(n, element="index")
                lines += [f"%b{x} = vector.broadcast %{x}0 : index to {line}", f"%p{x} = arith.addi %s{x}, %b{x} : {line}",
                          f"%n{x} = vector.broadcast {size} : index to {line}",
                          f"%k{x} = arith.cmpi slt, %p{x}, %n{x} : {line}"]
            lines += [f"%wi = vector.broadcast %ki : {self.vec(ti, element='i1')} to {self.vec(tj, ti, element='i1')}",
                      f"%ti = vector.transpose %wi, [1, 0] : {self.vec(tj, ti, element='i1')} to "
                      f"{self.vec(ti, tj, element='i1')}",
                      f"%tj = vector.broadcast %kj : {self.vec(tj, element='i1')} to {self.vec(ti, tj, element='i1')}",
                      f"%keep = arith.andi %ti, %tj : {self.vec(ti, tj, element='i1')}",
                      f"%sm = arith.select %keep, %ss, %low : {self.vec(ti, tj, element='i1')}, {ij}"]
            masked = "%sm"
        for name in ("lse", "delta"):
            lines += [f"%{name}w = vector.broadcast %{name}t : {self.vec(ti)} to {ji}",
                      f"%{name}x = vector.transpose %{name}w, [1, 0] : {ji} to {ij}"]
        lines += [f"%sl = arith.subf {masked}, %lsex : {ij}", f"%p = math.exp %sl : {ij}",
                  f"%dp = {contract('%dot', '%vt', '%zij', 'ie,je->ij', ie, je, ij)}",
                  f"%dd = arith.subf %dp, %deltax : {ij}", f"%pd = arith.mulf %p, %dd : {ij}",
                  f"%ds = arith.mulf %pd, %scale : {ij}"]
        return lines

    def add_to_keys(self, dk, dv):
        ti, tj = self.ti, self.tj
        ij, jd, je = self.vec(ti, tj), self.vec(tj, self.d), self.vec(tj, self.dv)
        return [f"%dv1 = {contract('%p', '%dot', dv, 'ij,ie->je', ij, self.vec(ti, self.dv), je)}",
                f"%dk1 = {contract('%ds', '%qt', dk, 'ij,id->jd', ij, self.vec(ti, self.d), jd)}"]

    def loop(self, over, ranges, carried, inits, body):
        """A chain of loops, one for each (whether tiles are whole, lower, upper,
        step), with iter_args [(name, type)]. `body(whole)` returns lines and the
        names of what is yielded. The results are %<name>r of the last loop."""
        lines = []
        kinds = ", ".join(kind for _, kind in carried)
        for number, (whole, lower, upper, step) in enumerate(ranges):
            last = number + 1 == len(ranges)
            result = f"%l{over}{'' if last else number}"
            args = ", ".join(f"%{name} = {init}" for (name, _), init in zip(carried, inits))
            lines += [f"{result}:{len(carried)} = scf.for %{over} = {lower} to {upper} step {step} iter_args({args}) -> ({kinds}) {{"]
            inner, yields = body(whole)
            lines += ["  " + line for line in inner]
            mark = "" if whole is None else f" {{attn.fold_loop, attn.{'full' if whole else 'partial'}}}"
            lines += [f"  scf.yield {', '.join(yields)} : {kinds}", "}" + mark]
            inits = [f"{result}#{n}" for n in range(len(carried))]
        return lines, inits

    def over_groups(self, carried, inits, body):
        if not self.grouped:
            return body(inits)
        def inner(_):
            return body([f"%{name}" for name, _ in outer])
        outer = [(name + "g", kind) for name, kind in carried]
        return self.loop("g", [(None, "%c0", "%ng", "%c1")], outer, inits, inner)

    def query_ranges(self):
        """Whole tiles of queries, if the tile of keys is whole, then others."""
        ti, tj = self.ti, self.tj
        before = [f"%jn = arith.addi %j0, %c{tj} : index", "%jw = arith.cmpi sle, %jn, %sk : index",
                  f"%iw = affine.apply affine_map<()[s] -> (s floordiv {ti} * {ti})>()[%sq]",
                  "%if = arith.select %jw, %iw, %c0 : index"]
        return before, [(True, "%c0", "%if", f"%c{ti}"), (False, "%if", "%sq", f"%c{ti}")]

    def fused(self):
        ti, tj, f = self.ti, self.tj, "f32"
        dq, dk, dv = self.of_query(self.d, element=f), self.of_key(self.d, element=f), self.of_key(self.dv, element=f)
        dynamic = ["%nb", "%nh"] + (["%ng"] if self.grouped else [])
        sq, sk = (["%sq"] if self.sq == "?" else []), (["%sk"] if self.sk == "?" else [])
        lead = self.query_lead()[:2]
        group = ["%ng"] if self.grouped else []
        ones = "1, 1"
        slice_q = self.tensor(*([1, 1] + (["?"] if group else []) + [self.sq, self.d]), element=f)
        slice_d, slice_e = (self.tensor(1, 1, self.sk, n, element=f) for n in (self.d, self.dv))
        size_q, size_k = ("%sq" if self.sq == "?" else self.sq), ("%sk" if self.sk == "?" else self.sk)
        where_q = f"[{', '.join(lead + ['0'] * len(group) + ['0', '0'])}] [{', '.join([ones] + group + [size_q, str(self.d)])}] " \
                  f"[{', '.join(['1'] * (4 + len(group)))}]"
        where = {n: f"[%b, %h, 0, 0] [1, 1, {size_k}, {n}] [1, 1, 1, 1]" for n in (self.d, self.dv)}
        lines = ["%zero = arith.constant 0.0 : f32",
                 f"%eq = tensor.empty({', '.join(dynamic + sq)}) : {dq}",
                 f"%fq = linalg.fill ins(%zero : f32) outs(%eq : {dq}) -> {dq}",
                 f"%ek = tensor.empty({', '.join(['%nb', '%nh'] + sk)}) : {dk}",
                 f"%ev = tensor.empty({', '.join(['%nb', '%nh'] + sk)}) : {dv}",
                 f"%dq, %dk, %dv = scf.forall (%b, %h) in (%nb, %nh) shared_outs(%oq = %fq, %ok = %ek, %ov = %ev) "
                 f"-> ({dq}, {dk}, {dv}) {{",
                 f"  %xq = tensor.extract_slice %oq{where_q} : {dq} to {slice_q}",
                 f"  %xk = tensor.extract_slice %ok{where[self.d]} : {dk} to {slice_d}",
                 f"  %xv = tensor.extract_slice %ov{where[self.dv]} : {dv} to {slice_e}"]
        at_q = ["%c0", "%c0"] + (["%g"] if group else []) + ["%i0"]
        id_, jd, je = self.vec(ti, self.d), self.vec(tj, self.d), self.vec(tj, self.dv)
        state = [("dka", jd), ("dva", je), ("qa", slice_q)]

        def pair(whole):
            flags = f"{{in_bounds = [{str(whole).lower()}, true]}}"
            body = self.read_queries(whole) + self.scores(whole) + self.add_to_keys("%dka", "%dva")
            body += [f"%old = vector.transfer_read %qa[{', '.join(at_q + ['%c0'])}], "
                     f"{'%pad' if self.t == 'f32' else '%padf'} {flags} : {slice_q}, {id_}",
                     f"%new = {contract('%ds', '%kt', '%old', 'ij,jd->id', self.vec(ti, tj), jd, id_)}",
                     f"%qn = vector.transfer_write %new, %qa[{', '.join(at_q + ['%c0'])}] {flags} : {id_}, {slice_q}"]
            return body, ["%dk1", "%dv1", "%qn"]

        def keys(_):
            before, ranges = self.query_ranges()
            body, names = self.over_groups(state, ["%zjd", "%zje", "%qj"],
                                           lambda inits: self.loop("i0", ranges, state, inits, pair))
            after = [f"%kn = vector.transfer_write {names[0]}, %kj0[%c0, %c0, %j0, %c0] {{in_bounds = [false, true]}} : {jd}, {slice_d}",
                     f"%vn = vector.transfer_write {names[1]}, %vj0[%c0, %c0, %j0, %c0] {{in_bounds = [false, true]}} : {je}, {slice_e}"]
            return self.read_keys(False) + before + body + after, [names[2], "%kn", "%vn"]

        inner, names = self.loop("j0", [(None, "%c0", "%sk", f"%c{tj}")],
                                 [("qj", slice_q), ("kj0", slice_d), ("vj0", slice_e)], ["%xq", "%xk", "%xv"], keys)
        lines += ["  " + line for line in inner]
        lines += ["  scf.forall.in_parallel {",
                  f"    tensor.parallel_insert_slice {names[0]} into %oq{where_q} : {slice_q} into {dq}",
                  f"    tensor.parallel_insert_slice {names[1]} into %ok{where[self.d]} : {slice_d} into {dk}",
                  f"    tensor.parallel_insert_slice {names[2]} into %ov{where[self.dv]} : {slice_e} into {dv}",
                  "  }", "}"]
        return lines

    def rows_nest(self):
        ti, tj, f = self.ti, self.tj, "f32"
        dq, id_ = self.of_query(self.d, element=f), self.vec(ti, self.d)
        lead, counts = self.query_lead(), ["%nb", "%nh"] + (["%ng"] if self.grouped else [])
        part = self.tensor(*([1] * len(lead)), "?", self.d, element=f)
        where = f"[{', '.join(lead + ['%i0', '0'])}] [{', '.join(['1'] * len(lead) + ['%in', str(self.d)])}] " \
                f"[{', '.join(['1'] * (len(lead) + 2))}]"
        lines = [f"%eq = tensor.empty({', '.join(counts + (['%sq'] if self.sq == '?' else []))}) : {dq}",
                 f"%tq = affine.apply affine_map<()[s] -> (s ceildiv {ti})>()[%sq]",
                 f"%dq = scf.forall ({', '.join(lead + ['%t'])}) in ({', '.join(counts + ['%tq'])}) shared_outs(%oq = %eq) -> ({dq}) {{"]
        body = [f"%i0 = affine.apply affine_map<(t) -> (t * {ti})>(%t)",
                f"%in = affine.min affine_map<(t)[s] -> (t * -{ti} + s, {ti})>(%t)[%sq]",
                f"%x = tensor.extract_slice %oq{where} : {dq} to {part}"] + self.read_queries(False)
        body += [f"%ie = arith.addi %i0, %c{ti} : index", "%iw = arith.cmpi sle, %ie, %sq : index",
                 f"%jw = affine.apply affine_map<()[s] -> (s floordiv {tj} * {tj})>()[%sk]",
                 "%jf = arith.select %iw, %jw, %c0 : index"]

        def pair(whole):
            product = contract("%ds", "%kt", "%dqa", "ij,jd->id", self.vec(ti, tj), self.vec(tj, self.d), id_)
            return self.read_keys(whole) + self.scores(whole) + [f"%dq1 = {product}"], ["%dq1"]

        inner, names = self.loop("j0", [(True, "%c0", "%jf", f"%c{tj}"), (False, "%jf", "%sk", f"%c{tj}")],
                                 [("dqa", id_)], ["%zid"], pair)
        at = ", ".join(["%c0"] * (len(lead) + 2))
        body += inner + [f"%y = vector.transfer_write {names[0]}, %x[{at}] {{in_bounds = [false, true]}} : {id_}, {part}",
                         "scf.forall.in_parallel {",
                         f"  tensor.parallel_insert_slice %y into %oq{where} : {part} into {dq}", "}"]
        return lines + ["  " + line for line in body] + ["}"]

    def keys_nest(self):
        tj, f = self.tj, "f32"
        dk, dv = self.of_key(self.d, element=f), self.of_key(self.dv, element=f)
        jd, je = self.vec(tj, self.d), self.vec(tj, self.dv)
        parts = [self.tensor(1, 1, "?", n, element=f) for n in (self.d, self.dv)]
        where = [f"[%b, %h, %j0, 0] [1, 1, %jl, {n}] [1, 1, 1, 1]" for n in (self.d, self.dv)]
        size = f"%nb, %nh{', %sk' if self.sk == '?' else ''}"
        lines = [f"%ek = tensor.empty({size}) : {dk}", f"%ev = tensor.empty({size}) : {dv}",
                 f"%tk = affine.apply affine_map<()[s] -> (s ceildiv {tj})>()[%sk]",
                 f"%dk, %dv = scf.forall (%b, %h, %t) in (%nb, %nh, %tk) shared_outs(%ok = %ek, %ov = %ev) -> ({dk}, {dv}) {{"]
        body = [f"%j0 = affine.apply affine_map<(t) -> (t * {tj})>(%t)",
                f"%jl = affine.min affine_map<(t)[s] -> (t * -{tj} + s, {tj})>(%t)[%sk]",
                f"%xk = tensor.extract_slice %ok{where[0]} : {dk} to {parts[0]}",
                f"%xv = tensor.extract_slice %ov{where[1]} : {dv} to {parts[1]}"] + self.read_keys(False)
        before, ranges = self.query_ranges()
        state = [("dka", jd), ("dva", je)]

        def pair(whole):
            return self.read_queries(whole) + self.scores(whole) + self.add_to_keys("%dka", "%dva"), ["%dk1", "%dv1"]

        inner, names = self.over_groups(state, ["%zjd", "%zje"],
                                        lambda inits: self.loop("i0", ranges, state, inits, pair))
        zeros = "%c0, %c0, %c0, %c0"
        body += before + inner
        for n, (x, kind) in enumerate((("k", jd), ("v", je))):
            body += [f"%y{x} = vector.transfer_write {names[n]}, %x{x}[{zeros}] {{in_bounds = [false, true]}} : {kind}, {parts[n]}"]
        body += ["scf.forall.in_parallel {"]
        body += [f"  tensor.parallel_insert_slice %y{x} into %o{x}{where[n]} : {parts[n]} into {kind}"
                 for n, (x, kind) in enumerate((("k", dk), ("v", dv)))]
        return lines + ["  " + line for line in body + ["}"]] + ["}"]


def inputs(b, h, groups, sq, sk, d, dv, rng):
    """Q, K, V, dO, and the lse and delta of a forward, in float64."""
    lead = (b, h) + ((groups,) if groups else ())
    q, do = rng.standard_normal(lead + (sq, d)), rng.standard_normal(lead + (sq, dv))
    k, v = rng.standard_normal((b, h, sk, d)), rng.standard_normal((b, h, sk, dv))
    return q, k, v, do


def forward(q, k, v, do):
    kx, vx = (x[:, :, None] if q.ndim == 5 else x for x in (k, v))
    s = q @ kx.swapaxes(-1, -2) * q.shape[-1]**-0.5
    m = s.max(axis=-1, keepdims=True)
    l = np.exp(s - m).sum(axis=-1, keepdims=True)
    o = np.exp(s - m) / l @ vx
    return (m + np.log(l))[..., 0], (o * do).sum(axis=-1)


def backward(q, k, v, do, lse, delta):
    kx, vx = (x[:, :, None] if q.ndim == 5 else x for x in (k, v))
    scale = q.shape[-1]**-0.5
    p = np.exp(q @ kx.swapaxes(-1, -2) * scale - lse[..., None])
    ds = p * (do @ vx.swapaxes(-1, -2) - delta[..., None]) * scale
    dk, dv = ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ do
    if q.ndim == 5:
        dk, dv = dk.sum(axis=2), dv.sum(axis=2)
    return ds @ kx, dk, dv
