// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "attn/Utils/Statement.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;

Value attn::buildStatement(ImplicitLocOpBuilder &b, unsigned domain,
                           ArrayRef<Access> inputs, Access out,
                           StatementBody body) {
  auto projection = [&](ArrayRef<unsigned> loops) {
    SmallVector<AffineExpr> exprs;
    for (unsigned loop : loops)
      exprs.push_back(b.getAffineDimExpr(loop));
    return AffineMap::get(domain, 0, exprs, b.getContext());
  };
  SmallVector<AffineMap> maps;
  SmallVector<Value> operands;
  for (const Access &input : inputs) {
    operands.push_back(input.tensor);
    maps.push_back(projection(input.loops));
  }
  maps.push_back(projection(out.loops));
  SmallVector<utils::IteratorType> iterators(domain,
                                             utils::IteratorType::reduction);
  for (unsigned loop : out.loops)
    iterators[loop] = utils::IteratorType::parallel;
  return linalg::GenericOp::create(
             b, TypeRange(out.tensor.getType()), operands,
             ValueRange(out.tensor), maps, iterators,
             [&](OpBuilder &builder, Location loc, ValueRange args) {
               linalg::YieldOp::create(builder, loc, body(builder, loc, args));
             })
      .getResult(0);
}

Value attn::minusInfinity(OpBuilder &b, Location loc, Type type) {
  auto infinity = APFloat::getInf(cast<FloatType>(type).getFloatSemantics(),
                                  /*Negative=*/true);
  return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, infinity));
}

std::optional<Reduction> attn::matchReduction(linalg::GenericOp op,
                                              unsigned index) {
  Block *body = op.getBlock();
  Value yielded = body->getTerminator()->getOperand(index);
  BlockArgument old =
      body->getArgument(op.getNumDpsInputs() + index);
  Operation *combiner = yielded.getDefiningOp();
  if (!combiner || combiner->getNumOperands() != 2 || !old.hasOneUse() ||
      *old.user_begin() != combiner)
    return std::nullopt;
  Reduction result;
  result.combiner = combiner;
  result.term = combiner->getOperand(combiner->getOperand(0) == old ? 1 : 0);
  if (isa<arith::AddFOp>(combiner))
    result.monoid = Reduction::Monoid::Add;
  else if (isa<arith::MulFOp>(combiner))
    result.monoid = Reduction::Monoid::Mul;
  else if (isa<arith::MaxNumFOp, arith::MaximumFOp>(combiner))
    result.monoid = Reduction::Monoid::Max;
  else if (isa<arith::MinNumFOp, arith::MinimumFOp>(combiner))
    result.monoid = Reduction::Monoid::Min;
  else
    return std::nullopt;
  return result;
}

Value attn::getFillValue(Value tensor) {
  if (auto fill = tensor.getDefiningOp<linalg::FillOp>())
    return fill.getInputs()[0];
  return {};
}

bool attn::isNeutralFill(Value tensor, Reduction::Monoid monoid) {
  Value value = getFillValue(tensor);
  FloatAttr constant;
  if (!value || !matchPattern(value, m_Constant(&constant)))
    return false;
  const APFloat &number = constant.getValue();
  switch (monoid) {
  case Reduction::Monoid::Add:
    return number.isZero();
  case Reduction::Monoid::Mul:
    return number.isExactlyValue(1.0);
  case Reduction::Monoid::Max:
    return number.isInfinity() && number.isNegative();
  case Reduction::Monoid::Min:
    return number.isInfinity() && !number.isNegative();
  }
  llvm_unreachable("all monoids are handled");
}

std::optional<unsigned> attn::getLoop(AffineMap map, unsigned dim) {
  if (auto expr = dyn_cast<AffineDimExpr>(map.getResult(dim)))
    return expr.getPosition();
  return std::nullopt;
}
