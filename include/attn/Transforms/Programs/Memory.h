// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What several passes ask about memory and its ends.

#ifndef ATTN_TRANSFORMS_PROGRAMS_MEMORY_H
#define ATTN_TRANSFORMS_PROGRAMS_MEMORY_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace attn::programs {

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

/// Replaces a view that ends where its memory does, or where the tile does, by the memory;
/// false if it is another one.
inline bool lookThroughView(mlir::OpBuilder &b, mlir::memref::SubViewOp view, mlir::Value &memory,
                            llvm::SmallVectorImpl<mlir::Value> &indices) {
  if (!view.hasUnitStride() || view.getSourceType().getRank() != view.getType().getRank())
    return false;
  for (auto [index, offset] : llvm::zip_equal(indices, view.getMixedOffsets())) {
    mlir::Value start = mlir::getValueOrCreateConstantIndexOp(b, view.getLoc(), offset);
    index = b.createOrFold<mlir::arith::AddIOp>(view.getLoc(), start, index);
  }
  memory = view.getSource();
  return true;
}

/// Which elements of a vector are in front of `end`, where element 0 is at `first`.
inline mlir::Value createIsInside(mlir::OpBuilder &b, mlir::Location loc, int64_t size,
                                  mlir::Value first, mlir::Value end) {
  auto positions = mlir::VectorType::get(size, b.getIndexType());
  auto repeat = [&](mlir::Value value) -> mlir::Value {
    return mlir::vector::BroadcastOp::create(b, loc, positions, value);
  };
  mlir::Value step = mlir::vector::StepOp::create(b, loc, positions);
  mlir::Value position = mlir::arith::AddIOp::create(b, loc, step, repeat(first));
  return mlir::arith::CmpIOp::create(b, loc, mlir::arith::CmpIPredicate::slt, position,
                                     repeat(end));
}

} // namespace attn::programs

#endif
