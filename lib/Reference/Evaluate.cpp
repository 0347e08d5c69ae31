// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ops of a function, one after the other. See Reference.h.

#include "Attention.h"
#include "Linalg.h"
#include "ScalarProgram.h"
#include "attn/Reference/Reference.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace attn;

namespace {
class Evaluator {
public:
  Evaluator(Precision precision, unsigned order, unsigned depth)
      : precision(precision), order(order), depth(depth) {
    environment.tensor = [this](Value value) { return values.lookup(value).get(); };
    environment.scalar = [this](Value value) -> const Slot * {
      RefTensorPtr tensor = values.lookup(value);
      if (!tensor || !tensor->shape.empty() || isa<ShapedType>(value.getType()))
        return nullptr;
      if (isFloat(tensor->kind))
        scratch.f = tensor->floats[0];
      else
        scratch.i = tensor->integers[0];
      return &scratch;
    };
  }

  llvm::Expected<std::vector<RefTensorPtr>> run(func::FuncOp function,
                                                ArrayRef<RefTensorPtr> arguments);

private:
  llvm::Error evaluateOp(Operation *op);
  llvm::Error evaluateCall(func::CallOp op);
  llvm::Error evaluateShapeOp(Operation *op, bool &known);
  llvm::Error evaluateElements(Operation *op);
  llvm::Error evaluateConstant(arith::ConstantOp op);
  llvm::Error evaluateScalar(Operation *op);
  llvm::Error evaluateElementwise(Operation *op);

  /// Sizes of a tensor, static or given by index values.
  SmallVector<int64_t> sizes(ArrayRef<OpFoldResult> mixed) {
    return llvm::map_to_vector(mixed, [&](OpFoldResult size) {
      if (auto value = dyn_cast<Value>(size))
        return values.lookup(value)->integers[0];
      return *getConstantIntValue(size);
    });
  }
  llvm::Error set(Operation *op, llvm::Expected<std::vector<RefTensorPtr>> results) {
    if (!results)
      return results.takeError();
    for (auto [value, result] : llvm::zip(op->getResults(), *results))
      values[value] = result;
    return llvm::Error::success();
  }

  Precision precision;
  unsigned order, depth;
  llvm::DenseMap<Value, RefTensorPtr> values;
  ScalarProgram::Environment environment;
  Slot scratch;
};
} // namespace

/// The same elements in another shape, if their number agrees.
static llvm::Error reshape(Operation *op, const RefTensor &source, ArrayRef<int64_t> shape,
                           RefTensorPtr &result) {
  llvm::Expected<int64_t> count = countElements(shape);
  if (!count)
    return makeError(op, llvm::toString(count.takeError()));
  if (*count != source.size())
    return makeError(op, "expected as many elements as in " + formatShape(source.shape) + ", got " +
                             formatShape(shape));
  auto copy = std::make_shared<RefTensor>(source);
  copy->shape.assign(shape.begin(), shape.end());
  result = copy;
  return llvm::Error::success();
}

llvm::Error Evaluator::evaluateConstant(arith::ConstantOp op) {
  auto type = dyn_cast<RankedTensorType>(op.getType());
  if (!type)
    return evaluateScalar(op);
  auto elements = dyn_cast<DenseElementsAttr>(op.getValue());
  std::optional<ElementKind> kind = getElementKind(type.getElementType());
  if (!elements || !kind)
    return makeError(op, "is not interpreted by the reference");
  auto tensor = std::make_shared<RefTensor>(*kind, type.getShape());
  if (isFloat(*kind)) {
    for (auto [to, from] : llvm::zip(tensor->floats, elements.getValues<APFloat>())) {
      APFloat value = from;
      bool lost;
      value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
      to = value.convertToDouble();
    }
  } else {
    for (auto [to, from] : llvm::zip(tensor->integers, elements.getValues<APInt>()))
      to = from.getSExtValue();
  }
  values[op.getResult()] = tensor;
  return llvm::Error::success();
}

llvm::Error Evaluator::evaluateScalar(Operation *op) {
  auto program = ScalarProgram::compile(op, precision, environment);
  if (!program)
    return makeError(op, llvm::toString(program.takeError()));
  std::vector<Slot> slots = program->makeSlots();
  Fault fault;
  if (!program->runRow(slots.data(), fault) || !program->runPoint(slots.data(), fault))
    return makeError(fault.op, fault.message);
  auto result =
      std::make_shared<RefTensor>(*getElementKind(op->getResult(0).getType()), ArrayRef<int64_t>());
  if (isFloat(result->kind))
    result->floats[0] = slots[program->result(0)].f;
  else
    result->integers[0] = slots[program->result(0)].i;
  values[op->getResult(0)] = result;
  return llvm::Error::success();
}

/// An op on tensors that works on each element alone.
llvm::Error Evaluator::evaluateElementwise(Operation *op) {
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  std::optional<ElementKind> kind = getElementKind(type.getElementType());
  SmallVector<RefTensorPtr> operands;
  RefTensorPtr shaped;
  for (Value operand : op->getOperands()) {
    operands.push_back(values.lookup(operand));
    if (isa<RankedTensorType>(operand.getType())) {
      if (shaped && shaped->shape != operands.back()->shape)
        return makeError(op, "expected operands of one shape, got " + formatShape(shaped->shape) +
                                 " and " + formatShape(operands.back()->shape));
      shaped = operands.back();
    }
  }
  if (!kind || !shaped)
    return makeError(op, "is not interpreted by the reference");
  int64_t position = 0;
  llvm::SmallDenseMap<Value, Slot> elements;
  ScalarProgram::Environment element = environment;
  element.scalar = [&](Value value) { return &elements[value]; };
  auto result = std::make_shared<RefTensor>(*kind, shaped->shape);
  // The operands become constants of the program, so it is translated anew for
  // each element; functions at this level are small tests.
  for (; position < shaped->size(); ++position) {
    elements.clear();
    for (auto [value, tensor] : llvm::zip(op->getOperands(), operands)) {
      int64_t at = isa<RankedTensorType>(value.getType()) ? position : 0;
      Slot slot;
      if (isFloat(tensor->kind))
        slot.f = tensor->floats[at];
      else
        slot.i = tensor->integers[at];
      elements[value] = slot;
    }
    auto program = ScalarProgram::compile(op, precision, element);
    if (!program)
      return makeError(op, llvm::toString(program.takeError()));
    std::vector<Slot> slots = program->makeSlots();
    Fault fault;
    if (!program->runRow(slots.data(), fault))
      return makeError(fault.op, fault.message);
    if (isFloat(*kind))
      result->floats[position] = slots[program->result(0)].f;
    else
      result->integers[position] = slots[program->result(0)].i;
  }
  values[op->getResult(0)] = result;
  return llvm::Error::success();
}

/// tensor.from_elements and tensor.insert.
llvm::Error Evaluator::evaluateElements(Operation *op) {
  auto copy = [](RefTensor &to, int64_t position, const RefTensor &scalar) {
    if (isFloat(to.kind))
      to.floats[position] = scalar.floats[0];
    else
      to.integers[position] = scalar.integers[0];
  };
  if (auto insert = dyn_cast<tensor::InsertOp>(op)) {
    auto result = std::make_shared<RefTensor>(*values.lookup(insert.getDest()));
    int64_t position = 0;
    for (auto [dim, value] : llvm::enumerate(insert.getIndices())) {
      int64_t index = values.lookup(value)->integers[0];
      if (index < 0 || index >= result->shape[dim])
        return makeError(op, "writes outside of a tensor of " + formatShape(result->shape) +
                                 ": index " + llvm::Twine(index) + " in dimension " +
                                 llvm::Twine(dim));
      position = position * result->shape[dim] + index;
    }
    copy(*result, position, *values.lookup(insert.getScalar()));
    values[insert.getResult()] = result;
    return llvm::Error::success();
  }
  auto elements = cast<tensor::FromElementsOp>(op);
  auto type = elements.getType();
  std::optional<ElementKind> kind = getElementKind(type.getElementType());
  if (!kind)
    return makeError(op, "has an element type that the reference does not know");
  auto result = std::make_shared<RefTensor>(*kind, type.getShape());
  for (auto [position, value] : llvm::enumerate(elements.getElements()))
    copy(*result, position, *values.lookup(value));
  values[elements.getResult()] = result;
  return llvm::Error::success();
}

/// Ops that make, view or measure tensors. `known` is false for any other.
llvm::Error Evaluator::evaluateShapeOp(Operation *op, bool &known) {
  known = true;
  if (auto empty = dyn_cast<tensor::EmptyOp>(op)) {
    std::optional<ElementKind> kind = getElementKind(empty.getType().getElementType());
    SmallVector<int64_t> shape = sizes(empty.getMixedSizes());
    llvm::Expected<int64_t> count = countElements(shape);
    if (!kind || !count)
      return makeError(op, kind ? llvm::toString(count.takeError())
                                : "has an element type that the reference does not know");
    values[empty.getResult()] = std::make_shared<RefTensor>(*kind, shape);
    return llvm::Error::success();
  }
  if (auto cast = dyn_cast<tensor::CastOp>(op)) {
    RefTensorPtr source = values.lookup(cast.getSource());
    auto type = dyn_cast<RankedTensorType>(cast.getType());
    if (type)
      for (auto [size, expected] : llvm::zip(source->shape, type.getShape()))
        if (!ShapedType::isDynamic(expected) && size != expected)
          return makeError(op,
                           "expected size " + llvm::Twine(expected) + ", got " + llvm::Twine(size));
    values[cast.getResult()] = source;
    return llvm::Error::success();
  }
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
    return reshape(op, *values.lookup(expand.getSrc()), sizes(expand.getMixedOutputShape()),
                   values[expand.getResult()]);
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op)) {
    RefTensorPtr source = values.lookup(collapse.getSrc());
    SmallVector<int64_t> shape;
    for (auto group : collapse.getReassociationIndices()) {
      shape.push_back(1);
      for (int64_t dim : group)
        shape.back() *= source->shape[dim];
    }
    return reshape(op, *source, shape, values[collapse.getResult()]);
  }
  if (isa<tensor::FromElementsOp, tensor::InsertOp>(op))
    return evaluateElements(op);
  known = false;
  return llvm::Error::success();
}

llvm::Error Evaluator::evaluateCall(func::CallOp op) {
  auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(op, op.getCalleeAttr());
  if (!callee || callee.isDeclaration() || depth > 64)
    return makeError(op, "is not interpreted by the reference");
  SmallVector<RefTensorPtr> arguments;
  for (Value operand : op.getOperands())
    arguments.push_back(values.lookup(operand));
  return set(op, Evaluator(precision, order, depth + 1).run(callee, arguments));
}

llvm::Error Evaluator::evaluateOp(Operation *op) {
  auto lookup = [&](Value value) { return values.lookup(value); };
  if (auto forward = dyn_cast<ForwardOp>(op))
    return set(op, evaluateForward(forward, lookup, precision, order));
  if (auto backward = dyn_cast<BackwardOp>(op))
    return set(op, evaluateBackward(backward, lookup, precision, order));
  if (auto jvp = dyn_cast<JvpOp>(op))
    return set(op, evaluateJvp(jvp, lookup, precision, order));
  if (auto jvp = dyn_cast<BackwardJvpOp>(op))
    return set(op, evaluateBackwardJvp(jvp, lookup, precision, order));
  if (auto backward = dyn_cast<SoftmaxBackwardOp>(op))
    return set(op, evaluateSoftmaxBackward(backward, lookup, precision));
  if (auto softmax = dyn_cast<SoftmaxOp>(op)) {
    auto result = evaluateSoftmax(softmax, lookup, precision);
    if (!result)
      return result.takeError();
    values[softmax.getOutput()] = *result;
    return llvm::Error::success();
  }
  if (auto pages = dyn_cast<PagesOp>(op)) {
    llvm::Expected<RefTensorPtr> result = evaluatePages(pages, lookup);
    if (!result)
      return result.takeError();
    values[pages.getResult()] = *result;
    return llvm::Error::success();
  }
  if (auto softmax = dyn_cast<linalg::SoftmaxOp>(op))
    return set(op, evaluateNamedSoftmax(softmax, lookup, precision));
  if (auto structured = dyn_cast<linalg::LinalgOp>(op))
    return set(op, evaluateLinalg(structured, lookup, environment, precision));
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return evaluateConstant(constant);
  if (auto call = dyn_cast<func::CallOp>(op))
    return evaluateCall(call);
  bool known;
  if (llvm::Error error = evaluateShapeOp(op, known))
    return error;
  if (known)
    return llvm::Error::success();
  if (op->getNumResults() != 1 || op->getNumRegions() != 0)
    return makeError(op, "is not interpreted by the reference");
  if (!isa<ShapedType>(op->getResult(0).getType()))
    return evaluateScalar(op);
  if (OpTrait::hasElementwiseMappableTraits(op) &&
      isa<RankedTensorType>(op->getResult(0).getType()))
    return evaluateElementwise(op);
  return makeError(op, "is not interpreted by the reference");
}

llvm::Expected<std::vector<RefTensorPtr>> Evaluator::run(func::FuncOp function,
                                                         ArrayRef<RefTensorPtr> arguments) {
  if (!function.getBody().hasOneBlock())
    return makeError(function, "is not interpreted by the reference: it has more than one block");
  for (auto [argument, value] : llvm::zip(function.getArguments(), arguments))
    values[argument] = value;
  Block &body = function.getBody().front();
  // A value is dropped after its last use, so that the memory of a long chain
  // is that of its live tensors.
  for (Operation &op : body.without_terminator()) {
    if (llvm::Error error = evaluateOp(&op))
      return std::move(error);
    for (Value operand : op.getOperands())
      if (llvm::all_of(operand.getUsers(), [&](Operation *user) {
            Operation *top = body.findAncestorOpInBlock(*user);
            return top && (top == &op || top->isBeforeInBlock(&op));
          }))
        values.erase(operand);
  }
  std::vector<RefTensorPtr> results;
  for (Value result : body.getTerminator()->getOperands())
    results.push_back(values.lookup(result));
  return results;
}

llvm::Expected<std::vector<RefTensorPtr>> attn::evaluate(func::FuncOp function,
                                                         ArrayRef<RefTensorPtr> arguments,
                                                         Precision precision, unsigned order) {
  return Evaluator(precision, order, 0).run(function, arguments);
}
