// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operands and results that are tiles, for ops of this dialect and of those of targets.

#ifndef TILE_TYPES
#define TILE_TYPES

include "mlir/IR/OpBase.td"

def Tile_Smem : Type<CPred<"::llvm::isa<::attn::tile::SmemType>($_self)">,
    "A tile in shared memory, or a ring of tiles", "::attn::tile::SmemType">;
def Tile_Tile : Type<And<[CPred<"::llvm::isa<::attn::tile::SmemType>($_self)">,
    CPred<"!::llvm::cast<::attn::tile::SmemType>($_self).isRing()">]>,
    "tile in shared memory", "::attn::tile::SmemType">;
def Tile_Ring : Type<And<[CPred<"::llvm::isa<::attn::tile::SmemType>($_self)">,
    CPred<"::llvm::cast<::attn::tile::SmemType>($_self).isRing()">]>,
    "ring of tiles in shared memory", "::attn::tile::SmemType">;
def Tile_Vector2 : VectorOfRankAndType<[2], [BF16, F16, F32, F64]>;
def Tile_Accumulator : VectorOfRankAndType<[2], [F32, F64]>;

#endif
