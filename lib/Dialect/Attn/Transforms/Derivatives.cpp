// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// See Derivatives.h.

#include "Derivatives.h"
#include "ScalarGradients.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace attn;

LogicalResult attn::refuse(Operation *op) {
  return op->emitError("cannot differentiate '") << op->getName() << "'";
}

void attn::eraseDeadOps(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

RankedTensorType attn::getGradientType(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor ? tensor : RankedTensorType::get({}, type);
}

SmallVector<Type> attn::getCaptureGradientTypes(ValueRange captures) {
  SmallVector<Type> types;
  for (Value capture : captures)
    if (carriesGradient(capture.getType()))
      types.push_back(getGradientType(capture.getType()));
  return types;
}

bool attn::isFloatTensor(Type type) { return isa<RankedTensorType>(type) && carriesGradient(type); }

//===----------------------------------------------------------------------===//
// Regions
//===----------------------------------------------------------------------===//

// Arguments of a region in front of the captures: the score, b, h, i, j.
static constexpr unsigned kFirstCapture = 5;

/// The captured tensor that `extract` reads, an argument of the region.
static FailureOr<BlockArgument> getCapture(tensor::ExtractOp extract) {
  auto capture = dyn_cast<BlockArgument>(extract.getTensor());
  if (!capture)
    return refuse(extract.getTensor().getDefiningOp());
  return capture;
}

/// Reverse mode over `ops`, in their order, for adjoints that some values have; what captures get
/// is handed to `visit`, in the block's order from behind.
static LogicalResult reverse(ImplicitLocOpBuilder &b, ArrayRef<Operation *> ops, Adjoints &adjoints,
                             function_ref<void(BlockArgument, Value, ValueRange)> visit) {
  for (Operation *op : llvm::reverse(ops)) {
    if (llvm::none_of(op->getResults(), [&](Value value) { return adjoints.has(value); }))
      continue;
    b.setLoc(op->getLoc());
    if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
      FailureOr<BlockArgument> capture = getCapture(extract);
      if (failed(capture))
        return failure();
      visit(*capture, adjoints.get(extract.getResult()), extract.getIndices());
    } else if (failed(differentiateElementwise(b, op, adjoints))) {
      return refuse(op);
    }
  }
  return success();
}

/// Adds an attn.accumulate of the adjoint of each scalar capture of `captures` that has one.
static void accumulateScalars(ImplicitLocOpBuilder &b, ArrayRef<BlockArgument> captures,
                              Adjoints &adjoints) {
  for (BlockArgument capture : captures)
    if (isa<FloatType>(capture.getType()))
      if (Value adjoint = adjoints.get(capture))
        AccumulateOp::create(b, adjoint, capture, ValueRange());
}

/// Marks the score, and those of `captures` that carry gradients; lists the ops of the block.
static SmallVector<Operation *> activate(Block &block, ArrayRef<BlockArgument> captures,
                                         Adjoints &adjoints) {
  adjoints.activate(block.getArgument(0));
  for (BlockArgument capture : captures)
    if (carriesGradient(capture.getType()))
      adjoints.activate(capture);
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator()) {
    adjoints.propagate(&op);
    ops.push_back(&op);
  }
  return ops;
}

/// The adjoint of `value`, or 0.
static Value getOrZero(ImplicitLocOpBuilder &b, Adjoints &adjoints, Value value) {
  Value adjoint = adjoints.get(value);
  return adjoint ? adjoint : constantLike(b, 0, value);
}

LogicalResult attn::buildScoreGradient(Region &score, unsigned captureCount, Region &gradient) {
  IRMapping mapping;
  score.cloneInto(&gradient, mapping);
  Block &block = gradient.front();
  SmallVector<BlockArgument> captures(block.getArguments().take_back(captureCount));
  Operation *yield = block.getTerminator();
  ImplicitLocOpBuilder b(yield->getLoc(), yield);
  Adjoints adjoints(b);
  Value x = block.getArgument(0);
  SmallVector<Operation *> ops = activate(block, captures, adjoints);
  adjoints.add(yield->getOperand(0), block.addArgument(x.getType(), x.getLoc()));
  auto visit = [&](BlockArgument capture, Value adjoint, ValueRange indices) {
    AccumulateOp::create(b, adjoint, capture, indices);
  };
  if (failed(reverse(b, ops, adjoints, visit)))
    return failure();
  b.setLoc(yield->getLoc());
  accumulateScalars(b, captures, adjoints);
  yield->setOperand(0, getOrZero(b, adjoints, x));
  eraseDeadOps(block);
  return success();
}

/// Adds the tangents of the captures at `positions` and s' as arguments to a clone of a score
/// region; returns t'. It is the sum over what the score reads of its tangent times the derivative,
/// which reverse mode gives for the gradient 1 of t.
static FailureOr<Value> appendTangent(Block &block, ArrayRef<int64_t> positions) {
  Operation *yield = block.getTerminator();
  ImplicitLocOpBuilder b(yield->getLoc(), yield);
  Adjoints adjoints(b);
  Value x = block.getArgument(0);
  SmallVector<BlockArgument> captures;
  for (int64_t position : positions)
    captures.push_back(block.getArgument(kFirstCapture + position));
  SmallVector<Operation *> ops = activate(block, captures, adjoints);
  IRMapping tangents;
  for (BlockArgument capture : captures)
    tangents.map(capture, block.addArgument(capture.getType(), capture.getLoc()));
  Value xTangent = block.addArgument(x.getType(), x.getLoc());
  Value y = yield->getOperand(0);
  adjoints.add(y, constantLike(b, 1, y));
  Value sum;
  auto cast = [&](Value value, Type type) -> Value {
    unsigned from = value.getType().getIntOrFloatBitWidth(), to = type.getIntOrFloatBitWidth();
    if (from == to)
      return value;
    return from < to ? arith::ExtFOp::create(b, type, value).getResult()
                     : arith::TruncFOp::create(b, type, value).getResult();
  };
  auto addTerm = [&](Value adjoint, Value tangent) {
    tangent = cast(tangent, adjoint.getType());
    Value term = b.createOrFold<arith::MulFOp>(b.getLoc(), adjoint, tangent);
    term = cast(term, x.getType());
    sum = sum ? b.createOrFold<arith::AddFOp>(b.getLoc(), sum, term) : term;
  };
  auto visit = [&](BlockArgument capture, Value adjoint, ValueRange indices) {
    Value tangent = tangents.lookup(capture);
    addTerm(adjoint, tensor::ExtractOp::create(b, tangent, indices));
  };
  if (failed(reverse(b, ops, adjoints, visit)))
    return failure();
  b.setLoc(yield->getLoc());
  for (BlockArgument capture : captures)
    if (isa<FloatType>(capture.getType()))
      if (Value adjoint = adjoints.get(capture))
        addTerm(adjoint, tangents.lookup(capture));
  if (Value adjoint = adjoints.get(x))
    addTerm(adjoint, xTangent);
  return sum ? sum : constantLike(b, 0, x);
}

LogicalResult attn::buildScoreTangent(Region &score, ArrayRef<int64_t> captures, Region &tangent) {
  IRMapping mapping;
  score.cloneInto(&tangent, mapping);
  Block &block = tangent.front();
  FailureOr<Value> result = appendTangent(block, captures);
  if (failed(result))
    return failure();
  block.getTerminator()->setOperand(0, *result);
  eraseDeadOps(block);
  return success();
}

LogicalResult attn::buildSecondGradient(Region &score, unsigned captureCount,
                                        ArrayRef<int64_t> tangents, Region &gradient) {
  IRMapping mapping;
  score.cloneInto(&gradient, mapping);
  Block &block = gradient.front();
  FailureOr<Value> tangent = appendTangent(block, tangents);
  if (failed(tangent))
    return failure();
  Operation *yield = block.getTerminator();
  ImplicitLocOpBuilder b(yield->getLoc(), yield);
  Adjoints adjoints(b);
  Value x = block.getArgument(0), xTangent = block.getArguments().back();
  SmallVector<BlockArgument> captures(block.getArguments().slice(kFirstCapture, captureCount));
  adjoints.activate(xTangent);
  SmallVector<Operation *> ops = activate(block, captures, adjoints);
  Value dt = block.addArgument(x.getType(), x.getLoc());
  adjoints.add(yield->getOperand(0), block.addArgument(x.getType(), x.getLoc()));
  adjoints.add(*tangent, dt);
  auto visit = [&](BlockArgument capture, Value adjoint, ValueRange indices) {
    // What a tangent gets is the gradient of the first order.
    if (llvm::is_contained(captures, capture))
      AccumulateOp::create(b, adjoint, capture, indices);
  };
  if (failed(reverse(b, ops, adjoints, visit)))
    return failure();
  b.setLoc(yield->getLoc());
  accumulateScalars(b, captures, adjoints);
  Value ds = getOrZero(b, adjoints, xTangent), dsTangent = getOrZero(b, adjoints, x);
  yield->setOperands({ds, dsTangent});
  eraseDeadOps(block);
  return success();
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

bool attn::Tangents::empty() const {
  return !query && !key && !value && !sink &&
         llvm::all_of(captures, [](Value capture) { return !capture; });
}

LogicalResult attn::checkFactor(Operation *op, Region &factor, ValueRange captures,
                                function_ref<bool(Value)> isActive) {
  if (factor.empty())
    return success();
  auto arguments = factor.getArguments().take_back(captures.size());
  for (auto [index, pair] : llvm::enumerate(llvm::zip_equal(arguments, captures))) {
    auto [argument, capture] = pair;
    if (carriesGradient(capture.getType()) && isActive(capture) && !argument.use_empty())
      return op->emitError("cannot differentiate a factor that reads float capture #")
             << index << ", on which the function's arguments have an influence";
  }
  return success();
}

/// Copies the regions that `from` and `to` both have, and derives the tangent.
template <typename From, typename To>
static LogicalResult copyRegions(From from, To to, ArrayRef<int64_t> captures) {
  for (auto [source, target] : {std::pair<Region *, Region *>{&from.getMask(), &to.getMask()},
                                {&from.getFactor(), &to.getFactor()},
                                {&from.getScore(), &to.getScore()}}) {
    IRMapping mapping;
    if (!source->empty())
      source->cloneInto(target, mapping);
  }
  return from.getScore().empty() ? success()
                                 : buildScoreTangent(from.getScore(), captures, to.getTangent());
}

namespace {
/// The tangents of captures as operands.
struct CaptureTangents {
  explicit CaptureTangents(const Tangents &tangents) {
    for (auto [index, tangent] : llvm::enumerate(tangents.captures))
      if (tangent) {
        positions.push_back(index);
        values.push_back(tangent);
      }
  }
  SmallVector<int64_t> positions;
  SmallVector<Value> values;
};
} // namespace

template <typename OpTy>
FailureOr<JvpOp> attn::createJvp(ImplicitLocOpBuilder &b, OpTy op, const Tangents &tangents) {
  CaptureTangents captures(tangents);
  auto jvp =
      JvpOp::create(b, op.getOutput().getType(), op.getLse().getType(), op.getQuery(), op.getKey(),
                    op.getValue(), op.getOutput(), op.getLse(), tangents.query, tangents.key,
                    tangents.value, op.getScaleOperand(), op.getSink(), tangents.sink,
                    op.getCaptures(), captures.values, op.getScaleAttr(), captures.positions);
  jvp.setUngrouped(op.getUngrouped());
  if (failed(copyRegions(op, jvp, captures.positions)))
    return failure();
  return jvp;
}

template FailureOr<JvpOp> attn::createJvp(ImplicitLocOpBuilder &, ForwardOp, const Tangents &);
template FailureOr<JvpOp> attn::createJvp(ImplicitLocOpBuilder &, BackwardOp, const Tangents &);

FailureOr<BackwardJvpOp> attn::createBackwardJvp(ImplicitLocOpBuilder &b, BackwardOp op,
                                                 const Tangents &tangents, Value outputTangent,
                                                 Value lseTangent, Value outputGradientTangent,
                                                 Value lseGradientTangent, bool hasSinkResult) {
  CaptureTangents captures(tangents);
  Type sinkType = hasSinkResult ? op.getSink().getType() : Type();
  auto jvp = BackwardJvpOp::create(
      b, op.getQuery().getType(), op.getKey().getType(), op.getValue().getType(), sinkType,
      getCaptureGradientTypes(op.getCaptures()), op.getOutputGradient(), op.getQuery(), op.getKey(),
      op.getValue(), op.getOutput(), op.getLse(), outputTangent, lseTangent, op.getLseGradient(),
      outputGradientTangent, lseGradientTangent, tangents.query, tangents.key, tangents.value,
      op.getScaleOperand(), op.getSink(), tangents.sink, op.getCaptures(), captures.values,
      op.getScaleAttr(), captures.positions);
  jvp.setUngrouped(op.getUngrouped());
  if (failed(copyRegions(op, jvp, captures.positions)))
    return failure();
  if (!op.getScore().empty() && failed(buildSecondGradient(op.getScore(), op.getCaptures().size(),
                                                           captures.positions, jvp.getGradient())))
    return failure();
  return jvp;
}

ForwardOp attn::addLse(ForwardOp op) {
  ImplicitLocOpBuilder b(op.getLoc(), op);
  RankedTensorType query = op.getQuery().getType();
  auto lse = RankedTensorType::get(query.getShape().drop_back(), op.getAccumulatorType());
  auto replacement =
      ForwardOp::create(b, op.getOutput().getType(), lse, op.getQuery(), op.getKey(), op.getValue(),
                        op.getScaleOperand(), op.getSink(), op.getCaptures(), op.getScaleAttr());
  replacement.setUngrouped(op.getUngrouped());
  replacement.getScore().takeBody(op.getScore());
  replacement.getMask().takeBody(op.getMask());
  replacement.getFactor().takeBody(op.getFactor());
  replacement->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  op.getOutput().replaceAllUsesWith(replacement.getOutput());
  op.erase();
  return replacement;
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// Whether there is anything to differentiate.
static bool isDifferentiable(func::FuncOp function) {
  return !function.isDeclaration() && llvm::any_of(function.getArgumentTypes(), carriesGradient) &&
         llvm::any_of(function.getResultTypes(), isFloatTensor);
}

static LogicalResult checkFunction(func::FuncOp function) {
  if (!function.getBody().hasOneBlock())
    return function.emitError("cannot differentiate a function with several "
                              "blocks");
  for (auto [index, type] : llvm::enumerate(function.getArgumentTypes()))
    if (!hasAdjointType(type) ||
        (carriesGradient(type) && !isFloatTensor(type) && !isa<FloatType>(type)))
      return function.emitError("expected float argument #")
             << index << " to be a scalar or a ranked tensor, of f64 or narrower, got " << type;
  for (auto [index, type] : llvm::enumerate(function.getResultTypes()))
    if (carriesGradient(type) && !isFloatTensor(type))
      return function.emitError("expected float result #")
             << index << " to be a ranked tensor, got " << type;
  return success();
}

static LogicalResult checkPositions(func::FuncOp function, ArrayRef<int64_t> positions,
                                    ArrayRef<Type> types, StringRef role,
                                    function_ref<bool(Type)> fits) {
  for (int64_t position : positions)
    if (position < 0 || position >= int64_t(types.size()) || !fits(types[position]))
      return function.emitError("expected positions of float ") << role << ", got " << position;
  return success();
}

bool attn::isWanted(ArrayRef<int64_t> positions, int64_t position) {
  return positions.empty() || llvm::is_contained(positions, position);
}

void attn::useSaved(Operation *terminator, ArrayRef<unsigned> outputs, ArrayRef<Value> saved) {
  for (auto [output, value] : llvm::zip(outputs, saved)) {
    Value own = terminator->getOperand(output);
    if (isa<OpResult>(own))
      own.replaceAllUsesWith(value);
  }
}

static LogicalResult addDerivative(func::FuncOp function, StringRef suffix,
                                   const DerivativeSignature &signature,
                                   function_ref<LogicalResult(func::FuncOp)> build) {
  if (failed(checkFunction(function)) ||
      failed(checkPositions(function, signature.arguments, function.getArgumentTypes(), "arguments",
                            carriesGradient)) ||
      failed(checkPositions(function, signature.results, function.getResultTypes(),
                            "tensor results", isFloatTensor)))
    return failure();
  std::string name = (function.getName() + suffix).str();
  if (SymbolTable::lookupSymbolIn(function->getParentOp(), name))
    return function.emitError("there is an '@") << name << "' already";
  OpBuilder builder(function->getContext());
  builder.setInsertionPointAfter(function);
  auto derivative = cast<func::FuncOp>(builder.clone(*function));
  derivative.setName(name);
  // What is said of arguments and results by position no longer fits.
  derivative.removeArgAttrsAttr();
  derivative.removeResAttrsAttr();
  if (succeeded(build(derivative)))
    return success();
  derivative.erase();
  return failure();
}

LogicalResult attn::addDerivatives(ModuleOp module, StringRef name, StringRef suffix,
                                   const DerivativeSignature &signature,
                                   function_ref<LogicalResult(func::FuncOp)> build,
                                   function_ref<void(func::FuncOp)> done) {
  SmallVector<func::FuncOp> functions;
  for (auto op : module.getOps<func::FuncOp>())
    if (name.empty() ? isDifferentiable(op) : op.getName() == name)
      functions.push_back(op);
  if (!name.empty() && functions.empty())
    return module.emitError("there is no function '@") << name << "'";
  for (func::FuncOp op : functions) {
    if (!isDifferentiable(op))
      return op.emitError("cannot differentiate a function without a body, a float "
                          "argument and a float tensor as result");
    if (failed(addDerivative(op, suffix, signature, build)))
      return failure();
    done(op);
  }
  return success();
}
