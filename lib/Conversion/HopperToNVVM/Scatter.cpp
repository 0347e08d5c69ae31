// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles that are added to a table at computed indices. Neighbours in a tile often
// belong to one cell (a bucket of distances): a warp sums them up before it goes to
// memory, which takes additions to one address one by one.

#include "Lowering.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace attn::hopper;

static constexpr int64_t kWarpLanes = 32;

/// The cell of each element: its distance from the first one of the table, in elements;
/// -1 where nothing is to be added.
SmallVector<Value> KernelLowering::findCells(ScatterAddOp op, ArrayRef<Value> values) {
  auto type = cast<MemRefType>(op.getTable().getType());
  auto metadata = memref::ExtractStridedMetadataOp::create(b, scalar(op.getTable()));
  auto [knownStrides, knownOffset] = type.getStridesAndOffset();
  SmallVector<Value> cells, inside;
  Value zero = constant(b.getFloatAttr(values.front().getType(), 0)), none = constantI32(-1);
  for (Value value : values)
    inside.push_back(arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, value, zero));
  cells.assign(values.size(), constantI32(0));
  for (auto [dim, indices] : llvm::enumerate(op.getIndices())) {
    Value size = type.isDynamicDim(dim) ? Value(metadata.getSizes()[dim])
                                        : constantIndex(type.getDimSize(dim));
    Value stride =
        toI32(ShapedType::isDynamic(knownStrides[dim]) ? Value(metadata.getStrides()[dim])
                                                       : constantIndex(knownStrides[dim]));
    for (auto [e, index] : llvm::enumerate(elements(indices, Layout::Tile))) {
      Value isInside = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, index, size);
      inside[e] = arith::AndIOp::create(b, inside[e], isInside);
      Value along = arith::MulIOp::create(b, toI32(index), stride);
      cells[e] = arith::AddIOp::create(b, cells[e], along);
    }
  }
  for (auto [cell, isInside] : llvm::zip_equal(cells, inside))
    cell = arith::SelectOp::create(b, isInside, cell, none);
  return cells;
}

LogicalResult KernelLowering::lowerScatter(ScatterAddOp op) {
  auto type = cast<VectorType>(op.getValues().getType());
  auto memref = dyn_cast<MemRefType>(op.getTable().getType());
  SmallVector<int64_t> strides;
  int64_t offset;
  if (!memref || type.getRank() != 2 || !isa<Float32Type, Float64Type>(type.getElementType()) ||
      failed(memref.getStridesAndOffset(strides, offset)))
    return op.emitOpError() << "expects a tile of rank 2 of f32 or f64 and a strided memref, got "
                            << type << " and " << op.getTable().getType();
  Type element = type.getElementType();
  int64_t cellBytes = element.getIntOrFloatBitWidth() / 8;
  SmallVector<Value> values = elements(op.getValues(), Layout::Tile);
  SmallVector<Value> cells = findCells(op, values);
  Value source = scalar(op.getTable());
  Value first = ShapedType::isDynamic(offset)
                    ? Value(memref::ExtractStridedMetadataOp::create(b, source).getOffset())
                    : constantIndex(offset);
  Value table = arith::AddIOp::create(b, memref::ExtractAlignedPointerAsIndexOp::create(b, source),
                                      arith::MulIOp::create(b, first, constantIndex(cellBytes)));
  table = arith::IndexCastOp::create(b, b.getI64Type(), table);

  Type i32 = b.getI32Type();
  Value none = constantI32(-1), zero = constant(b.getFloatAttr(element, 0));
  // All lanes are here.
  auto ballot = [&](Value predicate) -> Value {
    return NVVM::VoteSyncOp::create(b, i32, none, predicate, NVVM::VoteSyncKind::ballot);
  };
  auto isTrueForAll = [&](Value predicate) -> Value {
    return NVVM::VoteSyncOp::create(b, b.getI1Type(), none, predicate, NVVM::VoteSyncKind::all);
  };
  auto add = [&](Value cell, Value sum, Value when) {
    Value bytes = arith::MulIOp::create(b, arith::ExtSIOp::create(b, b.getI64Type(), cell),
                                        constant(b.getI64IntegerAttr(cellBytes)));
    inlineAsm(Type(), {arith::AddIOp::create(b, table, bytes), sum, when},
              element.isF32() ? "@$2 red.global.add.f32 [$0], $1;"
                              : "@$2 red.global.add.f64 [$0], $1;",
              element.isF32() ? "l,f,b,~{memory}" : "l,d,b,~{memory}", /*sideEffects=*/true);
  };
  // Always by the same lane: what it adds to a cell, it adds in order.
  auto addIf = [&](Value condition, Value cell, Value terms) {
    Value sum = reduceLanes(vector::CombiningKind::ADD, terms, kWarpLanes);
    add(cell, sum, arith::AndIOp::create(b, condition, isLane0));
  };
  auto isCell = [&](Value cell) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::sge, cell, constantI32(0));
  };

  // The cell that the warp sums up, and each lane's part.
  Value cell = none, part = zero;
  for (auto [value, own] : llvm::zip_equal(values, cells)) {
    Value isNone = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, own, none);
    Value term = arith::SelectOp::create(b, isNone, zero, value);
    Value fits = arith::OrIOp::create(
        b, isNone, arith::CmpIOp::create(b, arith::CmpIPredicate::eq, own, cell));
    auto branch = scf::IfOp::create(b, TypeRange{i32, element}, isTrueForAll(fits),
                                    /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    scf::YieldOp::create(b, ValueRange{cell, arith::AddFOp::create(b, part, term)});

    b.setInsertionPointToStart(branch.elseBlock());
    addIf(isCell(cell), cell, part);
    // One cell after the other; the last one goes on.
    Value open = ballot(arith::CmpIOp::create(b, arith::CmpIPredicate::ne, own, none));
    auto loop = scf::WhileOp::create(b, TypeRange{i32, i32, element}, ValueRange{open, cell, part});
    Block *before = b.createBlock(&loop.getBefore(), {}, {i32, i32, element},
                                  SmallVector<Location>(3, op.getLoc()));
    Value isOpen =
        arith::CmpIOp::create(b, arith::CmpIPredicate::ne, before->getArgument(0), constantI32(0));
    scf::ConditionOp::create(b, isOpen, before->getArguments());
    Block *body = b.createBlock(&loop.getAfter(), {}, {i32, i32, element},
                                SmallVector<Location>(3, op.getLoc()));
    Value lane = LLVM::CountTrailingZerosOp::create(b, i32, body->getArgument(0),
                                                    /*is_zero_poison=*/true);
    Value next = NVVM::ShflOp::create(b, i32, none, own, lane, constantI32(kWarpLanes - 1),
                                      NVVM::ShflKind::idx, UnitAttr());
    Value isNext = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, own, next);
    Value terms = arith::SelectOp::create(b, isNext, value, zero);
    Value left = arith::AndIOp::create(b, body->getArgument(0),
                                       arith::XOrIOp::create(b, ballot(isNext), none));
    Value goesOn = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, left, constantI32(0));
    addIf(goesOn, next, terms);
    scf::YieldOp::create(b, ValueRange{left, next, terms});
    b.setInsertionPointToEnd(branch.elseBlock());
    scf::YieldOp::create(b, loop.getResults().drop_front());
    cell = branch.getResult(0);
    part = branch.getResult(1);
  }
  addIf(isCell(cell), cell, part);
  return success();
}
