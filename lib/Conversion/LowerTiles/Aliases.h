// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which ops may write the memory that a tile is read from.

#ifndef ATTN_LIB_CONVERSION_LOWERTILES_ALIASES_H
#define ATTN_LIB_CONVERSION_LOWERTILES_ALIASES_H

#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace attn::tiles {

/// False where two memrefs cannot share an element: different arguments of a
/// function are different tensors, and an allocation is nothing but itself.
bool mayAlias(mlir::Value a, mlir::Value b);

/// Calls `fn` with each memref that `op` may write, or with null for any.
void forEachWrite(mlir::Operation *op, llvm::function_ref<void(mlir::Value)> fn);

/// Whether the memory of `read` may have changed when `user`, in the block of
/// the read or in a region of a later op of that block, reads it again.
bool mayChangeBefore(mlir::vector::TransferReadOp read, mlir::Operation *user);

} // namespace attn::tiles

#endif
