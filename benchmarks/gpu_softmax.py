# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Row softmax on a GPU, forward and backward: beside torch.softmax, and beside a copy of as many bytes.

    python3 benchmarks/gpu_softmax.py [--library libattnc.so] [--types bf16,f32] [--shapes REGEX] [--compiled] [--quack]

A CUDA graph of calls on copies of the inputs of 200 MB and more together, the contenders by turns. Bytes are
those read and written once: two tensors forward, three backward. The copy is of one tensor; its GB/s are of two.
attnc is beside float64 (relative Frobenius norm, up to 64 rows). --compiled adds torch.compile, --quack Quack.
"""

import argparse
import math
import os
import re
import statistics
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "python"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from gpu_decode import LEAST_BYTES, capture, milliseconds  # noqa: E402

SHAPES = [(65536, 1024), (16384, 4096), (8192, 8192), (4096, 16384), (2048, 32768), (1024, 131072), (16384, 781),
          (4096, 12672), (512, 262144), (4, 1048576)]
ROUNDS = 8


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="instead of the package's own or $ATTNC_LIBRARY")
    parser.add_argument("--types", default="bf16,f32", metavar="LIST", help="of bf16, f16, f32")
    parser.add_argument("--shapes", default="", metavar="REGEX", help="of RxC, such as '^4x'")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--quack", action="store_true")
    options = parser.parse_args()
    try:
        options.chosen = [shape for shape in SHAPES if re.search(options.shapes, "x".join(map(str, shape)))]
    except re.error as error:
        parser.error(f"--shapes: {error}")
    options.types = options.types.split(",")
    if not options.chosen or any(name not in ("bf16", "f16", "f32") for name in options.types):
        parser.error("expected shapes and types of the lists")
    if options.library:
        os.environ["ATTNC_LIBRARY"] = os.path.abspath(options.library)
    return options


def contenders(options, torch, attnc):
    forwards = {"attnc": lambda x: attnc.softmax(x), "torch": lambda x: torch.softmax(x, -1)}
    if options.compiled:
        forwards["compiled"] = torch.compile(lambda x: torch.softmax(x, -1), dynamic=False)
    if options.quack:
        import quack

        forwards["quack"] = quack.softmax
    return forwards


def backwards(options, torch, y, dy):
    from attnc._torch_softmax import _run_backward

    calls = {"attnc": lambda n: _run_backward(dy[n], y[n]),
             "torch": lambda n: torch._softmax_backward_data(dy[n], y[n], -1, y[n].dtype)}
    if options.quack:
        from quack.softmax import _softmax_backward

        calls["quack"] = lambda n: _softmax_backward(dy[n], y[n], torch.empty_like(y[n]))
    return calls


def compare(torch, calls, copies, size, count):
    graphs = {}
    for name, call in calls.items():
        try:
            graphs[name] = capture(torch, lambda n: call(n % copies), count)
        except Exception as error:  # a peer that refuses the shape
            if name == "attnc":
                raise
            print(f"    {name} refuses: {str(error).splitlines()[0][:100]}")
    times = {name: [] for name in graphs}
    for turn in range(-2, ROUNDS):
        for name, graph in graphs.items():
            spent = milliseconds(torch, graph) / count
            if turn >= 0:
                times[name].append(spent)
    return {name: size / statistics.median(each) * 1e-6 for name, each in times.items()}


def measure(options, shape, name):
    import attnc
    import torch

    type = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[name]
    size = shape[0] * shape[1] * torch.tensor([], dtype=type).element_size()
    copies = max(1, min(8, math.ceil(LEAST_BYTES / size)))
    count = max(4, 2 * copies)
    draw = lambda: [torch.randn(*shape, device="cuda", dtype=type) for _ in range(copies)]
    x, dy, out = draw(), draw(), [torch.empty(*shape, device="cuda", dtype=type) for _ in range(copies)]
    rows = min(64, shape[0])
    exact = x[0][:rows].double().softmax(-1)
    y = [attnc.softmax(each) for each in x]
    errors = [float((y[0][:rows].double() - exact).norm() / exact.norm())]
    slope = exact * (dy[0][:rows].double() - (exact * dy[0][:rows].double()).sum(-1, keepdim=True))
    gradients = backwards(options, torch, y, dy)
    errors.append(float((gradients["attnc"](0)[:rows].double() - slope).norm() / slope.norm()))
    forwards = {key: (lambda n, call=call: call(x[n])) for key, call in contenders(options, torch, attnc).items()}
    forwards["copy"] = lambda n: out[n].copy_(x[n])
    for direction, calls, tensors, error in (("forward", forwards, 2, errors[0]), ("backward", gradients, 3, errors[1])):
        found = compare(torch, calls, copies, tensors * size, count)
        if direction == "forward":
            copy = found["copy"]
        print(f"{shape[0]}x{shape[1]}".ljust(14) + f"{name:5}{direction:9}"
              + "  ".join(f"{key} {speed:5.0f}" for key, speed in found.items())
              + f"  attnc/copy {found['attnc'] / copy:.3f}  attnc/torch {found['attnc'] / found['torch']:.2f}"
              + f"  error {error:.1e}", flush=True)


def main():
    options = parse_arguments()
    import torch

    if not torch.cuda.is_available():
        sys.exit("gpu_softmax: no CUDA device")
    torch.manual_seed(0)
    print(f"{torch.cuda.get_device_name()}, GB/s")
    with torch.no_grad():
        for name in options.types:
            for shape in options.chosen:
                measure(options, shape, name)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
