// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random bits are drawn while products run.

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/RegionUtils.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERADVANCERANDOMBITS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static Done numAdvanced("hopper-advance-random-bits", "advanced",
                        "Random bits drawn while products run");
static Left numLeft("hopper-advance-random-bits", "left", "Random bits drawn behind a wait");

namespace {
struct AdvanceRandomBits : attn::impl::HopperAdvanceRandomBitsBase<AdvanceRandomBits> {
  void runOnOperation() override {
    IRRewriter b(&getContext());
    SmallVector<RandomBitsOp> ops;
    getOperation().walk([&](RandomBitsOp op) { ops.push_back(op); });
    for (RandomBitsOp op : ops)
      advance(op, b);
  }

private:
  /// In front of the block's first wait that nothing the bits need depends on.
  static void advance(RandomBitsOp op, RewriterBase &b) {
    bool waits = false;
    for (Operation *other = &op->getBlock()->front(); other != op; other = other->getNextNode()) {
      if (!isa<hopper::WaitOp>(other))
        continue;
      waits = true;
      if (failed(moveValueDefinitions(b, op->getOperands(), other)))
        continue;
      b.moveOpBefore(op, other);
      numAdvanced.at(op);
      return;
    }
    if (waits)
      numLeft.at(op) << remark::reason("what they depend on is known behind the waits only");
  }
};
} // namespace
