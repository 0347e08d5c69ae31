# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs calls of gpu_sweep.py, one after the other, and says what it does, for somebody who watches:

    compile N    run N    judge N    right N    wrong N: ...    refused N: ...
"""

import argparse
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, "..", "..", "..", "python")]
from support.sweep_cases import CAP, Data, Truth, draw, tensor_core  # noqa: E402

NAMES = ("o", "lse", "dq", "dk", "dv")
# Half the distance between 1 and the next number.
ROUNDOFF = {"bfloat16": 2.0**-9, "float16": 2.0**-11, "float32": 2.0**-24}
# What a tile's tanh is off by on a GPU at most (docs/numerics.md).
TANH = 5e-7
# What a process keeps of a GPU's memory between calls: several share it.
MOST_MEMORY = 3 * 2**30


def say(what, call, rest=""):
    print(f"{what} {call.number}{rest}", flush=True)


class Attention:
    """A call's variant by attnc; a sink, for which attention() has no argument, is written into the IR."""

    def __init__(self, data):
        from attnc._attention import bind
        from attnc._variant import Options, build, variant_of

        call = data.call
        score, mask, self.sink = data.functions()
        named = call.mask != "documents" and call.causal
        options = Options(call.dtype, call.d, call.dv, named, call.alignment, call.window, None, call.deterministic)
        if self.sink is None:
            self.variant, self.captures = bind(options, score, mask)
            return
        text, self.captures = build(options, score, mask)
        head, arguments, rest = text.partition(") -> (")
        text = head + ", %sink: tensor<?xf32>" + arguments + rest
        text = text.replace("attn.forward %q, %k, %v", "attn.forward %q, %k, %v sink(%sink : tensor<?xf32>)")
        self.variant = variant_of(text)
        self.captures = [*self.captures, self.sink]

    def compile(self, device):
        self.variant.forward(device)
        self.variant.gradient(device, (0, 1, 2), False)

    def run(self, q, k, v, do):
        from attnc._torch import _run

        leaves = [x.requires_grad_() for x in (q, k, v)]
        o, lse = _run(None, self.variant, [*leaves, *self.captures], None, False)
        o.backward(do)
        return dict(o=o.detach(), lse=lse, dq=q.grad, dk=k.grad, dv=v.grad)


def spoil_memory(torch, call, device, dtype):
    """What the allocator hands out next holds NaN: what no tile writes is seen."""
    heads = call.hkv * call.group
    shapes = [(call.b, heads, call.s, call.dv), (call.b, heads, call.s, call.d), (call.b, call.hkv, call.t, call.d),
              (call.b, call.hkv, call.t, call.dv)]
    blocks = [torch.full(shape, math.nan, dtype=dtype, device=device) for shape in shapes]
    blocks.append(torch.full(shapes[0][:3], math.nan, device=device))


class Judge:
    """Compares results with the units; the gates are those of docs/numerics.md."""

    def __init__(self, torch, data, results):
        self.torch, self.data, self.results = torch, data, results
        self.where = data.unit_of.flatten()

    def of_units(self, name):
        """Unit by unit, all that repeats it, with the heads of a group as rows of one head."""
        x = self.results[name]
        b, hkv = self.data.unit_of.shape
        x = x.reshape(b * hkv, -1, x.shape[-1]) if name in ("o", "dq", "dk", "dv") else x.reshape(b * hkv, -1)
        return [x[self.where == unit] for unit in range(len(self.data.units))]

    def run(self):
        problems = self.judge(self.compare(), None)
        if problems:
            # A baseline of the same precision is one of the same sums.
            problems = self.judge(problems, tensor_core(self.torch))
        return [text for _, text in problems]

    def compare(self):
        """Largest and mean errors, from the exact results; what must be exactly 0 or infinite."""
        self.exact = [Truth(self.data, unit) for unit in range(len(self.data.units))]
        self.figures, hard = {}, []
        for name in NAMES:
            largest = total = size = mean_size = count = 0.0
            for unit, got in enumerate(self.of_units(name)):
                want = getattr(self.exact[unit], name)
                want = want.flatten(0, -2) if name != "lse" else want.flatten()
                if name != "lse":
                    error = got.float().sub_(want.float()).abs_()
                    zero = self.exact[unit].is_zero(name)
                    if zero is not None and bool((got[:, zero] != 0).any()):
                        hard.append((name, f"{name}: expected zeros in a row without keys (unit {unit})"))
                else:
                    same = got == want.float()
                    error = got.double().sub_(want).masked_fill_(same, 0).abs_()
                finite = want[want.isfinite()].abs() if name == "lse" else want.abs()
                largest = max(largest, nan_is_infinite(error.amax().item()))
                total, count = total + error.double().sum().item(), count + error.numel()
                size = max(size, finite.amax().item() if finite.numel() else 0.0)
                mean_size += finite.sum().item() / max(finite.numel(), 1) / len(self.exact)
            self.figures[name] = dict(largest=largest, mean=total / count, size=size, mean_size=mean_size)
        return hard

    def judge(self, before, multiply):
        """Problems with a baseline."""
        data = self.data
        hard = [(name, text) for name, text in before if "zeros" in text]
        few = data.call.group * len(data.units) * min(data.call.s, data.call.t) < 512
        base = {name: dict(largest=0.0, mean=0.0) for name in NAMES}
        for order in range(8 if few else 2):
            mean = dict.fromkeys(NAMES, 0.0)
            for unit, exact in enumerate(self.exact):
                baseline = Truth(data, unit, order, multiply)
                for name in NAMES:
                    want, other = getattr(exact, name), getattr(baseline, name)
                    error = (other.double() - want).abs().nan_to_num_(0, 0)
                    base[name]["largest"] = max(base[name]["largest"], error.amax().item())
                    mean[name] += error.mean().item() / len(self.exact)
            for name in NAMES:
                base[name]["mean"] = max(base[name]["mean"], mean[name])
        soft = []
        for name, figures in self.figures.items():
            roundoff = ROUNDOFF["float32" if name == "lse" else data.call.dtype]
            two = 2 * roundoff * 2.0 ** math.floor(math.log2(figures["size"] + 0.3))
            gates = dict(largest=2 * base[name]["largest"] + two,
                         mean=1.5 * base[name]["mean"] + roundoff * figures["mean_size"])
            if name == "lse" and data.call.score == "softcap":
                gates = {which: gate + CAP * TANH for which, gate in gates.items()}
            for which, gate in gates.items():
                if not figures[which] <= gate:
                    soft.append((name, f"{name}: {which} error {figures[which]:.3g}, expected at most {gate:.3g}"))
        return hard + soft


def nan_is_infinite(x):
    return math.inf if math.isnan(x) else x


def run_call(torch, call, options, faults):
    device = options.device
    data = Data(torch, call, options.seed, device)
    attention = Attention(data)
    say("compile", call)
    attention.compile(device)
    q, k, v, do = (data.expand(x) for x in (data.q, data.k, data.v, data.do))
    spoil_memory(torch, call, device, data.type)
    say("run", call)
    if faults.get(call.number) == "hang":
        import time
        time.sleep(3600)
    if faults.get(call.number) == "crash":
        os.abort()
    results = attention.run(q, k, v, do)
    if device == "cuda":
        torch.cuda.synchronize()
    if faults.get(call.number) == "zero":
        results["dk"][-1, -1, -64:] = 0
    say("judge", call)
    del q, k, v, do
    problems = Judge(torch, data, results).run()
    if device == "cuda" and torch.cuda.memory_reserved() > MOST_MEMORY:
        torch.cuda.empty_cache()
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--largest", type=int, default=3072)
    parser.add_argument("--fault", action="append", default=[], metavar="N=KIND", help="pretends that call N fails")
    parser.add_argument("numbers", type=int, nargs="+")
    options = parser.parse_args()
    import torch
    from attnc import Error

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_num_threads(1)
    faults = {int(number): kind for number, kind in (fault.split("=") for fault in options.fault)}
    for number in options.numbers:
        call = draw(options.seed, number, options.largest)
        try:
            problems = run_call(torch, call, options, faults)
        except Error as error:
            say("refused", call, ": " + " ".join(str(error).split())[:600])
            continue
        if problems:
            say("wrong", call, ": " + "; ".join(problems))
        else:
            say("right", call)


if __name__ == "__main__":
    main()
