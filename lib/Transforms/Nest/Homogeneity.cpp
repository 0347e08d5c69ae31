// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Homogeneity.h"
#include "attn/Utils/Statement.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include <cmath>

using namespace mlir;
using namespace attn;
using Kind = Degree::Kind;

bool Degree::operator==(const Degree &other) const {
  return kind == other.kind && std::abs(k - other.k) < 1e-6;
}

Homogeneity::Homogeneity(Value pivot, Degree degree, const DenseSet<Value> &fixed) : fixed(fixed) {
  degrees[pivot] = degree;
}

Degree Homogeneity::ofTensor(Value tensor) {
  if (auto known = degrees.find(tensor); known != degrees.end())
    return known->second;
  if (fixed.contains(tensor) || !tensor.getDefiningOp<linalg::GenericOp>())
    return {};
  return degrees[tensor] = ofStatement(tensor);
}

Degree Homogeneity::ofStatement(Value tensor) {
  auto op = tensor.getDefiningOp<linalg::GenericOp>();
  unsigned index = cast<OpResult>(tensor).getResultNumber();
  Degree degree;
  if (op.getNumReductionLoops() == 0) {
    degree = ofScalar(op.getBlock()->getTerminator()->getOperand(index), op);
  } else if (std::optional<Reduction> reduction = matchReduction(op, index)) {
    degree = ofScalar(reduction->term, op);
    bool sum = reduction->monoid == Reduction::Monoid::Add;
    bool extremum =
        reduction->monoid == Reduction::Monoid::Max || reduction->monoid == Reduction::Monoid::Min;
    bool distributes = degree.kind == Kind::Invariant ||
                       (degree.kind == Kind::Scale && (sum || extremum)) ||
                       (degree.kind == Kind::Power && (sum || extremum)) ||
                       (degree.kind == Kind::Shift && extremum);
    if (degree.kind != Kind::Unknown && !distributes)
      degree = Degree::unknown(reduction->combiner);
  } else {
    for (OpOperand &operand : op->getOpOperands())
      if (ofTensor(operand.get()).kind != Kind::Invariant)
        degree = Degree::unknown(op);
  }
  return degree;
}

Degree Homogeneity::ofScalar(Value value, linalg::GenericOp op) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (argument.getOwner() != op.getBlock())
      return {};
    OpOperand &operand = op->getOpOperand(argument.getArgNumber());
    // The old value of an output that is overwritten.
    return ofTensor(operand.get());
  }
  Operation *scalar = value.getDefiningOp();
  if (scalar->getBlock() != op.getBlock())
    return {};
  return ofOp(scalar, op);
}

static bool isConstant(Value value, bool negativeInfinity) {
  FloatAttr constant;
  if (!matchPattern(value, m_Constant(&constant)))
    return false;
  const APFloat &number = constant.getValue();
  return negativeInfinity ? number.isInfinity() && number.isNegative() : number.isZero();
}

Degree Homogeneity::ofSelect(Operation *select, linalg::GenericOp op) {
  Value condition = select->getOperand(0);
  Value ifTrue = select->getOperand(1), ifFalse = select->getOperand(2);
  Degree a = ofScalar(ifTrue, op), b = ofScalar(ifFalse, op);
  for (const Degree &degree : {a, b})
    if (degree.kind == Kind::Unknown)
      return degree;
  // The guard of a row without a kept key: x == -inf ? 0 : x shifts with x
  // wherever a sum can be different from zero.
  if (auto compare = condition.getDefiningOp<arith::CmpFOp>())
    if (compare.getPredicate() == arith::CmpFPredicate::OEQ && compare.getLhs() == ifFalse &&
        isConstant(compare.getRhs(), true) && isConstant(ifTrue, false) && b.kind == Kind::Shift)
      return b;
  Degree c = ofScalar(condition, op);
  if (c.kind != Kind::Invariant)
    return Degree::unknown(select);
  if (a == b)
    return a;
  // Zero stays zero under a factor, -inf stays -inf under a shift.
  auto absorbs = [&](Value constant, const Degree &degree) {
    if (degree.kind == Kind::Scale || degree.kind == Kind::Power)
      return isConstant(constant, false);
    return degree.kind == Kind::Shift && isConstant(constant, true);
  };
  if (absorbs(ifTrue, b))
    return b;
  if (absorbs(ifFalse, a))
    return a;
  return Degree::unknown(select);
}

Degree Homogeneity::ofOp(Operation *scalar, linalg::GenericOp op) {
  if (isa<arith::SelectOp>(scalar))
    return ofSelect(scalar, op);
  SmallVector<Degree> in;
  bool invariant = true;
  for (Value operand : scalar->getOperands()) {
    in.push_back(ofScalar(operand, op));
    if (in.back().kind == Kind::Unknown)
      return in.back();
    invariant &= in.back().kind == Kind::Invariant;
  }
  if (invariant)
    return {};
  bool shifts = llvm::all_of(
      in, [](const Degree &d) { return d.kind == Kind::Shift || d.kind == Kind::Invariant; });
  auto factors = [&](Kind kind) {
    return llvm::all_of(
        in, [&](const Degree &d) { return d.kind == kind || d.kind == Kind::Invariant; });
  };
  auto multiply = [&](double sign) {
    if (factors(Kind::Scale))
      return Degree::scale(in[0].k + sign * in[1].k);
    if (factors(Kind::Power))
      return Degree::power(in[0].k + sign * in[1].k);
    return Degree::unknown(scalar);
  };
  if (isa<arith::ExtFOp, arith::TruncFOp>(scalar))
    return in[0];
  if (isa<arith::NegFOp>(scalar))
    return shifts ? Degree::shift(-in[0].k) : in[0];
  if (isa<arith::AddFOp, arith::SubFOp>(scalar)) {
    double sign = isa<arith::SubFOp>(scalar) ? -1 : 1;
    if (shifts)
      return Degree::shift(in[0].k + sign * in[1].k);
    if (in[0] == in[1])
      return in[0];
  }
  if (isa<arith::MulFOp>(scalar)) {
    FloatAttr constant;
    for (unsigned side : {0, 1})
      if (in[side].kind == Kind::Shift &&
          matchPattern(scalar->getOperand(1 - side), m_Constant(&constant)))
        return Degree::shift(in[side].k * constant.getValueAsDouble());
    return multiply(1);
  }
  if (isa<arith::DivFOp>(scalar))
    return multiply(-1);
  if (isa<math::ExpOp>(scalar) && shifts)
    return Degree::scale(in[0].k);
  if (isa<math::Exp2Op>(scalar) && shifts)
    return Degree::scale(in[0].k * std::log(2.0));
  if (isa<math::LogOp>(scalar) && in[0].kind == Kind::Scale)
    return Degree::shift(in[0].k);
  if (isa<math::SqrtOp>(scalar) && !shifts)
    return {in[0].kind, in[0].k / 2, nullptr};
  if (isa<math::RsqrtOp>(scalar) && !shifts)
    return {in[0].kind, -in[0].k / 2, nullptr};
  // Positive factors do not change whether a value is zero.
  if (auto compare = dyn_cast<arith::CmpFOp>(scalar))
    if (!shifts && (isConstant(compare.getRhs(), false) || isConstant(compare.getLhs(), false)))
      return {};
  return Degree::unknown(scalar);
}
