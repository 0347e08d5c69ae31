// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The linalg ops of the reference.

#ifndef ATTN_LIB_REFERENCE_LINALG_H
#define ATTN_LIB_REFERENCE_LINALG_H

#include "Attention.h"
#include "ScalarProgram.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace attn {

/// Any structured op, by its body and its indexing maps: the loops in order,
/// one point after the other.
llvm::Expected<std::vector<RefTensorPtr>>
evaluateLinalg(mlir::linalg::LinalgOp op, Lookup lookup,
               const ScalarProgram::Environment &environment, Precision precision);

/// linalg.softmax: exp(x - max x) / sum exp(x - max x) along its dimension.
llvm::Expected<std::vector<RefTensorPtr>> evaluateNamedSoftmax(mlir::linalg::SoftmaxOp op,
                                                               Lookup lookup, Precision precision);

} // namespace attn

#endif
