// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From text to the function to compile, with what the compiler says of it.

#ifndef ATTN_LIB_COMPILER_SOURCE_H
#define ATTN_LIB_COMPILER_SOURCE_H

#include "attn/Compiler/Executable.h"
#include "attn/Pipelines/Pipelines.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

namespace attn {

/// A module that was parsed, and the function of it to compile.
struct Source {
  /// Collects the first error that the compiler reports.
  Source();

  llvm::Error parse(llvm::StringRef text, const ExecutableOptions &options);

  /// Adds what the compiler said to an error.
  llvm::Error explain(llvm::Error error);

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::func::FuncOp entry;
  PipelineOptions pipeline;

private:
  void note(mlir::Diagnostic &diagnostic);

  std::string said;
  mlir::ScopedDiagnosticHandler handler;
};

} // namespace attn

#endif
