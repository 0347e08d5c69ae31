// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loops that wait for memory do several iterations at a time: unrolling, with what is beyond the
// end computed and dropped.

#include "attn/Dialect/Attn/IR/Facts.h"
#include "attn/Transforms/Programs/Passes.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace attn {
#define GEN_PASS_DEF_ATTNGROUPITERATIONS
#include "attn/Transforms/Programs/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numGrouped("attn-group-iterations", "grouped",
                             "Loops that do several iterations at a time");

/// Whether an iteration may be computed for nothing: it reads memory that the loop does not write,
/// at its own index, and has no other effect.
static bool mayRepeat(scf::ForOp loop) {
  if (loop->hasAttr(kFoldLoopAttr) || loop.getNumResults() == 0 ||
      getConstantIntValue(loop.getStep()) != 1)
    return false;
  bool reads = false;
  for (Operation &op : loop.getBody()->without_terminator()) {
    if (isa<vector::TransferReadOp>(op)) {
      reads = true;
      continue;
    }
    if (op.getNumRegions() || !isMemoryEffectFree(&op) || !isSpeculatable(&op))
      return false;
  }
  return reads;
}

static void group(scf::ForOp loop, int64_t count) {
  ImplicitLocOpBuilder b(loop.getLoc(), loop);
  Value step = arith::ConstantIndexOp::create(b, count);
  Value one = arith::ConstantIndexOp::create(b, 1);
  Value last = arith::SubIOp::create(b, loop.getUpperBound(), one);
  auto grouped =
      scf::ForOp::create(b, loop.getLowerBound(), loop.getUpperBound(), step, loop.getInitArgs());
  b.setInsertionPointToStart(grouped.getBody());
  SmallVector<Value> carried(grouped.getRegionIterArgs());
  for (int64_t i = 0; i < count; ++i) {
    IRMapping map;
    Value isInside, index = grouped.getInductionVar();
    if (i > 0) {
      index = arith::AddIOp::create(b, index, arith::ConstantIndexOp::create(b, i));
      isInside = arith::CmpIOp::create(b, arith::CmpIPredicate::sle, index, last);
      index = arith::MinSIOp::create(b, index, last);
    }
    map.map(loop.getInductionVar(), index);
    map.map(loop.getRegionIterArgs(), carried);
    for (Operation &op : loop.getBody()->without_terminator())
      b.clone(op, map);
    for (auto [value, yielded] : llvm::zip(carried, loop.getYieldedValues())) {
      Value next = map.lookupOrDefault(yielded);
      value = isInside ? arith::SelectOp::create(b, isInside, next, value) : next;
    }
  }
  scf::YieldOp::create(b, carried);
  loop.replaceAllUsesWith(grouped.getResults());
  loop.erase();
}

namespace {
struct GroupIterationsPass : attn::impl::AttnGroupIterationsBase<GroupIterationsPass> {
  using Base::Base;

  void runOnOperation() override {
    if (count < 1) {
      getOperation().emitError("expected count to be at least 1, got ") << int64_t(count);
      return signalPassFailure();
    }
    if (count == 1)
      return;
    SmallVector<scf::ForOp> loops;
    for (scf::ForallOp program : programs::findPrograms(getOperation()))
      program.walk([&](scf::ForOp loop) {
        if (mayRepeat(loop))
          loops.push_back(loop);
      });
    for (scf::ForOp loop : loops) {
      numGrouped.at(loop) << remark::metric("Iterations", int64_t(count));
      group(loop, count);
    }
  }
};
} // namespace
