# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs elementwise functions and measures their errors in units in the last
place of the exact result.

usage: math_accuracy.py ATTN_RUN FILE FOLDER
"""
import math
import os
import re
import subprocess
import sys

import numpy as np

# Function: what it computes, the range of ordinary arguments, the largest error.
FUNCTIONS = {
    "exp_f32": (np.exp, np.float32, -86.0, 88.7, 2.0),
    "exp_f64": (np.exp, np.float64, -707.0, 709.7, 2.0),
    "tanh_f32": (np.tanh, np.float32, -12.0, 12.0, 1.0),
    # Rounded once from f32.
    "tanh_f16": (np.tanh, np.float16, -5.0, 5.0, 0.501),
    "sin_f32": (np.sin, np.float32, -1e5, 1e5, 2.0),
    "cos_f32": (np.cos, np.float32, -1e5, 1e5, 2.0),
    "sin_f16": (np.sin, np.float16, -6e4, 6e4, 0.501),
    "atan_f32": (np.arctan, np.float32, -20.0, 20.0, 2.0),
    "log1p_f64": (np.log1p, np.float64, -0.999, 1e3, 3.0),
    "expm1_f64": (np.expm1, np.float64, -40.0, 709.0, 3.0),
    # By `doubles`.
    "exp2_f64": (np.exp2, np.float64, -1020.0, 1023.9, 2.0),
    "log_f64": (np.log, np.float64, 1e-300, 1e3, 2.0),
    "log2_f64": (np.log2, np.float64, 1e-300, 1e3, 3.0),
    "log10_f64": (np.log10, np.float64, 1e-300, 1e3, 3.0),
    "rsqrt_f64": (lambda x: 1 / np.sqrt(x), np.float64, 1e-300, 1e3, 2.0),
    "tanh_f64": (np.tanh, np.float64, -25.0, 25.0, 4.0),
    "erf_f64": (np.vectorize(math.erf), np.float64, -6.0, 6.0, 2.0),
    "erfc_f64": (np.vectorize(math.erfc), np.float64, -6.0, 25.0, 2.0),
}


def arguments(dtype, low, high):
    rng = np.random.default_rng(0)
    x = np.concatenate([
        rng.uniform(low, high, 400000), rng.uniform(-1.5, 1.5, 400000),
        np.exp(rng.uniform(-12, 0, 100000)), -np.exp(rng.uniform(-12, 0, 100000)),
        1 + np.arange(-1000, 1000) * float(np.finfo(dtype).eps), [low, high, 0.0, -0.0],
    ]).astype(dtype)
    return x


def run(attn_run, source, name, x, folder):
    paths = [os.path.join(folder, f"{name}-{end}.npy") for end in ("in", "out")]
    np.save(paths[0], x)
    subprocess.run([attn_run, source, f"--entry={name}", "--input", f"0={paths[0]}", "--output", f"0={paths[1]}"],
                   check=True, stdout=subprocess.DEVNULL)
    return np.load(paths[1])


def check(name, attn_run, source, folder):
    function, dtype, low, high, most = FUNCTIONS[name]
    wide = np.longdouble if dtype == np.float64 else np.float64
    x = arguments(dtype, low, high)
    with np.errstate(invalid="ignore", divide="ignore"):
        got, want = run(attn_run, source, name, x, folder), function(x.astype(wide))
    errors = np.abs(got.astype(wide) - want) / np.spacing(np.abs(want).astype(dtype)).astype(wide)
    errors[np.isnan(got) & np.isnan(want) | (got == want)] = 0
    worst = int(np.argmax(np.nan_to_num(errors, nan=np.inf)))
    problems = []
    print(f"{name}: {errors[worst]:.3f} units at {x[worst]}")
    if not errors[worst] <= most:
        problems.append(f"{name}: {errors[worst]:.3f} units at {x[worst]}, expected at most {most}")
    special = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1e4, -1e4], dtype)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        got, want = run(attn_run, source, name, special, folder), function(special.astype(wide)).astype(dtype)
    with np.errstate(invalid="ignore"):
        near = np.abs(got - want) <= most * np.spacing(np.abs(want))
    same = ((got == want) | near) & (np.signbit(got) == np.signbit(want)) | (np.isnan(got) & np.isnan(want))
    if not same.all():
        problems.append(f"{name} of {special[~same]}: got {got[~same]}, expected {want[~same]}")
    return problems


def main():
    attn_run, source, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    names = re.findall(r"func @(\w+)", open(source).read())
    problems = [problem for name in names for problem in check(name, attn_run, source, folder)]
    sys.exit("\n".join(problems) or None)


main()
