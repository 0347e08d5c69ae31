// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Counting. See Work.h.

#include "Work.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "llvm/Support/MathExtras.h"

using namespace llvm;
using namespace attn;
using mlir::func::FuncOp;

/// Visits each attn.forward with batch times heads, rows and keys, where they
/// are known.
static void forEachForward(FuncOp function, ShapeRules &rules,
                           function_ref<void(ForwardOp, int64_t, int64_t, int64_t)> visit) {
  function.walk([&](ForwardOp op) {
    std::optional<int64_t> batch = rules.getSize(op.getQuery(), 0),
                           heads = rules.getSize(op.getQuery(), 1),
                           rows = rules.getSize(op.getQuery(), 2),
                           keys = rules.getSize(op.getKey(), 2);
    if (batch && heads && rows && keys)
      visit(op, *batch * *heads, *rows, *keys);
  });
}

int64_t attn::countAllTiles(FuncOp function, ShapeRules &rules, int64_t blockM, int64_t blockN) {
  int64_t tiles = 0;
  forEachForward(function, rules, [&](ForwardOp, int64_t heads, int64_t rows, int64_t keys) {
    tiles += heads * divideCeil(rows, blockM) * divideCeil(keys, blockN);
  });
  return tiles;
}

/// `ofDepth` contractions over D and `ofValueDepth` over Dv.
static double countFlops(FuncOp function, ShapeRules &rules, int ofDepth, int ofValueDepth) {
  double flops = 0;
  forEachForward(function, rules, [&](ForwardOp op, int64_t heads, int64_t rows, int64_t keys) {
    flops += 2.0 * double(heads) * double(rows) * double(keys) *
             double(ofDepth * op.getQuery().getType().getDimSize(3) +
                    ofValueDepth * op.getValue().getType().getDimSize(3));
  });
  return flops;
}

double attn::countForwardFlops(FuncOp function, ShapeRules &rules) {
  return countFlops(function, rules, 1, 1);
}

double attn::countGradientFlops(FuncOp function, ShapeRules &rules) {
  return countFlops(function, rules, 3, 2);
}
