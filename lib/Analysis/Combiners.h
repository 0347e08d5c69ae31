// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The scalar operations whose order and grouping does not matter.

#ifndef ATTN_LIB_ANALYSIS_COMBINERS_H
#define ATTN_LIB_ANALYSIS_COMBINERS_H

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace attn::detail {

/// The name of an associative and commutative operation (for floating point up
/// to rounding); empty for any other.
inline llvm::StringRef getCombinerName(mlir::Operation *op) {
  using namespace mlir::arith;
  using mlir::isa;
  if (isa<AddFOp, AddIOp>(op))
    return "add";
  if (isa<MulFOp, MulIOp>(op))
    return "mul";
  if (isa<MaximumFOp, MaxNumFOp, MaxSIOp, MaxUIOp>(op))
    return "max";
  if (isa<MinimumFOp, MinNumFOp, MinSIOp, MinUIOp>(op))
    return "min";
  if (isa<AndIOp>(op))
    return "and";
  if (isa<OrIOp>(op))
    return "or";
  if (isa<XOrIOp>(op))
    return "xor";
  return "";
}

} // namespace attn::detail

#endif
