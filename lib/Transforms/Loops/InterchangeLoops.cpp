// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reorders affine loops: legality from the direction vectors of the dependence
// graph, then a perfect nest, then upstream's permutation.

#include "PerfectNest.h"
#include "attn/Analysis/AffineDependences.h"
#include "attn/Transforms/Loops/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Affine/LoopUtils.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringExtras.h"

namespace attn {
#define GEN_PASS_DEF_ATTNINTERCHANGELOOPS
#include "attn/Transforms/Loops/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numInterchanged("attn-interchange-loops", "interchanged",
                                  "Nests whose loops changed places");

namespace {
/// The loops to reorder: `chain` as they are nested, `order` as wanted.
struct Request {
  SmallVector<affine::AffineForOp> chain, order;
  SmallVector<std::string> names; ///< Of `chain`.
  std::string goal;               ///< "cannot interchange loops i and j"
};

struct InterchangeLoopsPass : attn::impl::AttnInterchangeLoopsBase<InterchangeLoopsPass> {
  using AttnInterchangeLoopsBase::AttnInterchangeLoopsBase;
  void runOnOperation() override;

private:
  std::optional<Request> find(const DependenceGraph &graph, affine::AffineForOp root);
  LogicalResult interchange(const DependenceGraph &graph, Request request);
};
} // namespace

/// Finds the named loops below `root`, one each, each inside the one before.
std::optional<Request> InterchangeLoopsPass::find(const DependenceGraph &graph,
                                                  affine::AffineForOp root) {
  Request request;
  SmallVector<affine::AffineForOp> named(order.size());
  WalkResult walk = root->walk<WalkOrder::PreOrder>([&](affine::AffineForOp op) {
    auto loop = graph.findLoop(op);
    if (!loop)
      return WalkResult::advance();
    const std::string &name = graph.getLoops()[*loop].name;
    auto position = llvm::find(order, name);
    if (position == order.end())
      return WalkResult::advance();
    affine::AffineForOp &slot = named[position - order.begin()];
    if (slot || (!request.chain.empty() && !request.chain.back()->isProperAncestor(op)))
      return WalkResult::interrupt();
    slot = op;
    request.chain.push_back(op);
    request.names.push_back(name);
    return WalkResult::advance();
  });
  if (walk.wasInterrupted() || request.chain.size() != order.size())
    return std::nullopt;
  request.order = named;
  // Loops that stay where they are, at both ends, take no part.
  auto drop = [&](unsigned position) {
    request.chain.erase(request.chain.begin() + position);
    request.order.erase(request.order.begin() + position);
    request.names.erase(request.names.begin() + position);
  };
  while (!request.chain.empty() && request.chain.back() == request.order.back())
    drop(request.chain.size() - 1);
  while (!request.chain.empty() && request.chain.front() == request.order.front())
    drop(0);
  request.goal = "cannot interchange loops ";
  for (auto [index, name] : llvm::enumerate(request.names))
    request.goal += (index == 0 ? "" : index + 1 == request.names.size() ? " and " : ", ") + name;
  return request;
}

/// What keeps loops from changing places apart from dependences.
static LogicalResult checkShape(Request &request) {
  for (unsigned index = 0; index < request.chain.size(); ++index) {
    affine::AffineForOp loop = request.chain[index];
    auto error = [&]() { return loop->emitError(request.goal) << ": "; };
    if (loop.getNumIterOperands() != 0)
      return error() << "loop " << request.names[index] << " carries values in iter_args";
    if (index > 0 && loop->getParentOp() != request.chain[index - 1])
      return error() << "loop " << request.names[index] << " is not directly inside loop "
                     << request.names[index - 1];
    for (unsigned outer = 0; outer < index; ++outer)
      for (Value operand : loop->getOperands())
        if (request.chain[outer].getRegion().isAncestor(operand.getParentRegion()))
          return error() << "the bounds of loop " << request.names[index] << " depend on loop "
                         << request.names[outer];
  }
  return success();
}

static LogicalResult checkOrder(const DependenceGraph &graph, const Request &request) {
  // The loops around the nest keep their place in front.
  SmallVector<unsigned> order;
  for (Operation *parent = request.chain.front()->getParentOp(); parent;
       parent = parent->getParentOp())
    if (auto loop = graph.findLoop(parent))
      order.insert(order.begin(), *loop);
  for (affine::AffineForOp loop : request.order)
    order.push_back(*graph.findLoop(loop));
  auto violation = graph.findOrderViolation(order);
  if (!violation)
    return success();
  const Statement &source = graph.getStatements()[violation->dependence->source];
  const Statement &sink = graph.getStatements()[violation->dependence->sink];
  InFlightDiagnostic diagnostic = request.chain.front()->emitError(request.goal)
                                  << ": " << graph.describe(*violation);
  diagnostic.attachNote(source.op->getLoc()) << "source of the dependence";
  diagnostic.attachNote(sink.op->getLoc()) << "sink of the dependence";
  return diagnostic;
}

LogicalResult InterchangeLoopsPass::interchange(const DependenceGraph &graph, Request request) {
  if (request.chain.empty())
    return success();
  if (failed(checkShape(request)) || failed(checkOrder(graph, request)))
    return failure();
  // Innermost first: what leaves an inner pair is beside it in the next. Each
  // step changes the IR, so each asks a new graph.
  Operation *scope = request.chain.front()->getParentOfType<FunctionOpInterface>();
  for (unsigned index = request.chain.size() - 1; index > 0; --index) {
    DependenceGraph current = buildAffineDependences(scope);
    if (failed(attn::detail::makePerfect(current, request.chain[index - 1], request.chain[index],
                                         request.goal)))
      return failure();
  }
  // Statements that moved inwards have longer vectors now.
  if (failed(checkOrder(buildAffineDependences(scope), request)))
    return failure();
  SmallVector<unsigned> permutation;
  for (affine::AffineForOp loop : request.chain)
    permutation.push_back(llvm::find(request.order, loop) - request.order.begin());
  numInterchanged.at(request.chain.front()) << remark::metric("Loops", request.chain.size());
  affine::permuteLoops(request.chain, permutation);
  return success();
}

void InterchangeLoopsPass::runOnOperation() {
  if (order.size() < 2) {
    getOperation()->emitError("expected an order of at least two loops, got ") << order.size();
    return signalPassFailure();
  }
  unsigned found = 0;
  bool wrong = false;
  getOperation()->walk<WalkOrder::PreOrder>([&](FunctionOpInterface function) {
    SmallVector<affine::AffineForOp> roots;
    function->walk<WalkOrder::PreOrder>([&](affine::AffineForOp loop) {
      roots.push_back(loop);
      return WalkResult::skip();
    });
    for (affine::AffineForOp root : roots) {
      DependenceGraph graph = buildAffineDependences(function);
      auto request = find(graph, root);
      if (!request)
        continue;
      ++found;
      wrong |= failed(interchange(graph, std::move(*request)));
    }
  });
  if (found == 0) {
    getOperation()->emitError("expected a nest with loops ")
        << llvm::join(order, ", ") << ", got none";
    wrong = true;
  }
  if (wrong)
    signalPassFailure();
}
