// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Joins adjacent affine loops with the same bounds. Upstream's fusion makes
// slices of the producer and may compute things twice; this one only puts two
// bodies behind each other, which is what the direction vectors speak of.

#include "attn/Analysis/AffineDependences.h"
#include "attn/Transforms/Loops/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_ATTNFUSELOOPS
#include "attn/Transforms/Loops/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numFused("attn-fuse-loops", "fused", "Loops that became part of the one before");
static attn::Left numLeft("attn-fuse-loops", "not fused", "Pairs of loops that stay apart");

namespace {
struct FuseLoopsPass : attn::impl::AttnFuseLoopsBase<FuseLoopsPass> {
  using AttnFuseLoopsBase::AttnFuseLoopsBase;
  void runOnOperation() override;

private:
  bool wrong = false;
  LogicalResult tryFuse(affine::AffineForOp first, affine::AffineForOp second, Operation *scope);
  void fuseIn(Block &block, Operation *scope);
};
} // namespace

static bool haveSameBounds(affine::AffineForOp a, affine::AffineForOp b) {
  return a.getLowerBoundMap() == b.getLowerBoundMap() &&
         a.getUpperBoundMap() == b.getUpperBoundMap() && a.getStep() == b.getStep() &&
         llvm::equal(a.getLowerBoundOperands(), b.getLowerBoundOperands()) &&
         llvm::equal(a.getUpperBoundOperands(), b.getUpperBoundOperands()) &&
         a.getNumIterOperands() == 0 && b.getNumIterOperands() == 0;
}

/// The next loop behind `loop`, with nothing but constants and index
/// arithmetic in between.
static affine::AffineForOp getNeighbour(affine::AffineForOp loop) {
  for (Operation *op = loop->getNextNode(); op; op = op->getNextNode()) {
    if (auto next = dyn_cast<affine::AffineForOp>(op))
      return next;
    if (!isPure(op) || op->getNumRegions() != 0)
      return {};
  }
  return {};
}

LogicalResult FuseLoopsPass::tryFuse(affine::AffineForOp first, affine::AffineForOp second,
                                     Operation *scope) {
  DependenceGraph graph = buildAffineDependences(scope);
  std::vector<Dependence> cross = getFusionDependences(graph, first, second);
  if (const Dependence *violation = findFusionViolation(cross)) {
    std::string name = graph.getLoops()[*graph.findLoop(first)].name;
    std::string reason = "cannot fuse the loops " + name + " and " +
                         graph.getLoops()[*graph.findLoop(second)].name + ": " +
                         graph.describe(*violation);
    if (!required) {
      numLeft.at(second) << remark::reason("{0}", reason);
      return failure();
    }
    wrong = true;
    InFlightDiagnostic diagnostic = second.emitError(reason);
    diagnostic.attachNote(graph.getStatements()[violation->source].op->getLoc())
        << "source of the dependence";
    diagnostic.attachNote(graph.getStatements()[violation->sink].op->getLoc())
        << "sink of the dependence";
    return failure();
  }
  // Constants between the two move out of the way.
  for (Operation *op = first->getNextNode(); op != second;) {
    Operation *next = op->getNextNode();
    op->moveBefore(first);
    op = next;
  }
  second.getInductionVar().replaceAllUsesWith(first.getInductionVar());
  Block *body = first.getBody();
  body->getOperations().splice(body->getTerminator()->getIterator(),
                               second.getBody()->getOperations(), second.getBody()->begin(),
                               std::prev(second.getBody()->end()));
  numFused.at(second);
  second.erase();
  return success();
}

void FuseLoopsPass::fuseIn(Block &block, Operation *scope) {
  SmallVector<affine::AffineForOp> loops(block.getOps<affine::AffineForOp>());
  for (unsigned index = 0; index < loops.size(); ++index) {
    affine::AffineForOp loop = loops[index];
    while (affine::AffineForOp next = getNeighbour(loop)) {
      if (!haveSameBounds(loop, next) || failed(tryFuse(loop, next, scope)))
        break;
      loops.erase(loops.begin() + index + 1);
    }
    fuseIn(*loop.getBody(), scope);
  }
}

void FuseLoopsPass::runOnOperation() {
  wrong = false;
  getOperation()->walk<WalkOrder::PreOrder>([&](FunctionOpInterface function) {
    for (Region &region : function->getRegions())
      for (Block &block : region)
        fuseIn(block, function);
  });
  if (wrong)
    signalPassFailure();
}
