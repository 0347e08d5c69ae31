// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles of elementwise code. TileAccess.cpp has those that are read and written, TileReductions.cpp
// those that are summed.

#include "TileEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;
using linalg::GenericOp;
using Tail = Tile::Tail;

SmallVector<unsigned, 2> TileEmitter::sorted(ArrayRef<unsigned> span) {
  SmallVector<unsigned, 2> result;
  for (auto &[dim, info] : dims)
    if (llvm::is_contained(span, dim))
      result.push_back(dim);
  return result;
}

VectorType TileEmitter::vectorType(ArrayRef<unsigned> span, Type elementType) {
  SmallVector<int64_t> shape;
  for (unsigned dim : span)
    shape.push_back(dims[dim].tile);
  return VectorType::get(shape, elementType);
}

SmallVector<unsigned, 2> TileEmitter::spanOf(Value tensor) {
  SmallVector<unsigned, 2> span;
  for (int64_t d = 0, e = cast<RankedTensorType>(tensor.getType()).getRank(); d < e; ++d)
    if (auto dim = classes.ofValue(tensor, d); dim && !dims[*dim].isScalar())
      span.push_back(*dim);
  return sorted(span);
}

Value TileEmitter::constant(TypedAttr attr) { return arith::ConstantOp::create(b, attr); }

Value TileEmitter::toVector(const Tile &tile, ArrayRef<unsigned> target, Type elementType) {
  if (ArrayRef<unsigned>(tile.dims) == target)
    return tile.value;
  VectorType type = vectorType(target, elementType);
  if (tile.dims.empty())
    return vector::BroadcastOp::create(b, type, tile.value);
  // Missing dimensions lead; then a transposition brings the canonical order.
  SmallVector<unsigned> order;
  for (unsigned dim : target)
    if (!llvm::is_contained(tile.dims, dim))
      order.push_back(dim);
  llvm::append_range(order, tile.dims);
  Value vector = tile.value;
  if (order.size() != tile.dims.size())
    vector = vector::BroadcastOp::create(b, vectorType(order, elementType), vector);
  if (ArrayRef<unsigned>(order) == target)
    return vector;
  SmallVector<int64_t> permutation;
  for (unsigned dim : target)
    permutation.push_back(llvm::find(order, dim) - order.begin());
  return vector::TransposeOp::create(b, vector, permutation);
}

Tile TileEmitter::indexTile(unsigned dim) {
  Tile tile;
  TileDim &info = dims[dim];
  tile.indexOf = dim;
  if (info.isScalar()) {
    tile.value = info.base;
    return tile;
  }
  tile.dims = {dim};
  VectorType type = vectorType(dim, b.getIndexType());
  tile.value = vector::StepOp::create(b, type);
  if (info.role == LoopRole::Whole)
    return tile;
  Value base = vector::BroadcastOp::create(b, type, info.base);
  tile.value = arith::AddIOp::create(b, tile.value, base);
  return tile;
}

FailureOr<Tile> TileEmitter::index(Body &body, linalg::IndexOp op) {
  unsigned dim = classes.ofLoop(body.op, op.getDim());
  TileDim &info = dims[dim];
  if (info.role != LoopRole::Streamed)
    return indexTile(dim);
  // Inside of a fold, a block's index counts from its first element.
  Tile tile;
  tile.local = true;
  tile.indexOf = dim;
  tile.dims = {dim};
  tile.value = vector::StepOp::create(b, vectorType(dim, b.getIndexType()));
  return tile;
}

/// What an elementwise op makes of the lanes beyond the end of a dimension.
static Tail propagate(Operation *op, ArrayRef<Tile> in, unsigned which) {
  auto is = [&](unsigned operand, Tail tail) {
    // A constant is the same beyond the end.
    return in[operand].tails[which] == tail ||
           (tail == Tail::Zero && matchPattern(op->getOperand(operand), m_AnyZeroFloat())) ||
           (tail == Tail::NegativeInfinity &&
            matchPattern(op->getOperand(operand), m_NegInfFloat()));
  };
  auto isZero = [&](unsigned operand) { return is(operand, Tail::Zero); };
  auto isInfinite = [&](unsigned operand) { return is(operand, Tail::NegativeInfinity); };
  auto isFinite = [&](unsigned operand) {
    APFloat constant(0.0f);
    return isZero(operand) || in[operand].tails[which] == Tail::Finite ||
           (matchPattern(op->getOperand(operand), m_ConstantFloat(&constant)) &&
            constant.isFinite());
  };
  auto ifFinite = [](bool finite) { return finite ? Tail::Finite : Tail::Unknown; };
  if (isa<arith::ExtFOp>(op))
    return in[0].tails[which];
  if (isa<arith::TruncFOp>(op)) // what is finite may be too large
    return isFinite(0) && !isZero(0) ? Tail::Unknown : in[0].tails[which];
  if (isa<arith::SIToFPOp, arith::UIToFPOp>(op))
    return ifFinite(getElementTypeOrSelf(op->getResult(0).getType()).isF32());
  if (isa<math::ExpOp, math::Exp2Op>(op))
    return isInfinite(0) ? Tail::Zero : Tail::Unknown;
  if (isa<arith::NegFOp, math::AbsFOp, math::TanhOp>(op))
    return isZero(0) ? Tail::Zero : ifFinite(isFinite(0));
  if (isa<math::SinOp, math::CosOp>(op))
    return ifFinite(isFinite(0));
  if (isa<arith::SubFOp>(op))
    return isInfinite(0)            ? Tail::NegativeInfinity
           : isZero(0) && isZero(1) ? Tail::Zero
                                    : ifFinite(isFinite(0) && isFinite(1));
  if (isa<arith::AddFOp>(op))
    return isInfinite(0) || isInfinite(1) ? Tail::NegativeInfinity
           : isZero(0) && isZero(1)       ? Tail::Zero
                                          : ifFinite(isFinite(0) && isFinite(1));
  if (isa<arith::MulFOp>(op))
    return !isFinite(0) || !isFinite(1) ? Tail::Unknown
           : isZero(0) || isZero(1)     ? Tail::Zero
                                        : Tail::Finite;
  if (isa<arith::DivFOp>(op)) {
    APFloat divisor(0.0f);
    if (!matchPattern(op->getOperand(1), m_ConstantFloat(&divisor)) || !divisor.isFiniteNonZero())
      return Tail::Unknown;
    return isZero(0) ? Tail::Zero : ifFinite(isFinite(0));
  }
  if (isa<arith::SelectOp>(op))
    return isZero(1) && isZero(2)           ? Tail::Zero
           : isInfinite(1) && isInfinite(2) ? Tail::NegativeInfinity
                                            : ifFinite(isFinite(1) && isFinite(2));
  return Tail::Unknown;
}

FailureOr<Tile> TileEmitter::apply(Operation *op, ArrayRef<Tile> in) {
  b.setLoc(op->getLoc());
  Tile result;
  SmallVector<unsigned> span;
  for (const Tile &tile : in)
    llvm::append_range(span, tile.dims);
  if (span.empty()) {
    IRMapping mapping;
    for (auto [operand, tile] : llvm::zip(op->getOperands(), in))
      mapping.map(operand, tile.value);
    result.value = b.clone(*op, mapping)->getResult(0);
    return result;
  }
  // A block's own index plus the block's offset is the dimension's index.
  if (isa<arith::AddIOp>(op))
    for (unsigned side : {0, 1})
      if (in[side].local && in[1 - side].dims.empty() &&
          in[1 - side].value == dims[*in[side].indexOf].base)
        return indexTile(*in[side].indexOf);
  if (!OpTrait::hasElementwiseMappableTraits(op) || op->getNumResults() != 1)
    return op->emitOpError("has no tile form, expected an elementwise op");
  result.dims = sorted(span);
  SmallVector<Value> operands;
  for (auto [operand, tile] : llvm::zip(op->getOperands(), in))
    operands.push_back(toVector(tile, result.dims, operand.getType()));
  OperationState state(op->getLoc(), op->getName());
  state.addOperands(operands);
  state.addTypes(vectorType(result.dims, op->getResult(0).getType()));
  state.addAttributes(op->getAttrs());
  result.value = b.create(state)->getResult(0);
  for (unsigned which : {0, 1})
    result.tails[which] = propagate(op, in, which);
  return result;
}

FailureOr<Tile> TileEmitter::value(Body &body, Value scalar) {
  if (auto known = body.values.find(scalar); known != body.values.end())
    return known->second;
  Tile tile;
  auto argument = dyn_cast<BlockArgument>(scalar);
  Operation *op = scalar.getDefiningOp();
  FailureOr<Tile> result = failure();
  if (argument && argument.getOwner() == body.op.getBlock()) {
    result = this->argument(body, argument);
  } else if (argument || op->getBlock() != body.op.getBlock()) {
    Value bound = scalars.lookup(scalar);
    tile.value = bound ? bound : scalar;
    result = tile;
  } else if (auto index = dyn_cast<linalg::IndexOp>(op)) {
    result = this->index(body, index);
  } else if (isa<tensor::ExtractOp>(op)) {
    b.setLoc(op->getLoc());
    result = extract(body, op);
  } else if (auto dim = dyn_cast<tensor::DimOp>(op)) {
    b.setLoc(op->getLoc());
    result = size(body, dim);
  } else {
    SmallVector<Tile> in;
    for (Value operand : op->getOperands()) {
      FailureOr<Tile> operandTile = value(body, operand);
      if (failed(operandTile))
        return failure();
      in.push_back(*operandTile);
    }
    result = apply(op, in);
  }
  if (succeeded(result))
    body.values[scalar] = *result;
  return result;
}

LogicalResult TileEmitter::emit(GenericOp op) {
  b.setLoc(op.getLoc());
  Body body;
  body.op = op;
  if (op->getNumResults() != 1)
    return op.emitError("expected a statement with one result, got ") << op->getNumResults();
  FailureOr<Tile> result = failure();
  if (tables.contains(op)) {
    result = scatter(body, *matchScatterSum(op));
  } else if (op.getNumReductionLoops() == 0) {
    result = value(body, op.getBlock()->getTerminator()->getOperand(0));
    if (succeeded(result))
      result = settleTails(op, *result);
  } else {
    std::optional<Reduction> reduction = matchReduction(op, 0);
    if (!reduction)
      return op.emitError("expected a reduction by one associative op");
    result = reduce(body, *reduction);
  }
  if (failed(result))
    return failure();
  // An index or a tail says nothing beyond the statement, but for the tail of
  // the values themselves.
  result->indexOf.reset();
  result->local = false;
  tiles[op.getResult(0)] = *result;
  return success();
}
