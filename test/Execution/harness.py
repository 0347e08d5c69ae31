# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs attention through attn-run and compares it with numpy.

    harness.py --attn-run BIN [--group NAME...] [--filter REGEX]
    harness.py --attn-run BIN --target cuda     the forward cases on a GPU (or "interpreter")
    harness.py --attn-run BIN --everything [--shard 3/16] [--jobs 8]
    harness.py --attn-opt BIN --parse-only      checks the IR alone
    harness.py --self-test                      checks the reference's gradients

Every case writes its IR and .npy files to a folder of its own, which stays
where a case fails; the command to run it again is printed.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zlib

# One thread for numpy's products: the cases run beside each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from support import attention_ir, cases, gradients, reference, variants


WARP_CHIPS = ["sm_80", "sm_86", "sm_89", "sm_100", "sm_120"]


def for_gpu(case, options):
    """The case as the GPU takes it, or None: by products of warps as it is, by those of warpgroups
    (wgmma) head dimensions up to 256, 16-bit types (f32 becomes one of them) and rows aligned to 16
    bytes. The interpreter does not know how many elements the gradient of a scale has."""
    target = options.target
    by_warps = target in WARP_CHIPS or "products=mma" in (options.schedule or "")
    if case.order not in ("auto", "m_outer"):
        return None
    if case.grad and case.scale == "operand" and target == "interpreter":
        return None
    if by_warps:
        return dataclasses.replace(case, order="auto", replay=False)
    if max(case.d, case.dv) > 256 or case.dtype == "f64":
        return None
    dtype = case.dtype if case.dtype != "f32" else ("bf16", "f16")[zlib.crc32(case.name.encode()) % 2]
    return dataclasses.replace(case, dtype=dtype, pad=-(-case.pad // 8) * 8, order="auto", replay=False)


def prepare(case, folder, options):
    """Writes IR and inputs; returns the arguments of attn-run and what the
    reference needs."""
    shape, parts, captures, data, scale, sink = attention_ir.inputs_of(case)
    text, order = attention_ir.module_of(case, captures)
    source = os.path.join(folder, "case.mlir")
    with open(source, "w") as file:
        file.write(text)
    arrays = data + [captures[part][name] for part, name in order]
    wide = reference.ACCUMULATOR[case.dtype]
    if sink is not None:
        arrays.append(sink)
    if case.scale == "operand":
        arrays.append(np.full(1, scale, wide))
    command = [source, "--entry=main", f"--target={options.target}"]
    if options.target == "cpu":
        command.append(f"--threads={case.threads}")
        if options.level is not None:
            command.append(f"-O{options.level}")
    if options.interleavings:
        command.append(f"--interleavings={options.interleavings}")
    if options.matrix_unit:
        command.append(f"--matrix-unit={options.matrix_unit}")
    if options.schedule:
        command.append(f"--schedule={options.schedule}")
    for index, array in enumerate(arrays):
        if case.dtype == "f16" and index < 3:
            array = array.astype(np.float16)
        path = os.path.join(folder, f"in{index}.npy")
        np.save(path, np.ascontiguousarray(array))
        command += ["--input", f"{index}={path}"]
    for index in range(2 if case.lse else 1):
        command += ["--output", f"{index}={os.path.join(folder, f'out{index}.npy')}"]
    if case.pad:
        command.append(f"--stride-pad={case.pad}")
    if case.order != "auto":
        command.append(f"--loop-order={case.order}")
        if case.order == "split_kv":
            command.append(f"--parts={case.parts}")
    known = (shape, parts, *data, scale, sink, captures)
    if not case.grad:
        return command, known, None
    gradient = GradientCase(case, known, attention_ir.gradient_names(case, captures, order))
    return command + gradient.write(folder), known, gradient


class GradientCase:
    """The incoming gradients of a case, and the check of what came out."""

    def __init__(self, case, known, names):
        self.names, self.known = names, known
        shape, parts, _, _, _, _, _, captures = known
        lives = np.zeros((shape.b, shape.hq, shape.sq), bool)
        i, j = np.arange(shape.sq)[:, None], np.arange(shape.sk)[None, :]
        for b in range(shape.b):
            for h in range(shape.hq):
                none = np.zeros((shape.sq, shape.sk))
                masks = [(p, c) for p, c in zip(parts, captures) if p.kind == "mask"]
                keep = gradients.scores_of(*zip(*masks), shape, none, b, h, i, j)[2] if masks else none == 0
                lives[b, h] = keep.any(axis=1)
        self.do, self.dlse = attention_ir.incoming_of(case, shape, lives)
        self.half = case.dtype == "f16"

    def write(self, folder):
        self.folder = folder
        command = ["--grad"]
        for index, array in enumerate((self.do, self.dlse)):
            if array is None:
                continue
            path = os.path.join(folder, f"gradin{index}.npy")
            np.save(path, array.astype(np.float16) if self.half and index == 0 else array)
            command += ["--grad-input", f"{index}={path}"]
        for index in range(len(self.names)):
            command += ["--grad-output", f"{index}={os.path.join(folder, f'outgrad{index}.npy')}"]
        return command

    def check(self, settles):
        """Problems and figures. `settles`: dO . V and dO . O are summed alike, so that rows with one key have no
        gradient at all. A GPU does not; its baseline sums as it does."""
        problems, figures = self.check_beside(settles, None)
        if problems and not settles:
            problems, figures = self.check_beside(settles, reference.unit_product(self.known[0].dtype))
        return problems, figures

    def check_beside(self, settles, multiply):
        shape, parts, q, k, v, scale, sink, captures = self.known

        def evaluate(exact, order=0):
            return gradients.Backward(shape, parts, (q, k, v), scale, sink, captures, self.do, self.dlse,
                                      exact, order, None if exact else multiply).run()

        backward = evaluate(True)
        exact = backward.results(self.names)
        counts = gradients.baseline_orders(exact)
        baselines = [evaluate(False, order).results(self.names) for order in range(max(counts))]
        dead = {"q": ~(backward.row_moves if settles else backward.row_lives),
                "k": ~(backward.key_moves if settles else backward.key_lives), "v": ~backward.key_lives}
        problems, figures = [], {}
        # The errors of dQ and dK are those of ds: one for each pair.
        mean = shape.b * shape.hq * shape.sq * shape.sk >= 16
        for index, (name, (want, dtype)) in enumerate(zip(self.names, exact)):
            title = "d" + (name if isinstance(name, str) else f"{parts[name[0]].name}.{name[1]}")
            got = np.load(os.path.join(self.folder, f"outgrad{index}.npy"))
            zeros = dead.get(name, np.zeros(want.shape[:-1], bool))
            found, figures[title] = reference.check(
                title, dtype, got, want, [b[index][0] for b in baselines[:counts[index]]], zeros, mean)
            problems += found
        return problems, figures


def permuted(case, known):
    """Keys in their true order, for a case whose mask reads their positions."""
    if case.variant != "causal_position":
        return known
    shape, parts, q, k, v, scale, sink, captures = known
    order = np.argsort(captures[0]["position"])
    captures = [{"position": np.arange(shape.sk, dtype=np.int32)}]
    return shape, parts, q, k[:, :, order], v[:, :, order], scale, sink, captures


def replay(command, case, options):
    """The same bits whatever the number of threads."""
    problems = []
    for threads in (1, 7):
        again = [re.sub(r"^--threads=.*", f"--threads={threads}", re.sub(r"out(\w+)\.npy$", r"again\1.npy", x))
                 for x in command]
        subprocess.run(again, capture_output=True, timeout=options.timeout, check=True)
        for path in (x.split("=", 1)[1] for x in command if x.endswith(".npy") and "/out" in x):
            with open(path, "rb") as a, open(path.replace("/out", "/again"), "rb") as b:
                if a.read() != b.read():
                    problems.append(f"{os.path.basename(path)}: other bits with {threads} threads than with {case.threads}")
    return problems


def check_forward(case, known, folder, baselines):
    """Problems and figures of O and LSE."""
    exact = reference.attention(*known, exact=True)
    problems, figures = [], {}
    wide = "f64" if case.dtype == "f64" else "f32"
    for index, (name, dtype) in enumerate((("O", case.dtype), ("LSE", wide))):
        path = os.path.join(folder, f"out{index}.npy")
        if index == 1 and not case.lse:
            continue
        if not os.path.exists(path):
            problems.append(f"{name}: attn-run wrote no {path}")
            continue
        got = np.load(path)
        found, figures[name] = reference.check(name, dtype, got, exact[index], [b[index] for b in baselines])
        problems += found
    return problems, figures


def run_case(case, options):
    """Problems, figures and the command of one case."""
    folder = tempfile.mkdtemp(prefix="case-", dir=options.work)
    command, known, gradient = prepare(case, folder, options)
    command = [options.attn_run] + command
    problems, figures = [], {}
    try:
        done = subprocess.run(shlex.split(options.under) + command, capture_output=True, text=True, timeout=options.timeout)
        if done.returncode:
            said = done.stderr.strip() + (done.stdout if options.under else "")
            problems.append(f"attn-run: exit status {done.returncode}\n{said[-2000:]}")
    except subprocess.TimeoutExpired:
        problems.append(f"attn-run: more than {options.timeout} s")
    if not problems and case.replay:
        problems += replay(command, case, options)
    if not problems:
        known = permuted(case, known)
        problems, figures = check_forward(case, known, folder, reference.baselines(*known))
        if problems and options.target != "cpu":
            baselines = reference.baselines(*known, product=reference.unit_product(case.dtype))
            problems, figures = check_forward(case, known, folder, baselines)
    if gradient and not problems:
        problems, more = gradient.check(settles=options.target == "cpu")
        figures.update(more)
    if not problems and not options.keep:
        shutil.rmtree(folder)
    return problems, figures, shlex.join(command)


def parse_only(case, options):
    """Only that attn-opt accepts the IR of the case (and runs passes on it)."""
    folder = tempfile.mkdtemp(prefix="case-", dir=options.work)
    command, _, _ = prepare(case, folder, options)
    command = [options.attn_opt, command[0], "-o", os.devnull] + shlex.split(options.passes)
    done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout)
    if done.returncode == 0:
        shutil.rmtree(folder)
    problems = [f"exit status {done.returncode}: {done.stderr.strip()[-600:]}"] if done.returncode else []
    return problems, {}, shlex.join(command)


def self_test():
    """The reference's gradients against central differences of its forward."""
    def make(variant):
        case = cases.Case(variant, "f64", b=2, hq=4, hkv=2, sq=5, sk=7, d=3, dv=2, scale="operand")
        shape, parts, captures, data, scale, sink = attention_ir.inputs_of(case)
        wide = [x.astype(np.longdouble) for x in data]
        captures = [{name: x.astype(np.longdouble) if x.dtype.kind == "f" else x for name, x in values.items()}
                    for values in captures]
        sink = None if sink is None else sink.astype(np.longdouble)
        return shape, parts, wide, np.full(1, scale, np.longdouble), sink, captures

    problems = gradients.self_test(make, variants.VARIANTS + variants.MORE_VARIANTS + variants.TABLES)
    print("\n".join(problems) or "all gradients agree with central differences")
    return 1 if problems else 0


def thin(chosen, step):
    """Each `step`-th case, and those with a variant, type or option that none before has."""
    kept, seen = [], set()
    for index, case in enumerate(chosen):
        parts = case.name.split("/")
        kinds = {*parts[:2], *parts[5:]}  # without heads and sizes
        if index % step == 0 or kinds - seen:
            kept.append(case)
            seen |= kinds
    return kept


def select(options):
    if options.everything:
        chosen = list(cases.everything())
    else:
        forward = list(cases.GROUPS)
        unknown = set(options.group or ()) - set(cases.GROUPS)
        if unknown:
            sys.exit(f"unknown group {sorted(unknown)[0]}; there are: {', '.join(cases.GROUPS)}")
        chosen = [case for group in options.group or forward
                  for case in (cases.GROUPS[group](options.seed) if group in ("random", "random-warps", "random-static") else
                               cases.GROUPS[group]())]
    if options.static:
        chosen = [dataclasses.replace(case, static=True) for case in chosen]
    if options.order:
        chosen = [dataclasses.replace(case, order=options.order) for case in chosen]
    if options.target != "cpu":
        chosen = list(dict.fromkeys(case for case in (for_gpu(c, options) for c in chosen) if case))
    if options.filter:
        chosen = [case for case in chosen if re.search(options.filter, case.name)]
    if os.environ.get("ATTN_TESTS") != "all":
        chosen = thin(chosen, options.thin)[:: options.sample]
    if options.shard:
        index, count = map(int, options.shard.split("/"))
        chosen = chosen[index::count]
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attn-run", default="attn-run")
    parser.add_argument("--attn-opt", default="attn-opt")
    parser.add_argument("--target", choices=["cpu", "cuda", "interpreter", *WARP_CHIPS], default="cpu")
    parser.add_argument("--schedule", help="options of attn-lower-to-hopper, but for --target cpu")
    parser.add_argument("--matrix-unit", help="what multiplies tiles of bf16, with --target cpu: as of attn-run")
    parser.add_argument("--interleavings", type=int, help="how often the interpreter runs each case")
    parser.add_argument("-O", dest="level", type=int, choices=range(4),
                        help="LLVM's level of optimisation, for --target cpu: most of a gradient's time is LLVM's")
    parser.add_argument("--group", action="append")
    parser.add_argument("--seed", type=int, default=0, help="of the groups random, random-warps and random-static")
    parser.add_argument("--everything", action="store_true", help="the full cross product")
    parser.add_argument("--filter", help="a regular expression over the cases' names")
    parser.add_argument("--shard", help="INDEX/COUNT")
    parser.add_argument("--thin", type=int, default=1,
                        help="each so many-th case, and all variants, types and options, unless ATTN_TESTS is 'all'")
    parser.add_argument("--sample", type=int, default=1, help="then each so many-th of these, unless ATTN_TESTS is 'all'")
    parser.add_argument("--static", action="store_true", help="all sizes known at compile time")
    parser.add_argument("--order", choices=["auto", "m_outer", "n_outer", "split_kv"], help="the order of the loops")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--under", default="", metavar="COMMAND",
                        help="what runs attn-run, such as 'compute-sanitizer --tool memcheck --error-exitcode 9'")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--work", help="folder for the cases' files")
    parser.add_argument("--keep", action="store_true", help="keep the files of good cases")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--parse-only", action="store_true", help="stop after attn-opt")
    parser.add_argument("--passes", default="", help="with --parse-only: options of attn-opt")
    parser.add_argument("--self-test", action="store_true", help="check the reference's gradients")
    parser.add_argument("-v", "--verbose", action="store_true", help="figures of every case")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    chosen = select(options)
    if options.list:
        print("\n".join(case.name for case in chosen))
        return 0
    if not chosen:
        sys.exit("no case chosen")
    if options.work:
        shutil.rmtree(options.work, ignore_errors=True)
        os.makedirs(options.work)
    run = parse_only if options.parse_only else run_case
    start, failed = time.time(), 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda case: (case, *run(case, options)), chosen)
        for case, problems, figures, command in results:
            failed += bool(problems)
            if problems:
                print(f"FAIL {case.name}")
                for problem in problems:
                    print("  " + problem.replace("\n", "\n  "))
                print(f"  {command}", flush=True)
            elif options.verbose:
                text = "  ".join(
                    f"{name} max {f['max']:.1e}/{f['max_gate']:.1e} mean {f['mean']:.1e}/{f['mean_gate']:.1e}"
                    for name, f in figures.items() if f)
                print(f"ok   {case.name}  {text}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} cases right, {time.time() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
