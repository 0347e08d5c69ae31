// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Comparing with the reference.

#ifndef ATTN_TOOLS_ATTN_RUN_CHECK_H
#define ATTN_TOOLS_ATTN_RUN_CHECK_H

#include "Call.h"
#include "attn/Reference/Reference.h"

namespace attn {

/// A gradient function that ran, and what it took besides the arguments.
struct GradientCall {
  mlir::func::FuncOp function;
  const Call &call;
  llvm::ArrayRef<HostTensor> incoming;
  /// The entry's results that have an incoming gradient; whether they are
  /// arguments too.
  llvm::ArrayRef<unsigned> positions;
  bool saved;
};

/// Whether captures are read within their bounds, before anything runs.
llvm::Error checkReads(mlir::func::FuncOp entry, llvm::ArrayRef<Operand> arguments);

/// Compares the results of the entry and of its gradient, if there is one.
///
/// The reference is evaluated end to end: its gradient function takes the saved
/// results of its own forward, not those of the code under test, and each
/// baseline those of its own forward. Errors of the forward thus count in the
/// gradients, on both sides of the gate.
llvm::Error checkResults(mlir::func::FuncOp entry, llvm::ArrayRef<Operand> arguments,
                         const Call &call, const GradientCall *gradient,
                         std::vector<Agreement> &results, std::vector<Agreement> &gradients);

} // namespace attn

#endif
