// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums under a running maximum are corrected only where that has grown by much.

#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Transforms/Tiles/RunningMaximum.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace attn {
#define GEN_PASS_DEF_ATTNDELAYCORRECTIONS
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numDelayed("attn-delay-corrections", "delayed",
                             "Running maxima whose corrections wait");

/// Takes another maximum only where it is larger by more than `growth`.
static void delay(RunningMaximum &maximum, double growth) {
  arith::MaxNumFOp next = maximum.getNext();
  Value old = maximum.getOld();
  ImplicitLocOpBuilder b(next.getLoc(), next->getContext());
  b.setInsertionPointAfter(next);
  auto type = cast<VectorType>(next.getType());
  Value much = arith::ConstantOp::create(
      b, DenseElementsAttr::get(type, b.getFloatAttr(type.getElementType(), growth)));
  Value limit = arith::AddFOp::create(b, old, much);
  Value grows = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, next, limit);
  Value taken = arith::SelectOp::create(b, grows, next, old);
  next.getResult().replaceUsesWithIf(taken, [&](OpOperand &use) {
    return use.getOwner() != grows.getDefiningOp() && use.getOwner() != taken.getDefiningOp();
  });
  for (arith::MulFOp product : maximum.getCorrections()) {
    auto tile = dyn_cast<VectorType>(product.getType());
    if (!tile || tile.getRank() < 2)
      continue;
    if (maximum.isCorrection(product.getLhs()))
      product->setOperands({product.getRhs(), product.getLhs()});
    product->setAttr(attn::kCorrectionAttr, b.getUnitAttr());
  }
}

namespace {
struct DelayCorrectionsPass : attn::impl::AttnDelayCorrectionsBase<DelayCorrectionsPass> {
  using Base::Base;

  void runOnOperation() override {
    getOperation()->walk([&](scf::ForOp loop) {
      if (!loop->hasAttr(attn::kFoldLoopAttr))
        return;
      for (unsigned index = 0; index < loop.getNumRegionIterArgs(); ++index)
        if (RunningMaximum maximum(loop, index); maximum.prove()) {
          numDelayed.at(loop) << remark::metric("Growth", double(growth));
          delay(maximum, growth);
        }
    });
  }
};
} // namespace
