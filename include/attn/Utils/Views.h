// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Views of memory.

#ifndef ATTN_UTILS_VIEWS_H
#define ATTN_UTILS_VIEWS_H

#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace attn {

/// The dimensions of one element that a subview leaves out, by the order of the others.
inline llvm::SmallBitVector findDroppedDims(mlir::memref::SubViewOp op) {
  llvm::ArrayRef<int64_t> sizes = op.getStaticSizes();
  llvm::SmallBitVector dropped(unsigned(sizes.size()));
  if (auto dims = mlir::computeRankReductionMask(sizes, op.getType().getShape()))
    for (unsigned dim : *dims)
      dropped.set(dim);
  return dropped;
}

/// Whether some dimension of more than one element is another one by `getDroppedDims`. That
/// compares strides, in no order, and takes any that fit where these are not known: such a
/// dimension would have the stride of a neighbour.
inline bool isAmbiguous(mlir::memref::SubViewOp op) {
  if (op.getType().getRank() == op.getSourceType().getRank())
    return false;
  llvm::SmallBitVector named = op.getDroppedDims(), ordered = findDroppedDims(op);
  unsigned place = 0, placeInOrder = 0;
  for (unsigned dim = 0; dim < named.size(); ++dim) {
    bool differs = place != placeInOrder || named[dim] != ordered[dim];
    if (differs && op.getStaticSizes()[dim] != 1)
      return true;
    place += !named[dim];
    placeInOrder += !ordered[dim];
  }
  return false;
}

} // namespace attn

#endif
