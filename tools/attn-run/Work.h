// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How much work a function's attention ops are, for rates.

#ifndef ATTN_TOOLS_ATTN_RUN_WORK_H
#define ATTN_TOOLS_ATTN_RUN_WORK_H

#include "attn/Runtime/ShapeRules.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn {

/// Tiles of all pairs of query and key, masked or not; 0 where not known.
int64_t countAllTiles(mlir::func::FuncOp function, ShapeRules &rules, int64_t blockM,
                      int64_t blockN);

/// The operations of the contractions, every pair counted: 2 (D + Dv) per pair
/// for Q K^T and P V.
double countForwardFlops(mlir::func::FuncOp function, ShapeRules &rules);

/// Of the gradient of `function`: 2 (3 D + 2 Dv) per pair for Q K^T, dO V^T,
/// P^T dO, dS K and dS^T Q, whatever the program computes twice.
double countGradientFlops(mlir::func::FuncOp function, ShapeRules &rules);

} // namespace attn

#endif
