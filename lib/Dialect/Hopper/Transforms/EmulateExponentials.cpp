// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The special function unit computes 16 exponentials in a cycle, the FMA units a
// few more beside it.

#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"

namespace attn {
#define GEN_PASS_DEF_HOPPEREMULATEEXPONENTIALS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numEmulated("hopper-emulate-exponentials", "emulated",
                              "Exponentials of which some are emulated");

namespace {
struct EmulateExponentialsPass
    : attn::impl::HopperEmulateExponentialsBase<EmulateExponentialsPass> {
  using Base::Base;

  void runOnOperation() override {
    auto number = IntegerAttr::get(IntegerType::get(&getContext(), 64), every);
    getOperation().walk([&](math::Exp2Op op) {
      auto type = dyn_cast<VectorType>(op.getType());
      auto loop = dyn_cast<scf::ForOp>(op->getParentOp());
      if (every > 0 && type && type.getRank() == 2 && type.getElementType().isF32() && loop &&
          !loop.getBody()->getOps<tile::MmaOp>().empty()) {
        op->setAttr(hopper::kEmulatedAttr, number);
        numEmulated.at(op);
      }
    });
  }
};
} // namespace
