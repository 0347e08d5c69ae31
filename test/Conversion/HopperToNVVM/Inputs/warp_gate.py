# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles attention by products of warps to PTX for each chip and, with ptxas, to machine code.

Fails where ptxas does, or where a kernel spills more than a few registers. Prints what each uses.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

# Bytes: of 128 columns, where 255 registers are a few too few; of two sums of as many.
SPILL_LIMIT, GRADIENT_SPILL_LIMIT = 192, 320
CHIPS = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]


def module_of(d, element, causal):
    mask = """mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %keep = arith.cmpi sge, %i, %j : index
      attn.yield %keep : i1
    } """ if causal else ""
    type = f"tensor<?x?x?x{d}x{element}>"
    return f"""func.func @main(%q: {type}, %k: {type}, %v: {type}) -> {type} {{
  %o = attn.forward %q, %k, %v {mask}: {type}, {type}, {type} -> {type}
  return %o : {type}
}}
"""


def gradient_of(d, element):
    type, rows = f"tensor<?x?x?x{d}x{element}>", "tensor<?x?x?xf32>"
    return f"""func.func @main(%q: {type}, %k: {type}, %v: {type}, %o: {type}, %do: {type}, %l: {rows}) -> ({type}, {type}, {type}) {{
  %dq, %dk, %dv = attn.backward %q, %k, %v, %o, %do, %l : {type}, {type}, {type}, {type}, {type}, {rows} -> {type}, {type}, {type}
  return %dq, %dk, %dv : {type}, {type}, {type}
}}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attn-run", required=True)
    parser.add_argument("--ptxas", required=True)
    options = parser.parse_args()
    complaints, count = [], 0
    with tempfile.TemporaryDirectory() as folder:
        together = "deterministic=false large-scores=false"  # of the sums
        for d, element, causal, schedule in [(64, "bf16", False, ""), (128, "bf16", True, ""), (256, "f16", False, ""),
                                             (512, "bf16", True, ""), (64, "f32", False, ""), (64, "f64", True, ""),
                                             (64, "f32", False, "precision=tf32x3"), (64, "bf16", None, together),
                                             (128, "f16", None, together)]:
            source = os.path.join(folder, "case.mlir")
            with open(source, "w") as file:
                file.write(gradient_of(d, element) if causal is None else module_of(d, element, causal))
            for chip in CHIPS:
                name = f"{chip} d{d} {element} {schedule}"
                command = [options.attn_run, source, f"--target={chip}", "--emit=ptx", f"--schedule=products=mma {schedule}"]
                run = subprocess.run(command, capture_output=True, text=True)
                if run.returncode:
                    sys.exit(f"{name}: {run.stderr}")
                ptx = os.path.join(folder, "case.ptx")
                with open(ptx, "w") as file:
                    file.write(run.stdout)
                architecture = "sm_90a" if chip == "sm_90" else chip
                run = subprocess.run([options.ptxas, f"-arch={architecture}", "-O3", "-v", ptx, "-o", ptx + ".cubin"],
                                     capture_output=True, text=True)
                output = run.stdout + run.stderr
                if run.returncode:
                    complaints.append(f"{name}: {output}")
                for match in re.finditer(r"(\d+) bytes spill (?:stores|loads)", output):
                    if int(match.group(1)) > (GRADIENT_SPILL_LIMIT if causal is None else SPILL_LIMIT):
                        complaints.append(f"{name}: {match.group(0)}")
                print(name, *re.findall(r"Used \d+ registers|\d+ bytes spill stores", output))
                count += 1
    if complaints:
        sys.exit("\n".join(complaints))
    print(f"gate: {count} kernels ok")


if __name__ == "__main__":
    main()
