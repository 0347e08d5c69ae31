// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Elementwise ops: the scalar op for each element of a thread, each distinct
// combination of operands once. Functions of `math` become the instructions of
// the special function unit, whose error is a few units in the last place.

#include "Lowering.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace attn::hopper;

/// Small indices are compared in 32 bits, as loops carry them.
bool KernelLowering::lowerSmallComparison(Operation *op) {
  auto compare = dyn_cast<arith::CmpIOp>(op);
  if (!compare || !compare.getLhs().getType().isIndex() || !carried.isSmall(compare.getLhs()) ||
      !carried.isSmall(compare.getRhs()))
    return false;
  setScalar(compare,
            arith::CmpIOp::create(b, compare.getPredicate(), toI32(scalar(compare.getLhs())),
                                  toI32(scalar(compare.getRhs()))));
  return true;
}

LogicalResult KernelLowering::lowerElementwise(Operation *op) {
  if (loweredEarly.contains(op) || lowerSmallComparison(op))
    return success();
  for (Layout layout : layouts.of(op->getResult(0))) {
    if (lowerIndexSum(op, layout) || lowerColumnBound(op, layout) ||
        lowerBoundsOfBoth(op, layout) || lowerSelectByBits(op, layout) ||
        lowerIndexComparison(op, layout) || lowerPackedTruncation(op, layout) ||
        lowerTanh(op, layout) || lowerExp2(op, layout) || lowerCorrection(op, layout))
      continue;
    if (failed(lowerElementwise(op, layout)))
      return failure();
  }
  return success();
}

LogicalResult KernelLowering::lowerElementwise(Operation *op, Layout layout) {
  SmallVector<SmallVector<Value>> operands;
  size_t count = 1;
  for (Value operand : op->getOperands()) {
    bool isVector = isa<VectorType>(operand.getType());
    operands.push_back(elements(operand, isVector ? layout : Layout::Scalar));
    count = std::max(count, operands.back().size());
  }
  // Broadcast operands repeat: rows along the columns and columns along the rows.
  DenseMap<std::pair<Value, Value>, SmallVector<std::pair<Value, Value>, 1>> known;
  SmallVector<Value> results, arguments(operands.size());
  for (size_t e = 0; e < count; ++e) {
    for (auto [argument, values] : llvm::zip_equal(arguments, operands))
      argument = values[values.size() == 1 ? 0 : e];
    auto &same = known[{arguments[0], arguments.size() > 1 ? arguments[1] : Value()}];
    Value third = arguments.size() > 2 ? arguments[2] : Value();
    auto it = llvm::find_if(same, [&](auto &entry) { return entry.first == third; });
    if (it != same.end()) {
      results.push_back(it->second);
      continue;
    }
    Value result = emitElement(op, arguments);
    if (!result)
      return failure();
    same.push_back({third, result});
    results.push_back(result);
  }
  auto type = dyn_cast<VectorType>(op->getResult(0).getType());
  bool packed = type && isPacked(type, layout);
  setParts(op->getResult(0), layout, packed ? pack(results) : Parts(results));
  return success();
}

//===----------------------------------------------------------------------===//
// Index vectors
//===----------------------------------------------------------------------===//

/// Sums and differences keep the constants of the elements apart.
bool KernelLowering::lowerIndexSum(Operation *op, Layout layout) {
  auto type = dyn_cast<VectorType>(op->getResult(0).getType());
  if (!type || !type.getElementType().isIndex() || !isa<arith::AddIOp, arith::SubIOp>(op))
    return false;
  const Parts &a = parts(op->getOperand(0), layout), &c = parts(op->getOperand(1), layout);
  bool isSum = isa<arith::AddIOp>(op);
  DenseMap<std::pair<Value, Value>, Value> known;
  Parts result;
  for (size_t e = 0; e < a.values.size(); ++e) {
    Value &base = known[{a.values[e], c.values[e]}];
    if (!base)
      base = isSum ? Value(arith::AddIOp::create(b, a.values[e], c.values[e]))
                   : Value(arith::SubIOp::create(b, a.values[e], c.values[e]));
    result.values.push_back(base);
    result.offsets.push_back(a.offset(e) + (isSum ? c.offset(e) : -c.offset(e)));
  }
  setParts(op->getResult(0), layout, std::move(result));
  return true;
}

/// f32 tiles to bf16 or f16: one instruction for a pair.
bool KernelLowering::lowerPackedTruncation(Operation *op, Layout layout) {
  auto truncate = dyn_cast<arith::TruncFOp>(op);
  if (!truncate || layout != Layout::Tile ||
      !getElementTypeOrSelf(truncate.getIn().getType()).isF32())
    return false;
  Type element = getElementTypeOrSelf(truncate.getType());
  if (!element.isBF16() && !element.isF16())
    return false;
  const SmallVector<Value> &from = parts(truncate.getIn(), layout).values;
  auto type = VectorType::get(2, element);
  Parts result;
  for (size_t e = 0; e < from.size(); e += 2) {
    Value low = from[e], high = from[e + 1];
    auto rounding = NVVM::FPRoundingMode::RN;
    result.values.push_back(
        element.isBF16()
            ? Value(NVVM::ConvertF32x2ToBF16x2Op::create(b, type, high, low, Value(), rounding))
            : Value(NVVM::ConvertF32x2ToF16x2Op::create(b, type, high, low, Value(), rounding)));
  }
  setParts(truncate.getResult(), layout, std::move(result));
  return true;
}

/// Products of a tile with factors per row, nearly all of which are 1: left out where all that
/// the threads of a warp have are.
bool KernelLowering::lowerCorrection(Operation *op, Layout layout) {
  if (!isa<arith::MulFOp>(op) || !op->hasAttr(attn::kCorrectionAttr) || layout != Layout::Tile ||
      !getElementTypeOrSelf(op->getResult(0).getType()).isF32())
    return false;
  SmallVector<Value> tile = elements(op->getOperand(0), layout);
  setParts(op->getResult(0), layout,
           correct(elements(op->getOperand(1), layout), [&] { return tile; }));
  return true;
}

/// A tile times factors, by the warps that have one that is not 1. `take` gives the tile on each
/// side of the branch.
Parts KernelLowering::correct(ArrayRef<Value> factors,
                              llvm::function_ref<SmallVector<Value>()> take) {
  llvm::SetVector<Value> distinct(factors.begin(), factors.end());
  Value one = constantF32(1.0), corrects;
  for (Value factor : distinct) {
    Value differs = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, factor, one);
    corrects = corrects ? Value(arith::OrIOp::create(b, corrects, differs)) : differs;
  }
  Value any = NVVM::VoteSyncOp::create(b, b.getI1Type(), constantI32(-1), corrects,
                                       NVVM::VoteSyncKind::any);
  SmallVector<Type> types(factors.size(), b.getF32Type());
  auto branch = scf::IfOp::create(b, types, any, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  SmallVector<Value> products;
  for (auto [element, factor] : llvm::zip_equal(take(), factors))
    products.push_back(arith::MulFOp::create(b, element, factor));
  scf::YieldOp::create(b, products);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, take());
  return Parts(branch.getResults());
}

LogicalResult KernelLowering::lowerConstant(arith::ConstantOp op) {
  auto dense = dyn_cast<DenseElementsAttr>(op.getValue());
  if (!dense || !dense.isSplat())
    return op.emitOpError("is not supported in a kernel: only splats are");
  Value value = constant(cast<TypedAttr>(dense.getSplatValue<Attribute>()));
  auto type = cast<VectorType>(op.getType());
  for (Layout layout : layouts.of(op.getResult()))
    setParts(op.getResult(), layout, splat(value, type, layout));
  return success();
}

<<<<<<< ours
/// The same op on one element.
=======
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

/// The same op on one element. What is a fact of a tile is none of its elements.
>>>>>>> theirs
Value KernelLowering::emitGeneric(Operation *op, ValueRange operands) {
  Type type = getElementTypeOrSelf(op->getResult(0).getType());
  Operation *scalar = Operation::create(b.getLoc(), op->getName(), type, operands, NamedAttrList(),
                                        op->getPropertiesStorage(), {}, 0);
  b.insert(scalar);
  // For rare rows scores are computed in two kernels, and have to be the same numbers.
  if (!isRare && isa<arith::AddFOp, arith::SubFOp, arith::MulFOp>(op)) {
    auto math = cast<arith::ArithFastMathInterface>(scalar);
    auto flags = math.getFastMathFlagsAttr().getValue() | arith::FastMathFlags::contract;
    scalar->setAttr(math.getFastMathAttrName(),
                    arith::FastMathFlagsAttr::get(b.getContext(), flags));
  }
  return scalar->getResult(0);
}

Value KernelLowering::emitElement(Operation *op, ValueRange operands) {
  Type type = getElementTypeOrSelf(op->getResult(0).getType());
  bool isMath = op->getDialect() && op->getDialect()->getNamespace() == "math";
  bool isFunction = isMath || isa<arith::DivFOp>(op);
  if (isFunction && (type.isBF16() || type.isF16())) {
    SmallVector<Value> wide;
    for (Value operand : operands)
      wide.push_back(operand.getType() == type
                         ? Value(arith::ExtFOp::create(b, b.getF32Type(), operand))
                         : operand);
    if (Value value = emitMath(op, wide))
      return arith::TruncFOp::create(b, type, value);
  } else if (isFunction && type.isF32()) {
    if (Value value = emitMath(op, operands))
      return value;
  }
  if (Value value = emitIntrinsic(op, operands))
    return value;
  if (isMath) {
    op->emitOpError() << "on " << type << " has no implementation on the device";
    return Value();
  }
  return emitGeneric(op, operands);
}
