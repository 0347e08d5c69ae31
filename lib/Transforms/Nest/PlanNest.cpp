// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-plan-nest: the order of a nest's loops, by what its dependence graph allows.

#include "Nest.h"
#include "attn/Transforms/Nest/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/RenamedOptions.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/FormatVariadic.h"

namespace attn {
#define GEN_PASS_DEF_ATTNPLANNEST
#include "attn/Transforms/Nest/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using linalg::GenericOp;

static Done numPlanned("attn-plan-nest", "planned", "Nests that got a plan");
static Left numKept("attn-plan-nest", "kept", "Nests that came with a plan");

/// The loop of the graph that a dimension of the nest is.
std::optional<unsigned> Nest::findGraphLoop(unsigned dim,
                                            const StructuredDependences &dependences) {
  if (dim == streamDim)
    return dependences.findLoop(folds.front(), 0);
  auto ofStatement = [&](GenericOp op) -> std::optional<unsigned> {
    for (unsigned loop = 0; loop < op.getNumLoops(); ++loop)
      if (classes->ofLoop(op, loop) == dim)
        return dependences.findLoop(op, loop);
    return std::nullopt;
  };
  for (Operation *op : ops) {
    if (auto generic = dyn_cast<GenericOp>(op))
      if (std::optional<unsigned> loop = ofStatement(generic))
        return loop;
    if (auto fold = dyn_cast<FoldOp>(op))
      for (auto generic : fold.getBody().getOps<GenericOp>())
        if (std::optional<unsigned> loop = ofStatement(generic))
          return loop;
  }
  return std::nullopt;
}

/// How the loops run in an order; whether they may is asked afterwards.
PlanAttr Nest::makePlan(LoopOrder order, int64_t parts, int64_t programs,
                        const StructuredDependences &dependences) {
  SmallVector<LoopPlanAttr> loops;
  for (auto &[dim, info] : emitter->dims) {
    LoopTreatment treatment = LoopTreatment::OwnerComputes;
    if (info.role == LoopRole::Worker)
      treatment = LoopTreatment::Parallel;
    if (info.role == LoopRole::Streamed && order == LoopOrder::SplitKV)
      treatment = LoopTreatment::PartialAndMerge;
    // Where rows are outside, sums over them are added to in memory, or forbid the order; a table
    // has one worker for all rows. Parts with such sums have their rows inside.
    if (info.role == LoopRole::Row && order == LoopOrder::MOuter) {
      bool addsToMemory = options.parallelSums && !(rowSums.empty() && tables.empty());
      bool hasOwner = rowSums.empty() && !tables.empty();
      treatment = addsToMemory ? LoopTreatment::Atomics
                  : hasOwner   ? LoopTreatment::OwnerComputes
                               : LoopTreatment::Parallel;
    }
    if (info.role == LoopRole::Row && order == LoopOrder::SplitKV && rowSums.empty())
      treatment = LoopTreatment::Parallel;
    std::optional<unsigned> loop = findGraphLoop(dim, dependences);
    std::string name = loop ? dependences.graph.getLoops()[*loop].name : std::string();
    loops.push_back(LoopPlanAttr::get(b.getContext(), name, info.role, treatment));
  }
  bool isSplit = order == LoopOrder::SplitKV;
  return PlanAttr::get(b.getContext(), order, isSplit ? parts : 1,
                       isSplit && parts == 0 ? programs : 0, loops);
}

/// What the tile programs of an order need beside legality.
std::string Nest::findFormViolation(PlanAttr plan) {
  FoldOp fold = folds.front();
  LoopOrder order = plan.getOrder();
  if (sumsMatrices)
    return order == LoopOrder::MOuter ? "" : "the nest adds up matrices, one after the other";
  if (order != LoopOrder::MOuter && (fold.getState().empty() || !rowDim))
    return "the nest carries no state per row";
  if (order == LoopOrder::SplitKV && !tables.empty())
    return "the fold sums at computed indices into a table that one worker owns";
  if (order == LoopOrder::SplitKV && fold.getMerge().empty())
    return "the fold has no merge region, because a start value that is not neutral would be "
           "counted once per part";
  if (plan.getOrder() == LoopOrder::MOuter && !rowSums.empty() &&
      plan.find(LoopRole::Row).getTreatment() == LoopTreatment::Atomics && !addsRowSums())
    return "a sum over the rows is not a result as it is";
  return "";
}

/// Whether a sum takes its terms in any order: nobody reads its running value.
static bool mayRegroup(const DependenceGraph &graph, unsigned statement) {
  for (const Component &component : graph.getComponents())
    if (llvm::is_contained(component.statements, statement))
      return llvm::all_of(component.carriers, [&](unsigned loop) {
        return llvm::any_of(graph.getTreatments(loop, component), [](const Treatment &known) {
          return known.name == getGraphName(LoopTreatment::Atomics) && known.legal;
        });
      });
  return false;
}

/// Whether a loop may run as planned. `isShared`: all statements that have it share it; else each
/// fold runs it by itself.
std::optional<PlanViolation> Nest::findLoopViolation(LoopPlanAttr plan, unsigned loop,
                                                     bool isShared, const DependenceGraph &graph) {
  std::string treatment = getGraphName(plan.getTreatment());
  std::string runs = "loop " + plan.getName().str() + " (" +
                     stringifyLoopRole(plan.getRole()).str() + ") cannot be " + treatment + ": ";
  if (isShared)
    for (const Dependence &dependence : graph.getDependences())
      if (llvm::is_contained(dependence.separated, loop) &&
          !(dependence.source == dependence.sink && mayRegroup(graph, dependence.source)))
        return PlanViolation{
            runs + graph.describe(dependence) + " needs the whole loop of its source", &dependence};
  SmallVector<const Dependence *> carried = graph.getCarriedBy(loop);
  if (plan.getTreatment() == LoopTreatment::OwnerComputes || carried.empty())
    return std::nullopt;
  if (plan.getTreatment() == LoopTreatment::Parallel)
    return PlanViolation{runs + graph.describe(*carried.front()) + " is carried by it",
                         carried.front()};
  for (const Component &component : graph.getComponents()) {
    auto within = llvm::find_if(carried, [&](const Dependence *dependence) {
      return llvm::is_contained(component.statements, dependence->source) &&
             llvm::is_contained(component.statements, dependence->sink);
    });
    if (within == carried.end())
      continue;
    for (const Treatment &known : graph.getTreatments(loop, component))
      if (known.name == treatment && !known.legal)
        return PlanViolation{
            runs + graph.describe(**within) + " is carried by it, and " + known.reason, *within};
  }
  return std::nullopt;
}

std::optional<PlanViolation> Nest::findViolation(PlanAttr plan,
                                                 const StructuredDependences &dependences) {
  const DependenceGraph &graph = dependences.graph;
  bool isRows = plan.getOrder() == LoopOrder::MOuter;
  if (plan.getOrder() == LoopOrder::SplitKV && !tables.empty())
    return PlanViolation{findFormViolation(plan)};
  SmallVector<unsigned> loops, inside;
  for (auto [entry, loopPlan] : llvm::zip(emitter->dims, plan.getLoops())) {
    std::optional<unsigned> loop = findGraphLoop(entry.first, dependences);
    LoopRole role = loopPlan.getRole();
    if (role != LoopRole::Worker && role != LoopRole::Row && role != LoopRole::Streamed)
      continue;
    if (!loop)
      return PlanViolation{"loop " + loopPlan.getName().str() + " (" +
                           stringifyLoopRole(role).str() + ") is not in the dependence graph"};
    bool isStreamed = role == LoopRole::Streamed;
    if (auto violation = findLoopViolation(loopPlan, *loop, !isStreamed || !isRows, graph)) {
      if (role == LoopRole::Row && !rowSums.empty())
        violation->reason += "; fused with sums=apart, each sum has a nest of its own";
      return violation;
    }
    SmallVector<unsigned> &level = role == LoopRole::Worker ? loops : inside;
    bool isFirst = isStreamed == (plan.getOrder() == LoopOrder::NOuter);
    level.insert(role != LoopRole::Worker && isFirst ? level.begin() : level.end(), *loop);
  }
  llvm::append_range(loops, inside);
  if (std::optional<Violation> violation = graph.findOrderViolation(loops, /*mayReassociate=*/true))
    return PlanViolation{"the loops cannot be in the order " + graph.formatLoops(loops) + ": " +
                             graph.describe(*violation),
                         violation->dependence};
  std::string form = findFormViolation(plan);
  return form.empty() ? std::nullopt : std::optional(PlanViolation{form, nullptr});
}

/// Adds where the statements of a dependence stand.
static void attachStatements(Diagnostic &diagnostic, const Dependence *dependence,
                             const DependenceGraph &graph) {
  if (!dependence)
    return;
  SmallVector<unsigned, 2> ends = {dependence->source};
  if (dependence->sink != dependence->source)
    ends.push_back(dependence->sink);
  for (unsigned end : ends) {
    const Statement &statement = graph.getStatements()[end];
    diagnostic.attachNote(statement.op->getLoc())
        << DependenceGraph::nameOf(end) << ": " << statement.label;
  }
}

FailureOr<SmallVector<OrderCost>> Nest::estimate(const StructuredDependences &dependences,
                                                 const PlanOptions &options) {
  if (failed(findOutputs()))
    return failure();
  SmallVector<OrderCost> costs = estimateOrders(measure(options));
  for (OrderCost &cost : costs) {
    cost.plan = makePlan(cost.order, options.parts, options.threads, dependences);
    if (auto violation = findViolation(cost.plan, dependences)) {
      cost.illegal = violation->reason;
      cost.dependence = violation->dependence;
    }
  }
  return costs;
}

FailureOr<PlanAttr> Nest::choose(ArrayRef<OrderCost> costs, const PlanOptions &options,
                                 const DependenceGraph &graph) {
  // A short sum that another nest left; the order asked for is of that one.
  LoopOrder order = sumsMatrices    ? LoopOrder::MOuter
                    : options.order ? *options.order
                                    : chooseOrder(costs);
  for (const OrderCost &cost : costs) {
    if (cost.order != order)
      continue;
    if (cost.illegal.empty())
      return cost.plan;
    InFlightDiagnostic error = folds.front().emitError("cannot take loop order ")
                               << stringifyLoopOrder(order) << ": " << cost.illegal;
    attachStatements(*error.getUnderlyingDiagnostic(), cost.dependence, graph);
    return error;
  }
  llvm_unreachable("each order has a cost");
}

namespace {
struct PlanNestPass : attn::WithRenamedOptions<attn::impl::AttnPlanNestBase<PlanNestPass>> {
  using WithRenamedOptions::WithRenamedOptions;

  /// What the plan is, and what else was possible.
  void say(FoldOp fold, PlanAttr plan, ArrayRef<OrderCost> costs, bool isRequested) {
    InFlightDiagnostic remark = emitRemark(fold.getLoc())
                                << "loop order " << stringifyLoopOrder(plan.getOrder())
                                << (isRequested ? " (requested)" : " (cheapest)");
    Diagnostic &loops = remark.attachNote();
    loops << "plan: ";
    for (auto [number, loop] : llvm::enumerate(plan.getLoops()))
      loops << (number ? ", " : "") << loop.getName() << " " << stringifyLoopRole(loop.getRole())
            << " " << getGraphName(loop.getTreatment());
    for (const OrderCost &cost : costs) {
      Diagnostic &note = remark.attachNote();
      note << stringifyLoopOrder(cost.order) << ": ";
      if (!cost.illegal.empty())
        note << "illegal, " << cost.illegal;
      else
        note << llvm::formatv("{0:f1} MB moved, {1} tiles in parallel, {2:f3} ms estimated",
                              cost.bytes / 1e6, int64_t(cost.parallelism), cost.seconds * 1e3)
                    .str();
    }
  }

  LogicalResult plan(FoldOp fold, const PlanOptions &plans, const TileOptions &sizes,
                     DenseSet<Operation *> &taken) {
    Nest nest(fold, sizes, taken);
    taken.insert(nest.getOps().begin(), nest.getOps().end());
    if (failed(nest.findRoles()))
      return failure();
    StructuredDependences dependences = buildStructuredDependences(
        *fold->getBlock(), [&](Operation *op) { return llvm::is_contained(nest.getOps(), op); });
    if (PlanAttr given = fold.getPlanAttr()) {
      if (failed(nest.checkPlan(given)))
        return failure();
      PlanAttr own =
          nest.makePlan(given.getOrder(), given.getParts(), given.getPrograms(), dependences);
      for (auto [asked, has] : llvm::zip(given.getLoops(), own.getLoops()))
        if (asked.getTreatment() != has.getTreatment())
          return fold.emitError("expected loop ")
                 << asked.getName() << " to be planned as " << getGraphName(has.getTreatment())
                 << ", which programs of order " << stringifyLoopOrder(given.getOrder())
                 << " have, got " << getGraphName(asked.getTreatment());
      std::optional<PlanViolation> violation = nest.findViolation(given, dependences);
      if (!violation) {
        numKept.at(fold) << remark::reason("it has a plan");
        return success();
      }
      InFlightDiagnostic error = fold.emitError("the plan is not legal: ") << violation->reason;
      attachStatements(*error.getUnderlyingDiagnostic(), violation->dependence, dependences.graph);
      return error;
    }
    FailureOr<SmallVector<OrderCost>> costs = nest.estimate(dependences, plans);
    if (failed(costs))
      return failure();
    FailureOr<PlanAttr> chosen = nest.choose(*costs, plans, dependences.graph);
    if (failed(chosen))
      return failure();
    fold.setPlanAttr(*chosen);
    numPlanned.at(fold) << remark::metric("Order", stringifyLoopOrder(chosen->getOrder()));
    if (explain)
      say(fold, *chosen, *costs, plans.order.has_value());
    return success();
  }

  void runOnOperation() override {
    PlanOptions plans{std::nullopt, parts, threads, assumedSize};
    plans.order = symbolizeLoopOrder(order);
    if (!plans.order && order != "auto") {
      getOperation().emitError("expected order to be auto, m_outer, n_outer or split_kv, got ")
          << StringRef(order);
      return signalPassFailure();
    }
    if (blockM < 1 || blockMMultiple < 1 || blockN < 1 || threads < 1 || assumedSize < 1) {
      getOperation().emitError("expected tiles, threads and the assumed size to be at least 1");
      return signalPassFailure();
    }
    if (parts < 0) {
      getOperation().emitError("expected parts, or 0 for a number that sizes give, got ")
          << int64_t(parts);
      return signalPassFailure();
    }
    TileOptions sizes{blockM, blockMMultiple, blockN, rowsFirst, parallelSums};
    for (Block &block : getOperation().getBody()) {
      DenseSet<Operation *> taken;
      for (FoldOp fold : llvm::to_vector(block.getOps<FoldOp>())) {
        if (taken.contains(fold))
          continue;
        TileOptions own = sizes.ofFold(fold);
        if (failed(plan(fold, plans, own, taken)))
          return signalPassFailure();
      }
    }
  }
};
} // namespace
