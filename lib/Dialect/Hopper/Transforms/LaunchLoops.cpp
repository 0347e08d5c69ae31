// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Affine nests on memory become launches of threads, as their loops are planned.

#include "LoopLaunch.h"
#include "ThreadLaunch.h"
#include "attn/Analysis/AffineDependences.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERLAUNCHLOOPS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using namespace attn::hopper;

static attn::Done numLaunched("hopper-launch-loops", "launched", "Nests that became launches");

static StringRef nameOf(Team team) {
  switch (team) {
  case Team::Thread:
    return "thread";
  case Team::Cta:
    return "CTA";
  case Team::Cluster:
    return "cluster";
  case Team::Grid:
    return "grid";
  case Team::Launches:
    return "launches";
  }
  llvm_unreachable("all teams are handled");
}

namespace {
struct LaunchLoopsPass : attn::impl::HopperLaunchLoopsBase<LaunchLoopsPass> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (function.isDeclaration())
      return;
    constexpr int64_t kMostThreads = 1024;
    if (threads < kLanes || threads > kMostThreads || threads % kLanes || parts < 0 || ctas < 1 ||
        (merge != "team" && merge != "last") ||
        (team != "auto" && team != "thread" && team != "cta")) {
      function.emitError("expected threads to be a multiple of 32, at most 1024, parts at least 0, "
                         "ctas at least 1, merge to be team or last, and team auto, thread or cta");
      return signalPassFailure();
    }
    DependenceGraph graph = buildAffineDependences(function);
    TeamOptions options{threads, parts, ctas, merge == "last", std::nullopt};
    if (team != "auto")
      options.ofUndivided = team == "cta" ? Team::Cta : Team::Thread;
    if (failed(check(function)))
      return signalPassFailure();
    bool isDivided = false, isUndivided = false;
    SmallVector<affine::AffineForOp> done;
    for (auto nest : llvm::make_early_inc_range(function.getOps<affine::AffineForOp>())) {
      FailureOr<TeamPlan> plan = planTeams(graph, nest, options);
      if (failed(plan))
        return signalPassFailure();
      isDivided |= !plan->divided.empty();
      isUndivided |= plan->divided.empty();
      LoopLaunch launch(graph, nest, *plan, options);
      if (failed(launch.emit()))
        return signalPassFailure();
      numLaunched.at(nest) << remark::metric("Team", nameOf(plan->team))
                           << remark::metric("Launches", launch.getNumLaunches());
      done.push_back(nest);
    }
    if (!isUndivided && team != "auto") {
      function.emitError("option 'team' is of rows whose loops are not divided among CTAs; this "
                         "function has none");
      return signalPassFailure();
    }
    if (!isDivided && (parts > 0 || merge == "last")) {
      function.emitError() << "option '" << (parts > 0 ? "parts" : "merge")
                           << "' is of loops that are divided among CTAs; this function has none";
      return signalPassFailure();
    }
    // The graph names its ops until all nests are emitted.
    for (affine::AffineForOp nest : llvm::reverse(done))
      nest->erase();
  }

private:
  /// What is between the nests stays on the host, which cannot reach the device's memory.
  static LogicalResult check(func::FuncOp function) {
    if (!llvm::hasSingleElement(function.getBody()))
      return function.emitError("expected a function of one block");
    for (Operation &op : function.front()) {
      if (isa<affine::AffineForOp>(op)) {
        if (op.getNumResults() > 0)
          return op.emitError("an outermost loop gives values to the host, which has no part in "
                              "the computation: expected results in memory");
        continue;
      }
      bool isOfHost = isMemoryEffectFree(&op) || isa<memref::AllocOp, memref::DeallocOp>(op);
      if (!isOfHost && !op.hasTrait<OpTrait::IsTerminator>())
        return op.emitError() << "'" << op.getName() << "' is in no loop: expected all accesses of "
                              << "memory in affine loops, which become launches";
    }
    WalkResult walk = function.walk([](Operation *op) {
      auto hasDoubles = [](Type type) { return getElementTypeOrSelf(type).isF64(); };
      if (!llvm::any_of(op->getResultTypes(), hasDoubles))
        return WalkResult::advance();
      op->emitError("expected numbers of 32 bits or less in loops for a GPU, got f64");
      return WalkResult::interrupt();
    });
    return failure(walk.wasInterrupted());
  }
};
} // namespace
