// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-check-facts, for those that run it after each pass.

#ifndef ATTN_TRANSFORMS_TILES_CHECKFACTS_H
#define ATTN_TRANSFORMS_TILES_CHECKFACTS_H

#include "mlir/IR/Operation.h"

namespace attn {

/// Whether facts of tile programs under `root` agree with what is there; an error at each op where
/// one does not.
llvm::LogicalResult checkTileFacts(mlir::Operation *root);

/// Whether an order of tiles is read at this number.
bool isEntryOfOrder(mlir::Value number);

} // namespace attn

#endif
