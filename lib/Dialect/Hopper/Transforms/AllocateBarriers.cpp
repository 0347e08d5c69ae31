// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Numbers for the named barriers that passes have asked for: those of a launch get the numbers from
// 1 on, in the order in which they stand there; several together that only outer loops use, those
// from the last one down.

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/Slices.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERALLOCATEBARRIERS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numAllocated("hopper-allocate-barriers", "allocated",
                               "Launches whose named barriers have numbers");

namespace {

/// Whoever waits at a barrier of the launch waits at one of those that are allocated: what else it
/// may have is not known here.
LogicalResult checkUses(gpu::LaunchOp launch) {
  auto isAllocated = [](Value value) {
    return isa_and_nonnull<hopper::NamedBarriersOp>(value.getDefiningOp());
  };
  WalkResult walk = launch.walk([&](Operation *op) {
    if (!isa<hopper::BarrierSyncOp, hopper::BarrierArriveOp, hopper::BarrierReduceOp>(op) ||
        followsFrom(op->getOperand(0), isAllocated))
      return WalkResult::advance();
    op->emitOpError("expected a named barrier that hopper.named_barriers gives, as others of the "
                    "launch are");
    return WalkResult::interrupt();
  });
  return failure(walk.wasInterrupted());
}

/// To the first of several barriers a warpgroup adds its own number. From 1 on the sum is its
/// number in the CTA, and the assembler keeps both in one register: good where an inner loop has to
/// hold the sum, bad where the number would not be needed after the start of the warpgroup.
bool isUsedInInnerLoop(hopper::NamedBarriersOp barriers, gpu::LaunchOp launch) {
  auto isOne = [&](Value value) { return value == barriers.getResult(); };
  WalkResult walk = launch.walk([&](Operation *op) {
    if (!isa<hopper::BarrierSyncOp, hopper::BarrierArriveOp, hopper::BarrierReduceOp>(op) ||
        !followsFrom(op->getOperand(0), isOne))
      return WalkResult::advance();
    auto loop = op->getParentOfType<LoopLikeOpInterface>();
    return WalkResult(failure(loop && loop->getParentOfType<LoopLikeOpInterface>()));
  });
  return walk.wasInterrupted();
}

LogicalResult allocate(gpu::LaunchOp launch) {
  constexpr int64_t kFirst = 1; // 0 is __syncthreads's
  SmallVector<hopper::NamedBarriersOp> all;
  int64_t needed = 0;
  launch.walk([&](hopper::NamedBarriersOp op) {
    all.push_back(op);
    needed += int64_t(op.getCount());
  });
  if (all.empty())
    return success();
  if (failed(checkUses(launch)))
    return failure();
  if (needed > hopper::kNamedBarriers - kFirst) {
    InFlightDiagnostic error = launch.emitOpError()
                               << "needs " << needed << " named barriers, a CTA has "
                               << hopper::kNamedBarriers - kFirst;
    for (hopper::NamedBarriersOp op : all)
      error.attachNote(op.getLoc()) << op.getCount() << " asked for here";
    return error;
  }
  int64_t next = kFirst, end = hopper::kNamedBarriers;
  for (hopper::NamedBarriersOp op : all) {
    int64_t count = op.getCount();
    int64_t number = end - count;
    if (count == 1 || isUsedInInnerLoop(op, launch)) {
      number = next;
      next += count;
    } else {
      end = number;
    }
    OpBuilder b(op);
    op.replaceAllUsesWith(arith::ConstantIndexOp::create(b, op.getLoc(), number).getResult());
    op.erase();
  }
  numAllocated.at(launch) << remark::metric("Barriers", needed);
  return success();
}

struct AllocateBarriersPass : attn::impl::HopperAllocateBarriersBase<AllocateBarriersPass> {
  void runOnOperation() override {
    WalkResult walk =
        getOperation().walk([](gpu::LaunchOp launch) { return WalkResult(allocate(launch)); });
    if (walk.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
