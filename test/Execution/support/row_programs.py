# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows that threads hold, of all lengths around those where another launch is taken, as lanes of a warp,
warps, CTAs of a cluster and parts share them; of 16-bit and 32-bit numbers, whole, strided and
beginning anywhere; and their gradients.

    row_programs.py ATTN_RUN TARGET

On the interpreter in several interleavings; on a GPU with the forms of the device, too.
"""

import concurrent.futures
import os
import subprocess
import sys

program, target = sys.argv[1:]
FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "row-programs.mlir")
# Forms, and about how long a row can be before it is divided.
FORMS = {"row-threads=32 row-ctas=4": 2048, "row-threads=64 row-ctas=1": 1024, "row-threads=128 row-ctas=2": 4096,
         "row-threads=32 row-parts=3": 1500, "row-threads=64 row-parts=7": 8000}
if target == "cuda":
    FORMS["row-threads=512"] = 131072
jobs = []


def check(entry, shapes, form, *more):
    if target != "interpreter":
        more = [option for option in more if not option.startswith("--interleavings")]
    command = [program, FILE, f"--target={target}", f"--entry={entry}", "--check",
               f"--schedule=row-programs=true {form}", *more]
    for number, shape in enumerate(shapes):
        command += ["--shape", f"{number}={shape}"]
    jobs.append(command)


for form, most in FORMS.items():
    lengths = [1, 3, 8, 9, 100]
    length = 32
    while length <= most:
        lengths += [length - 1, length, length + 3]
        length *= 2
    for length in [*lengths, most + 5, 3 * most]:
        check("f32", [f"3x{length}"], form)
        if length % 3 == 0:
            check("bf16", [f"5x{length}"], form, "--stride-pad=3", "--guard")
        if length % 5 == 0:
            check("norm", [f"5x{length}"], form, "--stride-pad=8")
    for length in (1, 31, 300, most + 1):
        check("f32", [f"2x{length}"], form, "--grad")
        check("bf16", [f"2x{length}"], form, "--grad", "--stride-pad=1", "--guard")
        check("f16", [f"2x{length}"], form, "--interleavings=7")
        check("scored", [f"2x3x{length}", f"{length}"], form, "--interleavings=3")
        check("norm", [f"2x{length}"], form, "--interleavings=3")
for shape in ("0x7", "3x0", "0x0"):
    check("f32", [shape], "row-threads=64")
# Nothing to compare with but infinities, and numbers that are one.
check("f32", ["4x700"], "row-threads=64", "--scale-input=1e4")
check("norm", ["4x700"], "row-threads=64", "--scale-input=1e16")
check("norm", ["4x700"], "row-threads=64", "--scale-input=1e-18")

with concurrent.futures.ThreadPoolExecutor(8 if target == "cuda" else 1) as pool:
    for command, result in zip(jobs, pool.map(lambda c: subprocess.run(c, capture_output=True, text=True), jobs)):
        if result.returncode:
            sys.exit(" ".join(command) + "\n" + result.stdout + result.stderr)
print(f"{len(jobs)} cases")
