// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a function means, computed from the ops' definitions alone. Nothing here
// is shared with the compiler's passes, so agreement is evidence.

#ifndef ATTN_REFERENCE_REFERENCE_H
#define ATTN_REFERENCE_REFERENCE_H

#include "attn/Reference/RefTensor.h"

namespace mlir::func {
class FuncOp;
}

namespace attn {

/// Interprets a function of attention ops, linalg ops, tensor ops and scalar or
/// elementwise arithmetic. Arguments are one per function argument; so are the
/// results. No more than a few rows of scores exist at a time.
llvm::Expected<std::vector<RefTensorPtr>>
evaluate(mlir::func::FuncOp function, llvm::ArrayRef<RefTensorPtr> arguments,
         Precision precision);

/// Checks that every read of a captured tensor, in the score and mask regions
/// of all attention ops of the function, is in bounds for these arguments: by
/// intervals of the index arithmetic where that suffices, by trying all indices
/// where it does not. The error names the op and the index.
llvm::Error checkCaptureReads(mlir::func::FuncOp function,
                              llvm::ArrayRef<RefTensorPtr> arguments);

/// How a result compares with the reference.
struct Agreement {
  bool passed = false;
  /// Why it did not pass, or nothing.
  std::string reason;
  double maxError = 0, meanError = 0;
  double baselineMaxError = 0, baselineMeanError = 0;
  /// What was allowed: twice the baseline's largest error plus two roundings of
  /// the result; 1.5 times its mean error plus a mean rounding.
  double maxAllowed = 0, meanAllowed = 0;
};

/// Compares element by element. An infinity must be met exactly, a NaN by a
/// NaN; integers must be equal.
Agreement compare(const RefTensor &result, const RefTensor &exact,
                  const RefTensor &baseline);

} // namespace attn

#endif
