// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How attn-run compiles functions for a target and calls them: by where tensors are.

#ifndef ATTN_TOOLS_ATTN_RUN_EXECUTOR_H
#define ATTN_TOOLS_ATTN_RUN_EXECUTOR_H

#include "Call.h"
#include "Diagnostics.h"
#include "Report.h"
#include "attn/Target/Target.h"

namespace attn {

class Executor {
public:
  virtual ~Executor() = default;

  /// Compiles a copy of the module with `entries` as its public functions, and
  /// fills in the report.
  virtual llvm::Error compile(mlir::ModuleOp module, llvm::ArrayRef<mlir::func::FuncOp> entries,
                              const Options &options, const Diagnostics &diagnostics,
                              Report &report) = 0;

  /// A call of a compiled function. Its results come after the arguments, or,
  /// where a function has none but takes memrefs, are its arguments themselves
  /// after the run.
  virtual llvm::Expected<std::unique_ptr<Call>> prepare(mlir::func::FuncOp function,
                                                        llvm::ArrayRef<Operand> arguments,
                                                        const Options &options) = 0;

  /// A call of a function whose last arguments are memrefs that it writes
  /// results of these types and shapes to.
  virtual llvm::Expected<std::unique_ptr<Call>>
  prepareInto(mlir::func::FuncOp function, llvm::ArrayRef<Operand> arguments,
              llvm::ArrayRef<ValueType> types, llvm::ArrayRef<ShapeRules::Shape> shapes,
              const Options &options) = 0;
};

/// For a target of this process's memory.
std::unique_ptr<Executor> createHostExecutor(const target::Target &target);

/// For a target of a GPU's memory. Fails where there is no GPU to run on. With --emit, compile()
/// prints and there is nothing to call afterwards.
llvm::Expected<std::unique_ptr<Executor>> createCudaExecutor(const target::Target &target,
                                                             const Options &options);

/// That of the target's kind of memory.
llvm::Expected<std::unique_ptr<Executor>> createExecutor(const target::Target &target,
                                                         const Options &options);

/// Programs of the target sm_90 on the host, before they are code: what has no launch is lowered
/// to one first.
llvm::Expected<std::unique_ptr<Executor>> createInterpreterExecutor(const Options &options);

/// The shapes of a function's results, where the rules determine them.
llvm::Expected<std::vector<ShapeRules::Shape>> getResultShapes(mlir::func::FuncOp function,
                                                               ShapeRules &rules);

} // namespace attn

#endif
