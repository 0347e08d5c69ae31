// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles of global memory in shared memory, in place of reads to registers.

#ifndef ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_TILELOADS_H
#define ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_TILELOADS_H

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn::hopper {

/// The type of a tile of the vector's shape, with the smallest span that holds
/// a row, or 128 bytes.
tile::SmemType getTileType(mlir::VectorType type);

/// Whether `read` reads the rows of a warpgroup, of 16-bit floats.
bool hasTile(mlir::vector::TransferReadOp read);

/// Whether it reads zeros beyond the memref, as TMA does.
bool hasZeros(mlir::vector::TransferReadOp read);

/// The loop over warpgroups around `op`, if there is one.
mlir::scf::ForallOp getWarpgroupLoop(mlir::Operation *op);

/// Computes `index` at warpgroup 0 of what computes `index`, if that is base + size *
/// warpgroup; null if not.
mlir::AffineMap getFirst(mlir::Value index, mlir::scf::ForallOp loop, int64_t size);

/// Loads what `read` reads, in the order of memory. With `perWarpgroup`, where each warpgroup reads
/// rows of its own that follow each other, these are part of one tile for all of them; else columns
/// of its own are.
mlir::Value loadTile(mlir::OpBuilder &b, mlir::vector::TransferReadOp read, bool perWarpgroup);

} // namespace attn::hopper

#endif
