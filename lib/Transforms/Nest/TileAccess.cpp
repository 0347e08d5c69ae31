// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How tiles come from tensors and go to them.

#include "TileEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;
using linalg::GenericOp;
using Tail = Tile::Tail;

/// Dimensions of one element that stand between those of a tile, which is then not of the last
/// ones.
static SmallVector<unsigned> findSingles(RankedTensorType type, ArrayRef<unsigned> positions) {
  SmallVector<unsigned> singles;
  for (unsigned dim = positions.front() + 1; dim < type.getRank(); ++dim)
    if (type.getDimSize(dim) == 1 && !llvm::is_contained(positions, dim))
      singles.push_back(dim);
  return singles;
}

/// The tensor without dimensions of one element.
static Value dropSingles(ImplicitLocOpBuilder &b, Value tensor, ArrayRef<unsigned> singles) {
  auto type = cast<RankedTensorType>(tensor.getType());
  SmallVector<int64_t> shape;
  for (unsigned dim = 0; dim < type.getRank(); ++dim)
    if (!llvm::is_contained(singles, dim))
      shape.push_back(type.getDimSize(dim));
  SmallVector<OpFoldResult> zeros(type.getRank(), b.getIndexAttr(0)),
      ones(type.getRank(), b.getIndexAttr(1));
  return tensor::ExtractSliceOp::create(b, type.clone(shape), tensor, zeros,
                                        tensor::getMixedSizes(b, b.getLoc(), tensor), ones);
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
  if (SmallVector<unsigned> singles = findSingles(type, positions);
      readsLastDims && !singles.empty()) {
    tensor = dropSingles(b, tensor, singles);
    type = cast<RankedTensorType>(tensor.getType());
    for (unsigned single : llvm::reverse(singles)) {
      indices.erase(indices.begin() + single);
      for (unsigned &position : positions)
        position -= position > single;
    }
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
