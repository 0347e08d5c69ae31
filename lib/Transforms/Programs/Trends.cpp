// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "attn/Transforms/Programs/Trends.h"
#include "attn/Transforms/Programs/Programs.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/AffineMap.h"

using namespace mlir;
using namespace attn::programs;

static Trend combine(Trend x, Trend y) {
  if (!x || !y || *x == *y || *y == 0)
    return y ? x : y;
  return *x == 0 ? y : std::nullopt;
}

static Trend scale(Trend x, int64_t factor) {
  return x ? Trend(factor > 0 ? *x : factor < 0 ? -*x : 0) : x;
}

/// Of an affine expression, of whose dimensions and symbols it is known.
static Trend findTrend(AffineExpr expression, unsigned dims, ArrayRef<Trend> operands) {
  if (auto dim = dyn_cast<AffineDimExpr>(expression))
    return operands[dim.getPosition()];
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expression))
    return operands[dims + symbol.getPosition()];
  auto binary = dyn_cast<AffineBinaryOpExpr>(expression);
  if (!binary)
    return 0;
  Trend left = findTrend(binary.getLHS(), dims, operands);
  Trend right = findTrend(binary.getRHS(), dims, operands);
  if (binary.getKind() == AffineExprKind::Add)
    return combine(left, right);
  if (left == 0 && right == 0)
    return 0;
  auto factor = dyn_cast<AffineConstantExpr>(binary.getRHS());
  return factor && binary.getKind() != AffineExprKind::Mod ? scale(left, factor.getValue())
                                                           : std::nullopt;
}

Trend Trends::find(Value value) {
  if (auto found = known.find(value); found != known.end())
    return found->second;
  Operation *op = value.getDefiningOp();
  Trend trend = op ? ofOp(op) : Trend(0);
  known[value] = trend;
  return trend;
}

Trend Trends::ofOp(Operation *op) {
  SmallVector<Trend> operands;
  for (Value operand : op->getOperands())
    operands.push_back(find(operand));
  if (AffineMap map = getAffineMap(op)) {
    Trend all = 0;
    for (AffineExpr result : map.getResults())
      all = combine(all, findTrend(result, map.getNumDims(), operands));
    return all;
  }
  if (isa<arith::SelectOp>(op) && operands[0] == 0)
    return combine(operands[1], operands[2]);
  if (isa<arith::MinSIOp, arith::MaxSIOp>(op))
    return combine(operands[0], operands[1]);
  // (Narrower sums may wrap.)
  bool isIndex = op->getNumResults() == 1 && op->getResult(0).getType().isIndex();
  if (isa<arith::AddIOp>(op) && isIndex)
    return combine(operands[0], operands[1]);
  if (isa<arith::SubIOp>(op) && isIndex)
    return combine(operands[0], scale(operands[1], -1));
  bool isFixed = llvm::all_of(operands, [](Trend trend) { return trend == 0; });
  return isFixed ? Trend(0) : std::nullopt;
}
