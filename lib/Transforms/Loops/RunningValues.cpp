// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "RunningValues.h"
#include "mlir/Dialect/Affine/Analysis/AffineAnalysis.h"
#include "mlir/Dialect/Affine/IR/AffineValueMap.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;
using namespace attn::detail;

void attn::detail::addSlice(ArrayRef<Value> roots, affine::AffineForOp loop,
                            llvm::function_ref<bool(Value)> isLeaf,
                            llvm::SetVector<Operation *> &slice) {
  SmallVector<Value> worklist(roots);
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    if (isLeaf(value))
      continue;
    Operation *def = value.getDefiningOp();
    if (!def || !loop->isProperAncestor(def) || !slice.insert(def))
      continue;
    def->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (!def->isAncestor(operand.getParentBlock()->getParentOp()) || inner == def)
          worklist.push_back(operand);
    });
  }
}

bool attn::detail::hasObservedComponent(const DependenceGraph &graph, unsigned loop) {
  for (const Component &component : graph.getComponents()) {
    if (!llvm::is_contained(component.carriers, loop))
      continue;
    auto in = [&](unsigned s) { return llvm::is_contained(component.statements, s); };
    for (const Dependence &dependence : graph.getDependences())
      if (dependence.kind == DependenceKind::RAW && in(dependence.source) && !in(dependence.sink) &&
          llvm::is_contained(dependence.loops, loop))
        return true;
  }
  return false;
}

namespace {
/// One search for the running values of a loop.
class Finder {
public:
  Finder(const DependenceGraph &graph, affine::AffineForOp loop, unsigned id, Refusal &refusal)
      : graph(graph), loop(loop), id(id), refusal(refusal) {}

  LogicalResult run();
  SmallVector<RunningValue> values;

private:
  LogicalResult addValue(const Component &component);
  LogicalResult checkPlace(RunningValue &value);
  LogicalResult checkElement(RunningValue &value);
  LogicalResult checkStatements();
  bool isWithin(const Dependence &dependence) const;
  LogicalResult checkReads();
  LogicalResult checkDependences();
  void addReads();

  std::string nameOf(Operation *op) const {
    auto statement = graph.findStatement(op);
    return statement ? DependenceGraph::nameOf(*statement)
                     : "'" + op->getName().getStringRef().str() + "'";
  }

  const DependenceGraph &graph;
  affine::AffineForOp loop;
  unsigned id;
  Refusal &refusal;
};
} // namespace

/// Whether `value` is the same in every iteration of `loop`: defined outside, or the variable of a
/// loop inside.
static bool isFixed(Value value, affine::AffineForOp loop) {
  if (auto inner = affine::getForInductionVarOwner(value))
    return inner != loop;
  return !loop->isAncestor(value.getParentBlock()->getParentOp());
}

LogicalResult Finder::checkPlace(RunningValue &value) {
  for (Operation *op = value.store->getParentOp(); op != loop; op = op->getParentOp()) {
    auto inner = dyn_cast<affine::AffineForOp>(op);
    if (!inner)
      return refusal.set(value.store, nameOf(value.store) + " is inside of '" +
                                          op->getName().getStringRef() +
                                          "', which need not run in every iteration");
    std::string name = graph.getLoops()[*graph.findLoop(inner)].name;
    if (inner.getNumIterOperands() != 0)
      return refusal.set(inner, "loop " + name + " carries values in iter_args");
    for (Value operand : inner->getOperands())
      if (!isFixed(operand, loop))
        return refusal.set(inner, "the bounds of loop " + name + " are computed inside of it");
  }
  return success();
}

LogicalResult Finder::checkElement(RunningValue &value) {
  affine::MemRefAccess from(value.load), to(value.store);
  Operation *after = value.after.getDefiningOp();
  if (!after || after->getBlock() != value.store->getBlock() ||
      value.load->getBlock() != value.store->getBlock() ||
      !value.load->isBeforeInBlock(value.store) || !(from == to))
    return refusal.set(value.store, nameOf(value.load) + " and " + nameOf(value.store) +
                                        " are not the read and the write of one element");
  affine::AffineValueMap access;
  to.getAccessMap(&access);
  auto isMoving = [&](Value operand) { return !isFixed(operand, loop); };
  if (llvm::any_of(access.getOperands(), isMoving) || isMoving(value.store.getMemRef()))
    return refusal.set(value.store, "the element that " + nameOf(value.store) +
                                        " writes is not the same in every iteration");
  return success();
}

LogicalResult Finder::addValue(const Component &component) {
  std::string set = graph.formatSet(component.statements);
  Operation *front = graph.getStatements()[component.statements.front()].op;
  for (unsigned carrier : component.carriers)
    if (loop->isProperAncestor(graph.getLoops()[carrier].op))
      return refusal.set(front, set + " is carried by " + graph.getLoops()[carrier].name +
                                    " as well, which is inside");
  RunningValue value;
  bool single = true;
  for (unsigned member : component.statements) {
    const Statement &statement = graph.getStatements()[member];
    if (statement.computes)
      continue;
    if (auto load = dyn_cast<affine::AffineLoadOp>(statement.op); load && !value.load)
      value.load = load;
    else if (auto store = dyn_cast<affine::AffineStoreOp>(statement.op); store && !value.store)
      value.store = store;
    else
      single = false;
  }
  if (!single || !value.load || !value.store)
    return refusal.set(front,
                       set + " has other accesses than one read and one write of one element");
  value.before = value.load.getResult();
  value.after = value.store.getValueToStore();
  if (failed(checkPlace(value)) || failed(checkElement(value)))
    return failure();
  for (const Dependence &dependence : graph.getDependences())
    if (dependence.throughMemory && dependence.source == *graph.findStatement(value.store))
      value.name = dependence.via;
  Operation *update = value.after.getDefiningOp();
  value.statement = nameOf(update);
  bool isMaximum = isa<arith::MaximumFOp, arith::MaxNumFOp>(update);
  if (isMaximum || isa<arith::MinimumFOp, arith::MinNumFOp>(update)) {
    Value lhs = update->getOperand(0), rhs = update->getOperand(1);
    value.isExtremum = (lhs == value.before) != (rhs == value.before);
    if (isMaximum && value.isExtremum)
      value.score = lhs == value.before ? rhs : lhs;
  }
  values.push_back(std::move(value));
  return success();
}

/// Nothing but running values is written, or may be.
LogicalResult Finder::checkStatements() {
  for (unsigned s = 0; s < graph.getStatements().size(); ++s) {
    const Statement &statement = graph.getStatements()[s];
    if (!graph.isInLoop(s, id) || !statement.writes)
      continue;
    bool carried = llvm::any_of(graph.getComponents(), [&](const Component &component) {
      return llvm::is_contained(component.carriers, id) &&
             llvm::is_contained(component.statements, s);
    });
    if (!carried)
      return refusal.set(statement.op, DependenceGraph::nameOf(s) + " (" + statement.label +
                                           ") writes in every iteration what is no running value");
  }
  return success();
}

/// Whether a memory dependence is between two iterations of the loop, or inside of one.
bool Finder::isWithin(const Dependence &dependence) const {
  if (!dependence.throughMemory || !llvm::is_contained(dependence.loops, id))
    return false;
  return !dependence.carrier ||
         llvm::find(dependence.loops, *dependence.carrier) >= llvm::find(dependence.loops, id);
}

/// What the loops to come compute again they read from memory that this one does not write.
LogicalResult Finder::checkReads() {
  for (const Dependence &dependence : graph.getDependences()) {
    if (dependence.kind != DependenceKind::RAW || !isWithin(dependence))
      continue;
    Operation *source = graph.getStatements()[dependence.source].op,
              *sink = graph.getStatements()[dependence.sink].op;
    if (!isa<affine::AffineStoreOp>(source) || !isa<affine::AffineLoadOp>(sink) ||
        !(affine::MemRefAccess(source) == affine::MemRefAccess(sink)))
      return refusal.set(sink, graph.describe(dependence) + " through " + dependence.via +
                                   ": the loop writes what it reads");
  }
  return success();
}

/// No running value meets another, or what is computed again.
LogicalResult Finder::checkDependences() {
  for (const Dependence &dependence : graph.getDependences()) {
    if (!isWithin(dependence))
      continue;
    Operation *source = graph.getStatements()[dependence.source].op,
              *sink = graph.getStatements()[dependence.sink].op;
    bool own = llvm::any_of(values, [&](RunningValue &value) {
      auto isPart = [&](Operation *op) { return op == value.load || op == value.store; };
      return isPart(source) && isPart(sink);
    });
    if (!own)
      return refusal.set(sink, graph.describe(dependence) + " through " + dependence.via +
                                   " is between two things that would run in different loops");
  }
  return success();
}

void Finder::addReads() {
  for (auto [number, value] : llvm::enumerate(values)) {
    auto isOther = [&, number = number](Value operand) {
      for (auto [other, candidate] : llvm::enumerate(values))
        if (other != number && (operand == candidate.before || operand == candidate.after)) {
          if (!llvm::is_contained(values[number].reads, other))
            values[number].reads.push_back(other);
          return true;
        }
      return false;
    };
    llvm::SetVector<Operation *> slice;
    addSlice(value.after, loop, isOther, slice);
    llvm::sort(value.reads);
  }
}

LogicalResult Finder::run() {
  if (loop.getNumIterOperands() != 0)
    return refusal.set(loop, "it carries values in iter_args");
  if (failed(checkStatements()) || failed(checkReads()))
    return failure();
  for (const Component &component : graph.getComponents())
    if (llvm::is_contained(component.carriers, id) && failed(addValue(component)))
      return failure();
  if (failed(checkDependences()))
    return failure();
  addReads();
  return success();
}

FailureOr<SmallVector<RunningValue>> attn::detail::findRunningValues(const DependenceGraph &graph,
                                                                     affine::AffineForOp loop,
                                                                     Refusal &refusal) {
  auto id = graph.findLoop(loop);
  if (!id)
    return refusal.set(loop, "it is not in the graph");
  Finder finder(graph, loop, *id, refusal);
  if (failed(finder.run()))
    return failure();
  return std::move(finder.values);
}
