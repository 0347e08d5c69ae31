// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes two loops, one directly inside the other, a perfect nest.

#ifndef ATTN_LIB_TRANSFORMS_LOOPS_PERFECTNEST_H
#define ATTN_LIB_TRANSFORMS_LOOPS_PERFECTNEST_H

#include "attn/Analysis/DependenceGraph.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"

namespace attn::detail {

/// Leaves `inner` alone in the body of `outer`. Reads and computations that
/// `inner` uses move into it; what has effects goes to copies of `outer` before
/// and behind, with the reads and computations that it uses. Asks `graph`
/// (built from the present IR; not valid for it afterwards) and emits an error
/// at the statement in the way where a dependence forbids it. `goal` starts
/// the message: "cannot interchange loops i and j".
mlir::LogicalResult makePerfect(const DependenceGraph &graph, mlir::affine::AffineForOp outer,
                                mlir::affine::AffineForOp inner, llvm::StringRef goal);

} // namespace attn::detail

#endif
