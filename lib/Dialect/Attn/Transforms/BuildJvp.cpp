// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-build-jvp: a function of tangents for each function, by forward mode.
//
// The new function is a clone in which each op on a path from an argument to a result is followed
// by what computes the tangents of its results. What of the clone they do not read is erased.

#include "Derivatives.h"
#include "ScalarGradients.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

namespace attn {
#define GEN_PASS_DEF_ATTNBUILDJVP
#include "attn/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numBuilt("attn-build-jvp", "built", "Functions that got one of tangents");

namespace {
/// Builds `jvp`, a clone of the function, into the function of its tangents.
class FunctionJvp {
public:
  FunctionJvp(func::FuncOp jvp, const DerivativeSignature &signature)
      : jvp(jvp), block(jvp.getBody().front()), terminator(block.getTerminator()),
        b(jvp.getLoc(), terminator), signature(signature) {}

  LogicalResult build();

private:
  bool has(Value value) const { return tangents.count(value); }
  /// Null: 0.
  Value get(Value value) const { return tangents.lookup(value); }
  Value getOrZero(Value value);
  attn::Tangents ofOperands(Value query, Value key, Value value, Value sink, ValueRange captures);
  template <typename Attention> LogicalResult check(Attention op);
  LogicalResult push(Operation *op);
  LogicalResult push(ForwardOp op);
  LogicalResult push(BackwardOp op);
  LogicalResult push(tensor::FromElementsOp op);
  LogicalResult pushLinear(Operation *op);
  LogicalResult pushElementwise(Operation *op);
  void addArguments(SmallVectorImpl<Value> &saved, ArrayRef<unsigned> outputs);
  void returnTangents(ArrayRef<Value> saved, ArrayRef<unsigned> outputs);

  func::FuncOp jvp;
  Block &block;
  Operation *terminator;
  ImplicitLocOpBuilder b;
  const DerivativeSignature &signature;
  /// Of the values' own types.
  DenseMap<Value, Value> tangents;
};
} // namespace

Value FunctionJvp::getOrZero(Value value) {
  if (Value tangent = get(value))
    return tangent;
  if (auto type = dyn_cast<RankedTensorType>(value.getType()))
    return zeroTensor(b, type, value);
  return constantLike(b, 0, value);
}

attn::Tangents FunctionJvp::ofOperands(Value query, Value key, Value value, Value sink,
                                       ValueRange captures) {
  attn::Tangents found{get(query), get(key), get(value), sink ? get(sink) : Value(), {}};
  for (Value capture : captures)
    found.captures.push_back(get(capture));
  return found;
}

template <typename Attention> LogicalResult FunctionJvp::check(Attention op) {
  if (op.getScaleOperand() && has(op.getScaleOperand()))
    return op.emitError("cannot differentiate by the scale in forward mode");
  return checkFactor(op, op.getFactor(), op.getCaptures(),
                     [&](Value capture) { return has(capture); });
}

LogicalResult FunctionJvp::push(ForwardOp op) {
  if (failed(check(op)))
    return failure();
  if (!op.getLse()) {
    op = addLse(op);
    b.setInsertionPointAfter(op);
  }
  auto result = createJvp(
      b, op, ofOperands(op.getQuery(), op.getKey(), op.getValue(), op.getSink(), op.getCaptures()));
  if (failed(result))
    return failure();
  tangents[op.getOutput()] = result->getOutputTangent();
  tangents[op.getLse()] = result->getLseTangent();
  return success();
}

LogicalResult FunctionJvp::push(BackwardOp op) {
  if (failed(check(op)))
    return failure();
  if (op.getScaleGradient() && !op.getScaleGradient().use_empty())
    return op.emitError("cannot differentiate the gradient of the scale in forward mode");
  auto result = createBackwardJvp(
      b, op, ofOperands(op.getQuery(), op.getKey(), op.getValue(), op.getSink(), op.getCaptures()),
      getOrZero(op.getOutput()), getOrZero(op.getLse()), get(op.getOutputGradient()),
      op.getLseGradient() ? get(op.getLseGradient()) : Value(), bool(op.getSinkGradient()));
  if (failed(result))
    return failure();
  tangents[op.getQueryGradient()] = result->getQueryGradient();
  tangents[op.getKeyGradient()] = result->getKeyGradient();
  tangents[op.getValueGradient()] = result->getValueGradient();
  if (op.getSinkGradient())
    tangents[op.getSinkGradient()] = result->getSinkGradient();
  for (unsigned index = 0; index < op.getCaptures().size(); ++index)
    if (Value gradient = op.getCaptureGradient(index))
      tangents[gradient] = result->getCaptureGradient(index);
  return success();
}

LogicalResult FunctionJvp::push(tensor::FromElementsOp op) {
  SmallVector<Value> elements =
      llvm::map_to_vector(op.getElements(), [&](Value element) { return getOrZero(element); });
  tangents[op.getResult()] = tensor::FromElementsOp::create(b, op.getType(), elements);
  return success();
}

/// An op that moves the elements of its first operand: that of the tangent.
LogicalResult FunctionJvp::pushLinear(Operation *op) {
  if (!has(op->getOperand(0)))
    return refuse(op);
  IRMapping mapping;
  mapping.map(op->getOperand(0), get(op->getOperand(0)));
  tangents[op->getResult(0)] = b.clone(*op, mapping)->getResult(0);
  return success();
}

/// The sum over operands of tangent times derivative, which reverse mode gives for ones.
LogicalResult FunctionJvp::pushElementwise(Operation *op) {
  Value result = op->getResult(0), sum;
  Adjoints adjoints(b);
  adjoints.activate(result);
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    if (has(operand) && !adjoints.isActive(operand)) {
      adjoints.activate(operand);
      operands.push_back(operand);
    }
  Type wide = getAdjointType(result.getType());
  auto cast = [&](Value value, Type type) -> Value {
    Type from = getElementTypeOrSelf(value.getType()), to = getElementTypeOrSelf(type);
    if (from == to)
      return value;
    type = withElement(value.getType(), to);
    return from.getIntOrFloatBitWidth() < to.getIntOrFloatBitWidth()
               ? arith::ExtFOp::create(b, type, value).getResult()
               : arith::TruncFOp::create(b, type, value).getResult();
  };
  adjoints.add(result, cast(constantLike(b, 1, result), wide));
  if (failed(differentiateElementwise(b, op, adjoints)))
    return refuse(op);
  for (Value operand : operands) {
    Value adjoint = adjoints.get(operand);
    if (!adjoint)
      continue;
    Value tangent = cast(get(operand), adjoint.getType());
    Value term = cast(arith::MulFOp::create(b, adjoint, tangent), wide);
    sum = sum ? arith::AddFOp::create(b, sum, term).getResult() : term;
  }
  if (sum)
    tangents[result] = cast(sum, result.getType());
  return success();
}

/// Adds the tangents of the results of `op`, some operand of which has one.
LogicalResult FunctionJvp::push(Operation *op) {
  b.setInsertionPointAfter(op);
  b.setLoc(op->getLoc());
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<ForwardOp, BackwardOp, tensor::FromElementsOp>([&](auto known) { return push(known); })
      .Case<tensor::CastOp, tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::ExtractOp,
            tensor::ExtractSliceOp, linalg::TransposeOp>([&](auto) { return pushLinear(op); })
      .Default([&](Operation *) {
        return op->getNumResults() == 1 && op->getNumRegions() == 0 ? pushElementwise(op)
                                                                    : refuse(op);
      });
}

/// The saved results, then tangents of arguments.
void FunctionJvp::addArguments(SmallVectorImpl<Value> &saved, ArrayRef<unsigned> outputs) {
  SmallVector<BlockArgument> arguments(block.getArguments());
  if (signature.savedResults)
    for (unsigned output : outputs) {
      Value value = terminator->getOperand(output);
      saved.push_back(block.addArgument(value.getType(), value.getLoc()));
    }
  for (BlockArgument argument : arguments)
    if (carriesGradient(argument.getType()) &&
        isWanted(signature.arguments, argument.getArgNumber()))
      tangents[argument] = block.addArgument(argument.getType(), argument.getLoc());
}

void FunctionJvp::returnTangents(ArrayRef<Value> saved, ArrayRef<unsigned> outputs) {
  b.setInsertionPoint(terminator);
  b.setLoc(terminator->getLoc());
  SmallVector<Value> results;
  for (unsigned output : outputs)
    if (isWanted(signature.results, output))
      results.push_back(getOrZero(terminator->getOperand(output)));
  useSaved(terminator, outputs, saved);
  terminator->setOperands(results);
  eraseDeadOps(block);
  jvp.setType(FunctionType::get(jvp.getContext(), block.getArgumentTypes(),
                                ValueRange(results).getTypes()));
}

LogicalResult FunctionJvp::build() {
  SmallVector<unsigned> outputs;
  for (OpOperand &operand : terminator->getOpOperands())
    if (isFloatTensor(operand.get().getType()))
      outputs.push_back(operand.getOperandNumber());
  SmallVector<Value> saved;
  addArguments(saved, outputs);
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator())
    ops.push_back(&op);
  for (Operation *op : ops) {
    if (llvm::none_of(op->getOperands(), [&](Value operand) { return has(operand); }))
      continue;
    // A write would take a float out of sight.
    if (!isMemoryEffectFree(op))
      return refuse(op);
    if (llvm::none_of(op->getResultTypes(), carriesGradient))
      continue;
    if (failed(push(op)))
      return failure();
  }
  returnTangents(saved, outputs);
  return success();
}

namespace {
struct BuildJvpPass : attn::impl::AttnBuildJvpBase<BuildJvpPass> {
  using AttnBuildJvpBase::AttnBuildJvpBase;

  void runOnOperation() override {
    DerivativeSignature signature{savedResults, arguments, results};
    auto build = [&](func::FuncOp jvp) { return FunctionJvp(jvp, signature).build(); };
    auto done = [&](func::FuncOp op) { numBuilt.at(op); };
    if (failed(addDerivatives(getOperation(), function, "_jvp", signature, build, done)))
      signalPassFailure();
  }
};
} // namespace
