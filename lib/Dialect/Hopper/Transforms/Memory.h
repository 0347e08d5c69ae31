// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Questions about memory that several passes ask.

#ifndef ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_MEMORY_H
#define ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_MEMORY_H

#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace attn::hopper {

/// Whether an op in `root` writes to the memory that `memref` is a view of.
inline bool isWrittenIn(mlir::Operation *root, mlir::MemrefValue memref) {
  mlir::MemrefValue memory = mlir::memref::skipViewLikeOps(memref);
  return root
      ->walk([&](mlir::MemoryEffectOpInterface op) {
        llvm::SmallVector<mlir::MemoryEffects::EffectInstance> effects;
        op.getEffects<mlir::MemoryEffects::Write>(effects);
        bool writes = llvm::any_of(effects, [&](const mlir::MemoryEffects::EffectInstance &effect) {
          auto written = llvm::dyn_cast_if_present<mlir::MemrefValue>(effect.getValue());
          return written && mlir::memref::skipViewLikeOps(written) == memory;
        });
        return writes ? mlir::WalkResult::interrupt() : mlir::WalkResult::advance();
      })
      .wasInterrupted();
}

} // namespace attn::hopper

#endif
