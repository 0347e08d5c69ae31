// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What several passes make of vectors.

#ifndef ATTN_TRANSFORMS_PROGRAMS_VECTORS_H
#define ATTN_TRANSFORMS_PROGRAMS_VECTORS_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"

namespace attn::programs {

/// Clones an op on vectors for `size` elements.
inline void cloneWidened(mlir::OpBuilder &b, mlir::Operation *op, mlir::IRMapping &mapping,
                         int64_t size) {
  mlir::Operation *wide = b.clone(*op, mapping);
  for (mlir::Value result : wide->getResults())
    if (auto type = llvm::dyn_cast<mlir::VectorType>(result.getType()))
      result.setType(mlir::VectorType::get(size, type.getElementType()));
  if (auto constant = llvm::dyn_cast<mlir::arith::ConstantOp>(wide))
    if (auto splat = llvm::dyn_cast<mlir::SplatElementsAttr>(constant.getValue()))
      constant.setValueAttr(splat.resizeSplat(llvm::cast<mlir::VectorType>(constant.getType())));
}

} // namespace attn::programs

#endif
