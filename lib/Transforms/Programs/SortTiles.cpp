// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles in the order of their work, which a table has. Two small tile programs
// sort it: the rank of each entry, counted by comparisons, and the entry of
// each rank.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Transforms/Programs/Loops.h"
#include "attn/Transforms/Programs/Passes.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace attn {
#define GEN_PASS_DEF_ATTNSORTTILES
#include "attn/Transforms/Programs/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numSorted("attn-sort-tiles", "sorted",
                            "Programs whose tiles are sorted by their work");

namespace {

/// Entries that those of a tile are compared with at a time.
constexpr int64_t kColumns = 128;

/// A load of a loop's trip count at some of the coordinates of a tile.
memref::LoadOp findLength(scf::ForallOp forall) {
  memref::LoadOp length;
  forall.walk([&](scf::ForOp loop) {
    auto cast = loop.getUpperBound().getDefiningOp<arith::IndexCastOp>();
    auto load = cast ? cast.getIn().getDefiningOp<memref::LoadOp>() : memref::LoadOp();
    auto table = load ? load.getMemRef().getDefiningOp<memref::AllocOp>() : memref::AllocOp();
    if (!loop->hasAttr(kTabulatedAttr) || !table || load.getIndices().empty() ||
        !load.getType().isInteger(32) || !forall.isDefinedOutsideOfLoop(table))
      return WalkResult::advance();
    llvm::SmallPtrSet<Value, 4> seen;
    bool isAtCoordinates = llvm::all_of(load.getIndices(), [&](Value index) {
      return llvm::is_contained(forall.getInductionVars(), index) && seen.insert(index).second;
    });
    if (!isAtCoordinates)
      return WalkResult::advance();
    length = load;
    return WalkResult::interrupt();
  });
  return length;
}

class Sorter {
public:
  Sorter(scf::ForallOp forall, memref::LoadOp length, int64_t numRows)
      : forall(forall), length(length), numRows(numRows), b(forall.getLoc(), forall) {}

  void run() {
    count = index(1);
    for (Value coordinate : length.getIndices()) {
      sizes.push_back(getValueOrCreateConstantIndexOp(
          b, b.getLoc(),
          forall.getMixedUpperBound()[cast<BlockArgument>(coordinate).getArgNumber()]));
      count = arith::MulIOp::create(b, count, sizes.back());
    }
    Value table = length.getMemRef();
    if (sizes.size() > 1) {
      ReassociationIndices all = llvm::to_vector(llvm::seq<int64_t>(0, sizes.size()));
      table = memref::CollapseShapeOp::create(b, table, ArrayRef<ReassociationIndices>{all});
    }
    Value ranks = allocate(), order = allocate();
    sumOverColumns(table, ranks, /*isRank=*/true);
    sumOverColumns(ranks, order, /*isRank=*/false);
    permute(order);
  }

private:
  Value index(int64_t value) { return arith::ConstantIndexOp::create(b, value); }

  Value allocate() {
    auto type = MemRefType::get({ShapedType::kDynamic}, b.getI32Type());
    Value memory = memref::AllocOp::create(b, type, ValueRange{count}, b.getI64IntegerAttr(64));
    OpBuilder end(forall->getBlock()->getTerminator());
    memref::DeallocOp::create(end, b.getLoc(), memory);
    return memory;
  }

  Value repeatRows(Value columns) {
    Type type = VectorType::get({numRows, kColumns}, getElementTypeOrSelf(columns.getType()));
    return vector::BroadcastOp::create(b, type, columns);
  }
  Value repeatColumns(Value rows) {
    Type type = VectorType::get({kColumns, numRows}, getElementTypeOrSelf(rows.getType()));
    Value wide = vector::BroadcastOp::create(b, type, rows);
    return vector::TransposeOp::create(b, wide, ArrayRef<int64_t>{1, 0});
  }
  Value compare(arith::CmpIPredicate predicate, Value x, Value y) {
    return arith::CmpIOp::create(b, predicate, x, y);
  }
  /// first, first + 1, ...
  Value enumerate(Value first, int64_t size) {
    auto type = VectorType::get({size}, b.getIndexType());
    Value start = vector::BroadcastOp::create(b, type, first);
    return arith::AddIOp::create(b, vector::StepOp::create(b, type), start);
  }

  /// A sum over all columns for each row: of the entries that come before that
  /// of the row; or the number of the entry whose rank is the number of the
  /// row.
  void sumOverColumns(Value from, Value to, bool isRank) {
    OpBuilder::InsertionGuard guard(b);
    OpFoldResult tiles = affine::makeComposedFoldedAffineApply(
        b, b.getLoc(), getAffineDimExpr(0, b.getContext()).ceilDiv(numRows), {OpFoldResult(count)});
    auto program = scf::ForallOp::create(b, ArrayRef<OpFoldResult>{tiles}, ValueRange(),
                                         programs::getBlockMapping(b.getContext(), 1));
    b.setInsertionPointToStart(program.getBody());
    Type i32 = b.getI32Type();
    auto rowType = VectorType::get({numRows}, i32), columnType = VectorType::get({kColumns}, i32);
    auto tileType = VectorType::get({numRows, kColumns}, i32);
    Value first = affine::makeComposedAffineApply(b, b.getLoc(),
                                                  getAffineDimExpr(0, b.getContext()) * numRows,
                                                  {OpFoldResult(program.getInductionVar(0))});
    // No length, and no rank.
    Value padding = arith::ConstantIntOp::create(b, -1, 32);
    Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(rowType));
    Value zeroTile = arith::ConstantOp::create(b, b.getZeroAttr(tileType));
    SmallVector<bool> maybeOutside = {false};
    Value own = isRank ? Value(vector::TransferReadOp::create(b, rowType, from, ValueRange{first},
                                                              padding, maybeOutside))
                       : Value();
    auto loop = scf::ForOp::create(b, index(0), count, index(kColumns), ValueRange{zeros});
    {
      OpBuilder::InsertionGuard inside(b);
      b.setInsertionPointToStart(loop.getBody());
      Value other = vector::TransferReadOp::create(
          b, columnType, from, ValueRange{loop.getInductionVar()}, padding, maybeOutside);
      Value rows = repeatColumns(enumerate(first, numRows));
      Value numbers = enumerate(loop.getInductionVar(), kColumns);
      Value term;
      using Predicate = arith::CmpIPredicate;
      if (isRank) {
        Value others = repeatRows(other), owns = repeatColumns(own);
        Value tie = arith::AndIOp::create(b, compare(Predicate::eq, others, owns),
                                          compare(Predicate::slt, repeatRows(numbers), rows));
        Value before = arith::OrIOp::create(b, compare(Predicate::sgt, others, owns), tie);
        Value ones = arith::ConstantOp::create(
            b, DenseElementsAttr::get(tileType, b.getI32IntegerAttr(1).getValue()));
        term = arith::SelectOp::create(b, before, ones, zeroTile);
      } else {
        Value places = arith::IndexCastOp::create(b, rowType, enumerate(first, numRows));
        Value entries = arith::IndexCastOp::create(b, columnType, numbers);
        Value isPlace = compare(Predicate::eq, repeatRows(other), repeatColumns(places));
        term = arith::SelectOp::create(b, isPlace, repeatRows(entries), zeroTile);
      }
      Value sum = vector::MultiDimReductionOp::create(b, term, loop.getRegionIterArg(0),
                                                      SmallVector<bool>{false, true},
                                                      vector::CombiningKind::ADD);
      scf::YieldOp::create(b, sum);
    }
    vector::TransferWriteOp::create(b, loop.getResult(0), to, ValueRange{first}, maybeOutside);
  }

  /// The places of the order come first, then the coordinates that it says
  /// nothing of.
  void permute(Value order) {
    SmallVector<OpFoldResult> bounds = {count};
    SmallVector<Value> others;
    for (auto [variable, bound] :
         llvm::zip_equal(forall.getInductionVars(), forall.getMixedUpperBound()))
      if (!llvm::is_contained(length.getIndices(), variable)) {
        bounds.push_back(bound);
        others.push_back(variable);
      }
    auto sorted = scf::ForallOp::create(
        b, bounds, ValueRange(), programs::getBlockMapping(b.getContext(), int64_t(bounds.size())));
    sorted->setAttr(kDescendingAttr, b.getUnitAttr());
    Block *body = sorted.getBody();
    b.setInsertionPointToStart(body);
    Value rest = memref::LoadOp::create(b, order, ValueRange{sorted.getInductionVar(0)});
    SmallVector<Value> variables(length.getIndices());
    for (size_t d = sizes.size(); d-- > 0;) {
      Value coordinate = rest;
      if (d > 0) {
        Value size = arith::IndexCastOp::create(b, b.getI32Type(), sizes[d]);
        Value quotient = arith::DivUIOp::create(b, rest, size);
        coordinate = arith::SubIOp::create(b, rest, arith::MulIOp::create(b, quotient, size));
        rest = quotient;
      }
      coordinate = arith::IndexCastOp::create(b, b.getIndexType(), coordinate);
      variables[d].replaceAllUsesWith(coordinate);
    }
    for (auto [old, variable] :
         llvm::zip_equal(others, ArrayRef(sorted.getInductionVars()).drop_front()))
      old.replaceAllUsesWith(variable);
    body->getOperations().splice(body->getTerminator()->getIterator(),
                                 forall.getBody()->getOperations(), forall.getBody()->begin(),
                                 forall.getBody()->getTerminator()->getIterator());
    forall.erase();
  }

  scf::ForallOp forall;
  memref::LoadOp length;
  int64_t numRows; // of a tile: entries
  ImplicitLocOpBuilder b;
  SmallVector<Value> sizes;
  Value count;
};

struct SortTilesPass : attn::impl::AttnSortTilesBase<SortTilesPass> {
  using Base::Base;

  void runOnOperation() override {
    for (scf::ForallOp forall : programs::findPrograms(getOperation()))
      // For rare calls, all calls would sort.
      if (forall.isNormalized() && forall->getNumResults() == 0 && !runsRarely(*forall.getBody()))
        if (memref::LoadOp length = findLength(forall)) {
          numSorted.at(forall);
          Sorter(forall, length, rows).run();
        }
  }
};

} // namespace
