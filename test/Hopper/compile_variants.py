# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles the cases of the execution tests for the GPU, without one.

    compile_variants.py --attn-run BIN                 a few of every kind
    compile_variants.py --attn-run BIN --all --jobs 2  all of them

Each case has to compile to PTX, or to be refused with the message that its
entry in REFUSED says. Where ptxas is found, it assembles the PTX: spills above
--spills bytes and products that it serialises (C7508, C7510 to C7517) are
failures, too.
"""

import argparse
import collections
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zlib

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "Execution"))
from support import attention_ir, cases, variants


# Of a kernel that computes maxima and sums again.
RARE_SPILLS = 1024
# Bytes of spill stores that are known, with three consumers of 160 registers: by
# parts of a variant. Remainders are computed in 64 bits for each element; bounds
# from memory are reduced by a producer of few registers.
# The sums of a gradient leave few registers, fewest where dQ is a product beside dK
# and dV.
GRADIENT_SPILLS = 128
# By products of warps: FMAs of wide tiles, and sums of 256 columns.
WARP_SPILLS = 8192
KNOWN_SPILLS = {"bounds": 384, "strips": 640, "cells": 640, "strided": 2560}


def refusal(case):
    """The words with which a case has to be refused, or None."""
    return "more than the 8192" if max(case.d, case.dv) > 8192 else None


def structure(case):
    """What the IR of a case depends on."""
    sizes = (case.b, case.hq, case.hkv, case.sq, case.sk) if case.static else ()
    return (case.variant, case.dtype, case.d, case.dv or case.d, case.scale, case.lse, case.grad, sizes)


def distinct(chosen):
    """Of each structure the first case."""
    known = {}
    for case in chosen:
        known.setdefault(structure(case), case)
    return list(known.values())


def all_cases():
    """All forward groups, and all variants by head dimensions."""
    groups = [g for g in cases.GROUPS if not g.startswith("gradient") and g != "orders"]
    for group in groups:
        yield from cases.GROUPS[group]()
    for d in range(16, 257, 8):
        yield cases.Case("causal", "bf16", d=d)
    for index, variant in enumerate(variants.VARIANTS + variants.MORE_VARIANTS + variants.TABLES):
        for d in (64, 128, 256):
            yield cases.Case(variant, ("bf16", "f16")[index % 2], hq=4, hkv=2, d=d)
        yield cases.Case(variant, ("f16", "bf16")[index % 2], hq=4, hkv=2, d=128, static=True)
    for index, variant in enumerate(variants.VARIANTS + variants.MORE_VARIANTS):
        for d in (64, 128, 256):
            yield cases.Case(variant, ("bf16", "f16")[index % 2], hq=4, hkv=2, d=d, grad=True)
    for d, dv in [(192, 128), (40, 72), (96, 128), (24, 24)]:
        yield cases.Case("causal", "bf16", d=d, dv=dv, grad=True)
    for d, dv in [(192, 128), (64, 256), (256, 64), (40, 72), (128, 32), (24, 24)]:
        yield cases.Case("causal", "bf16", d=d, dv=dv)


def representative():
    """One case for each kind of access and each refusal."""
    for variant, d in [("none", 64), ("causal+sink", 128), ("documents+causal", 64), ("t5+causal", 64),
                       ("bias", 128), ("alibi+softcap+bounds", 64), ("learned_cap+causal", 40),
                       ("gate+t5", 64), ("strips+causal_br", 64)]:
        yield cases.Case(variant, "bf16", hq=4, hkv=2, d=d)
    yield cases.Case("bias_narrow", "f16", d=256)
    yield cases.Case("window+causal", "f16", d=192, dv=128, scale="operand", lse=False)
    yield cases.Case("prefix", "bf16", d=64, static=True)
    yield cases.Case("none", "f32")
    yield cases.Case("none", "bf16", d=59)
    yield cases.Case("none", "bf16", d=264)
    yield cases.Case("none", "f64", d=40, grad=True)
    for variant, d in [("none", 64), ("causal", 128), ("alibi+softcap", 64), ("bias", 64), ("none", 256), ("t5", 64)]:
        yield cases.Case(variant, "bf16", hq=4, hkv=2, d=d, grad=True)


def first_error(text):
    for line in text.splitlines():
        if "error:" in line:
            return re.sub(r"^\S*case\S*\.mlir:\d+:\d+: ", "", line)
    return text.strip()[-300:] or "no diagnostic"


def assemble(text, folder, options, spills):
    """The problems that ptxas sees in the modules of a text."""
    modules = re.split(r"(?m)^(?=\.version )", text)[1:]
    return [problem for module in modules for problem in assemble_module(module, folder, options, spills)]


def assemble_module(ptx, folder, options, spills):
    path = os.path.join(folder, "case.ptx")
    with open(path, "w") as file:
        file.write(ptx)
    done = subprocess.run([options.ptxas, "-arch=sm_90a", "-O3", "-v", "-warn-spills", path, "-o", os.devnull],
                          capture_output=True, text=True, timeout=options.timeout)
    output = done.stdout + done.stderr
    if done.returncode:
        return ["ptxas: " + first_error(output)]
    problems = [f"ptxas: {int(n)} bytes of spill stores" for n in re.findall(r"(\d+) bytes spill stores", output)
                if int(n) > spills]
    return problems + ["ptxas: " + line for line in output.splitlines() if re.search(r"\bC75(08|1[0-7])\b", line)]


def check(case, options):
    folder = tempfile.mkdtemp(prefix="case-", dir=options.work)
    captures = attention_ir.make_captures(attention_ir.shape_of(case), variants.parts_of(case.variant),
                                          np.random.default_rng(zlib.crc32(case.name.encode())))
    text, _ = attention_ir.module_of(case, captures)
    source = os.path.join(folder, "case.mlir")
    with open(source, "w") as file:
        file.write(text)
    command = [options.attn_run, source, "--entry=main", "--target=cuda", "--emit=ptx"]
    if case.grad:
        # The order for long sequences, and with it the one for short ones.
        command += ["--grad", "--deterministic=false"]
    if options.schedule:
        command.append(f"--schedule={options.schedule}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout)
    expected, problems = refusal(case), []
    if expected:
        if done.returncode == 0:
            problems = [f"compiles, but should be refused with '{expected}'"]
        elif done.returncode != 1 or expected not in done.stderr:
            problems = [f"exit status {done.returncode}, refused without '{expected}': " + first_error(done.stderr)]
    elif done.returncode:
        problems = [f"exit status {done.returncode}: " + first_error(done.stderr)]
    elif ".entry" not in done.stdout:
        problems = ["no kernel in the PTX"]
    elif options.ptxas:
        if case.grad:
            # Kernels for rows of large scores, which nearly no call runs, may spill.
            problems = assemble(done.stdout, folder, options, RARE_SPILLS)
            usual = " ".join(["large-scores=false", options.schedule or ""]).strip()
            command = [x for x in command if not x.startswith("--schedule=")] + [f"--schedule={usual}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout)
            if done.returncode:
                problems.append(f"{usual}: exit status {done.returncode}: " + first_error(done.stderr))
        by_warps = case.dtype in ("f32", "f64") or max(case.d, case.dv) > 256
        of_gradient = (GRADIENT_SPILLS if max(case.d, case.dv) < 256 else 288) if case.grad else 0
        known = max([options.spills, WARP_SPILLS if by_warps else 0, of_gradient] +
                    [KNOWN_SPILLS.get(part, 0) for part in case.variant.split("+")])
        problems += assemble(done.stdout, folder, options, known)
    if not problems:
        shutil.rmtree(folder)
    return problems, source


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attn-run", default="attn-run")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--filter", help="a regular expression over the cases' names")
    parser.add_argument("--shard", help="INDEX/COUNT")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--schedule", help="options of attn-lower-to-hopper")
    parser.add_argument("--spills", type=int, default=32, help="bytes of spill stores that are let pass")
    parser.add_argument("--no-ptxas", action="store_true")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--work", help="folder for the files of cases that fail")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    options.ptxas = None if options.no_ptxas else shutil.which(
        "ptxas", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    chosen = distinct(all_cases() if options.all else representative())
    if options.filter:
        chosen = [case for case in chosen if re.search(options.filter, case.name)]
    if options.shard:
        index, count = map(int, options.shard.split("/"))
        chosen = chosen[index::count]
    if options.list:
        print("\n".join(case.name for case in chosen))
        return 0
    if not chosen:
        sys.exit("no case chosen")
    if options.work:
        shutil.rmtree(options.work, ignore_errors=True)
        os.makedirs(options.work)
    start, failed, causes = time.time(), 0, collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for case, (problems, source) in zip(chosen, pool.map(lambda c: check(c, options), chosen)):
            failed += bool(problems)
            for problem in problems:
                causes[re.sub(r"\d+", "N", problem)] += 1
                print(f"FAIL {case.name}\n  {problem}\n  {source}", flush=True)
            if options.verbose and not problems:
                print(f"ok   {case.name}", flush=True)
    for cause, count in causes.most_common():
        print(f"{count:4} x {cause}")
    print(f"{len(chosen) - failed} of {len(chosen)} cases as expected, {time.time() - start:.0f} s"
          + ("" if options.ptxas else "; no ptxas"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
