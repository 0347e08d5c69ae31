// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums under a running maximum are rescaled only where that has grown by much.

#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Transforms/Tiles/RunningMaximum.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/RenamedOptions.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace attn {
#define GEN_PASS_DEF_ATTNDELAYRESCALING
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numDelayed("attn-delay-rescaling", "delayed",
                             "Running maxima whose rescaling waits");

/// Takes another maximum only where it is larger by more than `rescaleThreshold`.
static void delay(RunningMaximum &maximum, double rescaleThreshold) {
  arith::MaxNumFOp next = maximum.getNext();
  Value old = maximum.getOld();
  ImplicitLocOpBuilder b(next.getLoc(), next->getContext());
  b.setInsertionPointAfter(next);
  auto type = cast<VectorType>(next.getType());
  Value much = arith::ConstantOp::create(
      b, DenseElementsAttr::get(type, b.getFloatAttr(type.getElementType(), rescaleThreshold)));
  Value limit = arith::AddFOp::create(b, old, much);
  Value grows = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, next, limit);
  Value taken = arith::SelectOp::create(b, grows, next, old);
  next.getResult().replaceUsesWithIf(taken, [&](OpOperand &use) {
    return use.getOwner() != grows.getDefiningOp() && use.getOwner() != taken.getDefiningOp();
  });
  for (arith::MulFOp product : maximum.getRescalings()) {
    auto tile = dyn_cast<VectorType>(product.getType());
    if (!tile || tile.getRank() < 2)
      continue;
    if (maximum.isRescaling(product.getLhs()))
      product->setOperands({product.getRhs(), product.getLhs()});
    product->setAttr(attn::kRescalingAttr, b.getUnitAttr());
  }
}

namespace {
struct DelayRescalingPass
    : attn::WithRenamedOptions<attn::impl::AttnDelayRescalingBase<DelayRescalingPass>> {
  using WithRenamedOptions::WithRenamedOptions;

  void runOnOperation() override {
    getOperation()->walk([&](scf::ForOp loop) {
      if (!loop->hasAttr(attn::kFoldLoopAttr))
        return;
      for (unsigned index = 0; index < loop.getNumRegionIterArgs(); ++index)
        if (RunningMaximum maximum(loop, index); maximum.prove()) {
          numDelayed.at(loop) << remark::metric("Threshold", double(rescaleThreshold));
          delay(maximum, rescaleThreshold);
        }
    });
  }
};
} // namespace
