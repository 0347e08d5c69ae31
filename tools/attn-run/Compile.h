// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From the module that attn-run was given to what targets compile.

#ifndef ATTN_TOOLS_ATTN_RUN_COMPILE_H
#define ATTN_TOOLS_ATTN_RUN_COMPILE_H

#include "Diagnostics.h"
#include "Report.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace mlir {
class PassManager;
}

namespace attn {

struct PipelineOptions;

/// What the command line says of the pipeline.
void setPipelineOptions(PipelineOptions &pipeline, const Options &options);

/// A pass manager that heeds MLIR's own command-line options.
llvm::Error configurePassManager(mlir::PassManager &manager);

/// A copy of the module in which `entries` alone are public.
mlir::OwningOpRef<mlir::ModuleOp> cloneWithEntries(mlir::ModuleOp module,
                                                   llvm::ArrayRef<mlir::func::FuncOp> entries);

/// Adds the gradient function of `entry` to its module and returns it. It takes
/// the entry's results as arguments (`saved`) where they hold what it needs.
llvm::Expected<mlir::func::FuncOp> differentiate(mlir::func::FuncOp entry,
                                                 const Diagnostics &diagnostics, bool &saved);

} // namespace attn

#endif
