// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the integers of a region may be.

#ifndef ATTN_LIB_DIALECT_ATTN_TRANSFORMS_INTEGERRANGES_H
#define ATTN_LIB_DIALECT_ATTN_TRANSFORMS_INTEGERRANGES_H

#include "attn/Utils/Tiles.h"
#include "mlir/IR/Block.h"
#include "mlir/Interfaces/InferIntRangeInterface.h"

namespace attn {

/// The ranges of the integers of one block, by the ranges of its operations. What is not known may
/// be anything. Indices of pairs are at most kMaxExtent.
class IntegerRanges {
public:
  void set(mlir::Value value, uint64_t least, uint64_t most);
  /// Walks the operations of `block`, whose arguments have been set. `linalg.index` is an index.
  void infer(mlir::Block &block);
  mlir::ConstantIntRanges get(mlir::Value value) const;

private:
  llvm::DenseMap<mlir::Value, mlir::ConstantIntRanges> ranges;
};

} // namespace attn

#endif
