// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What to do with a loop that carries a component but is wanted parallel.
// Every answer follows from the graph: whether the component is a reduction
// with a combiner that may be reordered, whether anyone reads its running
// value, and whether it can be separated from the rest of the loop.

#include "attn/Analysis/DependenceGraph.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/SmallVectorExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace attn;

namespace {
/// What is known of one component of one loop.
struct ComponentFacts {
  /// The statement that combines, where the component is a reduction.
  const Statement *combining = nullptr;
  std::string notReduction; ///< Why it is not one.
  std::string observer;     ///< Who reads its running value, if anyone does.
};

ComponentFacts analyze(const DependenceGraph &graph, unsigned loop, const Component &component) {
  ComponentFacts facts;
  auto statements = graph.getStatements();
  auto in = [&](unsigned s) { return llvm::is_contained(component.statements, s); };
  unsigned reads = 0, writes = 0;
  for (unsigned member : component.statements) {
    const Statement &statement = statements[member];
    if (!statement.computes) {
      ++(statement.writes ? writes : reads);
      continue;
    }
    if (!statement.combiner || !in(statement.combiner->state)) {
      facts.notReduction =
          DependenceGraph::nameOf(member) + " is not one associative operation on the old value";
      facts.combining = nullptr;
      break;
    }
    if (facts.combining) {
      facts.notReduction =
          "several statements of " + graph.formatSet(component.statements) + " combine";
      facts.combining = nullptr;
      break;
    }
    facts.combining = &statement;
  }
  if (facts.combining && (reads > 1 || writes > 1)) {
    facts.notReduction =
        graph.formatSet(component.statements) + " has other accesses than one read and one write";
    facts.combining = nullptr;
  }
  if (!facts.combining && facts.notReduction.empty())
    facts.notReduction = "nothing in " + graph.formatSet(component.statements) +
                         " combines a term with the old value";

  for (const Dependence &dependence : graph.getDependences())
    if (dependence.kind == DependenceKind::RAW && in(dependence.source) && !in(dependence.sink) &&
        llvm::is_contained(dependence.loops, loop)) {
      facts.observer = DependenceGraph::nameOf(dependence.sink) + " reads the running value of " +
                       DependenceGraph::nameOf(dependence.source);
      break;
    }
  return facts;
}

/// The statements of `loop` as separate nests, in a legal order.
llvm::SmallVector<llvm::SmallVector<unsigned>> separate(const DependenceGraph &graph,
                                                        unsigned loop) {
  llvm::SmallVector<std::pair<unsigned, unsigned>> edges;
  for (const Dependence &dependence : graph.getDependences())
    if (graph.isInLoop(dependence.source, loop) && graph.isInLoop(dependence.sink, loop))
      edges.push_back({dependence.source, dependence.sink});
  llvm::SmallVector<llvm::SmallVector<unsigned>> groups;
  for (auto &group : stronglyConnectedComponents(graph.getStatements().size(), edges))
    if (graph.isInLoop(group.front(), loop))
      groups.push_back(group);
  return topologicalOrder(groups, edges);
}

/// Joins neighbours that carry nothing: they can share one parallel nest.
llvm::SmallVector<llvm::SmallVector<unsigned>>
joinParallel(const DependenceGraph &graph, unsigned loop,
             llvm::ArrayRef<llvm::SmallVector<unsigned>> groups) {
  auto carries = [&](llvm::ArrayRef<unsigned> group) {
    return llvm::any_of(graph.getDependences(), [&](const Dependence &d) {
      return (d.carrier == loop || llvm::is_contained(d.separated, loop)) &&
             llvm::is_contained(group, d.source) && llvm::is_contained(group, d.sink);
    });
  };
  llvm::SmallVector<llvm::SmallVector<unsigned>> result;
  bool previousCarries = true;
  for (const auto &group : groups) {
    bool thisCarries = carries(group);
    auto joined = [&] {
      llvm::SmallVector<unsigned> all(result.back());
      llvm::append_range(all, group);
      return all;
    };
    if (!thisCarries && !previousCarries && !carries(joined())) {
      result.back() = joined();
      llvm::sort(result.back());
    } else {
      result.push_back(group);
    }
    previousCarries = thisCarries;
  }
  return result;
}

/// The scalars that cross from one nest to a later one, which become arrays.
std::string formatExpanded(const DependenceGraph &graph, unsigned loop,
                           llvm::ArrayRef<llvm::SmallVector<unsigned>> nests) {
  llvm::SmallVector<unsigned> crossing;
  for (const Dependence &dependence : graph.getDependences()) {
    if (dependence.throughMemory || dependence.carrier ||
        !llvm::is_contained(dependence.loops, loop) ||
        llvm::is_contained(crossing, dependence.source))
      continue;
    if (llvm::none_of(nests, [&](const auto &nest) {
          return llvm::is_contained(nest, dependence.source) &&
                 llvm::is_contained(nest, dependence.sink);
        }))
      crossing.push_back(dependence.source);
  }
  llvm::sort(crossing);
  return crossing.empty() ? std::string() : graph.formatSet(crossing);
}
} // namespace

static Treatment distribution(const DependenceGraph &graph, unsigned loop,
                              const Component &component) {
  auto nests = joinParallel(graph, loop, separate(graph, loop));
  std::string name = graph.getLoops()[loop].name;
  if (nests.size() < 2)
    return {"distribution", false,
            "all statements of " + name + " are in " + graph.formatSet(component.statements)};
  std::string list;
  for (const auto &nest : nests)
    list += (list.empty() ? "" : ", ") + graph.formatSet(nest);
  std::string reason = "no cycle joins the nests " + list + "; the nest of " +
                       graph.formatSet(component.statements) + " still carries " + name;
  std::string expanded = formatExpanded(graph, loop, nests);
  if (!expanded.empty())
    reason += "; the values of " + expanded + " have to be kept for every " + name;
  return {"distribution", true, reason};
}

const Dependence *DependenceGraph::findOutsideOfComponents(unsigned loop) const {
  for (const Dependence *dependence : getCarriedBy(loop)) {
    auto has = [&](const Component &component) {
      return llvm::is_contained(component.carriers, loop) &&
             llvm::is_contained(component.statements, dependence->source) &&
             llvm::is_contained(component.statements, dependence->sink);
    };
    if (llvm::none_of(components, has))
      return dependence;
  }
  return nullptr;
}

llvm::SmallVector<Treatment> DependenceGraph::getTreatments(unsigned loop,
                                                            const Component &component) const {
  const std::string &name = loops[loop].name;
  std::string set = formatSet(component.statements);
  ComponentFacts facts = analyze(*this, loop, component);
  llvm::SmallVector<Treatment> result;

  llvm::SmallVector<unsigned> free;
  for (unsigned other = 0; other < loops.size(); ++other)
    if (other != loop && isParallel(other) &&
        llvm::any_of(component.statements, [&](unsigned s) { return isInLoop(s, other); }))
      free.push_back(other);
  result.push_back({"owner-computes", true,
                    "one worker runs " + name + " in order" +
                        (free.empty() ? std::string() : "; workers divide " + formatLoops(free))});

  llvm::SmallVector<unsigned> outside;
  for (unsigned s = 0; s < statements.size(); ++s)
    if (isInLoop(s, loop) &&
        llvm::none_of(components,
                      [&](const Component &c) {
                        return llvm::is_contained(c.carriers, loop) &&
                               llvm::is_contained(c.statements, s);
                      }) &&
        llvm::none_of(dependences, [&](const Dependence &d) {
          // It waits for the whole loop.
          return d.sink == s && llvm::is_contained(d.separated, loop);
        }))
      outside.push_back(s);
  result.push_back({"ordered-turnstile", true,
                    set + " takes its turn in the order of " + name +
                        (outside.empty() ? std::string()
                                         : "; " + formatSet(outside) +
                                               " carry nothing and run ahead "
                                               "or between")});

  bool observed = !facts.observer.empty();
  bool reduction = facts.combining && facts.combining->combiner->associative;
  std::string combiner = facts.combining ? facts.combining->combiner->name : std::string();
  std::string whyNot = !facts.combining ? facts.notReduction
                       : !reduction     ? combiner + " is not associative"
                                        : facts.observer + ", which reordering changes";
  bool reorderable = reduction && !observed;

  bool atomics = reorderable && facts.combining->combiner->commutative;
  result.push_back({"atomics", atomics,
                    atomics       ? combiner + " is associative and commutative, and nobody reads "
                                               "the running value"
                    : reorderable ? combiner + " is not commutative"
                                  : whyNot});

  bool merge = loops[loop].hasMerge;
  std::string mergeReason =
      reorderable ? "partial results of parts of " + name + " combine by " + combiner
      : merge
          ? "two states of disjoint parts can be merged"
          : whyNot + (facts.combining && !observed ? "" : ", and there is no merge of two states");
  result.push_back({"partial-and-merge", reorderable || merge, mergeReason});
  result.push_back({"grid-phases", reorderable,
                    reorderable ? "all workers finish " + set +
                                      ", the grid synchronises, then its "
                                      "readers run"
                                : whyNot});
  result.push_back({"cluster-reduction", reorderable || merge,
                    reorderable || merge
                        ? "the workers of a cluster " +
                              std::string(reorderable ? "combine by " + combiner : "merge states") +
                              " as a tree"
                        : mergeReason});
  result.push_back(distribution(*this, loop, component));
  return result;
}
