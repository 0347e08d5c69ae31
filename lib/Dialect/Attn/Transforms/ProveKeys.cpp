// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where every row of a gradient has a key, by what its mask and score say.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Attn/Transforms/Masks.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/InferIntRangeInterface.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace attn {
#define GEN_PASS_DEF_ATTNPROVEKEYS
#include "attn/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

// Arguments of a mask, of (b, h, i, j, captures...).
constexpr unsigned kRow = 2, kKey = 3;

/// Whether the mask keeps the first key for all rows, whatever is captured: by
/// the ranges of its integers.
static bool keepsFirstKey(Region &mask) {
  if (mask.empty())
    return true;
  constexpr uint64_t kMost = uint64_t(1) << 40; // of an index
  llvm::DenseMap<Value, ConstantIntRanges> ranges;
  auto isInteger = [](Value value) { return value.getType().isIntOrIndex(); };
  auto getRange = [&](Value value) {
    unsigned bits = ConstantIntRanges::getStorageBitwidth(value.getType());
    auto known = ranges.find(value);
    return known == ranges.end() ? ConstantIntRanges::maxRange(bits)
                                 : known->second;
  };
  for (BlockArgument index : mask.getArguments().take_front(kKey + 1)) {
    APInt most(ConstantIntRanges::getStorageBitwidth(index.getType()),
               index.getArgNumber() == kKey ? 0 : kMost);
    ranges.insert({index, ConstantIntRanges::fromUnsigned(
                              APInt(most.getBitWidth(), 0), most)});
  }
  for (Operation &op : mask.front().without_terminator()) {
    auto infer = dyn_cast<InferIntRangeInterface>(op);
    if (!infer || !llvm::all_of(op.getOperands(), isInteger))
      continue;
    infer.inferResultRanges(llvm::map_to_vector(op.getOperands(), getRange),
                            [&](Value result, const ConstantIntRanges &range) {
                              ranges.insert({result, range});
                            });
  }
  std::optional<APInt> keeps =
      getRange(mask.front().getTerminator()->getOperand(0)).getConstantValue();
  return keeps && keeps->isOne();
}

static bool isUnsigned(arith::CmpIPredicate predicate) {
  return predicate == arith::CmpIPredicate::ult || predicate == arith::CmpIPredicate::ule ||
         predicate == arith::CmpIPredicate::ugt || predicate == arith::CmpIPredicate::uge;
}

/// Whether the mask keeps the key of each row's own number: by what it folds to. (No sum of an
/// index and a constant is beyond an index's range.)
static bool keepsOwnKey(Region &mask) {
  if (mask.empty())
    return true;
  OpBuilder b(mask.getContext());
  Location loc = mask.getLoc();
  OwningOpRef<ModuleOp> holder = ModuleOp::create(loc);
  b.setInsertionPointToStart(holder->getBody());
  auto function = func::FuncOp::create(
      b, loc, "mask", b.getFunctionType(mask.getArgumentTypes(), b.getI1Type()));
  IRMapping mapping;
  mask.cloneInto(&function.getBody(), mapping);
  function.getArgument(kKey).replaceAllUsesWith(function.getArgument(kRow));
  // What reads the same element is the same value once its indices are.
  IRRewriter rewriter(b);
  DominanceInfo dominance;
  eliminateCommonSubExpressions(rewriter, dominance, function);
  // i - n <= i folds once it is (i - n) - i <= 0.
  function.walk([&](arith::CmpIOp compare) {
    if (!compare.getLhs().getType().isIndex() || isUnsigned(compare.getPredicate()))
      return;
    b.setInsertionPoint(compare);
    Value difference = arith::SubIOp::create(b, loc, compare.getLhs(), compare.getRhs());
    compare.getLhsMutable().assign(difference);
    compare.getRhsMutable().assign(arith::ConstantIndexOp::create(b, loc, 0));
  });
  RewritePatternSet patterns(b.getContext());
  arith::AddIOp::getCanonicalizationPatterns(patterns, b.getContext());
  arith::SubIOp::getCanonicalizationPatterns(patterns, b.getContext());
  if (failed(applyPatternsGreedily(function, std::move(patterns))))
    return false;
  return matchPattern(function.front().getTerminator()->getOperand(0), m_One());
}

bool attn::keepsKeys(Region &mask) { return keepsFirstKey(mask) || keepsOwnKey(mask); }

bool attn::ignoresRows(Region &mask) {
  return mask.empty() || mask.getArgument(kRow).use_empty();
}

/// Whether finite scores stay finite, by the operations of the region. What is captured may be
/// anything.
static bool keepsFinite(Region &score) {
  if (score.empty())
    return true;
  auto isUsedFloat = [](BlockArgument argument) {
    return isa<FloatType>(argument.getType()) && !argument.use_empty();
  };
  if (llvm::any_of(score.getArguments().drop_front(), isUsedFloat))
    return false;
  return llvm::all_of(score.front().without_terminator(), [](Operation &op) {
    APFloat value(0.0f);
    if (matchPattern(&op, m_ConstantFloat(&value)))
      return value.isFinite();
    if (auto quotient = dyn_cast<arith::DivFOp>(op))
      return matchPattern(quotient.getRhs(), m_ConstantFloat(&value)) &&
             value.isFiniteNonZero();
    return isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::NegFOp,
               arith::SIToFPOp, arith::UIToFPOp, arith::SelectOp, arith::CmpIOp,
               arith::CmpFOp, arith::AddIOp, arith::SubIOp, arith::MulIOp,
               arith::IndexCastOp, arith::ConstantOp, math::TanhOp>(op);
  });
}

namespace {
struct ProveKeysPass : attn::impl::AttnProveKeysBase<ProveKeysPass> {
  using AttnProveKeysBase::AttnProveKeysBase;

  void runOnOperation() override {
    getOperation()->walk([&](BackwardOp op) {
      if (op.getSink() || !keepsFinite(op.getScore()))
        return;
      if (keepsFirstKey(op.getMask()) || (hasNoMoreRows(op) && keepsOwnKey(op.getMask())))
        op.setRowsHaveKeys(true);
    });
  }

  bool hasNoMoreRows(BackwardOp op) const {
    constexpr unsigned kLength = 2; // of (batch, heads, length, head dimension)
    int64_t rows = op.getQuery().getType().getDimSize(kLength);
    int64_t keys = op.getKey().getType().getDimSize(kLength);
    return noMoreRows ||
           (!ShapedType::isDynamic(rows) && !ShapedType::isDynamic(keys) && rows <= keys);
  }
};
} // namespace
