// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each warpgroup computes the tiles that its own rows need.

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERTRIMLOOPS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numTrimmed("hopper-trim-loops", "trimmed",
                             "Loops of which warpgroups leave out tiles");

namespace {

/// columns <= bound of the row (or <, where `isStrict`), element by element.
struct UpperBound {
  Value rows; // one bound per row
  bool isStrict;
};

class Trimmer {
public:
  Trimmer(scf::ForOp loop, Value warpgroup)
      : loop(loop), warpgroup(warpgroup), b(loop), loc(loop.getLoc()) {}

  bool analyze() {
    // The mask of such a loop leaves the state as it is where it keeps nothing.
    return loop->hasAttr(kPartialAttr) && loop->getNextNode() && findBranch() && findBound() &&
           hasOnlyChannels() && isComputable(bound.rows) &&
           programs::dependsOn(bound.rows, warpgroup);
  }

  void run() {
    Value one = index(1), last = extreme(bound.rows, /*isMaximum=*/true);
    Value first = extreme(bound.rows, /*isMaximum=*/false);
    Value end = bound.isStrict ? last : add(last, one);
    Value low = loop.getLowerBound(), high = loop.getUpperBound();
    Value trimmed = arith::MinSIOp::create(b, loc, high, end);
    loop.setUpperBound(trimmed);
    loop->setAttr(hopper::kTrimmedAttr, b.getUnitAttr());
    if (isWhole)
      widenFull(bound.isStrict ? arith::SubIOp::create(b, loc, first, one).getResult() : first);
    drain(low, trimmed, high);
  }

private:
  Value index(int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }

  /// The one branch around the mask: then x, else select(mask, x, neutral).
  bool findBranch() {
    for (auto each : loop.getBody()->getOps<scf::IfOp>()) {
      if (!each->hasAttr(kTileKindAttr))
        continue;
      if (branch)
        return false;
      branch = each;
    }
    if (!branch || branch.getNumResults() == 0 || !branch.elseBlock())
      return false;
    for (auto [kept, masked] :
         llvm::zip_equal(branch.thenYield().getOperands(), branch.elseYield().getOperands())) {
      auto select = masked.getDefiningOp<arith::SelectOp>();
      if (!select || select.getTrueValue() != kept || (mask && mask != select.getCondition()))
        return false;
      mask = select.getCondition();
    }
    return true;
  }

  bool findBound() {
    SmallVector<Value> terms = {mask};
    bool found = false;
    isWhole = true;
    while (!terms.empty()) {
      Value term = terms.pop_back_val();
      if (auto both = term.getDefiningOp<arith::AndIOp>()) {
        llvm::append_values(terms, both.getLhs(), both.getRhs());
        continue;
      }
      std::optional<UpperBound> match = matchBound(term);
      isWhole &= match && !found;
      if (match && !found) {
        bound = *match;
        found = true;
      }
    }
    return found;
  }

  std::optional<UpperBound> matchBound(Value term) {
    auto compare = term.getDefiningOp<arith::CmpIOp>();
    if (!compare)
      return std::nullopt;
    Value columns = compare.getLhs(), rows = compare.getRhs();
    arith::CmpIPredicate predicate = compare.getPredicate();
    if (predicate == arith::CmpIPredicate::sge || predicate == arith::CmpIPredicate::sgt)
      std::swap(columns, rows);
    else if (predicate != arith::CmpIPredicate::sle && predicate != arith::CmpIPredicate::slt)
      return std::nullopt;
    bool isStrict =
        predicate == arith::CmpIPredicate::slt || predicate == arith::CmpIPredicate::sgt;
    auto transpose = rows.getDefiningOp<vector::TransposeOp>();
    auto repeated = transpose ? transpose.getVector().getDefiningOp<vector::BroadcastOp>()
                              : vector::BroadcastOp();
    if (!repeated || !isLoopColumn(columns))
      return std::nullopt;
    return UpperBound{repeated.getSource(), isStrict};
  }

  /// The columns of the tile that starts at the loop's variable.
  bool isLoopColumn(Value columns) {
    auto repeated = columns.getDefiningOp<vector::BroadcastOp>();
    auto sum = repeated ? repeated.getSource().getDefiningOp<arith::AddIOp>() : arith::AddIOp();
    if (!sum)
      return false;
    for (auto [x, y] : {std::pair(sum.getLhs(), sum.getRhs()), {sum.getRhs(), sum.getLhs()}})
      if (auto start = y.getDefiningOp<vector::BroadcastOp>();
          x.getDefiningOp<vector::StepOp>() && start && start.getSource() == loop.getInductionVar())
        return true;
    return false;
  }

  /// Iterations that are left out must do nothing but pass tiles on.
  bool hasOnlyChannels() {
    for (Operation &op : *loop.getBody()) {
      WalkResult walk = op.walk([&](Operation *nested) {
        bool isKnown = isa<hopper::ReleaseOp>(nested) || isMemoryEffectFree(nested) ||
                       nested->hasTrait<OpTrait::HasRecursiveMemoryEffects>() ||
                       hasSingleEffect<MemoryEffects::Read>(nested);
        if (auto receive = dyn_cast<hopper::ReceiveOp>(nested)) {
          received.push_back(receive);
          isKnown = nested->getParentOp() == loop;
        }
        return isKnown ? WalkResult::advance() : WalkResult::interrupt();
      });
      if (walk.wasInterrupted())
        return false;
    }
    return true;
  }

  /// Whether the extremes of a vector follow from scalars outside of the loop.
  bool isComputable(Value rows) {
    Operation *op = rows.getDefiningOp();
    if (isa_and_nonnull<vector::StepOp>(op) || matchPattern(rows, m_Constant()))
      return true;
    if (auto repeated = dyn_cast_or_null<vector::BroadcastOp>(op))
      return !isa<VectorType>(repeated.getSourceType()) &&
             loop.isDefinedOutsideOfLoop(repeated.getSource());
    return isa_and_nonnull<arith::AddIOp, arith::MinSIOp, arith::MaxSIOp>(op) &&
           isComputable(op->getOperand(0)) && isComputable(op->getOperand(1));
  }

  /// All of these grow with their operands.
  Value extreme(Value rows, bool isMaximum) {
    Operation *op = rows.getDefiningOp();
    DenseIntElementsAttr numbers;
    if (matchPattern(rows, m_Constant(&numbers))) {
      auto values = numbers.getValues<APInt>();
      auto less = [](const APInt &x, const APInt &y) { return x.slt(y); };
      APInt chosen =
          isMaximum ? *llvm::max_element(values, less) : *llvm::min_element(values, less);
      return index(chosen.getSExtValue());
    }
    if (isa<vector::StepOp>(op))
      return index(isMaximum ? cast<VectorType>(rows.getType()).getDimSize(0) - 1 : 0);
    if (auto repeated = dyn_cast<vector::BroadcastOp>(op))
      return repeated.getSource();
    Value x = extreme(op->getOperand(0), isMaximum), y = extreme(op->getOperand(1), isMaximum);
    if (isa<arith::MinSIOp>(op))
      return arith::MinSIOp::create(b, loc, x, y);
    if (isa<arith::MaxSIOp>(op))
      return arith::MaxSIOp::create(b, loc, x, y);
    return add(x, y);
  }

  /// Tiles that end at or before `last` are full for this warpgroup.
  void widenFull(Value last) {
    int64_t columns = cast<VectorType>(branch.getResult(0).getType()).getShape().back();
    b.setInsertionPoint(branch);
    Value end = add(loop.getInductionVar(), index(columns - 1));
    Value isFull = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, end, last);
    branch.getConditionMutable().assign(
        arith::OrIOp::create(b, loc, branch.getCondition(), isFull));
  }

  /// The tiles of the iterations that are left out are received and given back, at
  /// the end of the block: after what the loop has left to be received.
  void drain(Value low, Value trimmed, Value high) {
    b.setInsertionPoint(loop->getBlock()->getTerminator());
    Value zero = index(0), step = loop.getStep();
    Value length = arith::SubIOp::create(b, loc, trimmed, low);
    Value positive = arith::MaxSIOp::create(b, loc, length, zero);
    Value trips = arith::CeilDivUIOp::create(b, loc, positive, step);
    Value start = add(low, arith::MulIOp::create(b, loc, trips, step));
    auto rest = scf::ForOp::create(b, loc, start, high, step);
    rest->setAttr(hopper::kTrimmedAttr, b.getUnitAttr());
    b.setInsertionPointToStart(rest.getBody());
    for (hopper::ReceiveOp receive : received) {
      b.clone(*receive);
      hopper::ReleaseOp::create(b, loc, receive.getChannel());
    }
  }

  scf::ForOp loop;
  Value warpgroup;
  OpBuilder b;
  Location loc;
  scf::IfOp branch;
  Value mask;
  UpperBound bound;
  bool isWhole = false; // the mask is the bound and nothing else
  SmallVector<hopper::ReceiveOp> received;
};

struct TrimLoopsPass : attn::impl::HopperTrimLoopsBase<TrimLoopsPass> {
  void runOnOperation() override {
    getOperation().walk([](hopper::RolesOp roles) {
      for (auto [region, warpgroups] : llvm::zip_equal(roles.getBodies(), roles.getWarpgroups())) {
        SmallVector<scf::ForOp> loops;
        if (warpgroups > 1)
          region.walk([&](scf::ForOp loop) { loops.push_back(loop); });
        for (scf::ForOp loop : loops)
          if (Trimmer trimmer(loop, region.getArgument(0)); trimmer.analyze()) {
            numTrimmed.at(loop);
            trimmer.run();
          }
      }
    });
  }
};

} // namespace
