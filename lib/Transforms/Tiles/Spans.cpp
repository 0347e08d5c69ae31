// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Spans.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace attn::tiles {

Span Span::ofType(Type type) {
  Type element = getElementTypeOrSelf(type);
  if (!element.isInteger() || element.getIntOrFloatBitWidth() >= 64)
    return {};
  unsigned width = element.getIntOrFloatBitWidth();
  return {llvm::minIntN(width), llvm::maxIntN(width)};
}

Span Span::operator+(Span other) const {
  Span sum;
  if (least == kNoLeast || other.least == kNoLeast ||
      llvm::AddOverflow(least, other.least, sum.least))
    sum.least = kNoLeast;
  if (most == kNoMost || other.most == kNoMost || llvm::AddOverflow(most, other.most, sum.most))
    sum.most = kNoMost;
  return sum;
}

Span Span::operator*(int64_t factor) const {
  if (factor == 0)
    return point(0);
  Span product;
  bool flips = factor < 0;
  bool noLeast = flips ? most == kNoMost : least == kNoLeast;
  bool noMost = flips ? least == kNoLeast : most == kNoMost;
  if (noLeast || llvm::MulOverflow(flips ? most : least, factor, product.least))
    product.least = kNoLeast;
  if (noMost || llvm::MulOverflow(flips ? least : most, factor, product.most))
    product.most = kNoMost;
  return product;
}

Span Span::floorDiv(int64_t by) const {
  return {least == kNoLeast ? least : llvm::divideFloorSigned(least, by),
          most == kNoMost ? most : llvm::divideFloorSigned(most, by)};
}

Span getSpan(AffineExpr e, function_ref<Span(AffineExpr)> leaf) {
  if (auto c = dyn_cast<AffineConstantExpr>(e))
    return Span::point(c.getValue());
  auto binary = dyn_cast<AffineBinaryOpExpr>(e);
  if (!binary)
    return leaf(e);
  Span left = getSpan(binary.getLHS(), leaf);
  if (binary.getKind() == AffineExprKind::Add)
    return left + getSpan(binary.getRHS(), leaf);
  auto by = dyn_cast<AffineConstantExpr>(binary.getRHS());
  if (binary.getKind() == AffineExprKind::Mul) {
    if (by)
      return left * by.getValue();
    Span right = getSpan(binary.getRHS(), leaf);
    return left.least >= 0 && right.least >= 0 ? Span{0, Span::kNoMost} : Span();
  }
  if (!by || by.getValue() <= 0)
    return {};
  switch (binary.getKind()) {
  case AffineExprKind::FloorDiv:
    return left.floorDiv(by.getValue());
  case AffineExprKind::CeilDiv:
    return (left + Span::point(by.getValue() - 1)).floorDiv(by.getValue());
  default:
    return {0, by.getValue() - 1};
  }
}

bool isExtent(Value value) {
  return llvm::any_of(value.getUsers(), [&](Operation *user) {
    if (auto forOp = dyn_cast<scf::ForOp>(user))
      return forOp.getUpperBound() == value || forOp.getLowerBound() == value;
    return isa<scf::ForallOp, tensor::EmptyOp>(user);
  });
}

static Span spanOf(Value value, int depth);

static Span spanOf(OpFoldResult value, int depth) {
  if (std::optional<int64_t> constant = getConstantIntValue(value))
    return Span::point(*constant);
  return spanOf(cast<Value>(value), depth);
}

/// The variable of a loop: up to its last iteration where that is known.
static Span ofVariable(OpFoldResult lower, OpFoldResult upper, OpFoldResult step, int depth) {
  Span first = spanOf(lower, depth), end = spanOf(upper, depth);
  Span result = {first.least, (end + Span::point(-1)).most};
  std::optional<int64_t> from = getConstantIntValue(lower), to = getConstantIntValue(upper),
                         by = getConstantIntValue(step);
  if (from && to && by && *by > 0 && *from < *to)
    result.most = *from + (*to - 1 - *from) / *by * *by;
  return result;
}

static Span ofArgument(BlockArgument argument, int depth) {
  Operation *parent = argument.getOwner()->getParentOp();
  if (auto loop = dyn_cast<scf::ForOp>(parent); loop && argument == loop.getInductionVar())
    return ofVariable(loop.getLowerBound(), loop.getUpperBound(), loop.getStep(), depth);
  if (auto loop = dyn_cast<scf::ForallOp>(parent))
    if (unsigned n = argument.getArgNumber(); n < loop.getRank())
      return ofVariable(loop.getMixedLowerBound()[n], loop.getMixedUpperBound()[n],
                        loop.getMixedStep()[n], depth);
  return {};
}

static Span ofMap(AffineMap map, OperandRange operands, bool isMin, int depth) {
  auto leaf = [&](AffineExpr e) {
    if (auto dim = dyn_cast<AffineDimExpr>(e))
      return spanOf(operands[dim.getPosition()], depth);
    return spanOf(operands[map.getNumDims() + cast<AffineSymbolExpr>(e).getPosition()], depth);
  };
  Span result = getSpan(map.getResult(0), leaf);
  for (AffineExpr e : map.getResults().drop_front()) {
    Span other = getSpan(e, leaf);
    result = isMin ? Span{std::min(result.least, other.least), std::min(result.most, other.most)}
                   : Span{std::max(result.least, other.least), std::max(result.most, other.most)};
  }
  return result;
}

static Span ofOp(Operation *op, int depth) {
  auto operand = [&](unsigned n) { return spanOf(op->getOperand(n), depth); };
  return llvm::TypeSwitch<Operation *, Span>(op)
      .Case<tensor::DimOp, memref::DimOp>([](auto) { return Span{0, kMaxExtent}; })
      .Case([&](arith::AddIOp) { return operand(0) + operand(1); })
      .Case([&](arith::SubIOp) { return operand(0) + operand(1) * -1; })
      .Case([&](arith::MulIOp) {
        Span a = operand(0), b = operand(1);
        if (b.least == b.most)
          return a * b.least;
        return a.least >= 0 && b.least >= 0 ? Span{0, Span::kNoMost} : Span();
      })
      .Case<arith::IndexCastOp, arith::ExtSIOp>([&](auto) { return operand(0); })
      .Case([&](affine::AffineApplyOp apply) {
        return ofMap(apply.getAffineMap(), apply.getOperands(), /*isMin=*/false, depth);
      })
      .Case([&](affine::AffineMinOp op) {
        return ofMap(op.getAffineMap(), op.getOperands(), /*isMin=*/true, depth);
      })
      .Case([&](affine::AffineMaxOp op) {
        return ofMap(op.getAffineMap(), op.getOperands(), /*isMin=*/false, depth);
      })
      .Default([](Operation *) { return Span(); });
}

static Span spanOf(Value value, int depth) {
  APInt constant;
  if (matchPattern(value, m_ConstantInt(&constant)) && constant.getSignificantBits() <= 64)
    return Span::point(constant.getSExtValue());
  Span type = Span::ofType(value.getType());
  if (depth == 0 || !value.getType().isIntOrIndex())
    return type;
  Span span;
  if (auto argument = dyn_cast<BlockArgument>(value))
    span = ofArgument(argument, depth - 1);
  else
    span = ofOp(value.getDefiningOp(), depth - 1);
  if (isExtent(value))
    span.most = std::min(span.most, kMaxExtent);
  // What does not stay within its type wraps.
  return span.isWithin(type) ? span : type;
}

Span getSpan(Value value) { return spanOf(value, /*depth=*/8); }

} // namespace attn::tiles
