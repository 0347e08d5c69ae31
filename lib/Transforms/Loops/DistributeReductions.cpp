// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Takes a loop over running reductions apart, one loop for each. Where a reduction reads the
// running value of another and corrects itself when that changes (online softmax), the rule about
// homogeneous reductions that makes one pass of many (Transforms/Nest/FuseReductions.cpp) is used
// backwards: every term may be taken with the final value, and the start value corrected once.

#include "HomogeneousUpdate.h"
#include "attn/Analysis/AffineDependences.h"
#include "attn/Dialect/Attn/IR/Facts.h"
#include "attn/Transforms/Loops/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/Analysis/LoopAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/IntegerSet.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_ATTNDISTRIBUTEREDUCTIONS
#include "attn/Transforms/Loops/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using namespace attn::detail;

static attn::Done numDistributed("attn-distribute-reductions", "distributed",
                                 "Loops that became one for each reduction");
static attn::Left numLeft("attn-distribute-reductions", "not distributed",
                          "Loops that read values of unfinished reductions");

namespace {
struct DistributeReductionsPass
    : attn::impl::AttnDistributeReductionsBase<DistributeReductionsPass> {
  using AttnDistributeReductionsBase::AttnDistributeReductionsBase;
  void runOnOperation() override;

private:
  LogicalResult distribute(affine::AffineForOp loop, Operation *scope, bool isNamed);
};

/// What becomes of a running value: a correction of its start value, a loop, or both.
struct Part {
  unsigned value;
  bool isScaled = false;
  bool hasLoop = true;
  bool isRebuilt = false;             ///< The loop adds terms; else it repeats the update.
  llvm::SetVector<Operation *> slice; ///< What the loop computes, without the update.
};

class Distribution {
public:
  Distribution(affine::AffineForOp loop, ArrayRef<RunningValue> values)
      : loop(loop), values(values), degrees(loop, values), builder(loop) {}

  /// Finds the parts, in an order in which each reads final values only.
  LogicalResult plan(Refusal &refusal);
  LogicalResult checkOrder(const DependenceGraph &graph, unsigned id, Refusal &refusal) const;
  unsigned getNumParts() const { return parts.size(); }
  void apply();

private:
  LogicalResult addPart(unsigned value, Refusal &refusal);
  bool addTermOperands(Value scalar, const RunningValue &value, SmallVectorImpl<Value> &operands);
  std::optional<unsigned> findLoaded(Operation *load) const;

  Value cloneInto(Value value, IRMapping &map);
  Value cloneLoad(const RunningValue &value, IRMapping &map);
  void enterIfLoopRuns();
  affine::AffineForOp cloneLoop(affine::AffineForOp inner, IRMapping &map);
  Value buildScaled(Value scalar, Value start, const RunningValue &value, IRMapping &map);
  Value buildTerm(Value scalar, const RunningValue &value, IRMapping &map);
  void buildCorrection(const Part &part);
  void buildBody(const Part &part, Block *from, IRMapping &map);
  void buildUpdate(const Part &part, IRMapping &map);
  void buildLoop(const Part &part);

  affine::AffineForOp loop;
  ArrayRef<RunningValue> values;
  ScalarDegrees degrees;
  SmallVector<Part> parts;
  DenseMap<unsigned, Value> starts; ///< Running values before the loop.
  OpBuilder builder;
};
} // namespace

//===----------------------------------------------------------------------===//
// Planning
//===----------------------------------------------------------------------===//

std::optional<unsigned> Distribution::findLoaded(Operation *load) const {
  for (auto [number, value] : llvm::enumerate(values))
    if (load == value.load)
      return number;
  return std::nullopt;
}

/// Adds what the terms of an update are computed from to `operands`; false if there are none.
bool Distribution::addTermOperands(Value scalar, const RunningValue &value,
                                   SmallVectorImpl<Value> &operands) {
  if (scalar == value.before)
    return false;
  Operation *op = scalar.getDefiningOp();
  OpOperand *spine = degrees.getSpineOperand(op, value);
  bool found = addTermOperands(spine->get(), value, operands);
  bool adds = isa<arith::AddFOp, arith::SubFOp, math::FmaOp>(op);
  if (!found && !adds)
    return false;
  // Of x * b + c without terms in x, only c.
  bool isFactorOfNothing = !found && isa<math::FmaOp>(op) && spine->getOperandNumber() != 2;
  for (OpOperand &operand : op->getOpOperands())
    if (&operand != spine && !(isFactorOfNothing && operand.getOperandNumber() != 2))
      operands.push_back(operand.get());
  return true;
}

LogicalResult Distribution::addPart(unsigned number, Refusal &refusal) {
  const RunningValue &value = values[number];
  Part part;
  part.value = number;
  affine::AffineStoreOp store = value.store;
  affine::AffineLoadOp load = value.load;
  SmallVector<Value> roots(store.getMapOperands());
  if (value.reads.empty()) {
    roots.push_back(value.after);
  } else {
    auto update = matchHomogeneousUpdate(number, values, degrees, loop, refusal);
    if (failed(update))
      return failure();
    part.isRebuilt = true;
    part.isScaled = update->isScaled;
    part.hasLoop = update->hasTerm;
    llvm::append_range(roots, load.getMapOperands());
    addTermOperands(value.after, value, roots);
  }
  SmallVector<unsigned> final;
  auto isFinal = [&](Value operand) {
    for (unsigned read : value.reads)
      if (operand == values[read].before || operand == values[read].after) {
        final.push_back(read);
        return true;
      }
    return false;
  };
  addSlice(roots, loop, isFinal, part.slice);
  SmallVector<Value> loads;
  for (unsigned read : final) {
    affine::AffineLoadOp load = values[read].load;
    part.slice.insert(load);
    llvm::append_range(loads, load.getMapOperands());
  }
  addSlice(loads, loop, isFinal, part.slice);
  parts.push_back(std::move(part));
  return success();
}

LogicalResult Distribution::plan(Refusal &refusal) {
  DenseSet<unsigned> done;
  while (done.size() < values.size()) {
    unsigned before = done.size();
    for (auto [number, value] : llvm::enumerate(values)) {
      auto isDone = [&](unsigned read) { return done.contains(read); };
      if (done.contains(number) || !llvm::all_of(value.reads, isDone))
        continue;
      if (failed(addPart(number, refusal)))
        return failure();
      done.insert(number);
    }
    if (done.size() == before)
      return refusal.set(loop, "its running values read each other");
  }
  return success();
}

/// The order of the parts as a distribution of the loop, with the values that cross kept for each
/// iteration: that the final ones do as well is what matchHomogeneousUpdate says.
LogicalResult Distribution::checkOrder(const DependenceGraph &graph, unsigned id,
                                       Refusal &refusal) const {
  SmallVector<SmallVector<unsigned>> groups;
  for (const Part &part : parts) {
    const RunningValue &value = values[part.value];
    llvm::SetVector<Operation *> ops;
    for (Operation *op : part.slice)
      if (auto loaded = findLoaded(op); !loaded || *loaded == part.value)
        op->walk([&](Operation *inner) { ops.insert(inner); });
    affine::AffineStoreOp store = value.store;
    ops.insert(value.load);
    ops.insert(value.after.getDefiningOp());
    ops.insert(store);
    SmallVector<unsigned> group;
    for (Operation *op : ops)
      if (auto statement = graph.findStatement(op);
          statement && graph.isInLoop(*statement, id) && !llvm::is_contained(group, *statement))
        group.push_back(*statement);
    groups.push_back(std::move(group));
  }
  if (auto violation = graph.findDistributionViolation(id, groups))
    return refusal.set(graph.getStatements()[violation->dependence->sink].op,
                       graph.describe(*violation->dependence) + " would turn around");
  return success();
}

//===----------------------------------------------------------------------===//
// Rewriting
//===----------------------------------------------------------------------===//

/// `value` outside of the loop, with what it is computed from.
Value Distribution::cloneInto(Value value, IRMapping &map) {
  Operation *def = value.getDefiningOp();
  if (map.contains(value) || !def || !loop->isProperAncestor(def))
    return map.lookupOrDefault(value);
  for (Value operand : def->getOperands())
    cloneInto(operand, map);
  builder.clone(*def, map);
  return map.lookup(value);
}

Value Distribution::cloneLoad(const RunningValue &value, IRMapping &map) {
  affine::AffineLoadOp load = value.load;
  for (Value operand : load->getOperands())
    cloneInto(operand, map);
  return builder.clone(*load, map)->getResult(0);
}

/// A copy of `inner` without its body, in which the builder stands afterwards.
affine::AffineForOp Distribution::cloneLoop(affine::AffineForOp inner, IRMapping &map) {
  auto copy = cast<affine::AffineForOp>(builder.cloneWithoutRegions(*inner.getOperation(), map));
  Block *body = builder.createBlock(&copy.getRegion(), {}, builder.getIndexType(), inner.getLoc());
  affine::AffineYieldOp::create(builder, inner.getLoc());
  map.map(inner.getInductionVar(), copy.getInductionVar());
  builder.setInsertionPoint(body->getTerminator());
  return copy;
}

/// The update of `start` without its terms.
Value Distribution::buildScaled(Value scalar, Value start, const RunningValue &value,
                                IRMapping &map) {
  if (scalar == value.before)
    return start;
  Operation *op = scalar.getDefiningOp();
  OpOperand *spine = degrees.getSpineOperand(op, value);
  Value scaled = buildScaled(spine->get(), start, value, map);
  unsigned position = spine->getOperandNumber();
  bool isFactor = isa<math::FmaOp>(op) && position != 2;
  if (isFactor)
    return arith::MulFOp::create(builder, op->getLoc(), scaled,
                                 cloneInto(op->getOperand(1 - position), map));
  if (!isa<arith::MulFOp, arith::DivFOp>(op))
    return scaled;
  IRMapping local(map);
  local.map(spine->get(), scaled);
  Value other = op->getOperand(1 - position);
  local.map(other, cloneInto(other, map));
  return builder.clone(*op, local)->getResult(0);
}

/// What the update adds to the old value; null for nothing.
Value Distribution::buildTerm(Value scalar, const RunningValue &value, IRMapping &map) {
  if (scalar == value.before)
    return {};
  Operation *op = scalar.getDefiningOp();
  OpOperand *spine = degrees.getSpineOperand(op, value);
  Value term = buildTerm(spine->get(), value, map);
  unsigned position = spine->getOperandNumber();
  auto other = [&](unsigned operand) { return map.lookupOrDefault(op->getOperand(operand)); };
  if (!term) {
    if (isa<arith::AddFOp>(op))
      return other(1 - position);
    if (isa<arith::SubFOp>(op))
      return arith::NegFOp::create(builder, op->getLoc(), other(1));
    if (!isa<math::FmaOp>(op))
      return {};
    return position == 2 ? Value(arith::MulFOp::create(builder, op->getLoc(), other(0), other(1)))
                         : other(2);
  }
  IRMapping local(map);
  local.map(spine->get(), term);
  return builder.clone(*op, local)->getResult(0);
}

/// x = x * c(first r, final r), for every element of x.
void Distribution::buildCorrection(const Part &part) {
  const RunningValue &value = values[part.value];
  OpBuilder::InsertionGuard guard(builder);
  IRMapping map;
  for (unsigned read : value.reads) {
    map.map(values[read].after, cloneLoad(values[read], map));
    map.map(values[read].before, starts.lookup(read));
  }
  affine::AffineStoreOp store = value.store;
  SmallVector<affine::AffineForOp> around;
  for (Operation *op = store->getParentOp(); op != loop; op = op->getParentOp())
    around.push_back(cast<affine::AffineForOp>(op));
  for (affine::AffineForOp inner : llvm::reverse(around))
    cloneLoop(inner, map);
  Value start = cloneLoad(value, map);
  map.map(value.after, buildScaled(value.after, start, value, map));
  for (Value operand : store.getMapOperands())
    cloneInto(operand, map);
  builder.clone(*store, map);
}

void Distribution::buildUpdate(const Part &part, IRMapping &map) {
  const RunningValue &value = values[part.value];
  affine::AffineStoreOp store = value.store;
  if (part.isRebuilt) {
    affine::AffineLoadOp load = value.load;
    Value old = builder.clone(*load, map)->getResult(0);
    Value term = buildTerm(value.after, value, map);
    Operation *update = value.after.getDefiningOp();
    map.map(value.after, arith::AddFOp::create(builder, update->getLoc(), old, term).getResult());
  }
  builder.clone(*store, map);
}

/// The part of the block `from`, in or at the update's place, that `part` computes.
void Distribution::buildBody(const Part &part, Block *from, IRMapping &map) {
  const RunningValue &value = values[part.value];
  affine::AffineStoreOp store = value.store;
  for (Operation &op : from->without_terminator()) {
    if (&op == store) {
      buildUpdate(part, map);
    } else if (part.slice.contains(&op)) {
      Operation *copy = builder.clone(op, map);
      // Behind its own loop an element holds the final value.
      if (auto read = findLoaded(&op); read && *read != part.value)
        map.map(values[*read].after, copy->getResult(0));
    } else if (op.isProperAncestor(store)) {
      OpBuilder::InsertionGuard guard(builder);
      auto inner = cast<affine::AffineForOp>(op);
      cloneLoop(inner, map);
      buildBody(part, inner.getBody(), map);
    }
  }
}

void Distribution::buildLoop(const Part &part) {
  OpBuilder::InsertionGuard guard(builder);
  IRMapping map;
  affine::AffineForOp copy = cloneLoop(loop, map);
  // That partial states merge was said of all running values together.
  copy->removeAttr(kMergeAttr);
  buildBody(part, loop.getBody(), map);
}

/// Moves the builder to where only a loop that runs comes along: what corrects the start values
/// must not read or write what the loop would not have.
void Distribution::enterIfLoopRuns() {
  auto trips = affine::getConstantTripCount(loop);
  if (trips && *trips > 0)
    return;
  AffineMap lower = loop.getLowerBoundMap(), upper = loop.getUpperBoundMap();
  ValueRange lowers = loop.getLowerBoundOperands(), uppers = loop.getUpperBoundOperands();
  unsigned dims = lower.getNumDims(), symbols = lower.getNumSymbols();
  SmallVector<AffineExpr> constraints;
  for (AffineExpr from : lower.getResults())
    for (AffineExpr to : upper.getResults())
      constraints.push_back(
          to.shiftDims(upper.getNumDims(), dims).shiftSymbols(upper.getNumSymbols(), symbols) -
          from - 1);
  IntegerSet runs = IntegerSet::get(dims + upper.getNumDims(), symbols + upper.getNumSymbols(),
                                    constraints, SmallVector<bool>(constraints.size(), false));
  SmallVector<Value> operands(lowers.take_front(dims));
  llvm::append_range(operands, uppers.take_front(upper.getNumDims()));
  llvm::append_range(operands, lowers.drop_front(dims));
  llvm::append_range(operands, uppers.drop_front(upper.getNumDims()));
  affine::canonicalizeSetAndOperands(&runs, &operands);
  auto branch = affine::AffineIfOp::create(builder, loop.getLoc(), runs, operands,
                                           /*withElseRegion=*/false);
  builder.setInsertionPoint(branch.getThenBlock()->getTerminator());
}

void Distribution::apply() {
  enterIfLoopRuns();
  for (const Part &part : parts)
    if (part.isScaled)
      for (unsigned read : values[part.value].reads)
        if (!starts.contains(read)) {
          IRMapping map;
          starts[read] = cloneLoad(values[read], map);
        }
  for (const Part &part : parts) {
    if (part.isScaled)
      buildCorrection(part);
    if (part.hasLoop)
      buildLoop(part);
  }
  loop.erase();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

LogicalResult DistributeReductionsPass::distribute(affine::AffineForOp loop, Operation *scope,
                                                   bool isNamed) {
  DependenceGraph graph = buildAffineDependences(scope);
  auto id = graph.findLoop(loop);
  if (!id || !hasObservedComponent(graph, *id))
    return success();
  auto refuse = [&](const Refusal &refusal) -> LogicalResult {
    std::string reason = "cannot distribute loop " + graph.getLoops()[*id].name +
                         " over its reductions: " + refusal.reason;
    if (!isNamed) {
      numLeft.at(refusal.op) << remark::reason("{0}", reason);
      return success();
    }
    return refusal.op->emitError(reason);
  };
  Refusal refusal;
  auto values = findRunningValues(graph, loop, refusal);
  if (failed(values))
    return refuse(refusal);
  Distribution distribution(loop, *values);
  if (failed(distribution.plan(refusal)) || failed(distribution.checkOrder(graph, *id, refusal)))
    return refuse(refusal);
  numDistributed.at(loop) << remark::metric("Reductions", distribution.getNumParts());
  distribution.apply();
  return success();
}

void DistributeReductionsPass::runOnOperation() {
  bool found = false, wrong = false;
  getOperation()->walk<WalkOrder::PreOrder>([&](FunctionOpInterface function) {
    // Innermost loops first; names before anything changes.
    SmallVector<affine::AffineForOp> all;
    function->walk<WalkOrder::PostOrder>([&](affine::AffineForOp loop) { all.push_back(loop); });
    if (all.empty())
      return;
    SmallVector<std::pair<affine::AffineForOp, bool>> candidates;
    {
      DependenceGraph graph = buildAffineDependences(function);
      for (affine::AffineForOp loop : all) {
        auto id = graph.findLoop(loop);
        bool isNamed = id && llvm::is_contained(loops, graph.getLoops()[*id].name);
        if (id && (loops.empty() || isNamed))
          candidates.push_back({loop, isNamed});
        found |= isNamed;
      }
    }
    for (auto [loop, isNamed] : candidates)
      wrong |= failed(distribute(loop, function, isNamed));
  });
  if (!loops.empty() && !found) {
    getOperation()->emitError("expected loops to distribute, got none named ")
        << llvm::join(loops, ", ");
    wrong = true;
  }
  if (wrong)
    signalPassFailure();
}
