# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles the kernels of an .mlir file to PTX and, with ptxas, to machine code.

Fails if ptxas says that it serialised or ignored something that the kernel's speed
rests on, or if it spills more than a few registers. Prints what each kernel uses.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

# C7508: setmaxnreg is ignored. C7510 to C7518: products are serialised, or ptxas
# adds waits. C7519: it adds a fence.
BAD = re.compile(r"C75(08|1[0-9])")
SPILL_LIMIT = 32  # bytes


def extract_ptx(text):
    """The PTX of each gpu.binary in MLIR text."""
    modules = re.findall(r'assembly = "((?:[^"\\]|\\.)*)"', text)
    unescape = lambda m: chr(int(m.group(1), 16)) if m.group(1) else m.group(2)
    return [re.sub(r"\\(?:([0-9A-Fa-f]{2})|(.))", unescape, m).rstrip("\0") for m in modules]


def check(ptx, ptxas, folder, number):
    """Assembles one module; returns the complaints."""
    source = os.path.join(folder, f"{number}.ptx")
    with open(source, "w") as file:
        file.write(ptx)
    run = subprocess.run(
        [ptxas, "-arch=sm_90a", "-O3", "-v", "-warn-spills", source, "-o", source + ".cubin"],
        capture_output=True, text=True)
    output = run.stdout + run.stderr
    complaints = [] if run.returncode == 0 else [f"ptxas exits with {run.returncode}:\n{output}"]
    complaints += [line for line in output.splitlines() if BAD.search(line)]
    for match in re.finditer(r"(\d+) bytes spill (?:stores|loads)", output):
        if int(match.group(1)) > SPILL_LIMIT:
            complaints.append(match.group(0))
    for line in output.splitlines():
        if re.search(r"Compiling entry|registers|spill", line):
            print(line.removeprefix("ptxas info    : "))
    return complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--opt", default="attn-opt")
    parser.add_argument("--ptxas", default="ptxas")
    parser.add_argument("--pipeline", default="--attn-cuda-codegen")
    parser.add_argument("--save", help="folder for the PTX and the machine code")
    arguments = parser.parse_args()
    run = subprocess.run([arguments.opt, arguments.file, *arguments.pipeline.split()],
                         capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    modules = extract_ptx(run.stdout)
    if not modules:
        sys.exit(f"{arguments.file} has no kernel")
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.save or scratch
        complaints = [c for i, m in enumerate(modules) for c in check(m, arguments.ptxas, folder, i)]
    if complaints:
        sys.exit("\n".join(complaints))
    print(f"gate: {len(modules)} modules ok")


if __name__ == "__main__":
    main()
