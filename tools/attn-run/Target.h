// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What functions are compiled for and run on.

#ifndef ATTN_TOOLS_ATTN_RUN_TARGET_H
#define ATTN_TOOLS_ATTN_RUN_TARGET_H

#include "Call.h"
#include "Diagnostics.h"
#include "Report.h"

namespace attn {

class Target {
public:
  virtual ~Target() = default;

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

std::unique_ptr<Target> createCpuTarget();

/// Fails where there is no GPU to run on. With --emit, compile() prints and there
/// is nothing to call afterwards.
llvm::Expected<std::unique_ptr<Target>> createCudaTarget(const Options &options);

/// Hopper programs on the host; what has no launch is lowered to one first.
llvm::Expected<std::unique_ptr<Target>> createInterpreterTarget(const Options &options);

/// The shapes of a function's results, where the rules determine them.
llvm::Expected<std::vector<ShapeRules::Shape>> getResultShapes(mlir::func::FuncOp function,
                                                               ShapeRules &rules);

} // namespace attn

#endif
