// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The derivatives of arith and math ops, on scalars and elementwise on tensors.

#ifndef ATTN_LIB_DIALECT_ATTN_TRANSFORMS_SCALARGRADIENTS_H
#define ATTN_LIB_DIALECT_ATTN_TRANSFORMS_SCALARGRADIENTS_H

#include "Adjoints.h"

namespace attn {

/// Adds what `op` contributes to the adjoints of its operands, given that of
/// its result. Fails, without a diagnostic, where there is no rule for `op`.
///
/// Conventions are PyTorch's: derivatives at the edge of a domain are what the
/// formula gives (sqrt: inf at 0), a maximum or minimum of equal operands gives
/// each half, roundings give nothing, |x| gives 0 at 0. Where an adjoint passed
/// a select, and is 0 because the other side was taken, the contribution is 0
/// even if the derivative is infinite or NaN there.
mlir::LogicalResult differentiateElementwise(mlir::ImplicitLocOpBuilder &b, mlir::Operation *op,
                                             Adjoints &adjoints);

} // namespace attn

#endif
