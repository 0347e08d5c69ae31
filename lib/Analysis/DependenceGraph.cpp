// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The dependence graph: building, components, and legality of loop changes.

#include "attn/Analysis/DependenceGraph.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/SmallVectorExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <tuple>

using namespace attn;

llvm::StringRef attn::stringifyKind(DependenceKind kind) {
  switch (kind) {
  case DependenceKind::RAW:
    return "RAW";
  case DependenceKind::WAR:
    return "WAR";
  case DependenceKind::WAW:
    return "WAW";
  }
  return "";
}

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

unsigned DependenceGraph::addLoop(Loop loop) {
  loops.push_back(std::move(loop));
  return loops.size() - 1;
}

unsigned DependenceGraph::addStatement(Statement statement) {
  statements.push_back(std::move(statement));
  return statements.size() - 1;
}

void DependenceGraph::addDependence(Dependence dependence) {
  // Two paths may give the same fact: several operands of one statement that
  // come from one other, an accumulator that is also a carried state.
  for (Dependence &other : dependences) {
    if (std::tie(other.source, other.sink, other.kind, other.loops, other.vector, other.carrier,
                 other.separated, other.throughMemory) !=
        std::tie(dependence.source, dependence.sink, dependence.kind, dependence.loops,
                 dependence.vector, dependence.carrier, dependence.separated,
                 dependence.throughMemory))
      continue;
    other.reduction |= dependence.reduction;
    other.exact |= dependence.exact;
    return;
  }
  dependences.push_back(std::move(dependence));
}

void DependenceGraph::finalize() {
  llvm::stable_sort(dependences, [](const Dependence &a, const Dependence &b) {
    // Within one iteration first, then by the depth of the carrier.
    auto depth = [](const Dependence &d) {
      return d.carrier ? int(llvm::find(d.loops, *d.carrier) - d.loops.begin()) : -1;
    };
    return std::make_tuple(a.source, a.sink, int(a.kind), depth(a)) <
           std::make_tuple(b.source, b.sink, int(b.kind), depth(b));
  });

  llvm::SmallVector<std::pair<unsigned, unsigned>> edges;
  for (const Dependence &dependence : dependences)
    edges.push_back({dependence.source, dependence.sink});
  for (auto &members : stronglyConnectedComponents(statements.size(), edges)) {
    Component component;
    component.statements = members;
    bool cyclic = members.size() > 1;
    llvm::SmallVector<bool> carries(loops.size(), false);
    for (const Dependence &dependence : dependences)
      if (llvm::is_contained(members, dependence.source) &&
          llvm::is_contained(members, dependence.sink)) {
        cyclic |= dependence.source == dependence.sink;
        if (dependence.carrier)
          carries[*dependence.carrier] = true;
      }
    if (!cyclic)
      continue;
    for (unsigned loop = 0; loop < loops.size(); ++loop)
      if (carries[loop])
        component.carriers.push_back(loop);
    components.push_back(std::move(component));
  }
}

//===----------------------------------------------------------------------===//
// Look-up
//===----------------------------------------------------------------------===//

bool DependenceGraph::isInLoop(unsigned statement, unsigned loop) const {
  return llvm::is_contained(statements[statement].domain, loop);
}

llvm::SmallVector<unsigned, 4> DependenceGraph::getSharedLoops(unsigned a, unsigned b) const {
  llvm::SmallVector<unsigned, 4> shared;
  for (unsigned loop : statements[a].domain)
    if (isInLoop(b, loop))
      shared.push_back(loop);
  return shared;
}

std::optional<unsigned> DependenceGraph::findLoop(const mlir::Operation *op) const {
  for (auto [index, loop] : llvm::enumerate(loops))
    if (loop.op == op)
      return index;
  return std::nullopt;
}

std::optional<unsigned> DependenceGraph::findLoop(llvm::StringRef name) const {
  for (auto [index, loop] : llvm::enumerate(loops))
    if (loop.name == name)
      return index;
  return std::nullopt;
}

std::optional<unsigned> DependenceGraph::findStatement(llvm::StringRef name) const {
  unsigned number;
  if (!name.consume_front("S") || name.getAsInteger(10, number) || number == 0 ||
      number > statements.size())
    return std::nullopt;
  return number - 1;
}

std::optional<unsigned> DependenceGraph::findStatement(const mlir::Operation *member) const {
  for (auto [index, statement] : llvm::enumerate(statements))
    if (llvm::is_contained(statement.members, member))
      return index;
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Questions
//===----------------------------------------------------------------------===//

llvm::SmallVector<const Dependence *> DependenceGraph::getCarriedBy(unsigned loop) const {
  llvm::SmallVector<const Dependence *> result;
  for (const Dependence &dependence : dependences)
    if (dependence.carrier == loop)
      result.push_back(&dependence);
  return result;
}

std::optional<Violation> DependenceGraph::findOrderViolation(llvm::ArrayRef<unsigned> order,
                                                             bool mayReassociate) const {
  auto rank = [&](unsigned loop) { return llvm::find(order, loop); };
  std::optional<Violation> first;
  for (const Dependence &dependence : dependences) {
    if (mayReassociate && dependence.reduction)
      continue;
    // The positions of the shared loops, by their place in the new order.
    llvm::SmallVector<unsigned> positions =
        llvm::to_vector(llvm::seq<unsigned>(0, dependence.loops.size()));
    llvm::stable_sort(positions, [&](unsigned a, unsigned b) {
      return rank(dependence.loops[a]) < rank(dependence.loops[b]);
    });
    DistanceVector after = permute(dependence.vector, positions);
    if (isLexicographicallyNonNegative(after))
      continue;
    Violation violation{&dependence, after, {}};
    for (unsigned position : positions)
      violation.order.push_back(dependence.loops[position]);
    // A flow of data says more to the reader than the reuse of a location.
    if (dependence.kind == DependenceKind::RAW)
      return violation;
    if (!first)
      first = violation;
  }
  return first;
}

bool DependenceGraph::isCarriedOutside(const Dependence &dependence, unsigned loop) const {
  if (!dependence.carrier || *dependence.carrier == loop)
    return false;
  for (unsigned shared : dependence.loops) {
    if (shared == loop)
      return false;
    if (shared == *dependence.carrier)
      return true;
  }
  return false;
}

std::optional<Violation> DependenceGraph::findHoistViolation(unsigned statement, unsigned loop,
                                                             llvm::ArrayRef<unsigned> moved) const {
  const Dependence *best = nullptr;
  auto weight = [&](const Dependence &d) {
    // Prefer what the loop carries into the statement: the value it would miss.
    return (d.sink == statement ? 4 : 0) + (d.kind == DependenceKind::RAW ? 2 : 0) +
           (d.carrier == loop ? 1 : 0);
  };
  for (const Dependence &dependence : dependences) {
    bool in = dependence.sink == statement, out = dependence.source == statement;
    if (!in && !out)
      continue;
    unsigned other = in ? dependence.source : dependence.sink;
    if (!isInLoop(other, loop) || isCarriedOutside(dependence, loop))
      continue;
    if (other != statement && llvm::is_contained(moved, other))
      continue;
    // Values that it hands on to the loop stay available when it moves up.
    if (!in && !dependence.throughMemory)
      continue;
    // A write before the loop still precedes what reads it within an iteration,
    // but no longer follows what the loop does in the iterations before.
    if (!best || weight(dependence) > weight(*best))
      best = &dependence;
  }
  if (!best)
    return std::nullopt;
  return Violation{best, {}, {}};
}

std::optional<Violation> DependenceGraph::findSinkViolation(unsigned statement,
                                                            unsigned loop) const {
  // What an enclosing loop carries holds wherever in one iteration both stand.
  for (const Dependence &dependence : dependences)
    if (dependence.source == statement && dependence.throughMemory && !dependence.carrier &&
        isInLoop(dependence.sink, loop))
      return Violation{&dependence, {}, {}};
  return std::nullopt;
}

std::optional<Violation> DependenceGraph::findDistributionViolation(
    unsigned loop, llvm::ArrayRef<llvm::SmallVector<unsigned>> groups) const {
  for (const Dependence &dependence : dependences) {
    if (isCarriedOutside(dependence, loop))
      continue;
    for (unsigned from = 1; from < groups.size(); ++from)
      for (unsigned to = 0; to < from; ++to)
        if (llvm::is_contained(groups[from], dependence.source) &&
            llvm::is_contained(groups[to], dependence.sink) &&
            // A value that is computed again where it is used, in the same iteration.
            (dependence.throughMemory || dependence.carrier == loop ||
             !llvm::is_contained(groups[to], dependence.source)))
          return Violation{&dependence, {}, {}};
  }
  return std::nullopt;
}

const Dependence *DependenceGraph::findSeparation(llvm::ArrayRef<unsigned> first,
                                                  llvm::ArrayRef<unsigned> second,
                                                  unsigned loop) const {
  for (const Dependence &dependence : dependences)
    if (llvm::is_contained(first, dependence.source) &&
        llvm::is_contained(second, dependence.sink) &&
        llvm::is_contained(dependence.separated, loop))
      return &dependence;
  return nullptr;
}

const Dependence *attn::findFusionViolation(llvm::ArrayRef<Dependence> cross) {
  for (const Dependence &dependence : cross)
    if (!isLexicographicallyNonNegative(dependence.vector))
      return &dependence;
  return nullptr;
}
