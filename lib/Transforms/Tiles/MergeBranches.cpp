// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Neighbouring branches around masks become one.

#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace attn {
#define GEN_PASS_DEF_ATTNMERGEBRANCHES
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numMerged("attn-merge-branches", "merged",
                            "Pairs of branches around masks that became one");

namespace {

/// What a branch gives without any work on its first side; null if it works there.
Value getKept(scf::IfOp branch) {
  if (branch.getNumResults() != 1 || !llvm::hasSingleElement(*branch.thenBlock()))
    return {};
  return branch.thenYield().getOperand(0);
}

/// Whether all uses of `value` are inside of `op`.
bool isUsedOnlyIn(Value value, Operation *op) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) { return op->isAncestor(user); });
}

/// The branch whose result `second` keeps, where the two can be one.
scf::IfOp findFirst(scf::IfOp second) {
  Value kept = getKept(second);
  auto first = kept ? kept.getDefiningOp<scf::IfOp>() : scf::IfOp();
  if (!first || first->getBlock() != second->getBlock() || !getKept(first) ||
      !isUsedOnlyIn(kept, second))
    return {};
  // The first one moves down to the second one.
  for (Operation *op = first->getNextNode(); op != second; op = op->getNextNode())
    if (!isMemoryEffectFree(op))
      return {};
  return isMemoryEffectFree(first) ? first : scf::IfOp();
}

void merge(scf::IfOp first, scf::IfOp second) {
  numMerged.at(second);
  OpBuilder b(second);
  Location loc = second.getLoc();
  Value both = arith::AndIOp::create(b, loc, first.getCondition(), second.getCondition());
  auto merged = scf::IfOp::create(b, loc, second.getResultTypes(), both, /*withElseRegion=*/true);
  merged->setDiscardableAttrs(second->getDiscardableAttrDictionary());
  second.replaceAllUsesWith(merged.getResults());
  b.setInsertionPointToStart(merged.thenBlock());
  scf::YieldOp::create(b, loc, getKept(first));
  b.setInsertionPointToStart(merged.elseBlock());
  auto yield = scf::YieldOp::create(b, loc, second.getResults());
  first->moveBefore(yield);
  second->moveBefore(yield);
}

struct MergeBranchesPass : attn::impl::AttnMergeBranchesBase<MergeBranchesPass> {
  void runOnOperation() override {
    SmallVector<scf::IfOp> branches;
    getOperation()->walk([&](scf::IfOp branch) { branches.push_back(branch); });
    // In order: what has been merged may be the first of the next pair.
    for (scf::IfOp branch : branches)
      if (scf::IfOp first = findFirst(branch))
        merge(first, branch);
  }
};

} // namespace
