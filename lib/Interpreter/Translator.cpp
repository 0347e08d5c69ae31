// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From ops to instructions.

#include "Program.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;

static std::optional<ElementKind> getKind(Type type) {
  if (type.isF64())
    return ElementKind::F64;
  if (type.isF32())
    return ElementKind::F32;
  if (type.isBF16())
    return ElementKind::BF16;
  if (type.isF16())
    return ElementKind::F16;
  if (type.isIndex() || type.isInteger(64))
    return ElementKind::I64;
  if (type.isInteger(32))
    return ElementKind::I32;
  if (type.isInteger(16))
    return ElementKind::I16;
  if (type.isInteger(8))
    return ElementKind::I8;
  if (type.isInteger(1))
    return ElementKind::I1;
  return std::nullopt;
}

LogicalResult interpreter::setShape(Instruction &instruction, Type type) {
  Type element = type;
  if (auto vector = dyn_cast<VectorType>(type)) {
    if (vector.isScalable())
      return instruction.op->emitError("the interpreter does not execute vectors of unknown size");
    instruction.scalar = false;
    instruction.count = vector.getNumElements();
    element = vector.getElementType();
  }
  if (auto memref = dyn_cast<MemRefType>(type))
    element = memref.getElementType();
  if (!element.isIntOrIndexOrFloat())
    return success();
  std::optional<ElementKind> kind = getKind(element);
  if (!kind)
    return instruction.op->emitError() << "the interpreter does not execute values of " << element;
  instruction.kind = *kind;
  return success();
}

Translator::Translator(Program &program) : program(program) {
  registerArith(*this);
  registerMath(*this);
  registerControl(*this);
  registerVector(*this);
  registerTransfers(*this);
  registerMemRef(*this);
  registerAffine(*this);
  registerHopperMemory(*this);
  registerHopperBarriers(*this);
  registerHopperProducts(*this);
  registerHopperChannels(*this);
  registerThreads(*this);
  registerPages(*this);
  registerTileCopies(*this);
  registerGlobalAccesses(*this);
}

void Translator::add(StringRef name, Instruction::Handler handler) {
  add(name, [handler](Translator &translator, Operation *op) {
    Instruction &instruction = translator.emit(op, handler);
    return op->getNumResults() ? setShape(instruction, op->getResult(0).getType()) : success();
  });
}

unsigned Translator::newSlot() {
  program.frame.emplace_back();
  return unsigned(program.frame.size() - 1);
}

unsigned Translator::slot(mlir::Value value) {
  auto [it, inserted] = slots.try_emplace(value, 0);
  if (inserted)
    it->second = newSlot();
  return it->second;
}

Instruction &Translator::emitBare(Operation *op, Instruction::Handler handler) {
  Instruction &instruction = program.instructions.emplace_back();
  instruction.op = op;
  instruction.run = handler;
  instruction.yields = isa_and_nonnull<hopper::HopperDialect, tile::TileDialect>(op->getDialect());
  return instruction;
}

Instruction &Translator::emit(Operation *op, Instruction::Handler handler) {
  Instruction &instruction = emitBare(op, handler);
  for (mlir::Value operand : op->getOperands())
    instruction.operands.push_back(slot(operand));
  for (mlir::Value result : op->getResults())
    instruction.results.push_back(slot(result));
  return instruction;
}

static Step moveValues(Fiber &fiber, const Instruction &instruction);

void Translator::emitMoves(Operation *op, ValueRange from, ValueRange to) {
  if (from.empty())
    return;
  Instruction &instruction = emitBare(op, moveValues);
  instruction.yields = false;
  for (auto [source, target] : llvm::zip_equal(from, to)) {
    instruction.operands.push_back(slot(source));
    instruction.results.push_back(slot(target));
  }
}

LogicalResult Translator::translateOp(Operation *op) {
  auto rule = rules.find(op->getName().getStringRef());
  if (rule == rules.end())
    return op->emitError() << "the interpreter does not execute '" << op->getName() << "'";
  return rule->second(*this, op);
}

LogicalResult Translator::translateBody(Block &block) {
  for (Operation &op : block.without_terminator())
    if (failed(translateOp(&op)))
      return failure();
  return success();
}

LogicalResult Translator::translate(func::FuncOp function) {
  program.function = function;
  if (function.isDeclaration() || !function.getBody().hasOneBlock())
    return function.emitError("the interpreter runs functions of one block");
  if (function.getNumResults())
    return function.emitError("the interpreter runs functions without results: outputs are "
                              "memref arguments");
  for (BlockArgument argument : function.getArguments()) {
    Instruction shape;
    shape.op = function;
    if (!isa<MemRefType>(argument.getType()) && !argument.getType().isIntOrIndexOrFloat())
      return function.emitError() << "argument " << argument.getArgNumber()
                                  << ": the interpreter takes memrefs and scalars, got "
                                  << argument.getType();
    if (failed(setShape(shape, argument.getType())))
      return failure();
    program.arguments.push_back(slot(argument));
    program.argumentKinds.push_back(shape.kind);
  }
  if (failed(translateBody(function.getBody().front())))
    return failure();
  emitBare(function.getBody().front().getTerminator(),
           [](Fiber &, const Instruction &) { return Step::Finished; });
  return success();
}

// Here and not in Control.cpp, because the translator itself emits moves.
#include "Cluster.h"

static Step moveValues(Fiber &fiber, const Instruction &instruction) {
  SmallVector<interpreter::Value, 8> values;
  for (unsigned operand : instruction.operands)
    values.push_back(fiber[operand]);
  for (auto [result, value] : llvm::zip(instruction.results, values))
    fiber[result] = std::move(value);
  return Step::Next;
}
