// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What loops carry in another form than they say.

#ifndef ATTN_CONVERSION_HOPPERTONVVM_CARRIEDVALUES_H
#define ATTN_CONVERSION_HOPPERTONVVM_CARRIEDVALUES_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "llvm/ADT/DenseSet.h"

namespace attn::hopper {

struct CarriedValues {
  explicit CarriedValues(mlir::gpu::GPUFuncOp function);

  /// Indices of type `index` that 32 bits hold: iteration arguments and results
  /// of loops. They count the tiles of a ring; an index into a ring is less than
  /// its depth where it is used.
  llvm::DenseSet<mlir::Value> narrow;

  /// Row sums that a loop carries, scales and adds to, and does not look at. Each
  /// thread carries the sum over its own columns; the sum over the threads of a
  /// row is taken after the loop.
  llvm::DenseSet<mlir::Value> partialSums;
  /// The reductions that add to them.
  llvm::DenseSet<mlir::Operation *> partialReductions;

  /// Whether an index is far below 2^31, whatever the input.
  bool isSmall(mlir::Value value) const { return isSmall(value, false, kDepth); }

private:
  static constexpr unsigned kDepth = 8; ///< a sum of 2^8 terms below 2^20
  void findNarrow(mlir::gpu::GPUFuncOp function);
  void findPartialSums(mlir::gpu::GPUFuncOp function);
  bool isSmall(mlir::Value value, bool grown, unsigned depth) const;
};

} // namespace attn::hopper

#endif
