// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes two loops a perfect nest: sinking of pure reads and computations, loop
// distribution for the rest (Allen and Kennedy, section 5.3).

#include "PerfectNest.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace attn;
using namespace attn::detail;

namespace {
/// The body of the outer loop, split at the inner one.
struct Split {
  llvm::SetVector<Operation *> before, middle, behind;
};
} // namespace

/// Ops that may run again or elsewhere: they read and compute.
static bool isRepeatable(Operation *op) {
  return op->getNumRegions() == 0 &&
         (isMemoryEffectFree(op) || isa<affine::AffineReadOpInterface>(op));
}

/// Adds the ops of `body` that `op` uses, directly or not, to `group`; an op
/// before its users. The first one that may not be repeated comes back.
static Operation *addUsed(Operation *op, Block *body, llvm::SetVector<Operation *> &group) {
  Operation *wrong = nullptr;
  SmallVector<Operation *> used;
  op->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands()) {
      Operation *def = operand.getDefiningOp();
      if (def && def->getBlock() == body && def != op && !group.contains(def))
        used.push_back(def);
    }
  });
  for (Operation *def : used) {
    if (group.contains(def))
      continue;
    if (!isRepeatable(def))
      return def;
    if ((wrong = addUsed(def, body, group)))
      return wrong;
    group.insert(def);
  }
  return wrong;
}

static SmallVector<unsigned> getStatements(const DependenceGraph &graph,
                                           ArrayRef<Operation *> ops) {
  SmallVector<unsigned> result;
  for (Operation *op : ops)
    op->walk([&](Operation *inner) {
      auto statement = graph.findStatement(inner);
      if (statement && !llvm::is_contained(result, *statement))
        result.push_back(*statement);
    });
  return result;
}

/// Divides the body. Reads and computations go to the groups that use them.
static LogicalResult divide(affine::AffineForOp outer, affine::AffineForOp inner, StringRef goal,
                            Split &split) {
  Block *body = outer.getBody();
  bool behind = false;
  for (Operation &op : body->without_terminator()) {
    llvm::SetVector<Operation *> *group = behind ? &split.behind : &split.before;
    if (&op == inner) {
      group = &split.middle;
      behind = true;
    } else if (isRepeatable(&op)) {
      continue;
    }
    if (Operation *wrong = addUsed(&op, body, *group))
      return op.emitError(goal) << ": it uses a value of '" << wrong->getName()
                                << "', which cannot run in a loop of its own";
    group->insert(&op);
  }
  return success();
}

/// Moves the ops of `group` into a copy of `outer` that stands where `outer`
/// does, or behind it.
static void splitOff(affine::AffineForOp outer, const llvm::SetVector<Operation *> &group,
                     bool behind) {
  if (group.empty())
    return;
  OpBuilder builder(outer);
  if (behind)
    builder.setInsertionPointAfter(outer);
  auto copy = cast<affine::AffineForOp>(builder.cloneWithoutRegions(*outer.getOperation()));
  Block *body = builder.createBlock(&copy.getRegion(), {}, builder.getIndexType(), outer.getLoc());
  affine::AffineYieldOp::create(builder, outer.getLoc());
  IRMapping mapping;
  mapping.map(outer.getInductionVar(), copy.getInductionVar());
  builder.setInsertionPoint(body->getTerminator());
  for (Operation &op : outer.getBody()->without_terminator())
    if (group.contains(&op))
      builder.clone(op, mapping);
}

LogicalResult attn::detail::makePerfect(const DependenceGraph &graph, affine::AffineForOp outer,
                                        affine::AffineForOp inner, StringRef goal) {
  Split split;
  if (failed(divide(outer, inner, goal, split)))
    return failure();
  auto loop = graph.findLoop(outer);
  if (!loop)
    return outer.emitError(goal) << ": the loop is not in the graph";

  // What moves into the inner loop must find there what it found before it.
  split.middle.remove(inner);
  SmallVector<Operation *> sunk(split.middle.begin(), split.middle.end());
  for (unsigned statement : getStatements(graph, sunk))
    if (auto violation = graph.findSinkViolation(statement, *loop))
      return graph.getStatements()[statement].op->emitError(goal)
             << ": " << DependenceGraph::nameOf(statement) << " cannot move into the inner loop, "
             << graph.describe(*violation->dependence);

  SmallVector<Operation *> before(split.before.begin(), split.before.end()),
      behind(split.behind.begin(), split.behind.end()), middle(sunk);
  middle.push_back(inner);
  SmallVector<SmallVector<unsigned>> groups = {
      getStatements(graph, before), getStatements(graph, middle), getStatements(graph, behind)};
  if (!before.empty() || !behind.empty()) {
    // A read that runs behind its place must not see a write in between.
    for (unsigned index : {1u, 2u})
      for (unsigned statement : groups[index])
        if (!graph.getStatements()[statement].writes &&
            !graph.isInLoop(statement, *graph.findLoop(inner)))
          if (auto violation = graph.findSinkViolation(statement, *loop);
              violation && graph.getStatements()[statement].op->isBeforeInBlock(inner))
            return graph.getStatements()[statement].op->emitError(goal)
                   << ": " << DependenceGraph::nameOf(statement) << " cannot run in a later loop, "
                   << graph.describe(*violation->dependence);
    if (auto violation = graph.findDistributionViolation(*loop, groups))
      return graph.getStatements()[violation->dependence->source].op->emitError(goal)
             << ": loop " << graph.getLoops()[*loop].name << " cannot be split, "
             << graph.describe(*violation->dependence);
  }

  splitOff(outer, split.before, /*behind=*/false);
  splitOff(outer, split.behind, /*behind=*/true);
  Operation *front = &inner.getBody()->front();
  for (Operation &op : llvm::make_early_inc_range(outer.getBody()->without_terminator())) {
    if (split.middle.contains(&op))
      op.moveBefore(front);
  }
  // Users first: what is left has moved to the copies or is not used.
  SmallVector<Operation *> rest;
  for (Operation &op : outer.getBody()->without_terminator())
    if (&op != inner)
      rest.push_back(&op);
  for (Operation *op : llvm::reverse(rest))
    op->erase();
  return success();
}
