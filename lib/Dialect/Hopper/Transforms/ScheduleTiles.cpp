// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Persistent CTAs, and the order in which they take the tiles.

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERSCHEDULETILES
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// Whether the trip count of a loop in the role depends on the last coordinate
/// of the tile.
bool hasUnevenTiles(Region &role) {
  affine::AffineDelinearizeIndexOp position;
  role.walk([&](affine::AffineDelinearizeIndexOp op) { position = op; });
  if (!position)
    return false;
  SetVector<Operation *> users;
  getForwardSlice(position.getResults().back(), &users);
  return role
      .walk([&](scf::ForOp loop) {
        for (Value bound : {loop.getLowerBound(), loop.getUpperBound()})
          if (bound.getDefiningOp() && users.contains(bound.getDefiningOp()))
            return WalkResult::interrupt();
        return WalkResult::advance();
      })
      .wasInterrupted();
}

/// Lets the last coordinate vary slowest, from its end: the tiles with the most
/// work come first where work grows along it.
void takeLastFirst(affine::AffineDelinearizeIndexOp position) {
  OpBuilder b(position);
  Location loc = position.getLoc();
  SmallVector<OpFoldResult> sizes = position.getPaddedBasis();
  SmallVector<Value> rotated;
  rotated.push_back(getValueOrCreateConstantIndexOp(b, loc, sizes.back()));
  for (OpFoldResult size : ArrayRef(sizes).drop_back())
    rotated.push_back(getValueOrCreateConstantIndexOp(b, loc, size));
  auto other = affine::AffineDelinearizeIndexOp::create(b, loc, position.getLinearIndex(),
                                                        ValueRange(rotated));
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  Value end = arith::SubIOp::create(b, loc, rotated.front(), one);
  Value last = arith::SubIOp::create(b, loc, end, other.getResult(0));
  SmallVector<Value> results(other.getResults().drop_front());
  results.push_back(last);
  position.replaceAllUsesWith(results);
  position.erase();
}

void persist(gpu::LaunchOp launch, hopper::RolesOp roles, int64_t ctas) {
  OpBuilder b(launch);
  Location loc = launch.getLoc();
  Value tiles = launch.getGridSizeX();
  Value count = arith::ConstantIndexOp::create(b, loc, ctas);
  Value grid = arith::MinUIOp::create(b, loc, tiles, count);
  launch.getGridSizeXMutable().assign(grid);
  Value block = launch.getBlockIds().x;
  for (Region &region : roles.getBodies()) {
    Block *body = &region.front();
    b.setInsertionPointToStart(body);
    auto loop = scf::ForOp::create(b, loc, block, tiles, grid);
    loop.getBody()->getOperations().splice(loop.getBody()->begin(), body->getOperations(),
                                           std::next(loop->getIterator()),
                                           body->getTerminator()->getIterator());
    block.replaceUsesWithIf(loop.getInductionVar(), [&](OpOperand &use) {
      return loop->isProperAncestor(use.getOwner());
    });
  }
}

struct ScheduleTilesPass : attn::impl::HopperScheduleTilesBase<ScheduleTilesPass> {
  using Base::Base;

  void runOnOperation() override {
    getOperation().walk([&](gpu::LaunchOp launch) {
      SmallVector<hopper::RolesOp> all(launch.getBody().front().getOps<hopper::RolesOp>());
      if (all.size() != 1)
        return;
      hopper::RolesOp roles = all.front();
      if (hasUnevenTiles(roles.getBodies().back())) {
        SmallVector<affine::AffineDelinearizeIndexOp> positions;
        roles.walk([&](affine::AffineDelinearizeIndexOp op) { positions.push_back(op); });
        for (affine::AffineDelinearizeIndexOp position : positions)
          takeLastFirst(position);
      }
      if (ctas > 0)
        persist(launch, roles, ctas);
    });
  }
};

} // namespace
