// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Translation of scalar ops. See ScalarProgram.h; ScalarInterpreter.cpp runs
// what is made here.

#include "ScalarProgram.h"
#include "ScalarOpcodes.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace attn;

std::optional<ElementKind> attn::getElementKind(Type type) {
  if (type.isF64())
    return ElementKind::F64;
  if (type.isF32())
    return ElementKind::F32;
  if (type.isF16())
    return ElementKind::F16;
  if (type.isBF16())
    return ElementKind::BF16;
  if (type.isIndex() || type.isSignlessInteger(64))
    return ElementKind::I64;
  if (type.isSignlessInteger(32))
    return ElementKind::I32;
  if (type.isSignlessInteger(16))
    return ElementKind::I16;
  if (type.isSignlessInteger(8))
    return ElementKind::I8;
  if (type.isSignlessInteger(1))
    return ElementKind::I1;
  return std::nullopt;
}

ScalarProgram::Opcode ScalarProgram::findOpcode(StringRef name) {
  return llvm::StringSwitch<Opcode>(name)
#define ATTN_OPCODE(CODE, NAME) .Case(NAME, Opcode::CODE)
#include "ScalarOpcodes.def"
      .Default(Opcode::None);
}

struct ScalarProgram::Compiler {
  Compiler(Precision precision, const Environment &environment)
      : precision(precision), environment(environment) {}

  Precision precision;
  const Environment &environment;
  ScalarProgram program;
  llvm::DenseMap<Value, unsigned> slots;
  llvm::SmallVector<bool> varies; // by slot

  unsigned addSlot(bool varying, Slot value = {}) {
    program.initial.push_back(value);
    varies.push_back(varying);
    return program.initial.size() - 1;
  }
  unsigned addConstant(int64_t value) {
    Slot slot;
    slot.i = value;
    return addSlot(false, slot);
  }
  unsigned addConstant(double value) {
    Slot slot;
    slot.f = value;
    return addSlot(false, slot);
  }

  llvm::Error fail(Operation *op) {
    return llvm::createStringError("the reference does not interpret '" +
                                   op->getName().getStringRef() + "'");
  }

  std::optional<unsigned> slotOf(Value value) {
    auto it = slots.find(value);
    if (it != slots.end())
      return it->second;
    if (const Slot *outer = environment.scalar(value)) {
      unsigned slot = slots[value] = addSlot(false, *outer);
      program.outerScalars.push_back({value, slot});
      return slot;
    }
    return std::nullopt;
  }

  /// An element of a scalar or splat attribute.
  std::optional<unsigned> constant(Attribute attribute) {
    if (auto value = dyn_cast<FloatAttr>(attribute))
      return addConstant(value.getValueAsDouble());
    if (auto value = dyn_cast<IntegerAttr>(attribute))
      return addConstant(value.getValue().getSExtValue());
    if (auto value = dyn_cast<SplatElementsAttr>(attribute))
      return constant(value.getSplatValue<Attribute>());
    return std::nullopt;
  }

  /// The size of a tensor's dimension, which is known when a program is made.
  std::optional<unsigned> dimension(tensor::DimOp op) {
    const RefTensor *tensor = environment.tensor(op.getSource());
    std::optional<unsigned> index = slotOf(op.getIndex());
    if (!tensor || !index || varies[*index])
      return std::nullopt;
    int64_t dim = program.initial[*index].i;
    if (dim < 0 || dim >= int64_t(tensor->shape.size()))
      return std::nullopt;
    return addConstant(tensor->shape[dim]);
  }

  /// Affine expressions become integer instructions.
  unsigned expression(AffineExpr expr, ValueRange operands, unsigned numDims, Operation *op) {
    if (auto constant = dyn_cast<AffineConstantExpr>(expr))
      return addConstant(constant.getValue());
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      return *slotOf(operands[dim.getPosition()]);
    if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
      return *slotOf(operands[numDims + symbol.getPosition()]);
    auto binary = cast<AffineBinaryOpExpr>(expr);
    unsigned a = expression(binary.getLHS(), operands, numDims, op);
    unsigned b = expression(binary.getRHS(), operands, numDims, op);
    Opcode code = Opcode::None;
    switch (expr.getKind()) {
    case AffineExprKind::Add:
      code = Opcode::AddI;
      break;
    case AffineExprKind::Mul:
      code = Opcode::MulI;
      break;
    case AffineExprKind::Mod:
      code = Opcode::FloorMod;
      break;
    case AffineExprKind::FloorDiv:
      code = Opcode::FloorDivSI;
      break;
    default:
      code = Opcode::CeilDivSI;
      break;
    }
    return emit(code, op, {a, b}, ElementKind::I64);
  }

  unsigned emit(Opcode code, Operation *op, ArrayRef<unsigned> operands, ElementKind kind,
                const RefTensor *tensor = nullptr, ArrayRef<unsigned> indices = {}) {
    Instruction instruction = {};
    instruction.code = code;
    instruction.op = op;
    instruction.tensor = tensor;
    instruction.indices.assign(indices.begin(), indices.end());
    bool varying = false;
    for (auto [index, operand] : llvm::enumerate(operands)) {
      instruction.operands[index] = operand;
      varying |= varies[operand];
    }
    for (unsigned index : indices)
      varying |= varies[index];
    instruction.rounding = ElementKind::F64;
    instruction.width = 64;
    if (!isFloat(kind))
      instruction.width = kind == ElementKind::I1 ? 1 : elementSize(kind) * 8;
    else if (precision == Precision::SameType)
      instruction.rounding = kind;
    if (auto compare = dyn_cast<arith::CmpIOp>(op))
      instruction.predicate = uint8_t(compare.getPredicate());
    if (auto compare = dyn_cast<arith::CmpFOp>(op))
      instruction.predicate = uint8_t(compare.getPredicate());
    instruction.target = addSlot(varying);
    (varying ? program.point : program.row).push_back(instruction);
    return program.initial.size() - 1;
  }

  llvm::Error addAccumulation(AccumulateOp op) {
    Accumulation accumulation;
    accumulation.argument = cast<BlockArgument>(op.getCapture()).getArgNumber();
    accumulation.op = op;
    std::optional<unsigned> value = slotOf(op.getValue());
    if (!value)
      return fail(op);
    accumulation.value = *value;
    for (Value index : op.getIndices()) {
      std::optional<unsigned> slot = slotOf(index);
      if (!slot)
        return fail(op);
      accumulation.indices.push_back(*slot);
    }
    program.accumulations.push_back(accumulation);
    return llvm::Error::success();
  }

  llvm::Error add(Operation *op) {
    if (auto accumulate = dyn_cast<AccumulateOp>(op))
      return addAccumulation(accumulate);
    std::optional<unsigned> known;
    if (auto dim = dyn_cast<tensor::DimOp>(op)) {
      if (!(known = dimension(dim)))
        return fail(op);
    } else if (auto index = dyn_cast<linalg::IndexOp>(op)) {
      known = program.firstExtra + index.getDim();
    } else if (op->hasTrait<OpTrait::ConstantLike>() && op->getNumResults() == 1) {
      Attribute value;
      if (!matchPattern(op, m_Constant(&value)) || !(known = constant(value)))
        return fail(op);
    }
    if (known) {
      slots[op->getResult(0)] = *known;
      return llvm::Error::success();
    }
    return addInstruction(op);
  }

  llvm::Error addInstruction(Operation *op) {
    if (op->getNumResults() != 1)
      return fail(op);
    std::optional<ElementKind> kind = getElementKind(getElementTypeOrSelf(op->getResult(0)));
    if (!kind)
      return fail(op);
    if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
      SmallVector<unsigned> indices;
      for (Value index : extract.getIndices()) {
        if (!slotOf(index))
          return fail(op);
        indices.push_back(*slotOf(index));
      }
      const RefTensor *tensor = environment.tensor(extract.getTensor());
      if (!tensor)
        return fail(op);
      unsigned target = emit(Opcode::Extract, op, {}, *kind, tensor, indices);
      if (auto argument = dyn_cast<BlockArgument>(extract.getTensor()))
        (varies[target] ? program.point : program.row).back().argument = argument.getArgNumber();
      slots[op->getResult(0)] = target;
      return llvm::Error::success();
    }
    SmallVector<unsigned> operands;
    for (Value operand : op->getOperands()) {
      if (!slotOf(operand))
        return fail(op);
      operands.push_back(*slotOf(operand));
    }
    if (auto apply = dyn_cast<affine::AffineApplyOp>(op)) {
      AffineMap map = apply.getAffineMap();
      slots[op->getResult(0)] =
          expression(map.getResult(0), op->getOperands(), map.getNumDims(), op);
      return llvm::Error::success();
    }
    Opcode code = findOpcode(op->getName().getStringRef());
    if (code == Opcode::RandomBits) {
      slots[op->getResult(0)] = emit(code, op, {}, *kind, nullptr, operands);
      return llvm::Error::success();
    }
    if (code == Opcode::None || operands.size() > 3)
      return fail(op);
    if (code == Opcode::Select && isFloat(*kind))
      code = Opcode::SelectF;
    // Conversions and comparisons need the operand's width.
    unsigned target = emit(code, op, operands, *kind);
    Instruction &instruction = (varies[target] ? program.point : program.row).back();
    if (code == Opcode::CmpI || code == Opcode::ExtUI || code == Opcode::UIToFP ||
        code == Opcode::IndexCastUI) {
      Type from = getElementTypeOrSelf(op->getOperand(0));
      instruction.width = from.isIndex() ? 64 : from.getIntOrFloatBitWidth();
    }
    slots[op->getResult(0)] = target;
    return llvm::Error::success();
  }
};

llvm::Expected<ScalarProgram> ScalarProgram::compile(Block &block, ArrayRef<bool> varying,
                                                     Precision precision,
                                                     const Environment &environment, unsigned extra,
                                                     unsigned trailing) {
  Compiler compiler(precision, environment);
  for (auto [argument, varies] : llvm::zip(block.getArguments(), varying)) {
    unsigned slot = compiler.addSlot(varies);
    compiler.slots[argument] = slot;
    compiler.program.arguments.push_back(slot);
  }
  for (Value argument : block.getArguments().take_back(trailing)) {
    unsigned slot = compiler.addSlot(true);
    compiler.slots[argument] = slot;
    compiler.program.arguments.push_back(slot);
  }
  // The captures are fixed: scalars from the environment, tensors likewise.
  compiler.program.firstExtra = compiler.program.initial.size();
  for (unsigned index = 0; index < extra; ++index)
    compiler.addSlot(true);
  for (Operation &op : block.without_terminator())
    if (llvm::Error error = compiler.add(&op))
      return std::move(error);
  for (Value result : block.getTerminator()->getOperands()) {
    std::optional<unsigned> slot = compiler.slotOf(result);
    if (!slot)
      return compiler.fail(block.getTerminator());
    compiler.program.results.push_back(*slot);
  }
  return std::move(compiler.program);
}

llvm::Expected<ScalarProgram> ScalarProgram::compile(Operation *op, Precision precision,
                                                     const Environment &environment) {
  Compiler compiler(precision, environment);
  if (llvm::Error error = compiler.add(op))
    return std::move(error);
  compiler.program.results.push_back(compiler.slots[op->getResult(0)]);
  return std::move(compiler.program);
}
