// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The dependence graph as text and as DOT. Both are stable: statements in
// program order, dependences by source, sink, kind and carrier.

#include "attn/Analysis/DependenceGraph.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/SmallVectorExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace attn;

std::string DependenceGraph::formatSet(llvm::ArrayRef<unsigned> statementSet) const {
  return "{" +
         llvm::join(llvm::map_range(statementSet, [](unsigned s) { return nameOf(s); }), ", ") +
         "}";
}

std::string DependenceGraph::formatLoops(llvm::ArrayRef<unsigned> loopSet) const {
  return llvm::join(llvm::map_range(loopSet, [&](unsigned l) { return loops[l].name; }), ", ");
}

llvm::SmallVector<int64_t> DependenceGraph::getSteps(llvm::ArrayRef<unsigned> loopSet) const {
  return llvm::map_to_vector(loopSet, [&](unsigned l) { return loops[l].step; });
}

std::string DependenceGraph::formatVector(const Dependence &dependence) const {
  return attn::formatVector(dependence.vector, getSteps(dependence.loops));
}

std::string DependenceGraph::describe(const Dependence &dependence) const {
  return stringifyKind(dependence.kind).str() + " dependence from " + nameOf(dependence.source) +
         " to " + nameOf(dependence.sink) + " with direction " + formatVector(dependence);
}

std::string DependenceGraph::describe(const Violation &violation) const {
  return describe(*violation.dependence) + " would become " +
         attn::formatVector(violation.after, getSteps(violation.order));
}

static std::string describeTail(const DependenceGraph &graph, const Dependence &dependence) {
  std::string tail;
  if (dependence.carrier)
    tail += " carried by " + graph.getLoops()[*dependence.carrier].name;
  if (!dependence.separated.empty())
    tail += " after all of " + graph.formatLoops(dependence.separated);
  if (!dependence.via.empty())
    tail += " through " + dependence.via;
  if (dependence.reduction)
    tail += " [reduction]";
  if (!dependence.exact)
    tail += " [assumed]";
  return tail;
}

void DependenceGraph::printOrders(llvm::raw_ostream &os) const {
  if (loops.size() < 2)
    return;
  os << "orders:\n";
  // A vector stays non-negative in every order if no entry can be negative;
  // if one can, the order that puts it first is illegal.
  bool any = false;
  for (const Dependence &dependence : dependences)
    if (llvm::any_of(dependence.vector, [](const Distance &d) { return d.mayBeNegative(); })) {
      os << "  bounded by the " << describe(dependence) << "\n";
      any = true;
    }
  if (!any)
    os << "  no vector forbids any order of "
       << formatLoops(llvm::to_vector(llvm::seq<unsigned>(0, loops.size()))) << "\n";
}

void DependenceGraph::print(llvm::raw_ostream &os, llvm::StringRef title) const {
  os << "dependences of " << title << "\n";
  os << "statements:\n";
  for (auto [index, statement] : llvm::enumerate(statements))
    os << "  " << nameOf(index) << " [" << formatLoops(statement.domain) << "] " << statement.label
       << "\n";
  os << "dependences:\n";
  for (const Dependence &dependence : dependences)
    os << "  " << stringifyKind(dependence.kind) << " " << nameOf(dependence.source) << " -> "
       << nameOf(dependence.sink) << " " << formatVector(dependence)
       << describeTail(*this, dependence) << "\n";
  os << "components:\n";
  for (const Component &component : components)
    os << "  " << formatSet(component.statements) << " carried by "
       << (component.carriers.empty() ? "no loop" : formatLoops(component.carriers)) << "\n";
  printOrders(os);
  os << "loops:\n";
  for (unsigned loop = 0; loop < loops.size(); ++loop) {
    auto carried = getCarriedBy(loop);
    os << "  " << loops[loop].name << ": ";
    if (carried.empty()) {
      os << "parallel\n";
      continue;
    }
    bool onlyReductions = llvm::all_of(carried, [](const Dependence *d) { return d->reduction; });
    os << "carries " << carried.size() << (carried.size() == 1 ? " dependence" : " dependences")
       << (onlyReductions ? ", all of reductions" : "") << "\n";
    for (const Component &component : components) {
      if (!llvm::is_contained(component.carriers, loop))
        continue;
      os << "    to run " << formatSet(component.statements) << " with parallel "
         << loops[loop].name << ":\n";
      for (const Treatment &treatment : getTreatments(loop, component))
        os << "      " << treatment.name << ": " << (treatment.legal ? "legal" : "refused") << ", "
           << treatment.reason << "\n";
    }
  }
}

/// Quotes for a DOT string.
static std::string escape(llvm::StringRef text) {
  std::string result;
  for (char c : text) {
    if (c == '"' || c == '\\')
      result += '\\';
    result += c;
  }
  return result;
}

void DependenceGraph::printDot(llvm::raw_ostream &os, llvm::StringRef title) const {
  os << "digraph \"" << escape(title) << "\" {\n";
  os << "  node [shape=box];\n";
  llvm::SmallVector<bool> inComponent(statements.size(), false);
  auto node = [&](unsigned s) {
    os << nameOf(s) << " [label=\"" << nameOf(s) << ": " << escape(statements[s].label) << "\"];\n";
  };
  for (auto [index, component] : llvm::enumerate(components)) {
    os << "  subgraph cluster_" << index << " {\n    label=\"carried by "
       << escape(component.carriers.empty() ? "no loop" : formatLoops(component.carriers))
       << "\";\n";
    for (unsigned s : component.statements) {
      inComponent[s] = true;
      os << "    ";
      node(s);
    }
    os << "  }\n";
  }
  for (unsigned s = 0; s < statements.size(); ++s)
    if (!inComponent[s]) {
      os << "  ";
      node(s);
    }
  for (const Dependence &dependence : dependences) {
    os << "  " << nameOf(dependence.source) << " -> " << nameOf(dependence.sink) << " [label=\""
       << stringifyKind(dependence.kind) << " " << formatVector(dependence) << "\"";
    if (dependence.carrier)
      os << ", style=dashed, xlabel=\"" << escape(loops[*dependence.carrier].name) << "\"";
    os << "];\n";
  }
  os << "}\n";
}
