// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tables with few rows: one program for a row would look at its tiles one by one. Here each tile
// has a program, which finds its entry, and then one that counts the entries in front of it.

#include "TableBuilder.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn::tiles;

/// A parallel loop over rows and tiles; `emit` gets their numbers and the tensors, and gives the
/// tensors and the offsets in their last dimension of one element each: value, offset, value,
/// offset, ...
scf::ForallOp TableBuilder::createForall(
    ArrayRef<Value> outs,
    function_ref<SmallVector<Value>(ValueRange places, ValueRange tensors)> emit) {
  SmallVector<OpFoldResult> bounds(counts);
  bounds.push_back(capacity);
  auto forall = scf::ForallOp::create(b, loc, bounds, outs, /*mapping=*/std::nullopt);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(forall.getBody());
  SmallVector<Value> places(forall.getInductionVars());
  SmallVector<Value> results = emit(places, forall.getRegionIterArgs());
  auto cellType = RankedTensorType::get({1}, b.getI32Type());
  SmallVector<OpFoldResult> ones(places.size(), b.getIndexAttr(1));
  SmallVector<Value> cells;
  SmallVector<SmallVector<OpFoldResult>> offsets;
  for (auto [number, tensor] : llvm::enumerate(forall.getRegionIterArgs())) {
    SmallVector<OpFoldResult> at(ArrayRef(places).drop_back().begin(),
                                 ArrayRef(places).drop_back().end());
    at.push_back(results[2 * number + 1]);
    Value cell = tensor::ExtractSliceOp::create(b, loc, cellType, tensor, at, ones, ones);
    cells.push_back(tensor::InsertOp::create(b, loc, results[2 * number], cell, index(0)));
    offsets.push_back(std::move(at));
  }
  b.setInsertionPointToStart(forall.getTerminator().getBody());
  for (auto [cell, tensor, at] : llvm::zip_equal(cells, forall.getRegionIterArgs(), offsets))
    tensor::ParallelInsertSliceOp::create(b, loc, cell, tensor, at, ones, ones);
  return forall;
}

/// For each row and tile 2 * tile + full, or -1 where it is empty.
Value TableBuilder::buildEntries() {
  SmallVector<OpFoldResult> sizes(counts);
  sizes.push_back(capacity);
  Value empty = tensor::EmptyOp::create(b, loc, sizes, b.getI32Type());
  scf::ForallOp forall = createForall(empty, [&](ValueRange places, ValueRange) {
    IRMapping mapping = outer;
    for (auto [dim, place] : llvm::zip(plan.dims, places))
      mapVariable(dim, place, mapping);
    Value tile = places.back();
    mapping.map(loop.getInductionVar(), startOf(tile));
    SmallVector<Condition> keeps;
    for (const Mask &mask : plan.masks)
      keeps.push_back(
          {cloneSlice(b, plan.top, mask.condition.value, mapping), mask.condition.keeps});
    Value some = reduceKeeps(vector::CombiningKind::OR, keeps);
    Value all = reduceKeeps(vector::CombiningKind::AND, keeps);
    Value entry = arith::IndexCastOp::create(b, loc, b.getI32Type(), tile);
    entry = arith::MulIOp::create(b, loc, entry, number(2));
    Value full = arith::ExtUIOp::create(b, loc, b.getI32Type(), all);
    entry = arith::AddIOp::create(b, loc, entry, full);
    return SmallVector<Value>{arith::SelectOp::create(b, loc, some, entry, number(-1)), tile};
  });
  return forall.getResult(0);
}

/// Entries, each behind those in front of it; empty ones behind the list, where nobody looks.
void TableBuilder::buildAtOnce() {
  constexpr int64_t kEntries = 128; // that are counted at a time
  Value entries = buildEntries();
  Type i32 = b.getI32Type();
  SmallVector<OpFoldResult> sizes(counts), sizesOfList(counts);
  sizes.push_back(capacity);
  Value room = getValueOrCreateConstantIndexOp(b, loc, capacity);
  sizesOfList.push_back(b.createOrFold<arith::AddIOp>(loc, room, room));
  Value emptyList = tensor::EmptyOp::create(b, loc, sizesOfList, i32);
  Value emptyCounts = tensor::EmptyOp::create(b, loc, sizes, i32);
  scf::ForallOp forall = createForall({emptyList, emptyCounts}, [&](ValueRange places, ValueRange) {
    SmallVector<Value> at(places);
    Value tile = places.back(), own = tensor::ExtractOp::create(b, loc, entries, at);
    auto type = VectorType::get(kEntries, i32),
         indices = VectorType::get(kEntries, b.getIndexType());
    auto splat = [&](int32_t value) -> Value {
      return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, value));
    };
    Value end = arith::AddIOp::create(b, loc, tile, index(1));
    auto counting = scf::ForOp::create(b, loc, index(0), end, index(kEntries), number(0));
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(counting.getBody());
      at.back() = counting.getInductionVar();
      Value several = vector::TransferReadOp::create(b, loc, type, entries, at, number(-1),
                                                     ArrayRef<bool>{false});
      Value rest = arith::SubIOp::create(b, loc, end, counting.getInductionVar());
      Value isBefore = compare(Comparison::slt, vector::StepOp::create(b, loc, indices),
                               vector::BroadcastOp::create(b, loc, indices, rest));
      Value isEntry = compare(Comparison::sge, several, splat(0));
      Value counts = arith::SelectOp::create(b, loc, both(isBefore, isEntry), splat(1), splat(0));
      Value sum = vector::ReductionOp::create(b, loc, vector::CombiningKind::ADD, counts);
      sum = arith::AddIOp::create(b, loc, counting.getRegionIterArg(0), sum);
      scf::YieldOp::create(b, loc, sum);
    }
    Value count = counting.getResult(0);
    Value place = arith::IndexCastOp::create(b, loc, b.getIndexType(), count);
    place = arith::SubIOp::create(b, loc, place, index(1));
    Value behind = arith::AddIOp::create(b, loc, room, tile);
    place =
        arith::SelectOp::create(b, loc, compare(Comparison::sge, own, number(0)), place, behind);
    return SmallVector<Value>{own, place, count, tile};
  });
  list = forall.getResult(0);
  lengths = forall.getResult(1);
}
