// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two tables: derivatives of functions of one operand as formulas in operand
// and result, and rules for the other ops.

#include "ScalarGradients.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace attn;
using arith::CmpFPredicate;

namespace {

/// A value that can be written in a formula.
struct Expr {
  ImplicitLocOpBuilder *b;
  Value value;

  Expr constant(double number) const { return {b, constantLike(*b, number, value)}; }
  template <typename Op> Expr apply() const { return {b, b->createOrFold<Op>(b->getLoc(), value)}; }
  template <typename Op> Expr apply(Expr other) const {
    return {b, b->createOrFold<Op>(b->getLoc(), value, other.value)};
  }
  Expr is(CmpFPredicate predicate, Expr other) const {
    return {b, b->createOrFold<arith::CmpFOp>(b->getLoc(), predicate, value, other.value)};
  }
  /// This, a condition, decides between two values.
  Expr choose(Expr yes, Expr no) const {
    return {b, b->createOrFold<arith::SelectOp>(b->getLoc(), value, yes.value, no.value)};
  }
  bool isConstant() const { return matchPattern(value, m_Constant()); }

  /// This without a constant factor, and the factor.
  std::pair<Expr, std::optional<Expr>> splitFactor() const {
    auto product = value.getDefiningOp<arith::MulFOp>();
    if (!product || !matchPattern(product.getRhs(), m_Constant()))
      return {*this, std::nullopt};
    return {{b, product.getLhs()}, Expr{b, product.getRhs()}};
  }
  /// This by a constant, which joins another one.
  Expr times(Expr constant) const {
    auto [rest, factor] = splitFactor();
    if (factor)
      constant = factor->apply<arith::MulFOp>(constant);
    return rest.apply<arith::MulFOp>(constant);
  }
};

Expr operator+(Expr x, Expr y) { return x.apply<arith::AddFOp>(y); }
Expr operator-(Expr x, Expr y) { return x.apply<arith::SubFOp>(y); }
/// Constant factors come last, so that those of a chain are one.
Expr operator*(Expr x, Expr y) {
  if (x.isConstant() || y.isConstant())
    return x.isConstant() ? y.times(x) : x.times(y);
  auto [first, ofFirst] = x.splitFactor();
  auto [second, ofSecond] = y.splitFactor();
  Expr product = first.apply<arith::MulFOp>(second);
  if (ofFirst)
    product = product.times(*ofFirst);
  return ofSecond ? product.times(*ofSecond) : product;
}
Expr operator/(Expr x, Expr y) { return x.apply<arith::DivFOp>(y); }
Expr operator-(Expr x) { return x.apply<arith::NegFOp>(); }
Expr operator+(Expr x, double y) { return x + x.constant(y); }
Expr operator-(Expr x, double y) { return x - x.constant(y); }
Expr operator-(double x, Expr y) { return y.constant(x) - y; }
Expr operator*(double x, Expr y) { return y * y.constant(x); }
Expr operator/(double x, Expr y) { return y.constant(x) / y; }
Expr sqrt(Expr x) { return x.apply<math::SqrtOp>(); }
Expr exp(Expr x) { return x.apply<math::ExpOp>(); }
/// -1, 0 or 1.
Expr sign(Expr x) {
  Expr zero = x.constant(0);
  Expr one = x.constant(1).apply<math::CopySignOp>(x);
  return x.is(CmpFPredicate::OEQ, zero).choose(zero, one);
}

/// dy/dx of y = op(x), where the op has one operand.
struct Derivative {
  StringLiteral op;
  Expr (*formula)(Expr x, Expr y);
};

const Derivative derivatives[] = {
    {"math.absf", [](Expr x, Expr y) { return sign(x); }},
    {"math.acos", [](Expr x, Expr y) { return -1.0 / sqrt(1.0 - x * x); }},
    {"math.acosh", [](Expr x, Expr y) { return 1.0 / sqrt(x * x - 1.0); }},
    {"math.asin", [](Expr x, Expr y) { return 1.0 / sqrt(1.0 - x * x); }},
    {"math.asinh", [](Expr x, Expr y) { return 1.0 / sqrt(x * x + 1.0); }},
    {"math.atan", [](Expr x, Expr y) { return 1.0 / (x * x + 1.0); }},
    {"math.atanh", [](Expr x, Expr y) { return 1.0 / (1.0 - x * x); }},
    {"math.cbrt", [](Expr x, Expr y) { return 1.0 / (3.0 * (y * y)); }},
    {"math.cos", [](Expr x, Expr y) { return -x.apply<math::SinOp>(); }},
    {"math.cosh", [](Expr x, Expr y) { return x.apply<math::SinhOp>(); }},
    {"math.erf", [](Expr x, Expr y) { return 2.0 * llvm::numbers::inv_sqrtpi * exp(-(x * x)); }},
    {"math.erfc", [](Expr x, Expr y) { return -2.0 * llvm::numbers::inv_sqrtpi * exp(-(x * x)); }},
    {"math.exp", [](Expr x, Expr y) { return y; }},
    {"math.exp2", [](Expr x, Expr y) { return llvm::numbers::ln2 * y; }},
    {"math.expm1", [](Expr x, Expr y) { return y + 1.0; }},
    {"math.log", [](Expr x, Expr y) { return 1.0 / x; }},
    {"math.log10", [](Expr x, Expr y) { return 1.0 / (llvm::numbers::ln10 * x); }},
    {"math.log1p", [](Expr x, Expr y) { return 1.0 / (x + 1.0); }},
    {"math.log2", [](Expr x, Expr y) { return 1.0 / (llvm::numbers::ln2 * x); }},
    {"math.rsqrt", [](Expr x, Expr y) { return -0.5 * (y * y * y); }},
    {"math.sin", [](Expr x, Expr y) { return x.apply<math::CosOp>(); }},
    {"math.sinh", [](Expr x, Expr y) { return x.apply<math::CoshOp>(); }},
    {"math.sqrt", [](Expr x, Expr y) { return 0.5 / y; }},
    {"math.tan", [](Expr x, Expr y) { return y * y + 1.0; }},
    {"math.tanh", [](Expr x, Expr y) { return 1.0 - y * y; }},
};

/// One op while its adjoint is handed to its operands.
struct Use {
  ImplicitLocOpBuilder &b;
  Operation *op;
  Adjoints &adjoints;
  Expr adjoint;
  /// The adjoint may be 0 for having passed a select.
  bool guarded;

  bool wants(unsigned index) const { return adjoints.isActive(op->getOperand(index)); }
  /// An operand or the result, in the type the adjoint is computed in.
  Expr widen(Value value) const {
    Type type = getAdjointType(value.getType());
    return {&b,
            type == value.getType() ? value : arith::ExtFOp::create(b, type, value).getResult()};
  }
  Expr operand(unsigned index) const { return widen(op->getOperand(index)); }
  Expr result() const { return widen(op->getResult(0)); }

  /// Hands `contribution` to an operand as it is.
  void give(unsigned index, Expr contribution) {
    adjoints.add(op->getOperand(index), contribution.value, guarded);
  }
  /// Hands over a select of the adjoint: 0 where the operand was not taken.
  void giveSelected(unsigned index, Expr contribution) {
    adjoints.add(op->getOperand(index), contribution.value, true);
  }
  /// Hands adjoint * factor to an operand. The product is selected, not the
  /// factor: 0 times an infinite derivative on a side not taken would be NaN.
  void scale(unsigned index, Expr factor) {
    Expr product = adjoint * factor;
    if (guarded && !factor.isConstant()) {
      Expr zero = adjoint.constant(0);
      product = adjoint.is(CmpFPredicate::OEQ, zero).choose(zero, product);
    }
    give(index, product);
  }
};

/// Maximum and minimum: all to the operand that `wins`, halves to equal ones.
/// `number`: the op prefers an operand that is not NaN.
void giveExtremum(Use &use, CmpFPredicate wins, bool number) {
  Expr x[] = {use.operand(0), use.operand(1)};
  Expr zero = use.adjoint.constant(0), half = 0.5 * use.adjoint;
  Expr equal = x[0].is(CmpFPredicate::OEQ, x[1]);
  for (unsigned index : {0, 1}) {
    if (!use.wants(index))
      continue;
    Expr other = x[1 - index], won = x[index].is(wins, other);
    if (number)
      won = won.apply<arith::OrIOp>(other.is(CmpFPredicate::UNO, other));
    Expr rest = equal.choose(half, zero);
    use.giveSelected(index, won.choose(use.adjoint, rest));
  }
}

/// x^p. The derivative in x is 0 where p is 0, whatever x; that in p, y log x,
/// is 0 where x is 0 and p is not negative.
void givePower(Use &use) {
  Expr x = use.operand(0), p = use.operand(1), y = use.result();
  Expr zero = p.constant(0);
  if (use.wants(0)) {
    Expr slope = p * x.apply<math::PowFOp>(p - 1.0);
    use.scale(0, p.is(CmpFPredicate::OEQ, zero).choose(zero, slope));
  }
  if (use.wants(1)) {
    Expr flat = x.is(CmpFPredicate::OEQ, zero).apply<arith::AndIOp>(p.is(CmpFPredicate::OGE, zero));
    use.scale(1, flat.choose(zero, y * x.apply<math::LogOp>()));
  }
}

/// x^n with an integer n: n x^(n-1), 0 where n is 0.
void giveIntegerPower(Use &use) {
  ImplicitLocOpBuilder &b = use.b;
  Expr x = use.operand(0), n = {&b, use.op->getOperand(1)};
  Expr less = n.apply<arith::SubIOp>(n.constant(1));
  Value wide = n.value;
  if (getElementTypeOrSelf(wide).isIndex()) {
    Type type = b.getI64Type();
    if (auto shaped = dyn_cast<ShapedType>(wide.getType()))
      type = shaped.clone(type);
    wide = arith::IndexCastOp::create(b, type, wide);
  }
  Expr real = {&b, arith::SIToFPOp::create(b, x.value.getType(), wide)};
  Expr zero = real.constant(0);
  Expr slope = real * x.apply<math::FPowIOp>(less);
  use.scale(0, real.is(CmpFPredicate::OEQ, zero).choose(zero, slope));
}

/// atan2(y, x).
void giveAtan2(Use &use) {
  Expr y = use.operand(0), x = use.operand(1), square = x * x + y * y;
  if (use.wants(0))
    use.scale(0, x / square);
  if (use.wants(1))
    use.scale(1, -y / square);
}

void giveProduct(Use &use) {
  for (unsigned index : {0, 1})
    if (use.wants(index))
      use.scale(index, use.operand(1 - index));
}

void giveQuotient(Use &use) {
  Expr divisor = use.operand(1);
  if (use.wants(0))
    use.scale(0, 1.0 / divisor);
  if (use.wants(1))
    use.scale(1, -(use.result() / divisor));
}

void giveSelect(Use &use) {
  Expr condition = {&use.b, use.op->getOperand(0)};
  Expr zero = use.adjoint.constant(0);
  if (use.wants(1))
    use.giveSelected(1, condition.choose(use.adjoint, zero));
  if (use.wants(2))
    use.giveSelected(2, condition.choose(zero, use.adjoint));
}

/// |x| with the sign of y, which gets nothing.
void giveCopySign(Use &use) {
  if (!use.wants(0))
    return;
  Expr x = use.operand(0);
  Expr one = x.constant(1).apply<math::CopySignOp>(use.operand(1));
  use.scale(0, sign(x) * one);
}

/// The cast changes the type that the adjoint is computed in, if one is f64.
void giveCast(Use &use) {
  Value operand = use.op->getOperand(0);
  Type type = getAdjointType(operand.getType());
  Value adjoint = use.adjoint.value;
  if (adjoint.getType() == type)
    return use.give(0, use.adjoint);
  Expr cast = use.adjoint;
  if (getElementTypeOrSelf(type).isF64())
    cast.value = arith::ExtFOp::create(use.b, type, adjoint);
  else
    cast.value = arith::TruncFOp::create(use.b, type, adjoint);
  use.give(0, cast);
}

struct Rule {
  StringLiteral op;
  void (*apply)(Use &use);
};

void giveNothing(Use &) {}

const Rule rules[] = {
    {"arith.addf", [](Use &use) { use.give(0, use.adjoint), use.give(1, use.adjoint); }},
    {"arith.divf", giveQuotient},
    {"arith.extf", giveCast},
    {"arith.maximumf", [](Use &use) { giveExtremum(use, CmpFPredicate::UGT, false); }},
    {"arith.maxnumf", [](Use &use) { giveExtremum(use, CmpFPredicate::OGT, true); }},
    {"arith.minimumf", [](Use &use) { giveExtremum(use, CmpFPredicate::ULT, false); }},
    {"arith.minnumf", [](Use &use) { giveExtremum(use, CmpFPredicate::OLT, true); }},
    {"arith.mulf", giveProduct},
    {"arith.negf", [](Use &use) { use.give(0, -use.adjoint); }},
    {"arith.select", giveSelect},
    {"arith.subf",
     [](Use &use) {
       use.give(0, use.adjoint);
       if (use.wants(1))
         use.give(1, -use.adjoint);
     }},
    {"arith.truncf", giveCast},
    {"math.atan2", giveAtan2},
    {"math.ceil", giveNothing},
    {"math.copysign", giveCopySign},
    {"math.floor", giveNothing},
    {"math.fma",
     [](Use &use) {
       giveProduct(use);
       use.give(2, use.adjoint);
     }},
    {"math.fpowi", giveIntegerPower},
    {"math.powf", givePower},
    {"math.round", giveNothing},
    {"math.roundeven", giveNothing},
    {"math.trunc", giveNothing},
};

} // namespace

LogicalResult attn::differentiateElementwise(ImplicitLocOpBuilder &b, Operation *op,
                                             Adjoints &adjoints) {
  StringRef name = op->getName().getStringRef();
  auto derivative =
      llvm::find_if(derivatives, [&](const Derivative &entry) { return entry.op == name; });
  auto rule = llvm::find_if(rules, [&](const Rule &entry) { return entry.op == name; });
  bool unary = derivative != std::end(derivatives);
  if ((!unary && rule == std::end(rules)) || !llvm::all_of(op->getOperandTypes(), hasAdjointType) ||
      !llvm::all_of(op->getResultTypes(), hasAdjointType))
    return failure();
  Value result = op->getResult(0);
  Use use{b, op, adjoints, {&b, adjoints.get(result)}, adjoints.isGuarded(result)};
  if (unary)
    use.scale(0, derivative->formula(use.operand(0), use.result()));
  else
    rule->apply(use);
  return success();
}
