# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What can be traced, with the same values as in PyTorch, and what is refused, at the
user's line."""

import math
import re

import attnc
import numpy as np
import pytest
import torch
from support import dense

Q, K, V = (torch.randn(1, 2, n, 8, generator=torch.Generator().manual_seed(n)) for n in (13, 17, 17))
TABLE = torch.randn(64, generator=torch.Generator().manual_seed(1))
NUMBERS = torch.tensor([5, -3, 2, 7, -1, 4, 0, 6, -2, 3, 1, 8, -4, 9, 10, 11, 12])
MATRIX = torch.randn(17, 17, generator=torch.Generator().manual_seed(2))
LONG = torch.randn(17, 300, generator=torch.Generator().manual_seed(2))
UNSIGNED = torch.zeros(17, dtype=torch.uint16)
WINDOW = 4


def same(score_mod=None, mask_mod=None):
    got = attnc.attention(Q, K, V, score_mod=score_mod, mask_mod=mask_mod, return_lse=True)
    expected = dense(Q, K, V, score_mod, mask_mod)
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)


SCORES = {
    "arithmetic": lambda s, b, h, i, j: (s + 1) * 2 - 3 / (4 + s * s) + (1 - s) * 0.5,
    "negation": lambda s, b, h, i, j: -s + +s * 2,
    "powers": lambda s, b, h, i, j: s**2 * 0.1 + (i + 1) ** 0.5 + (j % 3) ** 3 * 0.01 + 2.0 ** (s * 0.1) + s**0,
    "integer division": lambda s, b, h, i, j: s + (i - j) // 3 + (i - j) % 5 + (7 - i) // (j + 1),
    "float division": lambda s, b, h, i, j: s + (s // 0.5) * 0.1 + s % 0.7 + (i - j) / 4,
    "integers to floats": lambda s, b, h, i, j: s + i * j * 0.01 + (i >= j) * 0.5 + (i - j).abs().float() * 0.1,
    "functions": lambda s, b, h, i, j: (
        torch.exp(-s.abs())
        + torch.log(1 + s * s)
        + torch.tanh(s)
        + torch.sin(s)
        + torch.cos(s)
        + torch.sigmoid(s)
        + torch.sqrt(s * s + 1)
        + torch.rsqrt(s * s + 1)
        + torch.exp2(s * 0.1)
        + torch.log2(s * s + 1)
        + torch.erf(s)
        + torch.log1p(s * s)
        + torch.expm1(s * 0.1)
        + torch.relu(s)
        + torch.square(s) * 0.1
    ),
    "methods": lambda s, b, h, i, j: (
        s.abs().exp().log() + s.clamp(-1, 1) + s.clamp(min=0) + s.tanh().mul(2).add(1).sub(0.5).div(3) + s.pow(2) * 0.1
    ),
    "rounding": lambda s, b, h, i, j: s + torch.floor(s * 3) + torch.ceil(s) + torch.trunc(s * 2) + torch.round(s * 5),
    "minimum": lambda s, b, h, i, j: torch.minimum(s, i * 0.1) + torch.maximum(s, 0 * s) + torch.clamp(i - j, -2, 2),
    "where": lambda s, b, h, i, j: torch.where((i > j) | (j == 3), s, torch.where(i == j, s * 2, -s)),
    "infinity": lambda s, b, h, i, j: torch.where(i >= j, s, float("-inf")),
    "masked_fill by where": lambda s, b, h, i, j: torch.where(i >= j, s, torch.tensor(-math.inf)),
    "conversions": lambda s, b, h, i, j: s + (s * 3).to(torch.int32) * 0.1 + (i / 2).int() % 2 + (s > 0).to(s.dtype),
    "capture": lambda s, b, h, i, j: s + TABLE[(i - j).abs()] + TABLE[i + j] * TABLE[5],
    "loaded index": lambda s, b, h, i, j: s + TABLE[NUMBERS[j].abs() + i],
    "python numbers": lambda s, b, h, i, j: sum((s * k for k in range(3)), s) + max(1, 2),
    "like": lambda s, b, h, i, j: s + torch.ones_like(s) + torch.full_like(s, 2) + s.new_zeros(()),
    "bits": lambda s, b, h, i, j: s + (i & 3) + (j | 1) * 0.1 + (i ^ j) * 0.1,
}
MASKS = {
    "comparisons": lambda b, h, i, j: (i >= j) & (i - j < WINDOW) | (j <= 2) & (i != 5),
    "negation": lambda b, h, i, j: ~(i < j) ^ (j == 1),
    "logical": lambda b, h, i, j: torch.logical_or(torch.logical_and(i >= j, h > 0), torch.logical_not(j > i)),
    "modulo": lambda b, h, i, j: (i - j) % 3 != 1,
    "blocks": lambda b, h, i, j: i // 4 >= j // 4,
    "loaded": lambda b, h, i, j: (NUMBERS[j] >= i) | (j == 0),
    "floats": lambda b, h, i, j: (TABLE[j] > 0.0) | (j == i * 1.0),
    "everything": lambda b, h, i, j: b == b,
    "constant": lambda b, h, i, j: b.new_ones((), dtype=torch.bool),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores(name):
    same(score_mod=SCORES[name])


@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    if name == "constant":
        got = attnc.attention(Q, K, V, mask_mod=MASKS[name])
        return torch.testing.assert_close(got, dense(Q, K, V)[0], rtol=2e-5, atol=2e-5)
    same(mask_mod=MASKS[name])


def test_functions_of_functions():
    def shifted(f, by):
        return lambda b, h, i, j: f(b, h, i + by, j)

    def helper(x):
        return torch.tanh(x) * TABLE[3]

    causal = lambda b, h, i, j: i >= j
    both = (shifted(causal, 2), lambda b, h, i, j: i - j < 9)
    same(lambda s, b, h, i, j: helper(s), lambda b, h, i, j: both[0](b, h, i, j) & both[1](b, h, i, j))


class Model:
    def __init__(self):
        self.table, self.size = torch.randn(2, 40), 3

    def score(self, s, b, h, i, j):
        return s * self.size + self.table[h, i + j]


def test_methods_are_traced_each_time():
    model = Model()
    for size in (3, 5):
        model.size, model.table = size, torch.randn(2, 40)
        same(model.score)
        same(lambda s, b, h, i, j: s * model.size + model.table[h, i + j])


def test_changed_numbers_and_tensors(compiled):
    def run():
        return attnc.attention(Q, K, V, score_mod=f)

    table, factor = torch.randn(40), 2

    def f(s, b, h, i, j):
        return s * factor + table[i + j]

    first = run()
    assert compiled() == 1
    torch.testing.assert_close(first, dense(Q, K, V, f)[0], rtol=2e-5, atol=2e-5)
    table = torch.randn(50)  # other values, other length
    torch.testing.assert_close(run(), dense(Q, K, V, f)[0], rtol=2e-5, atol=2e-5)
    assert compiled() == 0
    factor = 3  # another function
    torch.testing.assert_close(run(), dense(Q, K, V, f)[0], rtol=2e-5, atol=2e-5)
    assert compiled() == 1


def test_tensors_that_become_one_and_two():
    x = y = torch.randn(40)

    def f(s, b, h, i, j):
        return s + x[i] - y[j]

    torch.testing.assert_close(attnc.attention(Q, K, V, score_mod=f), dense(Q, K, V, f)[0], rtol=2e-5, atol=2e-5)
    y = torch.randn(40)
    torch.testing.assert_close(attnc.attention(Q, K, V, score_mod=f), dense(Q, K, V, f)[0], rtol=2e-5, atol=2e-5)


def test_tensors_made_by_the_function():
    weights = torch.randn(20, requires_grad=True)

    def f(s, b, h, i, j):
        scaled = weights.exp() * 0.5
        return s + scaled[j]

    o, expected = attnc.attention(Q, K, V, score_mod=f), dense(Q, K, V, f)[0]
    torch.testing.assert_close(o, expected, rtol=2e-5, atol=2e-5)
    got, wanted = (torch.autograd.grad(x.sum(), weights)[0] for x in (o, expected))
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def branch(s, b, h, i, j):
    if i >= j:
        return s
    return -s


def chained(b, h, i, j):
    return 0 <= i - j < 5


def conjunction(b, h, i, j):
    return (i >= j) and (j > 2)


def largest(s, b, h, i, j):
    return max(s, 0)


def by_math(s, b, h, i, j):
    return math.exp(s)


def loop(s, b, h, i, j):
    for _ in range(j):
        s = s + 1
    return s


def unknown(s, b, h, i, j):
    return torch.cumsum(s, 0)


def sliced(s, b, h, i, j):
    return s + TABLE[i:].sum()


def many(s, b, h, i, j):
    return s + TABLE


def listed(s, b, h, i, j):
    return s + [1, 2, 3][j]


def wrong_rank(s, b, h, i, j):
    return s + TABLE[i, j]


def zero(s, b, h, i, j):
    return s + i // 0


def nothing(s, b, h, i, j):
    pass


def text(s, b, h, i, j):
    return "score"


def number_mask(b, h, i, j):
    return i - j


def float_index(s, b, h, i, j):
    return s + TABLE[s]


def raises(s, b, h, i, j):
    return s.undefined_attribute.other


def converts(s, b, h, i, j):
    return s + int(j)


def row(s, b, h, i, j):
    return s + MATRIX[i].cumsum(0)


def compared_rows(b, h, i, j):
    return MATRIX[i] == MATRIX[j]


def long_row(s, b, h, i, j):
    return s + LONG[i].sum()


def unequal_rows(s, b, h, i, j):
    return s + torch.dot(MATRIX[i], LONG[j])


def row_of_a_row(s, b, h, i, j):
    return s + LONG[i, : j + 1].sum()


def out(s, b, h, i, j):
    return torch.exp(s, out=TABLE)


def boolean_index(s, b, h, i, j):
    return s + TABLE[i > j]


def unsigned(s, b, h, i, j):
    return s + UNSIGNED[i].float()


def keyword(s, b, h, i, j):
    return s.clamp(lowest=3)


def mode(s, b, h, i, j):
    return s + torch.div(i, 2, rounding_mode="up")


def minus_boolean(s, b, h, i, j):
    return s + -(i > j)


def unknown_type(s, b, h, i, j):
    return s.to(torch.complex64)


def members(b, h, i, j):
    return torch.isin(j, NUMBERS)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def own_backward(s, b, h, i, j):
    return Reversed.apply(s)


REFUSED = {
    own_backward: (1, "cannot trace the torch.autograd.Function Reversed: its backward"),
    branch: (1, "write `&`, `|`, `~`"), chained: (1, "chained comparisons"), conjunction: (1, "`&`"),
    largest: (1, "maximum"), by_math: (1, "not of math"), loop: (1, "ranges"), unknown: (1, "cannot trace 'cumsum'"),
    sliced: (1, "slice|not known while tracing"), many: (1, "expected a number or a tensor with one element"),
    listed: (1, "lists"), wrong_rank: (1, "expected 1 indices into a captured tensor, got 2"),
    zero: (1, "division by zero"), nothing: (0, "'nothing' returns nothing"), text: (0, "'text' returns what is not"),
    number_mask: (0, "expected 'number_mask' to return a boolean"), float_index: (1, "expected an integer index"),
    raises: (1, "cannot trace .undefined_attribute"), converts: (1, "Python int"),
    row: (1, "cannot trace .cumsum of a row"), compared_rows: (0, r"one element, got one of shape \(17,\)"),
    long_row: (1, "a row of at most 256 elements, got 300"),
    unequal_rows: (1, r"of one length, got \(17,\) and \(300,\)"),
    row_of_a_row: (1, "the length of a row is part of the code"),
    out: (1, "'exp' with out="), boolean_index: (1, "integer index, got one of type bool"),
    unsigned: (1, "a captured tensor of type uint16"), keyword: (1, "cannot trace 'clamp' with these arguments"),
    mode: (1, "rounding_mode None, 'floor' or 'trunc', got 'up'"), minus_boolean: (1, "negation of booleans"),
    unknown_type: (1, "cannot convert a traced number to torch.complex64"), members: (1, "'isin' of a captured tensor"),
}  # fmt: skip


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_refused_with_the_line(function):
    offset, message = REFUSED[function]
    line = function.__code__.co_firstlineno + offset
    kind = "mask_mod" if function.__code__.co_argcount == 4 else "score_mod"
    with pytest.raises(attnc.TraceError) as found:
        attnc.attention(Q, K, V, **{kind: function})
    assert str(found.value).startswith(f"{__file__}:{line}: "), found.value
    assert re.search(message, str(found.value)), found.value


def test_autograd_functions_work_again_after_a_trace():
    x = torch.ones(3, requires_grad=True)

    def score_mod(s, b, h, i, j):
        return s * Reversed.apply(torch.ones(1))

    with pytest.raises(attnc.TraceError):
        attnc.attention(Q, K, V, score_mod=own_backward)
    torch.testing.assert_close(
        attnc.attention(Q, K, V, score_mod=score_mod), attnc.attention(Q, K, V), rtol=2e-5, atol=2e-5
    )
    assert torch.equal(torch.autograd.grad(Reversed.apply(x).sum(), x)[0], -torch.ones(3))


def test_errors_of_the_function_itself_have_the_line():
    def f(s, b, h, i, j):
        return s + TABLE[70]

    line = f.__code__.co_firstlineno + 1
    with pytest.raises(attnc.TraceError, match=f"test_trace.py:{line}: cannot trace: IndexError"):
        attnc.attention(Q, K, V, score_mod=f)


def test_wrong_number_of_arguments():
    with pytest.raises(attnc.TraceError, match="positional argument"):
        attnc.attention(Q, K, V, score_mod=lambda s, b, h: s)


def test_nothing_keeps_what_a_function_captured():
    import gc
    import weakref

    def call():
        table = torch.randn(40)
        attnc.attention(Q, K, V, score_mod=lambda s, b, h, i, j: s + table[i + j])
        return weakref.ref(table)

    reference = call()
    gc.collect()
    assert reference() is None


def test_code_and_defaults_that_change():
    def f(s, b, h, i, j, by=2.0):
        return s * by

    same(f)
    f.__defaults__ = (3.0,)
    same(f)
    f.__code__ = (lambda s, b, h, i, j, by=2.0: s * by + 1).__code__
    same(f)
    f.__kwdefaults__ = None
    same(f)


F = torch.nn.functional
# PyTorch has one derivative where the function has none.
KINKS = {
    "relu": lambda x: torch.relu(x), "abs": lambda x: x.abs(), "sign": lambda x: torch.sign(x) + x,
    "clamp": lambda x: x.clamp(-1, 1), "clamp_min": lambda x: x.clamp_min(0), "hardtanh": lambda x: F.hardtanh(x),
    "relu6": lambda x: F.relu6(x), "leaky_relu": lambda x: F.leaky_relu(x), "elu": lambda x: F.elu(x),
    "maximum": lambda x: torch.maximum(x, x * x), "minimum": lambda x: torch.minimum(x, -x),
    "fmax": lambda x: torch.fmax(x, 2 * x), "fmin": lambda x: torch.fmin(x, x * x), "sigmoid": lambda x: x.sigmoid(),
    "silu": lambda x: F.silu(x), "softplus": lambda x: F.softplus(x), "logaddexp": lambda x: torch.logaddexp(x, -x),
    "nan_to_num": lambda x: torch.nan_to_num(torch.log(x), neginf=-5.0), "hardswish": lambda x: F.hardswish(x),
    "where": lambda x: torch.where(x > 0, torch.log(x), x), "masked_fill": lambda x: (1 / x).masked_fill(x == 0, 2.0),
    "remainder": lambda x: x % 2.0, "fmod": lambda x: torch.fmod(x, 2.0), "logsigmoid": lambda x: F.logsigmoid(x),
}  # fmt: skip


def at_points(function, points):
    """A function of the score there, and its derivative: those of attnc, then PyTorch's own. The log-sum-exp of one key is
    its score."""
    x, wanted = torch.zeros(1, 1, len(points), 8), points.clone().requires_grad_()
    x[0, 0, :, 0] = points
    key = torch.zeros(1, 1, 1, 8)
    key[..., 0] = 1
    x.requires_grad_()
    _, lse = attnc.attention(x, key, key, score_mod=lambda s, *index: function(s), scale=1.0, return_lse=True)
    value = function(wanted)
    got = torch.autograd.grad(lse.sum(), x)[0][0, 0, :, 0]
    return (lse[0, 0], got), (value, torch.autograd.grad(value.sum(), wanted)[0])


@pytest.mark.parametrize("name", KINKS)
def test_derivatives_at_kinks(name):
    points = torch.tensor([0.0, 1.0, -1.0, 2.0, 6.0, 3.0, -3.0, 0.5, -0.5, 90.0, -100.0, 25.0])
    (found, got), (value, expected) = at_points(KINKS[name], points)
    torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-6)
    if name in ("where", "masked_fill", "nan_to_num"):  # 0 times infinity in PyTorch, for the side not taken
        expected = torch.where(expected.isnan(), 1.0 if name == "where" else 0.0, expected)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


ENDS = {
    "sign of fmod": lambda x: torch.copysign(torch.ones_like(x), torch.fmod(x, 2.0)) + x,
    "sign of remainder": lambda x: torch.copysign(torch.ones_like(x), x % 2.0) + x,
    "sum that is rounded": lambda x: x % 1e8,
    "largest quotient": lambda x: torch.fmod((x * 0 - 128).to(torch.int8), (x * 0 - 1).to(torch.int8)) + x,
    "angle of -0": lambda x: torch.atan2(x * 0, -x.abs()) + x,
    "angle of zeros": lambda x: torch.atan2(x * 0, -(x * 0)) + x,
    "angle of infinities": lambda x: torch.where(torch.atan2(x / 0, -x / 0) > 2, x, 2 * x),
    "angles": lambda x: torch.atan2(x, x - 1) + torch.atan2(x - 1, x) + x,
    "floor of infinity": lambda x: torch.where((x / 0.0 // 2.0).isnan(), x, 2 * x),
    "floor by zero": lambda x: torch.where((x // 0.0).isinf(), x, 2 * x),
    "hardswish": lambda x: torch.where(F.hardswish(x / 0.0).isnan(), x, 2 * x),
}


@pytest.mark.parametrize("name", ENDS)
def test_ends_of_arithmetic(name):
    (found, got), (value, expected) = at_points(ENDS[name], torch.tensor([-4.0, 4.0, -0.5, 0.75, -3.0, 1.25]))
    torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(got, expected.nan_to_num(1.0), rtol=1e-5, atol=1e-6)


def test_step_of_integers_with_a_float():
    """Which PyTorch has under vmap alone: of the type of both."""
    key = torch.zeros(1, 1, 1, 8)
    score = lambda s, b, h, i, j: torch.heaviside(i - 1, torch.tensor(1.5))
    _, lse = attnc.attention(torch.zeros(1, 1, 3, 8), key, key, score_mod=score, return_lse=True)
    expected = torch.vmap(lambda i: score(0, 0, 0, i, 0))(torch.arange(3))
    torch.testing.assert_close(lse[0, 0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sums_of_float16_with_an_alpha_round_once(dtype):
    """As PyTorch does on GPUs: 1 - 3 (1 / 3) is what the third lacks, not 0."""
    key = torch.zeros(1, 1, 1, 8)
    third = torch.tensor(1 / 3).to(dtype)
    score = lambda s, b, h, i, j: (1000 * torch.sub((i * 0 + 1).to(dtype), (i * 0 + 1) * third, alpha=3)).float()
    _, lse = attnc.attention(torch.zeros(1, 1, 3, 8), key, key, score_mod=score, return_lse=True)
    expected = 1000 * (1 - 3 * third.double())
    torch.testing.assert_close(lse[0, 0].double(), expected.expand(3), rtol=2**-7, atol=0)


def test_remainders_of_remainders():
    """There are many ways through few operations: what goes along all of them takes forever."""
    divisors, numbers = torch.linspace(0.7, 1.3, 6, dtype=torch.float64).requires_grad_(), torch.arange(6) * 3
    after = torch.tensor([1, 2, 3, 4, 4, 4])
    q, key = torch.zeros(1, 1, 6, 8), torch.zeros(1, 1, 1, 8)
    q[0, 0, :, 0], key[..., 0] = torch.linspace(-2, 3, 6), 1
    score = lambda s, b, h, i, j: ((numbers[i] % (divisors[(i + 1).clamp(max=4)].abs() + 0.5)) % (s.abs() + 0.5)).float()
    _, lse = attnc.attention(q, key, key, score_mod=score, scale=1.0, return_lse=True)
    value = ((numbers % (divisors[after].abs() + 0.5)) % (q[0, 0, :, 0].abs() + 0.5)).float()
    torch.testing.assert_close(lse[0, 0], value, rtol=1e-5, atol=1e-6)
    (expected,) = torch.autograd.grad(value.sum(), divisors)
    (got,) = torch.autograd.grad(lse.sum(), divisors)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


TOKENS = torch.tensor([3, -1, 0, -5, 4, 2, -2, 1, -4, 3, -3, 0, 4, 1, -1, 2, 0])


@pytest.mark.parametrize("number", [np.int64(3), np.float32(0.5), np.float64(2.0)], ids=repr)
def test_numpy_scalars_stand_on_the_left(number):
    same(score_mod=lambda s, b, h, i, j: torch.where(number > i, s, number.item() * s))
    same(score_mod=lambda s, b, h, i, j: torch.where(number <= s, s, 0.0))


ROWS = torch.randn(17, 2, 3, generator=torch.Generator().manual_seed(5))
WEIGHTS = torch.tensor([0.5, -1.0, 2.0])


@pytest.mark.parametrize(
    "of",
    [
        lambda i, j: torch.dot(ROWS[i, 0], ROWS[j, 1]),
        lambda i, j: ROWS[i][0] @ ROWS[j][1],
        lambda i, j: (ROWS[i] * ROWS[j]).sum(),
        lambda i, j: (ROWS[i] - ROWS[j, 0]).pow(2).sum(-1)[1],
        lambda i, j: ROWS[i].mean(dim=0, keepdim=True).prod(),
        lambda i, j: ROWS[i, :, 1].amax() + ROWS[j, ..., -1].min(),
        lambda i, j: (WEIGHTS * ROWS[i, 1]).norm() + torch.linalg.vector_norm(ROWS[j, 0], 1),
        lambda i, j: ROWS[i, 0, 1:].sum() * (ROWS[j, 1] > 0).sum(),
        lambda i, j: torch.where((ROWS[i, 0] > 0).any() & (ROWS[j, 0] < 1).all(), 1.0, 0.5),
        lambda i, j: sum(x * len(ROWS[j, 0]) for x in ROWS[i, 0]),
    ],
)
def test_rows(of):
    def score_mod(s, b, h, i, j):
        return s + of(i, j)

    def definition(s, b, h, i, j):
        return s + torch.vmap(torch.vmap(of, in_dims=(None, 0)), in_dims=(0, None))(i.flatten(), j.flatten())

    o, expected = attnc.attention(Q, K, V, score_mod=score_mod), dense(Q, K, V, definition)[0]
    torch.testing.assert_close(o, expected, rtol=2e-5, atol=2e-5)


def test_rows_of_other_lengths_are_traced_anew(compiled):
    table = torch.randn(17, 3)

    def score_mod(s, b, h, i, j):
        return s + table[i].sum()

    for length, programs in ((3, 1), (5, 1), (3, 0)):
        table = torch.randn(17, length)
        o, expected = (f(Q, K, V, score_mod=m) for f, m in (
            (attnc.attention, score_mod),
            (lambda *x, score_mod: dense(*x, score_mod)[0], lambda s, b, h, i, j: s + table[i].sum(-1)),
        ))  # fmt: skip
        torch.testing.assert_close(o, expected, rtol=2e-5, atol=2e-5)
        assert compiled() == programs


@pytest.mark.parametrize("index", ["loaded", "computed", "constant", "chained"])
def test_negative_indices_count_from_the_end(index):
    table = torch.randn(17 if index == "computed" else 5, generator=torch.Generator().manual_seed(3))
    square = torch.randn(2, 17, generator=torch.Generator().manual_seed(4))
    leaf = (square if index == "chained" else table).requires_grad_()
    places = {
        "loaded": lambda h, i, j: table[TOKENS[j]], "computed": lambda h, i, j: table[i - j],
        "constant": lambda h, i, j: table[-2] * (i - j), "chained": lambda h, i, j: square[h][TOKENS[j]],
    }  # fmt: skip

    def of(h, i, j):  # for all pairs at once rows are no numbers
        return square[h, TOKENS[j]] if index == "chained" and torch.is_tensor(j) else places[index](h, i, j)

    score_mod = lambda s, b, h, i, j: s + of(h, i, j)
    o, expected = attnc.attention(Q, K, V, score_mod=score_mod), dense(Q, K, V, score_mod)[0]
    torch.testing.assert_close(o, expected, rtol=2e-5, atol=2e-5)
    got, wanted = (torch.autograd.grad(x.square().sum(), leaf)[0] for x in (o, expected))
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def test_unsigned_bytes():
    flags = torch.tensor([0, 1, 200, 255, 3, 0, 7, 128, 127, 9, 0, 1, 2, 255, 254, 0, 6], dtype=torch.uint8)
    same(mask_mod=lambda b, h, i, j: (flags[j] > 127) | (flags[i].bool()) | (j == 0))
    same(score_mod=lambda s, b, h, i, j: s + (flags[i] + flags[j]) * 0.01)


def test_float64_stays_float64():
    near = 1.725e9 + torch.arange(17).double() * 0.25
    same(mask_mod=lambda b, h, i, j: near[i] >= near[j])


def test_sizes_with_negative_indices_have_code_of_their_own(compiled):
    table = torch.randn(40)
    f = lambda s, b, h, i, j: s + table[i - j + 15]
    for length in (10, 17, 10, 17):
        k = K[:, :, :length].contiguous()
        got = attnc.attention(Q, k, k, score_mod=f)
        torch.testing.assert_close(got, dense(Q, k, k, f)[0], rtol=2e-5, atol=2e-5)
    assert compiled() == 2
