// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Software pipelining in two stages: everything up to the last product of an
// iteration, and that product, one iteration later.

#include "Loops.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERPIPELINEPRODUCTS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numPipelined("hopper-pipeline-products", "pipelined",
                               "Loops whose last product runs beside the next iteration");

namespace {

/// Calls `visit` with each value from outside of `op` that it uses.
void forEachUse(Operation *op, llvm::function_ref<void(Value)> visit) {
  for (Value operand : op->getOperands())
    visit(operand);
  for (Region &region : op->getRegions())
    visitUsedValuesDefinedAbove(region, [&](OpOperand *use) { visit(use->get()); });
}

class Pipeliner {
public:
  explicit Pipeliner(scf::ForOp loop)
      : loop(loop), body(loop.getBody()), yield(cast<scf::YieldOp>(body->getTerminator())) {}

  /// Whether the loop has two stages; finds them.
  bool analyze() {
    SmallVector<tile::MmaOp> products(body->getOps<tile::MmaOp>());
    if (products.size() < 2)
      return false;
    last = products.back();
    collectSecond();
    for (tile::MmaOp product : products)
      if (!second.contains(product))
        collectEarly(product);
    // The last product must follow from the first ones, and not the other way: else they
    // run side by side.
    SetVector<Operation *> slice;
    BackwardSliceOptions options;
    options.omitUsesFromAbove = false;
    options.filter = [&](Operation *op) { return op->getBlock() == body; };
    (void)getBackwardSlice(last.getOperation(), &slice, options);
    bool follows = llvm::any_of(slice, [](Operation *op) { return isa<tile::MmaOp>(op); });
    if (!follows || early.contains(last))
      return false;
    // A tile that both stages read would be given back too early.
    if (llvm::any_of(collectCrossing(),
                     [](Value value) { return isa<tile::SmemType>(value.getType()); }))
      return false;
    bool waits = false;
    for (Operation *op : early)
      forEachUse(op, [&](Value used) {
        auto argument = dyn_cast<BlockArgument>(used);
        if (argument && argument.getOwner() == body && argument.getArgNumber() > 0)
          waits |= isSecond(yield.getOperand(argument.getArgNumber() - 1));
      });
    return !waits;
  }

  void run() {
    OpBuilder b(loop);
    Location loc = loop.getLoc();
    auto low = getConstantIntValue(loop.getLowerBound());
    auto high = getConstantIntValue(loop.getUpperBound());
    if (low && high && *low < *high) {
      loop.replaceAllUsesWith(emit(b));
      loop.erase();
      return;
    }
    Value runs = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, loop.getLowerBound(),
                                       loop.getUpperBound());
    auto guard = scf::IfOp::create(b, loc, loop.getResultTypes(), runs, /*withElseRegion=*/true);
    // The builder ends blocks that yield nothing.
    for (Block *block : {guard.thenBlock(), guard.elseBlock()})
      if (block->mightHaveTerminator())
        block->getTerminator()->erase();
    b.setInsertionPointToEnd(guard.elseBlock());
    scf::YieldOp::create(b, loc, loop.getInitArgs());
    b.setInsertionPointToEnd(guard.thenBlock());
    scf::YieldOp::create(b, loc, emit(b));
    loop.replaceAllUsesWith(guard.getResults());
    loop.erase();
  }

private:
  bool isSecond(Value value) { return second.contains(value.getDefiningOp()); }
  bool isUsedBySecond(Value value) {
    return llvm::any_of(value.getUsers(), [&](Operation *user) {
      Operation *op = body->findAncestorOpInBlock(*user);
      return op && second.contains(op);
    });
  }

  /// The last product, what uses it, and the channels that only it reads.
  void collectSecond() {
    for (Operation &op : body->without_terminator()) {
      bool uses = &op == last;
      forEachUse(&op, [&](Value value) { uses |= isSecond(value); });
      if (uses)
        second.insert(&op);
    }
    for (Operation &op : llvm::reverse(*body)) {
      if (!isa<hopper::ReceiveOp, tile::RowsOp, tile::ColumnsOp>(op))
        continue;
      bool mine = llvm::all_of(op.getUsers(), [&](Operation *user) {
        return second.contains(body->findAncestorOpInBlock(*user));
      });
      if (mine && !op.use_empty())
        second.insert(&op);
      if (auto receive = dyn_cast<hopper::ReceiveOp>(op); receive && mine)
        for (auto release : body->getOps<hopper::ReleaseOp>())
          if (release.getChannel() == receive.getChannel())
            second.insert(release);
    }
  }

  void collectEarly(Operation *op) {
    if (op->getBlock() != body)
      op = body->findAncestorOpInBlock(*op);
    if (!op || second.contains(op) || !early.insert(op))
      return;
    forEachUse(op, [&](Value value) {
      if (Operation *definition = value.getDefiningOp(); definition && loop->isAncestor(definition))
        collectEarly(definition);
    });
  }

  /// Values of the first stage that the second one uses.
  SmallVector<Value> collectCrossing() {
    llvm::SetVector<Value> crossing;
    for (Operation &op : *body)
      if (second.contains(&op))
        forEachUse(&op, [&](Value value) {
          if (value.getParentBlock() == body && !isSecond(value))
            crossing.insert(value);
        });
    return crossing.takeVector();
  }

  void clone(OpBuilder &b, IRMapping &mapping, llvm::function_ref<bool(Operation *)> select) {
    for (Operation &op : body->without_terminator())
      if (select(&op))
        b.clone(op, mapping);
  }

  SmallVector<Value> emit(OpBuilder &b) {
    Location loc = loop.getLoc();
    SmallVector<Value> crossing = collectCrossing();
    auto isFirst = [&](Operation *op) { return !second.contains(op); };
    auto isLate = [&](Operation *op) { return isFirst(op) && !early.contains(op); };
    auto isInSecond = [&](Operation *op) { return second.contains(op); };

    IRMapping head;
    head.map(loop.getInductionVar(), loop.getLowerBound());
    head.map(loop.getRegionIterArgs(), loop.getInitArgs());
    clone(b, head, isFirst);
    SmallVector<Value> inits;
    for (Value value : yield.getOperands())
      if (!isSecond(value))
        inits.push_back(head.lookupOrDefault(value));
    for (Value value : crossing)
      inits.push_back(head.lookupOrDefault(value));

    Value start = arith::AddIOp::create(b, loc, loop.getLowerBound(), loop.getStep());
    auto steady = scf::ForOp::create(b, loc, start, loop.getUpperBound(), loop.getStep(), inits);
    steady->setAttrs(loop->getDiscardableAttrDictionary());
    if (steady.getBody()->mightHaveTerminator())
      steady.getBody()->getTerminator()->erase();
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToEnd(steady.getBody());
      IRMapping now, before;
      now.map(loop.getInductionVar(), steady.getInductionVar());
      mapState(steady.getRegionIterArgs(), crossing, now, before);
      clone(b, now, [&](Operation *op) { return early.contains(op); });
      clone(b, before, isInSecond);
      for (auto [argument, value] : llvm::zip_equal(loop.getRegionIterArgs(), yield.getOperands()))
        if (isSecond(value))
          now.map(argument, before.lookup(value));
      clone(b, now, isLate);
      SmallVector<Value> results;
      for (Value value : yield.getOperands())
        if (!isSecond(value))
          results.push_back(now.lookupOrDefault(value));
      for (Value value : crossing)
        results.push_back(now.lookupOrDefault(value));
      scf::YieldOp::create(b, loc, results);
    }
    IRMapping final, tail;
    mapState(steady.getResults(), crossing, final, tail);
    clone(b, tail, isInSecond);
    SmallVector<Value> results;
    for (auto [argument, value] : llvm::zip_equal(loop.getRegionIterArgs(), yield.getOperands()))
      results.push_back(isSecond(value) ? tail.lookup(value) : final.lookup(argument));
    return results;
  }

  /// The loop carries the state that the first stage yields, then what crosses.
  void mapState(ValueRange carried, ArrayRef<Value> crossing, IRMapping &state,
                IRMapping &crossed) {
    unsigned next = 0;
    for (auto [argument, value] : llvm::zip_equal(loop.getRegionIterArgs(), yield.getOperands()))
      if (!isSecond(value))
        state.map(argument, carried[next++]);
    for (Value value : crossing)
      crossed.map(value, carried[next++]);
  }

  scf::ForOp loop;
  Block *body;
  scf::YieldOp yield;
  tile::MmaOp last;
  llvm::SetVector<Operation *> second, early;
};

/// Whether several roles compute products: while one waits, the tensor core has the other one's.
bool takesTurns(hopper::RolesOp roles) {
  return llvm::count_if(roles.getBodies(), [](Region &role) {
           return role.walk([](tile::MmaOp) { return WalkResult::interrupt(); }).wasInterrupted();
         }) > 1;
}

struct PipelineProductsPass : attn::impl::HopperPipelineProductsBase<PipelineProductsPass> {
  void runOnOperation() override {
    for (scf::ForOp loop : hopper::getInnermostLoops(getOperation()))
      if (Pipeliner pipeliner(loop);
          !takesTurns(loop->getParentOfType<hopper::RolesOp>()) && pipeliner.analyze()) {
        numPipelined.at(loop);
        pipeliner.run();
      }
  }
};

} // namespace
