// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Layouts of vectors: two passes over the function until nothing changes. The
// first takes away what definitions cannot give, the second collects what uses
// need.

#include "Layouts.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/OpDefinition.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace attn::hopper;
namespace tile = attn::tile;

namespace {
constexpr unsigned kRows = 1 << unsigned(Layout::Rows);
constexpr unsigned kColumns = 1 << unsigned(Layout::Columns);
constexpr unsigned kTile = 1 << unsigned(Layout::Tile);
} // namespace

static unsigned possibleSet(Type type) {
  auto vector = dyn_cast<VectorType>(type);
  if (!vector || vector.isScalable())
    return 0;
  ArrayRef<int64_t> shape = vector.getShape();
  if (shape.size() == 1)
    return (shape[0] == kWarpgroupRows ? kRows : 0) | (shape[0] % kColumnGroup == 0 ? kColumns : 0);
  if (shape.size() != 2)
    return 0;
  if (shape[1] == 1)
    return shape[0] == kWarpgroupRows ? kRows : 0;
  if (shape[0] == 1)
    return shape[1] % kColumnGroup == 0 ? kColumns : 0;
  return shape[0] == kWarpgroupRows && shape[1] % kColumnGroup == 0 ? kTile : 0;
}

/// Whether an op leaves open which columns a thread has: a store to shared memory may be of 8 side
/// by side, where the four threads of a row have whole slabs, or halves of them.
static bool takesPieces(Operation *op) {
  if (auto store = dyn_cast<tile::WriteOp>(op)) {
    tile::SmemType tile = store.getTile().getType();
    return !store.getTranspose() && tile::getElementBytes(tile.getElementType()) == 2 &&
           tile.getSwizzle() >= 2 * kLanesOfRow * kPieceOfMemory;
  }
  return isa<AllocOp, BarrierSyncOp, FenceAsyncOp, RedoOp, ReportOp, RolesOp, RunIfOp, SlotOp,
             TmaStoreOp, TmaWaitOp, YieldOp>(op);
}

int64_t attn::hopper::findPiece(gpu::GPUFuncOp function) {
  auto hasPieces = [](Type type) {
    auto vector = dyn_cast<VectorType>(type);
    return !vector || vector.getRank() == 0 || vector.getShape().back() == 1 ||
           vector.getShape().back() % (kLanesOfRow * kPieceOfMemory) == 0;
  };
  WalkResult walk = function.walk([&](Operation *op) {
    bool needsAccumulator =
        isa<vector::ExtractStridedSliceOp>(op) ||
        (isa_and_nonnull<HopperDialect, tile::TileDialect>(op->getDialect()) && !takesPieces(op));
    return needsAccumulator || !llvm::all_of(op->getOperandTypes(), hasPieces) ||
                   !llvm::all_of(op->getResultTypes(), hasPieces)
               ? WalkResult::interrupt()
               : WalkResult::advance();
  });
  return walk.wasInterrupted() ? kPieceOfAccumulator : kPieceOfMemory;
}

static SmallVector<Layout, 2> toList(unsigned set) {
  SmallVector<Layout, 2> list;
  for (Layout layout : {Layout::Rows, Layout::Columns, Layout::Tile})
    if (set & (1 << unsigned(layout)))
      list.push_back(layout);
  return list;
}

SmallVector<Layout, 2> attn::hopper::possibleLayouts(VectorType type) {
  return toList(possibleSet(type));
}

int64_t attn::hopper::elementsPerThread(VectorType type, Layout layout, int64_t rowsOfThread) {
  switch (layout) {
  case Layout::Scalar:
    return 1;
  case Layout::Rows:
    return rowsOfThread;
  case Layout::Columns:
    return type.getShape().back() / kLanesOfRow;
  case Layout::Tile:
    return type.getShape().back() / kLanesOfRow * rowsOfThread;
  }
  llvm_unreachable("unknown layout");
}

bool attn::hopper::isBroadcastToTranspose(Operation *op) {
  auto broadcast = dyn_cast<vector::BroadcastOp>(op);
  if (!broadcast || broadcast.getType().getRank() != 2 || op->use_empty())
    return false;
  return llvm::all_of(op->getUsers(), [](Operation *user) {
    auto transpose = dyn_cast<vector::TransposeOp>(user);
    return transpose && transpose.getPermutation() == ArrayRef<int64_t>{1, 0};
  });
}

unsigned VectorLayouts::possible(Value value) const { return possibleSet(value.getType()); }

unsigned VectorLayouts::available(Value value) const {
  auto it = availableLayouts.find(value);
  return it == availableLayouts.end() ? possible(value) : it->second;
}

bool VectorLayouts::restrict(Value value, unsigned layouts) {
  unsigned before = available(value);
  availableLayouts[value] = before & layouts;
  return before != (before & layouts);
}

bool VectorLayouts::want(Value value, unsigned layouts) {
  if (!isa<VectorType>(value.getType()))
    return false;
  unsigned &set = wantedLayouts[value];
  bool changed = (set | layouts) != set;
  set |= layouts;
  return changed;
}

SmallVector<Layout, 2> VectorLayouts::of(Value value) const {
  if (!isa<VectorType>(value.getType()))
    return {Layout::Scalar};
  return toList(wantedLayouts.lookup(value));
}

//===----------------------------------------------------------------------===//
// What definitions give
//===----------------------------------------------------------------------===//

bool VectorLayouts::restrictLoop(Operation *op) {
  bool changed = false;
  auto equal = [&](Value a, Value b) {
    changed |= restrict(a, available(b));
    changed |= restrict(b, available(a));
  };
  if (auto loop = dyn_cast<scf::ForOp>(op)) {
    for (auto [argument, init, yielded, result] :
         llvm::zip_equal(loop.getRegionIterArgs(), loop.getInitArgs(), loop.getYieldedValues(),
                         loop.getResults())) {
      changed |= restrict(argument, available(init) & available(yielded));
      equal(argument, result);
    }
  } else if (auto branch = dyn_cast<scf::IfOp>(op)) {
    if (branch.getNumResults())
      for (auto [result, a, b] : llvm::zip_equal(op->getResults(), branch.thenYield().getOperands(),
                                                 branch.elseYield().getOperands()))
        changed |= restrict(result, available(a) & available(b));
  } else if (auto loop = dyn_cast<scf::WhileOp>(op)) {
    for (auto [argument, init, yielded] : llvm::zip_equal(
             loop.getBeforeArguments(), loop.getInits(), loop.getYieldOp().getOperands()))
      changed |= restrict(argument, available(init) & available(yielded));
    for (auto [argument, passed, result] : llvm::zip_equal(
             loop.getAfterArguments(), loop.getConditionOp().getArgs(), loop.getResults())) {
      changed |= restrict(argument, available(passed));
      equal(argument, result);
    }
  }
  return changed;
}

bool VectorLayouts::restrictResults(Operation *op) {
  if (isa<scf::ForOp, scf::IfOp, scf::WhileOp>(op))
    return restrictLoop(op);
  if (isa<vector::MultiDimReductionOp>(op))
    return restrict(op->getResult(0), kRows);
  if (auto cast = dyn_cast<vector::ShapeCastOp>(op))
    return restrict(cast.getResult(), available(cast.getSource()));
  bool elementwise = op->hasTrait<OpTrait::Elementwise>() || isa<vector::GatherOp>(op);
  if (!elementwise || op->getNumResults() != 1)
    return false;
  bool changed = false;
  for (Value operand : op->getOperands())
    if (isa<VectorType>(operand.getType()))
      changed |= restrict(op->getResult(0), available(operand));
  return changed;
}

//===----------------------------------------------------------------------===//
// What uses need
//===----------------------------------------------------------------------===//

bool VectorLayouts::wantLoop(Operation *op) {
  bool changed = false;
  auto equal = [&](Value a, Value b) {
    changed |= want(a, wantedLayouts.lookup(b));
    changed |= want(b, wantedLayouts.lookup(a));
  };
  if (auto loop = dyn_cast<scf::ForOp>(op)) {
    for (auto [argument, init, yielded, result] :
         llvm::zip_equal(loop.getRegionIterArgs(), loop.getInitArgs(), loop.getYieldedValues(),
                         loop.getResults())) {
      equal(argument, result);
      changed |= want(init, wantedLayouts.lookup(argument));
      changed |= want(yielded, wantedLayouts.lookup(argument));
    }
  } else if (auto branch = dyn_cast<scf::IfOp>(op)) {
    if (branch.getNumResults())
      for (auto [result, a, b] : llvm::zip_equal(op->getResults(), branch.thenYield().getOperands(),
                                                 branch.elseYield().getOperands())) {
        changed |= want(a, wantedLayouts.lookup(result));
        changed |= want(b, wantedLayouts.lookup(result));
      }
  } else if (auto loop = dyn_cast<scf::WhileOp>(op)) {
    for (auto [argument, init, yielded] : llvm::zip_equal(
             loop.getBeforeArguments(), loop.getInits(), loop.getYieldOp().getOperands())) {
      changed |= want(init, wantedLayouts.lookup(argument));
      changed |= want(yielded, wantedLayouts.lookup(argument));
    }
    for (auto [argument, passed, result] : llvm::zip_equal(
             loop.getAfterArguments(), loop.getConditionOp().getArgs(), loop.getResults())) {
      equal(argument, result);
      changed |= want(passed, wantedLayouts.lookup(argument));
    }
  }
  return changed;
}

bool VectorLayouts::wantOperands(Operation *op) {
  if (isa<scf::ForOp, scf::IfOp, scf::WhileOp>(op))
    return wantLoop(op);
  bool changed = false;
  // A tile, and what has one layout only by its type, is always made that way.
  for (Value result : op->getResults())
    if (unsigned set = possible(result); llvm::popcount(set) == 1 && !result.use_empty())
      changed |= want(result, set);
  if (auto broadcast = dyn_cast<vector::BroadcastOp>(op)) {
    auto source = dyn_cast<VectorType>(broadcast.getSourceType());
    if (!source || isBroadcastToTranspose(op))
      return changed;
    if (source.getShape() == broadcast.getType().getShape())
      return changed | want(broadcast.getSource(), wantedLayouts.lookup(broadcast.getResult()));
    return changed |
           want(broadcast.getSource(), source.getRank() == 1 ? kColumns : possibleSet(source));
  }
  if (auto transpose = dyn_cast<vector::TransposeOp>(op)) {
    auto broadcast = transpose.getVector().getDefiningOp<vector::BroadcastOp>();
    return changed | (broadcast && want(broadcast.getSource(), kRows));
  }
  if (auto reduction = dyn_cast<vector::MultiDimReductionOp>(op)) {
    changed |= want(reduction.getAcc(), kRows);
    return changed | want(reduction.getSource(), kTile);
  }
  if (auto reduction = dyn_cast<vector::ReductionOp>(op))
    return changed | want(reduction.getVector(), kColumns);
  if (auto report = dyn_cast<ReportOp>(op))
    return changed |
           want(report.getValue(), report.getValue().getType().getRank() == 1 ? kRows : kTile);
  if (auto cast = dyn_cast<vector::ShapeCastOp>(op))
    return changed | want(cast.getSource(), wantedLayouts.lookup(cast.getResult()));
  // Elementwise, gathers, masked reads: operands are as results.
  if (op->getNumResults() == 1 && isa<VectorType>(op->getResult(0).getType()))
    for (Value operand : op->getOperands())
      changed |= want(operand, wantedLayouts.lookup(op->getResult(0)));
  // Written, or used in an op of tiles or of Hopper: tiles are tiles, and a mask
  // is as the value that it goes with.
  if (op->getNumResults() == 0 ||
      isa_and_nonnull<HopperDialect, tile::TileDialect>(op->getDialect())) {
    unsigned all = 0;
    for (Value operand : op->getOperands())
      if (isa<VectorType>(operand.getType()))
        all |= possible(operand) & kTile ? kTile : wantedLayouts.lookup(operand);
    for (Value operand : op->getOperands())
      if (isa<VectorType>(operand.getType()) && !isa<scf::YieldOp, scf::ConditionOp>(op))
        changed |= want(operand, all);
  }
  return changed;
}

void VectorLayouts::solveWants(gpu::GPUFuncOp function) {
  bool changed = true;
  while (changed) {
    changed = false;
    function.walk<WalkOrder::PreOrder>([&](Operation *op) { changed |= wantOperands(op); });
  }
}

VectorLayouts::VectorLayouts(gpu::GPUFuncOp function) {
  bool changed = true;
  while (changed) {
    changed = false;
    function.walk([&](Operation *op) { changed |= restrictResults(op); });
  }
  solveWants(function);
  // What is only written has any layout that it can have.
  function.walk([&](Operation *op) {
    if (op->getNumResults() || isa<scf::YieldOp, scf::ConditionOp>(op))
      return;
    for (Value operand : op->getOperands())
      if (unsigned set = available(operand); set && !wantedLayouts.lookup(operand))
        want(operand, set & kRows ? kRows : set & kColumns ? kColumns : kTile);
  });
  solveWants(function);
}

LogicalResult VectorLayouts::verify(gpu::GPUFuncOp function) const {
  WalkResult walk = function.walk([&](Operation *op) {
    for (Value result : op->getResults()) {
      auto type = dyn_cast<VectorType>(result.getType());
      if (!type || isBroadcastToTranspose(op))
        continue;
      if (!possibleSet(type))
        return op->emitOpError() << "has no layout in a warpgroup: tiles have 64 rows and a "
                                    "multiple of 8 columns, got "
                                 << type,
               WalkResult::interrupt();
      if (unsigned missing = wantedLayouts.lookup(result) & ~available(result))
        return op->emitOpError() << "has a value per " << (missing & kColumns ? "row" : "column")
                                 << ", used as one per " << (missing & kColumns ? "column" : "row"),
               WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}
