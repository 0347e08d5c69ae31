# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What gpu_forward.py measures: shapes, and the IR of variants of attention.

Nothing here needs PyTorch.
"""

from dataclasses import dataclass

from attnc._bench.cases import CAP, Case

TOKENS, WIDTH = 16384, 2048  # of a batch, and heads x d
WINDOW = Case.window

# Per variant: (kind of region, its captures as (name, dimensions, element type), its lines). {E} is
# the element type of Q, K and V; a region yields %out.
VARIANTS = {
    "full": (None, [], ""),
    "causal": ("mask", [], "%out = arith.cmpi sge, %i, %j : index"),
    # The WINDOW keys up to the query itself.
    "window": ("mask", [], f"""
        %w = arith.constant {WINDOW} : index
        %zero = arith.constant 0 : index
        %far = arith.subi %i, %j : index
        %past = arith.cmpi sge, %far, %zero : index
        %near = arith.cmpi slt, %far, %w : index
        %out = arith.andi %past, %near : i1"""),
    "documents": ("mask", [("document", 2, "i32")], """
        %x = tensor.extract %document[%b, %i] : tensor<?x?xi32>
        %y = tensor.extract %document[%b, %j] : tensor<?x?xi32>
        %same = arith.cmpi eq, %x, %y : i32
        %past = arith.cmpi sge, %i, %j : index
        %out = arith.andi %same, %past : i1"""),
    "alibi": ("score", [("slope", 1, "f32")], """
        %d = arith.subi %i, %j : index
        %n = arith.index_cast %d : index to i32
        %f = arith.sitofp %n : i32 to f32
        %a = math.absf %f : f32
        %m = tensor.extract %slope[%h] : tensor<?xf32>
        %p = arith.mulf %m, %a : f32
        %out = arith.subf %s, %p : f32"""),
    "softcap": ("score", [], f"""
        %c = arith.constant {CAP} : f32
        %r = arith.divf %s, %c : f32
        %t = math.tanh %r : f32
        %out = arith.mulf %t, %c : f32"""),
    "bias": ("score", [("bias", 3, "{E}")], """
        %n = tensor.extract %bias[%h, %i, %j] : tensor<?x?x?x{E}>
        %x = arith.extf %n : {E} to f32
        %out = arith.addf %s, %x : f32"""),
}


@dataclass(frozen=True)
class Cell(Case):
    # Of the 12 training shapes per head dimension, rather than beside them.
    training: bool = False

    def module(self, element="bf16", static=False):
        """The IR. The head dimension is known, all other sizes only if `static`."""
        b, h, s, d = self.shape if static else ("?", "?", "?", self.d)
        t, line = f"tensor<{b}x{h}x{s}x{d}x{element}>", f"tensor<{b}x{h}x{s}xf32>"
        kind, captures, lines = VARIANTS[self.variant]
        types = {name: "tensor<" + "?x" * rank + f"{e}>".format(E=element) for name, rank, e in captures}
        arguments = "".join(f", %{name}: {type_}" for name, type_ in types.items())
        text = f"func.func @main(%q: {t}, %k: {t}, %v: {t}{arguments}) -> ({t}, {line}) {{\n"
        text += "  %o, %lse = attn.forward %q, %k, %v"
        if types:
            text += f" captures({', '.join('%' + name for name in types)} : {', '.join(types.values())})"
        if kind:
            score, result = ("%s: f32, ", "f32") if kind == "score" else ("", "i1")
            body = "".join(f"      {line.strip()}\n" for line in lines.format(E=element).strip().splitlines())
            text += (f"\n    {kind} {{\n    ^bb0({score}%b: index, %h: index, %i: index, %j: index"
                     f"{arguments}):\n{body}      attn.yield %out : {result}\n    }}")
        return text + f"\n    : {t}, {t}, {t} -> {t}, {line}\n  return %o, %lse : {t}, {line}\n}}\n"


def all_cells():
    cells = []
    for d in (64, 128, 256):
        for length in (512, 1024, 2048, 4096, 8192, 16384):
            for variant in ("full", "causal"):
                cells.append(Cell(variant, d, length, TOKENS // length, WIDTH // d, training=True))
    for d, length in ((128, 16384), (64, 16384), (128, 2048)):
        for variant in ("window", "documents", "alibi", "softcap", "bias"):
            # At 16384 the bias alone would be larger than all that a model reads.
            if variant != "bias" or length == 2048:
                cells.append(Cell(variant, d, length, TOKENS // length, WIDTH // d))
    return cells


QUICK = ("d64-s512-full", "d64-s16384-causal", "d128-s512-causal", "d128-s2048-full", "d128-s16384-full",
         "d128-s16384-causal", "d256-s1024-causal", "d256-s16384-full", "d128-s2048-window", "d128-s2048-documents",
         "d128-s2048-alibi", "d128-s2048-softcap", "d128-s2048-bias")
