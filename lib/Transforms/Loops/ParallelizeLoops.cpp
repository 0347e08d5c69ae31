// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Turns loops that carry nothing into affine.parallel; for a loop that is asked
// for and carries something, tells the legal treatments instead.

#include "attn/Analysis/AffineDependences.h"
#include "attn/Dialect/Attn/IR/Facts.h"
#include "attn/Transforms/Loops/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_ATTNPARALLELIZELOOPS
#include "attn/Transforms/Loops/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numParallel("attn-parallelize-loops", "parallel", "Loops that became parallel");

namespace {
struct ParallelizeLoopsPass : attn::impl::AttnParallelizeLoopsBase<ParallelizeLoopsPass> {
  using AttnParallelizeLoopsBase::AttnParallelizeLoopsBase;
  void runOnOperation() override;
};
} // namespace

/// Says what `loop` carries, and what can be done about it.
static void refuse(const DependenceGraph &graph, unsigned loop) {
  const Loop &what = graph.getLoops()[loop];
  const Dependence *first = nullptr;
  for (const Dependence *dependence : graph.getCarriedBy(loop))
    if (!first || (dependence->kind == DependenceKind::RAW && first->kind != DependenceKind::RAW))
      first = dependence;
  InFlightDiagnostic diagnostic = what.op->emitError("cannot run loop ")
                                  << what.name << " in parallel: " << graph.describe(*first)
                                  << " is carried by " << what.name;
  for (const Component &component : graph.getComponents()) {
    if (!llvm::is_contained(component.carriers, loop))
      continue;
    std::string legal;
    for (const Treatment &treatment : graph.getTreatments(loop, component))
      if (treatment.legal)
        legal += (legal.empty() ? "" : ", ") + treatment.name.str();
    diagnostic.attachNote(graph.getStatements()[component.statements.front()].op->getLoc())
        << "legal treatments of " << graph.formatSet(component.statements) << ": " << legal;
  }
}

void ParallelizeLoopsPass::runOnOperation() {
  bool found = false, wrong = false;
  getOperation()->walk<WalkOrder::PreOrder>([&](FunctionOpInterface function) {
    DependenceGraph graph = buildAffineDependences(function);
    SmallVector<affine::AffineForOp> parallel;
    for (unsigned loop = 0; loop < graph.getLoops().size(); ++loop) {
      const Loop &what = graph.getLoops()[loop];
      bool named = llvm::is_contained(loops, what.name);
      if (!loops.empty() && !named)
        continue;
      found |= named;
      if (graph.isParallel(loop)) {
        parallel.push_back(cast<affine::AffineForOp>(what.op));
      } else if (named) {
        refuse(graph, loop);
        wrong = true;
      }
    }
    if (wrong)
      return;
    for (affine::AffineForOp loop : parallel) {
      affine::AffineParallelOp result;
      auto name = loop->getAttr(kLoopAttr);
      if (failed(affine::affineParallelize(loop, {}, &result))) {
        // Upstream has no parallel form for loops that carry values.
        loop.emitRemark("loop stays sequential, it has no parallel form");
        continue;
      }
      numParallel.at(result);
      if (name)
        result->setAttr(kLoopAttr, name);
    }
  });
  if (!loops.empty() && !found) {
    getOperation()->emitError("expected loops to make parallel, got none named ")
        << llvm::join(loops, ", ");
    wrong = true;
  }
  if (wrong)
    signalPassFailure();
}
