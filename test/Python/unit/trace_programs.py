# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs of the traced language, as source of Python: expressions of the score,
the indices and elements of tensors of every type. What PyTorch refuses is not wanted;
whoever draws a program runs it there first."""

from __future__ import annotations

import random
from typing import Any, Dict, List, Optional, Tuple

import torch

SIZES = 6, 2, 5  # lengths along j, h and i
KINDS = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
UNARY_FLOAT = [
    "torch.exp({}.clamp(-9, 5))", "torch.exp2({}.clamp(-9, 5))", "torch.expm1({}.clamp(-9, 5))",
    "torch.log({}.abs() + 0.5)", "torch.log2({}.abs() + 0.5)", "torch.log10({}.abs() + 0.5)", "torch.log1p({}.abs())",
    "torch.sqrt({}.abs())", "torch.rsqrt({}.abs() + 0.25)", "torch.tanh({})", "torch.sin({})", "torch.cos({})",
    "torch.atan({})", "torch.erf({})", "torch.erfc({})", "torch.sigmoid({})", "F.silu({})", "F.gelu({})",
    "F.gelu({}, approximate='tanh')", "F.softplus({})", "F.softplus({}, beta=2.0, threshold=1.5)", "F.relu({})",
    "F.leaky_relu({}, 0.1)", "F.elu({})", "F.hardtanh({}, -0.5, 0.75)", "F.logsigmoid({})", "F.hardswish({})",
    "F.hardsigmoid({})", "F.mish({})", "F.relu({}, inplace=False)", "F.relu6({})", "torch.round({}, decimals=1)",
    "torch.floor({})", "torch.ceil({})", "torch.trunc({})", "torch.round({})", "torch.frac({})", "{}.reciprocal()",
    "{}.nan_to_num()", "{}.nan_to_num(nan=1.0, posinf=2.0, neginf=-2.0)", "{}.square()", "torch.float_power({}, 2)",
    "{}.half()", "{}.bfloat16()", "{}.double()", "{}.float()", "{}.to(torch.bfloat16)", "{}.type(torch.float16)",
    "{}.type_as(score)", "torch.full_like({}, 2.5)", "{}.new_tensor(1.5)", "torch.zeros_like({})",
]  # fmt: skip
UNARY = ["-{}", "{}.abs()", "torch.sign({})", "{} ** 2", "{} ** 3", "{}.clamp(-2, 3)", "{}.clamp_min(1)",
         "{}.clamp_max(2)", "{}.clamp(min=-1, max=4)", "torch.neg({})"]  # fmt: skip
BINARY = ["{} + {}", "{} - {}", "{} * {}", "torch.minimum({}, {})", "torch.maximum({}, {})", "torch.fmin({}, {})",
          "torch.fmax({}, {})", "torch.add({}, {}, alpha=2)", "torch.sub({}, {}, alpha=3)", "torch.rsub({}, {})"]  # fmt: skip
BINARY_FLOAT = ["{} / {}", "{} / ({}.abs() + 0.5)", "torch.logaddexp({}, {})", "torch.atan2({}, {})",
                "torch.hypot({}, {})", "torch.copysign({}, {})", "torch.heaviside({}, {})",
                "torch.lerp({}, {}, 0.25)", "torch.div({}, {}.abs() + 0.5, rounding_mode='floor')",
                "torch.div({}, {}.abs() + 0.5, rounding_mode='trunc')", "{} // ({}.abs() + 0.5)",
                "{} % ({}.abs() + 0.5)", "torch.fmod({}, {}.abs() + 0.5)", "({}.abs() + 0.5) ** {}.clamp(-2, 2)"]  # fmt: skip
# Divisors are odd, and not -1: PyTorch dies of the least integer divided by it.
BINARY_INT = ["{} // (({} | 1) * 3)", "{} % (({} | 1) * 3)", "torch.fmod({}, ({} | 1) * 3)",
              "torch.div({}, ({} | 1) * 3, rounding_mode='trunc')", "torch.div({}, ({} | 1) * 3, rounding_mode='floor')",
              "{} // -3", "{} % 5", "{} % -4", "{} & {}", "{} | {}",
              "{} ^ {}", "{} << ({} & 3)", "{} >> ({} & 3)", "torch.bitwise_left_shift({}, {})",
              "torch.bitwise_right_shift({}, {})", "torch.bitwise_and({}, {})", "torch.remainder({}, ({} | 1) * 3)"]  # fmt: skip
COMPARE = ["{} < {}", "{} <= {}", "{} > {}", "{} >= {}", "{} == {}", "{} != {}", "torch.eq({}, {})", "{}.gt({})"]
BOOLEAN = ["{} & {}", "{} | {}", "{} ^ {}", "torch.logical_and({}, {})", "torch.logical_or({}, {})",
           "torch.logical_xor({}, {})", "{} + {}", "{} * {}", "{} == {}", "{} < {}"]  # fmt: skip


def captures(generator: torch.Generator, sizes: Tuple[int, int, int] = SIZES) -> Dict[str, torch.Tensor]:
    """One tensor of each type with three dimensions (j, h, i), and numbers."""
    length, heads, queries = sizes
    found: Dict[str, torch.Tensor] = {}
    for kind in KINDS:
        dtype, shape = getattr(torch, kind), sizes
        if dtype.is_floating_point:
            values = (torch.randn(shape, generator=generator, dtype=torch.float64) * 2).to(dtype)
        elif dtype == torch.bool:
            values = torch.rand(shape, generator=generator) > 0.5
        else:
            info = torch.iinfo(dtype)
            low, high = max(info.min, -9), 10
            values = torch.randint(low, high, shape, generator=generator)
            # Some close to the ends of the type, where sums wrap.
            ends = torch.rand(shape, generator=generator) < 0.2
            if kind != "int64":
                values = torch.where(ends, torch.where(values > 0, info.max - values, info.min + values.abs()), values)
            values = values.to(dtype)
        found[f"t_{kind}"] = values
        found[f"n_{kind}"] = values.flatten()[3].clone()
    found["places"] = torch.randint(-length, length, (length,), generator=generator)
    found["places32"] = torch.randint(-heads, heads, (queries,), generator=generator).int()
    return found


class Programs:
    """Draws expressions of a kind: "float", "int" or "bool"."""

    def __init__(self, seed: int, sizes: Tuple[int, int, int] = SIZES) -> None:
        self.random, self.sizes = random.Random(seed), sizes

    def index(self, name: str, size: int) -> str:
        """Within [-size, size)."""
        other = self.random.choice("hij")
        forms = [name, name, name, f"{name} // 2", f"({name} + {other}) % {size}", f"{name} - {size}", "-1", "0",
                 f"({name} - {other}).clamp(-{size}, {size - 1})", f"({name} + 1).clamp(max={size - 1})"]  # fmt: skip
        if name == "j":
            forms += ["places[j]", "places[i % 3]"]
        if name == "h":
            forms += ["places32[i]"]
        return self.random.choice(forms)

    def element(self, kinds: List[str]) -> str:
        kind = self.random.choice(kinds)
        if self.random.random() < 0.15:
            return f"n_{kind}"
        j, h, i = (self.index(name, size) for name, size in zip("jhi", self.sizes))
        if not any(name in index for index in (j, h, i) for name in "hij"):
            i = "i"
        if self.random.random() < 0.2:
            return f"t_{kind}[{j}][{h}][{i}]" if any(name in j for name in "hij") else f"t_{kind}[j][{h}, {i}]"
        return f"t_{kind}[{j}, {h}, {i}]"

    def leaf(self, kind: str) -> str:
        if kind == "float":
            return self.random.choice([*(self.element(KINDS[:4]) for _ in "12"), "score", "score", "0.75", "(i / 3)"])
        if kind == "bool":
            number = f"{self.element(KINDS[4:9])}.bool()"
            return self.random.choice([self.element(["bool"]), "(i >= j)", "(i - j < 2)", "True", number])
        return self.random.choice([self.element(KINDS[4:9]), self.element(KINDS[4:9]), "i", "j", "h", "3", "(i - j)"])

    def draw(self, kind: str, depth: int) -> str:
        if depth <= 0:
            return self.leaf(kind)
        pick, part = self.random.random(), lambda k: f"({self.draw(k, depth - 1)})"
        choose = self.random.choice
        if pick < 0.12:
            return f"torch.where({part('bool')}, {part(kind)}, {part(kind)})"
        if kind == "bool":
            if pick < 0.5:
                kinds = choose([("int", "int"), ("float", "float"), ("int", "float"), ("bool", "int")])
                return choose(COMPARE).format(part(kinds[0]), part(kinds[1]))
            if pick < 0.6:
                return choose(["~{}", "torch.logical_not({})", "{}.any()"]).format(part("bool"))
            if pick < 0.68:
                form = choose(["torch.isnan({})", "torch.isinf({})", "torch.isfinite({})", "{}.bool()"])
                return form.format(part("float"))
            return choose(BOOLEAN).format(part("bool"), part("bool"))
        mixed = choose([kind, kind, "int", "bool"])
        if pick < 0.2:
            other = choose(["float", "int", "bool"])
            if kind == "float":
                return choose(["{}.float()", "{}.double()", "{}.half()", "{} * 0.5", "{} / 3"]).format(part(other))
            target = choose(["int8", "int16", "int32", "int64", "uint8"])
            source = part(other)
            if other == "float":
                source = f"{source}.nan_to_num().clamp({0 if target == 'uint8' else -100}, 100)"
            return choose(["{}.to(torch.{})", "{}.to(dtype=torch.{})", "{}.type(torch.{})"]).format(source, target)
        if pick < 0.25:
            return f"{part(kind)}.masked_fill({part('bool')}, {choose(['1', '-2', '3'])})"
        if pick < 0.3:
            return f"{part(kind)}.where({part('bool')}, {part(mixed)})"
        if pick < 0.34 and kind == "float":
            return f"torch.addcmul({part('float')}, {part('float')}, {part('float')}, value=0.5)"
        if kind == "float":
            if pick < 0.55:
                return choose(UNARY_FLOAT + UNARY).format(part("float"))
            first, second = (part("float"), part(mixed)) if choose([True, False]) else (part(mixed), part("float"))
            return choose(BINARY + BINARY_FLOAT).format(first, second)
        if pick < 0.5:
            return choose([*UNARY, "~{}"]).format(part("int"))
        form = choose(BINARY + BINARY_INT)
        return form.format(*(part("int") for _ in range(form.count("{}"))))

    def mask(self) -> str:
        """A program of indices and captures."""
        return self.draw("bool", self.random.randint(1, 4)).replace("score", "t_float32[j, h, i]")

    def score(self) -> str:
        """A program whose value is a number that float32 holds."""
        kind = self.random.choice(["float", "float", "int", "bool"])
        text = self.draw(kind, self.random.randint(1, 4))
        return f"({text}) % 65521" if kind == "int" else f"({text}) * 1.0" if kind == "bool" else text


def compile_program(text: str, names: Dict[str, Any], kind: str = "score") -> Any:
    arguments = "score, b, h, i, j" if kind == "score" else "b, h, i, j"
    space = {**names, "torch": torch, "F": torch.nn.functional, "__name__": "program"}
    return eval(compile(f"lambda {arguments}: {text}", "<program>", "eval"), space)


def eager(function: Any, score: Optional[torch.Tensor], sizes: Tuple[int, int, int] = SIZES) -> torch.Tensor:
    """Its value for each (j, h, i), as FlexAttention without a compiler has it: by vmap
    over numbers without dimensions. A mask has no score."""
    j, h, i = (x.flatten() for x in torch.meshgrid(*map(torch.arange, sizes), indexing="ij"))
    index = torch.zeros_like(j), h, i, j
    value = torch.vmap(function)(*index) if score is None else torch.vmap(function)(score.flatten(), *index)
    return (value if score is None else value.to(torch.float32)).reshape(sizes)
