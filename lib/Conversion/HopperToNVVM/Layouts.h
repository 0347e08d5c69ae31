// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which element of a warpgroup's value lies in which thread.

#ifndef ATTN_CONVERSION_HOPPERTONVVM_LAYOUTS_H
#define ATTN_CONVERSION_HOPPERTONVVM_LAYOUTS_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/DenseMap.h"

namespace attn::hopper {

/// How a value is divided over the threads of a group of warps (a warpgroup). All layouts are
/// those of the accumulator of a product: with four warps that of WGMMA (PTX ISA, "Register
/// Fragments for wgmma.mma_async.m64nNk16"), with two that of two products of `mma.sync` (m16n8k16,
/// the same fragment) below each other. Element (R 8 warp + 8 i + lane / 4, 8 j + 2 (lane % 4) + k)
/// of a tile of 64 x N is register 2 (R j + i) + k, where a thread has R rows, 2 or 4. Kernels that
/// only move and compute (`findPiece`) have other columns in the same registers.
enum class Layout : unsigned {
  Scalar = 0,  ///< every thread has the value
  Rows = 1,    ///< a value for each row i, the same in the 4 lanes of a row
  Columns = 2, ///< a value for each column 2 j + k, the same in all warps
  Tile = 3,    ///< the accumulator
};

/// The layouts that a vector type can have; empty if none.
llvm::SmallVector<Layout, 2> possibleLayouts(mlir::VectorType type);

/// Elements of a vector of this type in each thread, which has so many rows of a tile.
int64_t elementsPerThread(mlir::VectorType type, Layout layout, int64_t rowsOfThread);

/// Tiles of 16-bit floats are kept as pairs of columns, as instructions take them.
inline bool isPacked(mlir::VectorType type, Layout layout) {
  return layout == Layout::Tile && mlir::isa<mlir::FloatType>(type.getElementType()) &&
         type.getElementTypeBitWidth() == 16;
}

/// Lanes that share a row of a tile.
constexpr int64_t kLanesOfRow = 4;

/// Registers of a tile, in a thread with so many rows of it.
struct Registers {
  int64_t rows = 2;
  /// Register to the number of its row and of its column.
  unsigned row(unsigned r) const { return r / 2 % rows; }
  unsigned column(unsigned r) const { return r / 2 / rows * 2 + r % 2; }
  unsigned at(unsigned row, unsigned column) const {
    return 2 * (column / 2 * rows + row) + column % 2;
  }
};

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
