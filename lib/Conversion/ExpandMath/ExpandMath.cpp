// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// exp as exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2. Adding a
// large constant rounds x / ln 2 and leaves n in the low mantissa bits, from
// where a shift makes it an exponent. ln 2 is split in two so that n ln 2 is
// exact enough (Cody and Waite, 1980). The polynomials are minimax in relative
// error over the reduced range; they carry a factor of two, which pays for the
// scale 2^(n-1), so that the largest results do not overflow on the way.
//
// tanh by an odd minimax polynomial where |x| < 1, else by exp.
//
// sin and cos by reduction modulo pi/2 in f64, whose remainder has all digits of
// f32, and polynomials of Cephes (Moshier). atan by an odd minimax polynomial.
// log1p and expm1 of f64 by the logarithm and exponential of a rounded 1 + x and
// exp(x), corrected by what was rounded off (Kahan).

#include "attn/Conversion/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include <cmath>
#include <limits>

namespace attn {
#define GEN_PASS_DEF_ATTNEXPANDMATH
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numExpanded("attn-expand-math", "expanded",
                              "Functions of math that became arithmetic by patterns of attnc");

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
const ExpTable table32 = {
    -87.4, 88.8, 12582912.0 + 126.0, 0.693359375, -2.12194440054690583e-4, 23, coefficients32};
const ExpTable table64 = {-708.5,
                          709.9,
                          6755399441055744.0 + 1022.0,
                          6.93145751953125e-1,
                          1.42860682030941723212e-6,
                          52,
                          coefficients64};

/// `scalar` in the form of `type`, which is a scalar or a vector.
Value constant(ImplicitLocOpBuilder &b, Type type, TypedAttr scalar) {
  if (auto vector = dyn_cast<VectorType>(type))
    return arith::ConstantOp::create(b, DenseElementsAttr::get(vector, Attribute(scalar)));
  return arith::ConstantOp::create(b, scalar);
}

/// `type`, a scalar or a vector, with another element type; null for others.
Type withElement(Type type, Type element) {
  if (auto vector = dyn_cast<VectorType>(type))
    return vector.clone(element);
  return isa<ShapedType>(type) ? Type() : element;
}

/// An op on a float type of less than 32 bits, computed in f32.
template <typename Op> void computeInF32(Op op, PatternRewriter &rewriter) {
  ImplicitLocOpBuilder b(op.getLoc(), rewriter);
  Type wide = withElement(op.getType(), b.getF32Type());
  Value x = arith::ExtFOp::create(b, wide, op.getOperand());
  rewriter.replaceOpWithNewOp<arith::TruncFOp>(op, op.getType(), Op::create(b, x).getResult());
}

/// e^x, or 2^x with `toBase2`.
Value expandExp(ImplicitLocOpBuilder &b, Value x, const ExpTable &table, bool toBase2 = false) {
  Type type = x.getType(), element = getElementTypeOrSelf(type);
  constexpr double kLn2 = 0.6931471805599453;
  auto number = [&](double value) { return constant(b, type, b.getFloatAttr(element, value)); };
  // Bounds that let NaN through, in the form of one machine instruction.
  auto bound = [&](double value, arith::CmpFPredicate beyond) {
    Value limit = number(toBase2 ? value / kLn2 : value);
    Value out = arith::CmpFOp::create(b, beyond, limit, x);
    x = arith::SelectOp::create(b, out, limit, x);
  };
  bound(table.lowest, arith::CmpFPredicate::OGT);
  bound(table.highest, arith::CmpFPredicate::OLT);
  Value shifter = number(table.shifter), shifted, r;
  if (toBase2) {
    shifted = arith::AddFOp::create(b, x, shifter);
    Value rest = arith::SubFOp::create(b, x, arith::SubFOp::create(b, shifted, shifter));
    r = arith::MulFOp::create(b, rest, number(kLn2));
  } else {
    shifted = math::FmaOp::create(b, x, number(1.4426950408889634), shifter);
    Value n = arith::SubFOp::create(b, shifted, shifter);
    r = math::FmaOp::create(b, n, number(-table.ln2High), x);
    r = math::FmaOp::create(b, n, number(-table.ln2Low), r);
  }
  Value p = number(2 * table.coefficients.back());
  for (double coefficient : llvm::reverse(table.coefficients.drop_back()))
    p = math::FmaOp::create(b, p, r, number(2 * coefficient));
  Type integer = b.getIntegerType(element.getIntOrFloatBitWidth());
  if (auto vector = dyn_cast<VectorType>(type))
    integer = vector.clone(integer);
  Value bits = arith::BitcastOp::create(b, integer, shifted);
  Value places = constant(
      b, integer,
      cast<TypedAttr>(b.getIntegerAttr(getElementTypeOrSelf(integer), table.mantissaBits)));
  bits = arith::ShLIOp::create(b, bits, places);
  Value scale = arith::BitcastOp::create(b, type, bits);
  return arith::MulFOp::create(b, p, scale);
}

class ExpandExp : public OpRewritePattern<math::ExpOp> {
public:
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(math::ExpOp op, PatternRewriter &rewriter) const override {
    Type type = op.getType(), element = getElementTypeOrSelf(type);
    if (!withElement(type, element))
      return rewriter.notifyMatchFailure(op, "expected a scalar or a vector");
    if (!element.isF32() && !element.isF64()) {
      if (element.getIntOrFloatBitWidth() >= 32)
        return rewriter.notifyMatchFailure(op, "expected at most 64 bits");
      computeInF32(op, rewriter);
      return success();
    }
    numExpanded.at(op);
    ImplicitLocOpBuilder b(op.getLoc(), rewriter);
    rewriter.replaceOp(op, expandExp(b, op.getOperand(), element.isF32() ? table32 : table64));
    return success();
  }
};

/// A function of f32, written by `expand`; of smaller types in f32.
template <typename Op, Value (*expand)(ImplicitLocOpBuilder &, Value)>
class ExpandF32 : public OpRewritePattern<Op> {
public:
  using OpRewritePattern<Op>::OpRewritePattern;

  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    Type type = op.getType(), element = getElementTypeOrSelf(type);
    if (!withElement(type, element) || element.getIntOrFloatBitWidth() > 32)
      return rewriter.notifyMatchFailure(op, "expected a scalar or a vector of at most 32 bits");
    if (!element.isF32()) {
      computeInF32(op, rewriter);
      return success();
    }
    numExpanded.at(op);
    ImplicitLocOpBuilder b(op.getLoc(), rewriter);
    rewriter.replaceOp(op, expand(b, op.getOperand()));
    return success();
  }
};

/// A function of f64, written by `expand`.
template <typename Op, Value (*expand)(ImplicitLocOpBuilder &, Value)>
class ExpandF64 : public OpRewritePattern<Op> {
public:
  using OpRewritePattern<Op>::OpRewritePattern;

  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    Type type = op.getType(), element = getElementTypeOrSelf(type);
    if (!withElement(type, element) || !element.isF64())
      return rewriter.notifyMatchFailure(op, "expected f64");
    numExpanded.at(op);
    ImplicitLocOpBuilder b(op.getLoc(), rewriter);
    rewriter.replaceOp(op, expand(b, op.getOperand()));
    return success();
  }
};

/// Constants of the element type of `like`, in its form.
auto numbersLike(ImplicitLocOpBuilder &b, Value like) {
  return [&b, type = like.getType()](double value) {
    return constant(b, type, b.getFloatAttr(getElementTypeOrSelf(type), value));
  };
}

Value isEqual(ImplicitLocOpBuilder &b, Value x, Value y) {
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, x, y);
}

/// Horner's rule; the coefficient of the highest power comes first.
Value polynomial(ImplicitLocOpBuilder &b, Value x, ArrayRef<double> coefficients) {
  auto number = numbersLike(b, x);
  Value p = number(coefficients.front());
  for (double coefficient : coefficients.drop_front())
    p = math::FmaOp::create(b, p, x, number(coefficient));
  return p;
}

/// From 1 on, 1 - 2 / (exp(2x) + 1) takes the error of the exponential with less
/// than half of its weight.
Value expandTanh(ImplicitLocOpBuilder &b, Value x) {
  // Of (tanh(x) / x - 1) / x^2 in x^2, constant term first. Maximal relative
  // error of the whole 4.6e-9.
  static const double coefficients[] = {
      -0.3333329542947359,   0.1333234452903033,    -0.053879799969506675, 0.021486649572868534,
      -0.007946094518247394, 0.0023013558135032324, -0.0003584494605875821};
  auto number = [&](double value) { return constant(b, x.getType(), b.getF32FloatAttr(value)); };
  Value square = arith::MulFOp::create(b, x, x);
  Value p = number(ArrayRef(coefficients).back());
  for (double coefficient : llvm::reverse(ArrayRef(coefficients).drop_back()))
    p = math::FmaOp::create(b, p, square, number(coefficient));
  Value small = math::FmaOp::create(b, arith::MulFOp::create(b, x, square), p, x);
  Value size = math::AbsFOp::create(b, x);
  Value grown = math::ExpOp::create(b, arith::AddFOp::create(b, size, size));
  Value rest = arith::DivFOp::create(b, number(2), arith::AddFOp::create(b, grown, number(1)));
  Value large = arith::SubFOp::create(b, number(1), rest);
  // A NaN is not small, and stays.
  Value isSmall = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, size, number(1));
  Value result = arith::SelectOp::create(b, isSmall, small, large);
  // That of -0 too, whose polynomial is 0.
  return math::CopySignOp::create(b, result, x);
}

/// sin(x + `quarters` pi/2) of f32. The product with 2/pi is rounded by a large
/// constant, in whose low bits the number of quarters is left.
template <int quarters> Value expandSine(ImplicitLocOpBuilder &b, Value x) {
  Type wideType = withElement(x.getType(), b.getF64Type());
  Type longType = withElement(x.getType(), b.getI64Type());
  Type integerType = withElement(x.getType(), b.getI32Type());
  Value wide = arith::ExtFOp::create(b, wideType, x);
  auto number64 = numbersLike(b, wide);
  Value shifter = number64(6755399441055744.0);
  Value shifted = math::FmaOp::create(b, wide, number64(0.63661977236758134), shifter);
  Value n = arith::SubFOp::create(b, shifted, shifter);
  Value rest = math::FmaOp::create(b, n, number64(-1.5707963267948966), wide);
  rest = math::FmaOp::create(b, n, number64(-6.123233995736766e-17), rest);
  Value r = arith::TruncFOp::create(b, x.getType(), rest);
  auto number = numbersLike(b, r);
  Value square = arith::MulFOp::create(b, r, r);
  Value p = polynomial(b, square, {-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1});
  Value sine = math::FmaOp::create(b, arith::MulFOp::create(b, r, square), p, r);
  p = polynomial(b, square,
                 {2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2, -0.5, 1.0});
  auto integer = [&](int value) { return constant(b, integerType, b.getI32IntegerAttr(value)); };
  Value bits = arith::BitcastOp::create(b, longType, shifted);
  Value quarter = arith::TruncIOp::create(b, integerType, bits);
  quarter = arith::AddIOp::create(b, quarter, integer(quarters));
  Value odd = arith::AndIOp::create(b, quarter, integer(1));
  Value isOdd = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, odd, integer(0));
  Value value = arith::SelectOp::create(b, isOdd, p, sine);
  Value half = arith::AndIOp::create(b, quarter, integer(2));
  Value isSecond = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, half, integer(0));
  value = arith::SelectOp::create(b, isSecond, arith::NegFOp::create(b, value), value);
  if (quarters != 0)
    return value;
  // The polynomial of -0 is 0.
  return arith::SelectOp::create(b, isEqual(b, x, number(0)), x, value);
}

/// atan(t) for 0 <= t <= 1, by an odd minimax polynomial.
Value atanOfSmall(ImplicitLocOpBuilder &b, Value t) {
  Value square = arith::MulFOp::create(b, t, t);
  // Of (atan(t) / t - 1) / t^2 in t^2. Maximal relative error of the whole 2.6e-9.
  Value p = polynomial(b, square,
                       {-0.0017936219233625414, 0.010914606900431058, -0.03117784837410483,
                        0.05795759650202709, -0.08403450524040616, 0.10952185850494903,
                        -0.14264241696090685, 0.1999854828588135, -0.3333329908918017});
  return math::FmaOp::create(b, arith::MulFOp::create(b, t, square), p, t);
}

/// Where a = |x| > 1, pi/2 - atan(1 / a).
Value expandAtan(ImplicitLocOpBuilder &b, Value x) {
  auto number = numbersLike(b, x);
  Value one = number(1), size = math::AbsFOp::create(b, x);
  Value isLarge = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, size, one);
  Value turned = arith::DivFOp::create(b, one, size);
  Value t = arith::SelectOp::create(b, isLarge, turned, size);
  Value small = atanOfSmall(b, t);
  Value large = arith::SubFOp::create(b, number(1.5707963267948966), small);
  Value result = arith::SelectOp::create(b, isLarge, large, small);
  return math::CopySignOp::create(b, result, x);
}

/// The angle of (x, y): in the first octant, then turned by what signs and sizes say. Signs of
/// zeros count, and infinities are as IEEE 754's atan2 has them.
Value expandAtan2(ImplicitLocOpBuilder &b, Value y, Value x) {
  auto number = numbersLike(b, x);
  Value zero = number(0), one = number(1);
  Value height = math::AbsFOp::create(b, y), width = math::AbsFOp::create(b, x);
  // NaN where one of them is.
  Value larger = arith::MaximumFOp::create(b, height, width);
  Value smaller = arith::MinimumFOp::create(b, height, width);
  Value t = arith::DivFOp::create(b, smaller, larger);
  t = arith::SelectOp::create(b, isEqual(b, larger, zero), zero, t);
  Value infinity = number(std::numeric_limits<double>::infinity());
  t = arith::SelectOp::create(b, isEqual(b, smaller, infinity), one, t);
  Value angle = atanOfSmall(b, t);
  Value isSteep = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, height, width);
  angle = arith::SelectOp::create(
      b, isSteep, arith::SubFOp::create(b, number(1.5707963267948966), angle), angle);
  Value sign = math::CopySignOp::create(b, one, x);
  Value isLeft = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, sign, zero);
  angle = arith::SelectOp::create(
      b, isLeft, arith::SubFOp::create(b, number(3.1415926535897931), angle), angle);
  return math::CopySignOp::create(b, angle, y);
}

class ExpandAtan2 : public OpRewritePattern<math::Atan2Op> {
public:
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(math::Atan2Op op, PatternRewriter &rewriter) const override {
    ImplicitLocOpBuilder b(op.getLoc(), rewriter);
    Type wide = withElement(op.getType(), b.getF32Type());
    unsigned width = getElementTypeOrSelf(op.getType()).getIntOrFloatBitWidth();
    if (!wide || width > 32)
      return failure();
    Value y = op.getLhs(), x = op.getRhs();
    if (width < 32) {
      y = arith::ExtFOp::create(b, wide, y);
      x = arith::ExtFOp::create(b, wide, x);
    }
    numExpanded.at(op);
    Value angle = expandAtan2(b, y, x);
    if (width < 32)
      angle = arith::TruncFOp::create(b, op.getType(), angle);
    rewriter.replaceOp(op, angle);
    return success();
  }
};

Value expandLog1p(ImplicitLocOpBuilder &b, Value x) {
  auto number = numbersLike(b, x);
  Value one = number(1), u = arith::AddFOp::create(b, x, one);
  Value ratio = arith::DivFOp::create(b, x, arith::SubFOp::create(b, u, one));
  Value log = math::LogOp::create(b, u);
  Value result = arith::MulFOp::create(b, log, ratio);
  Value infinity = number(std::numeric_limits<double>::infinity());
  result = arith::SelectOp::create(b, isEqual(b, u, infinity), u, result);
  return arith::SelectOp::create(b, isEqual(b, u, one), x, result);
}

Value expandExpM1(ImplicitLocOpBuilder &b, Value x) {
  auto number = numbersLike(b, x);
  Value one = number(1), u = math::ExpOp::create(b, x);
  Value less = arith::SubFOp::create(b, u, one);
  Value ratio = arith::DivFOp::create(b, x, math::LogOp::create(b, u));
  Value result = arith::MulFOp::create(b, less, ratio);
  // Of -1 and infinity, where the logarithm says nothing.
  Value infinity = number(std::numeric_limits<double>::infinity());
  Value isEnd = arith::OrIOp::create(b, isEqual(b, less, number(-1)), isEqual(b, u, infinity));
  result = arith::SelectOp::create(b, isEnd, less, result);
  return arith::SelectOp::create(b, isEqual(b, u, one), x, result);
}

Value expandExp64(ImplicitLocOpBuilder &b, Value x) { return expandExp(b, x, table64); }
Value expandExp2(ImplicitLocOpBuilder &b, Value x) { return expandExp(b, x, table64, true); }

/// x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); of f the logarithm is 2 atanh(s) with
/// s = f / (2 + f), by its series in s^2 < 0.0295, in a form whose first term is f itself.
Value expandLog(ImplicitLocOpBuilder &b, Value x) {
  constexpr double kLn2High = 6.93145751953125e-1, kLn2Low = 1.42860682030941723212e-6;
  constexpr int64_t kRootOfHalf = 0x3fe6a09e667f3bcd, kDigits = 52;
  constexpr double kLeastNormal = 2.2250738585072014e-308, kShift = 54;
  auto number = numbersLike(b, x);
  Type longType = withElement(x.getType(), b.getI64Type());
  auto integer = [&](int64_t value) { return constant(b, longType, b.getI64IntegerAttr(value)); };
  Value zero = number(0), infinity = number(std::numeric_limits<double>::infinity());
  Value isTiny = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, x, number(kLeastNormal));
  Value grown = arith::MulFOp::create(b, x, number(std::ldexp(1.0, int(kShift))));
  Value bits = arith::BitcastOp::create(b, longType, arith::SelectOp::create(b, isTiny, grown, x));
  Value exponent = arith::ShRSIOp::create(b, arith::SubIOp::create(b, bits, integer(kRootOfHalf)),
                                          integer(kDigits));
  bits = arith::SubIOp::create(b, bits, arith::ShLIOp::create(b, exponent, integer(kDigits)));
  Value f = arith::SubFOp::create(b, arith::BitcastOp::create(b, x.getType(), bits), number(1));
  Value k = arith::SIToFPOp::create(b, x.getType(), exponent);
  k = arith::SubFOp::create(b, k, arith::SelectOp::create(b, isTiny, number(kShift), zero));
  Value s = arith::DivFOp::create(b, f, arith::AddFOp::create(b, f, number(2)));
  Value square = arith::MulFOp::create(b, s, s);
  SmallVector<double> series;
  for (int power = 23; power >= 3; power -= 2)
    series.push_back(2.0 / power);
  Value rest = arith::MulFOp::create(b, square, polynomial(b, square, series));
  Value half = arith::MulFOp::create(b, arith::MulFOp::create(b, f, f), number(0.5));
  // k ln 2 + f - (f^2/2 - s (f^2/2 + rest)), small terms first.
  Value sum = arith::MulFOp::create(b, s, arith::AddFOp::create(b, half, rest));
  sum = math::FmaOp::create(b, k, number(kLn2Low), sum);
  sum = arith::SubFOp::create(b, f, arith::SubFOp::create(b, half, sum));
  Value result = math::FmaOp::create(b, k, number(kLn2High), sum);
  result = arith::SelectOp::create(b, isEqual(b, x, infinity), infinity, result);
  Value isWrong = arith::CmpFOp::create(b, arith::CmpFPredicate::ULT, x, zero); // or NaN
  result =
      arith::SelectOp::create(b, isWrong, number(std::numeric_limits<double>::quiet_NaN()), result);
  return arith::SelectOp::create(b, isEqual(b, x, zero), arith::NegFOp::create(b, infinity),
                                 result);
}

Value expandLog2(ImplicitLocOpBuilder &b, Value x) {
  return arith::MulFOp::create(b, expandLog(b, x), numbersLike(b, x)(1.4426950408889634));
}

Value expandLog10(ImplicitLocOpBuilder &b, Value x) {
  return arith::MulFOp::create(b, expandLog(b, x), numbersLike(b, x)(0.4342944819032518));
}

Value expandRsqrt(ImplicitLocOpBuilder &b, Value x) {
  return arith::DivFOp::create(b, numbersLike(b, x)(1), math::SqrtOp::create(b, x));
}

/// u / (u + 2) with u = e^2|x| - 1, which is as exact as u; from 20 on it is 1.
Value expandTanh64(ImplicitLocOpBuilder &b, Value x) {
  auto number = numbersLike(b, x);
  Value size = math::AbsFOp::create(b, x), most = number(20);
  Value isLarge = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, size, most);
  size = arith::SelectOp::create(b, isLarge, most, size);
  Value u = math::ExpM1Op::create(b, arith::AddFOp::create(b, size, size));
  Value result = arith::DivFOp::create(b, u, arith::AddFOp::create(b, u, number(2)));
  return math::CopySignOp::create(b, result, x);
}

/// f64 to bf16 rounds to f32 first, as `static_cast<BFloat16>(double)` of PyTorch does.
class RoundTwice : public OpRewritePattern<arith::TruncFOp> {
public:
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::TruncFOp op, PatternRewriter &rewriter) const override {
    Type type = op.getIn().getType();
    if (!getElementTypeOrSelf(type).isF64() || !getElementTypeOrSelf(op.getType()).isBF16())
      return failure();
    Value single = arith::TruncFOp::create(rewriter, op.getLoc(),
                                           withElement(type, rewriter.getF32Type()), op.getIn());
    rewriter.replaceOpWithNewOp<arith::TruncFOp>(op, op.getType(), single);
    return success();
  }
};

struct ExpandMath : attn::impl::AttnExpandMathBase<ExpandMath> {
  using AttnExpandMathBase::AttnExpandMathBase;

  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<RoundTwice>(&getContext());
    auto isKept = [&](StringRef name) { return llvm::is_contained(keep, name); };
    if (!isKept(math::ExpOp::getOperationName()))
      patterns.add<ExpandExp>(&getContext());
    if (!isKept(math::TanhOp::getOperationName()))
      patterns.add<ExpandF32<math::TanhOp, expandTanh>>(&getContext());
    if (!isKept(math::SinOp::getOperationName()))
      patterns.add<ExpandF32<math::SinOp, expandSine<0>>>(&getContext());
    if (!isKept(math::CosOp::getOperationName()))
      patterns.add<ExpandF32<math::CosOp, expandSine<1>>>(&getContext());
    if (!isKept(math::AtanOp::getOperationName()))
      patterns.add<ExpandF32<math::AtanOp, expandAtan>>(&getContext());
    if (!isKept(math::Atan2Op::getOperationName()))
      patterns.add<ExpandAtan2>(&getContext());
    if (doubles)
      patterns.add<ExpandF64<math::ExpOp, expandExp64>, ExpandF64<math::Exp2Op, expandExp2>,
                   ExpandF64<math::LogOp, expandLog>, ExpandF64<math::Log2Op, expandLog2>,
                   ExpandF64<math::Log10Op, expandLog10>, ExpandF64<math::RsqrtOp, expandRsqrt>,
                   ExpandF64<math::TanhOp, expandTanh64>>(&getContext());
    if (!isKept(math::Log1pOp::getOperationName()))
      patterns.add<ExpandF64<math::Log1pOp, expandLog1p>>(&getContext());
    if (!isKept(math::ExpM1Op::getOperationName()))
      patterns.add<ExpandF64<math::ExpM1Op, expandExpM1>>(&getContext());
    auto isOther = [&](StringRef name) {
      return !isKept(name) && name != math::ExpOp::getOperationName() &&
             name != math::TanhOp::getOperationName() && name != math::SinOp::getOperationName() &&
             name != math::CosOp::getOperationName() && name != math::AtanOp::getOperationName() &&
             name != math::Atan2Op::getOperationName() &&
             name != math::CopySignOp::getOperationName() &&
             name != math::SqrtOp::getOperationName() &&
             // Upstream's is for one vector type of AVX2 only.
             name != math::RsqrtOp::getOperationName() && name != math::FmaOp::getOperationName() &&
             name != math::FloorOp::getOperationName() && name != math::CeilOp::getOperationName();
    };
    populateMathF32ExpansionPatterns(patterns, isOther);
    populateMathPolynomialApproximationPatterns(patterns, isOther);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
