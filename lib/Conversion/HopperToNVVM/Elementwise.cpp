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
        lowerTanh(op, layout) || lowerExp2(op, layout) || lowerRescaling(op, layout) ||
        lowerRandomBits(op, layout))
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
bool KernelLowering::lowerRescaling(Operation *op, Layout layout) {
  if (!isa<arith::MulFOp>(op) || !op->hasAttr(attn::kRescalingAttr) || layout != Layout::Tile ||
      !isa<FloatType>(getElementTypeOrSelf(op->getResult(0).getType())))
    return false;
  SmallVector<Value> tile = elements(op->getOperand(0), layout);
  setParts(op->getResult(0), layout,
           rescale(elements(op->getOperand(1), layout), [&] { return tile; }));
  return true;
}

/// A tile times factors, by the warps that have one that is not 1. `take` gives the tile on each
/// side of the branch.
Parts KernelLowering::rescale(ArrayRef<Value> factors,
                              llvm::function_ref<SmallVector<Value>()> take) {
  llvm::SetVector<Value> distinct(factors.begin(), factors.end());
  Type type = factors.front().getType();
  Value one = constant(b.getFloatAttr(type, 1.0)), rescales;
  for (Value factor : distinct) {
    Value differs = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, factor, one);
    rescales = rescales ? Value(arith::OrIOp::create(b, rescales, differs)) : differs;
  }
  Value any = NVVM::VoteSyncOp::create(b, b.getI1Type(), constantI32(-1), rescales,
                                       NVVM::VoteSyncKind::any);
  SmallVector<Type> types(factors.size(), type);
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

/// The same op on one element. What is a fact of a tile is none of its elements.
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
