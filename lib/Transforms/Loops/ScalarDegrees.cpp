// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ScalarDegrees.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace attn;
using namespace attn::detail;

bool attn::detail::isSame(double a, double b) {
  return std::abs(a - b) <= 1e-12 * std::max(std::abs(a), std::abs(b));
}

static bool areSame(const Degrees &a, const Degrees &b) {
  return a.size() == b.size() && llvm::all_of(llvm::zip(a, b), [](const auto &pair) {
           const auto &[x, y] = pair;
           return x.first.asTuple() == y.first.asTuple() && isSame(x.second, y.second);
         });
}

bool ScalarForm::has(unsigned value) const {
  return llvm::any_of(
      ArrayRef<const Degrees *>{&shifts, &exponents, &powers}, [&](const Degrees *degrees) {
        return llvm::any_of(*degrees,
                            [&](const auto &entry) { return entry.first.value == value; });
      });
}

static ScalarForm invariant() {
  ScalarForm form;
  form.isSum = form.isProduct = true;
  return form;
}

static ScalarForm unknown(Operation *op) {
  ScalarForm form;
  form.broken = op;
  return form;
}

/// The form of a running value, or of its guard.
static ScalarForm ofSymbol(Symbol symbol) {
  ScalarForm form;
  form.isSum = form.restIsZero = true;
  form.shifts[symbol] = 1;
  if (!symbol.isGuarded) {
    form.isProduct = form.restIsOne = true;
    form.powers[symbol] = 1;
  }
  return form;
}

//===----------------------------------------------------------------------===//
// Arithmetic on forms
//===----------------------------------------------------------------------===//

static void addTo(Degrees &degrees, const Degrees &other, double times) {
  for (auto [symbol, k] : other) {
    double &sum = degrees[symbol];
    if (isSame(sum, -times * k))
      degrees.erase(symbol);
    else
      sum += times * k;
  }
}

static std::set<unsigned> both(const std::set<unsigned> &a, const std::set<unsigned> &b) {
  std::set<unsigned> result;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(),
                        std::inserter(result, result.begin()));
  return result;
}

static std::set<unsigned> join(std::set<unsigned> a, const std::set<unsigned> &b) {
  a.insert(b.begin(), b.end());
  return a;
}

/// Makes `form` the product that `a` and `b` both are, if they are the same one.
static void takeCommonProduct(ScalarForm &form, const ScalarForm &a, const ScalarForm &b) {
  if (!a.isProduct || !b.isProduct || !areSame(a.exponents, b.exponents) ||
      !areSame(a.powers, b.powers))
    return;
  form.isProduct = true;
  form.exponents = a.exponents;
  form.powers = a.powers;
  form.zero = both(a.zero, b.zero);
}

/// a + sign * b
static ScalarForm add(const ScalarForm &a, const ScalarForm &b, double sign, Operation *op) {
  if (a.broken || b.broken)
    return a.broken ? a : b;
  ScalarForm form;
  if (a.isSum && b.isSum) {
    form.isSum = true;
    form.shifts = a.shifts;
    addTo(form.shifts, b.shifts, sign);
    form.restIsZero = a.restIsZero && b.restIsZero;
    form.minusInfinity = join(a.minusInfinity, sign > 0 ? b.minusInfinity : b.infinity);
    form.infinity = join(a.infinity, sign > 0 ? b.infinity : b.minusInfinity);
  }
  takeCommonProduct(form, a, b);
  return form.isSum || form.isProduct ? form : unknown(op);
}

/// a * b^sign, as a product.
static ScalarForm multiply(const ScalarForm &a, const ScalarForm &b, double sign, Operation *op) {
  if (a.broken || b.broken)
    return a.broken ? a : b;
  if (!a.isProduct || !b.isProduct)
    return unknown(op);
  ScalarForm form;
  form.isProduct = true;
  form.exponents = a.exponents;
  form.powers = a.powers;
  addTo(form.exponents, b.exponents, sign);
  addTo(form.powers, b.powers, sign);
  form.restIsOne = a.restIsOne && b.restIsOne;
  form.zero = sign > 0 ? join(a.zero, b.zero) : a.zero;
  form.isSum = form.exponents.empty() && form.powers.empty();
  return form;
}

/// Gives `form` that of `sum` times `constant`, or times `factor` where there is one.
static void addScaled(ScalarForm &form, const ScalarForm &sum, double constant,
                      const void *factor = nullptr) {
  Degrees shifts;
  for (auto [symbol, k] : sum.shifts) {
    if (factor && symbol.factor)
      return;
    Symbol scaled = symbol;
    if (factor)
      scaled.factor = factor;
    shifts[scaled] = k * constant;
  }
  form.isSum = true;
  form.broken = nullptr;
  form.shifts = shifts;
  form.restIsZero = sum.restIsZero;
  if (!factor) {
    form.minusInfinity = constant > 0 ? sum.minusInfinity : sum.infinity;
    form.infinity = constant > 0 ? sum.infinity : sum.minusInfinity;
  }
}

static std::optional<double> getConstant(Value value) {
  FloatAttr constant;
  if (!matchPattern(value, m_Constant(&constant)))
    return std::nullopt;
  return constant.getValueAsDouble();
}

static bool isMinusInfinity(Value value) {
  auto constant = getConstant(value);
  return constant && std::isinf(*constant) && *constant < 0;
}

static bool isZero(Value value) { return getConstant(value) == 0.0; }

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

ScalarDegrees::ScalarDegrees(affine::AffineForOp loop, ArrayRef<RunningValue> values)
    : loop(loop), values(values) {
  for (auto [number, value] : llvm::enumerate(values)) {
    symbols[value.before] = {unsigned(number), /*isAfter=*/false};
    symbols[value.after] = {unsigned(number), /*isAfter=*/true};
  }
}

const ScalarForm &ScalarDegrees::of(Value value) {
  auto known = forms.find(value);
  if (known != forms.end())
    return known->second;
  ScalarForm form = compute(value);
  return forms[value] = std::move(form);
}

ScalarForm ScalarDegrees::compute(Value value) {
  if (auto symbol = symbols.find(value); symbol != symbols.end())
    return ofSymbol(symbol->second);
  Operation *op = value.getDefiningOp();
  ScalarForm form = invariant();
  if (auto constant = getConstant(value)) {
    form.restIsZero = *constant == 0;
    form.restIsOne = *constant == 1;
  } else if (op && loop->isProperAncestor(op)) {
    form = ofOp(op);
  }
  for (auto [number, running] : llvm::enumerate(values))
    if (value == running.score && form.isSum)
      form.minusInfinity.insert(number);
  return form;
}

/// r == -inf ? 0 : r, or r != -inf ? r : 0
std::optional<ScalarForm> ScalarDegrees::ofGuard(Operation *select) {
  auto compare = select->getOperand(0).getDefiningOp<arith::CmpFOp>();
  if (!compare || !isMinusInfinity(compare.getRhs()))
    return std::nullopt;
  bool isEqual = compare.getPredicate() == arith::CmpFPredicate::OEQ;
  if (!isEqual && compare.getPredicate() != arith::CmpFPredicate::UNE)
    return std::nullopt;
  Value zero = select->getOperand(isEqual ? 1 : 2), running = select->getOperand(isEqual ? 2 : 1);
  auto symbol = symbols.find(running);
  if (!isZero(zero) || compare.getLhs() != running || symbol == symbols.end() ||
      !values[symbol->second.value].score)
    return std::nullopt;
  Symbol guarded = symbol->second;
  guarded.isGuarded = true;
  return ofSymbol(guarded);
}

ScalarForm ScalarDegrees::ofSelect(Operation *select) {
  if (auto guard = ofGuard(select))
    return *guard;
  ScalarForm condition = of(select->getOperand(0)), a = of(select->getOperand(1)),
             b = of(select->getOperand(2));
  if (!condition.isInvariant())
    return unknown(select);
  if (a.broken || b.broken)
    return a.broken ? a : b;
  // 0 fits any factor, -inf any shift.
  auto absorb = [&](Value constant, ScalarForm &form, const ScalarForm &other) {
    if (other.isProduct && isZero(constant)) {
      form.isProduct = true;
      form.exponents = other.exponents;
      form.powers = other.powers;
      form.zero = other.zero;
    } else if (other.isSum && isMinusInfinity(constant)) {
      form.isSum = true;
      form.shifts = other.shifts;
      form.minusInfinity = other.minusInfinity;
    }
  };
  absorb(select->getOperand(1), a, b);
  absorb(select->getOperand(2), b, a);
  ScalarForm form;
  if (a.isSum && b.isSum && areSame(a.shifts, b.shifts)) {
    form.isSum = true;
    form.shifts = a.shifts;
    form.minusInfinity = both(a.minusInfinity, b.minusInfinity);
    form.infinity = both(a.infinity, b.infinity);
  }
  takeCommonProduct(form, a, b);
  return form.isSum || form.isProduct ? form : unknown(select);
}

/// Whether all that `op` uses, in its regions, too, is invariant; else where the form breaks.
static Operation *findVarying(Operation *op, ScalarDegrees &degrees) {
  Operation *broken = nullptr;
  op->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands()) {
      bool isInside = inner != op && op->isAncestor(operand.getParentBlock()->getParentOp());
      if (isInside || broken)
        continue;
      const ScalarForm &form = degrees.of(operand);
      if (!form.isInvariant())
        broken = form.broken ? form.broken : op;
    }
  });
  return broken;
}

ScalarForm ScalarDegrees::ofOp(Operation *op) {
  bool isSelect = isa<arith::SelectOp>(op) && isa<FloatType>(op->getResult(0).getType());
  Operation *varying = findVarying(op, *this);
  if (!varying && !isSelect)
    return invariant();
  bool isScalar = op->getNumResults() == 1 && isa<FloatType>(op->getResult(0).getType());
  if (!isScalar)
    return unknown(varying);
  if (isSelect)
    return ofSelect(op);
  for (Value operand : op->getOperands())
    if (Operation *broken = of(operand).broken)
      return unknown(broken);
  // Copies: what is asked next may move what was found before.
  ScalarForm a = of(op->getOperand(0));
  ScalarForm b = op->getNumOperands() > 1 ? of(op->getOperand(1)) : ScalarForm();
  if (isa<arith::AddFOp>(op))
    return add(a, b, 1, op);
  if (isa<arith::SubFOp>(op))
    return add(a, b, -1, op);
  if (isa<arith::MulFOp>(op)) {
    ScalarForm form = multiply(a, b, 1, op);
    for (unsigned side : {0, 1}) {
      Value other = op->getOperand(1 - side);
      const ScalarForm &sum = side == 0 ? a : b;
      if (!sum.isSum || sum.shifts.empty())
        continue;
      if (auto constant = getConstant(other); constant && *constant != 0)
        addScaled(form, sum, *constant);
      else if (!constant && !loop->isAncestor(other.getParentBlock()->getParentOp()))
        addScaled(form, sum, 1, other.getAsOpaquePointer());
    }
    return form;
  }
  if (isa<arith::DivFOp>(op)) {
    ScalarForm form = multiply(a, b, -1, op);
    auto constant = getConstant(op->getOperand(1));
    if (a.isSum && !a.shifts.empty() && constant && *constant != 0)
      addScaled(form, a, 1 / *constant);
    return form;
  }
  if (isa<arith::NegFOp>(op)) {
    ScalarForm form = multiply(a, invariant(), 1, op);
    if (a.isSum && !a.shifts.empty())
      addScaled(form, a, -1);
    return form;
  }
  if (isa<arith::ExtFOp, arith::TruncFOp>(op))
    return a;
  if (isa<math::ExpOp, math::Exp2Op>(op) && a.isSum) {
    ScalarForm form;
    form.isProduct = true;
    addTo(form.exponents, a.shifts, isa<math::Exp2Op>(op) ? std::log(2.0) : 1);
    form.restIsOne = a.restIsZero;
    form.zero = a.minusInfinity;
    form.isSum = form.exponents.empty();
    return form;
  }
  return unknown(op);
}

//===----------------------------------------------------------------------===//
// Updates
//===----------------------------------------------------------------------===//

bool ScalarDegrees::isOnSpine(Value scalar, const RunningValue &value) {
  llvm::SetVector<Operation *> slice;
  bool found = false;
  addSlice(
      scalar, loop,
      [&](Value operand) {
        found |= operand == value.before;
        return operand == value.before;
      },
      slice);
  return found;
}

OpOperand *ScalarDegrees::getSpineOperand(Operation *op, const RunningValue &value) {
  OpOperand *result = nullptr;
  for (OpOperand &operand : op->getOpOperands())
    if (isOnSpine(operand.get(), value)) {
      if (result)
        return nullptr;
      result = &operand;
    }
  return result;
}

Update ScalarDegrees::ofSpine(Value scalar, const RunningValue &value) {
  Update update;
  if (scalar == value.before) {
    update.factor = invariant();
    update.factor.restIsOne = true;
    return update;
  }
  Operation *op = scalar.getDefiningOp();
  OpOperand *spine = getSpineOperand(op, value);
  unsigned position = spine ? spine->getOperandNumber() : 0;
  bool isKnown = spine && op->getBlock() == value.store->getBlock() &&
                 isa<FloatType>(scalar.getType()) &&
                 (isa<arith::AddFOp, arith::MulFOp, math::FmaOp>(op) ||
                  (isa<arith::SubFOp, arith::DivFOp>(op) && position == 0));
  if (!isKnown) {
    update.broken = op;
    return update;
  }
  update = ofSpine(spine->get(), value);
  if (update.broken)
    return update;
  bool isFma = isa<math::FmaOp>(op);
  // What the old value is multiplied with, and what is added.
  auto multiplyBy = [&](const ScalarForm &other, double sign) {
    update.factor = multiply(update.factor, other, sign, op);
    if (update.term)
      update.term = multiply(*update.term, other, sign, op);
  };
  auto addTerm = [&](const ScalarForm &other) {
    update.term = update.term ? add(*update.term, other, 1, op) : other;
  };
  auto other = [&](unsigned operand) -> ScalarForm { return of(op->getOperand(operand)); };
  if (isFma && position == 2) {
    addTerm(multiply(other(0), other(1), 1, op));
  } else if (isFma) {
    multiplyBy(other(1 - position), 1);
    addTerm(other(2));
  } else if (isa<arith::MulFOp>(op)) {
    multiplyBy(other(1 - position), 1);
  } else if (isa<arith::DivFOp>(op)) {
    multiplyBy(other(1), -1);
  } else {
    addTerm(other(1 - position));
  }
  return update;
}

Update ScalarDegrees::ofUpdate(unsigned value) {
  return ofSpine(values[value].after, values[value]);
}
