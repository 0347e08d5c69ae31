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

/// In microseconds, of a GPU: an iteration of a thread that reads memory, a meeting of a cluster,
/// one of the grid, a further launch.
constexpr double kIteration = 0.05, kClusterMeeting = 0.8, kGridMeeting = 1.2, kLaunch = 5.0;
/// CTAs of a cluster, threads of a CTA, and CTAs that share a multiprocessor where they need not
/// all run at a time.
constexpr double kCluster = 8, kThreads = 128, kShared = 8;

struct Estimate {
  LoopTreatment treatment;
  double cost;
};

/// Plans the loops of one function.
class LoopPlanner {
public:
  LoopPlanner(FunctionOpInterface function, std::optional<LoopTreatment> asked,
              ArrayRef<std::string> names, int64_t ctas, int64_t cluster, int64_t assumed,
              bool explains)
      : graph(buildAffineDependences(function)), asked(asked), names(names), ctas(double(ctas)),
        hasClusters(cluster > 1), assumed(double(assumed)), explains(explains) {}

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

  /// Whether iterations stay in their order.
  static bool keepsOrder(LoopTreatment treatment) {
    return treatment == LoopTreatment::OwnerComputes ||
           treatment == LoopTreatment::OrderedTurnstile;
  }

  /// An error where the graph does not allow the treatment.
  LogicalResult check(unsigned loop, LoopTreatment treatment) const {
    affine::AffineForOp op = opOf(loop);
    const std::string &name = graph.getLoops()[loop].name;
    if (treatment == LoopTreatment::ClusterReduction && !hasClusters)
      return op.emitError() << "loop " << name << " cannot run by " << getGraphName(treatment)
                            << ": the GPU has no clusters";
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
    if (const Dependence *other = graph.findOutsideOfComponents(loop);
        other && !keepsOrder(treatment))
      return op.emitError() << "loop " << name << " cannot run by " << getGraphName(treatment)
                            << ": " << graph.describe(*other) << " is carried by " << name
                            << ", and is no part of a running value";
    auto refusal = findRefusal(loop, treatment);
    if (!refusal)
      return success();
    const Component &component = *refusal->first;
    first = nullptr;
    for (const Dependence *dependence : graph.getCarriedBy(loop))
      if (llvm::is_contained(component.statements, dependence->sink) &&
          (!first || dependence->kind == DependenceKind::RAW))
        first = dependence;
    InFlightDiagnostic error =
        op.emitError() << "loop " << name << " cannot run by " << getGraphName(treatment) << ": "
                       << graph.formatSet(component.statements) << ": " << refusal->second;
    error.attachNote(graph.getStatements()[first->sink].op->getLoc())
        << graph.describe(*first) << " is carried by " << name;
    return error;
  }

  /// Whether it is divided without further ado: directly in outer parallel loops, with running
  /// values that parts of can be kept.
  bool isDirect(unsigned loop) const {
    affine::AffineForOp op = opOf(loop);
    if (op.getNumIterOperands() != 0)
      return false;
    for (Operation *inner = op, *outer = op->getParentOp(); !isa<FunctionOpInterface>(outer);
         inner = outer, outer = outer->getParentOp()) {
      auto number = graph.findLoop(outer);
      bool isOutermost = inner == op || inner->getBlock()->getOperations().size() == 2;
      if (!number || !graph.isParallel(*number) || !isOutermost)
        return false;
    }
    return llvm::all_of(graph.getComponents(), [&](const Component &component) {
      return !llvm::is_contained(component.carriers, loop) ||
             llvm::all_of(component.statements, [&](unsigned number) {
               const Statement &statement = graph.getStatements()[number];
               auto isPlain = [](Type type) { return type.isF32() || type.isInteger(32); };
               return isa<affine::AffineStoreOp>(statement.op)
                          ? isa<affine::AffineForOp>(statement.op->getParentOp())
                          : statement.op->getNumResults() == 1 &&
                                isPlain(statement.op->getResult(0).getType());
             });
    });
  }

  static bool hasKnownBounds(affine::AffineForOp op) {
    return !op.getBody()
                ->walk([](affine::AffineForOp inner) {
                  return affine::getConstantTripCount(inner) ? WalkResult::advance()
                                                             : WalkResult::interrupt();
                })
                .wasInterrupted();
  }

  bool hasParallel(affine::AffineForOp op) const {
    return op.getBody()
        ->walk([&](affine::AffineForOp inner) {
          return graph.isParallel(*graph.findLoop(inner)) ? WalkResult::interrupt()
                                                          : WalkResult::advance();
        })
        .wasInterrupted();
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
    // Threads of a CTA share an iteration where a parallel loop is inside, else have one each.
    double threads = hasParallel(opOf(loop)) ? 1 : kThreads;
    double parts = std::max(1.0, std::floor(ctas / rows));
    auto inTurns = [](double workers, double atOnce) { return std::ceil(workers / atOnce); };
    auto divided = [&](double number, double atOnce, double meetings) {
      return inTurns(rows * number, atOnce) *
             (std::ceil(count / (number * threads)) * kIteration + meetings);
    };
    double owners = inTurns(rows, ctas * kShared * threads);
    SmallVector<Estimate> all = {{LoopTreatment::OwnerComputes, owners * count * kIteration}};
    if (!isDirect(loop) || graph.findOutsideOfComponents(loop))
      return all;
    bool isKnown = hasKnownBounds(opOf(loop));
    auto add = [&](LoopTreatment treatment, double cost) {
      if (!findRefusal(loop, treatment) &&
          (isKnown || treatment != LoopTreatment::ClusterReduction))
        all.push_back({treatment, cost});
    };
    if (hasClusters)
      add(LoopTreatment::ClusterReduction, divided(kCluster, ctas * kShared, 2 * kClusterMeeting));
    add(LoopTreatment::GridPhases, divided(parts, ctas, 2 * kGridMeeting) + kLaunch);
    add(LoopTreatment::PartialAndMerge, divided(parts, ctas * kShared, 0) + kLaunch);
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
  double ctas;
  bool hasClusters;
  double assumed;
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
      LoopPlanner planner(function, asked, loops, ctas, cluster, assumedCount, explain);
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
