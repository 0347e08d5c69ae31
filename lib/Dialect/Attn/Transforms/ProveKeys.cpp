// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where every row of a gradient has a key, by what its mask and score say.

#include "IntegerRanges.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Attn/Transforms/Masks.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/ADT/TypeSwitch.h"

namespace attn {
#define GEN_PASS_DEF_ATTNPROVEKEYS
#include "attn/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numProved("attn-prove-keys", "proved", "Gradients all of whose rows have keys");
static attn::Left numLeft("attn-prove-keys", "not proved",
                          "Gradients some of whose rows may have none");

// Arguments of a mask, of (b, h, i, j, captures...).
constexpr unsigned kRow = 2, kKey = 3;

/// Whether the mask keeps the first key for all rows, whatever is captured: by
/// the ranges of its integers.
static bool keepsFirstKey(Region &mask) {
  if (mask.empty())
    return true;
  IntegerRanges ranges;
  for (BlockArgument index : mask.getArguments().take_front(kKey + 1))
    ranges.set(index, 0, index.getArgNumber() == kKey ? 0 : kMaxExtent);
  ranges.infer(mask.front());
  std::optional<APInt> keeps =
      ranges.get(mask.front().getTerminator()->getOperand(0)).getConstantValue();
  return keeps && keeps->isOne();
}

static bool isUnsigned(arith::CmpIPredicate predicate) {
  return predicate == arith::CmpIPredicate::ult || predicate == arith::CmpIPredicate::ule ||
         predicate == arith::CmpIPredicate::ugt || predicate == arith::CmpIPredicate::uge;
}

/// Whether x - y may wrap.
static bool mayWrap(const ConstantIntRanges &x, const ConstantIntRanges &y) {
  bool below, above;
  (void)x.smin().ssub_ov(y.smax(), below);
  (void)x.smax().ssub_ov(y.smin(), above);
  return below || above;
}

/// A region for the key of each row's own number, folded: a function in a module of its own.
/// `first`: the number of the first argument of (b, h, i, j, captures...).
static OwningOpRef<ModuleOp> foldAtOwnKey(Region &region, unsigned first) {
  OpBuilder b(region.getContext());
  Location loc = region.getLoc();
  OwningOpRef<ModuleOp> holder = ModuleOp::create(loc);
  b.setInsertionPointToStart(holder->getBody());
  Operation *terminator = region.front().getTerminator();
  auto function = func::FuncOp::create(
      b, loc, "region",
      b.getFunctionType(region.getArgumentTypes(), terminator->getOperandTypes()));
  IRMapping mapping;
  region.cloneInto(&function.getBody(), mapping);
  function.getArgument(first + kKey).replaceAllUsesWith(function.getArgument(first + kRow));
  // What reads the same element is the same value once its indices are.
  IRRewriter rewriter(b);
  DominanceInfo dominance;
  eliminateCommonSubExpressions(rewriter, dominance, function);
  // i - n <= i folds once it is (i - n) - i <= 0, where that does not wrap.
  IntegerRanges ranges;
  for (BlockArgument index : function.getArguments().slice(first, kKey + 1))
    ranges.set(index, 0, kMaxExtent);
  ranges.infer(function.front());
  function.walk([&](arith::CmpIOp compare) {
    if (!compare.getLhs().getType().isIndex() || isUnsigned(compare.getPredicate()) ||
        mayWrap(ranges.get(compare.getLhs()), ranges.get(compare.getRhs())))
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
    return {};
  return holder;
}

/// Whether the mask keeps the key of each row's own number: by what it folds to.
static bool keepsOwnKey(Region &mask) {
  if (mask.empty())
    return true;
  OwningOpRef<ModuleOp> folded = foldAtOwnKey(mask, /*first=*/0);
  if (!folded)
    return false;
  auto function = *folded->getOps<func::FuncOp>().begin();
  return matchPattern(function.front().getTerminator()->getOperand(0), m_One());
}

bool attn::keepsKeys(Region &mask) { return keepsFirstKey(mask) || keepsOwnKey(mask); }

bool attn::ignoresRows(Region &mask) { return mask.empty() || mask.getArgument(kRow).use_empty(); }

namespace {
/// What a float may be. Overflow is none: a score that is computed from finite numbers is finite.
struct Float {
  bool mayBeInfinite = true, mayBeNan = true;
  bool isZero = false; // or NaN, where it may be

  static Float finite() { return {false, false}; }
  Float operator|(const Float &other) const {
    return {mayBeInfinite || other.mayBeInfinite, mayBeNan || other.mayBeNan,
            isZero && other.isZero};
  }
};
} // namespace

static Float sum(const Float &x, const Float &y) {
  Float result = x | y;
  result.mayBeNan |= x.mayBeInfinite && y.mayBeInfinite;
  return result;
}

static Float product(const Float &x, const Float &y) {
  Float result = x | y;
  result.mayBeNan |= result.mayBeInfinite; // times zero
  result.isZero = x.isZero || y.isZero;
  result.mayBeInfinite &= !result.isZero;
  return result;
}

/// Whether finite scores do not become infinite, by the operations of the region. (A row that has
/// NaN has a key.) What is captured may be anything.
static bool keepsFinite(Block &score) {
  llvm::DenseMap<Value, Float> known;
  known[score.getArgument(0)] = Float::finite();
  for (Operation &op : score.without_terminator()) {
    if (op.getNumResults() != 1 || !isa<FloatType>(op.getResult(0).getType()))
      continue;
    auto at = [&](unsigned number) { return known.lookup(op.getOperand(number)); };
    APFloat value(0.0f);
    Float &result = known[op.getResult(0)];
    if (matchPattern(&op, m_ConstantFloat(&value))) {
      result = {value.isInfinity(), value.isNaN(), value.isZero()};
    } else if (isa<arith::SIToFPOp, arith::UIToFPOp>(op)) {
      result = Float::finite();
    } else if (isa<arith::AddFOp, arith::SubFOp>(op)) {
      result = sum(at(0), at(1));
      if (isa<arith::SubFOp>(op) && op.getOperand(0) == op.getOperand(1))
        result = {/*mayBeInfinite=*/false, result.mayBeNan, /*isZero=*/true};
    } else if (isa<arith::MulFOp>(op)) {
      result = product(at(0), at(1));
    } else if (isa<arith::DivFOp>(op)) {
      if (matchPattern(op.getOperand(1), m_ConstantFloat(&value)) && value.isFiniteNonZero())
        result = at(0);
    } else if (isa<arith::NegFOp, math::AbsFOp, arith::ExtFOp>(op)) {
      result = at(0);
    } else if (isa<math::TanhOp>(op)) {
      result = at(0);
      result.mayBeInfinite = false;
    } else if (isa<arith::SelectOp>(op)) {
      result = at(1) | at(2);
    }
  }
  return !known.lookup(score.getTerminator()->getOperand(0)).mayBeInfinite;
}

static bool keepsFinite(Region &score) { return score.empty() || keepsFinite(score.front()); }

static bool keepsFiniteAtOwnKey(Region &score) {
  if (score.empty())
    return true;
  OwningOpRef<ModuleOp> folded = foldAtOwnKey(score, /*first=*/1);
  return folded && keepsFinite((*folded->getOps<func::FuncOp>().begin()).front());
}

namespace {
struct ProveKeysPass : attn::impl::AttnProveKeysBase<ProveKeysPass> {
  using AttnProveKeysBase::AttnProveKeysBase;

  void runOnOperation() override {
    getOperation()->walk([&](Operation *op) {
      llvm::TypeSwitch<Operation *>(op).Case<BackwardOp, JvpOp, BackwardJvpOp>(
          [&](auto known) { prove(known); });
    });
  }

  template <typename Op> void prove(Op op) {
    if (op.getSink())
      return;
    Region &mask = op.getMask(), &score = op.getScore();
    if ((keepsFirstKey(mask) && keepsFinite(score)) ||
        (hasNoMoreRows(op) && keepsOwnKey(mask) && keepsFiniteAtOwnKey(score))) {
      numProved.at(op);
      op.setRowsHaveKeys(true);
    } else if (!op.getRowsHaveKeys()) {
      numLeft.at(op) << remark::reason("no key is known that its mask and score keep in each row");
    }
  }

  template <typename Op> bool hasNoMoreRows(Op op) const {
    constexpr unsigned kLength = 2; // of (batch, heads, length, head dimension)
    int64_t rows = op.getQuery().getType().getDimSize(kLength);
    int64_t keys = op.getKey().getType().getDimSize(kLength);
    return noMoreRows ||
           (!ShapedType::isDynamic(rows) && !ShapedType::isDynamic(keys) && rows <= keys);
  }
};
} // namespace
