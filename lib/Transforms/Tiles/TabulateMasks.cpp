// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Masks that no inequality on tile starts bounds, such as documents, are
// evaluated once per tile before the parallel loop by clones of the very ops
// that compute them. Each row of the table lists the tiles that are not empty
// as 2 * tile + full; the fold loop runs over its row. Block masks as in
// FlexAttention (Dong et al., arXiv:2412.05496), from the same expression.

#include "TableBuilder.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn {
#define GEN_PASS_DEF_ATTNTABULATEMASKS
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn::tiles;

static attn::Done numTables("attn-tabulate-masks", "tabulated",
                            "Fold loops that run over a row of a table");
static attn::Left numLeft("attn-tabulate-masks", "not tabulated",
                          "Fold loops for which a table would cost as much as they");

namespace {

/// Whether a table costs as much as the loop that it would shorten: the mask is
/// computed from tiles in memory, and no product is left out with a tile.
bool savesNothing(scf::ForOp loop, const Plan &plan) {
  WalkResult product = loop.walk([](vector::ContractionOp) { return WalkResult::interrupt(); });
  return !product.wasInterrupted() && llvm::any_of(plan.masks, [&](const Mask &mask) {
    return readsTile(plan.top, mask.condition.value);
  });
}

/// Whether a loop has one product, as maxima and sums of rows alone have it: tables of extremes,
/// which take a program of their own, save less than that.
bool hasOneProduct(scf::ForOp loop) {
  unsigned products = 0;
  loop.walk([&](vector::ContractionOp) { ++products; });
  return products == 1;
}

/// `loop` becomes the loop over a row of the table, where there is one.
LogicalResult tabulate(scf::ForOp &loop, bool branch, bool extremes, bool inPrograms, bool atOnce) {
  SmallVector<Condition> conditions = collectMasks(loop);
  LoopUniforms uniforms(loop);
  bool wanted = llvm::any_of(conditions, [&](const Condition &c) {
    auto type = cast<VectorType>(c.value.getType());
    return !type.isScalable() && type.getRank() > 0 &&
           PredicateReader(uniforms, type.getShape()).read(c.value).hasUnknown();
  });
  if (!wanted)
    return success();
  auto masks = readMasks(loop, uniforms, conditions, /*all=*/true);
  if (failed(masks))
    return success();
  Plan plan;
  plan.loop = loop;
  plan.branch = branch;
  plan.extremes = extremes && !hasOneProduct(loop);
  plan.masks = *masks;
  if (!findPlace(plan)) {
    refuse(loop, loop,
           "expected masks and loop bounds that follow from loop variables by pure arithmetic");
    return success();
  }
  if (savesNothing(loop, plan)) {
    numLeft.at(loop) << remark::reason(
        "the mask is computed from tiles in memory, and no product is "
        "left out with a tile");
    return success();
  }
  if (!inPrograms && plan.top->getParentOfType<scf::ForallOp>())
    return loop.emitError(
        "the table of this mask's tiles would be made by each program: the bounds "
        "of the loop differ between programs");
  plan.atOnce = atOnce && !plan.top->getParentOfType<scf::ForallOp>() && !hasTilesOfRows(plan);
  plan.extremes &= !plan.atOnce;
  numTables.at(loop) << remark::metric("Dimensions", plan.dims.size());
  loop = TableBuilder(plan, uniforms).build();
  return success();
}

struct TabulateMasksPass : attn::impl::AttnTabulateMasksBase<TabulateMasksPass> {
  using Base::Base;

  void runOnOperation() override {
    attn::separateTileUses(getOperation());
    for (scf::ForOp loop : collectFoldLoops(getOperation())) {
      attn::PartOp part = liftPart(loop);
      if (failed(tabulate(loop, branch, extremes, inPrograms, atOnce)))
        return signalPassFailure();
      dividePart(loop, part);
    }
  }
};

} // namespace
