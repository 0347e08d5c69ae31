// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From a module to a program of a target, with what was compiled before kept on disk.

#ifndef ATTN_COMPILER_COMPILER_H
#define ATTN_COMPILER_COMPILER_H

#include "attn/Compiler/DiskCache.h"
#include "attn/Target/Target.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace mlir {
class PassManager;
} // namespace mlir

namespace attn {

/// Compiles `module`, and changes it on the way. Its public functions are those
/// that can be called. A function has gpu.launch in it, or none of its module
/// does. `configure` sees the pass manager before it runs; errors of passes come
/// as diagnostics of the context besides.
llvm::Expected<std::unique_ptr<target::Program>> compileProgram(
    const target::Target &target, mlir::ModuleOp module, const PipelineOptions &options,
    const target::CodeOptions &code, const DiskCache &cache, target::CompileTimes &times,
    llvm::function_ref<llvm::Error(mlir::PassManager &)> configure = [](mlir::PassManager &) {
      return llvm::Error::success();
    });

} // namespace attn

#endif
