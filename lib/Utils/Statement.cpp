// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "attn/Utils/Statement.h"
#include "attn/Utils/Slices.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;

Value attn::buildStatement(ImplicitLocOpBuilder &b, unsigned domain, ArrayRef<Access> inputs,
                           Access out, StatementBody body) {
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
  SmallVector<utils::IteratorType> iterators(domain, utils::IteratorType::reduction);
  for (unsigned loop : out.loops)
    iterators[loop] = utils::IteratorType::parallel;
  return linalg::GenericOp::create(
             b, TypeRange(out.tensor.getType()), operands, ValueRange(out.tensor), maps, iterators,
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

std::optional<Reduction> attn::matchReduction(linalg::GenericOp op, unsigned index) {
  Block *body = op.getBlock();
  Value yielded = body->getTerminator()->getOperand(index);
  BlockArgument old = body->getArgument(op.getNumDpsInputs() + index);
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

/// Whether a value of the statement's body changes with one of `loops`. (Scalars of one body, where
/// the dependence graph has one statement.)
static bool dependsOn(linalg::GenericOp op, Value value,
                      const llvm::SmallDenseSet<unsigned, 4> &loops) {
  auto variesWith = [&](AffineMap map) {
    return llvm::any_of(loops, [&](unsigned loop) { return map.isFunctionOfDim(loop); });
  };
  auto isIn = [&](Operation *definition) { return definition->getBlock() == op.getBlock(); };
  auto varies = [&](Value each) {
    if (auto argument = dyn_cast<BlockArgument>(each))
      return argument.getOwner() == op.getBlock() &&
             variesWith(op.getIndexingMapsArray()[argument.getArgNumber()]);
    auto index = each.getDefiningOp<linalg::IndexOp>();
    return index && isIn(index) && loops.contains(index.getDim());
  };
  return followsFrom(value, varies, isIn);
}

std::optional<ScatterSum> attn::matchScatterSum(linalg::GenericOp op) {
  if (op->getNumResults() != 1 || op.getNumReductionLoops() == 0)
    return std::nullopt;
  std::optional<Reduction> reduction = matchReduction(op, 0);
  if (!reduction || reduction->monoid != Reduction::Monoid::Add)
    return std::nullopt;
  ScatterSum sum;
  sum.value = reduction->term;
  SmallVector<Value> conditions;
  for (auto select = sum.value.getDefiningOp<arith::SelectOp>();
       select && select->getBlock() == op.getBlock() &&
       matchPattern(select.getFalseValue(), m_AnyZeroFloat());
       select = sum.value.getDefiningOp<arith::SelectOp>()) {
    conditions.push_back(select.getCondition());
    sum.value = select.getTrueValue();
  }
  llvm::SmallDenseSet<unsigned, 4> loops;
  while (!conditions.empty()) {
    Value condition = conditions.pop_back_val();
    if (auto both = condition.getDefiningOp<arith::AndIOp>()) {
      conditions.push_back(both.getRhs());
      conditions.push_back(both.getLhs());
      continue;
    }
    auto compare = condition.getDefiningOp<arith::CmpIOp>();
    bool isIndex = false;
    for (unsigned side : {0, 1}) {
      if (!compare || isIndex || compare.getPredicate() != arith::CmpIPredicate::eq)
        break;
      auto here = compare->getOperand(side).getDefiningOp<linalg::IndexOp>();
      // A dimension of the table is one that no input has.
      if (!here || llvm::any_of(op.getDpsInputOperands(), [&](OpOperand *in) {
            return op.getMatchingIndexingMap(in).isFunctionOfDim(here.getDim());
          }))
        continue;
      isIndex = op.getIteratorTypesArray()[here.getDim()] == utils::IteratorType::parallel &&
                loops.insert(here.getDim()).second;
      if (isIndex)
        sum.indices.push_back({here.getDim(), compare->getOperand(1 - side)});
    }
    if (!isIndex)
      sum.conditions.push_back(condition);
  }
  bool fits = !loops.empty() && !dependsOn(op, sum.value, loops);
  for (Value condition : sum.conditions)
    fits &= !dependsOn(op, condition, loops);
  for (auto [loop, index] : sum.indices)
    fits &= !dependsOn(op, index, loops);
  return fits ? std::optional(sum) : std::nullopt;
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

FloatAttr attn::getNeutralElement(Builder &b, Reduction::Monoid monoid, Type type) {
  const llvm::fltSemantics &semantics = cast<FloatType>(type).getFloatSemantics();
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
