// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions in two versions, and the conditions, known when they are called, that choose one.

#ifndef ATTN_LIB_PIPELINES_HOPPERVERSIONS_H
#define ATTN_LIB_PIPELINES_HOPPERVERSIONS_H

#include "HopperForms.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn {

/// Bodies of functions in two versions: that of `special` runs where the
/// condition that `createCondition` puts in front holds; null if it never does.
using CreateCondition = llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::func::FuncOp,
                                                       mlir::func::FuncOp special)>;
void mergeVersions(mlir::ModuleOp general, mlir::ModuleOp special, CreateCondition createCondition);

/// Whether the dimension is at most `most`.
mlir::Value createIsShort(mlir::OpBuilder &b, mlir::func::FuncOp function,
                          const StreamLength &length, int64_t most);

/// The version of `few` runs where the dimension is at most `most`.
void mergeByLength(mlir::ModuleOp many, mlir::ModuleOp few, const StreamLength &length,
                   int64_t most);

/// Whether TMA reaches what it copies in `copying` alone; null where that is nothing.
mlir::Value createReaches(mlir::OpBuilder &b, mlir::func::FuncOp function,
                          mlir::func::FuncOp copying, mlir::func::FuncOp other);

/// Whether a launch has more CTAs than `ctas` that wait for each other; null if none has.
mlir::Value createIsTooLarge(mlir::OpBuilder &b, mlir::func::FuncOp function, int64_t ctas);

} // namespace attn

#endif
