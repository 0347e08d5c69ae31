# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels of products of warps would take on GPUs that are not there: registers, shared memory, spills and
occupancy as compiled for each chip, and a time from ceilings.

    python3 benchmarks/predict_warps.py --attn-opt BIN --attn-run BIN [--ptxas BIN] [--kernels REGEX]

A multiprocessor multiplies, reads shared memory and computes exponentials side by side; the largest of the three is
the ceiling. The part of the ceiling that a kernel reaches on the H200 where it was measured (docs/performance.md) is
taken for the other chips, at their boost clocks. Needs ptxas, and no GPU.
"""

import argparse
import math
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass


@dataclass
class Chip:
    """Rates are of a multiprocessor and a clock: multiply-adds of bf16 by mma.sync, and of f32; exponentials; bytes
    of shared memory. Sources: NVIDIA's data sheets of the cards (dense rates, f32 sums, boost clock); the H200's
    rate of mma.sync is 0.62 of WGMMA's, as measured."""

    card: str
    count: int  # of multiprocessors
    gigahertz: float
    mma: float
    fma: float
    shared_kilobytes: int
    threads: int
    exponentials: float = 16
    shared: float = 128


CHIPS = {
    "sm_80": Chip("A100", 108, 1.41, 1024, 64, 164, 2048),
    "sm_86": Chip("A40", 84, 1.74, 512, 128, 100, 1536),
    "sm_89": Chip("L40S", 142, 2.52, 512, 128, 100, 1536),
    "sm_90": Chip("H200", 132, 1.755, 1270, 128, 228, 2048),
    "sm_120": Chip("RTX 5090", 170, 2.41, 256, 128, 100, 1536),
}


@dataclass
class Kernel:
    name: str
    columns: int
    element: str
    gradient: bool
    measured: float  # TFLOP/s on an H200, docs/performance.md


KERNELS = [
    Kernel("forward d 64", 64, "bf16", False, 321),
    Kernel("forward d 128", 128, "bf16", False, 366),
    Kernel("gradients d 64", 64, "bf16", True, 237),
    Kernel("gradients d 128", 128, "bf16", True, 240),
    Kernel("forward d 64, f32", 64, "f32", False, 35.3),
    Kernel("forward d 128, f32", 128, "f32", False, 33.0),
]
REGISTERS, RESERVED_KILOBYTES = 65536, 1


def module_of(kernel):
    type, rows = f"tensor<?x?x?x{kernel.columns}x{kernel.element}>", "tensor<?x?x?xf32>"
    if not kernel.gradient:
        return (f"func.func @main(%q: {type}, %k: {type}, %v: {type}) -> {type} {{\n"
                f"  %o = attn.forward %q, %k, %v : {type}, {type}, {type} -> {type}\n  return %o : {type}\n}}\n")
    return (f"func.func @main(%q: {type}, %k: {type}, %v: {type}, %o: {type}, %do: {type}, %l: {rows})\n"
            f"    -> ({type}, {type}, {type}) {{\n"
            f"  %dq, %dk, %dv = attn.backward %q, %k, %v, %o, %do, %l : {type}, {type}, {type}, {type}, {type}, {rows}\n"
            f"    -> {type}, {type}, {type}\n  return %dq, %dk, %dv : {type}, {type}, {type}\n}}\n")


def shape_of(text):
    return [int(n) for n in re.match(r"(?:vector|!tile\.smem)?<(\d+)x(\d+)x", text).groups()]


class Launch:
    """The largest launch of products: per iteration its multiply-adds and bytes read of shared memory."""

    def __init__(self, text):
        self.threads = int(re.search(r"threads\(.*?\) in \(%\w+ = %c(\d+)", text)[1])
        self.shared = int(re.search(r"dynamic_shared_memory_size %c(\d+)_i32", text)[1])
        groups = int(re.search(r"warpgroups\((\d+)\)", text)[1])
        warps = self.threads // 32 // groups
        self.products = self.bytes = 0
        for mma in re.finditer(r"tile\.mma [^\n]*? : ([^\n]*)", text):
            a, right, sums = re.split(r", (?=<|vector|!tile)", mma[1])
            size = 2 if "16" in right.split("x")[-1].split(",")[0] else 4
            m, n = shape_of(sums)
            k = math.prod(shape_of(right)) // n
            self.products += groups * m * n * k
            # Each warp reads all of the right operand, and its rows of a left one that is not in registers; f32 reads 16
            # bytes of each of its threads' rows and columns for 4 steps of k, the same for lanes of a row or a column.
            reads = warps * n * k * size + (m * k * size if "smem" in a or size == 4 else 0)
            self.bytes += groups * reads


def inspect(kernel, name, options, folder):
    """(launch, registers, spilled bytes) of the largest kernel."""
    source = f"{folder}/case.mlir"
    with open(source, "w") as file:
        file.write(module_of(kernel))
    chip = "sm_90a" if name == "sm_90" else name
    wanted = "products=mma large-scores=false" if kernel.gradient else "products=mma"
    run = lambda command: subprocess.run(command, capture_output=True, text=True, check=True)
    try:
        lowered = run([options.attn_opt, source, f"--attn-lower-to-hopper=chip={chip} {wanted}"]).stdout
        ptx = run([options.attn_run, source, f"--target={name}", "--emit=ptx", "--deterministic=false",
                   f"--schedule={wanted}"]).stdout
    except subprocess.CalledProcessError as error:
        sys.exit(f"{name}, {kernel.name}: {error.stderr}")
    with open(f"{folder}/case.ptx", "w") as file:
        file.write(ptx)
    done = subprocess.run([options.ptxas, "-v", f"-arch={chip}", f"{folder}/case.ptx", "-o", f"{folder}/case.cubin"],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{name}, {kernel.name}: {done.stderr}")
    launches = [Launch(text) for text in re.split(r"(?=gpu\.launch )", lowered)[1:] if "tile.mma" in text]
    uses = [(int(r), int(s)) for s, r in re.findall(r"(\d+) bytes spill stores.*?Used (\d+) registers", done.stderr, re.S)]
    return max(launches, key=lambda launch: launch.products), *max(uses)


def ceiling(kernel, launch, chip):
    """TFLOP/s at most, as counted (four or ten times the pairs and columns)."""
    products = launch.products
    pairs = products / kernel.columns / (5 if kernel.gradient else 2)
    clocks = max(products / (chip.mma if kernel.element == "bf16" else chip.fma), launch.bytes / chip.shared,
                 pairs / chip.exponentials)
    return 2 * products / clocks * chip.count * chip.gigahertz * 1e-3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attn-opt", default="attn-opt")
    parser.add_argument("--attn-run", default="attn-run")
    parser.add_argument("--ptxas", default=shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin"))
    parser.add_argument("--kernels", default="", metavar="REGEX")
    options = parser.parse_args()
    if not options.ptxas:
        parser.error("expected ptxas in the path or by --ptxas")
    print("| kernel | chip | registers | spilled bytes | shared memory, KB | CTAs, warps of a multiprocessor | ceiling | predicted |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kernel in KERNELS:
            if not re.search(options.kernels, kernel.name):
                continue
            found = {name: inspect(kernel, name, options, folder) for name in CHIPS}
            reached = kernel.measured / ceiling(kernel, found["sm_90"][0], CHIPS["sm_90"])
            for name, chip in CHIPS.items():
                launch, registers, spills = found[name]
                used = launch.shared / 1024 + RESERVED_KILOBYTES
                ctas = min(int(chip.shared_kilobytes / used), REGISTERS // (launch.threads * -(-registers // 8) * 8),
                           chip.threads // launch.threads)
                most = ceiling(kernel, launch, chip)
                print(f"| {kernel.name} | {name} ({chip.card}) | {registers} | {spills} | {launch.shared / 1024:.0f} | "
                      f"{ctas}, {ctas * launch.threads // 32} | {most:.0f} | {most * reached:.0f}"
                      f"{' (measured)' if name == 'sm_90' else ''} |")


if __name__ == "__main__":
    main()
