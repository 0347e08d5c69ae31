// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loops, points, and the evaluation of lazy tile ops at a point.

#include "Nest.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace attn::tiles;

bool attn::tiles::isLazy(Operation *op) {
  if (op->getNumResults() != 1 || !tileType(op->getResult(0)))
    return false;
  return OpTrait::hasElementwiseMappableTraits(op) ||
         isa<arith::ConstantOp, vector::BroadcastOp, vector::TransposeOp, vector::ShapeCastOp,
             vector::StepOp, vector::CreateMaskOp, vector::TransferReadOp, vector::GatherOp>(op);
}

Nest::Nest(Context &context, Operation *position)
    : loc(position->getLoc()), context(context), b(position) {
  levels.push_back({position->getBlock(), position, {}});
}

OpBuilder &Nest::builder() {
  insertAt(levels.size() - 1);
  return b;
}

void Nest::insertAt(int level) {
  Level &where = levels[level];
  if (where.anchor)
    b.setInsertionPoint(where.anchor);
  else if (where.block->mightHaveTerminator())
    b.setInsertionPoint(where.block->getTerminator());
  else
    b.setInsertionPointToEnd(where.block);
}

int Nest::levelOf(ArrayRef<int> classes) {
  int level = 0;
  for (int cls : classes)
    level = std::max(level, points.lookup(cls).level);
  return level;
}

Value Nest::constant(int64_t value) {
  OpBuilder::InsertionGuard guard(b);
  insertAt(0);
  return arith::ConstantIndexOp::create(b, loc, value);
}

Value Nest::add(Value left, Value right) {
  if (isConstantIntValue(left, 0))
    return right;
  if (isConstantIntValue(right, 0))
    return left;
  return arith::AddIOp::create(b, loc, left, right);
}

Value Nest::addConstant(Value left, int64_t right) {
  return right == 0 ? left : add(left, constant(right));
}

Type Nest::wide(Type element) {
  return laneClass >= 0 ? Type(VectorType::get({width}, element)) : element;
}

Value Nest::broadcastTo(Value value, Type type) {
  if (value.getType() == type || !isa<VectorType>(type))
    return value;
  return vector::BroadcastOp::create(b, loc, type, value);
}

Value Nest::splat(Value scalar) { return broadcastTo(scalar, wide(scalar.getType())); }

scf::ForOp Nest::open(int cls, int64_t begin, int64_t end, int64_t step, ValueRange inits) {
  Value bounds[] = {constant(begin), constant(end), constant(step)};
  builder();
  auto loop = scf::ForOp::create(b, loc, bounds[0], bounds[1], bounds[2], inits);
  levels.back().anchor = loop;
  levels.push_back({loop.getBody(), nullptr, {}});
  if (cls >= 0)
    bind(cls, loop.getInductionVar());
  return loop;
}

void Nest::close(ValueRange values) {
  if (!values.empty()) {
    builder();
    scf::YieldOp::create(b, loc, values);
  }
  levels.pop_back();
  Level &outer = levels.back();
  Operation *next = outer.anchor->getNextNode();
  // The outermost level goes on writing before its position; others append.
  outer.anchor = levels.size() == 1 ? next : nullptr;
}

SmallVector<Value> Nest::loops(ArrayRef<int> classes, ValueRange inits,
                               llvm::function_ref<SmallVector<Value>(ValueRange)> body) {
  if (classes.empty())
    return body(inits);
  int64_t extent = context.classes.extent(classes.front());
  scf::ForOp loop = open(classes.front(), 0, extent, 1, inits);
  close(loops(classes.drop_front(), SmallVector<Value>(loop.getRegionIterArgs()), body));
  return SmallVector<Value>(loop.getResults());
}

void Nest::setLanes(int cls, Value base, int64_t newWidth) {
  laneClass = cls;
  width = newWidth;
  bind(cls, base);
}

void Nest::selectLanes(int cls, Value base, int64_t newWidth) {
  laneClass = cls;
  width = newWidth;
  points[cls].index = base;
}

void Nest::bind(int cls, Value index) { points[cls] = {index, int(levels.size()) - 1}; }

Value Nest::evalWide(Value value) {
  Value result = eval(value);
  if (laneClass < 0 || isa<VectorType>(result.getType()))
    return result;
  builder();
  return splat(result);
}

Value Nest::eval(Value value) {
  if (!tileType(value))
    return value;
  SmallVector<int> classes = context.classes.domain(value);
  bool vector = hasLane(classes);
  int level = levelOf(classes);
  SmallVector<const void *, 4> key{value.getAsOpaquePointer()};
  for (int cls : classes)
    key.push_back(points.lookup(cls).index.getAsOpaquePointer());
  if (vector)
    key.push_back(reinterpret_cast<const void *>(width));
  auto found = levels[level].memo.find(key);
  if (found != levels[level].memo.end())
    return found->second;
  Value result = compute(value, vector);
  levels[level].memo[key] = result;
  return result;
}

Value Nest::compute(Value value, bool vector) {
  SmallVector<int> classes = context.classes.domain(value);
  Type element = tileType(value).getElementType();
  int level = levelOf(classes);
  auto buffer = context.buffers.find(value);
  if (buffer != context.buffers.end()) {
    insertAt(level);
    return load(buffer->second, element, vector);
  }
  Operation *op = value.getDefiningOp();
  assert(op && isLazy(op) && "a tile that is neither stored nor lazy");
  if (isa<vector::BroadcastOp, vector::TransposeOp, vector::ShapeCastOp>(op)) {
    Value source = eval(op->getOperand(0));
    insertAt(levelOf(context.classes.domain(op->getOperand(0))));
    return vector ? broadcastTo(source, wide(element)) : source;
  }
  if (auto read = dyn_cast<vector::TransferReadOp>(op)) {
    insertAt(level);
    return loadTransfer(read, vector);
  }
  if (auto gather = dyn_cast<vector::GatherOp>(op))
    return loadGather(gather, vector);
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    insertAt(0);
    TypedAttr scalar =
        cast<TypedAttr>(cast<SplatElementsAttr>(constant.getValue()).getSplatValue<Attribute>());
    if (!vector)
      return arith::ConstantOp::create(b, loc, scalar);
    auto type = cast<VectorType>(wide(element));
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, scalar));
  }
  if (isa<vector::StepOp>(op)) {
    insertAt(level);
    return computeStep(classes.empty() ? -1 : classes.front(), element, vector);
  }
  if (auto mask = dyn_cast<vector::CreateMaskOp>(op)) {
    insertAt(level);
    return computeMask(mask, vector);
  }
  return computeElementwise(op, vector);
}

Value Nest::computeStep(int cls, Type element, bool vector) {
  Value base = cls < 0 ? constant(0) : indexOf(cls);
  if (!vector)
    return base;
  auto type = cast<VectorType>(wide(element));
  auto steps = llvm::to_vector(llvm::seq<int64_t>(0, width));
  Value lanes = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, ArrayRef(steps)));
  return arith::AddIOp::create(b, loc, lanes, broadcastTo(base, type));
}

Value Nest::computeMask(vector::CreateMaskOp op, bool vector) {
  SmallVector<int> classes = context.classes.dims(op.getResult());
  Value all;
  for (auto [cls, bound] : llvm::zip_equal(classes, op.getOperands())) {
    bool lanes = vector && cls == laneClass;
    Value position = computeStep(cls, b.getIndexType(), lanes);
    Value term = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, position,
                                       broadcastTo(bound, position.getType()));
    term = vector ? broadcastTo(term, wide(b.getI1Type())) : term;
    all = all ? arith::AndIOp::create(b, loc, all, term).getResult() : term;
  }
  if (all)
    return all;
  return arith::ConstantOp::create(b, loc, b.getBoolAttr(true));
}

Value Nest::computeElementwise(Operation *op, bool vector) {
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(eval(operand));
  insertAt(levelOf(context.classes.domain(op->getResult(0))));
  if (vector)
    for (Value &operand : operands)
      operand = broadcastTo(operand, wide(getElementTypeOrSelf(operand.getType())));
  if (isa<vector::FMAOp>(op) && !vector)
    return math::FmaOp::create(b, loc, operands[0], operands[1], operands[2]);
  Operation *clone = op->cloneWithoutRegions();
  clone->setOperands(operands);
  Type element = tileType(op->getResult(0)).getElementType();
  clone->getResult(0).setType(vector ? wide(element) : element);
  b.insert(clone);
  return clone->getResult(0);
}
