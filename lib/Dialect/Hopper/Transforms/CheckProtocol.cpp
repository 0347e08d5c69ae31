// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The pass, and what its checks share.

#include "CheckProtocol.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERCHECKPROTOCOL
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn::hopper;
namespace tile = attn::tile;

Protocol::Protocol(gpu::LaunchOp launch, RolesOp roles) : launch(launch), roles(roles) {
  launch.walk([&](MBarrierOp op) { barriers[op.getBarriers()].barrier = op; });
  roles.walk([&](Operation *op) {
    if (auto expect = dyn_cast<MBarrierExpectOp>(op))
      barriers[expect.getBarriers()].expects.push_back(expect);
    else if (auto arrive = dyn_cast<MBarrierArriveOp>(op))
      barriers[arrive.getBarriers()].arrives.push_back(arrive);
    else if (auto wait = dyn_cast<MBarrierWaitOp>(op))
      barriers[wait.getBarriers()].waits.push_back(wait);
    else if (auto load = dyn_cast<TmaLoadOp>(op))
      barriers[load.getBarriers()].loads.push_back(load);
  });
  // Barriers that come from elsewhere are not known.
  barriers.remove_if([](auto &entry) { return !entry.second.barrier; });
}

int Protocol::getRole(Operation *op) const {
  RolesOp roles = this->roles;
  for (auto [role, region] : llvm::enumerate(roles.getBodies()))
    if (region.isAncestor(op->getParentRegion()))
      return int(role);
  return -1;
}

bool attn::hopper::isSameIndex(Value a, Value b) {
  APInt first, second;
  if (a == b)
    return true;
  return matchPattern(a, m_ConstantInt(&first)) && matchPattern(b, m_ConstantInt(&second)) &&
         first.getSExtValue() == second.getSExtValue();
}

TileOrigin attn::hopper::getTileOrigin(Value tile) {
  Value index;
  while (Operation *op = tile.getDefiningOp()) {
    if (isa<AllocOp>(op))
      return {tile, index};
    if (isa<tile::RowsOp, tile::ColumnsOp>(op))
      tile = op->getOperand(0);
    else if (auto slot = dyn_cast<SlotOp>(op))
      tile = slot.getRing(), index = slot.getIndex();
    else
      break;
  }
  return {};
}

Copy attn::hopper::getCopy(TmaLoadOp load) {
  auto loop = dyn_cast<scf::ForOp>(load->getParentOp());
  auto launch = load->getParentOfType<gpu::LaunchOp>();
  APInt parts;
  if (loop && loop.getLowerBound().getDefiningOp<gpu::ClusterBlockIdOp>() &&
      loop.getStep() == launch.getClusterSizeX() &&
      matchPattern(loop.getUpperBound(), m_ConstantInt(&parts)))
    return {loop, parts.getSExtValue()};
  return {load};
}

namespace {
struct CheckProtocolPass : attn::impl::HopperCheckProtocolBase<CheckProtocolPass> {
  using Base::Base;

  void runOnOperation() override {
    getOperation().walk([&](gpu::LaunchOp launch) {
      launch.walk([&](RolesOp roles) {
        Protocol protocol(launch, roles);
        protocol.remarks = remarks;
        checkBytes(protocol);
        checkArrivals(protocol);
        checkClusters(protocol);
        checkNamedBarriers(protocol);
        checkCounters(protocol);
        checkTileLifetimes(protocol);
        checkProductWaits(protocol);
        checkStores(protocol);
        if (protocol.failed)
          signalPassFailure();
      });
    });
    markAllAnalysesPreserved();
  }
};
} // namespace
