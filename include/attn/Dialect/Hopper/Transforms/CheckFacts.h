// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// hopper-check-facts, for those that run it after each pass.

#ifndef ATTN_DIALECT_HOPPER_TRANSFORMS_CHECKFACTS_H
#define ATTN_DIALECT_HOPPER_TRANSFORMS_CHECKFACTS_H

#include "mlir/IR/Operation.h"

namespace attn::hopper {

/// Whether facts of hopper programs under `root` agree with what is there; an error at each op
/// where one does not.
llvm::LogicalResult checkHopperFacts(mlir::Operation *root);

} // namespace attn::hopper

#endif
