// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A product that a mask makes 0 asks one of its factors instead of the mask.

#include "NeutralTerms.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"

namespace attn {
#define GEN_PASS_DEF_ATTNTESTFACTORS
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numTested("attn-test-factors", "tested",
                            "Selects that test a factor, no more the mask");

namespace {

/// The first factor of a product of products that is 0 where the condition does not keep.
Value findZeroFactor(const tiles::Condition &condition, Value product) {
  auto multiply = product.getDefiningOp<arith::MulFOp>();
  if (!multiply)
    return tiles::isZeroWhereDropped(condition, product) ? product : Value();
  for (Value factor : multiply->getOperands())
    if (Value found = findZeroFactor(condition, factor))
      return found;
  return {};
}

void test(arith::SelectOp select) {
  std::optional<tiles::Condition> condition = tiles::getMaskCondition(select);
  // One comparison costs no more than that of a factor.
  if (!condition || !condition->keeps || !matchPattern(select.getFalseValue(), m_AnyZeroFloat()) ||
      condition->value.getDefiningOp<arith::CmpIOp>() ||
      !select.getTrueValue().getDefiningOp<arith::MulFOp>())
    return;
  Value factor = findZeroFactor(*condition, select.getTrueValue());
  if (!factor)
    return;
  numTested.at(select);
  OpBuilder b(select);
  Location loc = select.getLoc();
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(factor.getType()));
  select.getConditionMutable().assign(
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE, factor, zero));
}

struct TestFactorsPass : attn::impl::AttnTestFactorsBase<TestFactorsPass> {
  void runOnOperation() override {
    getOperation()->walk([](arith::SelectOp select) {
      auto branch = dyn_cast<scf::IfOp>(select->getParentOp());
      if (branch && branch->hasAttr(kTileKindAttr))
        test(select);
    });
  }
};

} // namespace
