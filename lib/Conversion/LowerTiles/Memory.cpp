// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loads and stores of a nest: scratch buffers, transfers and gathers. A
// transfer that may leave its memref is masked or guarded, so that nothing
// outside it is read or written.

#include "Nest.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace attn::tiles;

bool attn::tiles::isContiguousAlong(VectorTransferOpInterface transfer, int memoryDim) {
  auto type = cast<MemRefType>(transfer.getShapedType());
  // An i1 has a byte of memory, and a bit of a vector that is loaded.
  return memoryDim == type.getRank() - 1 && type.isLastDimUnitStride() &&
         !type.getElementType().isInteger(1);
}

int attn::tiles::contiguousClass(DimClasses &classes, VectorTransferOpInterface transfer) {
  AffineMap map = transfer.getPermutationMap();
  SmallVector<int> dims = classes.dims(transfer.getVector());
  for (unsigned dim = 0; dim < map.getNumResults(); ++dim)
    if (memoryDim(map, dim) >= 0 && isContiguousAlong(transfer, memoryDim(map, dim)))
      return dims[dim];
  return -1;
}

/// Calls `scalar` with the offset of each lane and packs the results.
Value Nest::perLane(Type element, llvm::function_ref<Value(Value)> scalar) {
  SmallVector<Value> lanes;
  for (int64_t lane = 0; lane < width; ++lane)
    lanes.push_back(scalar(constant(lane)));
  return vector::FromElementsOp::create(b, loc, VectorType::get({width}, element), lanes);
}

Value Nest::load(const Buffer &buffer, Type element, bool vector) {
  SmallVector<Value> indices;
  for (int cls : buffer.layout)
    indices.push_back(indexOf(cls));
  Type stored = cast<MemRefType>(buffer.memref.getType()).getElementType();
  Value result;
  if (!vector) {
    result = memref::LoadOp::create(b, loc, buffer.memref, indices);
  } else if (buffer.layout.back() == laneClass) {
    result =
        vector::LoadOp::create(b, loc, VectorType::get({width}, stored), buffer.memref, indices);
  } else {
    auto *position = llvm::find(buffer.layout, laneClass);
    size_t dim = position - buffer.layout.begin();
    Value base = indices[dim];
    result = perLane(stored, [&](Value offset) -> Value {
      indices[dim] = add(base, offset);
      return memref::LoadOp::create(b, loc, buffer.memref, indices);
    });
  }
  if (stored == element)
    return result;
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(result.getType()));
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, result, zero);
}

void Nest::store(const Buffer &buffer, Value value) {
  builder();
  Type stored = cast<MemRefType>(buffer.memref.getType()).getElementType();
  if (getElementTypeOrSelf(value.getType()) != stored)
    value = arith::ExtUIOp::create(b, loc, isa<VectorType>(value.getType()) ? wide(stored) : stored,
                                   value);
  SmallVector<Value> indices;
  for (int cls : buffer.layout)
    indices.push_back(indexOf(cls));
  if (!isa<VectorType>(value.getType())) {
    memref::StoreOp::create(b, loc, value, buffer.memref, indices);
    return;
  }
  if (buffer.layout.back() == laneClass) {
    vector::StoreOp::create(b, loc, value, buffer.memref, indices);
    return;
  }
  size_t dim = llvm::find(buffer.layout, laneClass) - buffer.layout.begin();
  Value base = indices[dim];
  for (int64_t lane = 0; lane < width; ++lane) {
    Value element = vector::ExtractOp::create(b, loc, value, lane);
    indices[dim] = addConstant(base, lane);
    memref::StoreOp::create(b, loc, element, buffer.memref, indices);
  }
}

/// The indices of a transfer at the current point; `laneDim` is the memref
/// dimension that the lanes walk along, -1 where there is none.
SmallVector<Value> Nest::address(VectorTransferOpInterface transfer, int &laneDim) {
  SmallVector<Value> indices(transfer.getIndices());
  AffineMap map = transfer.getPermutationMap();
  SmallVector<int> classes = context.classes.dims(transfer.getVector());
  laneDim = -1;
  for (unsigned dim = 0; dim < map.getNumResults(); ++dim) {
    int where = memoryDim(map, dim);
    if (where < 0 || classes[dim] < 0)
      continue;
    indices[where] = add(indices[where], indexOf(classes[dim]));
    if (classes[dim] == laneClass)
      laneDim = where;
  }
  return indices;
}

/// Whether the point lies in the memref, or null where that is known. Without
/// the lane dimension if `skipLane`.
Value Nest::inBounds(VectorTransferOpInterface transfer, ValueRange indices, bool skipLane) {
  AffineMap map = transfer.getPermutationMap();
  SmallVector<int> classes = context.classes.dims(transfer.getVector());
  Value all;
  for (unsigned dim = 0; dim < map.getNumResults(); ++dim) {
    int where = memoryDim(map, dim);
    if (where < 0 || transfer.isDimInBounds(dim) ||
        (skipLane && classes[dim] >= 0 && classes[dim] == laneClass))
      continue;
    Value size = memref::DimOp::create(b, loc, transfer.getBase(), where);
    Value term = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, indices[where], size);
    all = all ? arith::AndIOp::create(b, loc, all, term).getResult() : term;
  }
  return all;
}

/// The number of lanes inside the memref, or null where all are.
Value Nest::laneCount(VectorTransferOpInterface transfer, ValueRange indices, int laneDim) {
  SmallVector<int> classes = context.classes.dims(transfer.getVector());
  for (auto [dim, cls] : llvm::enumerate(classes))
    if (cls >= 0 && cls == laneClass && transfer.isDimInBounds(dim))
      return {};
  Value size = memref::DimOp::create(b, loc, transfer.getBase(), laneDim);
  Value left = arith::SubIOp::create(b, loc, size, indices[laneDim]);
  left = arith::MaxSIOp::create(b, loc, left, constant(0));
  return arith::MinSIOp::create(b, loc, left, constant(width));
}

Value Nest::loadTransfer(vector::TransferReadOp read, bool vector) {
  auto transfer = cast<VectorTransferOpInterface>(read.getOperation());
  Value base = read.getBase(), padding = read.getPadding();
  int laneDim = -1;
  SmallVector<Value> indices = address(transfer, laneDim);
  auto scalar = [&](ArrayRef<Value> at) -> Value {
    Value ok = inBounds(transfer, at, /*skipLane=*/false);
    if (!ok)
      return memref::LoadOp::create(b, loc, base, at);
    auto guarded = scf::IfOp::create(
        b, loc, ok,
        [&](OpBuilder &then, Location l) {
          scf::YieldOp::create(then, l, memref::LoadOp::create(then, l, base, at).getResult());
        },
        [&](OpBuilder &otherwise, Location l) { scf::YieldOp::create(otherwise, l, padding); });
    return guarded.getResult(0);
  };
  if (!vector)
    return scalar(indices);
  Type element = getElementTypeOrSelf(read.getType());
  if (laneDim < 0)
    return broadcastTo(scalar(indices), wide(element));
  if (!isContiguousAlong(transfer, laneDim))
    return perLane(element, [&](Value offset) {
      SmallVector<Value> at = indices;
      at[laneDim] = add(at[laneDim], offset);
      return scalar(at);
    });
  auto type = cast<VectorType>(wide(element));
  Value ok = inBounds(transfer, indices, /*skipLane=*/true);
  Value count = laneCount(transfer, indices, laneDim);
  if (!ok && !count)
    return vector::LoadOp::create(b, loc, type, base, indices);
  if (!count)
    count = constant(width);
  if (ok)
    count = arith::SelectOp::create(b, loc, ok, count, constant(0));
  Value mask = vector::CreateMaskOp::create(b, loc, wide(b.getI1Type()), count);
  return vector::MaskedLoadOp::create(b, loc, type, base, indices, mask,
                                      broadcastTo(padding, type));
}

void Nest::prefetch(vector::TransferReadOp read) {
  builder();
  int laneDim = -1;
  SmallVector<Value> indices =
      address(cast<VectorTransferOpInterface>(read.getOperation()), laneDim);
  memref::PrefetchOp::create(b, loc, read.getBase(), indices, /*isWrite=*/false, /*locality=*/3,
                             /*isDataCache=*/true);
}

void Nest::storeTransfer(vector::TransferWriteOp write, Value value) {
  builder();
  auto transfer = cast<VectorTransferOpInterface>(write.getOperation());
  int laneDim = -1;
  SmallVector<Value> indices = address(transfer, laneDim);
  bool vector = isa<VectorType>(value.getType());
  bool contiguous = vector && isContiguousAlong(transfer, laneDim);
  OpBuilder::InsertionGuard guard(b);
  auto guardWith = [&](Value ok) {
    if (ok) {
      auto guarded = scf::IfOp::create(b, loc, ok, /*withElseRegion=*/false);
      b.setInsertionPointToStart(guarded.thenBlock());
    }
  };
  if (!vector || contiguous) {
    Value count = vector ? laneCount(transfer, indices, laneDim) : Value();
    guardWith(inBounds(transfer, indices, /*skipLane=*/vector));
    if (!vector) {
      memref::StoreOp::create(b, loc, value, write.getBase(), indices);
    } else if (count) {
      Value mask = vector::CreateMaskOp::create(b, loc, wide(b.getI1Type()), count);
      vector::MaskedStoreOp::create(b, loc, write.getBase(), indices, mask, value);
    } else {
      vector::StoreOp::create(b, loc, value, write.getBase(), indices);
    }
    return;
  }
  Value base = indices[laneDim];
  for (int64_t lane = 0; lane < width; ++lane) {
    OpBuilder::InsertionGuard inner(b);
    Value element = vector::ExtractOp::create(b, loc, value, lane);
    indices[laneDim] = addConstant(base, lane);
    guardWith(inBounds(transfer, indices, /*skipLane=*/false));
    memref::StoreOp::create(b, loc, element, write.getBase(), indices);
  }
}

Value Nest::loadGather(vector::GatherOp gather, bool vector) {
  Value index = eval(gather.getIndices()), mask = eval(gather.getMask()),
        rest = eval(gather.getPassThru());
  insertAt(levelOf(context.classes.domain(gather.getResult())));
  auto type = cast<MemRefType>(gather.getBase().getType());
  Type element = type.getElementType();
  auto scalar = [&](Value at, Value ok, Value otherwiseValue) -> Value {
    auto guarded = scf::IfOp::create(
        b, loc, ok,
        [&](OpBuilder &then, Location l) {
          SmallVector<Value> indices(gather.getOffsets());
          if (!at.getType().isIndex())
            at = arith::IndexCastOp::create(then, l, then.getIndexType(), at);
          indices.back() = arith::AddIOp::create(then, l, indices.back(), at);
          scf::YieldOp::create(
              then, l, memref::LoadOp::create(then, l, gather.getBase(), indices).getResult());
        },
        [&](OpBuilder &otherwise, Location l) {
          scf::YieldOp::create(otherwise, l, otherwiseValue);
        });
    return guarded.getResult(0);
  };
  if (!vector)
    return scalar(index, mask, rest);
  index = broadcastTo(index, wide(getElementTypeOrSelf(index.getType())));
  mask = broadcastTo(mask, wide(b.getI1Type()));
  rest = broadcastTo(rest, wide(element));
  if (type.isLastDimUnitStride())
    return vector::GatherOp::create(b, loc, cast<VectorType>(wide(element)), gather.getBase(),
                                    gather.getOffsets(), index, mask, rest);
  SmallVector<Value> lanes;
  for (int64_t lane = 0; lane < width; ++lane) {
    Value parts[] = {vector::ExtractOp::create(b, loc, index, lane),
                     vector::ExtractOp::create(b, loc, mask, lane),
                     vector::ExtractOp::create(b, loc, rest, lane)};
    lanes.push_back(scalar(parts[0], parts[1], parts[2]));
  }
  return vector::FromElementsOp::create(b, loc, VectorType::get({width}, element), lanes);
}
