// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// exp as exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2. Adding a
// large constant rounds x / ln 2 and leaves n in the low mantissa bits, from
// where a shift makes it an exponent. ln 2 is split in two so that n ln 2 is
// exact enough (Cody and Waite, 1980). The polynomials are minimax in relative
// error over the reduced range; they carry a factor of two, which pays for the
// scale 2^(n-1), so that the largest results do not overflow on the way.

#include "attn/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace attn {
#define GEN_PASS_DEF_ATTNEXPANDMATH
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;

namespace {
/// The numbers of one element type.
struct ExpTable {
  double lowest;  // n - 1 is the least exponent here: the scale is zero
  double highest; // overflows to +inf
  double shifter; // 1.5 * 2^mantissa, and the bias of the exponent less one
  double ln2High, ln2Low;
  int mantissaBits;
  ArrayRef<double> coefficients; // constant term first
};

// Maximal relative error 1.9e-9.
const double coefficients32[] = {1.0,
                                 1.0,
                                 0.49999991059303284,
                                 0.16666419804096222,
                                 0.041668232530355453,
                                 0.008374898694455624,
                                 0.0013836738653481007};
// Maximal relative error 3.1e-18.
const double coefficients64[] = {1.0,
                                 1.0,
                                 0.5000000000000018,
                                 0.16666666666666163,
                                 0.041666666666491395,
                                 0.008333333333561066,
                                 0.0013888888951593783,
                                 0.00019841269430246627,
                                 2.480148612267086e-05,
                                 2.7557623733578877e-06,
                                 2.763244168477436e-07,
                                 2.499419081233358e-08};
const ExpTable table32 = {-87.4,
                          88.8,
                          12582912.0 + 126.0,
                          0.693359375,
                          -2.12194440054690583e-4,
                          23,
                          coefficients32};
const ExpTable table64 = {-708.5,
                          709.9,
                          6755399441055744.0 + 1022.0,
                          6.93145751953125e-1,
                          1.42860682030941723212e-6,
                          52,
                          coefficients64};

class ExpandExp : public OpRewritePattern<math::ExpOp> {
public:
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(math::ExpOp op,
                                PatternRewriter &rewriter) const override {
    Type type = op.getType(), element = getElementTypeOrSelf(type);
    ImplicitLocOpBuilder b(op.getLoc(), rewriter);
    auto like = [&](Type newElement) -> Type {
      if (auto vector = dyn_cast<VectorType>(type))
        return vector.clone(newElement);
      return isa<ShapedType>(type) ? Type() : newElement;
    };
    if (!like(element))
      return rewriter.notifyMatchFailure(op, "expected a scalar or a vector");
    if (!element.isF32() && !element.isF64()) {
      if (element.getIntOrFloatBitWidth() >= 32)
        return rewriter.notifyMatchFailure(op, "expected at most 64 bits");
      Value wide =
          arith::ExtFOp::create(b, like(b.getF32Type()), op.getOperand());
      wide = math::ExpOp::create(b, wide);
      rewriter.replaceOpWithNewOp<arith::TruncFOp>(op, type, wide);
      return success();
    }
    rewriter.replaceOp(
        op, expand(b, op.getOperand(), element.isF32() ? table32 : table64));
    return success();
  }

private:
  static Value constant(ImplicitLocOpBuilder &b, Type type, TypedAttr scalar) {
    if (auto vector = dyn_cast<VectorType>(type))
      return arith::ConstantOp::create(
          b, DenseElementsAttr::get(vector, Attribute(scalar)));
    return arith::ConstantOp::create(b, scalar);
  }

  static Value expand(ImplicitLocOpBuilder &b, Value x, const ExpTable &table) {
    Type type = x.getType(), element = getElementTypeOrSelf(type);
    auto number = [&](double value) {
      return constant(b, type, b.getFloatAttr(element, value));
    };
    // Bounds that let NaN through, in the form of one machine instruction.
    auto bound = [&](Value limit, arith::CmpFPredicate beyond) {
      Value out = arith::CmpFOp::create(b, beyond, limit, x);
      x = arith::SelectOp::create(b, out, limit, x);
    };
    bound(number(table.lowest), arith::CmpFPredicate::OGT);
    bound(number(table.highest), arith::CmpFPredicate::OLT);
    Value shifter = number(table.shifter);
    Value shifted =
        math::FmaOp::create(b, x, number(1.4426950408889634), shifter);
    Value n = arith::SubFOp::create(b, shifted, shifter);
    Value r = math::FmaOp::create(b, n, number(-table.ln2High), x);
    r = math::FmaOp::create(b, n, number(-table.ln2Low), r);
    Value p = number(2 * table.coefficients.back());
    for (double coefficient : llvm::reverse(table.coefficients.drop_back()))
      p = math::FmaOp::create(b, p, r, number(2 * coefficient));
    Type integer = b.getIntegerType(element.getIntOrFloatBitWidth());
    if (auto vector = dyn_cast<VectorType>(type))
      integer = vector.clone(integer);
    Value bits = arith::BitcastOp::create(b, integer, shifted);
    Value places =
        constant(b, integer,
                 cast<TypedAttr>(b.getIntegerAttr(getElementTypeOrSelf(integer),
                                                  table.mantissaBits)));
    bits = arith::ShLIOp::create(b, bits, places);
    Value scale = arith::BitcastOp::create(b, type, bits);
    return arith::MulFOp::create(b, p, scale);
  }
};

struct ExpandMath : attn::impl::AttnExpandMathBase<ExpandMath> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<ExpandExp>(&getContext());
    auto isOther = [](StringRef name) {
      return name != math::ExpOp::getOperationName() &&
             name != math::SqrtOp::getOperationName() &&
             // Upstream's is for one vector type of AVX2 only.
             name != math::RsqrtOp::getOperationName() &&
             name != math::FmaOp::getOperationName() &&
             name != math::FloorOp::getOperationName() &&
             name != math::CeilOp::getOperationName();
    };
    populateMathF32ExpansionPatterns(patterns, isOther);
    populateMathPolynomialApproximationPatterns(patterns, isOther);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
