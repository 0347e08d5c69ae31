# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the tile programs of backward_tiles.py and compares with numpy in float64:
each result to 1e-5 of its largest element.

    check_backward_tiles.py --attn-run BIN --work FOLDER [--case N]
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys

import numpy as np

import backward_tiles
import reference

# form, element type, groups (0: none), queries, keys, d, dv, whether lengths
# are static, tile of queries and keys, elements between rows of inputs
CASES = [
    ("fused", "f32", 0, 128, 256, 64, 64, False, (64, 128), 0),
    ("fused", "f32", 0, 197, 300, 64, 64, False, (64, 128), 3),
    ("fused", "f32", 0, 100, 150, 128, 128, True, (64, 128), 0),
    ("fused", "f32", 3, 70, 129, 64, 32, False, (64, 64), 5),
    ("fused", "f32", 0, 1, 3, 40, 59, False, (64, 128), 0),
    ("fused", "bf16", 2, 150, 257, 64, 64, False, (64, 128), 7),
    ("fused", "f16", 0, 65, 129, 128, 64, True, (64, 64), 0),
    ("distributed", "f32", 0, 197, 300, 64, 64, False, (64, 128), 3),
    ("distributed", "f32", 0, 100, 150, 128, 128, True, (64, 128), 0),
    ("distributed", "f32", 3, 70, 129, 59, 40, False, (64, 64), 0),
    ("distributed", "bf16", 2, 150, 257, 64, 64, False, (64, 128), 0),
    ("distributed", "f16", 0, 65, 129, 128, 64, False, (64, 128), 7),
]


def run(options, number):
    form, element, groups, sq, sk, d, dv, static, tile, pad = CASES[number]
    rng = np.random.default_rng(number)
    inputs = [reference.round_to(element, x) for x in backward_tiles.inputs(2, 2, groups, sq, sk, d, dv, rng)]
    inputs += [x.astype(np.float32) for x in backward_tiles.forward(*(x.astype(np.float64) for x in inputs))]
    exact = backward_tiles.backward(*(x.astype(np.float64) for x in inputs))
    folder = os.path.join(options.work, str(number))
    os.makedirs(folder)
    path = os.path.join(folder, "main.mlir")
    lengths = (sq, sk) if static else (None, None)
    with open(path, "w") as file:
        file.write(backward_tiles.Program(form, d, dv, element, bool(groups), *lengths, tile).text())
    command = [options.attn_run, path, "--entry=main", "--target=cpu", "--matrix-unit=none", f"--stride-pad={pad}", "--guard"]
    for index, array in enumerate(inputs):
        name = os.path.join(folder, f"in{index}.npy")
        np.save(name, array.astype(np.float16) if element == "f16" and index < 4 else array)
        command += ["--input", f"{index}={name}"]
    outputs = [os.path.join(folder, f"out{index}.npy") for index in range(3)]
    for index, name in enumerate(outputs):
        command += ["--output", f"{index}={name}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        problems = [f"exit status {done.returncode}: {done.stderr.strip()[-1500:]}"]
    else:
        problems = []
        for what, name, good in zip(("dQ", "dK", "dV"), outputs, exact):
            error = np.abs(np.load(name) - good).max() / np.abs(good).max()
            if not error <= 1e-5:  # a NaN is too far, too
                problems.append(f"{what}: error {error:.2e} of the largest element")
    for problem in problems:
        print(f"FAIL case {number} {CASES[number]}: {problem}\n  {shlex.join(command)}")
    return not problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attn-run", default="attn-run")
    parser.add_argument("--work", required=True)
    parser.add_argument("--case", type=int, help="run this one only")
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    good = [run(options, n) for n in range(len(CASES)) if options.case in (None, n)]
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
