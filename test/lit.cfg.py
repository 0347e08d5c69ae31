# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import os
import sys
import lit.formats
from lit.llvm import llvm_config

config.name = "attn"
config.test_format = lit.formats.ShTest(not llvm_config.use_lit_shell)
config.suffixes = [".mlir", ".test"]
config.excludes = ["FakeCuda", "lib", "Inputs", "Unit", "support"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.attn_obj_root, "test")
llvm_config.use_default_substitutions()
llvm_config.add_tool_substitutions(
    ["attn-opt", "attn-run", "attn-lsp-server", "mlir-opt", "FileCheck", "not", "split-file"],
    [os.path.join(config.attn_obj_root, "bin"), config.llvm_tools_dir])
config.available_features.add(config.attn_link + "-link")
config.substitutions.append(("%attn_bin", os.path.join(config.attn_obj_root, "bin")))
config.substitutions.append(("%mlir_tools", config.llvm_tools_dir))
config.substitutions.append(("%attn_src", config.attn_src_root))
# A CUDA driver that records what it is asked to do; test/FakeCuda.
config.substitutions.append(
    ("%fake_cuda", os.path.join(config.attn_obj_root, "lib", "attn-fake-cuda.so")))
# An interpreter with numpy where the machine has one.
config.substitutions.append(("%python", config.attn_python or sys.executable))
if config.attn_python:
    config.available_features.add("numpy")
if os.path.exists(os.path.join(config.attn_obj_root, "bin", "attn-run")):
    config.available_features.add("attn-run")
config.substitutions.append(
    ("%mlir_lib_dir", os.path.join(os.path.dirname(config.llvm_tools_dir), "lib")))
config.substitutions.append(("%python", sys.executable))
llvm_config.with_environment("PATH", config.llvm_tools_dir, append_path=True)
config.environment["FILECHECK_OPTS"] = "--enable-var-scope --dump-input-filter=all"
