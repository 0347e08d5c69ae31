// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ops of level L0, with score and mask regions: verification and canonicalisation.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace attn;

//===----------------------------------------------------------------------===//
// Shared by the ops with score and mask regions
//===----------------------------------------------------------------------===//

Type attn::withElement(Type type, Type element) {
  auto shaped = dyn_cast<ShapedType>(type);
  return shaped ? Type(shaped.clone(element)) : element;
}

static FloatType accumulatorType(Type elementType) {
  return elementType.isF64() ? cast<FloatType>(elementType)
                             : Float32Type::get(elementType.getContext());
}

/// Checks that `region`, where present, takes `leading`, the captures and `trailing`, and yields
/// `results`.
static LogicalResult verifyScalarRegion(Operation *op, Region &region, StringRef name,
                                        ArrayRef<Type> leading, TypeRange captures,
                                        TypeRange results, TypeRange trailing = {}) {
  if (region.empty())
    return success();
  SmallVector<Type> expected(leading);
  llvm::append_range(expected, captures);
  llvm::append_range(expected, trailing);
  TypeRange actual = region.front().getArgumentTypes();
  if (actual.size() != expected.size())
    return op->emitOpError("expected the ")
           << name << " region to take " << expected.size() << " arguments, got " << actual.size();
  for (auto [index, pair] : llvm::enumerate(llvm::zip(expected, actual)))
    if (std::get<0>(pair) != std::get<1>(pair))
      return op->emitOpError("expected argument #")
             << index << " of the " << name << " region to be " << std::get<0>(pair) << ", got "
             << std::get<1>(pair);
  Operation *yield = region.front().getTerminator();
  if (yield->getOperandTypes() != results)
    return yield->emitOpError("expected the ")
           << name << " region to yield " << (results.size() == 1 ? "one " : "") << results
           << ", got " << yield->getOperandTypes();
  // A region is a scalar function: an op with memory effects or regions of
  // its own has no tile form.
  WalkResult walk = region.walk([&](Operation *inner) {
    bool accumulates = isa<AccumulateOp>(inner) && !trailing.empty();
    if (!(isMemoryEffectFree(inner) || accumulates) || inner->getNumRegions() != 0) {
      inner->emitOpError("is not allowed in a ") << name << " region, expected a pure scalar op";
      return WalkResult::interrupt();
    }
    // An index that is a constant outside of the captured tensor.
    if (auto extract = dyn_cast<tensor::ExtractOp>(inner)) {
      auto type = extract.getTensor().getType();
      for (auto [dim, index] : llvm::enumerate(extract.getIndices())) {
        IntegerAttr constant;
        if (!matchPattern(index, m_Constant(&constant)))
          continue;
        int64_t value = constant.getInt();
        if (value < 0 || (!type.isDynamicDim(dim) && value >= type.getDimSize(dim))) {
          extract.emitOpError("reads outside of its capture: index ")
              << value << " in dimension " << dim << " of " << type;
          return WalkResult::interrupt();
        }
      }
    }
    return WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}

/// Static sizes that must agree; dynamic ones are checked when shapes are known.
static bool differ(int64_t a, int64_t b) {
  return !ShapedType::isDynamic(a) && !ShapedType::isDynamic(b) && a != b;
}

/// The scale where it is known at compile time.
template <typename OpTy> static std::optional<double> staticScale(OpTy op) {
  if (op.getScaleOperand())
    return std::nullopt;
  if (auto attr = op.getScaleAttr())
    return attr.getValueAsDouble();
  return 1.0 / std::sqrt(double(op.getQuery().getType().getDimSize(3)));
}

static bool isFloatCapture(Value capture) {
  return isa<FloatType>(getElementTypeOrSelf(capture.getType()));
}

/// The gradients of the float captures follow one another in order.
template <typename OpTy> static Value captureGradient(OpTy op, unsigned index) {
  auto captures = op.getCaptures();
  if (!isFloatCapture(captures[index]))
    return {};
  return op.getCaptureGradients()[llvm::count_if(captures.take_front(index), isFloatCapture)];
}

template <typename OpTy> static LogicalResult verifyCaptureGradients(OpTy op) {
  auto floats = llvm::filter_to_vector(op.getCaptures(), isFloatCapture);
  if (floats.size() != op.getCaptureGradients().size())
    return op.emitOpError("expected a gradient for each of the ")
           << floats.size() << " float captures, got " << op.getCaptureGradients().size();
  for (auto [index, capture] : llvm::enumerate(floats)) {
    Type expected = capture.getType();
    if (!isa<RankedTensorType>(expected))
      expected = RankedTensorType::get({}, expected);
    Type actual = op.getCaptureGradients()[index].getType();
    if (actual != expected)
      return op.emitOpError("expected capture gradient #")
             << index << " to be " << expected << ", got " << actual;
  }
  return success();
}

template <typename OpTy>
static void reifyCaptureGradients(OpTy op, OpBuilder &builder,
                                  ReifiedRankedShapedTypeDims &shapes) {
  for (Value capture : llvm::make_filter_range(op.getCaptures(), isFloatCapture)) {
    shapes.emplace_back();
    if (isa<RankedTensorType>(capture.getType()))
      shapes.back() = tensor::getMixedSizes(builder, op.getLoc(), capture);
  }
}

/// The score, gradient and mask regions of a backward op over `indices`.
template <typename OpTy>
static LogicalResult verifyBackwardRegions(OpTy op, FloatType accumulator, ArrayRef<Type> indices) {
  if (op.getScore().empty() != op.getGradient().empty())
    return op.emitOpError("expected score and gradient regions together, got only ")
           << (op.getScore().empty() ? "gradient" : "score");
  SmallVector<Type> leading = {accumulator};
  llvm::append_range(leading, indices);
  TypeRange captures = op.getCaptures().getTypes();
  if (failed(verifyScalarRegion(op, op.getScore(), "score", leading, captures, accumulator)) ||
      failed(verifyScalarRegion(op, op.getGradient(), "gradient", leading, captures, accumulator,
                                {accumulator})))
    return failure();
  return verifyScalarRegion(op, op.getMask(), "mask", indices, captures,
                            IntegerType::get(op.getContext(), 1));
}

namespace {
/// A mask region that yields the constant true keeps every pair.
template <typename OpTy> struct DropTrueMask : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy op, PatternRewriter &rewriter) const override {
    if (op.getMask().empty())
      return failure();
    Value kept = op.getMask().front().getTerminator()->getOperand(0);
    if (!matchPattern(kept, m_One()))
      return failure();
    rewriter.eraseBlock(&op.getMask().front());
    return success();
  }
};

/// A factor region that yields the constant 1 changes nothing.
template <typename OpTy> struct DropFactorOfOne : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy op, PatternRewriter &rewriter) const override {
    if (op.getFactor().empty() ||
        !matchPattern(op.getFactor().front().getTerminator()->getOperand(0), m_OneFloat()))
      return failure();
    rewriter.eraseBlock(&op.getFactor().front());
    return success();
  }
};

/// A score region that yields its score is the identity.
template <typename OpTy> struct DropIdentityScore : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy op, PatternRewriter &rewriter) const override {
    if (op.getScore().empty())
      return failure();
    Block &body = op.getScore().front();
    if (body.getTerminator()->getOperand(0) != body.getArgument(0))
      return failure();
    rewriter.eraseBlock(&op.getScore().front());
    return success();
  }
};

/// A capture that no region reads.
template <typename OpTy> struct DropUnusedCaptures : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy op, PatternRewriter &rewriter) const override {
    unsigned count = op.getCaptures().size();
    for (unsigned index = 0; index < count; ++index) {
      SmallVector<BlockArgument> uses;
      for (Region &region : op->getRegions())
        if (!region.empty()) {
          Block &block = region.front();
          uses.push_back(block.getArgument(block.getNumArguments() - count + index));
        }
      if (llvm::any_of(uses, [](BlockArgument a) { return !a.use_empty(); }))
        continue;
      rewriter.modifyOpInPlace(op, [&] {
        for (BlockArgument argument : uses)
          argument.getOwner()->eraseArgument(argument.getArgNumber());
        op.getCapturesMutable().erase(index);
      });
      return success();
    }
    return failure();
  }
};

/// A scale operand that is constant becomes the attribute.
struct FoldConstantScale : OpRewritePattern<ForwardOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ForwardOp op, PatternRewriter &rewriter) const override {
    FloatAttr constant;
    if (!op.getScaleOperand() || !matchPattern(op.getScaleOperand(), m_Constant(&constant)))
      return failure();
    rewriter.modifyOpInPlace(op, [&] {
      op.setScaleAttr(rewriter.getF64FloatAttr(constant.getValueAsDouble()));
      op.getScaleOperandMutable().clear();
    });
    return success();
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// ForwardOp
//===----------------------------------------------------------------------===//

FloatType ForwardOp::getAccumulatorType() {
  return accumulatorType(getQuery().getType().getElementType());
}

std::optional<double> ForwardOp::getStaticScale() { return staticScale(*this); }

/// What attn.forward and attn.backward share: the operands and results of the
/// forward, `lse` null where there is none.
template <typename OpTy>
static LogicalResult verifyAttention(OpTy op, RankedTensorType o, RankedTensorType l) {
  auto q = op.getQuery().getType(), k = op.getKey().getType(), v = op.getValue().getType();
  Type element = q.getElementType();
  for (auto [name, type] :
       {std::pair<StringRef, RankedTensorType>{"key", k}, {"value", v}, {"output", o}})
    if (type.getElementType() != element)
      return op.emitOpError("expected ") << name << " to have the query's element type " << element
                                         << ", got " << type.getElementType();
  for (auto [name, type] :
       {std::pair<StringRef, RankedTensorType>{"query", q}, {"key", k}, {"value", v}})
    if (type.isDynamicDim(3) || type.getDimSize(3) == 0)
      return op.emitOpError("expected a static, positive head size (dimension 3) of ")
             << name << ", got " << type;
  if (q.getDimSize(3) != k.getDimSize(3))
    return op.emitOpError("expected query and key to have the same head size, got ")
           << q.getDimSize(3) << " and " << k.getDimSize(3);
  auto same = [&](StringRef what, StringRef aName, RankedTensorType a, unsigned aDim,
                  StringRef bName, RankedTensorType b, unsigned bDim) -> LogicalResult {
    if (!differ(a.getDimSize(aDim), b.getDimSize(bDim)))
      return success();
    return op.emitOpError("expected ")
           << aName << " and " << bName << " to have the same " << what << ", got "
           << a.getDimSize(aDim) << " and " << b.getDimSize(bDim);
  };
  if (failed(same("batch", "query", q, 0, "key", k, 0)) ||
      failed(same("batch", "key", k, 0, "value", v, 0)) ||
      failed(same("heads", "key", k, 1, "value", v, 1)) ||
      failed(same("length", "key", k, 2, "value", v, 2)) ||
      failed(same("batch", "query", q, 0, "output", o, 0)) ||
      failed(same("heads", "query", q, 1, "output", o, 1)) ||
      failed(same("length", "query", q, 2, "output", o, 2)) ||
      failed(same("head size", "value", v, 3, "output", o, 3)))
    return failure();
  if (o.isDynamicDim(3))
    return op.emitOpError("expected a static head size (dimension 3) of output, got ") << o;
  int64_t heads = q.getDimSize(1), keyHeads = k.getDimSize(1);
  if (!ShapedType::isDynamic(heads) && !ShapedType::isDynamic(keyHeads) &&
      (keyHeads == 0 ? heads != 0 : heads % keyHeads != 0))
    return op.emitOpError("expected query heads to be a multiple of key heads, got ")
           << heads << " and " << keyHeads;
  if (op.getUngrouped() && !ShapedType::isDynamic(heads) && !ShapedType::isDynamic(keyHeads) &&
      heads != keyHeads)
    return op.emitOpError("expected as many key heads as query heads where it is ungrouped, got ")
           << keyHeads << " and " << heads;
  FloatType accumulator = op.getAccumulatorType();
  if (op.getScaleOperand() && op.getScale())
    return op.emitOpError("expected scale as an attribute or as an operand, got both");
  if (op.getScale() && !std::isfinite(op.getScaleAttr().getValueAsDouble()))
    return op.emitOpError("expected a finite scale, got ") << op.getScaleAttr().getValueAsDouble();
  if (op.getScaleOperand() && op.getScaleOperand().getType() != accumulator)
    return op.emitOpError("expected scale to be ")
           << accumulator << ", got " << op.getScaleOperand().getType();
  if (Value sink = op.getSink()) {
    auto type = cast<RankedTensorType>(sink.getType());
    if (type.getRank() != 1 || type.getElementType() != accumulator)
      return op.emitOpError("expected sink to be a rank-1 tensor of ")
             << accumulator << ", got " << type;
    if (differ(type.getDimSize(0), heads))
      return op.emitOpError("expected sink to have one element per query head, got ")
             << type.getDimSize(0) << " for " << heads << " heads";
  }
  if (l) {
    if (l.getElementType() != accumulator)
      return op.emitOpError("expected LSE of ") << accumulator << ", got " << l.getElementType();
    StringRef what[] = {"batch", "heads", "length"};
    for (unsigned dim = 0; dim < 3; ++dim)
      if (failed(same(what[dim], "query", q, dim, "LSE", l, dim)))
        return failure();
  }
  return success();
}

LogicalResult ForwardOp::verify() {
  return verifyAttention(*this, getOutput().getType(),
                         getLse() ? getLse().getType() : RankedTensorType());
}

LogicalResult ForwardOp::verifyRegions() {
  Type index = IndexType::get(getContext());
  FloatType accumulator = getAccumulatorType();
  if (failed(verifyScalarRegion(*this, getScore(), "score",
                                {accumulator, index, index, index, index}, getCaptures().getTypes(),
                                accumulator)))
    return failure();
  if (failed(verifyScalarRegion(*this, getMask(), "mask", {index, index, index, index},
                                getCaptures().getTypes(), IntegerType::get(getContext(), 1))))
    return failure();
  return verifyScalarRegion(*this, getFactor(), "factor", {index, index, index, index},
                            getCaptures().getTypes(), accumulator);
}

void ForwardOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<DropTrueMask<ForwardOp>, DropIdentityScore<ForwardOp>, DropUnusedCaptures<ForwardOp>,
               DropFactorOfOne<ForwardOp>, FoldConstantScale>(context);
}

LogicalResult ForwardOp::reifyResultShapes(OpBuilder &builder,
                                           ReifiedRankedShapedTypeDims &shapes) {
  auto dim = [&](Value tensor, int64_t index) {
    return tensor::getMixedSize(builder, getLoc(), tensor, index);
  };
  SmallVector<OpFoldResult> rows = {dim(getQuery(), 0), dim(getQuery(), 1), dim(getQuery(), 2)};
  shapes.push_back(rows);
  shapes.back().push_back(dim(getValue(), 3));
  if (getLse())
    shapes.push_back(rows);
  return success();
}

//===----------------------------------------------------------------------===//
// BackwardOp
//===----------------------------------------------------------------------===//

FloatType BackwardOp::getAccumulatorType() {
  return accumulatorType(getQuery().getType().getElementType());
}

std::optional<double> BackwardOp::getStaticScale() { return staticScale(*this); }

Value BackwardOp::getCaptureGradient(unsigned index) { return captureGradient(*this, index); }

LogicalResult BackwardOp::verify() {
  if (failed(verifyAttention(*this, getOutput().getType(), getLse().getType())))
    return failure();
  auto same = [&](StringRef what, Type actual, Type expected) -> LogicalResult {
    if (actual == expected)
      return success();
    return emitOpError("expected ") << what << " to be " << expected << ", got " << actual;
  };
  if (failed(same("the output's gradient", getOutputGradient().getType(), getOutput().getType())) ||
      failed(same("the query's gradient", getQueryGradient().getType(), getQuery().getType())) ||
      failed(same("the key's gradient", getKeyGradient().getType(), getKey().getType())) ||
      failed(same("the value's gradient", getValueGradient().getType(), getValue().getType())))
    return failure();
  if (getLseGradient() &&
      failed(same("LSE's gradient", getLseGradient().getType(), getLse().getType())))
    return failure();
  if (getScaleGradient()) {
    if (!getScaleOperand())
      return emitOpError("expected a gradient of scale only where scale is an operand");
    if (failed(same("the scale's gradient", getScaleGradient().getType(),
                    RankedTensorType::get({}, getAccumulatorType()))))
      return failure();
  }
  if (getSinkGradient()) {
    if (!getSink())
      return emitOpError("expected a gradient of the sink only where there is a sink");
    if (failed(same("the sink's gradient", getSinkGradient().getType(), getSink().getType())))
      return failure();
  }
  return verifyCaptureGradients(*this);
}

LogicalResult BackwardOp::verifyRegions() {
  Type index = IndexType::get(getContext());
  FloatType accumulator = getAccumulatorType();
  if (failed(verifyBackwardRegions(*this, accumulator, {index, index, index, index})))
    return failure();
  return verifyScalarRegion(*this, getFactor(), "factor", {index, index, index, index},
                            getCaptures().getTypes(), accumulator);
}

void BackwardOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<DropTrueMask<BackwardOp>, DropFactorOfOne<BackwardOp>>(context);
}

LogicalResult BackwardOp::reifyResultShapes(OpBuilder &builder,
                                            ReifiedRankedShapedTypeDims &shapes) {
  auto add = [&](Value like) { shapes.push_back(tensor::getMixedSizes(builder, getLoc(), like)); };
  for (Value like : {Value(getQuery()), Value(getKey()), Value(getValue())})
    add(like);
  if (getScaleGradient())
    shapes.push_back({});
  if (getSinkGradient())
    add(getSink());
  reifyCaptureGradients(*this, builder, shapes);
  return success();
}

//===----------------------------------------------------------------------===//
// JvpOp and BackwardJvpOp
//===----------------------------------------------------------------------===//

/// What `what`, where it is present, is to be.
static LogicalResult verifyType(Operation *op, StringRef what, Value actual, Type expected) {
  if (!actual || actual.getType() == expected)
    return success();
  return op->emitOpError("expected ")
         << what << " to be " << expected << ", got " << actual.getType();
}

/// Tangents of the operands that both ops have.
template <typename OpTy> static LogicalResult verifyTangents(OpTy op) {
  if (failed(
          verifyType(op, "the query's tangent", op.getQueryTangent(), op.getQuery().getType())) ||
      failed(verifyType(op, "the key's tangent", op.getKeyTangent(), op.getKey().getType())) ||
      failed(verifyType(op, "the value's tangent", op.getValueTangent(), op.getValue().getType())))
    return failure();
  if (op.getSinkTangent()) {
    if (!op.getSink())
      return op.emitOpError("expected a tangent of the sink only where there is a sink");
    if (failed(verifyType(op, "the sink's tangent", op.getSinkTangent(), op.getSink().getType())))
      return failure();
  }
  ArrayRef<int64_t> positions = op.getTangentCaptures();
  if (positions.size() != op.getCaptureTangents().size())
    return op.emitOpError("expected a position of each of the ")
           << op.getCaptureTangents().size() << " capture tangents, got " << positions.size();
  for (auto [index, position] : llvm::enumerate(positions)) {
    if (position < 0 || position >= int64_t(op.getCaptures().size()) ||
        !isFloatCapture(op.getCaptures()[position]) ||
        (index > 0 && position <= positions[index - 1]))
      return op.emitOpError("expected increasing positions of float captures in tangent_captures, "
                            "got ")
             << position;
    if (failed(verifyType(op, "a capture's tangent", op.getCaptureTangents()[index],
                          op.getCaptures()[position].getType())))
      return failure();
  }
  return success();
}

/// The score, tangent, mask and factor regions that both ops have.
template <typename OpTy> static LogicalResult verifyTangentRegions(OpTy op) {
  if (op.getScore().empty() != op.getTangent().empty())
    return op.emitOpError("expected score and tangent regions together, got only ")
           << (op.getScore().empty() ? "tangent" : "score");
  Type index = IndexType::get(op.getContext());
  Type accumulator = op.getAccumulatorType();
  SmallVector<Type> leading = {accumulator, index, index, index, index};
  TypeRange captures = op.getCaptures().getTypes();
  SmallVector<Type> trailing(op.getCaptureTangents().getTypes());
  trailing.push_back(accumulator);
  Type keep = IntegerType::get(op.getContext(), 1);
  if (failed(verifyScalarRegion(op, op.getScore(), "score", leading, captures, accumulator)) ||
      failed(verifyScalarRegion(op, op.getTangent(), "tangent", leading, captures, accumulator,
                                trailing)))
    return failure();
  leading.erase(leading.begin());
  if (failed(verifyScalarRegion(op, op.getMask(), "mask", leading, captures, keep)))
    return failure();
  return verifyScalarRegion(op, op.getFactor(), "factor", leading, captures, accumulator);
}

FloatType JvpOp::getAccumulatorType() {
  return accumulatorType(getQuery().getType().getElementType());
}

std::optional<double> JvpOp::getStaticScale() { return staticScale(*this); }

LogicalResult JvpOp::verify() {
  if (failed(verifyAttention(*this, getOutput().getType(), getLse().getType())) ||
      failed(
          verifyType(*this, "the output's tangent", getOutputTangent(), getOutput().getType())) ||
      failed(verifyType(*this, "LSE's tangent", getLseTangent(), getLse().getType())))
    return failure();
  return verifyTangents(*this);
}

LogicalResult JvpOp::verifyRegions() { return verifyTangentRegions(*this); }

void JvpOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<DropTrueMask<JvpOp>, DropFactorOfOne<JvpOp>>(context);
}

LogicalResult JvpOp::reifyResultShapes(OpBuilder &builder, ReifiedRankedShapedTypeDims &shapes) {
  for (Value like : {Value(getOutput()), Value(getLse())})
    shapes.push_back(tensor::getMixedSizes(builder, getLoc(), like));
  return success();
}

FloatType BackwardJvpOp::getAccumulatorType() {
  return accumulatorType(getQuery().getType().getElementType());
}

std::optional<double> BackwardJvpOp::getStaticScale() { return staticScale(*this); }

Value BackwardJvpOp::getCaptureGradient(unsigned index) { return captureGradient(*this, index); }

LogicalResult BackwardJvpOp::verify() {
  Type output = getOutput().getType(), lse = getLse().getType();
  if (failed(verifyAttention(*this, getOutput().getType(), getLse().getType())) ||
      failed(verifyType(*this, "the output's gradient", getOutputGradient(), output)) ||
      failed(verifyType(*this, "the tangent of the output's gradient", getOutputGradientTangent(),
                        output)) ||
      failed(verifyType(*this, "LSE's gradient", getLseGradient(), lse)) ||
      failed(verifyType(*this, "the tangent of LSE's gradient", getLseGradientTangent(), lse)) ||
      failed(
          verifyType(*this, "the result of the query", getQueryGradient(), getQuery().getType())) ||
      failed(verifyType(*this, "the result of the key", getKeyGradient(), getKey().getType())) ||
      failed(
          verifyType(*this, "the result of the value", getValueGradient(), getValue().getType())))
    return failure();
  if (getSinkGradient()) {
    if (!getSink())
      return emitOpError("expected a result of the sink only where there is a sink");
    if (failed(verifyType(*this, "the result of the sink", getSinkGradient(), getSink().getType())))
      return failure();
  }
  return failure(failed(verifyTangents(*this)) || failed(verifyCaptureGradients(*this)));
}

LogicalResult BackwardJvpOp::verifyRegions() {
  if (failed(verifyTangentRegions(*this)))
    return failure();
  if (getScore().empty() != getGradient().empty())
    return emitOpError("expected score and gradient regions together, got only ")
           << (getScore().empty() ? "gradient" : "score");
  Type index = IndexType::get(getContext());
  Type accumulator = getAccumulatorType();
  SmallVector<Type> trailing(getCaptureTangents().getTypes());
  trailing.append(3, accumulator);
  return verifyScalarRegion(*this, getGradient(), "gradient",
                            {accumulator, index, index, index, index}, getCaptures().getTypes(),
                            {accumulator, accumulator}, trailing);
}

void BackwardJvpOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<DropTrueMask<BackwardJvpOp>, DropFactorOfOne<BackwardJvpOp>>(context);
}

LogicalResult BackwardJvpOp::reifyResultShapes(OpBuilder &builder,
                                               ReifiedRankedShapedTypeDims &shapes) {
  auto add = [&](Value like) { shapes.push_back(tensor::getMixedSizes(builder, getLoc(), like)); };
  for (Value like : {Value(getQuery()), Value(getKey()), Value(getValue())})
    add(like);
  if (getSinkGradient())
    add(getSink());
  reifyCaptureGradients(*this, builder, shapes);
  return success();
}

//===----------------------------------------------------------------------===//
// SoftmaxOp
//===----------------------------------------------------------------------===//

FloatType SoftmaxOp::getAccumulatorType() {
  return accumulatorType(getInput().getType().getElementType());
}

LogicalResult SoftmaxOp::verify() {
  if (getInput().getType().getRank() == 0)
    return emitOpError("expected a tensor of rank 1 or more, got ") << getInput().getType();
  return success();
}

LogicalResult SoftmaxOp::verifyRegions() {
  SmallVector<Type> indices(getInput().getType().getRank(), IndexType::get(getContext()));
  FloatType accumulator = getAccumulatorType();
  SmallVector<Type> scoreTypes = {accumulator};
  llvm::append_range(scoreTypes, indices);
  if (failed(verifyScalarRegion(*this, getScore(), "score", scoreTypes, getCaptures().getTypes(),
                                accumulator)))
    return failure();
  return verifyScalarRegion(*this, getMask(), "mask", indices, getCaptures().getTypes(),
                            IntegerType::get(getContext(), 1));
}

void SoftmaxOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns
      .add<DropTrueMask<SoftmaxOp>, DropIdentityScore<SoftmaxOp>, DropUnusedCaptures<SoftmaxOp>>(
          context);
}

LogicalResult SoftmaxOp::reifyResultShapes(OpBuilder &builder,
                                           ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back(tensor::getMixedSizes(builder, getLoc(), getInput()));
  return success();
}

//===----------------------------------------------------------------------===//
// SoftmaxBackwardOp and AccumulateOp
//===----------------------------------------------------------------------===//

FloatType SoftmaxBackwardOp::getAccumulatorType() {
  return accumulatorType(getInput().getType().getElementType());
}

Value SoftmaxBackwardOp::getCaptureGradient(unsigned index) {
  return captureGradient(*this, index);
}

LogicalResult SoftmaxBackwardOp::verify() {
  if (getInput().getType().getRank() == 0)
    return emitOpError("expected a tensor of rank 1 or more, got ") << getInput().getType();
  return verifyCaptureGradients(*this);
}

LogicalResult SoftmaxBackwardOp::verifyRegions() {
  SmallVector<Type> indices(getInput().getType().getRank(), IndexType::get(getContext()));
  return verifyBackwardRegions(*this, getAccumulatorType(), indices);
}

void SoftmaxBackwardOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                                    MLIRContext *context) {
  patterns.add<DropTrueMask<SoftmaxBackwardOp>>(context);
}

LogicalResult SoftmaxBackwardOp::reifyResultShapes(OpBuilder &builder,
                                                   ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back(tensor::getMixedSizes(builder, getLoc(), getInput()));
  reifyCaptureGradients(*this, builder, shapes);
  return success();
}

LogicalResult AccumulateOp::verify() {
  Type type = getCapture().getType();
  auto tensor = dyn_cast<RankedTensorType>(type);
  size_t rank = tensor ? tensor.getRank() : 0;
  if (getIndices().size() != rank)
    return emitOpError("expected ") << rank << " indices, got " << getIndices().size();
  FloatType wanted = accumulatorType(getElementTypeOrSelf(type));
  if (getValue().getType() != wanted)
    return emitOpError("expected a value of ") << wanted << ", got " << getValue().getType();
  return TypeSwitch<Operation *, LogicalResult>((*this)->getParentOp())
      .Case<BackwardOp, BackwardJvpOp, SoftmaxBackwardOp>([&](auto parent) -> LogicalResult {
        Block *block = (*this)->getBlock();
        if (block->getParent() != &parent.getGradient())
          return emitOpError("expected to be in the gradient region");
        // Behind the captures are the incoming gradient, and what there is of tangents.
        // Too few are the parent's error.
        size_t count = parent.getCaptures().size(), behind = 1;
        if constexpr (std::is_same_v<decltype(parent), BackwardJvpOp>)
          behind = 3 + parent.getCaptureTangents().size();
        if (block->getNumArguments() < count + behind)
          return success();
        auto captures = block->getArguments().drop_back(behind).take_back(count);
        if (!llvm::is_contained(captures, getCapture()))
          return emitOpError("expected a capture of the region");
        return success();
      });
}
