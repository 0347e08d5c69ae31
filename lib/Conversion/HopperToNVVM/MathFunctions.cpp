// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Exponentials, logarithms, hyperbolic tangents and other functions of f32 by instructions.

#include "Lowering.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace attn::hopper;

/// One over a constant, if both are normal numbers.
static std::optional<double> invert(Value value) {
  FloatAttr constant;
  DenseElementsAttr splat;
  APFloat number(0.0f);
  if (matchPattern(value, m_Constant(&constant)))
    number = constant.getValue();
  else if (matchPattern(value, m_Constant(&splat)) && splat.isSplat())
    number = splat.getSplatValue<APFloat>();
  if (&number.getSemantics() != &APFloat::IEEEsingle() || !number.isNormal())
    return std::nullopt;
  double inverse = 1 / number.convertToDouble();
  return APFloat(float(inverse)).isNormal() ? std::optional(inverse) : std::nullopt;
}

/// A value without the constant factors of its products, and these.
static std::pair<Value, double> splitFactors(Value value) {
  double factor = 1;
  auto getConstant = [](Value other) -> std::optional<double> {
    DenseElementsAttr splat;
    if (!matchPattern(other, m_Constant(&splat)) || !splat.isSplat())
      return std::nullopt;
    return splat.getSplatValue<APFloat>().convertToDouble();
  };
  while (Operation *op = value.getDefiningOp()) {
    std::optional<double> next;
    if (isa<arith::MulFOp>(op))
      next = getConstant(op->getOperand(1));
    else if (isa<arith::DivFOp>(op))
      next = invert(op->getOperand(1));
    if (!next)
      break;
    factor *= *next;
    value = op->getOperand(0);
  }
  return {value, factor};
}

/// The derivatives 1 - t^2 of a hyperbolic tangent t. As 4 e^2x / (1 + e^2x)^2 they are as exact as
/// others where t is near 1 or -1, and 0 where e^2x is.
static SmallVector<arith::SubFOp> findDerivatives(math::TanhOp tanh) {
  SmallVector<arith::SubFOp> found;
  for (Operation *user : tanh->getUsers()) {
    auto square = dyn_cast<arith::MulFOp>(user);
    if (!square || square.getLhs() != square.getRhs())
      continue;
    for (Operation *next : square->getUsers()) {
      auto difference = dyn_cast<arith::SubFOp>(next);
      if (difference && matchPattern(difference.getLhs(), m_OneFloat()) &&
          !llvm::is_contained(found, difference))
        found.push_back(difference);
    }
  }
  return found;
}

/// tanh x = (e^2x - 1) / (e^2x + 1), with one reciprocal for four elements,
/// that of their product: kernels with a tanh per element wait for the special
/// function unit. Where e^2x is limited, the result is 1; no product is too
/// large. An element that is no number stays out of the product.
bool KernelLowering::lowerTanh(Operation *op, Layout layout) {
  auto tanh = dyn_cast<math::TanhOp>(op);
  if (!tanh || layout != Layout::Tile || !getElementTypeOrSelf(tanh.getType()).isF32())
    return false;
  constexpr double kTwoLog2E = 2.8853900817779268, kHighest = 30;
  constexpr size_t kGroup = 4;
  auto [source, factor] = splitFactors(tanh.getOperand());
  SmallVector<Value> all = elements(source, layout);
  llvm::SetVector<Value> distinct(all.begin(), all.end());
  DenseMap<Value, Value> results, slopes;
  SmallVector<arith::SubFOp> derivatives = findDerivatives(tanh);
  Value one = constantF32(1.0), two = constantF32(-2.0);
  Value scale = constantF32(kTwoLog2E * factor), highest = constantF32(kHighest);
  auto contract = arith::FastMathFlags::contract;
  auto times = [&](Value x, Value y) -> Value { return arith::MulFOp::create(b, x, y, contract); };
  for (ArrayRef<Value> rest = distinct.getArrayRef(); !rest.empty();
       rest = rest.drop_front(std::min(rest.size(), kGroup))) {
    ArrayRef<Value> group = rest.take_front(kGroup);
    // 1 + e^2x; those that are numbers; products of these up to each.
    SmallVector<Value, kGroup> exponentials, sums, numbers, products;
    for (Value x : group) {
      Value exponent = LLVM::MinimumOp::create(b, times(x, scale), highest);
      exponentials.push_back(exp2(exponent));
      sums.push_back(arith::AddFOp::create(b, exponentials.back(), one));
      numbers.push_back(LLVM::MaxNumOp::create(b, sums.back(), one));
      products.push_back(products.empty() ? numbers.back()
                                          : times(products.back(), numbers.back()));
    }
    Value inverse = NVVM::RcpApproxFtzF32Op::create(b, b.getF32Type(), products.back());
    for (size_t n = group.size(); n-- > 0;) {
      Value own = n ? times(inverse, products[n - 1]) : inverse;
      results[group[n]] = arith::MulFOp::create(b, arith::AddFOp::create(b, sums[n], two), own);
      if (!derivatives.empty()) {
        Value twice = arith::AddFOp::create(b, own, own);
        slopes[group[n]] = times(times(exponentials[n], twice), twice);
      }
      if (n)
        inverse = times(inverse, numbers[n]);
    }
  }
  auto valuesOf = [&](const DenseMap<Value, Value> &known) {
    return Parts(llvm::map_to_vector(all, [&](Value x) { return known.lookup(x); }));
  };
  setParts(tanh.getResult(), layout, valuesOf(results));
  for (arith::SubFOp derivative : derivatives) {
    setParts(derivative.getResult(), layout, valuesOf(slopes));
    loweredEarly.insert(derivative);
  }
  return true;
}

/// 2^x without the special function unit: a polynomial of x - round(x), in [-1/2, 1/2], within
/// 1.02e-4 of 2^ of that (minimax, degree 3, 1 at 0), to whose exponent round(x) is added, in 9
/// instructions. Limits make 0, or less than the least normal number, of what is below 2^-126,
/// and inf of what is above 2^127; NaN becomes the largest finite number, which is infinite
/// in 16 bits.
Value KernelLowering::emulateExp2(Value x) {
  constexpr double kCoefficients[] = {0.055008865892887115, 0.2422109693288803, 0.693282961845398,
                                      1.0};
  // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
  constexpr double kRound = 12582912.0;
  Type i32 = b.getI32Type();
  auto add = [&](Value a, double c) -> Value {
    return arith::AddFOp::create(b, a, constantF32(c));
  };
  x = LLVM::MinimumOp::create(b, LLVM::MaximumOp::create(b, x, constantF32(-127)),
                              constantF32(128));
  Value shifted = add(x, kRound);
  Value rest = arith::SubFOp::create(b, x, add(shifted, -kRound));
  Value sum = constantF32(kCoefficients[0]);
  for (double coefficient : ArrayRef(kCoefficients).drop_front())
    sum = fma(sum, rest, constantF32(coefficient));
  Value exponent =
      LLVM::ShlOp::create(b, LLVM::BitcastOp::create(b, i32, shifted), constantI32(23));
  Value bits = LLVM::AddOp::create(b, exponent, LLVM::BitcastOp::create(b, i32, sum));
  return LLVM::BitcastOp::create(b, b.getF32Type(), bits);
}

/// Tiles of which a part is computed by polynomials: register pairs are pairs of columns.
bool KernelLowering::lowerExp2(Operation *op, Layout layout) {
  auto every = op->getAttrOfType<IntegerAttr>(kEmulatedAttr);
  if (!isa<math::Exp2Op>(op) || !every || layout != Layout::Tile ||
      !getElementTypeOrSelf(op->getResult(0).getType()).isF32())
    return false;
  Parts result;
  for (auto [e, x] : llvm::enumerate(elements(op->getOperand(0), layout))) {
    bool isOwn = int64_t(e / 2) % every.getInt() == every.getInt() - 1;
    result.values.push_back(isOwn ? emulateExp2(x) : exp2(x));
  }
  setParts(op->getResult(0), layout, std::move(result));
  return true;
}

Value KernelLowering::intrinsic(StringRef name, Type type, ValueRange operands) {
  return LLVM::CallIntrinsicOp::create(b, type, b.getStringAttr(name), operands).getResult(0);
}

/// x = rest 2^exponent, with rest in [sqrt(1/2), sqrt(2)), so that a logarithm is
/// not rounded before it is added to what it belongs to. What is not a normal
/// number, and a negative one, stays whole.
std::pair<Value, Value> KernelLowering::splitExponent(Value x) {
  constexpr int64_t kLeastNormal = 0x00800000, kNormals = 0x7f000000, kRootOfHalf = 0x3f3504f3;
  Type i32 = b.getI32Type();
  auto number = [&](int64_t value) { return constant(b.getI32IntegerAttr(value)); };
  auto minus = [&](Value a, Value c) -> Value { return arith::SubIOp::create(b, a, c); };
  Value bits = arith::BitcastOp::create(b, i32, x), digits = number(23);
  Value isNormal = arith::CmpIOp::create(b, arith::CmpIPredicate::ult,
                                         minus(bits, number(kLeastNormal)), number(kNormals));
  Value exponent = arith::ShRSIOp::create(b, minus(bits, number(kRootOfHalf)), digits);
  exponent = arith::SelectOp::create(b, isNormal, exponent, number(0));
  Value rest = minus(bits, arith::ShLIOp::create(b, exponent, digits));
  return {arith::SIToFPOp::create(b, b.getF32Type(), exponent),
          arith::BitcastOp::create(b, b.getF32Type(), rest)};
}

/// Functions of f32 by instructions; null if the function is none of them.
/// The natural logarithm between 1/2 and 3/2, within 1 unit in the last place (Cephes, logf).
Value KernelLowering::logarithmNearOne(Value x) {
  constexpr double kCoefficients[] = {7.0376836292e-2,  -1.1514610310e-1, 1.1676998740e-1,
                                      -1.2420140846e-1, 1.4249322787e-1,  -1.6668057665e-1,
                                      2.0000714765e-1,  -2.4999993993e-1, 3.3333331174e-1};
  Value f = arith::SubFOp::create(b, x, constantF32(1.0));
  Value square = arith::MulFOp::create(b, f, f), p = constantF32(kCoefficients[0]);
  for (double coefficient : ArrayRef(kCoefficients).drop_front())
    p = fma(p, f, constantF32(coefficient));
  Value cube = arith::MulFOp::create(b, f, square);
  Value rest = fma(square, constantF32(-0.5), arith::MulFOp::create(b, cube, p));
  return arith::AddFOp::create(b, f, rest);
}

Value KernelLowering::emitMath(Operation *op, ValueRange operands) {
  Type f32 = b.getF32Type();
  Value x = operands.empty() ? Value() : operands[0];
  auto times = [&](Value a, double c) -> Value {
    return arith::MulFOp::create(b, a, constantF32(c));
  };
  auto log2 = [&](Value a) { return intrinsic("llvm.nvvm.lg2.approx.f", f32, a); };
  auto logarithm = [&](Value a, double ofTwo) -> Value {
    auto [exponent, rest] = splitExponent(a);
    return fma(exponent, constantF32(ofTwo), times(log2(rest), ofTwo));
  };
  // Of a row, for a log-sum-exp: the instruction's error is 2^-22 near 1.
  auto logarithmOfRow = [&](Value a) -> Value {
    auto [exponent, rest] = splitExponent(a);
    Value near = logarithmNearOne(rest), other = times(log2(rest), 0.6931471805599453);
    Value distance = arith::SubFOp::create(b, rest, constantF32(1.0));
    Value size = intrinsic("llvm.fabs", f32, distance);
    Value isNear = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, size, constantF32(0.5));
    return fma(exponent, constantF32(0.6931471805599453),
               arith::SelectOp::create(b, isNear, near, other));
  };
  auto isOfRows = [&] {
    auto type = dyn_cast<VectorType>(op->getResult(0).getType());
    return type && type.getRank() == 1;
  };
  auto reciprocal = [&](Value a) -> Value { return NVVM::RcpApproxFtzF32Op::create(b, f32, a); };
  return TypeSwitch<Operation *, Value>(op)
      .Case([&](math::Exp2Op) { return exp2(x); })
      .Case([&](math::ExpOp) { return exp2(times(x, 1.4426950408889634)); })
      .Case([&](math::Log2Op) { return log2(x); })
      .Case([&](math::LogOp) {
        return isOfRows() ? logarithmOfRow(x) : logarithm(x, 0.6931471805599453);
      })
      .Case([&](math::Log10Op) { return logarithm(x, 0.30102999566398120); })
      .Case([&](math::TanhOp) -> Value {
        // 1 - 2 / (1 + e^2x): 1 and -1 at the ends, where e^2x is inf and 0.
        Value e = exp2(times(x, 2.8853900817779268));
        Value q = reciprocal(arith::AddFOp::create(b, e, constantF32(1.0)));
        return fma(q, constantF32(-2.0), constantF32(1.0));
      })
      .Case([&](math::RsqrtOp) { return intrinsic("llvm.nvvm.rsqrt.approx.ftz.f", f32, x); })
      .Case([&](math::SqrtOp) { return intrinsic("llvm.sqrt", f32, x); })
      .Case([&](arith::DivFOp) -> Value {
        FloatAttr one;
        if (matchPattern(operands[0], m_Constant(&one)) && one.getValue().isExactlyValue(1.0))
          return reciprocal(operands[1]);
        // Within the error of the division's instruction.
        if (std::optional<double> inverse = invert(operands[1]))
          return times(operands[0], *inverse);
        return intrinsic("llvm.nvvm.div.full", f32, operands);
      })
      .Default([](Operation *) { return Value(); });
}

/// Ops that LLVM has, for which upstream would call a library (or takes LLVM's
/// own op for a call of one); null for others.
Value KernelLowering::emitIntrinsic(Operation *op, ValueRange operands) {
  Type type = getElementTypeOrSelf(op->getResult(0).getType());
  return TypeSwitch<Operation *, Value>(op)
      .Case([&](arith::MaxNumFOp) { return LLVM::MaxNumOp::create(b, operands[0], operands[1]); })
      .Case([&](arith::MinNumFOp) { return LLVM::MinNumOp::create(b, operands[0], operands[1]); })
      .Case([&](arith::MaximumFOp) { return LLVM::MaximumOp::create(b, operands[0], operands[1]); })
      .Case([&](arith::MinimumFOp) { return LLVM::MinimumOp::create(b, operands[0], operands[1]); })
      .Case([&](math::FmaOp) { return fma(operands[0], operands[1], operands[2]); })
      .Case([&](math::AbsFOp) { return intrinsic("llvm.fabs", type, operands); })
      .Case([&](math::CopySignOp) { return intrinsic("llvm.copysign", type, operands); })
      .Case([&](math::AbsIOp) -> Value {
        Value zero = constant(b.getIntegerAttr(type, 0));
        return arith::MaxSIOp::create(b, operands[0], arith::SubIOp::create(b, zero, operands[0]));
      })
      .Case([&](math::FloorOp) { return intrinsic("llvm.floor", type, operands); })
      .Case([&](math::CeilOp) { return intrinsic("llvm.ceil", type, operands); })
      .Case([&](math::TruncOp) { return intrinsic("llvm.trunc", type, operands); })
      .Case([&](math::RoundEvenOp) { return intrinsic("llvm.roundeven", type, operands); })
      .Default([](Operation *) { return Value(); });
}
