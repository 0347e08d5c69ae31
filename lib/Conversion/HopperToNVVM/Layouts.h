// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which element of a warpgroup's value lies in which thread.

#ifndef ATTN_CONVERSION_HOPPERTONVVM_LAYOUTS_H
#define ATTN_CONVERSION_HOPPERTONVVM_LAYOUTS_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/DenseMap.h"

namespace attn::hopper {

/// How a value is divided over the 128 threads of a warpgroup. All layouts are
/// those of the accumulator of a product (PTX ISA, "Register Fragments for
/// wgmma.mma_async.m64nNk16"): element (16 * warp + lane / 4 + 8 i,
/// 8 j + 2 (lane % 4) + k) of a tile of 64 x N is register 4 j + 2 i + k. Kernels
/// that only move and compute (`findPiece`) have other columns in the same registers.
enum class Layout : unsigned {
  Scalar = 0,  ///< every thread has the value
  Rows = 1,    ///< a value for each row i, the same in the 4 lanes of a row
  Columns = 2, ///< a value for each column 2 j + k, the same in all warps
  Tile = 3,    ///< the accumulator
};

/// The layouts that a vector type can have; empty if none.
llvm::SmallVector<Layout, 2> possibleLayouts(mlir::VectorType type);

/// Elements of a vector of this type in each thread.
int64_t elementsPerThread(mlir::VectorType type, Layout layout);

/// Tiles of 16-bit floats are kept as pairs of columns, as instructions take them.
inline bool isPacked(mlir::VectorType type, Layout layout) {
  return layout == Layout::Tile && mlir::isa<mlir::FloatType>(type.getElementType()) &&
         type.getElementTypeBitWidth() == 16;
}

/// Lanes that share a row of a tile.
constexpr int64_t kLanesOfRow = 4;

/// Register of a tile to the number of its row and of its column.
inline unsigned rowOfRegister(unsigned r) { return (r >> 1) & 1; }
inline unsigned columnOfRegister(unsigned r) { return 2 * (r >> 2) + (r & 1); }
inline unsigned registerAt(unsigned row, unsigned column) {
  return 4 * (column / 2) + 2 * row + column % 2;
}

/// Columns that a thread has side by side: 2 in the accumulator, or 8 where nothing in the
/// kernel needs that layout and all rows are whole multiples of 32, so that 16 bytes move
/// at a time.
constexpr int64_t kPieceOfAccumulator = 2, kPieceOfMemory = 8;
int64_t findPiece(mlir::gpu::GPUFuncOp function);

/// What to add to the first row or column of a thread for its element e.
inline int64_t rowOffset(unsigned e) { return 8 * e; }
inline int64_t columnOffset(unsigned e, int64_t piece = kPieceOfAccumulator) {
  return kLanesOfRow * piece * (e / piece) + e % piece;
}

/// Vectors of rank 1 hold a value per row or one per column: which is told by
/// their definitions and uses. A vector that is used both ways and can be made
/// both ways is made twice.
class VectorLayouts {
public:
  /// Of a kernel without vectors of a warpgroup.
  VectorLayouts() = default;
  explicit VectorLayouts(mlir::gpu::GPUFuncOp function);

  /// The layouts that a value is needed in; none if nothing uses it.
  llvm::SmallVector<Layout, 2> of(mlir::Value value) const;

  /// Emits an error and fails if a value cannot be made as it is used.
  llvm::LogicalResult verify(mlir::gpu::GPUFuncOp function) const;

private:
  unsigned possible(mlir::Value value) const;
  unsigned available(mlir::Value value) const;
  bool restrict(mlir::Value value, unsigned layouts);
  bool want(mlir::Value value, unsigned layouts);
  bool restrictResults(mlir::Operation *op);
  bool wantOperands(mlir::Operation *op);
  bool restrictLoop(mlir::Operation *op);
  bool wantLoop(mlir::Operation *op);
  void solveWants(mlir::gpu::GPUFuncOp function);

  /// Sets of layouts, bit 1 << Layout.
  llvm::DenseMap<mlir::Value, unsigned> availableLayouts, wantedLayouts;
};

/// A broadcast that only serves to be transposed: a value per row, along the
/// columns.
bool isBroadcastToTranspose(mlir::Operation *op);

} // namespace attn::hopper

#endif
