// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sizes of tiles for products of single warps: those of a table, made smaller until they fit.

#ifndef ATTN_LIB_PIPELINES_WARPTILES_H
#define ATTN_LIB_PIPELINES_WARPTILES_H

#include "attn/Target/Description.h"
#include "mlir/IR/BuiltinOps.h"

namespace attn {

/// What the widest operand of a module's products is.
struct ProductSizes {
  int64_t columns = 0, bytes = 2; ///< bytes of an element
  bool usesFma = false;           ///< a computed operand goes through shared memory
};
ProductSizes findProductSizes(mlir::Operation *root);

/// Tiles of `rows` of one operand of each product, which stay, by `stream` of the other one; where
/// `productColumns` is not 0, products read both by pieces of so many columns.
struct WarpTiles {
  int64_t rows, stream, stages, groupWarps, productColumns = 0;
  /// Of shared memory, where so many operands stay: of a forward one, of a gradient two.
  int64_t getSharedBytes(ProductSizes sizes, int64_t staying) const;
};

/// What tiles are for: a forward, or a gradient's sums, of as many columns each.
struct WarpKernel {
  bool isGradient = false, isFewRows = false;
  int64_t sums = 1;
  bool isMasked = false;
};

/// The tiles of a kernel, which take at most what a CTA has; nothing where no tile is small enough.
/// A size that is not 0 was asked for.
std::optional<WarpTiles> findWarpTiles(ProductSizes sizes, WarpKernel kernel,
                                       const target::Limits &limits, WarpTiles asked);

/// Gives each fold of a gradient tiles of its own, as attributes for attn-tile-nest; fails with an
/// error where none fit.
llvm::LogicalResult assignWarpTiles(mlir::ModuleOp module, const target::Limits &limits,
                                    WarpTiles asked);

/// Streams so many elements at a time in each fold that has tiles of its own.
void setStream(mlir::ModuleOp module, int64_t stream);

/// The largest shared memory of a kernel of the protocol form, in bytes.
int64_t findSharedBytes(mlir::ModuleOp module);

/// Makes the tiles of a module's schedule smaller, and those of its folds; false where they are as
/// small as can be.
bool shrinkWarpTiles(mlir::ModuleOp module);

} // namespace attn

#endif
