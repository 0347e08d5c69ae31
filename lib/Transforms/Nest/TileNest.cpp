// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-tile-nest: planned folds and their surroundings to tile programs (L1 to L2).

#include "Nest.h"
#include "attn/Dialect/Attn/IR/Facts.h"
#include "attn/Transforms/Nest/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/RenamedOptions.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace attn {
#define GEN_PASS_DEF_ATTNTILENEST
#include "attn/Transforms/Nest/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static Done numTiled("attn-tile-nest", "tiled", "Nests that became tile programs");

/// The sizes that a fold asks for by attributes.
TileOptions TileOptions::ofFold(FoldOp fold) const {
  TileOptions own = *this;
  auto take = [&](StringRef name, int64_t &size) {
    if (auto wanted = fold->getAttrOfType<IntegerAttr>(name))
      size = std::max<int64_t>(wanted.getInt(), 1);
  };
  take(kBlockMAttr, own.blockM);
  take(kBlockNAttr, own.blockN);
  return own;
}

/// A plan is of this nest: it has the roles that the statements' form gives.
LogicalResult Nest::checkPlan(PlanAttr plan) {
  if (plan.getLoops().size() != emitter->dims.size())
    return folds.front().emitError("expected a plan of ")
           << emitter->dims.size() << " loops, got one of " << plan.getLoops().size();
  for (auto [entry, loop] : llvm::zip(emitter->dims, plan.getLoops()))
    if (loop.getRole() != entry.second.role)
      return folds.front().emitError("expected loop ")
             << loop.getName() << " to be planned as " << stringifyLoopRole(entry.second.role)
             << ", got " << stringifyLoopRole(loop.getRole());
  return success();
}

LogicalResult Nest::tile() {
  FoldOp fold = folds.front();
  PlanAttr plan = fold.getPlanAttr();
  if (!plan)
    return fold.emitError("expected a plan; attn-plan-nest makes one");
  if (failed(findRoles()) || failed(checkPlan(plan)) || failed(findOutputs()))
    return failure();
  parts = plan.getParts();
  programs = plan.getPrograms();
  if (LoopPlanAttr rows = plan.find(LoopRole::Row))
    rowTreatment = rows.getTreatment();
  // Sizes are computed before the program.
  b.setInsertionPoint(ops.back());
  b.setLoc(fold.getLoc());
  emitSizes();
  emitter->outside = arith::ConstantIndexOp::create(b, 0);
  switch (plan.getOrder()) {
  case LoopOrder::MOuter:
    return tileRows();
  case LoopOrder::NOuter:
    return tileStream();
  case LoopOrder::SplitKV:
    return tileSplit();
  }
  llvm_unreachable("all orders are handled");
}

namespace {
struct TileNestPass : attn::WithRenamedOptions<attn::impl::AttnTileNestBase<TileNestPass>> {
  using WithRenamedOptions::WithRenamedOptions;

  void runOnOperation() override {
    if (blockM < 1 || blockMMultiple < 1 || blockN < 1) {
      getOperation().emitError("expected tiles to be at least 1");
      return signalPassFailure();
    }
    TileOptions options{blockM, blockMMultiple, blockN, rowsFirst, parallelSums};
    for (Block &block : getOperation().getBody())
      while (true) {
        auto folds = block.getOps<FoldOp>();
        if (folds.empty())
          break;
        FoldOp fold = *folds.begin();
        TileOptions own = options.ofFold(fold);
        numTiled.at(fold);
        if (failed(Nest(fold, own).tile()))
          return signalPassFailure();
      }
    // Only whoever chooses tiles asks for it.
    getOperation()->walk([](Operation *op) { op->removeAttr(kExpectedSizeAttr); });
  }
};
} // namespace
