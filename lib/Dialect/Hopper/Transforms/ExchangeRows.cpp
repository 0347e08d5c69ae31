// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles that all warpgroups bring their rows to: memory, stores and barriers.

#include "Barriers.h"
#include "Roles.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/PatternMatch.h"

namespace attn {
#define GEN_PASS_DEF_HOPPEREXCHANGEROWS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numExchanged("hopper-exchange-rows", "exchanged",
                               "Tiles of which each warpgroup writes a part");

namespace {

constexpr int64_t kTurns = 2;

/// Which of the two tiles an iteration of the loop has: carried from 0, and
/// everybody is done with what they held before when the loop starts.
Value carryTurn(scf::ForOp loop, Value id, int64_t warpgroups) {
  IRRewriter b(loop.getContext());
  b.setInsertionPoint(loop);
  Location loc = loop.getLoc();
  hopper::BarrierSyncOp::create(b, loc, id, warpgroups);
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  auto yieldNext = [](OpBuilder &b, Location loc, ArrayRef<BlockArgument> turn) {
    Value one = arith::ConstantIndexOp::create(b, loc, 1);
    return SmallVector<Value>{arith::SubIOp::create(b, loc, one, turn.front())};
  };
  FailureOr<LoopLikeOpInterface> made =
      loop.replaceWithAdditionalYields(b, zero, /*replaceInitOperandUsesInLoop=*/false, yieldNext);
  return cast<scf::ForOp>(made->getOperation()).getRegionIterArgs().back();
}

/// In the order in which a warpgroup comes by: everybody is done with what the tile
/// held before; each writes its rows; everybody has written, which a fence behind the barrier
/// shows to the products. (In front of it, it would wait for the writes of each one by itself.)
void expand(tile::ShareOp op, hopper::RolesOp roles, unsigned role, Value id) {
  Location loc = op.getLoc();
  int64_t warpgroups = roles.getWarpgroups()[role];
  tile::SmemType type = op.getTile().getType();
  OpBuilder b(roles);
  auto loop = dyn_cast<scf::ForOp>(op->getParentOp());
  // Where all meet at the start of an iteration, nobody reads what the one before has shared.
  bool meets = loop && isa<tile::AwaitOp>(loop.getBody()->front());
  if (meets)
    loop = nullptr;
  SmallVector<int64_t> shape = {loop ? kTurns : 1, type.getRows(), type.getColumns()};
  Value ring = hopper::AllocOp::create(
      b, loc, tile::SmemType::get(shape, type.getElementType(), type.getSwizzle()));
  Value turn;
  if (loop)
    turn = carryTurn(loop, id, warpgroups);
  b.setInsertionPoint(op);
  if (!loop) {
    turn = arith::ConstantIndexOp::create(b, loc, 0);
    if (!meets)
      hopper::BarrierSyncOp::create(b, loc, id, warpgroups);
  }
  Value memory = hopper::SlotOp::create(b, loc, type, ring, turn);
  auto part = cast<VectorType>(op.getPart().getType());
  auto rows = tile::SmemType::get(b.getContext(), part.getShape(), type.getElementType(),
                                  type.getSwizzle(), type.getRows());
  Value first = affine::makeComposedAffineApply(
      b, loc, getAffineDimExpr(0, b.getContext()) * part.getDimSize(0),
      {OpFoldResult(roles.getBodies()[role].getArgument(0))});
  Value mine = tile::RowsOp::create(b, loc, rows, memory, first);
  tile::WriteOp::create(b, loc, op.getPart(), mine, /*transpose=*/false);
  if (Operation *reader = hopper::findFirstReader(op->getBlock(), op.getTile()))
    b.setInsertionPoint(reader);
  hopper::BarrierSyncOp::create(b, loc, id, warpgroups);
  if (!meets) // the products read by WGMMA
    hopper::FenceAsyncOp::create(b, loc);
  op.getTile().replaceAllUsesWith(memory);
  op.erase();
}

struct ExchangeRowsPass : attn::impl::HopperExchangeRowsBase<ExchangeRowsPass> {
  void runOnOperation() override {
    WalkResult walk = getOperation().walk([&](hopper::RolesOp roles) {
      bool exchanges = false;
      auto launch = roles->getParentOfType<gpu::LaunchOp>();
      for (auto [role, region] : llvm::enumerate(roles.getBodies())) {
        SmallVector<tile::ShareOp> shares;
        region.walk([&](tile::ShareOp op) { shares.push_back(op); });
        Value id; // of the barrier at which the role's warpgroups meet
        for (tile::ShareOp op : shares) {
          int64_t parts = op.getTile().getType().getRows() /
                          cast<VectorType>(op.getPart().getType()).getDimSize(0);
          if (parts != roles.getWarpgroups()[role]) {
            op.emitOpError() << "has " << parts << " parts in a role of "
                             << roles.getWarpgroups()[role] << " warpgroups";
            return WalkResult::interrupt();
          }
          numExchanged.at(op);
          exchanges = true;
          if (!id)
            id = hopper::createNamedBarriers(roles->getBlock(), op.getLoc(), /*count=*/1);
          expand(op, roles, role, id);
        }
      }
      if (exchanges && launch.getDynamicSharedMemorySize())
        hopper::giveSharedMemory(launch);
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
