// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Exponents of rows whose running maximum is large: it is subtracted before the difference is
// scaled.
//
// 2^(x k - M), with M = m k rounded, is off by a factor 2^e, where e is what was rounded off. The
// sums under M are off by the same factor, so that it cancels; but it is no float any more where
// M is 2^30, and M itself is none where m is the least float. So the loop carries m, and rows with
// a large M have 2^((x - m) k).

#include "Vectors.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"
#include <cmath>

namespace attn {
#define GEN_PASS_DEF_HOPPERSUBTRACTLARGEMAXIMA
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

constexpr double kLn2 = 0.693147180559945309417;

std::optional<double> getSplat(Value value) {
  DenseElementsAttr elements;
  if (!matchPattern(value, m_Constant(&elements)) || !elements.isSplat() ||
      !elements.getElementType().isF32())
    return std::nullopt;
  return elements.getSplatValue<APFloat>().convertToDouble();
}

bool isNegativeInfinity(Value value) { return matchPattern(value, m_NegInfFloat()); }

/// A maximum as it was found, or one that stands in for it where it is -inf.
struct Maximum {
  Value inBase2;
  /// The select of that, and its comparison, or null.
  arith::SelectOp guard;
  arith::CmpFOp test;
};

/// A maximum M in base 2 that a loop carries, and all that is done with it.
class Carried {
public:
  Carried(scf::ForOp loop, unsigned index) : loop(loop), index(index), b(loop) {}

  /// Whether the loop carries one.
  bool match();
  /// Whether all uses are known; a remark otherwise.
  bool check();
  void rewrite();

private:
  static Value getUsed(Maximum &maximum) {
    return maximum.guard ? maximum.guard.getResult() : maximum.inBase2;
  }
  bool findUses(Maximum &maximum);
  bool findUse(Operation *user, Value value, Maximum &maximum);
  bool refuse(Operation *op);

  Value isLarge(Value original);
  void rewriteUses(Maximum &maximum);
  void rewriteWeights(math::FmaOp weights, Value original);
  void rewriteRow(Operation *op, Value original, Value inBase2);

  Value splat(Type type, double number) {
    auto vector = cast<VectorType>(type);
    return arith::ConstantOp::create(
        b, loop.getLoc(),
        DenseElementsAttr::get(vector, b.getFloatAttr(vector.getElementType(), number)));
  }
  /// k log 2, with which m is the maximum itself.
  double natural() const {
    double product = factor * kLn2;
    return float(product) == 1 ? 1 : product;
  }

  scf::ForOp loop;
  unsigned index;
  OpBuilder b;

  Value old, result;
  arith::MaxNumFOp next;
  /// The maximum of a tile, which is `factor` times as large in base 2.
  Value ofTile;
  double factor = 1;
  /// The growth up to which the old maximum is kept.
  arith::AddFOp limit;
  arith::CmpFOp grows;
  arith::SelectOp taken;

  Maximum inside, behind;
  SmallVector<math::FmaOp> weights[2];
  SmallVector<arith::SubFOp> corrections;
  SmallVector<Operation *> rows[2];
};

} // namespace

bool Carried::match() {
  old = loop.getRegionIterArg(index);
  result = loop.getResult(index);
  auto type = dyn_cast<VectorType>(old.getType());
  if (!type || type.getRank() != 1 || !type.getElementType().isF32())
    return false;
  Value yielded = loop.getYieldedValues()[index];
  if (auto select = yielded.getDefiningOp<arith::SelectOp>();
      select && select.getFalseValue() == old) {
    taken = select;
    grows = select.getCondition().getDefiningOp<arith::CmpFOp>();
    limit = grows ? grows.getRhs().getDefiningOp<arith::AddFOp>() : arith::AddFOp();
    if (!limit || grows.getPredicate() != arith::CmpFPredicate::OGT ||
        grows.getLhs() != select.getTrueValue() || limit.getLhs() != old ||
        !getSplat(limit.getRhs()))
      return false;
    yielded = select.getTrueValue();
  }
  next = yielded.getDefiningOp<arith::MaxNumFOp>();
  if (!next || (next.getLhs() != old && next.getRhs() != old))
    return false;
  ofTile = next.getLhs() == old ? next.getRhs() : next.getLhs();
  if (auto product = ofTile.getDefiningOp<arith::MulFOp>())
    if (auto constant = getSplat(product.getRhs()); constant && *constant > 0) {
      ofTile = product.getLhs();
      factor = *constant;
    }
  auto reduction = ofTile.getDefiningOp<vector::MultiDimReductionOp>();
  if (!reduction || reduction.getKind() != vector::CombiningKind::MAXNUMF ||
      !isNegativeInfinity(reduction.getAcc()))
    return false;
  inside.inBase2 = taken ? taken.getResult() : next.getResult();
  behind.inBase2 = result;
  return true;
}

bool Carried::refuse(Operation *op) {
  InFlightDiagnostic remark = op->emitRemark(
      "rows of large maxima are not exact: a use of the maximum is no exponent of a known form");
  remark.attachNote(next.getLoc()) << "this maximum";
  return false;
}

bool Carried::check() {
  for (Operation *user : old.getUsers()) {
    auto difference = dyn_cast<arith::SubFOp>(user);
    if (difference && difference.getLhs() == old && difference->hasOneUse() &&
        isa<math::Exp2Op>(*difference->user_begin()))
      corrections.push_back(difference);
    else if (user != next && user != limit && user != grows && user != taken)
      return refuse(user);
  }
  if (taken)
    for (Operation *user : next->getUsers())
      if (user != grows && user != taken)
        return refuse(user);
  if (!findUses(inside) || !findUses(behind))
    return false;
  for (arith::SubFOp difference : corrections)
    if (difference.getRhs() != getUsed(inside))
      return refuse(difference);
  return true;
}

bool Carried::findUses(Maximum &maximum) {
  for (Operation *user : maximum.inBase2.getUsers()) {
    auto compare = dyn_cast<arith::CmpFOp>(user);
    if (compare && compare.getPredicate() == arith::CmpFPredicate::OEQ &&
        isNegativeInfinity(compare.getRhs()) && !maximum.test) {
      maximum.test = compare;
      continue;
    }
    auto select = dyn_cast<arith::SelectOp>(user);
    if (select && select.getFalseValue() == maximum.inBase2 && !maximum.guard &&
        matchPattern(select.getTrueValue(), m_AnyZeroFloat())) {
      maximum.guard = select;
      continue;
    }
    if (!findUse(user, maximum.inBase2, maximum))
      return false;
  }
  if (!maximum.guard)
    return !maximum.test || refuse(maximum.test);
  if (maximum.guard.getCondition() != (maximum.test ? maximum.test.getResult() : Value()))
    return refuse(maximum.guard);
  return llvm::all_of(maximum.guard->getUsers(), [&](Operation *user) {
    return findUse(user, maximum.guard, maximum);
  });
}

bool Carried::findUse(Operation *user, Value value, Maximum &maximum) {
  bool isBehind = &maximum == &behind;
  if (user == loop.getBody()->getTerminator())
    return (value == maximum.inBase2 && llvm::count(user->getOperands(), value) == 1) ||
           refuse(user);
  if (llvm::is_contained(corrections, user))
    return true;
  if (isa<arith::NegFOp>(user)) {
    SmallVector<Operation *> users(user->getUsers());
    for (unsigned at = 0; at < users.size(); ++at) {
      if (isa<vector::BroadcastOp, vector::TransposeOp>(users[at])) {
        llvm::append_range(users, users[at]->getUsers());
        continue;
      }
      auto fma = dyn_cast<math::FmaOp>(users[at]);
      bool isTile = fma && cast<VectorType>(fma.getType()).getRank() == 2;
      std::optional<double> factor = fma ? getSplat(fma.getB()) : std::nullopt;
      if (!factor || !fma->hasOneUse() || !isa<math::Exp2Op>(*fma->user_begin()) ||
          (isTile ? *factor != this->factor || hopper::getRepeated(fma.getC()) != user->getResult(0)
                  : fma.getC() != user->getResult(0)))
        return refuse(users[at]);
      if (isTile)
        weights[isBehind].push_back(fma);
      else
        rows[isBehind].push_back(fma);
    }
    return true;
  }
  // m log 2 + y, of a log-sum-exp.
  auto fma = dyn_cast<math::FmaOp>(user);
  auto product = dyn_cast<arith::MulFOp>(user);
  bool isScaled = fma ? fma.getA() == value && getSplat(fma.getB())
                      : product && product.getLhs() == value && getSplat(product.getRhs());
  if (!isScaled || !isBehind)
    return refuse(user);
  rows[isBehind].push_back(user);
  return true;
}

Value Carried::isLarge(Value original) {
  Value size = math::AbsFOp::create(b, original.getLoc(), original);
  return arith::CmpFOp::create(b, original.getLoc(), arith::CmpFPredicate::OGE, size,
                               splat(size.getType(), hopper::kLargeMaximum / factor));
}

void Carried::rewriteWeights(math::FmaOp weights, Value original) {
  Location loc = weights.getLoc();
  Value tile = weights.getA(), shift = hopper::getRepeated(weights.getC());
  // As the shift is repeated.
  auto repeat = [&](Value row) {
    Operation *last = weights.getC().getDefiningOp();
    SmallVector<Operation *> ops{last};
    if (isa<vector::TransposeOp>(last))
      ops.push_back(last->getOperand(0).getDefiningOp());
    for (Operation *op : llvm::reverse(ops)) {
      IRMapping mapping;
      mapping.map(op->getOperand(0), row);
      row = b.clone(*op, mapping)->getResult(0);
    }
    return row;
  };
  b.setInsertionPoint(weights);
  auto reduction = ofTile.getDefiningOp<vector::MultiDimReductionOp>();
  bool isReduced = loop->isProperAncestor(weights) && reduction.getSource() == tile;
  Value some = hopper::WarpLargeOp::create(b, loc, isReduced ? old : original,
                                           isReduced ? tile : Value(),
                                           b.getF64FloatAttr(hopper::kLargeMaximum / factor));
  auto branch = scf::IfOp::create(b, loc, TypeRange{tile.getType(), shift.getType()}, some,
                                  /*withElseRegion=*/true);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, loc, ValueRange{tile, shift});
  b.setInsertionPointToStart(branch.thenBlock());
  Value large = isLarge(original), zero = splat(original.getType(), 0);
  Value maximum = arith::SelectOp::create(b, loc, large, original, zero);
  Value difference = arith::SubFOp::create(b, loc, tile, repeat(maximum));
  Value rest = arith::SelectOp::create(b, loc, large, zero, shift);
  scf::YieldOp::create(b, loc, ValueRange{difference, rest});
  b.setInsertionPoint(weights);
  Value repeated = repeat(branch.getResult(1));
  weights.getAMutable().assign(branch.getResult(0));
  weights.getCMutable().assign(repeated);
}

/// What is computed once per row from M: from m where M is large.
void Carried::rewriteRow(Operation *op, Value original, Value inBase2) {
  Location loc = op->getLoc();
  b.setInsertionPointAfter(op);
  Value before = op->getResult(0), after;
  Type type = before.getType();
  auto fma = dyn_cast<math::FmaOp>(op);
  if (fma && fma.getA() != inBase2) {
    // x f - M = (x - m k / f) f.
    double f = *getSplat(fma.getB());
    Value difference =
        math::FmaOp::create(b, loc, original, splat(type, -factor / f), fma.getA());
    after = arith::MulFOp::create(b, loc, difference, splat(type, f));
  } else {
    double f = *getSplat(op->getOperand(1));
    Value multiplier = splat(type, f == double(float(kLn2)) ? natural() : f * factor);
    after = fma ? Value(math::FmaOp::create(b, loc, original, multiplier, fma.getC()))
                : Value(arith::MulFOp::create(b, loc, original, multiplier));
  }
  Value either = arith::SelectOp::create(b, loc, isLarge(original), after, before);
  before.replaceAllUsesExcept(either, either.getDefiningOp());
}

/// A value that was M is m from here on.
void Carried::rewriteUses(Maximum &maximum) {
  bool isBehind = &maximum == &behind;
  Value original = getUsed(maximum);
  b.setInsertionPointAfterValue(original);
  Value inBase2 = original;
  if (factor != 1)
    inBase2 = arith::MulFOp::create(b, loop.getLoc(), original, splat(original.getType(), factor));
  original.replaceUsesWithIf(inBase2, [&](OpOperand &use) {
    return isa<arith::NegFOp>(use.getOwner()) ||
           llvm::is_contained(rows[isBehind], use.getOwner());
  });
  for (math::FmaOp each : weights[isBehind])
    rewriteWeights(each, original);
  for (Operation *each : rows[isBehind])
    rewriteRow(each, original, inBase2);
}

void Carried::rewrite() {
  auto divided = [&](Operation *before, double number) {
    b.setInsertionPoint(before);
    return splat(old.getType(), number / factor);
  };
  OpOperand &init = loop.getInitArgsMutable()[index];
  if (!isNegativeInfinity(init.get()) && factor != 1) {
    Value inverse = divided(loop, 1);
    init.set(arith::MulFOp::create(b, loop.getLoc(), init.get(), inverse));
  }
  next->setOperands({old, ofTile});
  if (limit)
    limit.getRhsMutable().assign(divided(limit, *getSplat(limit.getRhs())));
  for (arith::SubFOp difference : corrections) {
    if (factor == 1)
      continue;
    b.setInsertionPointAfter(difference);
    auto scaled = arith::MulFOp::create(b, difference.getLoc(), difference,
                                        splat(difference.getType(), factor));
    difference.getResult().replaceAllUsesExcept(scaled, scaled);
  }
  rewriteUses(inside);
  rewriteUses(behind);
}

namespace {
struct SubtractLargeMaximaPass
    : attn::impl::HopperSubtractLargeMaximaBase<SubtractLargeMaximaPass> {
  void runOnOperation() override {
    getOperation().walk([](scf::ForOp loop) {
      if (!loop->hasAttr(attn::kFoldAttr))
        return;
      for (unsigned index = 0; index < loop.getNumRegionIterArgs(); ++index)
        if (Carried maximum(loop, index); maximum.match() && maximum.check())
          maximum.rewrite();
    });
  }
};
} // namespace
