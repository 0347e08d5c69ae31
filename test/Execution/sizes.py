# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention and its gradient at the ends of sizes, static and dynamic, on the CPU and in the interpreter.
Each is right, or refused with a message; nothing crashes."""

import argparse
import os
import subprocess
import sys

BASE = {"b": 1, "h": 2, "hk": 2, "s": 5, "t": 7, "d": 16, "dv": 16}
ENDS = {
    "no-batch": {"b": 0}, "no-heads": {"h": 0, "hk": 0}, "no-queries": {"s": 0}, "no-keys": {"t": 0},
    "nothing": {"s": 0, "t": 0}, "one-pair": {"s": 1, "t": 1}, "one-column": {"d": 1, "dv": 1},
    "wide": {"d": 1024, "dv": 1024, "s": 2, "t": 3}, "wide-values": {"dv": 65536, "s": 2, "t": 3},
    "no-key-heads": {"hk": 0},
}
REFUSED = {"no-key-heads": "multiple of key", ("wide-values", "interpreter"): "more than the 8192"}


def module_of(shapes, element, dynamic):
    size = lambda n, of: "?" if dynamic and of < 3 else str(n)
    tensor = lambda shape, e: "tensor<" + "".join(size(n, of) + "x" for of, n in enumerate(shape)) + e + ">"
    q, k, v = (tensor(shape, element) for shape in shapes)
    o, lse = tensor((*shapes[0][:3], shapes[2][3]), element), tensor(shapes[0][:3], "f32")
    return (f"func.func @f(%q: {q}, %k: {k}, %v: {v}) -> ({o}, {lse}) {{\n  %o, %l = attn.forward %q, %k, %v : {q}, {k}, {v} "
            f"-> {o}, {lse}\n  return %o, %l : {o}, {lse}\n}}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attn-run", required=True)
    parser.add_argument("--work", required=True)
    options = parser.parse_args()
    os.makedirs(options.work, exist_ok=True)
    failed, count = 0, 0
    for name, change in ENDS.items():
        c = {**BASE, **change}
        shapes = ((c["b"], c["h"], c["s"], c["d"]), (c["b"], c["hk"], c["t"], c["d"]), (c["b"], c["hk"], c["t"], c["dv"]))
        for target, element in (("cpu", "f32"), ("interpreter", "bf16")):
            for flags in ((), ("--grad",)):
                for dynamic in (False, True):
                    path = os.path.join(options.work, "case.mlir")
                    with open(path, "w") as file:
                        file.write(module_of(shapes, element, dynamic))
                    command = [options.attn_run, path, "--entry=f", f"--target={target}", "--check", *flags]
                    command += [f"--shape={n}=" + "x".join(map(str, shape)) for n, shape in enumerate(shapes)]
                    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
                    expected = REFUSED.get(name) or REFUSED.get((name, target))
                    good = (done.returncode == 1 and expected in done.stderr) if expected else done.returncode == 0
                    count += 1
                    if not good:
                        failed += 1
                        print(f"FAIL {name} {'dynamic' if dynamic else 'static'}: {' '.join(command)}\n  exit status "
                              f"{done.returncode}: {(done.stdout + done.stderr).strip()[:300]}")
    print(f"{count - failed} of {count} cases as expected")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
