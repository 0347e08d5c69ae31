// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where the table of a mask can stand and what it depends on.

#ifndef ATTN_LIB_TRANSFORMS_TILES_TABLEPLAN_H
#define ATTN_LIB_TRANSFORMS_TILES_TABLEPLAN_H

#include "MaskLoops.h"

namespace attn::tiles {

/// A loop variable that the table depends on.
struct Dimension {
  mlir::Value iv;
  mlir::OpFoldResult lower, upper, step;
};

/// Everything that is known about one table before it is built.
struct Plan {
  mlir::scf::ForOp loop;
  llvm::SmallVector<Mask> masks;
  bool branch = false;   // around the mask, instead of a body for full tiles
  bool extremes = false; // of loaded columns, in tables of their own
  bool atOnce = false;   // a program for each entry, not for each row of the table
  mlir::Operation *top = nullptr;
  llvm::SmallVector<Dimension> dims;
};

/// Finds the outermost loop in front of which the table can stand, and the
/// dimensions that it needs there. False if there is none.
bool findPlace(Plan &plan);

/// Whether the table has a row for each tile of rows: a variable counts tiles of several rows.
bool hasTilesOfRows(const Plan &plan);

/// The variables of loops from `top` on that `value` follows from.
llvm::SmallVector<mlir::Value> findVariables(mlir::Operation *top, mlir::Value value);

/// Whether a tile in memory, of two dimensions, is read to compute `value`.
bool readsTile(mlir::Operation *top, mlir::Value value);

/// Clones the ops inside of `top` that compute `value` and are not in `mapping`
/// yet. The value must have been found by findPlace.
mlir::Value cloneSlice(mlir::OpBuilder &b, mlir::Operation *top, mlir::Value value,
                       mlir::IRMapping &mapping);

} // namespace attn::tiles

#endif
