// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What decides which schedule fits a module: how wide its tiles are, what it computes for
// each pair, which pairs it masks, how much it streams.

#ifndef ATTN_LIB_PIPELINES_HOPPERFORMS_H
#define ATTN_LIB_PIPELINES_HOPPERFORMS_H

#include "mlir/IR/BuiltinOps.h"
#include <optional>

namespace attn {

/// The largest static size of what is contracted, or kept by a contraction.
int64_t findColumns(mlir::Operation *root);

/// Whether scores are computed with floats by more than a scale and a mask.
bool keepsFmaUnitsBusy(mlir::Operation *root);

/// Whether a statement is long: more than a window's mask, and some.
bool isLong(mlir::Operation *root);

/// Whether a statement along rows and columns reads tensors by row or column,
/// is long, or draws random bits.
bool needsRegisters(mlir::Operation *root);

/// Whether scores take few operations and read no floats by row or column; masks may read
/// integers.
bool hasPlainScores(mlir::Operation *root);

/// Whether a statement reads 16-bit elements of a tensor by row and column.
bool readsTiles(mlir::Operation *root);

/// Whether statements select by row and column; and whether they keep a band:
/// two bounds of the difference of row and column.
struct MaskForm {
  bool isMasked = false, isBanded = false;
};
MaskForm findMaskForm(mlir::Operation *root);

/// Whether a float follows from a column's number alone, such as a term of a score that grows
/// with it.
bool numbersColumns(mlir::Operation *root);

/// Whether a module is one fold whose rows are few, and known to be.
bool hasFewRows(mlir::ModuleOp module);

/// How many elements a module streams, if it does so once: a number, or a
/// dimension of an argument of its function.
struct StreamLength {
  std::optional<int64_t> number;
  unsigned argument = 0;
  int64_t dim = 0;
};
/// Of the one fold, or of the one that adds sums where `ofGradient`.
std::optional<StreamLength> findStreamLength(mlir::ModuleOp module, bool ofGradient);

} // namespace attn

#endif
