# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a function and its gradients again and again, on different numbers of
threads, and compares all results bit by bit.

usage: replays.py ATTN_RUN COUNT GRADIENTS FILE [attn-run options]
"""
import pathlib
import subprocess
import sys
import tempfile


def run(command, threads, gradients, folder):
    outputs = [folder / f"{index}.npy" for index in range(gradients)]
    options = [f"--grad-output={index}={path}" for index, path in enumerate(outputs)]
    subprocess.run([*command, "--grad", f"--threads={threads}", *options], check=True, stdout=subprocess.DEVNULL)
    return [path.read_bytes() for path in outputs]


def main():
    attn_run, count, gradients, *rest = sys.argv[1:]
    command = [attn_run, *rest]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        first = run(command, 1, int(gradients), folder)
        for replay in range(1, int(count)):
            threads = 1 + replay % 2
            for index, (a, b) in enumerate(zip(first, run(command, threads, int(gradients), folder))):
                if a != b:
                    sys.exit(f"gradient {index} of run {replay} on {threads} threads differs from run 0 on 1 thread")
    print(f"{count} runs, {gradients} gradients each, equal bit by bit")


main()
