// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sizes of tiles for folds of several products.

#ifndef ATTN_LIB_PIPELINES_HOPPERSCHEDULES_H
#define ATTN_LIB_PIPELINES_HOPPERSCHEDULES_H

#include "mlir/IR/BuiltinOps.h"

namespace attn {

/// Gives each fold that recomputes what it sums up (three or more products) tiles
/// of its own, as attributes for attn-tile-nest, and the folds that are no more
/// than sums tiles of two warpgroups.
/// `ofOneSum` and `ofTwoSums`, where not 0, are streamed elements per tile instead
/// of those of the table. Folds with more to compute between their products get
/// smaller ones.
void assignTiles(mlir::ModuleOp module, int64_t ofOneSum, int64_t ofTwoSums);

/// Whether each fold that maps sums over its rows can add them to memory from the
/// tensor core: products of matrices, beside carried sums and statements that leave the
/// registers.
bool canAddSums(mlir::ModuleOp module);

/// Whether a fold recomputes what it sums up and adds a part of it to memory.
bool addsSums(mlir::Operation *root);

/// Whether a function has a fold that recomputes what it sums up.
bool hasGradient(mlir::Operation *function);

/// The sizes as a table of Markdown.
void printTileSizes(llvm::raw_ostream &os);

} // namespace attn

#endif
