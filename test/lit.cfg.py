# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import ctypes
import os
import shutil
import subprocess
import sys
import lit.formats
from lit.llvm import llvm_config

config.name = "attn"
config.test_format = lit.formats.ShTest(not llvm_config.use_lit_shell)
config.suffixes = [".mlir", ".test"]
config.excludes = ["FakeCuda", "reference.mlir", "lib", "Inputs", "Unit", "support", "unit"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.attn_obj_root, "test")
llvm_config.use_default_substitutions()
llvm_config.add_tool_substitutions(
    ["attn-opt", "attn-run", "attn-lsp-server", "attnc-test", "mlir-opt", "FileCheck", "not", "split-file"],
    [os.path.join(config.attn_obj_root, "bin"), config.llvm_tools_dir])
config.available_features.add(config.attn_link + "-link")
config.substitutions.append(("%attn_bin", os.path.join(config.attn_obj_root, "bin")))
config.substitutions.append(("%attn_lib", os.path.join(config.attn_obj_root, "lib")))
config.substitutions.append(("%mlir_tools", config.llvm_tools_dir))
config.substitutions.append(("%attn_src", config.attn_src_root))
# A CUDA driver that records what it is asked to do; test/FakeCuda.
config.substitutions.append(
    ("%fake_cuda", os.path.join(config.attn_obj_root, "lib", "attn-fake-cuda.so")))


def has_sm90():
    """Whether the first GPU runs sm_90a code."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    number, device = ctypes.c_int(), ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(number)) or number.value == 0:
        return False
    capability = []
    for attribute in (75, 76):  # major, minor
        if cuda.cuDeviceGet(ctypes.byref(device), 0):
            return False
        if cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device):
            return False
        capability.append(number.value)
    return capability == [9, 0]


if has_sm90():
    config.available_features.add("cuda-sm90")
    # Tests run without the user's environment.
    llvm_config.with_system_environment(["CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"])
llvm_config.with_system_environment("ATTN_TESTS")  # "all": nothing is thinned
# An interpreter with numpy where the machine has one.
config.substitutions.append(("%python", config.attn_python or sys.executable))
# Of the remarks of passes: each outcome, with how often it came.
config.substitutions.append(("%count-remarks", r"grep -o '\[[MP].*Category:[a-z0-9-]*' | sort | uniq -c"))
if config.attn_python:
    config.available_features.add("numpy")
    has_torch = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    if subprocess.run([config.attn_python, "-c", has_torch]).returncode == 0:
        config.available_features.add("torch")
# One with PyTorch, which scripts/setup makes.
python_home = os.environ.get("ATTN_TORCH_PYTHON_HOME", os.path.join(config.attn_src_root, "build", "python"))
if os.path.exists(os.path.join(python_home, "requirements.txt")):
    config.available_features.add("pytest")
    # Most of the time of tests with many gradients would be LLVM's: `%quick_pytest`.
    for name, level in ("%pytest", 2), ("%quick_pytest", 2 if os.environ.get("ATTN_TESTS") == "all" else 0):
        config.substitutions.append(
            (name, f"env ATTNC_LIBRARY={config.attn_obj_root}/lib/libattnc.so PYTHONDONTWRITEBYTECODE=1 "
                   f"ATTNC_OPT_LEVEL={level} {python_home}/bin/python3 -m pytest -q -p no:cacheprovider --show-capture=no"))
    config.substitutions.append(("%torch_python", os.path.join(python_home, "bin", "python3")))
if all(os.path.exists(os.path.join(python_home, "bin", tool)) for tool in ("clang-format", "ruff")):
    config.available_features.add("format")
    config.substitutions.append(("%home_of_tools", python_home))
if os.path.exists(os.path.join(config.attn_obj_root, "bin", "attn-run")):
    config.available_features.add("attn-run")
# NVIDIA's assembler, where the machine has one, checks the kernels' PTX.
ptxas = shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")
if ptxas:
    config.available_features.add("ptxas")
    config.substitutions.append(("%ptxas", ptxas))
sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
if sanitizer:
    config.available_features.add("compute-sanitizer")
    config.substitutions.append(("%compute_sanitizer", sanitizer))
# Of the single mistakes that Hopper kernels are tested with, each one of so many.
config.substitutions.append(("%mutants_every", str(lit_config.params.get("mutants-every", "8"))))
config.substitutions.append(
    ("%mlir_lib_dir", os.path.join(os.path.dirname(config.llvm_tools_dir), "lib")))
config.substitutions.append(("%python", sys.executable))
llvm_config.with_environment("PATH", config.llvm_tools_dir, append_path=True)
config.environment["ATTNC_CACHE_DIR"] = ""  # tests that want a cache name one
config.environment["FILECHECK_OPTS"] = "--enable-var-scope --dump-input-filter=all"
