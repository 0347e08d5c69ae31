# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One score for each function of PyTorch that a score may meet, and for each type."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import torch
import torch.nn.functional as F
from flex_registry import FLOAT16, INF, score

# Functions of PyTorch, each on scores for which it is defined.


def _each(names: str, argument: Callable = lambda s: s, **options: Any) -> None:
    for name in names.split():
        function = getattr(torch, name)
        score(name, lambda f=function, a=argument: lambda s, b, h, i, j: f(a(s)), **options)


_each("exp exp2 expm1 sin cos sinh cosh tanh atan erf erfc asinh sigmoid abs neg square sign relu")
_each("log log2 log10 log1p sqrt rsqrt reciprocal", lambda s: s.abs() + 0.5)
_each("lgamma digamma", lambda s: s.abs() + 0.5, refused="cannot trace")
_each("acosh", lambda s: s.abs() + 1.5)
_each("tan", lambda s: torch.tanh(s))
_each("asin acos atanh", lambda s: torch.sin(s) * 0.9)
_each("erfinv", lambda s: torch.sin(s) * 0.9, refused="cannot trace")
_each("logit", lambda s: torch.sigmoid(s / 2))
_each("nan_to_num deg2rad")
_each("rad2deg", lambda s: s / 16)
# Both PyTorch's derivative and the one here lose digits near 0.
_each("sinc", lambda s: s.abs() + 0.5)
_each("i0", refused="cannot trace")
score("isfinite", lambda: lambda s, b, h, i, j: torch.where(torch.isfinite(s) & ~torch.isnan(s), s, 0.0))
_each("floor ceil round trunc frac", lambda s: s * 4)


def _activations(names: str, **options: Any) -> None:
    for name in names.split():
        function = getattr(F, name)
        score(f"F.{name}", lambda f=function: lambda s, b, h, i, j: f(s), **options)


_activations("gelu softplus leaky_relu elu selu celu logsigmoid hardswish mish softsign hardtanh relu6")
# PyTorch's derivative of it in float64 has the digits of float32.
_activations("hardsigmoid", without=(torch.float64,))
_activations("tanhshrink softshrink hardshrink relu")
score("gelu by tanh", lambda: lambda s, b, h, i, j: F.gelu(s, approximate="tanh"))
score("threshold", lambda: lambda s, b, h, i, j: F.threshold(s, 0.1, -2.0))

score("clamp", lambda: lambda s, b, h, i, j: s.clamp(-1, 1))
score("clamp_min", lambda: lambda s, b, h, i, j: torch.clamp_min(s, -0.5))
score("minimum", lambda x: lambda s, b, h, i, j: torch.minimum(s, x[h]), lambda z: {"x": z.scores(z.h)})
score("maximum", lambda x: lambda s, b, h, i, j: torch.maximum(s, x[h]), lambda z: {"x": z.scores(z.h)})
score("fmin", lambda x: lambda s, b, h, i, j: torch.fmin(s, x[h]), lambda z: {"x": z.normal(z.h)})
score("fmax", lambda x: lambda s, b, h, i, j: torch.fmax(s, x[h]), lambda z: {"x": z.normal(z.h)})
score("cube", lambda: lambda s, b, h, i, j: s**3)
score("power", lambda: lambda s, b, h, i, j: (s.abs() + 0.1) ** 1.5)
score("power of two", lambda: lambda s, b, h, i, j: s - 2.0**-h)
score("float_power", lambda: lambda s, b, h, i, j: torch.float_power(s, 2), without=(torch.float32, *FLOAT16))
score(
    "logaddexp",
    lambda x: lambda s, b, h, i, j: torch.logaddexp(s, x[i]),
    lambda z: {"x": z.scores(z.s)},
    without=(torch.float64,),
)
score("lerp", lambda: lambda s, b, h, i, j: torch.lerp(s, s * s, 0.25))
score("atan2", lambda: lambda s, b, h, i, j: torch.atan2(s, s.abs() + 1))
score("copysign", lambda: lambda s, b, h, i, j: torch.copysign(s.abs() + 1, s))
score("hypot", lambda: lambda s, b, h, i, j: torch.hypot(s, s + 1))
score("addcmul", lambda: lambda s, b, h, i, j: torch.addcmul(s, s, s, value=0.5))
score("addcdiv", lambda: lambda s, b, h, i, j: torch.addcdiv(s, s, s.abs() + 1, value=0.5))
score("remainder", lambda: lambda s, b, h, i, j: torch.remainder(s, 3.0))
score("fmod", lambda: lambda s, b, h, i, j: torch.fmod(s, 3.0))
score("ldexp", lambda: lambda s, b, h, i, j: torch.ldexp(s, h))
score("xlogy", lambda: lambda s, b, h, i, j: torch.xlogy(s, s.abs() + 0.5))
score("rsub", lambda: lambda s, b, h, i, j: torch.rsub(s, 1.0))
score("div by floor", lambda: lambda s, b, h, i, j: s + torch.div(i - j, 3, rounding_mode="floor"))
score("div by trunc", lambda: lambda s, b, h, i, j: s + torch.div(i - j, 3, rounding_mode="trunc"))
score("heaviside", lambda: lambda s, b, h, i, j: s * torch.heaviside(s.detach(), torch.zeros_like(s)))
score("where, then clamp", lambda: lambda s, b, h, i, j: torch.where(s > 0, s, s * 0.1).clamp(max=2))
score("pow of a tensor", lambda: lambda s, b, h, i, j: torch.pow(torch.sigmoid(s), h + 1))
score("dist", lambda: lambda s, b, h, i, j: s - ((i - j) ** 2) / 64)
score("gaussian", lambda: lambda s, b, h, i, j: s + torch.exp(-(((i - j) / 8.0) ** 2)), without=(torch.float64,))

# Types.

score("in float32", lambda: lambda s, b, h, i, j: s.float() * 2, without=(torch.float64,))
score("in float64", lambda: lambda s, b, h, i, j: torch.exp(s.double() * 0.5))
score("rounded to half", lambda: lambda s, b, h, i, j: s + (i - j).half())
score("rounded to bf16", lambda: lambda s, b, h, i, j: s + (h + 1).to(torch.bfloat16) * 0.5)
score("integers in float", lambda: lambda s, b, h, i, j: s + (i - j).float() / 8)
score(
    "int8", lambda x: lambda s, b, h, i, j: s + x[i] * x[i], lambda z: {"x": z.integers(-8, 8, z.s, dtype=torch.int8)}
)
score(
    "int16", lambda x: lambda s, b, h, i, j: s + (x[i] >> 1), lambda z: {"x": z.integers(-8, 8, z.s, dtype=torch.int16)}
)
score(
    "uint8", lambda x: lambda s, b, h, i, j: s + (x[j] & 3), lambda z: {"x": z.integers(0, 255, z.t, dtype=torch.uint8)}
)
score("booleans", lambda x: lambda s, b, h, i, j: s * x[j], lambda z: {"x": z.integers(0, 2, z.t).bool()})
score("comparison as a number", lambda: lambda s, b, h, i, j: s + (i >= j))
score("bits of places", lambda: lambda s, b, h, i, j: s + ((i ^ j) & 3))
score("a tensor made inside", lambda: lambda s, b, h, i, j: s * torch.tensor(0.5))
score("full_like", lambda: lambda s, b, h, i, j: torch.where(i >= j, s, torch.full_like(s, -INF)))
score("new_tensor", lambda: lambda s, b, h, i, j: torch.where(i >= j, s, s.new_tensor(-INF)))
score("zeros_like", lambda: lambda s, b, h, i, j: s + torch.zeros_like(s))
score("NumPy scalar", lambda n=np.int64(3): lambda s, b, h, i, j: torch.where((n > i) | (i >= j), s, -INF))
