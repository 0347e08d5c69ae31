// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What several passes ask and tell about loops of roles, and the barriers that they use.

#ifndef ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_LOOPS_H
#define ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_LOOPS_H

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Transforms/Programs/Loops.h"

namespace attn::hopper {

/// The innermost loops of all roles.
inline llvm::SmallVector<mlir::scf::ForOp> getInnermostLoops(mlir::Operation *root) {
  llvm::SmallVector<mlir::scf::ForOp> loops;
  root->walk([&](RolesOp roles) {
    roles.walk([&](mlir::scf::ForOp loop) {
      if (programs::isInnermost(loop))
        loops.push_back(loop);
    });
  });
  return loops;
}

} // namespace attn::hopper

#endif
