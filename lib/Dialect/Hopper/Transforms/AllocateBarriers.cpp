// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Numbers for the named barriers that passes have asked for: those of a launch get the numbers from
// 1 on, in the order in which they stand there.

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/Slices.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

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
  int64_t next = kFirst;
  for (hopper::NamedBarriersOp op : all) {
    OpBuilder b(op);
    op.replaceAllUsesWith(arith::ConstantIndexOp::create(b, op.getLoc(), next).getResult());
    next += int64_t(op.getCount());
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
