// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Of two exponentials that rows choose between, one is computed only where some row takes it.

#include "Memory.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERBRANCHBYROWS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// A choice between two tiles of exponentials.
class Choice {
public:
  Choice(arith::SelectOp select, scf::ForallOp program)
      : select(select), program(program), b(select) {}

  void run() {
    Value chooses = getRepeated(select.getCondition());
    Operation *rare = getExponential(select.getTrueValue());
    Operation *usual = getExponential(select.getFalseValue());
    if (!chooses || !rare || !usual || rare == usual)
      return;
    SmallVector<Operation *> ofRare = collect(rare, /*tilesOnly=*/false);
    SmallVector<Operation *> ofUsual = collect(usual, /*tilesOnly=*/true);
    Location loc = select.getLoc();
    Value some = vector::ReductionOp::create(b, loc, vector::CombiningKind::OR, chooses);
    some.getDefiningOp()->setAttr(hopper::kMayHoldAttr, b.getUnitAttr());
    auto branch = scf::IfOp::create(b, loc, select.getType(), some, /*withElseRegion=*/true);
    select.replaceAllUsesWith(branch.getResult(0));

    // Both where some row takes the rare one.
    Block *both = branch.thenBlock();
    b.setInsertionPointToStart(both);
    IRMapping copies;
    for (Operation *op : ofUsual)
      b.clone(*op, copies);
    for (Operation *op : ofRare)
      op->moveBefore(both, both->end());
    Operation *condition = select.getCondition().getDefiningOp();
    b.setInsertionPointToEnd(both);
    select->moveBefore(both, both->end());
    select.getFalseValueMutable().assign(copies.lookup(select.getFalseValue()));
    b.setInsertionPointToEnd(both);
    scf::YieldOp::create(b, loc, select.getResult());
    if (condition->hasOneUse())
      condition->moveBefore(select);

    Block *one = branch.elseBlock();
    for (Operation *op : ofUsual)
      op->moveBefore(one, one->end());
    b.setInsertionPointToEnd(one);
    scf::YieldOp::create(b, loc, usual->getResult(0));
  }

private:
  /// The vector of rows that a tile repeats; null if it repeats none.
  static Value getRepeated(Value tile) {
    if (auto transpose = tile.getDefiningOp<vector::TransposeOp>())
      tile = transpose.getVector();
    auto broadcast = tile.getDefiningOp<vector::BroadcastOp>();
    auto source = broadcast ? dyn_cast<VectorType>(broadcast.getSourceType()) : VectorType();
    return source && source.getRank() == 1 ? broadcast.getSource() : Value();
  }

  Operation *getExponential(Value tile) {
    auto exponential = tile.getDefiningOp<math::Exp2Op>();
    bool isHere = exponential && exponential->getBlock() == select->getBlock();
    return isHere && exponential->hasOneUse() ? exponential : nullptr;
  }

  /// What nothing else than `root` needs: arithmetic, and reads of memory that stays as it is. With
  /// `tilesOnly` without vectors, which may be prepared outside.
  SmallVector<Operation *> collect(Operation *root, bool tilesOnly) {
    SmallVector<Operation *> found = {root};
    llvm::SmallPtrSet<Operation *, 16> all = {root};
    for (size_t n = 0; n < found.size(); ++n)
      for (Value operand : found[n]->getOperands()) {
        Operation *op = operand.getDefiningOp();
        if (op && op->getBlock() == root->getBlock() && canMove(op, tilesOnly) &&
            llvm::all_of(op->getUsers(), [&](Operation *user) { return all.contains(user); }) &&
            all.insert(op).second)
          found.push_back(op);
      }
    llvm::sort(found, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
    return found;
  }

  bool canMove(Operation *op, bool tilesOnly) {
    auto type = op->getNumResults() == 1 ? dyn_cast<VectorType>(op->getResult(0).getType())
                                         : VectorType();
    if (!type || (tilesOnly && type.getRank() < 2))
      return false;
    if (auto read = dyn_cast<vector::TransferReadOp>(op)) {
      auto memory = dyn_cast<MemrefValue>(read.getBase());
      return memory && type.getRank() == 1 && !hopper::isWrittenIn(program, memory);
    }
    return OpTrait::hasElementwiseMappableTraits(op) ||
           isa<vector::BroadcastOp, vector::TransposeOp>(op);
  }

  arith::SelectOp select;
  scf::ForallOp program;
  OpBuilder b;
};

struct BranchByRowsPass : attn::impl::HopperBranchByRowsBase<BranchByRowsPass> {
  void runOnOperation() override {
    for (auto program : getOperation().getOps<scf::ForallOp>()) {
      SmallVector<arith::SelectOp> selects;
      program.walk([&](arith::SelectOp select) { selects.push_back(select); });
      for (arith::SelectOp select : selects)
        Choice(select, program).run();
    }
  }
};

} // namespace
