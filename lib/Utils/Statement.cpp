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
  // -0 is as neutral in a sum as 0.
  if (monoid == Reduction::Monoid::Add)
    return constant.getValue().isZero();
  Builder b(tensor.getContext());
  return constant == getNeutralElement(b, monoid, constant.getType());
}

FloatAttr attn::getNeutralElement(Builder &b, Reduction::Monoid monoid,
                                  Type type) {
  const llvm::fltSemantics &semantics =
      cast<FloatType>(type).getFloatSemantics();
  switch (monoid) {
  case Reduction::Monoid::Add:
    return b.getFloatAttr(type, APFloat::getZero(semantics));
  case Reduction::Monoid::Mul:
    return b.getFloatAttr(type, APFloat::getOne(semantics));
  case Reduction::Monoid::Max:
    return b.getFloatAttr(type, APFloat::getInf(semantics, /*Negative=*/true));
  case Reduction::Monoid::Min:
    return b.getFloatAttr(type, APFloat::getInf(semantics));
  }
  llvm_unreachable("all monoids are handled");
}

std::optional<unsigned> attn::getLoop(AffineMap map, unsigned dim) {
  if (auto expr = dyn_cast<AffineDimExpr>(map.getResult(dim)))
    return expr.getPosition();
  return std::nullopt;
}
