// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What several passes ask about vectors, and make of them.

#ifndef ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_VECTORS_H
#define ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_VECTORS_H

#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"

namespace attn::hopper {

/// The vector of rows that a tile repeats, along its columns or its rows; null if it repeats none.
inline mlir::Value getRepeated(mlir::Value tile) {
  if (auto transpose = tile.getDefiningOp<mlir::vector::TransposeOp>())
    tile = transpose.getVector();
  auto broadcast = tile.getDefiningOp<mlir::vector::BroadcastOp>();
  auto source =
      broadcast ? llvm::dyn_cast<mlir::VectorType>(broadcast.getSourceType()) : mlir::VectorType();
  return source && source.getRank() == 1 ? broadcast.getSource() : mlir::Value();
}

/// Clones an op on vectors for kProgramRows elements.
inline void cloneWidened(mlir::OpBuilder &b, mlir::Operation *op, mlir::IRMapping &mapping) {
  mlir::Operation *wide = b.clone(*op, mapping);
  for (mlir::Value result : wide->getResults())
    if (auto type = llvm::dyn_cast<mlir::VectorType>(result.getType()))
      result.setType(mlir::VectorType::get(kProgramRows, type.getElementType()));
  if (auto constant = llvm::dyn_cast<mlir::arith::ConstantOp>(wide))
    if (auto splat = llvm::dyn_cast<mlir::SplatElementsAttr>(constant.getValue()))
      constant.setValueAttr(splat.resizeSplat(llvm::cast<mlir::VectorType>(constant.getType())));
}

} // namespace attn::hopper

#endif
