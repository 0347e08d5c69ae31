// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-differentiate: a gradient function for each function, by reverse mode.
//
// The gradient function is a clone of the function whose block is extended by
// the reverse of every op on a path from an argument to a result, last op
// first. What of the clone the reverse does not read is erased at the end.

#include "Derivatives.h"
#include "ScalarGradients.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

namespace attn {
#define GEN_PASS_DEF_ATTNDIFFERENTIATE
#include "attn/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numDifferentiated("attn-differentiate", "differentiated",
                                    "Functions that got a gradient");

namespace {

/// Copies the regions of `forward` to `backward` and derives the gradient.
template <typename Forward, typename Backward>
LogicalResult buildRegions(Forward forward, Backward backward) {
  IRMapping scoreMapping, maskMapping;
  if (!forward.getMask().empty())
    forward.getMask().cloneInto(&backward.getMask(), maskMapping);
  if (forward.getScore().empty())
    return success();
  forward.getScore().cloneInto(&backward.getScore(), scoreMapping);
  return buildScoreGradient(forward.getScore(), forward.getCaptures().size(),
                            backward.getGradient());
}

//===----------------------------------------------------------------------===//
// The ops of a function
//===----------------------------------------------------------------------===//

/// The reverse of the ops of one block.
class Reverse {
public:
  Reverse(ImplicitLocOpBuilder &b, Adjoints &adjoints) : b(b), adjoints(adjoints) {}

  /// Adds the contributions of `op`, some result of which has an adjoint.
  LogicalResult differentiate(Operation *op);

private:
  LogicalResult differentiate(ForwardOp op);
  LogicalResult differentiate(BackwardOp op);
  LogicalResult differentiate(SoftmaxOp op);
  LogicalResult differentiate(tensor::CastOp op);
  LogicalResult differentiate(tensor::CollapseShapeOp op);
  LogicalResult differentiate(tensor::ExpandShapeOp op);
  LogicalResult differentiate(tensor::ExtractOp op);
  LogicalResult differentiate(tensor::ExtractSliceOp op);
  LogicalResult differentiate(tensor::FromElementsOp op);
  LogicalResult differentiate(linalg::TransposeOp op);

  template <typename Attention> LogicalResult checkActiveFactor(Attention op) {
    return checkFactor(op, op.getFactor(), op.getCaptures(),
                       [&](Value capture) { return adjoints.isActive(capture); });
  }
  template <typename Backward> void addCaptureGradients(ValueRange captures, Backward backward) {
    for (auto [index, capture] : llvm::enumerate(captures))
      if (Value gradient = backward.getCaptureGradient(index))
        adjoints.add(capture, gradient);
  }
  /// `type` with the element type of `value`.
  static RankedTensorType withElementOf(Value value, RankedTensorType type) {
    return type.clone(getElementTypeOrSelf(value.getType()));
  }
  /// Adds `contribution` in the static shape that `value` has.
  void addCast(Value value, Value contribution) {
    auto type = withElementOf(contribution, cast<RankedTensorType>(value.getType()));
    if (contribution.getType() != type)
      contribution = tensor::CastOp::create(b, type, contribution);
    adjoints.add(value, contribution, guarded);
  }
  ImplicitLocOpBuilder &b;
  Adjoints &adjoints;
  /// Of the op at hand: see Adjoints::add. Attention mixes its elements, ops
  /// that change the shape keep zeros apart.
  bool guarded = false;
};

LogicalResult Reverse::differentiate(Operation *op) {
  b.setLoc(op->getLoc());
  guarded = adjoints.isGuarded(op->getResult(0));
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<ForwardOp, BackwardOp, SoftmaxOp, tensor::CastOp, tensor::CollapseShapeOp,
            tensor::ExpandShapeOp, tensor::ExtractOp, tensor::ExtractSliceOp,
            tensor::FromElementsOp, linalg::TransposeOp>(
          [&](auto known) { return differentiate(known); })
      .Default([&](Operation *other) {
        if (failed(differentiateElementwise(b, other, adjoints)))
          return refuse(other);
        return success();
      });
}

LogicalResult Reverse::differentiate(ForwardOp op) {
  RankedTensorType outputType = op.getOutput().getType();
  Value outputGradient = adjoints.getAs(op.getOutput(), outputType);
  Value lseGradient;
  if (op.getLse())
    lseGradient = adjoints.getAs(op.getLse(), op.getLse().getType());
  else
    op = addLse(op);
  // Without a gradient, O counts for nothing and need not be computed; its
  // dynamic sizes are the query's.
  Value output = op.getOutput();
  if (!outputGradient)
    outputGradient = output = zeroTensor(b, outputType, op.getQuery());
  Value scale = op.getScaleOperand(), sink = op.getSink();
  Type scaleType, sinkType;
  if (scale && adjoints.isActive(scale))
    scaleType = getGradientType(scale.getType());
  if (sink && adjoints.isActive(sink))
    sinkType = sink.getType();
  auto backward = BackwardOp::create(b, op.getQuery().getType(), op.getKey().getType(),
                                     op.getValue().getType(), scaleType, sinkType,
                                     getCaptureGradientTypes(op.getCaptures()), outputGradient,
                                     op.getQuery(), op.getKey(), op.getValue(), output, op.getLse(),
                                     lseGradient, scale, sink, op.getCaptures(), op.getScaleAttr());
  backward.setUngrouped(op.getUngrouped());
  if (failed(checkActiveFactor(op)) || failed(buildRegions(op, backward)))
    return failure();
  IRMapping mapping;
  if (!op.getFactor().empty())
    op.getFactor().cloneInto(&backward.getFactor(), mapping);
  adjoints.add(op.getQuery(), backward.getQueryGradient());
  adjoints.add(op.getKey(), backward.getKeyGradient());
  adjoints.add(op.getValue(), backward.getValueGradient());
  if (scaleType)
    adjoints.add(scale, backward.getScaleGradient());
  if (sinkType)
    adjoints.add(sink, backward.getSinkGradient());
  addCaptureGradients(op.getCaptures(), backward);
  return success();
}

/// Reverse mode of a gradient is forward mode, for the Hessian is symmetric: the gradients that
/// come in are tangents of what the op gives gradients of. They are those of the whole function: O
/// and LSE are what the forward gives for the same operands, and have no gradients of their own.
LogicalResult Reverse::differentiate(BackwardOp op) {
  Value scale = op.getScaleOperand();
  if (scale && adjoints.isActive(scale))
    return op.emitError("cannot differentiate a gradient by the scale");
  if (failed(checkActiveFactor(op)))
    return failure();
  Tangents tangents{adjoints.getAs(op.getQueryGradient(), op.getQuery().getType()),
                    adjoints.getAs(op.getKeyGradient(), op.getKey().getType()),
                    adjoints.getAs(op.getValueGradient(), op.getValue().getType()),
                    {},
                    {}};
  bool hasSink = op.getSink() && adjoints.isActive(op.getSink());
  if (op.getSinkGradient())
    tangents.sink = adjoints.getAs(op.getSinkGradient(), op.getSink().getType());
  for (auto [index, capture] : llvm::enumerate(op.getCaptures())) {
    Value gradient = op.getCaptureGradient(index);
    tangents.captures.push_back(gradient ? adjoints.getAs(gradient, capture.getType()) : Value());
  }
  FailureOr<JvpOp> forward = createJvp(b, op, tangents);
  if (failed(forward))
    return failure();
  FailureOr<BackwardJvpOp> backward = createBackwardJvp(
      b, op, tangents, forward->getOutputTangent(), forward->getLseTangent(), {}, {}, hasSink);
  if (failed(backward))
    return failure();
  adjoints.add(op.getOutputGradient(), forward->getOutputTangent());
  if (op.getLseGradient())
    adjoints.add(op.getLseGradient(), forward->getLseTangent());
  adjoints.add(op.getQuery(), backward->getQueryGradient());
  adjoints.add(op.getKey(), backward->getKeyGradient());
  adjoints.add(op.getValue(), backward->getValueGradient());
  if (hasSink)
    adjoints.add(op.getSink(), backward->getSinkGradient());
  addCaptureGradients(op.getCaptures(), *backward);
  return success();
}

LogicalResult Reverse::differentiate(SoftmaxOp op) {
  auto backward = SoftmaxBackwardOp::create(b, op.getInput().getType(),
                                            getCaptureGradientTypes(op.getCaptures()),
                                            adjoints.getAs(op.getOutput(), op.getType()),
                                            op.getInput(), op.getOutput(), op.getCaptures());
  if (failed(buildRegions(op, backward)))
    return failure();
  adjoints.add(op.getInput(), backward.getInputGradient());
  addCaptureGradients(op.getCaptures(), backward);
  return success();
}

LogicalResult Reverse::differentiate(tensor::CastOp op) {
  if (!isa<RankedTensorType>(op.getSource().getType()) || !isa<RankedTensorType>(op.getType()))
    return refuse(op);
  addCast(op.getSource(), adjoints.get(op.getResult()));
  return success();
}

LogicalResult Reverse::differentiate(tensor::CollapseShapeOp op) {
  Value adjoint = adjoints.get(op.getResult());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, b.getLoc(), op.getSrc());
  Value expanded = tensor::ExpandShapeOp::create(b, withElementOf(adjoint, op.getSrcType()),
                                                 adjoint, op.getReassociationIndices(), sizes);
  adjoints.add(op.getSrc(), expanded, guarded);
  return success();
}

LogicalResult Reverse::differentiate(tensor::ExpandShapeOp op) {
  Value collapsed = tensor::CollapseShapeOp::create(b, adjoints.get(op.getResult()),
                                                    op.getReassociationIndices());
  addCast(op.getSrc(), collapsed);
  return success();
}

/// All zeros, but for the element that was read; like a side not taken, what
/// was not read contributes nothing.
LogicalResult Reverse::differentiate(tensor::ExtractOp op) {
  Value adjoint = adjoints.get(op.getResult());
  if (op.getIndices().empty()) {
    Value tensor = tensor::FromElementsOp::create(b, RankedTensorType::get({}, adjoint.getType()),
                                                  ValueRange(adjoint));
    adjoints.add(op.getTensor(), tensor, guarded);
    return success();
  }
  auto type = withElementOf(adjoint, cast<RankedTensorType>(op.getTensor().getType()));
  Value zeros = zeroTensor(b, type, op.getTensor());
  Value inserted = tensor::InsertOp::create(b, adjoint, zeros, op.getIndices());
  adjoints.add(op.getTensor(), inserted, /*guarded=*/true);
  return success();
}

/// All zeros, but for the slice; see above.
LogicalResult Reverse::differentiate(tensor::ExtractSliceOp op) {
  Value adjoint = adjoints.get(op.getResult());
  Value zeros = zeroTensor(b, withElementOf(adjoint, op.getSourceType()), op.getSource());
  Value inserted = tensor::InsertSliceOp::create(b, adjoint, zeros, op.getMixedOffsets(),
                                                 op.getMixedSizes(), op.getMixedStrides());
  adjoints.add(op.getSource(), inserted, /*guarded=*/true);
  return success();
}

LogicalResult Reverse::differentiate(tensor::FromElementsOp op) {
  Value adjoint = adjoints.get(op.getResult());
  ArrayRef<int64_t> shape = op.getType().getShape();
  for (auto [index, element] : llvm::enumerate(op.getElements())) {
    if (!adjoints.isActive(element))
      continue;
    SmallVector<Value> indices(shape.size());
    int64_t rest = index;
    for (int64_t dim = shape.size() - 1; dim >= 0; --dim) {
      indices[dim] = arith::ConstantIndexOp::create(b, rest % shape[dim]);
      rest /= shape[dim];
    }
    Value extracted = tensor::ExtractOp::create(b, adjoint, indices);
    adjoints.add(element, extracted, guarded);
  }
  return success();
}

LogicalResult Reverse::differentiate(linalg::TransposeOp op) {
  Value adjoint = adjoints.get(op->getResult(0));
  SmallVector<int64_t> inverse(op.getPermutation().size());
  for (auto [to, from] : llvm::enumerate(op.getPermutation()))
    inverse[from] = to;
  auto type = withElementOf(adjoint, cast<RankedTensorType>(op.getInput().getType()));
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, b.getLoc(), op.getInput());
  Value empty = tensor::EmptyOp::create(b, sizes, type.getElementType());
  auto transposed = linalg::TransposeOp::create(b, adjoint, empty, inverse);
  addCast(op.getInput(), transposed->getResult(0));
  return success();
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// Builds `gradient`, a clone of the function, into its gradient.
class FunctionGradient {
public:
  FunctionGradient(func::FuncOp gradient, const DerivativeSignature &signature)
      : gradient(gradient), block(gradient.getBody().front()), terminator(block.getTerminator()),
        b(gradient.getLoc(), terminator), adjoints(b), signature(signature) {}

  LogicalResult build();

private:
  LogicalResult findActive();
  SmallVector<Value> addArguments();
  LogicalResult reverse();
  void returnGradients();

  func::FuncOp gradient;
  Block &block;
  Operation *terminator;
  ImplicitLocOpBuilder b;
  Adjoints adjoints;
  const DerivativeSignature &signature;
  SmallVector<Operation *> ops;
  SmallVector<BlockArgument> inputs;
  /// The float-tensor results' positions, and the arguments that hold them.
  SmallVector<unsigned> outputs;
  SmallVector<Value> saved;
};

/// Marks what depends on the float arguments.
LogicalResult FunctionGradient::findActive() {
  llvm::append_range(inputs, llvm::make_filter_range(block.getArguments(), [](Value value) {
                       return carriesGradient(value.getType());
                     }));
  for (Value input : inputs)
    adjoints.activate(input);
  for (Operation &op : block.without_terminator()) {
    // A write would take a float out of sight.
    if (!isMemoryEffectFree(&op) && adjoints.readsActive(&op))
      return refuse(&op);
    adjoints.propagate(&op);
    ops.push_back(&op);
  }
  return success();
}

/// Adds the saved results and the incoming gradients; returns the latter.
SmallVector<Value> FunctionGradient::addArguments() {
  for (OpOperand &operand : terminator->getOpOperands())
    if (isFloatTensor(operand.get().getType()))
      outputs.push_back(operand.getOperandNumber());
  auto add = [&](unsigned output) -> Value {
    Value value = terminator->getOperand(output);
    return block.addArgument(value.getType(), value.getLoc());
  };
  if (signature.savedResults)
    saved = llvm::map_to_vector(outputs, add);
  return llvm::map_to_vector(outputs, [&](unsigned output) {
    return isWanted(signature.results, output) ? add(output) : Value();
  });
}

LogicalResult FunctionGradient::reverse() {
  Reverse rules(b, adjoints);
  for (Operation *op : llvm::reverse(ops)) {
    bool contributes =
        llvm::any_of(op->getResults(), [&](Value value) { return adjoints.has(value); });
    if (contributes && failed(rules.differentiate(op)))
      return failure();
  }
  return success();
}

void FunctionGradient::returnGradients() {
  SmallVector<Value> results;
  b.setLoc(terminator->getLoc());
  for (BlockArgument input : inputs) {
    if (!isWanted(signature.arguments, input.getArgNumber()))
      continue;
    RankedTensorType type = getGradientType(input.getType());
    Value result = adjoints.getAs(input, type);
    results.push_back(result ? result : zeroTensor(b, type, input));
  }
  useSaved(terminator, outputs, saved);
  terminator->setOperands(results);
  eraseDeadOps(block);
  gradient.setType(FunctionType::get(gradient.getContext(), block.getArgumentTypes(),
                                     ValueRange(results).getTypes()));
}

LogicalResult FunctionGradient::build() {
  if (failed(findActive()))
    return failure();
  SmallVector<Value> incoming = addArguments();
  for (auto [output, adjoint] : llvm::zip(outputs, incoming))
    if (adjoint)
      adjoints.add(terminator->getOperand(output), adjoint);
  if (failed(reverse()))
    return failure();
  returnGradients();
  return success();
}

struct DifferentiatePass : attn::impl::AttnDifferentiateBase<DifferentiatePass> {
  using AttnDifferentiateBase::AttnDifferentiateBase;

  void runOnOperation() override {
    DerivativeSignature signature{savedResults, arguments, results};
    auto build = [&](func::FuncOp gradient) {
      return FunctionGradient(gradient, signature).build();
    };
    auto done = [&](func::FuncOp op) { numDifferentiated.at(op); };
    if (failed(addDerivatives(getOperation(), function, "_gradient", signature, build, done)))
      signalPassFailure();
  }
};
} // namespace
