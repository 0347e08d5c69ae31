// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "TileEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
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

Tile TileEmitter::read(Value tensor, ArrayRef<std::optional<unsigned>> dimClasses,
                       ArrayRef<Value> fixed) {
  auto type = cast<RankedTensorType>(tensor.getType());
  Tile tile;
  SmallVector<Value> indices;
  SmallVector<unsigned> positions;
  for (auto [position, dim] : llvm::enumerate(dimClasses)) {
    if (!dim) {
      indices.push_back(fixed.empty() ? constant(b.getIndexAttr(0)) : fixed[position]);
      continue;
    }
    TileDim &info = dims[*dim];
    indices.push_back(info.base ? info.base : constant(b.getIndexAttr(0)));
    if (info.isScalar())
      continue;
    tile.dims.push_back(*dim);
    positions.push_back(position);
    if (info.role == LoopRole::Streamed)
      tile.tails[0] = Tail::Zero;
    if (info.role == LoopRole::Row)
      tile.tails[1] = Tail::Zero;
  }
  if (tile.dims.empty()) {
    tile.value = tensor::ExtractOp::create(b, tensor, indices);
    return tile;
  }
  // Read in canonical order: the permutation is the access's business.
  SmallVector<unsigned, 2> order = sorted(tile.dims);
  SmallVector<AffineExpr> exprs;
  SmallVector<bool> inBounds;
  for (unsigned dim : order) {
    unsigned position = positions[llvm::find(tile.dims, dim) - tile.dims.begin()];
    exprs.push_back(b.getAffineDimExpr(position));
    const TileDim &info = dims[dim];
    // A capture may be shorter than the dimension that indexes it.
    std::optional<int64_t> size = getConstantIntValue(info.size);
    inBounds.push_back(info.exact && size && !type.isDynamicDim(position) &&
                       type.getDimSize(position) >= *size);
  }
  tile.dims = order;
  Value padding = constant(b.getZeroAttr(type.getElementType()));
  tile.value = vector::TransferReadOp::create(
      b, vectorType(order, type.getElementType()), tensor, indices, padding,
      AffineMap::get(type.getRank(), 0, exprs, b.getContext()), inBounds);
  return tile;
}

/// Where the current tile begins in a worker's slice of an output.
SmallVector<Value> TileEmitter::indicesOf(ArrayRef<unsigned> dimClasses) {
  SmallVector<Value> indices;
  for (unsigned dim : dimClasses) {
    const TileDim &info = dims[dim];
    if (info.role == LoopRole::Around)
      indices.push_back(info.base);
    else if (info.role != LoopRole::Streamed)
      indices.push_back(constant(b.getIndexAttr(0)));
    else if (info.origin)
      indices.push_back(arith::SubIOp::create(b, info.base, info.origin));
    else
      indices.push_back(info.base);
  }
  return indices;
}

FailureOr<Value> TileEmitter::add(const Tile &tile, Value tensor, ArrayRef<unsigned> dimClasses) {
  auto type = cast<RankedTensorType>(tensor.getType());
  SmallVector<unsigned> span =
      llvm::filter_to_vector(dimClasses, [&](unsigned dim) { return !dims[dim].isScalar(); });
  SmallVector<unsigned, 2> order = sorted(span);
  if (span.empty() || dimClasses.take_back(span.size()) != ArrayRef(span) ||
      ArrayRef<unsigned>(order) != ArrayRef(span))
    return emitError(b.getLoc())
           << "expected a sum over rows whose tile has the last dimensions of " << type;
  Value vector = toVector(tile, order, type.getElementType());
  return TileAddOp::create(b, TypeRange(type), vector, tensor, indicesOf(dimClasses)).getResult();
}

Value TileEmitter::write(const Tile &tile, Value tensor, ArrayRef<unsigned> dimClasses) {
  auto type = cast<RankedTensorType>(tensor.getType());
  SmallVector<Value> indices = indicesOf(dimClasses);
  SmallVector<AffineExpr> exprs;
  SmallVector<unsigned, 2> span;
  SmallVector<bool> inBounds;
  for (auto [position, dim] : llvm::enumerate(dimClasses)) {
    const TileDim &info = dims[dim];
    if (info.isScalar())
      continue;
    span.push_back(dim);
    exprs.push_back(b.getAffineDimExpr(position));
    inBounds.push_back(info.exact);
  }
  // The vector is in canonical order; name the tensor's dimensions in it.
  SmallVector<unsigned, 2> order = sorted(span);
  SmallVector<AffineExpr> map;
  SmallVector<bool> bounds;
  for (unsigned dim : order) {
    unsigned at = llvm::find(span, dim) - span.begin();
    map.push_back(exprs[at]);
    bounds.push_back(inBounds[at]);
  }
  Value vector = toVector(tile, order, type.getElementType());
  if (order.empty())
    return tensor::InsertOp::create(b, vector, tensor, indices);
  return vector::TransferWriteOp::create(b, vector, tensor, indices,
                                         AffineMap::get(type.getRank(), 0, map, b.getContext()),
                                         bounds)
      ->getResult(0);
}

FailureOr<Tile> TileEmitter::argument(Body &body, BlockArgument argument) {
  GenericOp op = body.op;
  OpOperand &operand = op->getOpOperand(argument.getArgNumber());
  Value tensor = operand.get();
  if (auto known = tiles.find(tensor); known != tiles.end())
    return known->second;
  if (Value fill = getFillValue(tensor)) {
    Tile tile;
    tile.value = fill;
    return tile;
  }
  AffineMap map = op.getMatchingIndexingMap(&operand);
  SmallVector<std::optional<unsigned>> access;
  for (unsigned dim = 0; dim < map.getNumResults(); ++dim) {
    if (std::optional<unsigned> loop = getLoop(map, dim))
      access.push_back(classes.ofLoop(op, *loop));
    else if (auto zero = dyn_cast<AffineConstantExpr>(map.getResult(dim));
             zero && zero.getValue() == 0)
      access.push_back(std::nullopt);
    else
      return op.emitError("expected operand #")
             << operand.getOperandNumber() << " to be indexed by loops, got "
             << AffineMapAttr::get(map);
  }
  if (Value source = sources.lookup(tensor))
    tensor = source;
  if (failed(checkOutside(op, tensor)))
    return failure();
  return read(tensor, access);
}

/// Only statements have tiles; any other tensor is read from memory, where a
/// fold's own tensors are not.
LogicalResult TileEmitter::checkOutside(Operation *reader, Value tensor) {
  if (!isa<FoldOp, linalg::GenericOp>(tensor.getParentBlock()->getParentOp()))
    return success();
  return emitError(reader->getLoc(), "expected tensors that are read to come from a statement, a "
                                     "streamed input or from outside of the fold");
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

FailureOr<Tile> TileEmitter::gather(Operation *op, Value tensor, ArrayRef<Tile> indices) {
  auto type = cast<RankedTensorType>(tensor.getType());
  SmallVector<unsigned> span;
  unsigned varying = 0;
  for (const Tile &index : indices) {
    llvm::append_range(span, index.dims);
    varying += !index.dims.empty();
  }
  SmallVector<unsigned, 2> order = sorted(span);
  VectorType indexType = vectorType(order, b.getIndexType());
  // Lanes that no element of the tile stands for may hold any index: each is
  // compared with the size before it is used.
  Value mask, linear;
  SmallVector<Value> base;
  bool flat = varying > 1 || indices.back().dims.empty();
  for (auto [dim, index] : llvm::enumerate(indices)) {
    Value size = tensor::getMixedSize(b, b.getLoc(), tensor, dim).dyn_cast<Value>();
    if (!size)
      size = constant(b.getIndexAttr(type.getDimSize(dim)));
    Value sizes = vector::BroadcastOp::create(b, indexType, size);
    Value lanes = toVector(index, order, b.getIndexType());
    Value inside = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, lanes, sizes);
    if (!index.dims.empty())
      mask = mask ? arith::AndIOp::create(b, mask, inside).getResult() : inside;
    if (flat) {
      linear =
          linear
              ? arith::AddIOp::create(b, arith::MulIOp::create(b, linear, sizes), lanes).getResult()
              : lanes;
    } else {
      base.push_back(index.dims.empty() ? index.value : constant(b.getIndexAttr(0)));
      linear = lanes;
    }
  }
  if (flat) {
    base = {constant(b.getIndexAttr(0))};
    if (type.getRank() > 1) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(outside);
      tensor = tensor::CollapseShapeOp::create(
          b, tensor,
          ArrayRef<ReassociationIndices>{llvm::to_vector<2>(llvm::seq<int64_t>(type.getRank()))});
    }
  }
  Tile tile;
  tile.dims = order;
  VectorType resultType = vectorType(order, type.getElementType());
  Value rest = constant(cast<TypedAttr>(b.getZeroAttr(resultType)));
  tile.value = vector::GatherOp::create(b, resultType, tensor, base, linear, mask, rest);
  return tile;
}

/// The tensor itself: casts in a statement change only what is known of its
/// sizes.
static Value skipCasts(Value tensor) {
  while (auto cast = tensor.getDefiningOp<tensor::CastOp>())
    tensor = cast.getSource();
  return tensor;
}

FailureOr<Tile> TileEmitter::size(Body &body, tensor::DimOp op) {
  Value tensor = skipCasts(op.getSource());
  FailureOr<Tile> tile = value(body, op.getIndex());
  if (failed(tile) || failed(checkOutside(op, tensor)))
    return failure();
  if (!tile->dims.empty())
    return op.emitOpError("has no tile form: its dimension differs in the tile");
  tile->value = tensor::DimOp::create(b, tensor, tile->value);
  return tile;
}

FailureOr<Tile> TileEmitter::extract(Body &body, Operation *op) {
  auto load = cast<tensor::ExtractOp>(op);
  Value tensor = skipCasts(load.getTensor());
  if (failed(checkOutside(op, tensor)))
    return failure();
  SmallVector<Tile> indices;
  for (Value index : load.getIndices()) {
    FailureOr<Tile> tile = value(body, index);
    if (failed(tile))
      return failure();
    indices.push_back(*tile);
  }
  if (llvm::all_of(indices, [](const Tile &t) { return t.dims.empty(); })) {
    Tile tile;
    SmallVector<Value> values;
    for (const Tile &index : indices)
      values.push_back(index.value);
    tile.value = tensor::ExtractOp::create(b, tensor, values);
    return tile;
  }
  // A contiguous piece: each index is a scalar or one dimension's own index.
  SmallVector<std::optional<unsigned>> access;
  SmallVector<Value> fixed;
  SmallVector<unsigned> seen;
  for (const Tile &index : indices) {
    fixed.push_back(index.value);
    if (index.dims.empty()) {
      access.push_back(std::nullopt);
      continue;
    }
    if (!index.indexOf || index.local || llvm::is_contained(seen, *index.indexOf))
      return gather(op, tensor, indices);
    seen.push_back(*index.indexOf);
    access.push_back(*index.indexOf);
  }
  return read(tensor, access, fixed);
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

/// The streamed dimension (0) or the rows (1).
std::optional<unsigned> TileEmitter::tailDim(unsigned which) {
  for (auto &[dim, info] : dims)
    if (info.role == (which ? LoopRole::Row : LoopRole::Streamed))
      return dim;
  return std::nullopt;
}

/// `term` with the monoid's neutral element in the lanes beyond the end of the
/// streamed dimension or the rows.
Tile TileEmitter::withTail(const Tile &term, Reduction::Monoid monoid, unsigned which) {
  std::optional<unsigned> dim = tailDim(which);
  if (!dim || dims[*dim].exact || !llvm::is_contained(term.dims, *dim))
    return term;
  Tail wanted = monoid == Reduction::Monoid::Max   ? Tail::NegativeInfinity
                : monoid == Reduction::Monoid::Add ? Tail::Zero
                                                   : Tail::Unknown;
  if (wanted != Tail::Unknown && term.tails[which] == wanted)
    return term;
  Tile index = indexTile(*dim), inside;
  Value size = getValueOrCreateConstantIndexOp(b, b.getLoc(), dims[*dim].size);
  Value end = vector::BroadcastOp::create(b, index.value.getType(), size);
  inside.dims = index.dims;
  inside.value = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, index.value, end);
  Value keep = toVector(inside, term.dims, b.getI1Type());
  auto type = cast<VectorType>(term.value.getType());
  APFloat neutral = getNeutralElement(b, monoid, type.getElementType()).getValue();
  Value rest = constant(DenseElementsAttr::get(type, neutral));
  Value kept = term.value;
  if (which == 1 && branchesRowTails) {
    Value end =
        arith::AddIOp::create(b, dims[*dim].base, constant(b.getIndexAttr(dims[*dim].tile)));
    Value isWhole = arith::CmpIOp::create(b, arith::CmpIPredicate::sle, end, size);
    auto branch = scf::IfOp::create(b, TypeRange(type), isWhole, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    scf::YieldOp::create(b, kept);
    b.setInsertionPointToStart(branch.elseBlock());
    Value selected = arith::SelectOp::create(b, keep, kept, rest);
    scf::YieldOp::create(b, selected);
    Tile result = term;
    result.value = branch.getResult(0);
    result.tails[which] = wanted;
    return result;
  }
  // One select for the mask and the tail where both put the same value.
  if (auto select = kept.getDefiningOp<arith::SelectOp>()) {
    Value masked = select.getFalseValue();
    if (auto broadcast = masked.getDefiningOp<vector::BroadcastOp>())
      masked = broadcast.getSource();
    FloatAttr splat;
    if (matchPattern(masked, m_Constant(&splat)) && splat.getValue() == neutral) {
      keep = arith::AndIOp::create(b, select.getCondition(), keep);
      kept = select.getTrueValue();
    }
  }
  Tile result = term;
  result.value = arith::SelectOp::create(b, keep, kept, rest);
  result.tails[which] = wanted;
  return result;
}

Tile TileEmitter::withTails(const Tile &term, Reduction::Monoid monoid, std::array<bool, 2> which) {
  Tile result = term;
  for (unsigned at : {0, 1})
    if (which[at])
      result = withTail(result, monoid, at);
  return result;
}

/// Whether a statement reduces the streamed dimension, and the rows.
std::array<bool, 2> TileEmitter::reducedTails(GenericOp op) {
  std::array<bool, 2> reduced = {false, false};
  for (auto [loop, kind] : llvm::enumerate(op.getIteratorTypesArray()))
    for (unsigned which : {0, 1})
      reduced[which] |=
          kind == utils::IteratorType::reduction && classes.ofLoop(op, loop) == tailDim(which);
  return reduced;
}

static bool isFilledWithZero(const Tile &tile) {
  return matchPattern(tile.value, m_AnyZeroFloat());
}

/// A value that is summed along a dimension is 0 beyond its end from here on:
/// what is computed from it needs no select of its own.
Tile TileEmitter::settleTails(GenericOp op, const Tile &tile) {
  std::array<bool, 2> summed = {false, false};
  for (Operation *user : op->getUsers()) {
    auto reader = dyn_cast<GenericOp>(user);
    if (!reader || reader->getBlock() != op->getBlock() || reader->getNumResults() != 1 ||
        reader.getNumReductionLoops() == 0)
      continue;
    std::optional<Reduction> reduction = matchReduction(reader, 0);
    if (!reduction || reduction->monoid != Reduction::Monoid::Add)
      continue;
    for (unsigned which : {0, 1})
      summed[which] |= reducedTails(reader)[which];
  }
  return withTails(tile, Reduction::Monoid::Add, summed);
}

FailureOr<Tile> TileEmitter::startOf(GenericOp op) {
  if (auto known = starts.find(op); known != starts.end())
    return known->second;
  Body body;
  body.op = op;
  return argument(body, op.getBlock()->getArguments().back());
}

FailureOr<Tile> TileEmitter::reduce(Body &body, const Reduction &reduction) {
  GenericOp op = body.op;
  SmallVector<unsigned> outSpan, reduced;
  std::array<bool, 2> overTails = reducedTails(op);
  for (unsigned loop = 0; loop < op.getNumLoops(); ++loop) {
    unsigned dim = classes.ofLoop(op, loop);
    bool isReduced = op.getIteratorTypesArray()[loop] == utils::IteratorType::reduction;
    if (dims[dim].isScalar())
      continue;
    (isReduced ? reduced : outSpan).push_back(dim);
  }
  Tile result;
  result.dims = sorted(outSpan);
  FailureOr<Tile> start = startOf(op);
  if (failed(start))
    return failure();
  Type element = reduction.term.getType();

  // A product of two tiles that neither spans alone is a contraction; so is the
  // inner product of rows, of tiles that both span all.
  if (auto product = reduction.term.getDefiningOp<arith::MulFOp>();
      product && product->getBlock() == op.getBlock() &&
      reduction.monoid == Reduction::Monoid::Add) {
    FailureOr<Tile> lhs = value(body, product.getLhs());
    FailureOr<Tile> rhs = value(body, product.getRhs());
    if (failed(lhs) || failed(rhs))
      return failure();
    SmallVector<unsigned> all(lhs->dims.begin(), lhs->dims.end());
    llvm::append_range(all, rhs->dims);
    SmallVector<unsigned, 2> domain = sorted(all);
    bool contracts = (domain.size() > lhs->dims.size()) == (domain.size() > rhs->dims.size()) &&
                     domain.size() == reduced.size() + outSpan.size();
    for (unsigned dim : reduced)
      contracts &= llvm::is_contained(lhs->dims, dim) && llvm::is_contained(rhs->dims, dim);
    if (contracts) {
      // 0 x 0 in the tail; 0 alone would not do beside an infinity.
      rhs = withTails(*rhs, Reduction::Monoid::Add, overTails);
      lhs = withTails(*lhs, Reduction::Monoid::Add, overTails);
      auto map = [&](ArrayRef<unsigned> span) {
        SmallVector<AffineExpr> exprs;
        for (unsigned dim : span)
          exprs.push_back(b.getAffineDimExpr(llvm::find(domain, dim) - domain.begin()));
        return AffineMap::get(domain.size(), 0, exprs, b.getContext());
      };
      SmallVector<vector::IteratorType> iterators;
      for (unsigned dim : domain)
        iterators.push_back(llvm::is_contained(reduced, dim) ? vector::IteratorType::reduction
                                                             : vector::IteratorType::parallel);
      SmallVector<Attribute> iteratorAttrs;
      for (vector::IteratorType type : iterators)
        iteratorAttrs.push_back(vector::IteratorTypeAttr::get(b.getContext(), type));
      Value accumulator = toVector(*start, result.dims, element);
      result.value = vector::ContractionOp::create(
          b, lhs->value, rhs->value, accumulator,
          b.getAffineMapArrayAttr({map(lhs->dims), map(rhs->dims), map(result.dims)}),
          b.getArrayAttr(iteratorAttrs));
      // Zeros in, zeros out.
      for (unsigned which : {0, 1})
        if (!overTails[which] && isFilledWithZero(*start) &&
            (lhs->tails[which] == Tail::Zero || rhs->tails[which] == Tail::Zero))
          result.tails[which] = Tail::Zero;
      return result;
    }
  }
  FailureOr<Tile> term = value(body, reduction.term);
  if (failed(term))
    return failure();
  SmallVector<unsigned> all(outSpan);
  llvm::append_range(all, reduced);
  SmallVector<unsigned, 2> domain = sorted(all);
  Tile spread = *term;
  spread.value = toVector(*term, domain, element);
  spread.dims = domain;
  if (overTails[0] || overTails[1]) {
    spread = withTails(spread, reduction.monoid, overTails);
    // Later readers of the same tile see the select: the tail is settled once,
    // before the row maximum.
    auto input = dyn_cast<BlockArgument>(reduction.term);
    if (input && input.getOwner() == op.getBlock())
      if (auto known = tiles.find(op->getOperand(input.getArgNumber())); known != tiles.end())
        known->second = spread;
  }
  if (reduced.empty()) { // one term for each element
    Tile sum = *start;
    sum.value = toVector(*start, result.dims, element);
    sum.dims = result.dims;
    FailureOr<Tile> both = apply(reduction.combiner, {sum, spread});
    if (failed(both))
      return failure();
    result.value = both->value;
    return result;
  }
  vector::CombiningKind kind =
      isa<arith::AddFOp>(reduction.combiner)       ? vector::CombiningKind::ADD
      : isa<arith::MulFOp>(reduction.combiner)     ? vector::CombiningKind::MUL
      : isa<arith::MaxNumFOp>(reduction.combiner)  ? vector::CombiningKind::MAXNUMF
      : isa<arith::MaximumFOp>(reduction.combiner) ? vector::CombiningKind::MAXIMUMF
      : isa<arith::MinNumFOp>(reduction.combiner)  ? vector::CombiningKind::MINNUMF
                                                   : vector::CombiningKind::MINIMUMF;
  SmallVector<bool> mask;
  for (unsigned dim : domain)
    mask.push_back(llvm::is_contained(reduced, dim));
  Value accumulator = toVector(*start, result.dims, element);
  result.value = vector::MultiDimReductionOp::create(b, spread.value, accumulator, mask, kind);
  return result;
}

/// Adds a tile of terms to a table, at a tile of indices for each of its
/// dimensions. A term that does not count is 0.
FailureOr<Tile> TileEmitter::scatter(Body &body, const ScatterSum &sum) {
  GenericOp op = body.op;
  auto spread = [&](Value scalar, ArrayRef<unsigned> domain) -> FailureOr<Value> {
    FailureOr<Tile> tile = value(body, scalar);
    if (failed(tile))
      return failure();
    return toVector(*tile, domain, scalar.getType());
  };
  SmallVector<unsigned> span;
  for (unsigned loop = 0; loop < op.getNumLoops(); ++loop)
    if (unsigned dim = classes.ofLoop(op, loop);
        !dims[dim].isScalar() &&
        llvm::none_of(sum.indices, [&](auto index) { return index.first == loop; }))
      span.push_back(dim);
  SmallVector<unsigned, 2> domain = sorted(span);
  FailureOr<Tile> terms = value(body, sum.value);
  if (failed(terms))
    return failure();
  Type element = sum.value.getType();
  Tile counted;
  counted.dims = domain;
  if (ArrayRef<unsigned>(terms->dims) == ArrayRef<unsigned>(domain))
    counted.tails = terms->tails;
  counted.value = toVector(*terms, domain, element);
  Value keep;
  for (Value condition : sum.conditions) {
    FailureOr<Value> holds = spread(condition, domain);
    if (failed(holds))
      return failure();
    keep = keep ? arith::AndIOp::create(b, keep, *holds).getResult() : *holds;
  }
  if (keep) {
    Value zeros = constant(b.getZeroAttr(counted.value.getType()));
    counted.value = arith::SelectOp::create(b, keep, counted.value, zeros);
  }
  counted = withTails(counted, Reduction::Monoid::Add, reducedTails(op));
  SmallVector<Value> indices;
  AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  for (unsigned position = 0; position < map.getNumResults(); ++position)
    for (auto [loop, index] : sum.indices)
      if (getLoop(map, position) == loop) {
        FailureOr<Value> at = spread(index, domain);
        if (failed(at))
          return failure();
        indices.push_back(*at);
      }
  Tile result = tiles.lookup(op.getDpsInits()[0]);
  result.value = ScatterAddOp::create(b, TypeRange(result.value.getType()), counted.value, indices,
                                      result.value)
                     .getResult();
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
