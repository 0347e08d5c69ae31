// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a value follows from.

#ifndef ATTN_UTILS_SLICES_H
#define ATTN_UTILS_SLICES_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"

namespace attn {

/// Whether `is` holds for `value`, or for something that it follows from by the operands of ops
/// that `enters` holds for. Each op is asked once: values that share operands are as many as the
/// ways through them otherwise.
inline bool followsFrom(
    mlir::Value value, llvm::function_ref<bool(mlir::Value)> is,
    llvm::function_ref<bool(mlir::Operation *)> enters = [](mlir::Operation *) { return true; }) {
  llvm::SmallVector<mlir::Value> stack{value};
  llvm::SmallPtrSet<mlir::Operation *, 16> seen;
  while (!stack.empty()) {
    mlir::Value next = stack.pop_back_val();
    if (is(next))
      return true;
    mlir::Operation *op = next.getDefiningOp();
    if (op && enters(op) && seen.insert(op).second)
      llvm::append_range(stack, op->getOperands());
  }
  return false;
}

} // namespace attn

#endif
