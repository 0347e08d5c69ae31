// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A tile that products read from shared memory is not read from global memory once more.

#include "TileLoads.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Memory.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERREUSETILES
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numReused("hopper-reuse-tiles", "reused",
                            "Reads of a tile that is in shared memory already");

/// Whether two indices are the same by their form.
static bool areSame(Value one, Value other) {
  if (one == other)
    return true;
  auto first = one.getDefiningOp<affine::AffineApplyOp>();
  auto second = other.getDefiningOp<affine::AffineApplyOp>();
  return first && second && first.getAffineMap() == second.getAffineMap() &&
         first.getMapOperands() == second.getMapOperands();
}

/// Moves what only converts the value to the first op that needs it with another one, and gives
/// what comes first then: other reads are under way there.
static Operation *sink(Operation *op) {
  Operation *user = op->hasOneUse() ? *op->user_begin() : nullptr;
  if (!user || user->getBlock() != op->getBlock())
    return op;
  if (user->getNumOperands() != 1 || !isMemoryEffectFree(user))
    return user;
  Operation *next = sink(user);
  if (next == user)
    return user;
  user->moveBefore(next);
  return user;
}

/// Reads the tile where it is copied to, if it is.
static void reuse(vector::TransferReadOp read, scf::ForallOp warpgroups) {
  auto isAlike = [&](tile::LoadOp load) { return load.getSource() == read.getBase(); };
  auto loads = llvm::to_vector(
      llvm::make_filter_range(warpgroups.getBody()->getOps<tile::LoadOp>(), isAlike));
  if (loads.empty())
    return;
  OpBuilder b(sink(read));
  Value tile = hopper::loadTile(b, read, /*perWarpgroup=*/true);
  auto rows = tile.getDefiningOp<tile::RowsOp>();
  auto own = (rows ? rows.getSource() : tile).getDefiningOp<tile::LoadOp>();
  auto known = llvm::find_if(loads, [&](tile::LoadOp load) {
    return load.getType() == own.getType() &&
           llvm::all_of(llvm::zip_equal(load.getIndices(), own.getIndices()),
                        [](auto pair) { return areSame(std::get<0>(pair), std::get<1>(pair)); });
  });
  if (known == loads.end()) {
    if (rows)
      rows.erase();
    return own.erase();
  }
  numReused.at(read);
  tile::LoadOp one = *known, other = own;
  if (own->isBeforeInBlock(one))
    std::swap(one, other);
  if (tile == other.getResult()) // of one warpgroup, which has no rows of its own
    tile = one.getResult();
  other.replaceAllUsesWith(one.getResult());
  other.erase();
  auto value = tile::ReadOp::create(b, read.getLoc(), read.getVectorType(), tile,
                                    /*transpose=*/false);
  read.replaceAllUsesWith(value.getValue());
  read.erase();
}

namespace {
struct ReuseTilesPass : attn::impl::HopperReuseTilesBase<ReuseTilesPass> {
  void runOnOperation() override {
    SmallVector<vector::TransferReadOp> reads;
    getOperation().walk([&](vector::TransferReadOp read) { reads.push_back(read); });
    for (vector::TransferReadOp read : reads) {
      scf::ForallOp warpgroups = hopper::getWarpgroupLoop(read);
      if (!warpgroups || read->getParentOp() != warpgroups || !hopper::hasTile(read) ||
          !hopper::hasZeros(read) || !read.getPermutationMap().isMinorIdentity())
        continue;
      auto program = warpgroups->getParentOfType<scf::ForallOp>();
      if (program && !programs::isWrittenIn(program, cast<MemrefValue>(read.getBase())))
        reuse(read, warpgroups);
    }
  }
};
} // namespace
