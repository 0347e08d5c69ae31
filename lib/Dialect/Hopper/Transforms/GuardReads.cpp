// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads for one side of a branch: made early, but only where that side is
// taken.

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Memory.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERGUARDREADS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numCopied("hopper-guard-reads", "copied", "Reads that moved into branches");
static attn::Done numGuarded("hopper-guard-reads", "guarded", "Reads under a branch of their own");

namespace {

/// The one region of a branch that uses `read`, if there is one in its block.
Region *findSide(vector::TransferReadOp read) {
  Region *side = nullptr;
  for (Operation *user : read->getUsers()) {
    Operation *ancestor = read->getBlock()->findAncestorOpInBlock(*user);
    auto branch = dyn_cast_or_null<scf::IfOp>(ancestor);
    if (!branch || branch == user)
      return nullptr;
    Region *region = branch.getThenRegion().isAncestor(user->getParentRegion())
                         ? &branch.getThenRegion()
                         : &branch.getElseRegion();
    if (side && side != region)
      return nullptr;
    side = region;
  }
  return side;
}

/// A copy in each branch that uses `read`, if there are several: held from one to the
/// other it would cost registers in all tiles. False if there is one, or something else.
bool copyToBranches(vector::TransferReadOp read) {
  llvm::SetVector<Operation *> branches;
  llvm::SetVector<Block *> blocks;
  for (Operation *user : read->getUsers()) {
    branches.insert(read->getBlock()->findAncestorOpInBlock(*user));
    blocks.insert(user->getBlock());
  }
  bool areBranches =
      llvm::all_of(branches, llvm::IsaPred<scf::IfOp>) && !blocks.contains(read->getBlock());
  if (branches.size() < 2 || !areBranches ||
      programs::isWrittenIn(read->getParentOp(), cast<MemrefValue>(read.getBase())))
    return false;
  for (Block *block : blocks) {
    Operation *copy = OpBuilder::atBlockBegin(block).clone(*read);
    read->replaceUsesWithIf(copy->getResults(),
                            [&](OpOperand &use) { return use.getOwner()->getBlock() == block; });
  }
  read.erase();
  return true;
}

void guard(vector::TransferReadOp read) {
  Location at = read.getLoc();
  if (copyToBranches(read)) {
    numCopied.at(at);
    return;
  }
  Region *side = findSide(read);
  if (!side)
    return;
  auto branch = cast<scf::IfOp>(side->getParentOp());
  auto compare = branch.getCondition().getDefiningOp<arith::CmpIOp>();
  Block *block = read->getBlock();
  if (!compare || (compare->getBlock() == block && !compare->isBeforeInBlock(read)))
    return;
  numGuarded.at(read);
  // With a condition of its own, lest the two branches be merged.
  OpBuilder b(read);
  Location loc = read.getLoc();
  bool isElse = side == &branch.getElseRegion();
  Value other = arith::ConstantOp::create(b, loc, b.getZeroAttr(read.getVectorType()));
  Value inverse = arith::CmpIOp::create(b, loc, arith::invertPredicate(compare.getPredicate()),
                                        compare.getLhs(), compare.getRhs());
  auto guarded = scf::IfOp::create(b, loc, read.getType(), inverse,
                                   /*withElseRegion=*/true);
  read.replaceAllUsesWith(guarded.getResult(0));
  Block *taken = isElse ? guarded.thenBlock() : guarded.elseBlock();
  Block *untaken = isElse ? guarded.elseBlock() : guarded.thenBlock();
  read->moveBefore(taken, taken->end());
  b.setInsertionPointToEnd(taken);
  scf::YieldOp::create(b, loc, read.getResult());
  b.setInsertionPointToEnd(untaken);
  scf::YieldOp::create(b, loc, other);
}

struct GuardReadsPass : attn::impl::HopperGuardReadsBase<GuardReadsPass> {
  void runOnOperation() override {
    SmallVector<vector::TransferReadOp> reads;
    getOperation().walk([&](vector::TransferReadOp read) {
      auto loop = dyn_cast<scf::ForOp>(read->getParentOp());
      if (loop && isa<MemRefType>(read.getBase().getType()) &&
          read.getVectorType().getRank() == 1 && !loop.getBody()->getOps<tile::MmaOp>().empty())
        reads.push_back(read);
    });
    for (vector::TransferReadOp read : reads)
      guard(read);
  }
};

} // namespace
