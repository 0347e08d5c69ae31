// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Locality hoisting: reads and computations leave the loops that they do not
// vary in, where no dependence of the graph says otherwise.

#include "attn/Analysis/AffineDependences.h"
#include "attn/Transforms/Loops/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/Analysis/LoopAnalysis.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_ATTNHOISTINVARIANTS
#include "attn/Transforms/Loops/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numHoisted("attn-hoist-invariants", "hoisted",
                             "Statements that moved out of a loop");

namespace {
struct HoistInvariantsPass : attn::impl::AttnHoistInvariantsBase<HoistInvariantsPass> {
  using AttnHoistInvariantsBase::AttnHoistInvariantsBase;
  void runOnOperation() override;

private:
  LogicalResult hoistRequested(FunctionOpInterface function, bool &found);
};
} // namespace

/// Why `statement` may not run before `loop` instead of in it; empty if it may.
/// `place` is the statement, or the loop in `loop` that it has left already;
/// `moved` are statements that leave the loop before it does.
static std::string getObstacle(const DependenceGraph &graph, unsigned statement, unsigned loop,
                               Operation *place, ArrayRef<unsigned> moved) {
  const Statement &what = graph.getStatements()[statement];
  const Loop &from = graph.getLoops()[loop];
  // The reason that would still hold if the statement were of another kind is
  // the one to tell: first the dependence.
  if (auto violation = graph.findHoistViolation(statement, loop, moved)) {
    const Dependence &dependence = *violation->dependence;
    std::string reason = graph.describe(dependence);
    if (dependence.carrier)
      reason += " is carried by " + graph.getLoops()[*dependence.carrier].name;
    return reason;
  }
  if (llvm::is_contained(what.indices, loop))
    return "it varies with " + from.name;
  if (what.writes)
    return "it writes memory";
  auto op = cast<affine::AffineForOp>(from.op);
  for (Operation *member : what.members)
    if (member->getNumRegions() != 0 ||
        (!what.computes && !isa<affine::AffineReadOpInterface>(member)))
      return "it is not a read or a computation";
  // A computation may run for nothing; a read may be of an element that is
  // not there.
  auto trips = affine::getConstantTripCount(op);
  bool mustRun = !what.computes || llvm::any_of(what.members, [](Operation *member) {
    return !isSpeculatable(member);
  });
  if (mustRun && (!trips || *trips == 0))
    return "loop " + from.name + " may run zero times";
  if (mustRun && place->getParentOp() != op)
    return "it may not run in every iteration of " + from.name;
  return "";
}

/// Moves `op` before `loop`, behind the index arithmetic that it uses.
static void moveBefore(Operation *op, affine::AffineForOp loop) {
  // What has moved is outside, so each op is visited once.
  if (!loop->isProperAncestor(op))
    return;
  for (Value operand : op->getOperands())
    if (Operation *def = operand.getDefiningOp())
      moveBefore(def, loop);
  op->moveBefore(loop);
}

static void moveBefore(const Statement &statement, affine::AffineForOp loop) {
  numHoisted.at(statement.op);
  for (Operation *member : statement.members)
    moveBefore(member, loop);
}

/// Moves everything that may move out of `loop`; true if something did.
static bool hoistFrom(affine::AffineForOp loop, Operation *scope) {
  DependenceGraph graph = buildAffineDependences(scope);
  auto id = graph.findLoop(loop);
  if (!id)
    return false;
  SmallVector<unsigned> moved;
  for (unsigned s = 0; s < graph.getStatements().size(); ++s) {
    const Statement &statement = graph.getStatements()[s];
    if (statement.op->getParentOp() != loop ||
        !getObstacle(graph, s, *id, statement.op, moved).empty())
      continue;
    moveBefore(statement, loop);
    moved.push_back(s);
  }
  return !moved.empty();
}

LogicalResult HoistInvariantsPass::hoistRequested(FunctionOpInterface function, bool &found) {
  DependenceGraph graph = buildAffineDependences(function);
  SmallVector<unsigned> moved;
  LogicalResult result = success();
  for (const std::string &name : statements) {
    auto statement = graph.findStatement(name);
    if (!statement)
      continue;
    const Statement &what = graph.getStatements()[*statement];
    // The loop of that name around the statement.
    auto *position =
        llvm::find_if(what.domain, [&](unsigned l) { return graph.getLoops()[l].name == loop; });
    if (position == what.domain.end())
      continue;
    found = true;
    // It leaves the loops in between as well, innermost first.
    std::string obstacle;
    Operation *place = what.op;
    for (const unsigned *l = what.domain.end(); l != position && obstacle.empty();) {
      obstacle = getObstacle(graph, *statement, *--l, place, moved);
      place = graph.getLoops()[*l].op;
    }
    if (!obstacle.empty()) {
      result = what.op->emitError("cannot hoist ")
               << name << " out of loop " << loop << ": " << obstacle;
      continue;
    }
    moved.push_back(*statement);
  }
  if (failed(result))
    return failure();
  for (unsigned statement : moved) {
    const Statement &what = graph.getStatements()[statement];
    auto *position =
        llvm::find_if(what.domain, [&](unsigned l) { return graph.getLoops()[l].name == loop; });
    moveBefore(what, cast<affine::AffineForOp>(graph.getLoops()[*position].op));
  }
  return success();
}

void HoistInvariantsPass::runOnOperation() {
  if (statements.empty() != loop.empty()) {
    getOperation()->emitError("expected statements and loop together, got only one of them");
    return signalPassFailure();
  }
  bool found = false, wrong = false;
  getOperation()->walk<WalkOrder::PreOrder>([&](FunctionOpInterface function) {
    if (!statements.empty()) {
      wrong |= failed(hoistRequested(function, found));
      return;
    }
    // Innermost loops first, so that what leaves one can leave the next.
    SmallVector<affine::AffineForOp> loops;
    function->walk<WalkOrder::PostOrder>([&](affine::AffineForOp op) { loops.push_back(op); });
    for (affine::AffineForOp op : loops)
      hoistFrom(op, function);
  });
  if (!statements.empty() && !found) {
    getOperation()->emitError("expected a loop ") << loop << " around the statements, got none";
    wrong = true;
  }
  if (wrong)
    signalPassFailure();
}
