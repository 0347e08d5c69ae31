// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Chooses how each loop of an affine nest runs: what the dependence graph allows, and of that what
// is estimated to be the fastest, or what is asked for.

#include "attn/Analysis/AffineDependences.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Transforms/Loops/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/Analysis/LoopAnalysis.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/FormatVariadic.h"

namespace attn {
#define GEN_PASS_DEF_ATTNPLANLOOPS
#include "attn/Transforms/Loops/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numPlanned("attn-plan-loops", "planned", "Loops that got a treatment");

namespace {

/// In microseconds, of a GPU: an iteration of a worker that reads memory, a meeting of a cluster,
/// one of the grid, a launch.
constexpr double kIteration = 0.2, kClusterMeeting = 1.0, kGridMeeting = 2.5, kLaunch = 3.0;
/// CTAs of a cluster.
constexpr double kCluster = 8;

struct Estimate {
  LoopTreatment treatment;
  double cost;
};

/// Plans the loops of one function.
class LoopPlanner {
public:
  LoopPlanner(FunctionOpInterface function, std::optional<LoopTreatment> asked,
              ArrayRef<std::string> names, int64_t ctas, int64_t assumed, bool explains)
      : graph(buildAffineDependences(function)), asked(asked), names(names), ctas(double(ctas)),
        assumed(double(assumed)), explains(explains) {}

  LogicalResult run() {
    bool wrong = false;
    for (unsigned loop = 0; loop < graph.getLoops().size(); ++loop)
      wrong |= failed(plan(loop));
    return failure(wrong);
  }

  bool hasFound(StringRef name) const { return graph.findLoop(name).has_value(); }

private:
  affine::AffineForOp opOf(unsigned loop) const {
    return cast<affine::AffineForOp>(graph.getLoops()[loop].op);
  }

  LogicalResult plan(unsigned loop) {
    affine::AffineForOp op = opOf(loop);
    if (auto given = op->getAttrOfType<StringAttr>(kTreatmentAttr))
      return check(loop, *symbolizeLoopTreatment(given.getValue()));
    bool isNamed = llvm::is_contained(names, graph.getLoops()[loop].name);
    if (graph.isParallel(loop) && !(isNamed && asked && *asked != LoopTreatment::Parallel))
      return set(loop, LoopTreatment::Parallel);
    if (isWithinTreated(op) && !isNamed)
      return set(loop, LoopTreatment::OwnerComputes);
    bool isAsked = asked && (names.empty() || isNamed);
    if (!isAsked)
      return set(loop, choose(loop));
    if (failed(check(loop, *asked)))
      return failure();
    return set(loop, *asked);
  }

  LogicalResult set(unsigned loop, LoopTreatment treatment) {
    affine::AffineForOp op = opOf(loop);
    op->setAttr(kTreatmentAttr,
                StringAttr::get(op.getContext(), stringifyLoopTreatment(treatment)));
    numPlanned.at(op) << remark::metric("Treatment", stringifyLoopTreatment(treatment));
    return success();
  }

  /// Whether a loop around it is divided already, by a treatment of what it carries.
  static bool isWithinTreated(affine::AffineForOp op) {
    for (Operation *outer = op->getParentOp(); outer; outer = outer->getParentOp())
      if (auto given = outer->getAttrOfType<StringAttr>(kTreatmentAttr))
        if (given.getValue() != stringifyLoopTreatment(LoopTreatment::Parallel) &&
            given.getValue() != stringifyLoopTreatment(LoopTreatment::OwnerComputes))
          return true;
    return false;
  }

  /// Why `treatment` is not legal for what the loop carries, and for which component.
  std::optional<std::pair<const Component *, std::string>>
  findRefusal(unsigned loop, LoopTreatment treatment) const {
    for (const Component &component : graph.getComponents()) {
      if (!llvm::is_contained(component.carriers, loop))
        continue;
      for (const Treatment &known : graph.getTreatments(loop, component))
        if (known.name == getGraphName(treatment) && !known.legal)
          return std::make_pair(&component, known.reason);
    }
    return std::nullopt;
  }

  /// An error where the graph does not allow the treatment.
  LogicalResult check(unsigned loop, LoopTreatment treatment) const {
    affine::AffineForOp op = opOf(loop);
    const std::string &name = graph.getLoops()[loop].name;
    const Dependence *first = nullptr;
    for (const Dependence *dependence : graph.getCarriedBy(loop))
      if (!first || (dependence->kind == DependenceKind::RAW && first->kind != DependenceKind::RAW))
        first = dependence;
    if (treatment == LoopTreatment::Parallel) {
      if (!first)
        return success();
      return op.emitError() << "loop " << name << " cannot be parallel: " << graph.describe(*first)
                            << " is carried by " << name;
    }
    if (treatment == LoopTreatment::OwnerComputes)
      return success();
    if (!first)
      return op.emitError() << "loop " << name << " carries nothing: it is parallel, and needs no "
                            << getGraphName(treatment);
    auto refusal = findRefusal(loop, treatment);
    if (!refusal)
      return success();
    const Component &component = *refusal->first;
    for (const Dependence *dependence : graph.getCarriedBy(loop))
      if (dependence->kind == DependenceKind::RAW &&
          llvm::is_contained(component.statements, dependence->sink))
        first = dependence;
    InFlightDiagnostic error =
        op.emitError() << "loop " << name << " cannot run by " << getGraphName(treatment) << ": "
                       << graph.formatSet(component.statements) << ": " << refusal->second;
    error.attachNote(graph.getStatements()[first->sink].op->getLoc())
        << graph.describe(*first) << " is carried by " << name;
    return error;
  }

  /// Iterations of a loop, as far as is known.
  double countOf(unsigned loop) const {
    std::optional<uint64_t> count = affine::getConstantTripCount(opOf(loop));
    return count ? std::max(1.0, double(*count)) : assumed;
  }

  /// The estimates of what is legal, with the first one for one worker.
  SmallVector<Estimate> estimate(unsigned loop) const {
    double rows = 1, count = countOf(loop);
    for (Operation *outer = opOf(loop)->getParentOp(); outer; outer = outer->getParentOp())
      if (auto number = graph.findLoop(outer))
        rows *= graph.isParallel(*number) ? countOf(*number) : 1;
    auto inTurns = [&](double workers) { return std::ceil(workers / ctas); };
    double parts = std::max(1.0, std::floor(ctas / rows));
    auto divided = [&](double number, double meetings) {
      return inTurns(rows * number) * (std::ceil(count / number) * kIteration + meetings);
    };
    SmallVector<Estimate> all = {{LoopTreatment::OwnerComputes, divided(1, 0)}};
    auto add = [&](LoopTreatment treatment, double cost) {
      if (!findRefusal(loop, treatment))
        all.push_back({treatment, cost});
    };
    add(LoopTreatment::ClusterReduction, divided(kCluster, 2 * kClusterMeeting));
    add(LoopTreatment::GridPhases, divided(parts, 2 * kGridMeeting));
    add(LoopTreatment::PartialAndMerge, divided(parts, 0) + 2 * kLaunch);
    return all;
  }

  LoopTreatment choose(unsigned loop) const {
    SmallVector<Estimate> all = estimate(loop);
    const Estimate *best = llvm::min_element(
        all, [](const Estimate &a, const Estimate &b) { return a.cost < b.cost; });
    if (explains) {
      InFlightDiagnostic remark = opOf(loop).emitRemark("loop ")
                                  << graph.getLoops()[loop].name << " runs by "
                                  << getGraphName(best->treatment);
      for (const Estimate &each : all)
        remark.attachNote() << llvm::formatv("{0}: {1:f1} us estimated",
                                             getGraphName(each.treatment), each.cost)
                                   .str();
    }
    return best->treatment;
  }

  DependenceGraph graph;
  std::optional<LoopTreatment> asked;
  ArrayRef<std::string> names;
  double ctas, assumed;
  bool explains;
};

struct PlanLoopsPass : attn::impl::AttnPlanLoopsBase<PlanLoopsPass> {
  using Base::Base;

  void runOnOperation() override {
    std::string name = treatment;
    llvm::replace(name, '-', '_');
    std::optional<LoopTreatment> asked = symbolizeLoopTreatment(name);
    if ((!asked && name != "auto") || ctas < 1 || assumedCount < 1) {
      getOperation()->emitError("expected a treatment of attn-print-dependences or auto, and ctas "
                                "and assumed-count of at least 1; got treatment ")
          << treatment.getValue();
      return signalPassFailure();
    }
    llvm::SmallDenseSet<StringRef> missing;
    for (const std::string &loop : loops)
      missing.insert(loop);
    bool wrong = false;
    getOperation()->walk<WalkOrder::PreOrder>([&](FunctionOpInterface function) {
      LoopPlanner planner(function, asked, loops, ctas, assumedCount, explain);
      for (const std::string &loop : loops)
        if (planner.hasFound(loop))
          missing.erase(loop);
      wrong |= failed(planner.run());
    });
    if (!missing.empty()) {
      getOperation()->emitError("expected loops to plan, got none named ") << llvm::join(
          llvm::make_filter_range(loops, [&](StringRef loop) { return missing.contains(loop); }),
          ", ");
      wrong = true;
    }
    if (wrong)
      signalPassFailure();
  }
};
} // namespace
