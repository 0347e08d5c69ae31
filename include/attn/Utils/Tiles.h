// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What passes on tile programs (vectors of tile size) share.

#ifndef ATTN_UTILS_TILES_H
#define ATTN_UTILS_TILES_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"

namespace attn {

/// Most elements along one dimension, as far as integers of 32 bits are concerned: sums of
/// two indices fit.
constexpr int64_t kMaxExtent = int64_t(1) << 30;

/// The bits of an element in memory, of which an index has 64.
inline unsigned getBits(mlir::Type element) {
  return element.isIndex() ? 64 : element.getIntOrFloatBitWidth();
}

/// The vector of rows that a tile repeats, along its columns or its rows; null if it repeats none.
mlir::Value getRepeated(mlir::Value tile);

/// A tile that repeats a vector of rows in each column.
mlir::Value repeatRows(mlir::OpBuilder &b, mlir::Location loc, mlir::Value rows,
                       llvm::ArrayRef<int64_t> shape);

/// Makes vectors that cost nothing (constants, positions, broadcasts and their
/// transpositions) once per use. CSE merges equal ones of the same shape; using
/// one of them for unrelated dimensions would tie these together. A parallel
/// body that uses one gets its own.
void separateTileUses(mlir::Operation *root);

/// Makes vectors that are read, and what single reads are converted to, once per use.
void separateReads(mlir::Operation *root);

} // namespace attn

#endif
