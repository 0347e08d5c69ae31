// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Uniform values of a tile loop: recognised by their operands, numbered as the
// symbols of affine expressions, computed before the loop when a bound needs
// them.

#include "MaskPredicate.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace attn::tiles {

bool LoopUniforms::isUniform(Value value) {
  if (loop.isDefinedOutsideOfLoop(value))
    return true;
  auto known = uniform.find(value);
  if (known != uniform.end())
    return known->second;
  Operation *op = value.getDefiningOp();
  bool result = op && op->getNumRegions() == 0 && isMemoryEffectFree(op) &&
                llvm::all_of(op->getOperands(), [&](Value operand) { return isUniform(operand); });
  uniform[value] = result;
  return result;
}

Value LoopUniforms::hoist(OpBuilder &b, Value value) {
  if (loop.isDefinedOutsideOfLoop(value))
    return value;
  if (Value known = hoisted.lookupOrNull(value))
    return known;
  Operation *op = value.getDefiningOp();
  for (Value operand : op->getOperands())
    hoisted.map(operand, hoist(b, operand));
  b.clone(*op, hoisted);
  return hoisted.lookup(value);
}

AffineExpr LoopUniforms::getSymbol(Value value, Reading reading) {
  unsigned index = 0;
  for (; index < symbols.size(); ++index)
    if (symbols[index].value == value && symbols[index].reading == reading)
      break;
  if (index == symbols.size())
    symbols.push_back({value, reading, Value()});
  return getAffineSymbolExpr(index, loop.getContext());
}

AffineExpr LoopUniforms::getSymbolOfBound(Value value) {
  AffineExpr symbol = getSymbol(value, Reading::Scalar);
  symbols[cast<AffineSymbolExpr>(symbol).getPosition()].emitted = value;
  return symbol;
}

bool LoopUniforms::mayBeHuge(Value value) {
  Type type = getElementTypeOrSelf(value.getType());
  if (type.isInteger())
    return type.getIntOrFloatBitWidth() > 40;
  if (auto arg = dyn_cast<BlockArgument>(value))
    if (isa<LoopLikeOpInterface>(arg.getOwner()->getParentOp()))
      return false;
  if (auto cast = value.getDefiningOp<arith::IndexCastOp>())
    return mayBeHuge(cast.getIn());
  if (isa_and_nonnull<tensor::DimOp, memref::DimOp, affine::AffineApplyOp, affine::AffineMinOp,
                      affine::AffineMaxOp, arith::ConstantOp, vector::StepOp>(
          value.getDefiningOp()))
    return false;
  return !isExtent(value);
}

Value reduceElements(OpBuilder &b, Location loc, vector::CombiningKind kind, Value value) {
  auto type = cast<VectorType>(value.getType());
  if (type.getRank() > 1) {
    Type element = type.getElementType();
    unsigned width = getBits(element);
    APInt start(width, 0);
    if (kind == vector::CombiningKind::MINSI)
      start = APInt::getSignedMaxValue(width);
    else if (kind == vector::CombiningKind::MAXSI)
      start = APInt::getSignedMinValue(width);
    else if (kind == vector::CombiningKind::AND)
      start = APInt::getAllOnes(width);
    auto row = VectorType::get(type.getShape().take_back(), element);
    Value init = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(row, start));
    SmallVector<int64_t> reduced;
    for (int64_t d = 0; d + 1 < type.getRank(); ++d)
      reduced.push_back(d);
    value = vector::MultiDimReductionOp::create(b, loc, row, kind, value, init,
                                                b.getDenseI64ArrayAttr(reduced));
  }
  return vector::ReductionOp::create(b, loc, kind, value);
}

Value LoopUniforms::emitSymbol(OpBuilder &b, unsigned number) {
  if (symbols[number].emitted)
    return symbols[number].emitted;
  Value source = symbols[number].value;
  Location loc = source.getLoc();
  Value value = hoist(b, source);
  if (symbols[number].reading != Reading::Scalar) {
    value = reduceElements(b, loc,
                           symbols[number].reading == Reading::Min ? vector::CombiningKind::MINSI
                                                                   : vector::CombiningKind::MAXSI,
                           value);
  }
  if (!value.getType().isIndex())
    value = arith::IndexCastOp::create(b, loc, b.getIndexType(), value);
  if (mayBeHuge(source)) {
    Value least = arith::ConstantIndexOp::create(b, loc, -kMaxConstant);
    Value most = arith::ConstantIndexOp::create(b, loc, kMaxConstant);
    value = arith::MaxSIOp::create(b, loc, value, least);
    value = arith::MinSIOp::create(b, loc, value, most);
  }
  symbols[number].emitted = value;
  return value;
}

Span LoopUniforms::getSpan(unsigned symbol) const { return tiles::getSpan(symbols[symbol].value); }

} // namespace attn::tiles
