// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// affine: index arithmetic by maps.

#include "Elementwise.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;

/// `operands` are the dimensions, then the symbols. Nothing where it divides by
/// zero.
static std::optional<int64_t> evaluate(AffineExpr expr, unsigned dims, ArrayRef<int64_t> operands) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return operands[dim.getPosition()];
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return operands[dims + symbol.getPosition()];
  auto binary = cast<AffineBinaryOpExpr>(expr);
  std::optional<int64_t> left = evaluate(binary.getLHS(), dims, operands);
  std::optional<int64_t> right = evaluate(binary.getRHS(), dims, operands);
  if (!left || !right)
    return std::nullopt;
  if (expr.getKind() == AffineExprKind::Add)
    return *left + *right;
  if (expr.getKind() == AffineExprKind::Mul)
    return *left * *right;
  if (*right == 0)
    return std::nullopt;
  switch (expr.getKind()) {
  case AffineExprKind::Mod:
    return llvm::mod(*left, *right);
  case AffineExprKind::FloorDiv:
    return llvm::divideFloorSigned(*left, *right);
  case AffineExprKind::CeilDiv:
    return llvm::divideCeilSigned(*left, *right);
  default:
    llvm_unreachable("a kind of affine expression");
  }
}

enum class Choose { Only, Least, Greatest };

template <typename OpTy, Choose choose> static Step applyMap(Fiber &fiber, const Instruction &i) {
  AffineMap map = cast<OpTy>(i.op).getAffineMap();
  SmallVector<int64_t> operands;
  for (unsigned k = 0; k < i.operands.size(); ++k)
    operands.push_back(fiber.integer(i, k));
  std::optional<int64_t> result;
  for (AffineExpr expr : map.getResults()) {
    std::optional<int64_t> value = evaluate(expr, map.getNumDims(), operands);
    if (!value) {
      i.op->emitError("divides by zero");
      return Step::Failed;
    }
    result = !result                      ? *value
             : choose == Choose::Greatest ? std::max(*result, *value)
                                          : std::min(*result, *value);
  }
  fiber.result(i).integer = *result;
  return Step::Next;
}

/// Operands: the linear index, then the dynamic part of the basis.
static Step delinearize(Fiber &fiber, const Instruction &i) {
  auto op = cast<affine::AffineDelinearizeIndexOp>(i.op);
  int64_t rest = fiber.integer(i, 0);
  unsigned operand = 1;
  SmallVector<int64_t> basis(op.getStaticBasis());
  for (int64_t &size : basis)
    if (ShapedType::isDynamic(size))
      size = fiber.integer(i, operand++);
  unsigned results = unsigned(i.results.size());
  // Without an outer bound the first result is what is left.
  for (unsigned k = results; k-- > 0;) {
    int64_t at = int64_t(k) - (int64_t(results) - int64_t(basis.size()));
    if (at < 0 || (k == 0 && basis.size() == results)) {
      fiber.result(i, k).integer = rest;
      continue;
    }
    if (basis[size_t(at)] <= 0) {
      i.op->emitError() << "divides by " << basis[size_t(at)];
      return Step::Failed;
    }
    fiber.result(i, k).integer = llvm::mod(rest, basis[size_t(at)]);
    rest = llvm::divideFloorSigned(rest, basis[size_t(at)]);
  }
  return Step::Next;
}

void interpreter::registerAffine(Translator &translator) {
  translator.add("affine.apply", applyMap<affine::AffineApplyOp, Choose::Only>);
  translator.add("affine.min", applyMap<affine::AffineMinOp, Choose::Least>);
  translator.add("affine.max", applyMap<affine::AffineMaxOp, Choose::Greatest>);
  translator.add("affine.delinearize_index", delinearize);
}
