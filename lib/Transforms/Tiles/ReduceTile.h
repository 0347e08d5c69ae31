// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One value for a whole integer tile: any, all, the least, the greatest.

#ifndef ATTN_LIB_TRANSFORMS_TILES_REDUCETILE_H
#define ATTN_LIB_TRANSFORMS_TILES_REDUCETILE_H

#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn {

/// Combines all elements of an integer or index vector of any rank by `kind`:
/// OR, AND, MINSI or MAXSI. Leading dimensions are reduced first, so that each
/// step is a reduction along a tile dimension.
mlir::Value reduceTile(mlir::OpBuilder &b, mlir::Location loc,
                       mlir::vector::CombiningKind kind, mlir::Value tile);

} // namespace attn

#endif
