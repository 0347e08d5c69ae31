// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Exponents of rows whose running maximum is very large: the scale is a power of two.
//
// 2^(x k - M), with M = m k rounded, is off by a factor 2^e, where e is what was rounded off. The
// sums under M are off by the same factor, so that it cancels, as long as it is a float. From a
// bound of M on, the scores of weights that count are the maximum itself: any power of two c
// near k gives them the same weights, and m c is exact.

#include "attn/Dialect/Attn/IR/Facts.h"
#include "attn/Transforms/Programs/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/Slices.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include <cmath>
#include <limits>

namespace attn {
#define GEN_PASS_DEF_ATTNSCALELARGEMAXIMA
#include "attn/Transforms/Programs/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numScaled("attn-scale-large-maxima", "scaled",
                            "Running maxima that are scaled where they are large");

namespace {

constexpr double kLn2 = 0.693147180559945309417;

/// From where on M is too large: half an ulp of it is an exponent of 32, or of 8 where weights are
/// f16, whose exponents end at 16.
constexpr double kTooLarge = 0x1p30, kTooLargeOfF16 = 0x1p28;

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
  /// The loop, which carries m, too.
  scf::ForOp rewrite();

private:
  static Value getUsed(Maximum &maximum) {
    return maximum.guard ? maximum.guard.getResult() : maximum.inBase2;
  }
  bool findUses(Maximum &maximum);
  bool findUse(Operation *user, Value value, Maximum &maximum);
  bool refuse(Operation *op);
  bool findSums();

  /// A maximum, or 0 for a row without scores.
  Value orZero(Value maximum);
  double findBound();
  Value isLarge(Value maximum);
  Value scaleOf(Value maximum);
  void rewriteWeights(math::FmaOp weights, Value scale);
  void rewriteExponent(math::FmaOp exponent, Value maximum);
  void rewriteSum(math::FmaOp sum, Value maximum);
  void rewriteUsesBehind();

  Value splat(Type type, double number) {
    auto vector = cast<VectorType>(type);
    return arith::ConstantOp::create(
        b, loop.getLoc(),
        DenseElementsAttr::get(vector, b.getFloatAttr(vector.getElementType(), number)));
  }
  /// k f, with which m is what M f is: 1 where f is log 2 and k is log2 e.
  Value multiplier(Type type, double f) {
    double product = factor * (f == double(float(kLn2)) ? kLn2 : f);
    return splat(type, float(product) == 1 ? 1 : product);
  }

  scf::ForOp loop;
  unsigned index;
  OpBuilder b;

  Value old;
  arith::MaxNumFOp next;
  /// The maximum of a tile, which is `factor` times as large in base 2.
  Value ofTile;
  double factor = 1;
  /// From where on m is too large.
  double bound = 0;
  /// The threshold up to which the old maximum is kept.
  arith::AddFOp limit;
  arith::CmpFOp grows;
  arith::SelectOp taken;

  Maximum inside, behind;
  SmallVector<math::FmaOp> weights[2];
  SmallVector<arith::SubFOp> rescalings;
  /// Exponents of rows, x f - M.
  SmallVector<math::FmaOp> exponents[2];
  /// M f and M f + y behind the loop, for a log-sum-exp, and logarithms of its sums.
  SmallVector<Operation *> multiples;
  SmallVector<math::LogOp> logarithms;
  /// Numbers of results that are sums under M and leave the program as such.
  SmallVector<unsigned> sums;
};

} // namespace

bool Carried::match() {
  old = loop.getRegionIterArg(index);
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
      !isNegativeInfinity(reduction.getAcc()) || factor == 1) // which is exact
    return false;
  inside.inBase2 = taken ? taken.getResult() : next.getResult();
  behind.inBase2 = loop.getResult(index);
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
      rescalings.push_back(difference);
    else if (user != next && user != limit && user != grows && user != taken)
      return refuse(user);
  }
  if (taken)
    for (Operation *user : next->getUsers())
      if (user != grows && user != taken)
        return refuse(user);
  if (!findUses(inside) || !findUses(behind))
    return false;
  for (arith::SubFOp difference : rescalings)
    if (difference.getRhs() != getUsed(inside))
      return refuse(difference);
  loop->getBlock()->walk([&](math::LogOp log) {
    auto isResult = [&](Value value) { return value.getDefiningOp() == loop; };
    if (log.getType() == old.getType() && followsFrom(log.getOperand(), isResult))
      logarithms.push_back(log);
  });
  if (multiples.empty() || !logarithms.empty())
    return true;
  // Parts of a row: the maximum and the sums are merged with others'.
  return isa<arith::MulFOp>(multiples.front()) && findSums() ? true : refuse(multiples.front());
}

/// Whether all else that the loop carries are sums under the maximum, which are used behind it.
bool Carried::findSums() {
  auto isRescaled = [&](Operation *user) {
    auto isFactor = [&](Value value) {
      auto factor = value.getDefiningOp<math::Exp2Op>();
      return factor && llvm::is_contained(rescalings, factor.getOperand().getDefiningOp());
    };
    return isa<arith::MulFOp>(user) && (followsFrom(user->getOperand(0), isFactor) ||
                                        followsFrom(user->getOperand(1), isFactor));
  };
  for (unsigned other = 0; other < loop.getNumResults(); ++other) {
    if (other == index)
      continue;
    auto type = dyn_cast<VectorType>(loop.getResult(other).getType());
    if (!type || !type.getElementType().isF32() ||
        llvm::none_of(loop.getRegionIterArg(other).getUsers(), isRescaled))
      return false;
    sums.push_back(other);
  }
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
  return llvm::all_of(maximum.guard->getUsers(),
                      [&](Operation *user) { return findUse(user, maximum.guard, maximum); });
}

bool Carried::findUse(Operation *user, Value value, Maximum &maximum) {
  bool isBehind = &maximum == &behind;
  if (user == loop.getBody()->getTerminator())
    return (value == maximum.inBase2 && llvm::count(user->getOperands(), value) == 1) ||
           refuse(user);
  if (llvm::is_contained(rescalings, user))
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
          (isTile ? *factor != this->factor || getRepeated(fma.getC()) != user->getResult(0)
                  : fma.getC() != user->getResult(0)))
        return refuse(users[at]);
      if (isTile)
        weights[isBehind].push_back(fma);
      else
        exponents[isBehind].push_back(fma);
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
  multiples.push_back(user);
  return true;
}

Value Carried::orZero(Value maximum) {
  Location loc = maximum.getLoc();
  Type type = maximum.getType();
  Value nothing = splat(type, -std::numeric_limits<double>::infinity());
  Value isEmpty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, maximum, nothing);
  return arith::SelectOp::create(b, loc, isEmpty, splat(type, 0), maximum);
}

double Carried::findBound() {
  double bound = kTooLarge;
  for (ArrayRef<math::FmaOp> each : weights)
    for (math::FmaOp exponent : each)
      for (Operation *user : (*exponent->user_begin())->getUsers())
        if (auto shortened = dyn_cast<arith::TruncFOp>(user);
            shortened && getElementTypeOrSelf(shortened.getType()).isF16())
          bound = kTooLargeOfF16;
  return bound / factor;
}

Value Carried::isLarge(Value maximum) {
  Value size = math::AbsFOp::create(b, maximum.getLoc(), maximum);
  return arith::CmpFOp::create(b, maximum.getLoc(), arith::CmpFPredicate::OGE, size,
                               splat(size.getType(), bound));
}

/// The scale c of a row: k, or a power of two. That is no more than what the user scaled by, where
/// it is more than 1: no score that is a float becomes infinite.
Value Carried::scaleOf(Value maximum) {
  int exponent = factor > 1 ? std::ilogb(float(factor * kLn2)) : -std::ilogb(1 / factor);
  Type type = maximum.getType();
  return arith::SelectOp::create(b, maximum.getLoc(), isLarge(maximum),
                                 splat(type, std::ldexp(1.0, exponent)), splat(type, factor));
}

void Carried::rewriteWeights(math::FmaOp weights, Value scale) {
  // As the shift is repeated.
  b.setInsertionPoint(weights);
  Operation *last = weights.getC().getDefiningOp();
  SmallVector<Operation *> ops{last};
  if (isa<vector::TransposeOp>(last))
    ops.push_back(last->getOperand(0).getDefiningOp());
  for (Operation *op : llvm::reverse(ops)) {
    IRMapping mapping;
    mapping.map(op->getOperand(0), scale);
    scale = b.clone(*op, mapping)->getResult(0);
  }
  weights.getBMutable().assign(scale);
}

/// x f - M = (x - m k / f) f, where M is too large.
void Carried::rewriteExponent(math::FmaOp exponent, Value maximum) {
  Location loc = exponent.getLoc();
  b.setInsertionPointAfter(exponent);
  Type type = exponent.getType();
  double f = *getSplat(exponent.getB());
  Value difference =
      math::FmaOp::create(b, loc, maximum, splat(type, -factor / f), exponent.getA());
  Value exact = arith::MulFOp::create(b, loc, difference, splat(type, f));
  Value either = arith::SelectOp::create(b, loc, isLarge(maximum), exact, exponent);
  exponent.getResult().replaceUsesWithIf(
      either, [&](OpOperand &use) { return use.getOwner() != either.getDefiningOp(); });
}

/// M f + y where y is a logarithm of sums under M: as it is, for M has what was rounded off, and
/// m k f + y in rows where M is too large.
void Carried::rewriteSum(math::FmaOp sum, Value maximum) {
  b.setInsertionPointAfter(sum);
  Value k = multiplier(maximum.getType(), *getSplat(sum.getB()));
  Value exact = math::FmaOp::create(b, sum.getLoc(), maximum, k, sum.getC());
  Value either = arith::SelectOp::create(b, sum.getLoc(), isLarge(maximum), exact, sum.getResult());
  sum.getResult().replaceAllUsesExcept(either, either.getDefiningOp());
}

void Carried::rewriteUsesBehind() {
  if (weights[1].empty() && exponents[1].empty() && multiples.empty())
    return;
  Location loc = loop.getLoc();
  b.setInsertionPointAfter(loop);
  Value inBase2 = loop.getResult(index), maximum = loop.getResults().back();
  Value by = scaleOf(maximum);
  for (math::FmaOp each : weights[1])
    rewriteWeights(each, by);
  if (exponents[1].empty() && multiples.empty())
    return;
  b.setInsertionPointAfterValue(by);
  Type type = maximum.getType();
  maximum = orZero(maximum);
  for (math::FmaOp each : exponents[1])
    rewriteExponent(each, maximum);
  SmallVector<arith::MulFOp> products;
  for (Operation *each : multiples)
    if (auto sum = dyn_cast<math::FmaOp>(each))
      rewriteSum(sum, maximum);
    else
      products.push_back(cast<arith::MulFOp>(each));
  if (products.empty())
    return;
  // A maximum apart from its sum: m k f, and logarithms of sums under m k. What they are off by,
  // M - m c, is exact.
  b.setInsertionPointAfterValue(maximum);
  inBase2 = orZero(inBase2);
  Value minus = arith::NegFOp::create(b, loc, maximum);
  Value rest = math::FmaOp::create(b, loc, minus, by, inBase2);
  if (!sums.empty()) {
    b.setInsertionPointAfterValue(rest);
    Value by = math::Exp2Op::create(b, loc, rest);
    for (unsigned sum : sums) {
      Value old = loop.getResult(sum), factor = by;
      if (auto tile = cast<VectorType>(old.getType()); tile.getRank() == 2)
        factor = repeatRows(b, loc, by, tile.getShape());
      Value exact = arith::MulFOp::create(b, loc, old, factor);
      old.replaceAllUsesExcept(exact, exact.getDefiningOp());
    }
  }
  for (math::LogOp log : logarithms) {
    b.setInsertionPointAfter(log);
    Value exact = math::FmaOp::create(b, loc, rest, splat(type, kLn2), log);
    log.getResult().replaceUsesWithIf(exact, [&](OpOperand &use) {
      return use.getOwner() != exact.getDefiningOp() && !isa<math::FmaOp>(use.getOwner());
    });
  }
  // Parts tell by it which have no scores; beside a logarithm of 0 any number does.
  Value left = sums.empty() ? maximum : loop.getResults().back();
  for (arith::MulFOp product : products) {
    b.setInsertionPoint(product);
    product->setOperands({left, multiplier(type, *getSplat(product.getRhs()))});
  }
}

scf::ForOp Carried::rewrite() {
  bound = findBound();
  Location loc = loop.getLoc();
  Value init = loop.getInitArgs()[index];
  if (!isNegativeInfinity(init))
    init = arith::MulFOp::create(b, loc, init, splat(init.getType(), 1 / factor));
  IRRewriter rewriter(b);
  auto stayForNow = [&](OpBuilder &, Location, ArrayRef<BlockArgument> added) {
    return SmallVector<Value>(added.begin(), added.end());
  };
  // Nothing else makes this fail than a loop that is none.
  loop =
      cast<scf::ForOp>(cast<LoopLikeOpInterface>(*loop)
                           .replaceWithAdditionalYields(
                               rewriter, init, /*replaceInitOperandUsesInLoop=*/false, stayForNow)
                           ->getOperation());
  Value before = loop.getRegionIterArgs().back();

  b.setInsertionPoint(next);
  Value maximum = arith::MaxNumFOp::create(b, loc, before, ofTile);
  Operation *last = next;
  if (taken) {
    b.setInsertionPoint(limit);
    Value threshold = splat(before.getType(), *getSplat(limit.getRhs()) / factor);
    limit->setOperands({before, threshold});
    grows.getLhsMutable().assign(maximum);
    last = taken;
    b.setInsertionPoint(taken);
    maximum = arith::SelectOp::create(b, loc, grows, maximum, before);
  }
  Value scale = scaleOf(maximum);
  Value inBase2 = arith::MulFOp::create(b, loc, maximum, scale);
  last->getResult(0).replaceAllUsesWith(inBase2);
  if (taken)
    taken.erase();
  next.erase();
  if (inside.guard) {
    // Any number does for rows without scores, and a maximum is one instruction.
    b.setInsertionPoint(inside.guard);
    double least = -double(std::numeric_limits<float>::max());
    Value number = arith::MaxNumFOp::create(b, loc, inBase2, splat(inBase2.getType(), least));
    inside.guard.replaceAllUsesWith(number);
    inside.guard.erase();
  }
  loop.getYieldedValuesMutable()->back().set(maximum);
  for (math::FmaOp each : weights[0])
    rewriteWeights(each, scale);
  if (!exponents[0].empty()) {
    b.setInsertionPointAfterValue(inBase2);
    maximum = orZero(maximum);
  }
  for (math::FmaOp each : exponents[0])
    rewriteExponent(each, maximum);
  rewriteUsesBehind();
  return loop;
}

namespace {
struct ScaleLargeMaximaPass : attn::impl::AttnScaleLargeMaximaBase<ScaleLargeMaximaPass> {
  void runOnOperation() override {
    SmallVector<scf::ForOp> folds;
    getOperation().walk([&](scf::ForOp loop) {
      if (loop->hasAttr(attn::kFoldLoopAttr))
        folds.push_back(loop);
    });
    for (scf::ForOp loop : folds)
      for (unsigned index = 0; index < loop.getNumRegionIterArgs(); ++index)
        if (Carried maximum(loop, index); maximum.match() && maximum.check()) {
          numScaled.at(loop);
          loop = maximum.rewrite();
        }
  }
};
} // namespace
