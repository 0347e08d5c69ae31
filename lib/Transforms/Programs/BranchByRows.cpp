// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Of two exponents that rows choose between, one is computed only where some row takes it.

#include "attn/Transforms/Programs/Memory.h"
#include "attn/Transforms/Programs/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

namespace attn {
#define GEN_PASS_DEF_ATTNBRANCHBYROWS
#include "attn/Transforms/Programs/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numBranches("attn-branch-by-rows", "branched",
                              "Exponentials of which one is computed where no row chooses");

namespace {

/// A choice between two tiles of exponentials.
class Choice {
public:
  Choice(arith::SelectOp select, scf::ForallOp program)
      : select(select), program(program), b(select) {}

  void run() {
    chooses = getRepeated(select.getCondition());
    std::optional<Exponential> rare = match(select.getTrueValue());
    std::optional<Exponential> usual = match(select.getFalseValue());
    if (!chooses || !rare || !usual || rare->op == usual->op)
      return;
    Location loc = select.getLoc();
    numBranches.at(select);
    SmallVector<Operation *> ofRare = collect(*rare);
    Value some = vector::ReductionOp::create(b, loc, vector::CombiningKind::OR, chooses);
    some.getDefiningOp()->setAttr(kMayHoldAttr, b.getUnitAttr());
    auto branch = scf::IfOp::create(b, loc, TypeRange{usual->tile.getType(), usual->rows.getType()},
                                    some, /*withElseRegion=*/true);
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, loc, ValueRange{usual->tile, usual->rows});

    Block *both = branch.thenBlock();
    for (Operation *op : ofRare)
      op->moveBefore(both, both->end());
    b.setInsertionPointToEnd(both);
    Value tile = rare->tile;
    if (rare->factor != usual->factor)
      tile =
          arith::MulFOp::create(b, loc, tile, splat(tile.getType(), rare->factor / usual->factor));
    Value repeated = repeatAgain(select.getCondition());
    tile = arith::SelectOp::create(b, loc, repeated, tile, usual->tile);
    Value rows = arith::SelectOp::create(b, loc, chooses, rare->rows, usual->rows);
    scf::YieldOp::create(b, loc, ValueRange{tile, rows});

    b.setInsertionPoint(select);
    usual->sum.getAMutable().assign(branch.getResult(0));
    usual->repeated.getSourceMutable().assign(branch.getResult(1));
    SmallVector<Operation *> behind = {usual->repeated};
    if (usual->transposed)
      behind.push_back(usual->transposed);
    for (Operation *op : {usual->sum.getOperation(), usual->op.getOperation()})
      behind.push_back(op);
    for (Operation *op : behind)
      op->moveBefore(select);
    select.replaceAllUsesWith(usual->op.getResult());
    select.erase();
    for (Operation *op : {rare->op.getOperation(), rare->sum.getOperation()})
      op->erase();
    for (Operation *op : {rare->transposed.getOperation(), rare->repeated.getOperation()})
      if (op && op->use_empty())
        op->erase();
  }

private:
  /// The repeated rows that choose, once more: here.
  Value repeatAgain(Value tile) {
    Operation *op = tile.getDefiningOp();
    if (auto transpose = dyn_cast<vector::TransposeOp>(op)) {
      IRMapping mapping;
      mapping.map(transpose.getVector(), repeatAgain(transpose.getVector()));
      return b.clone(*op, mapping)->getResult(0);
    }
    return b.clone(*op)->getResult(0);
  }

  /// 2^(tile * factor + rows).
  struct Exponential {
    math::Exp2Op op;
    math::FmaOp sum;
    vector::BroadcastOp repeated;
    vector::TransposeOp transposed; // or null
    Value tile, rows;
    double factor;
  };

  std::optional<Exponential> match(Value value) {
    Exponential found{value.getDefiningOp<math::Exp2Op>(), {}, {}, {}, {}, {}, 1};
    auto isHere = [&](Operation *op) {
      return op && op->getBlock() == select->getBlock() && op->hasOneUse();
    };
    if (!isHere(found.op))
      return std::nullopt;
    found.sum = found.op.getOperand().getDefiningOp<math::FmaOp>();
    DenseElementsAttr factor;
    if (!isHere(found.sum) || !matchPattern(found.sum.getB(), m_Constant(&factor)) ||
        !factor.isSplat() || !factor.getElementType().isF32())
      return std::nullopt;
    found.factor = factor.getSplatValue<APFloat>().convertToDouble();
    Value repeated = found.sum.getC();
    if ((found.transposed = repeated.getDefiningOp<vector::TransposeOp>()))
      repeated = found.transposed.getVector();
    found.repeated = repeated.getDefiningOp<vector::BroadcastOp>();
    found.rows = getRepeated(found.sum.getC());
    found.tile = found.sum.getA();
    bool isAlone = isHere(found.repeated) && (!found.transposed || isHere(found.transposed));
    return found.rows && isAlone && found.factor != 0 ? std::optional(found) : std::nullopt;
  }

  /// What nothing else than an exponential needs: arithmetic, and reads of memory that stays as it
  /// is. In order, without the exponential itself and its sum.
  SmallVector<Operation *> collect(const Exponential &of) {
    SmallVector<Operation *> found;
    llvm::SmallPtrSet<Operation *, 16> all = {of.sum, of.repeated};
    if (of.transposed)
      all.insert(of.transposed);
    SmallVector<Value> needed = {of.tile, of.rows};
    for (size_t n = 0, last = 0; n < needed.size(); ++n) {
      Operation *op = needed[n].getDefiningOp();
      if (!op || op->getBlock() != select->getBlock() || all.contains(op) || !canMove(op))
        continue;
      if (!llvm::all_of(op->getUsers(), [&](Operation *user) { return all.contains(user); })) {
        // Until all its users are found, or nothing more is.
        if (last < found.size())
          needed.push_back(needed[n]);
        last = found.size();
        continue;
      }
      all.insert(op);
      found.push_back(op);
      llvm::append_range(needed, op->getOperands());
    }
    llvm::sort(found, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
    return found;
  }

  bool canMove(Operation *op) {
    auto type =
        op->getNumResults() == 1 ? dyn_cast<VectorType>(op->getResult(0).getType()) : VectorType();
    if (!type)
      return false;
    if (auto read = dyn_cast<vector::TransferReadOp>(op)) {
      auto memory = dyn_cast<MemrefValue>(read.getBase());
      return memory && type.getRank() == 1 && !programs::isWrittenIn(program, memory);
    }
    return OpTrait::hasElementwiseMappableTraits(op) ||
           isa<vector::BroadcastOp, vector::TransposeOp>(op);
  }

  Value splat(Type type, double number) {
    auto vector = cast<VectorType>(type);
    return arith::ConstantOp::create(
        b, select.getLoc(),
        DenseElementsAttr::get(vector, b.getFloatAttr(vector.getElementType(), number)));
  }

  arith::SelectOp select;
  scf::ForallOp program;
  OpBuilder b;
  /// Which rows take the rare one.
  Value chooses;
};

struct BranchByRowsPass : attn::impl::AttnBranchByRowsBase<BranchByRowsPass> {
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
