// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "LoopTeams.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/Affine/Analysis/AffineAnalysis.h"
#include "mlir/Dialect/Affine/Analysis/LoopAnalysis.h"
#include "mlir/Dialect/Affine/IR/AffineValueMap.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace attn;
using namespace attn::hopper;

LoopTreatment hopper::getTreatment(affine::AffineForOp loop, const DependenceGraph &graph) {
  if (auto given = loop->getAttrOfType<StringAttr>(kTreatmentAttr))
    return *symbolizeLoopTreatment(given.getValue());
  return graph.isParallel(*graph.findLoop(loop)) ? LoopTreatment::Parallel
                                                 : LoopTreatment::OwnerComputes;
}

bool TeamPlan::isOfThreads(affine::AffineForOp loop, const DependenceGraph &graph) const {
  return getTreatment(loop, graph) == LoopTreatment::Parallel && loop.getNumIterOperands() == 0 &&
         llvm::none_of(divided,
                       [&](const DividedLoop &each) { return loop->isProperAncestor(each.op); });
}

bool hopper::isDefinedOutside(Value value, Operation *scope) {
  return !scope->isAncestor(value.getParentBlock()->getParentOp());
}

namespace {
class Planner {
public:
  Planner(const DependenceGraph &graph, affine::AffineForOp nest, const TeamOptions &options)
      : graph(graph), nest(nest), options(options) {}

  FailureOr<TeamPlan> run() {
    if (failed(checkLegal()))
      return failure();
    findBand();
    if (failed(findDivided()) || failed(chooseTeam()))
      return failure();
    return plan;
  }

private:
  LoopTreatment treatmentOf(affine::AffineForOp loop) const { return getTreatment(loop, graph); }
  std::string nameOf(affine::AffineForOp loop) const {
    return graph.getLoops()[*graph.findLoop(loop)].name;
  }

  /// What the graph does not allow is an error, whoever has planned it.
  LogicalResult checkLegal() const {
    WalkResult walk = nest->walk([&](affine::AffineForOp loop) {
      unsigned number = *graph.findLoop(loop);
      LoopTreatment treatment = treatmentOf(loop);
      for (const Component &component : graph.getComponents()) {
        if (!llvm::is_contained(component.carriers, number))
          continue;
        for (const Treatment &known : graph.getTreatments(number, component))
          if (known.name == getGraphName(treatment) && !known.legal) {
            loop.emitError() << "loop " << nameOf(loop) << " cannot run by " << known.name << ": "
                             << graph.formatSet(component.statements) << ": " << known.reason;
            return WalkResult::interrupt();
          }
      }
      const Dependence *other = graph.findOutsideOfComponents(number);
      if (other && isDivided(treatment) && treatment != LoopTreatment::OrderedTurnstile) {
        loop.emitError() << "loop " << nameOf(loop) << " cannot run by " << getGraphName(treatment)
                         << ": " << graph.describe(*other) << " is carried by " << nameOf(loop)
                         << ", and is no part of a running value";
        return WalkResult::interrupt();
      }
      if (treatment == LoopTreatment::Parallel && !graph.isParallel(number)) {
        loop.emitError() << "loop " << nameOf(loop) << " cannot be parallel: "
                         << graph.describe(*graph.getCarriedBy(number).front());
        return WalkResult::interrupt();
      }
      return WalkResult::advance();
    });
    return failure(walk.wasInterrupted());
  }

  bool isParallel(affine::AffineForOp loop) const {
    return treatmentOf(loop) == LoopTreatment::Parallel && loop.getNumIterOperands() == 0;
  }

  void findBand() {
    affine::AffineForOp loop = nest;
    while (loop && isParallel(loop)) {
      auto fixed = [&](Value operand) { return isDefinedOutside(operand, nest); };
      if (!llvm::all_of(loop->getOperands(), fixed))
        break;
      plan.band.push_back(loop);
      Block &body = *loop.getBody();
      loop = body.getOperations().size() == 2 ? dyn_cast<affine::AffineForOp>(body.front())
                                              : affine::AffineForOp();
    }
    if (plan.band.empty())
      plan.row.push_back(nest);
    else
      for (Operation &op : plan.band.back().getBody()->without_terminator())
        plan.row.push_back(&op);
  }

  static bool isDivided(LoopTreatment treatment) {
    return treatment != LoopTreatment::Parallel && treatment != LoopTreatment::OwnerComputes;
  }

  LogicalResult findDivided() {
    for (Operation *op : plan.row) {
      WalkResult walk = op->walk<WalkOrder::PreOrder>([&](affine::AffineForOp loop) {
        LoopTreatment treatment = treatmentOf(loop);
        if (!isDivided(treatment))
          return WalkResult::advance();
        DividedLoop divided{loop, treatment, {}};
        if (failed(addDivided(divided)))
          return WalkResult::interrupt();
        plan.divided.push_back(std::move(divided));
        return WalkResult::skip(); // loops inside are the owner's
      });
      if (walk.wasInterrupted())
        return failure();
    }
    return success();
  }

  LogicalResult addDivided(DividedLoop &divided) {
    affine::AffineForOp loop = divided.op;
    if (!plan.divided.empty() && plan.divided.front().treatment != divided.treatment) {
      InFlightDiagnostic error = loop.emitError()
                                 << "loops of one nest have one treatment: " << nameOf(loop)
                                 << " has " << getGraphName(divided.treatment);
      error.attachNote(plan.divided.front().op.getLoc())
          << nameOf(plan.divided.front().op) << " has "
          << getGraphName(plan.divided.front().treatment);
      return error;
    }
    if (loop.getNumIterOperands() != 0)
      return loop.emitError() << "loop " << nameOf(loop)
                              << " carries values in iter_args; expected "
                              << "running values in memory where it runs by "
                              << getGraphName(divided.treatment);
    if (divided.treatment == LoopTreatment::OrderedTurnstile)
      return success();
    unsigned number = *graph.findLoop(loop);
    for (const Component &component : graph.getComponents())
      if (llvm::is_contained(component.carriers, number))
        if (failed(addPartial(divided, component)))
          return failure();
    return success();
  }

  LogicalResult addPartial(DividedLoop &divided, const Component &component) {
    Partial partial;
    for (unsigned member : component.statements) {
      const Statement &statement = graph.getStatements()[member];
      if (auto load = dyn_cast<affine::AffineLoadOp>(statement.op))
        partial.load = load;
      else if (auto store = dyn_cast<affine::AffineStoreOp>(statement.op))
        partial.store = store, partial.statement = member;
      else
        partial.combiner = statement.op;
    }
    Operation *front = graph.getStatements()[component.statements.front()].op;
    auto refuse = [&](const Twine &reason) {
      return front->emitError() << graph.formatSet(component.statements)
                                << " cannot be computed in "
                                << "parts of loop " << nameOf(divided.op) << ": " << reason;
    };
    if (!partial.load || !partial.store || !partial.combiner)
      return refuse("expected an affine.load, an operation and an affine.store of one element");
    Type type = partial.getType();
    if (!type.isF32() && !type.isInteger(32))
      return refuse("expected running values of f32 or i32");
    if (!arith::getNeutralElement(partial.combiner))
      return refuse("its operation has no neutral element");
    if (partial.load->getBlock() != partial.store->getBlock() ||
        !(affine::MemRefAccess(partial.load) == affine::MemRefAccess(partial.store)))
      return refuse("it reads and writes different elements");
    return addDims(divided, partial, refuse);
  }

  /// The loops that the element depends on, whose number is the same in all iterations.
  LogicalResult addDims(DividedLoop &divided, Partial &partial,
                        function_ref<LogicalResult(const Twine &)> refuse) {
    affine::AffineValueMap access;
    affine::MemRefAccess(partial.store).getAccessMap(&access);
    partial.elements = 1;
    for (Operation *op = partial.store->getParentOp(); op != divided.op; op = op->getParentOp()) {
      auto loop = dyn_cast<affine::AffineForOp>(op);
      if (!loop)
        return refuse("it is updated under a condition");
      if (!llvm::is_contained(access.getOperands(), loop.getInductionVar()))
        continue;
      auto fixed = [&](Value operand) { return isDefinedOutside(operand, nest); };
      if (treatmentOf(loop) != LoopTreatment::Parallel || !llvm::all_of(loop->getOperands(), fixed))
        return refuse("loop " + nameOf(loop) +
                      " is not parallel, or its bounds vary: its elements are not known");
      partial.dims.insert(partial.dims.begin(), loop);
      std::optional<uint64_t> count = affine::getConstantTripCount(loop);
      if (count && partial.elements)
        *partial.elements *= int64_t(*count);
      else
        partial.elements = std::nullopt;
    }
    for (Value operand : access.getOperands()) {
      auto owner = affine::getForInductionVarOwner(operand);
      bool isDim = owner && llvm::is_contained(partial.dims, owner);
      if (!isDim && !isDefinedOutside(operand, divided.op))
        return refuse("its element is not the same in every iteration");
    }
    divided.partials.push_back(std::move(partial));
    return success();
  }

  LogicalResult chooseTeam() {
    if (plan.divided.empty()) {
      bool hasParallel = llvm::any_of(plan.row, [&](Operation *op) {
        return op
            ->walk([&](affine::AffineForOp loop) {
              return isParallel(loop) ? WalkResult::interrupt() : WalkResult::advance();
            })
            .wasInterrupted();
      });
      plan.team = hasParallel || plan.band.empty() ? Team::Cta : Team::Thread;
      if (options.ofUndivided)
        plan.team = *options.ofUndivided;
      return success();
    }
    LoopTreatment treatment = plan.divided.front().treatment;
    if (options.mergesLast && treatment != LoopTreatment::PartialAndMerge)
      return plan.divided.front().op.emitError()
             << "option 'merge=last' is of partial-and-merge, not of " << getGraphName(treatment);
    switch (treatment) {
    case LoopTreatment::ClusterReduction:
      plan.team = Team::Cluster;
      return checkCluster();
    case LoopTreatment::GridPhases:
    case LoopTreatment::OrderedTurnstile:
      plan.team = Team::Grid;
      if (options.parts > options.ctas)
        return plan.divided.front().op.emitError()
               << "deadlock: " << options.parts << " CTAs of a row would wait for each other, and "
               << options.ctas << " run at a time";
      return success();
    default:
      plan.team = Team::Launches;
      return success();
    }
  }

  LogicalResult checkCluster() {
    if (options.parts > kCtasPerCluster)
      return plan.divided.front().op.emitError()
             << "a cluster has at most " << kCtasPerCluster << " CTAs, got parts=" << options.parts;
    int64_t bytes = 0;
    for (const DividedLoop &divided : plan.divided)
      for (const Partial &partial : divided.partials) {
        if (!partial.elements)
          return partial.store->emitError("expected a number of elements that is known, for shared "
                                          "memory of a cluster");
        bytes += 4 * *partial.elements;
      }
    constexpr int64_t kSharedBytes = 40 << 10; // static, besides cells of warps
    if (bytes > kSharedBytes)
      return plan.divided.front().op.emitError()
             << "running values of " << bytes << " bytes, more than the " << kSharedBytes
             << " of shared memory that the CTAs of a cluster share them in";
    return success();
  }

  const DependenceGraph &graph;
  affine::AffineForOp nest;
  const TeamOptions &options;
  TeamPlan plan;
};
} // namespace

FailureOr<TeamPlan> hopper::planTeams(const DependenceGraph &graph, affine::AffineForOp nest,
                                      const TeamOptions &options) {
  return Planner(graph, nest, options).run();
}
