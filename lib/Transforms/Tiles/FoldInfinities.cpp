// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// -inf - x where x is neither -inf nor NaN.

#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace attn {
#define GEN_PASS_DEF_ATTNFOLDINFINITIES
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numFolded("attn-fold-infinities", "folded",
                            "Operations on -inf that became their operand");

namespace {

bool isNegativeInfinity(Value value) { return matchPattern(value, m_NegInfFloat()); }

std::optional<APFloat> getConstant(Value value) {
  FloatAttr number;
  DenseElementsAttr elements;
  if (matchPattern(value, m_Constant(&number)))
    return number.getValue();
  if (matchPattern(value, m_Constant(&elements)) && elements.isSplat() &&
      isa<FloatType>(elements.getElementType()))
    return elements.getSplatValue<APFloat>();
  return std::nullopt;
}

/// IEEE maximumNumber with a number is a number.
bool isNumber(Value value) {
  auto maximum = value.getDefiningOp<arith::MaxNumFOp>();
  return maximum && (isNegativeInfinity(maximum.getLhs()) || isNegativeInfinity(maximum.getRhs()));
}

/// select(x == -inf, finite, x) of a number x, or a maximumNumber with a finite one.
bool isNumberAboveNegativeInfinity(Value value) {
  if (auto maximum = value.getDefiningOp<arith::MaxNumFOp>()) {
    std::optional<APFloat> least = getConstant(maximum.getRhs());
    return least && least->isFinite();
  }
  auto select = value.getDefiningOp<arith::SelectOp>();
  auto compare = select ? select.getCondition().getDefiningOp<arith::CmpFOp>() : arith::CmpFOp();
  if (!compare || compare.getPredicate() != arith::CmpFPredicate::OEQ ||
      compare.getLhs() != select.getFalseValue() || !isNegativeInfinity(compare.getRhs()) ||
      !isNumber(compare.getLhs()))
    return false;
  std::optional<APFloat> instead = getConstant(select.getTrueValue());
  return instead && instead->isFinite();
}

struct FoldDifference : OpRewritePattern<arith::SubFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::SubFOp op, PatternRewriter &b) const override {
    if (!isNegativeInfinity(op.getLhs()) || !isNumberAboveNegativeInfinity(op.getRhs()))
      return failure();
    numFolded.at(op);
    b.replaceOp(op, op.getLhs());
    return success();
  }
};

/// x > -inf ? x : -inf of a number x.
struct FoldSelect : OpRewritePattern<arith::SelectOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::SelectOp op, PatternRewriter &b) const override {
    auto compare = op.getCondition().getDefiningOp<arith::CmpFOp>();
    if (!compare || compare.getPredicate() != arith::CmpFPredicate::OGT ||
        compare.getLhs() != op.getTrueValue() || !isNegativeInfinity(compare.getRhs()) ||
        !isNegativeInfinity(op.getFalseValue()) || !isNumber(op.getTrueValue()))
      return failure();
    numFolded.at(op);
    b.replaceOp(op, op.getTrueValue());
    return success();
  }
};

struct FoldInfinitiesPass : attn::impl::AttnFoldInfinitiesBase<FoldInfinitiesPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<FoldDifference, FoldSelect>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
