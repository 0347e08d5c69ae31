# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The lines on the screen, and the summary of all cells. Needs no PyTorch."""

import json
import math
import os

# FlashAttention-3's time is not everybody's to measure: its forward against cuDNN's, per head
# dimension and length, (full, causal), bf16. FlashAttention-3, commit 0251105, measured beside
# cuDNN 9.19 on an H200, in one process.
FA3_TO_CUDNN = {
    64: {512: (0.827, 0.851), 1024: (0.874, 0.878), 2048: (1.038, 1.034), 4096: (1.064, 1.064),
         8192: (1.141, 1.136), 16384: (1.118, 1.126)},
    128: {512: (0.972, 0.961), 1024: (1.034, 1.081), 2048: (1.068, 1.149), 4096: (1.083, 1.148),
          8192: (1.121, 1.19), 16384: (1.117, 1.192)},
    256: {512: (0.959, 0.976), 1024: (1.068, 1.036), 2048: (1.116, 1.093), 4096: (1.067, 1.133),
          8192: (1.095, 1.157), 16384: (1.103, 1.193)},
}
# The same for the backward.
FA3_BACKWARD_TO_CUDNN = {
    64: {512: (1.139, 1.141), 1024: (1.107, 1.195), 2048: (1.151, 1.214), 4096: (1.159, 1.234),
         8192: (1.162, 1.253), 16384: (1.153, 1.244)},
    128: {512: (1.033, 1.047), 1024: (1.162, 1.098), 2048: (1.105, 1.068), 4096: (1.100, 1.168),
          8192: (1.104, 1.159), 16384: (1.127, 1.137)},
    256: {512: (1.212, 1.106), 1024: (1.243, 1.181), 2048: (1.214, 1.227), 4096: (1.167, 1.214),
          8192: (1.251, 1.180), 16384: (1.274, 1.199)},
}
SCALED = "FA3 (scaled)"
COLUMNS = ("attnc", "cuDNN", "FA2", "Flex", "FA3")


def add_scaled(cell, element, rates, table=FA3_TO_CUDNN):
    """What FlashAttention-3 would reach by the table, where it could not be measured."""
    if cell.training and element == "bf16" and "cuDNN" in rates and "FA3" not in rates:
        rates[SCALED] = rates["cuDNN"] * table[cell.d][cell.length][cell.variant == "causal"]


def ratios(rates):
    """attnc against cuDNN and against the fastest, where there are both."""
    result = {}
    others = {name: rate for name, rate in rates.items() if name in (*COLUMNS[1:], SCALED)}
    if "attnc" in rates and others:
        best = max(others, key=others.get)
        result = {"best": best, "to_best": rates["attnc"] / others[best]}
        if "cuDNN" in others:
            result["to_cudnn"] = rates["attnc"] / others["cuDNN"]
    return result


def heading():
    return (f"{'TFLOP/s':22}" + "".join(f"{name:>7}" for name in COLUMNS)
            + f" {'/cuDNN':>7} {'/best':>6} {'best':5} {'error':>8}")


def line(row):
    """* : scaled, not measured."""
    rates, text = row["tflops"], f"{row['cell']:22}"
    for name in COLUMNS:
        scaled = name == "FA3" and SCALED in rates
        rate = rates.get(SCALED if scaled else name)
        text += f"{'-' if rate is None else f'{rate:.0f}' + '*' * scaled:>7}"
    for key, width in (("to_cudnn", 7), ("to_best", 6)):
        text += f" {f'{row[key]:.3f}' if key in row else '-':>{width}}"
    error = row["errors"].get("attnc")
    text += f" {row.get('best', '-').split()[0]:5} {error['relative'] if error else math.nan:8.2e}"
    text += " ok" if row["ok"] else " FAILED"
    # attnc with other schedules.
    return text + "".join(f"  [{name}] {rate:.0f}" for name, rate in rates.items() if name not in (*COLUMNS, SCALED))


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def _summarise(rows, key):
    values = {row["cell"]: row[key] for row in rows if key in row}
    if not values:
        return None
    least = min(values, key=values.get)
    return {"cells": len(values), "geometric_mean": geometric_mean(values.values()), "min": values[least],
            "min_cell": least}


def summary(rows):
    training = [row for row in rows if row["training"]]
    groups = {"training": training, "S 512, 1024": [row for row in training if row["length"] <= 1024]}
    groups |= {f"d {d}": [row for row in training if row["d"] == d] for d in (64, 128, 256)}
    groups["variants"] = [row for row in rows if not row["training"]]
    result = {"correct": sum(row["ok"] for row in rows), "cells": len(rows), "ratios": {}, "tflops": {}}
    for group, members in groups.items():
        for key in ("to_cudnn", "to_best"):
            if found := _summarise(members, key):
                result["ratios"].setdefault(group, {})[key] = found
    for name in COLUMNS + (SCALED,):
        values = [row["tflops"][name] for row in training if name in row["tflops"]]
        if values and len(values) == len(training):
            result["tflops"][name] = geometric_mean(values)
    return result


def print_summary(report):
    found = report["summary"]
    print("\nhost, us per call:  " + ", ".join(f"{k} {v:.1f}" for k, v in report.get("call_us", {}).items()))
    for what, times in report.get("compile_s", {}).items():
        print(f"compile, {what}: " + ", ".join(f"{how} {seconds:.3f} s" for how, seconds in times.items()))
    rates = report.get("gemm_tflops", [])
    print("cuBLAS bf16 8192^3, TFLOP/s: " + ", ".join(f"{rate:.0f}" for rate in rates))
    beside = {row["cell"]: (row["tflops"]["attnc"] / row["gemm_tflops"], row["gemm_tflops"]) for row in report["rows"]
              if "gemm_tflops" in row and "attnc" in row["tflops"]}
    if beside:
        print("attnc / cuBLAS by turns: "
              + ", ".join(f"{cell} {ratio:.3f} of {rate:.0f}" for cell, (ratio, rate) in beside.items()))
    print("geometric means over training cells, TFLOP/s: "
          + ", ".join(f"{name} {rate:.0f}" for name, rate in found["tflops"].items()))
    for group, keys in found["ratios"].items():
        for key, text in (("to_cudnn", "attnc / cuDNN"), ("to_best", "attnc / best ")):
            if key in keys:
                x = keys[key]
                print(f"{group:12} {text}  {x['geometric_mean']:.3f}  min {x['min']:.3f} ({x['min_cell']}), "
                      f"{x['cells']} cells")
    for row in report["rows"]:
        if not row["ok"]:
            print(f"FAILED {row['cell']}: {row['why']}")
    print(f"correct: {found['correct']} of {found['cells']} cells" + ("" if report["complete"] else ", NOT ALL RUN"))


def write_json(report, path):
    if not path:
        return
    # Whole or not at all, whenever the process ends.
    with open(path + ".part", "w") as file:
        json.dump(report, file, indent=1)
    os.replace(path + ".part", path)
