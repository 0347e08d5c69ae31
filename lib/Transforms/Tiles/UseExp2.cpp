// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Exponentials in base 2 whose factors are folded: a multiplication and an
// exponential per element where there were three operations in front of it.

#include "attn/Transforms/Tiles/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace attn {
#define GEN_PASS_DEF_ATTNUSEEXP2
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

using namespace mlir;

namespace {

constexpr double kLog2E = 1.44269504088896340736;

/// A vector of equal floats.
std::optional<double> getSplat(Value value) {
  DenseElementsAttr elements;
  if (!isa<VectorType>(value.getType()) || !matchPattern(value, m_Constant(&elements)) ||
      !elements.isSplat() || !isa<FloatType>(elements.getElementType()))
    return std::nullopt;
  return elements.getSplatValue<APFloat>().convertToDouble();
}

Value splat(OpBuilder &b, Location loc, Type type, double number) {
  auto vector = cast<VectorType>(type);
  return arith::ConstantOp::create(
      b, loc, DenseElementsAttr::get(vector, b.getFloatAttr(vector.getElementType(), number)));
}

/// `x * factor` with a positive, finite constant factor.
struct Scaled {
  Value x;
  double factor;
};
std::optional<Scaled> getScaled(Value value) {
  auto product = value.getDefiningOp<arith::MulFOp>();
  if (!product)
    return std::nullopt;
  for (auto [x, y] : {std::pair(product.getLhs(), product.getRhs()),
                      std::pair(product.getRhs(), product.getLhs())})
    if (auto factor = getSplat(y); factor && *factor > 0 && std::isfinite(*factor))
      return Scaled{x, *factor};
  return std::nullopt;
}

bool isNegativeInfinity(Value value) {
  auto number = getSplat(value);
  return number && std::isinf(*number) && *number < 0;
}

/// A vector that a tile repeats: a value per row, or one per column.
struct Repeated {
  Value vector;
  bool perRow;
};
std::optional<Repeated> getRepeated(Value tile) {
  auto transpose = tile.getDefiningOp<vector::TransposeOp>();
  if (transpose && transpose.getPermutation() != ArrayRef<int64_t>{1, 0})
    return std::nullopt;
  if (transpose)
    tile = transpose.getVector();
  auto broadcast = tile.getDefiningOp<vector::BroadcastOp>();
  if (!broadcast || !isa<VectorType>(broadcast.getSourceType()) ||
      cast<VectorType>(broadcast.getSourceType()).getRank() != 1 ||
      broadcast.getResultVectorType().getRank() != 2)
    return std::nullopt;
  return Repeated{broadcast.getSource(), bool(transpose)};
}

Value repeat(OpBuilder &b, Location loc, const Repeated &repeated, VectorType tile) {
  if (!repeated.perRow)
    return vector::BroadcastOp::create(b, loc, tile, repeated.vector);
  auto transposed = VectorType::get({tile.getDimSize(1), tile.getDimSize(0)}, tile.getElementType());
  Value broadcast = vector::BroadcastOp::create(b, loc, transposed, repeated.vector);
  return vector::TransposeOp::create(b, loc, broadcast, ArrayRef<int64_t>{1, 0});
}

/// select(mask, x * c, -inf) -> select(mask, x, -inf) * c.
struct ScaleBehindSelect : OpRewritePattern<arith::SelectOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::SelectOp op, PatternRewriter &b) const override {
    auto scaled = getScaled(op.getTrueValue());
    if (!scaled || !isNegativeInfinity(op.getFalseValue()))
      return failure();
    Value select = arith::SelectOp::create(b, op.getLoc(), op.getCondition(), scaled->x,
                                           op.getFalseValue());
    b.replaceOpWithNewOp<arith::MulFOp>(
        op, select, splat(b, op.getLoc(), op.getType(), scaled->factor));
    return success();
  }
};

/// if { x * c } else { y * c } -> if { x } else { y } * c.
struct ScaleBehindBranch : OpRewritePattern<scf::IfOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(scf::IfOp op, PatternRewriter &b) const override {
    if (op.getNumResults() == 0 || !op.elseBlock())
      return failure();
    bool changed = false;
    for (unsigned r = 0; r < op.getNumResults(); ++r) {
      auto kept = getScaled(op.thenYield().getOperand(r));
      auto masked = getScaled(op.elseYield().getOperand(r));
      if (!kept || !masked || kept->factor != masked->factor)
        continue;
      b.modifyOpInPlace(op, [&] {
        op.thenYield()->setOperand(r, kept->x);
        op.elseYield()->setOperand(r, masked->x);
      });
      b.setInsertionPointAfter(op);
      Value factor = splat(b, op.getLoc(), op.getResult(r).getType(), kept->factor);
      Value product = arith::MulFOp::create(b, op.getLoc(), op.getResult(r), factor);
      b.replaceAllUsesExcept(op.getResult(r), product, product.getDefiningOp());
      changed = true;
    }
    return success(changed);
  }
};

/// max(acc, max of x * c) -> max(acc, c * max of x).
struct ScaleBehindMaximum : OpRewritePattern<vector::MultiDimReductionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(vector::MultiDimReductionOp op, PatternRewriter &b) const override {
    auto scaled = getScaled(op.getSource());
    auto type = dyn_cast<VectorType>(op.getType());
    if (!scaled || !type || op.getKind() != vector::CombiningKind::MAXNUMF)
      return failure();
    Location loc = op.getLoc();
    Value start = splat(b, loc, type, -std::numeric_limits<double>::infinity());
    Value maximum = vector::MultiDimReductionOp::create(b, loc, scaled->x, start,
                                                        op.getReductionMask(), op.getKind());
    Value product =
        arith::MulFOp::create(b, loc, maximum, splat(b, loc, type, scaled->factor));
    if (isNegativeInfinity(op.getAcc()))
      b.replaceOp(op, product);
    else
      b.replaceOpWithNewOp<arith::MaxNumFOp>(op, op.getAcc(), product);
    return success();
  }
};

/// exp(x * c - r) -> exp2(fma(x, c log2 e, -r log2 e)), r one value per row or
/// column.
struct ExpToExp2 : OpRewritePattern<math::ExpOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::ExpOp op, PatternRewriter &b) const override {
    auto type = dyn_cast<VectorType>(op.getType());
    if (!type || !type.getElementType().isF32())
      return failure();
    Location loc = op.getLoc();
    auto difference = op.getOperand().getDefiningOp<arith::SubFOp>();
    std::optional<Repeated> row;
    if (difference)
      row = getRepeated(difference.getRhs());
    if (!row) {
      Value exponent =
          arith::MulFOp::create(b, loc, op.getOperand(), splat(b, loc, type, kLog2E));
      b.replaceOpWithNewOp<math::Exp2Op>(op, exponent);
      return success();
    }
    Value x = difference.getLhs();
    double factor = kLog2E;
    if (auto scaled = getScaled(x)) {
      x = scaled->x;
      factor *= scaled->factor;
    }
    row->vector = arith::MulFOp::create(b, loc, row->vector,
                                        splat(b, loc, row->vector.getType(), -kLog2E));
    Value exponent = math::FmaOp::create(b, loc, x, splat(b, loc, type, factor),
                                         repeat(b, loc, *row, type));
    b.replaceOpWithNewOp<math::Exp2Op>(op, exponent);
    return success();
  }
};

/// fma(x * c, d, y) -> fma(x, c * d, y), for factors that meet only after others
/// have moved.
struct ScaleIntoFma : OpRewritePattern<math::FmaOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::FmaOp op, PatternRewriter &b) const override {
    auto scaled = getScaled(op.getA());
    auto factor = getSplat(op.getB());
    if (!scaled || !factor)
      return failure();
    b.replaceOpWithNewOp<math::FmaOp>(
        op, scaled->x, splat(b, op.getLoc(), op.getType(), scaled->factor * *factor), op.getC());
    return success();
  }
};

/// x / r -> x * (1 / r), r one value per row.
struct DivideOncePerRow : OpRewritePattern<arith::DivFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::DivFOp op, PatternRewriter &b) const override {
    std::optional<Repeated> row = getRepeated(op.getRhs());
    if (!row || !row->perRow)
      return failure();
    Value one = splat(b, op.getLoc(), row->vector.getType(), 1.0);
    row->vector = arith::DivFOp::create(b, op.getLoc(), one, row->vector);
    b.replaceOpWithNewOp<arith::MulFOp>(
        op, op.getLhs(), repeat(b, op.getLoc(), *row, cast<VectorType>(op.getType())));
    return success();
  }
};

struct UseExp2Pass : attn::impl::AttnUseExp2Base<UseExp2Pass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<DivideOncePerRow, ExpToExp2, ScaleBehindBranch, ScaleBehindMaximum,
                 ScaleBehindSelect, ScaleIntoFma>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
