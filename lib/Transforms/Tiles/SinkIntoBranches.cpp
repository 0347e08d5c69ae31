// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What only masked tiles need is computed in the branches that they take.

#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

namespace attn {
#define GEN_PASS_DEF_ATTNSINKINTOBRANCHES
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numSunk("attn-sink-into-branches", "sunk",
                          "Operations that moved into branches around masks");

namespace {

/// The sides of branches around masks that use the results of `op`, one of each branch;
/// none if anything else uses them.
llvm::SetVector<Region *> findSides(Operation *op) {
  llvm::SetVector<Region *> sides;
  llvm::SmallPtrSet<Operation *, 4> branches;
  for (Operation *user : op->getUsers()) {
    Operation *ancestor = op->getBlock()->findAncestorOpInBlock(*user);
    auto branch = dyn_cast_or_null<scf::IfOp>(ancestor);
    if (!branch || branch == user || !branch->hasAttr(attn::kTileKindAttr))
      return {};
    Region &then = branch.getThenRegion();
    Region *side = then.isAncestor(user->getParentRegion()) ? &then : &branch.getElseRegion();
    if (sides.insert(side) && !branches.insert(branch).second)
      return {};
  }
  return sides;
}

void sink(Operation *op) {
  llvm::SetVector<Region *> sides = findSides(op);
  for (Region *side : sides) {
    OpBuilder b = OpBuilder::atBlockBegin(&side->front());
    Operation *copy = b.clone(*op);
    for (auto [from, to] : llvm::zip_equal(op->getResults(), copy->getResults()))
      replaceAllUsesInRegionWith(from, to, *side);
  }
  if (sides.empty())
    return;
  numSunk.at(op);
  op->erase();
}

struct SinkIntoBranchesPass : attn::impl::AttnSinkIntoBranchesBase<SinkIntoBranchesPass> {
  void runOnOperation() override {
    llvm::SetVector<Block *> blocks;
    getOperation()->walk([&](scf::IfOp branch) {
      if (branch->hasAttr(attn::kTileKindAttr))
        blocks.insert(branch->getBlock());
    });
    for (Block *block : blocks)
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*block)))
        if (op.getNumRegions() == 0 && !op.use_empty() && isPure(&op))
          sink(&op);
  }
};

} // namespace
