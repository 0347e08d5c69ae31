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
///
/// In exact precision attn.backward does not look at its gradient region: the
/// derivative of the score comes from reverse mode over the score region.
///
/// `order` is another order for the sums of attention ops where it is not 0,
/// and odd ones do not round the weights to the tensors' type: each is as good
/// a baseline as the first.
llvm::Expected<std::vector<RefTensorPtr>> evaluate(mlir::func::FuncOp function,
                                                   llvm::ArrayRef<RefTensorPtr> arguments,
                                                   Precision precision, unsigned order = 0);

/// Checks that every read of a captured tensor, and every addition to its
/// gradient, in the regions of all attention ops of the function, is in bounds for these arguments:
/// by intervals of the index arithmetic where that suffices, by trying all indices where it does
/// not. The error names the op and the index.
llvm::Error checkCaptureReads(mlir::func::FuncOp function, llvm::ArrayRef<RefTensorPtr> arguments);

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
/// NaN; integers must be equal. The largest error of any baseline counts, and
/// the mean over all of them; the mean only from 16 elements on, because fewer
/// errors are luck.
Agreement compare(const RefTensor &result, const RefTensor &exact,
                  llvm::ArrayRef<RefTensorPtr> baselines);

/// How many orders of sums to take baselines from: several where one of the
/// results is small, so that the error of one evaluation would be luck.
unsigned countBaselines(llvm::ArrayRef<RefTensorPtr> exact);

} // namespace attn

#endif
