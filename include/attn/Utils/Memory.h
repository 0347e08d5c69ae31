// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What passes ask about memory.

#ifndef ATTN_UTILS_MEMORY_H
#define ATTN_UTILS_MEMORY_H

#include "mlir/IR/Operation.h"

namespace attn {

/// Whether the op only says how memory is seen, or how large it is.
bool isView(mlir::Operation *op);

/// The ops that access memory, through whatever views; an op once for each of its uses.
llvm::SmallVector<mlir::Operation *> collectAccesses(mlir::Value memory);

} // namespace attn

#endif
