# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random functions of scores, traced and compiled, against what PyTorch says of them.

Scores are read off attention of one key, whose log-sum-exp is the score; several
programs share a compilation. ATTNC_TRACE_PROGRAMS is how many there are (10000 take
hours, in parts by their seeds), ATTNC_TRACE_SEED the first seed."""

import os
import random
import re
import warnings

import attnc
import pytest
import torch
from trace_programs import SIZES, Programs, captures, compile_program, eager

J, H, S = SIZES
MASK_SIZES = 40, 2, 37
COUNT = int(os.environ.get("ATTNC_TRACE_PROGRAMS", "72"))
SEED = int(os.environ.get("ATTNC_TRACE_SEED", "0"))
BATCH = 12
# What is refused by design, each by name.
REFUSED = re.compile(
    "expected an integer index|for integers, alpha|is not defined in PyTorch|is defined for floats|is read from|"
    "cannot use a bool"
)


# What PyTorch raises for programs that it refuses.
RAISED = RuntimeError, IndexError, TypeError, AttributeError, ValueError, NotImplementedError


def alike(text, function, score, value, sizes):
    """Whether vmap gives what PyTorch itself does for one element: some of its rules take a captured number for
    one of a weaker type beside an element of a tensor (torch.where, comparisons). Nor are sums of 16-bit floats with an
    alpha alike: on CPUs PyTorch rounds its product in rests of vectors, and nowhere else."""
    if "alpha=" in text and re.search("half|float16", text):
        return False
    if "n_" not in text:
        return True
    for place in random.Random(0).choices(range(value.numel()), k=12):
        place = torch.unravel_index(torch.tensor(place), sizes)
        own = at_element(function, score, place).to(value.dtype)
        if not torch.allclose(own, value[place], rtol=1e-3, atol=1e-3, equal_nan=True):
            return False
    return True


def at_element(function, score, place):
    """The value at (j, h, i) without vmap."""
    j, h, i = map(torch.as_tensor, place)
    with torch.no_grad():
        return torch.as_tensor(function(*([] if score is None else [score[j, h, i]]), torch.tensor(0), h, i, j))


def leave_out_quirks(text, function, score, wrong, got):
    """Takes out of `wrong` where only vmap differs, which `alike` misses where few elements show it."""
    for place in map(tuple, wrong.nonzero().tolist() if "n_" in text else []):
        own = at_element(function, score, place).to(got.dtype)
        wrong[place] = not torch.allclose(own, got[place], rtol=1e-3, atol=1e-3, equal_nan=True)


def draw(programs, tensors, score, count, keep=lambda text, value: not value.isnan().all(), sizes=SIZES):
    """Texts that PyTorch runs, with their functions and values."""
    found = []
    while len(found) < count:
        text = programs.mask() if score is None else programs.score()
        try:
            function = compile_program(text, tensors, "mask" if score is None else "score")
            with torch.no_grad():
                value = eager(function, score, sizes)
            if not alike(text, function, score, value, sizes):
                continue
        except RAISED:
            continue
        if keep(text, value):
            found.append((text, function, value))
    return found


def traced(functions, score, finite=False):
    """The values of several functions of (j, h, i), each (J, H, S): batches are pairs of
    program and j. `finite`: 0 for those that are not, so that they have a gradient."""
    q = torch.zeros(len(functions) * J, H, S, 8)
    q[..., 0] = score.repeat(len(functions), 1, 1).detach()
    k = torch.zeros(len(functions) * J, H, 1, 8)
    k[..., 0] = 1
    q.requires_grad_()

    def score_mod(s, b, h, i, j):
        which, j = b // J, b % J
        result = torch.zeros_like(s)
        for number, function in enumerate(functions):
            # What a program returns becomes a score, whatever the others do.
            value = function(s, b - b, h, i, j).float()
            kept = which == number
            result = torch.where(kept & torch.isfinite(value) if finite else kept, value, result)
        return result

    _, lse = attnc.attention(q, k, k, score_mod=score_mod, scale=1.0, return_lse=True)
    return q, lse.unflatten(0, (-1, J))[..., :S]


class Rounding(torch.overrides.TorchFunctionMode):
    """Changes results of what rounds by some roundings."""

    NAMES = re.compile(
        "_*r?(add|sub|mul|div|truediv|true_divide|pow|exp|exp2|expm1|log|log2|log10|log1p|sqrt|rsqrt|tanh|sin|cos|atan|"
        "erf|erfc|sigmoid|silu|gelu|softplus|elu|logsigmoid|hardswish|hardsigmoid|mish|reciprocal|square|logaddexp|"
        "atan2|hypot|lerp|remainder|fmod|mod|float_power|leaky_relu|log_sigmoid|rsub)_*$"
    )

    def __init__(self, seed):
        super().__init__()
        # Each two seeds take opposite steps.
        self.random, self.steps = random.Random(seed // 2), ([-4, 4] if seed % 2 else [4, -4]) if seed else [0]

    def __torch_function__(self, function, kinds, args=(), keywords=None):
        name = getattr(function, "__name__", "")
        if name == "addcmul":  # without a fused step, and what that may leave of nothing
            step = self.random.choice(self.steps) * 2.0**-23
            return args[0] * (1 + step) + keywords["value"] * args[1] * args[2]
        result = function(*args, **(keywords or {}))
        if not self.NAMES.match(name) or result.dtype not in (torch.float32, torch.float64):
            return result
        is_sum = name.strip("_") in ("add", "sub", "rsub") and any(isinstance(x, torch.Tensor) for x in args)
        if is_sum and keywords and "alpha" in keywords:  # the same
            step = self.random.choice(self.steps) * torch.finfo(result.dtype).eps
            first, second = reversed(args) if name == "rsub" else args
            product = keywords["alpha"] * second
            return first * (1 + step) + (product if name.startswith("add") else -product)
        step = self.random.choice(self.steps) * torch.finfo(result.dtype).eps
        if name == "gelu":  # 1 + erf(x) rounds to 0
            return result + step * args[0].abs()
        if name in ("erf", "tanh"):  # 1 is their bound, and what they round to
            return (result * (1 + step)).clamp(-1, 1)
        return result * (1 + step)


# Seeds, 0 for fused steps taken apart and no more, and what the score changes by.
ROUNDINGS = (0, 0), (2, -(2.0**-21)), (3, 2.0**-21), (4, -(2.0**-21)), (5, 2.0**-21)


def rounded(function, score, sizes=SIZES):
    """Its values with other roundings, of the score too."""
    for seed, step in ROUNDINGS:
        changed = None if score is None else score * (1 + step)
        with Rounding(seed):
            yield eager(function, changed, sizes)


def allowed(function, score, value):
    """How far from the value a result may be: as far as other roundings bring it, and
    some roundings of the value."""
    moved = list(rounded(function, score))
    spread = torch.stack([(x - value).abs() for x in moved]).amax(0).nan_to_num(0, 0)
    return 4 * spread + 4e-6 * (1 + value.abs())


def differences(text, function, score, value, got):
    kept = value.isfinite()
    wrong = kept & ~((got - value).abs() <= limit_of(text, function, score, value))
    # An infinite score is one, or not a number.
    wrong |= (value == -float("inf")) & (got != -float("inf"))
    wrong |= (value.isnan() | (value == float("inf"))) & got.isfinite()
    leave_out_quirks(text, function, score, wrong, got)
    if not wrong.any():
        return None
    place = tuple(wrong.nonzero()[0].tolist())
    return f"{text}\n  at (j, h, i) = {place}: expected {value[place].item()!r}, got {got[place].item()!r}"


def limit_of(text, function, score, value):
    limit = allowed(function, score, value)
    # A half may be rounded the other way where its operand was.
    if re.search("half|float16", text):
        limit = limit + 2.0**-9 * (1 + value.abs())
    return limit + 2.0**-6 * (1 + value.abs()) if "bfloat16" in text else limit


def run(functions, score):
    """The values; of those that are refused by name, none."""
    try:
        return list(traced(functions, score)[1].detach()), []
    except attnc.Error as error:
        if len(functions) == 1:
            return [None], [str(error)]
    parts = [run([function], score) for function in functions]
    return [values[0] for values, _ in parts], [message for _, messages in parts for message in messages]


@pytest.mark.parametrize("part", range((COUNT + BATCH - 1) // BATCH))
def test_scores(part):
    warnings.simplefilter("ignore")
    generator = torch.Generator().manual_seed(SEED + part)
    tensors, score = captures(generator), torch.randn(J, H, S, generator=generator) * 2
    drawn = draw(Programs(SEED + part), tensors, score, BATCH)
    values, messages = run([function for _, function, _ in drawn], score)
    wrong = [
        found
        for (text, function, value), got in zip(drawn, values)
        if got is not None and (found := differences(text, function, score, value, got))
    ]
    unknown = [message for message in messages if not REFUSED.search(message)]
    assert not wrong and not unknown, "\n".join([*wrong, *unknown])


def gradients(drawn, score, leaves, incoming):
    """Of each program those of the score and the leaves, or why there are none."""
    found = []
    try:
        q, lse = traced([function for _, function, _ in drawn], score, finite=True)
        for number, (_, _, value) in enumerate(drawn):
            weights = torch.zeros_like(lse)
            weights[number] = torch.where(value.isfinite(), incoming, 0.0)
            of = torch.autograd.grad(lse, [q, *leaves], weights, allow_unused=True, retain_graph=True)
            of = [torch.zeros_like(x) if g is None else g.double() for g, x in zip(of, [q, *leaves])]
            found.append([of[0].unflatten(0, (-1, J))[number, ..., 0], *of[1:]])
    except attnc.Error as error:
        if len(drawn) == 1:
            return [str(error)]
        return [gradients([one], score, leaves, incoming)[0] for one in drawn]
    return found


@pytest.mark.parametrize("part", range((COUNT // 3 + BATCH - 1) // BATCH))
def test_gradients(part):
    """Those of the score and of captured floats. 16-bit floats are left out: PyTorch rounds the
    gradients between them, attnc does not. So are angles of integers, whose squares wrap there."""
    warnings.simplefilter("ignore")
    generator = torch.Generator().manual_seed(SEED + part)
    tensors, score = captures(generator), torch.randn(J, H, S, generator=generator) * 2
    leaves = [tensors[name].requires_grad_() for name in ("t_float32", "t_float64")]
    drawn = draw(
        Programs(SEED + 7 * part + 1), tensors, score, BATCH,
        lambda text, value: not re.search("half|float16|atan2.*_u?int", text) and value.isfinite().any() and "score" in text,
    )  # fmt: skip
    incoming = torch.randn(J, H, S, generator=generator)

    def wanted(function, score, value):
        score = score.clone().requires_grad_()
        value = torch.where(value.isfinite(), eager(function, score), 0.0)
        if not value.requires_grad:
            return [torch.zeros_like(x, dtype=torch.float64) for x in (score, *leaves)]
        found = torch.autograd.grad(value, [score, *leaves], incoming, allow_unused=True)
        return [torch.zeros_like(x) if g is None else g.double() for g, x in zip(found, (score, *leaves))]

    wrong = []
    for (text, function, value), got in zip(drawn, gradients(drawn, score, leaves, incoming)):
        if isinstance(got, str):
            if not re.search("cannot compile the gradient", got) and not REFUSED.search(got):
                wrong.append(f"{text}\n  {got}")
            continue
        try:
            expected = wanted(function, score, value)
        except RuntimeError:  # PyTorch has no derivative
            continue
        moved = []
        for seed, step in ROUNDINGS:
            with Rounding(seed):
                moved.append(wanted(function, score * (1 + step), value))
        for name, g, e, *others in zip(("score", "float32", "float64"), got, expected, *moved):
            spread = torch.stack([(x - e).abs() for x in others]).amax(0).nan_to_num(0, 0)
            # The weight of the only key is exp(score - maximum): of a score that is computed twice.
            weight = 2.0**-21 * torch.where(value.isfinite(), value, 0.0).abs()
            weight = weight if name == "score" else weight.max()
            bad = e.isfinite() & ~((g - e).abs() <= 8 * spread + 2e-5 * (1 + e.abs()) + weight * e.abs())
            if bad.any():
                place = tuple(bad.nonzero()[0].tolist())
                wrong.append(f"{text}\n  d {name} at {place}: expected {e[place].item()!r}, got {g[place].item()!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("part", range(COUNT // 6))
def test_masks(part):
    """Pairs that count, read off attention of values that are unit vectors."""
    warnings.simplefilter("ignore")
    generator = torch.Generator().manual_seed(SEED + part)
    keys, heads, queries = MASK_SIZES
    tensors = captures(generator, MASK_SIZES)
    keep = lambda text, value: value.dtype == torch.bool and value.any()
    (text, function, value), = draw(Programs(SEED + part, MASK_SIZES), tensors, None, 1, keep, MASK_SIZES)
    q, k = torch.zeros(1, heads, queries, 8), torch.zeros(1, heads, keys, 8)
    unit = torch.eye(keys).expand(1, heads, keys, keys)
    try:
        o = attnc.attention(q, k, unit, mask_mod=function)
    except attnc.Error as error:
        assert REFUSED.search(str(error)), f"{text}\n  {error}"
        return
    sure = torch.stack([x == value for x in rounded(function, None, MASK_SIZES)]).all(0)
    got = (o[0] > 0).permute(2, 0, 1)
    wrong = (got != value) & sure
    leave_out_quirks(text, function, None, wrong, got)
    assert not wrong.any(), f"{text}\n  at (j, h, i) = {wrong.nonzero()[0].tolist()}"
