// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums at computed indices as statements.

#ifndef ATTN_LIB_TRANSFORMS_PROGRAMS_SCATTERSUMS_H
#define ATTN_LIB_TRANSFORMS_PROGRAMS_SCATTERSUMS_H

#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/IR/PatternMatch.h"

namespace attn::programs {

/// A sum at computed indices: each element of the destination adds up what has its indices. A
/// coordinate that is an index itself is the destination's loop; the others are reduced, in order,
/// with all elements of theirs.
void stateScatterSum(mlir::RewriterBase &rewriter, ScatterSumOp op);

} // namespace attn::programs

#endif
