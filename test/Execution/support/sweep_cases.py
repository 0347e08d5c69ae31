# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random calls of attnc.attention on a GPU, and what is right for them.

A call is drawn from the seed and its number alone; PER_VARIANT neighbours share the variant and so
the compiled code, and differ in sizes. Batch elements and heads repeat the data of a few *units*,
as a table at random says. So the definition is evaluated for the units alone, and every element of
every result is compared: a tile that nobody computed, or that went elsewhere, shows."""

import math
from dataclasses import asdict, dataclass
from random import Random

PER_VARIANT = 8
CAP = 20.0
USUAL_HEADS = (32, 64, 64, 64, 80, 96, 128, 128, 128, 160, 192, 256)
REACHES = (0, 1, 31, 64, 100, 200, 256, 513)
# Elements of one tensor, and pairs x columns: what keeps a call short.
MOST_ELEMENTS, MOST_WORK, MOST_BIAS = 2**27, 2**38, 2**27


@dataclass(frozen=True)
class Call:
    number: int
    dtype: str
    d: int
    dv: int
    mask: str  # none, causal, window, documents, prefix
    alignment: str
    window: tuple  # or None
    causal: bool
    score: str  # none, alibi, distance, softcap, bias, sink
    deterministic: bool
    b: int
    hkv: int
    group: int
    s: int
    t: int

    def __str__(self):
        return "Call(" + ", ".join(f"{name}={value!r}" for name, value in asdict(self).items()) + ")"


def draw_variant(random):
    d = random.choice(USUAL_HEADS) if random.random() < 0.7 else 8 * random.randint(1, 32)
    dv = d if random.random() < 0.85 else 8 * random.randint(1, 32)
    mask = random.choice(["none", "causal", "causal", "causal", "window", "window", "window", "documents", "prefix"])
    window = None
    if mask == "window":
        left, right = random.choice(REACHES), random.choice(REACHES)
        window = random.choice([(left, right), (left, right), (left, 0), (left, -1), (-1, right)])
    return dict(dtype=random.choice(["bfloat16", "float16"]), d=d, dv=dv, mask=mask, window=window,
                alignment=random.choice(["top_left", "bottom_right"]),
                causal=mask == "causal" or (mask in ("window", "documents") and random.random() < 0.4),
                score=random.choice(["none"] * 6 + ["alibi", "distance", "softcap", "bias", "sink"]),
                deterministic=random.random() < 0.3)


def draw_length(random, largest):
    length = int(2 ** random.uniform(6, math.log2(largest)))
    step = random.choice([1, 1, 1, 64, 128, 128])
    return min(max(64, length // step * step), largest)


def draw_sizes(random, variant, largest):
    while True:
        s, t = draw_length(random, largest), draw_length(random, largest)
        if variant["mask"] == "documents" or random.random() < 0.4:
            t = s
        group = random.choice([1, 1, 1, 2, 3, 4, 8])
        hkv = int(2 ** random.uniform(0, math.log2(65 / group)))
        b = random.randint(1, 8)
        heads, d = hkv * group, max(variant["d"], variant["dv"])
        if (b * heads * max(s, t) * d <= MOST_ELEMENTS and b * heads * s * t * d <= MOST_WORK
                and group * s * t <= 2**25 and (variant["score"] != "bias" or heads * s * t <= MOST_BIAS)):
            return dict(b=b, hkv=hkv, group=group, s=s, t=t)


def draw(seed, number, largest=3072):
    variant = draw_variant(Random(f"{seed} {number // PER_VARIANT}"))
    return Call(number=number, **variant, **draw_sizes(Random(f"{seed} call {number}"), variant, largest))


class Data:
    """The inputs of a call. Unit (x, y) is what batch elements of kind x and key heads of kind y
    have; what a score captures for each head depends on y, for each batch element on x."""

    def __init__(self, torch, call, seed, device):
        self.torch, self.call, self.device = torch, call, device
        generator = torch.Generator(device).manual_seed(hash((seed, call.number)) % 2**31)
        self.generator, self.type = generator, getattr(torch, call.dtype)
        kinds_b, kinds_h = min(call.b, 2), min(call.hkv, 2)
        self.units = [(x, y) for x in range(kinds_b) for y in range(kinds_h)]
        random = Random(f"{seed} data {call.number}")
        # Each kind is somewhere.
        of_b = [x % kinds_b if x < kinds_b else random.randrange(kinds_b) for x in range(call.b)]
        of_h = [y % kinds_h if y < kinds_h else random.randrange(kinds_h) for y in range(call.hkv)]
        random.shuffle(of_b), random.shuffle(of_h)
        self.of_b, self.of_h = (torch.tensor(x, device=device) for x in (of_b, of_h))
        # By batch element and key head.
        self.unit_of = self.of_b[:, None] * kinds_h + self.of_h[None, :]
        count, g = len(self.units), call.group
        self.q, self.do = self.normal(count, g, call.s, call.d), self.normal(count, g, call.s, call.dv)
        self.k, self.v = self.normal(count, call.t, call.d), self.normal(count, call.t, call.dv)
        self.captures = self.make_captures(kinds_b, kinds_h)
        self.keeps = [self.keep_of(x) for x in range(kinds_b)]
        self.spoil_dead()

    def normal(self, *shape):
        return self.torch.randn(shape, generator=self.generator, device=self.device).to(self.type)

    def integers(self, low, high, *shape):
        return self.torch.randint(low, high, shape, generator=self.generator, device=self.device)

    def make_captures(self, kinds_b, kinds_h):
        """By kind, with the heads of a group behind."""
        torch, call, heads = self.torch, self.call, (kinds_h, self.call.group)
        made = {}
        if call.mask == "documents":
            starts = self.integers(0, max(call.s // 64, 2), kinds_b, call.s) == 0
            made["document"] = starts.cumsum(1).to(torch.int32)
        if call.mask == "prefix":
            made["prefix"] = self.integers(0, call.t + 1, kinds_b).to(torch.int32)
        if call.score in ("alibi", "distance"):
            slope = torch.rand(heads, generator=self.generator, device=self.device)
            made["slope"] = slope * (0.01 if call.score == "distance" else 0.5)
        if call.score == "bias":
            made["bias"] = self.normal(*heads, call.s, call.t)
        if call.score == "sink":
            made["sink"] = 2 * torch.randn(heads, generator=self.generator, device=self.device)
        return made

    def keep_of(self, x):
        """Which pairs count for batch elements of a kind; None: all."""
        torch, call = self.torch, self.call
        i = torch.arange(call.s, device=self.device)[:, None]
        j = torch.arange(call.t, device=self.device)[None, :]
        diagonal = i + (call.t - call.s if call.alignment == "bottom_right" else 0)
        keep = None
        def add(more):
            return more if keep is None else keep & more
        if call.causal and call.mask != "documents":
            keep = add(j <= diagonal)
        if call.window is not None:
            left, right = call.window
            if left >= 0:
                keep = add(j >= diagonal - left)
            if right >= 0:
                keep = add(j <= diagonal + right)
        if call.mask == "documents":
            document = self.captures["document"][x]
            keep = add(document[:, None] == document[None, :])
            if call.causal:
                keep = add(j <= i)
        if call.mask == "prefix":
            keep = add((j < self.captures["prefix"][x]) | (j <= i))
        return keep

    def spoil_dead(self):
        """dO of rows without keys is by turns infinite, NaN, large and as elsewhere."""
        self.dead = [None if keep is None else ~keep.any(1) for keep in self.keeps]
        if self.call.score == "sink":
            return  # what such a row gives is its sink's
        for unit, (x, _) in enumerate(self.units):
            if self.dead[x] is not None:
                for turn, value in enumerate((math.inf, math.nan, 3e4)):
                    rows = self.dead[x].clone()
                    rows[self.torch.arange(len(rows), device=self.device) % 4 != turn] = False
                    self.do[unit, :, rows] = value

    def expand(self, units):
        """From units to (batch, heads, ...)."""
        all_ = units[self.unit_of]
        return all_.flatten(1, 2) if units is self.q or units is self.do else all_

    def expand_heads(self, kinds):
        return kinds[self.of_h].flatten(0, 1)

    def functions(self):
        """score_mod, mask_mod and the sink, for attnc."""
        call, captures = self.call, self.captures
        score = mask = sink = None
        if call.score in ("alibi", "distance"):
            slope = self.expand_heads(captures["slope"])
            score = (lambda s, b, h, i, j: s - slope[h] * (i - j).abs()) if call.score == "alibi" else \
                (lambda s, b, h, i, j: s + slope[h] * j)
        elif call.score == "softcap":
            score = lambda s, b, h, i, j: CAP * self.torch.tanh(s / CAP)
        elif call.score == "bias":
            bias = self.expand_heads(captures["bias"])
            score = lambda s, b, h, i, j: s + bias[h, i, j]
        elif call.score == "sink":
            sink = self.expand_heads(captures["sink"])
        if call.mask == "documents":
            document = captures["document"][self.of_b]
            mask = (lambda b, h, i, j: (document[b, i] == document[b, j]) & (j <= i)) if call.causal else \
                (lambda b, h, i, j: document[b, i] == document[b, j])
        elif call.mask == "prefix":
            prefix = captures["prefix"][self.of_b]
            mask = lambda b, h, i, j: (j < prefix[b]) | (j <= i)
        return score, mask, sink


class Truth:
    """O, LSE, dQ, dK and dV of one unit by the definition, in float64; or, with `order`, what a
    straightforward evaluation in float32 gives, which is the measure: weights and derivatives of
    scores rounded before the tensor core multiplies them, sums in another order for each `order`.
    `multiply` forms a b^T."""

    def __init__(self, data, unit, order=None, multiply=None):
        torch, call = data.torch, data.call
        self.data, self.unit, self.exact = data, unit, order is None
        self.kind = torch.float64 if self.exact else torch.float32
        self.random = torch.Generator(data.device).manual_seed(order or 0)
        self.multiply = multiply or (lambda a, b: a @ b.transpose(-1, -2))
        x, self.y = data.units[unit]
        self.keep, dead = data.keeps[x], data.dead[x]
        q, k, v, do = (each[unit].to(self.kind) for each in (data.q, data.k, data.v, data.do))
        if dead is not None:
            do[:, dead] = 0 if call.score != "sink" else do[:, dead]
        if order:
            inner = torch.randperm(call.d, generator=self.random, device=data.device)
            q, k = q[..., inner], k[..., inner]
        self.evaluate(q, k, v, do)
        if order:
            self.dq, self.dk = (each[..., inner.argsort()] for each in (self.dq, self.dk))
        if not self.exact:
            self.o, self.dq, self.dk, self.dv = (self.rounded(each) for each in (self.o, self.dq, self.dk, self.dv))

    def is_zero(self, name):
        """Rows of a result that are 0 whatever the numbers are, the heads of a group behind each other: those
        without keys, and keys that no row sees. None if there are none."""
        if self.keep is None:
            return None
        if name in ("o", "dq"):
            return (~self.keep.any(-1)).repeat(self.data.call.group)
        return ~self.keep.any(-2)

    def rounded(self, x):
        return x if self.exact else x.to(self.data.type).to(self.kind)

    def change(self, s):
        """Scores after the change, and its derivative."""
        call, torch = self.data.call, self.data.torch
        captures = {name: x[self.y].to(self.kind) for name, x in self.data.captures.items()
                    if name in ("slope", "bias", "sink")}
        i = torch.arange(call.s, device=s.device, dtype=self.kind)[:, None]
        j = torch.arange(call.t, device=s.device, dtype=self.kind)[None, :]
        self.sink = captures.get("sink")
        if call.score == "alibi":
            return s - captures["slope"][:, None, None] * (i - j).abs(), None
        if call.score == "distance":
            return s + captures["slope"][:, None, None] * j, None
        if call.score == "softcap":
            tanh = torch.tanh(s / CAP)
            return CAP * tanh, 1 - tanh * tanh
        if call.score == "bias":
            return s + captures["bias"], None
        return s, None

    def evaluate(self, q, k, v, do):
        """q and do have the heads of a group first."""
        torch, scale = self.data.torch, self.data.call.d**-0.5
        s, slope = self.change(self.multiply(q, k * scale))
        if self.keep is not None:
            s = s.masked_fill(~self.keep, -math.inf)
        largest = s.amax(-1)
        if self.sink is not None:
            largest = torch.maximum(largest, self.sink[:, None])
        safe = largest.masked_fill(largest == -math.inf, 0)
        p = (s - safe[..., None]).exp_()
        total = p.sum(-1)
        if self.sink is not None:
            total = total + (self.sink[:, None] - safe).exp()
        empty = total == 0
        if not self.exact:
            # Relative to what weights are rounded is an implementation's choice.
            factor = torch.rand(total.shape, generator=self.random, device=total.device).exp2()[..., None]
            p = self.rounded(p * factor) / factor
        self.o = self.multiply(p, v.T) / total.masked_fill(empty, 1)[..., None]
        self.lse = (safe + total.log()).masked_fill(empty, -math.inf)
        # The gradient, from what the forward has left.
        p = (s - self.lse.masked_fill(empty, 0)[..., None]).exp_()
        del s
        ds = self.multiply(do, v) - (do * self.rounded(self.o)).sum(-1, keepdim=True)
        ds *= p
        if slope is not None:
            ds *= slope
        p, ds = self.rounded(p), self.rounded(ds)
        self.dv = self.multiply(p.flatten(0, 1).T, do.flatten(0, 1).T)
        del p
        self.dq = self.multiply(ds, k.T) * scale
        self.dk = self.multiply(ds.flatten(0, 1).T, q.flatten(0, 1).T) * scale


def tensor_core(torch):
    """a b^T as Hopper's tensor core sums it; support/reference.py has the same in numpy."""
    def rows_of(a, b):
        a, b = a.double(), b.double()
        total = a.new_zeros(len(a), len(b))
        for start in range(0, a.shape[1], 16):
            terms = a[:, None, start:start + 16] * b[None, :, start:start + 16]
            terms = torch.cat([total[..., None], terms], 2)
            unit = torch.frexp(terms.abs().amax(2)).exponent - 26
            total = torch.ldexp(terms, -unit[..., None].double()).trunc().sum(2)
            excess = (torch.frexp(total).exponent - 24).clamp(min=0)
            total = torch.ldexp(torch.ldexp(total, -excess.double()).trunc(), (excess + unit).double())
        return total.float()

    def multiply(a, b):
        if a.dim() == 3:
            return torch.stack([multiply(x, b if b.dim() == 2 else b[n]) for n, x in enumerate(a)])
        rows = max(1, 2**22 // max(len(b), 1))
        return torch.cat([rows_of(a[n:n + rows], b) for n in range(0, len(a), rows)])

    return multiply
