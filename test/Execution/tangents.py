# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.jvp and attn.backward_jvp, beside the definition with a complex step.

f(x + i e u) = f(x) + i e f'(x) u for an analytic f, up to e^2: with e = 1e-30 the imaginary part is
the tangent to the last bit. So numpy's definition of attention, and of its gradient, is the
reference, evaluated on complex numbers of float64 (of extended precision for f64). The baseline is the
same in float32 (float64), P from LSE as kernels have it, and operands of products rounded as tensors
are; the gates are those of support/reference.py."""

import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
from support import reference

STEP = {np.longdouble: 1e-30, np.float64: 1e-30, np.float32: 1e-6}
COMPLEX = {np.longdouble: np.clongdouble, np.float64: np.complex128, np.float32: np.complex64}
# type, d, dv, query heads, key heads, queries, keys, mask, score, what is wanted, what has a tangent
CASES = [
    ("f32", 16, 16, 1, 1, 32, 32, "none", "tanh", "qkv", "-"),
    ("f32", 16, 16, 2, 2, 70, 90, "none", "tanh", "qkvc", "qkvcol"),
    ("f32", 16, 24, 4, 2, 33, 65, "causal", "slope", "qkvc", "qkvcol"),
    ("f32", 64, 64, 2, 1, 65, 130, "window", "none", "qkv", "q"),
    ("f64", 24, 8, 2, 1, 33, 65, "causal", "tanh", "qkvc", "qkvcol"),
    ("f64", 16, 16, 2, 2, 40, 33, "none", "none", "kv", "kv"),
    ("bf16", 64, 64, 2, 2, 130, 200, "causal", "none", "qkv", "qkv"),
    ("bf16", 59, 40, 2, 1, 70, 100, "none", "tanh", "qkvc", "qkvcol"),
    ("f16", 128, 128, 2, 1, 100, 130, "causal", "none", "qkv", "qkvol"),
    ("bf16", 64, 64, 2, 1, 1, 65, "none", "slope", "qkvc", "qkv"),
]
MASKS = {
    "none": (None, lambda i, j: True),
    "causal": ("%keep = arith.cmpi sge, %i, %j : index", lambda i, j: i >= j),
    # Rows from 60 on have no keys.
    "window": (
        "%d = arith.subi %j, %i : index\n %z = arith.constant 9 : index\n %w = arith.cmpi slt, %d, %z : index\n"
        " %l = arith.constant 60 : index\n %a = arith.cmpi slt, %i, %l : index\n %keep = arith.andi %w, %a : i1",
        lambda i, j: (j - i < 9) & (i < 60),
    ),
}
SCORES = {
    "none": (None, lambda s, c, i, j: s),
    "tanh": ("%y = math.tanh %s : ACC\n %t = arith.mulf %y, %x : ACC", lambda s, c, i, j: np.tanh(s) * c),
    "slope": (
        "%n = arith.subi %i, %j : index\n %m = arith.index_cast %n : index to i64\n %f = arith.sitofp %m : i64 to ACC\n"
        " %y = arith.mulf %f, %x : ACC\n %t = arith.addf %s, %y : ACC",
        lambda s, c, i, j: s + c * (i - j),
    ),
}


def text_of(case):
    element, d, dv, _, _, _, _, mask, score, _, _ = case
    acc = "f64" if element == "f64" else "f32"
    q, v = f"tensor<?x?x?x{d}x{element}>", f"tensor<?x?x?x{dv}x{element}>"
    indices = "%b: index, %h: index, %i: index, %j: index, %c: tensor<?xACC>"
    regions = ""
    if SCORES[score][0]:
        regions += f"score {{\n^bb0(%s: ACC, {indices}):\n %x = tensor.extract %c[%h] : tensor<?xACC>\n"
        regions += f" {SCORES[score][0]}\n attn.yield %t : ACC\n}}\n"
    if MASKS[mask][0]:
        regions += f"mask {{\n^bb0({indices}):\n {MASKS[mask][0]}\n attn.yield %keep : i1\n}}\n"
    return (
        f"func.func @f(%q: {q}, %k: {q}, %v: {v}, %c: tensor<?xACC>) -> ({v}, tensor<?x?x?xACC>) {{\n"
        f"%o, %lse = attn.forward %q, %k, %v captures(%c : tensor<?xACC>) {regions}: {q}, {q}, {v} -> {v}, tensor<?x?x?xACC>\n"
        f"return %o, %lse : {v}, tensor<?x?x?xACC>\n}}\n"
    ).replace("ACC", acc)


class Definition:
    """Attention and its gradient on complex numbers, in a precision."""

    def __init__(self, case, kind, narrow, from_lse):
        self.element, self.mask, self.score = case[0], MASKS[case[7]][1], SCORES[case[8]][1]
        self.kind, self.narrow, self.from_lse, self.step = kind, narrow, from_lse, STEP[kind]
        self.complex = COMPLEX[kind]

    def lift(self, x, tangent):
        x = x.astype(self.kind).astype(self.complex)
        return x if tangent is None else x + self.complex(1j * self.step) * tangent.astype(self.kind)

    def rounded(self, x):
        """Value and tangent, each as an operand of a product is."""
        if not self.narrow:
            return x
        real, imaginary = (reference.round_to(self.element, part) for part in (x.real, x.imag / self.kind(self.step)))
        return (real + self.complex(1j * self.step) * imaginary).astype(self.complex)

    def tangent(self, x):
        return x.imag / self.kind(self.step)

    def pairs(self, q, k, c):
        d = self.kind(q.shape[-1] ** -0.5)
        i, j = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])[None, :]
        keep = np.broadcast_to(self.mask(i, j), (q.shape[2], k.shape[2]))
        s = np.einsum("bhid,bhjd->bhij", q, k) * d
        t = self.score(s, c[None, :, None, None], i.astype(self.kind), j.astype(self.kind)).astype(self.complex)
        t = np.where(keep, t, self.complex(-np.inf))
        m = np.where(keep.any(-1), t.real.max(-1), 0).astype(self.kind)[..., None]
        total = np.exp(t - m).sum(-1, keepdims=True)
        empty = ~keep.any(-1)[:, None]
        lse = m + np.log(np.where(empty, 1, total))
        if self.from_lse:
            # As kernels have it: P from LSE, by a power of two, and LSE' from P.
            unit = self.kind(np.log2(np.e))
            p = np.where(keep, np.exp2(np.where(keep, t.real, 0) * unit - lse.real * unit), 0)
            along = np.where(keep, t.imag, 0)
            lse = lse.real + self.complex(1j) * (p * along).sum(-1, keepdims=True)
            p = p + self.complex(1j) * (p * (along - lse.imag))
        else:
            p = np.exp(t - lse)
        return s, keep, p.astype(self.complex), np.where(empty, -np.inf, lse)[..., 0]

    def forward(self, q, k, v, c):
        _, _, p, lse = self.pairs(q, k, c)
        return np.einsum("bhij,bhje->bhie", self.rounded(p), v), lse

    def total(self, x):
        """For each head; one after the other, not by numpy's sums of parts: it is one number."""
        return np.cumsum(np.moveaxis(x, 1, 0).reshape(x.shape[1], -1), axis=1)[:, -1].astype(self.complex)

    def gradient(self, q, k, v, c, do, dl):
        s, keep, p, _ = self.pairs(q, k, c)
        scale = self.kind(q.shape[-1] ** -0.5)
        dead = ~keep.any(-1)
        do, dl = np.where(dead[:, None], 0, do), np.where(dead, 0, dl)
        w = np.einsum("bhie,bhje->bhij", do, v)
        o = self.rounded(np.einsum("bhij,bhje->bhie", self.rounded(p), v))
        dt = p * (w - ((do * o).sum(-1) - dl)[..., None])
        dt = np.where(keep, dt, 0).astype(self.complex)
        if self.score is SCORES["tanh"][1]:
            y = np.tanh(s)
            ds, dc = dt * (1 - y * y) * c[None, :, None, None], self.total(dt * y)
        elif self.score is SCORES["slope"][1]:
            i, j = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])[None, :]
            ds, dc = dt, self.total(dt * (i - j).astype(self.kind))
        else:
            ds, dc = dt, np.zeros(len(c), self.complex)
        ds = self.rounded(ds.astype(self.complex))
        dq, dk = np.einsum("bhij,bhjd->bhid", ds, k) * scale, np.einsum("bhij,bhid->bhjd", ds, q) * scale
        return dq, dk, np.einsum("bhij,bhie->bhje", self.rounded(p), do), dc


def draw(case, rng):
    element, d, dv, hq, hk, sq, sk = case[:7]
    acc = np.float64 if element == "f64" else np.float32
    tensors = {"q": (2, hq, sq, d), "k": (2, hk, sk, d), "v": (2, hk, sk, dv), "o": (2, hq, sq, dv)}
    found = {name: reference.round_to(element, rng.standard_normal(shape)) for name, shape in tensors.items()}
    found["c"] = (np.abs(rng.standard_normal(hq)) * 0.2 + 0.1).astype(acc)
    found["l"] = rng.standard_normal((2, hq, sq)).astype(acc)  # o and l: what comes in for them
    return found


class Run:
    def __init__(self, options, case, index):
        self.options, self.case = options, case
        self.folder = tempfile.mkdtemp(prefix=f"tangents-{index}-", dir=options.work)
        self.group = case[3] // case[4]

    def execute(self, passes, entry, arguments, count):
        path = os.path.join(self.folder, entry + ".mlir")
        derived = subprocess.run([self.options.attn_opt, "-", *passes], input=text_of(self.case), capture_output=True, text=True)
        if derived.returncode:
            raise RuntimeError(derived.stderr)
        with open(path, "w") as file:
            file.write(derived.stdout)
        command = [self.options.attn_run, path, f"--entry={entry}", f"--target={self.options.target}"]
        if self.options.target == "cpu":
            command.append("-O0")  # most of the time would be LLVM's
        command += [f"--schedule={self.options.schedule}"] if self.options.schedule else []
        command += ["--check"] if self.options.check else []
        for n, x in enumerate(arguments):
            file = os.path.join(self.folder, f"in{n}.npy")
            np.save(file, x.astype(np.float16) if self.case[0] == "f16" and x.ndim == 4 else x)
            command += ["--input", f"{n}={file}"]
        outputs = [os.path.join(self.folder, f"out{n}.npy") for n in range(count)]
        for n, file in enumerate(outputs):
            command += ["--output", f"{n}={file}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=self.options.timeout)
        if done.returncode:
            raise RuntimeError(f"exit status {done.returncode}\n{(done.stderr + done.stdout)[-3000:]}")
        return [np.load(file) for file in outputs]

    def evaluate(self, definition, at, along):
        """Tangents of (O, LSE) and of the gradients, in a precision, and the values of (O, LSE)."""
        x = {name: definition.lift(at[name], along.get(name)) for name in at}
        k, v = (x[name].repeat(self.group, 1) for name in "kv")
        o, lse = definition.forward(x["q"], k, v, x["c"])
        dq, dk, dv, dc = definition.gradient(x["q"], k, v, x["c"], x["o"], x["l"])
        grouped = lambda g: g.reshape(g.shape[0], -1, self.group, *g.shape[2:]).sum(2)
        found = [o, lse, dq, grouped(dk), grouped(dv), dc]
        return [definition.tangent(y) for y in found], [o.real, lse.real]

    def check(self):
        element, wanted, given = self.case[0], self.case[9], self.case[10].strip("-")
        rng = np.random.default_rng(5)
        at, along = draw(self.case, rng), draw(self.case, rng)
        along = {name: along[name] for name in given}
        wide = np.longdouble if element == "f64" else np.float64
        exact, (o, lse) = self.evaluate(Definition(self.case, wide, False, False), at, along)
        narrow = element in ("bf16", "f16")
        kind = np.float64 if element == "f64" else np.float32
        base, _ = self.evaluate(Definition(self.case, kind, narrow, True), at, along)
        acc = "f64" if element == "f64" else "f32"
        o, lse = reference.round_to(element, o), lse.astype(at["l"].dtype)
        problems = []
        places = "qkvc"
        inputs = [name for name in places if name in given]
        outputs = {name: number for number, name in enumerate(places)}
        # Tangents of the forward.
        if inputs:
            positions = ",".join(str(outputs[name]) for name in inputs)
            got = self.execute(
                [f"--attn-build-jvp=function=f saved-results arguments={positions}"], "f_jvp",
                [*(at[n] for n in places), o, lse, *(along[n] for n in inputs)], 2,
            )  # fmt: skip
            problems += self.compare("O'", element, got[0], exact[0], base[0], zeros=True)
            problems += self.compare("LSE'", acc, got[1], exact[1], base[1])
        else:
            exact[0], exact[1] = np.zeros_like(exact[0]), np.zeros_like(exact[1])
        # Tangents of the gradient.
        positions = ",".join(str(outputs[n]) for n in wanted)
        order = [*inputs, "O", "L", *(n for n in "ol" if n in given)]
        numbers = {**outputs, "O": 4, "L": 5, "o": 6, "l": 7}
        values = {**along, "O": reference.round_to(element, exact[0]), "L": exact[1].astype(lse.dtype)}
        got = self.execute(
            [
                f"--attn-differentiate=function=f saved-results arguments={positions}",
                f"--attn-build-jvp=function=f_gradient arguments={','.join(str(numbers[n]) for n in order)}",
            ],
            "f_gradient_jvp",
            [*(at[n] for n in places), o, lse, at["o"], at["l"], *(values[n] for n in order)],
            len(wanted),
        )
        for n, x in zip(wanted, got):
            number = 2 + outputs[n]
            kind = acc if n == "c" else element
            problems += self.compare(f"d{n}'", kind, x, exact[number], base[number])
        return problems

    def compare(self, name, kind, got, exact, base, zeros=False):
        dead = None
        if zeros:
            keep = np.broadcast_to(MASKS[self.case[7]][1](*np.ogrid[: self.case[5], : self.case[6]]), self.case[5:7])
            dead = np.broadcast_to(~keep.any(-1), exact.shape[:3])
        wide = exact.dtype
        found, _ = reference.check(
            name, kind, got.astype(wide), exact, [base.astype(wide)],
            zeros=dead if zeros else np.zeros(exact.shape[:3], bool), mean=exact.size > 64,
        )  # fmt: skip
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attn-run", required=True)
    parser.add_argument("--attn-opt", required=True)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--schedule", help="options of attn-lower-to-hopper")
    parser.add_argument("--check", action="store_true", help="also beside attn-run's reference")
    parser.add_argument("--only", type=int, help="the case of this number")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--work", help="folder for files")
    options = parser.parse_args()
    if options.work:
        os.makedirs(options.work, exist_ok=True)
    failed = 0
    for index, case in enumerate(CASES):
        if options.only not in (None, index):
            continue
        try:
            problems = Run(options, case, index).check()
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            problems = [str(error)]
        print(f"{'FAIL' if problems else 'ok  '} {index} {' '.join(map(str, case))}", flush=True)
        for problem in problems:
            print(f"  {problem}", flush=True)
        failed += bool(problems)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
