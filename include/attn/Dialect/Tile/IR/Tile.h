// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The tile dialect, its type and its ops; TileOps.td has their meaning.

#ifndef ATTN_DIALECT_TILE_IR_TILE_H
#define ATTN_DIALECT_TILE_IR_TILE_H

#include "attn/Target/Description.h"
#include "attn/Target/SM90/SM90.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "attn/Dialect/Tile/IR/TileDialect.h.inc"

#define GET_TYPEDEF_CLASSES
#include "attn/Dialect/Tile/IR/TileTypes.h.inc"

#define GET_OP_CLASSES
#include "attn/Dialect/Tile/IR/TileOps.h.inc"

namespace attn::tile {

/// Rows of the tiles that a group of warps holds.
inline constexpr int64_t kGroupRows = target::sm90::kAtoms[0].m;

/// What products of tiles may be, on the target that takes most; n is at most what threads of a
/// group have registers for.
inline constexpr target::MmaAtom kAtoms[] = {
    {target::MmaType::BF16, target::MmaType::F32, kGroupRows, {8, 512, 8}, 16, true, false},
    {target::MmaType::F16, target::MmaType::F32, kGroupRows, {8, 512, 8}, 16, true, false},
    {target::MmaType::F32, target::MmaType::F32, kGroupRows, {8, 512, 8}, 8, true, false},
    {target::MmaType::F64, target::MmaType::F64, kGroupRows, {8, 256, 8}, 8, true, false},
};

/// Bytes of one element; float types of 16, 32 and 64 bits.
int64_t getElementBytes(mlir::Type type);

/// A memref that TMA can walk with boxes of `tile`; with as many indices as it has dimensions,
/// where there are any.
mlir::LogicalResult verifyTmaSource(mlir::Operation *op, mlir::MemRefType memref, SmemType tile,
                                    std::optional<size_t> coordinates);

/// Shapes and types that a product by one of these instructions takes. `accumulator` is m x n.
mlir::LogicalResult verifyProduct(mlir::Operation *op, llvm::ArrayRef<target::MmaAtom> atoms,
                                  mlir::Type aType, SmemType b, mlir::VectorType accumulator,
                                  bool transposeA, bool transposeB);

} // namespace attn::tile

#endif
