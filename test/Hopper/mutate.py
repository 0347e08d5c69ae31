# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes every single mistake of test-hopper-mutate in a hopper program and runs
the interpreter on it: it must report an error, or the outputs must differ.

    mutate.py FILE --attn-opt BIN --attn-run BIN --outputs 3,4 [--sums 5] [--least 95] \\
        [--interleavings 12] [--every 1] [--harmless REGEX=WHY]... -- ARGUMENTS OF attn-run

--sums are outputs in bf16 whose bits depend on an order that is open: they differ where they are
further apart than two roundings, or no numbers.
Prints every mistake that was not found; one whose description matches a
--harmless is printed with its reason and does not count. Exit status 1 where
fewer than --least percent of the others were found, or where a --harmless
matches nothing that survived. With --every N only each N-th mistake is made: a
sample, in which a --harmless may match nothing. Also says how many of them hopper-check-protocol
finds without running anything.
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

import numpy


def run(command, **options):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    except subprocess.TimeoutExpired:
        return None


def list_mutations(opt, file):
    """Descriptions: line, column, op, text."""
    result = run([opt, file, "--test-hopper-mutate", "-o", os.devnull])
    if result.returncode:
        sys.exit(result.stderr)
    found = re.findall(r":(\d+):\d+: remark: mutation (\d+): '([\w.]+)': (.*)", result.stderr)
    assert [int(number) for _, number, _, _ in found] == list(range(len(found))), result.stderr
    return [f"line {line}: {op}: {text}" for line, _, op, text in found]


def outputs_of(options, folder, program):
    """Runs the interpreter: (result, the outputs' bytes)."""
    command = [options.attn_run, program, "--target=interpreter",
               f"--interleavings={options.interleavings}"] + options.arguments
    paths = {p: os.path.join(folder, f"{p}.npy") for p in [*options.outputs, *options.sums]}
    for position, path in paths.items():
        command += ["--output", f"{position}={path}"]
    result = run(command)
    if result is None or result.returncode:
        return result, None
    contents = []
    for position in options.outputs:
        with open(paths[position], "rb") as file:
            contents.append(file.read())
    return result, (contents, [numpy.load(paths[position]) for position in options.sums])


def widen(bits):
    """bf16, which numpy does not have, as f32."""
    return (bits.view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)


def differ(outputs, expected):
    if outputs[0] != expected[0]:
        return True
    rounding = 2.0 ** -8
    for got, right in zip(map(widen, outputs[1]), map(widen, expected[1])):
        if not (numpy.abs(got - right) <= 2 * rounding * numpy.abs(right).max()).all():
            return True
    return False


def try_mutation(options, index, expected):
    """Why the mistake was found, or None."""
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "mutant.mlir")
        made = run([options.attn_opt, options.file, f"--test-hopper-mutate=index={index}",
                    "-o", program])
        if made.returncode:
            return "verifier: " + first_error(made.stderr)
        result, outputs = outputs_of(options, folder, program)
        if result is None:
            return "does not end"
        if result.returncode < 0 or result.returncode > 1:
            sys.exit(f"mutation {index}: attn-run crashed:\n{result.stderr}")
        if result.returncode:
            return first_error(result.stderr)
        return "other outputs" if differ(outputs, expected) else None


def is_refuted(options, index):
    """Whether the static checker finds the mistake."""
    result = run([options.attn_opt, options.file, f"--test-hopper-mutate=index={index}",
                  "--hopper-check-protocol", "-o", os.devnull])
    if result.returncode not in (0, 1):
        sys.exit(f"mutation {index}: attn-opt crashed:\n{result.stderr}")
    return result.returncode == 1


def first_error(text):
    errors = re.findall(r"error: (.*)", text)
    return errors[0] if errors else text.strip()


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--attn-opt", required=True)
    parser.add_argument("--attn-run", required=True)
    parser.add_argument("--outputs", required=True, type=lambda text: text.split(","))
    parser.add_argument("--sums", default=[], type=lambda text: text.split(","))
    parser.add_argument("--interleavings", type=int, default=12)
    parser.add_argument("--least", type=float, default=95)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--harmless", action="append", default=[])
    arguments = sys.argv[1:]
    split = arguments.index("--")
    options = parser.parse_args(arguments[:split])
    options.arguments = arguments[split + 1:]
    return options


def main():
    options = parse()
    harmless = [entry.split("=", 1) for entry in options.harmless]
    mutations = list_mutations(options.attn_opt, options.file)
    chosen = range(0, len(mutations), options.every)
    with tempfile.TemporaryDirectory() as folder:
        result, expected = outputs_of(options, folder, options.file)
        if expected is None:
            sys.exit(f"the program itself fails:\n{result and result.stderr}")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        reasons = list(pool.map(lambda index: try_mutation(options, index, expected),
                                chosen))
        refuted = sum(pool.map(lambda index: is_refuted(options, index), chosen))
    killed, excused, used = 0, 0, set()
    for index, reason in zip(chosen, reasons):
        text = mutations[index]
        killed += reason is not None
        if reason is not None:
            if options.verbose:
                print(f"found {index}: {text}: {reason}")
            continue
        why = [(pattern, why) for pattern, why in harmless if re.search(pattern, text)]
        if why:
            excused += 1
            used.add(why[0][0])
            print(f"harmless {index}: {text}: {why[0][1]}")
        else:
            print(f"SURVIVED {index}: {text}")
    counted = len(chosen) - excused
    share = 100 * killed / counted if counted else 0
    print(f"{killed} of {counted} mistakes found ({share:.1f} %), {excused} harmless")
    print(f"{refuted} of {len(chosen)} are found by hopper-check-protocol")
    unused = [pattern for pattern, _ in harmless if pattern not in used and options.every == 1]
    for pattern in unused:
        print(f"no survivor is harmless by '{pattern}'")
    return 1 if share < options.least or unused else 0


if __name__ == "__main__":
    sys.exit(main())
