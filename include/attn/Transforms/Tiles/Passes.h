// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Passes on L2 tile programs that turn masks into loop structure. See
// Passes.td and docs/mask-projection.md.

#ifndef ATTN_TRANSFORMS_TILES_PASSES_H
#define ATTN_TRANSFORMS_TILES_PASSES_H

#include "mlir/Pass/Pass.h"

namespace attn {
/// Unit attributes of scf.for and scf.if in tile programs.
/// The loop folds elements along one tile dimension.
inline constexpr llvm::StringLiteral kFoldAttr = "attn.fold";
/// A fold loop without mask arithmetic: every element of its tiles counts.
inline constexpr llvm::StringLiteral kFullAttr = "attn.full";
/// A fold loop whose bounds already follow from its mask.
inline constexpr llvm::StringLiteral kPartialAttr = "attn.partial";
/// A fold loop over the list of tiles that a table names.
inline constexpr llvm::StringLiteral kTabulatedAttr = "attn.tabulated";
/// An scf.if in a fold loop around the work on tiles that are not empty.
inline constexpr llvm::StringLiteral kGuardAttr = "attn.guard";
/// An scf.if in a tabulated loop: then for full tiles, else for partial ones.
inline constexpr llvm::StringLiteral kTileKindAttr = "attn.tile_kind";
/// Of a product: the second factor is 1 in nearly all rows.
inline constexpr llvm::StringLiteral kCorrectionAttr = "attn.correction";

#define GEN_PASS_DECL
#include "attn/Transforms/Tiles/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

#endif
