// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Distances, direction vectors, Tarjan's components.

#include "attn/Analysis/DependenceVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/SmallVectorExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>
#include <set>

using namespace attn;

std::string Distance::str(int64_t step) const {
  if (lower && lower == upper && *lower % step == 0)
    return std::to_string(*lower / step);
  if (lower && *lower > 0)
    return "+";
  if (upper && *upper < 0)
    return "-";
  if (lower == 0)
    return "0+";
  if (upper == 0)
    return "0-";
  return "*";
}

bool attn::isLexicographicallyNonNegative(llvm::ArrayRef<Distance> vector) {
  for (const Distance &entry : vector) {
    if (entry.mayBeNegative())
      return false;
    if (entry.isPositive())
      return true;
    // Zero is possible here: the next entry decides for those elements.
  }
  return true;
}

DistanceVector attn::permute(llvm::ArrayRef<Distance> vector, llvm::ArrayRef<unsigned> order) {
  return llvm::map_to_vector<4>(order, [&](unsigned index) { return vector[index]; });
}

std::string attn::formatVector(llvm::ArrayRef<Distance> vector, llvm::ArrayRef<int64_t> steps) {
  std::string result = "(";
  for (unsigned index = 0; index < vector.size(); ++index) {
    result += index ? ", " : "";
    result += vector[index].str(steps.empty() ? 1 : steps[index]);
  }
  return result + ")";
}

namespace {
using Adjacency = llvm::SmallVector<llvm::SmallVector<unsigned>>;

/// Tarjan's algorithm with an explicit stack of (node, next successor).
struct Tarjan {
  explicit Tarjan(const Adjacency &successors)
      : successors(successors), index(successors.size(), 0), low(successors.size(), 0),
        onStack(successors.size(), false) {}

  void visit(unsigned root) {
    if (index[root])
      return;
    enter(root);
    while (!frames.empty()) {
      auto &[node, next] = frames.back();
      if (next < successors[node].size()) {
        unsigned successor = successors[node][next++];
        if (!index[successor])
          enter(successor);
        else if (onStack[successor])
          low[node] = std::min(low[node], index[successor]);
        continue;
      }
      leave(node);
    }
  }

  llvm::SmallVector<llvm::SmallVector<unsigned>> components;

private:
  void enter(unsigned node) {
    index[node] = low[node] = ++counter;
    stack.push_back(node);
    onStack[node] = true;
    frames.push_back({node, 0});
  }

  void leave(unsigned node) {
    if (low[node] == index[node]) {
      auto &component = components.emplace_back();
      unsigned member;
      do {
        member = stack.pop_back_val();
        onStack[member] = false;
        component.push_back(member);
      } while (member != node);
      llvm::sort(component);
    }
    frames.pop_back();
    if (!frames.empty()) {
      unsigned parent = frames.back().first;
      low[parent] = std::min(low[parent], low[node]);
    }
  }

  const Adjacency &successors;
  llvm::SmallVector<unsigned> index, low, stack;
  llvm::SmallVector<bool> onStack;
  llvm::SmallVector<std::pair<unsigned, unsigned>> frames;
  unsigned counter = 0;
};
} // namespace

llvm::SmallVector<llvm::SmallVector<unsigned>>
attn::stronglyConnectedComponents(unsigned numNodes,
                                  llvm::ArrayRef<std::pair<unsigned, unsigned>> edges) {
  Adjacency successors(numNodes);
  for (auto [from, to] : edges)
    successors[from].push_back(to);
  Tarjan tarjan(successors);
  for (unsigned node = 0; node < numNodes; ++node)
    tarjan.visit(node);
  llvm::sort(tarjan.components, [](const auto &a, const auto &b) { return a.front() < b.front(); });
  return tarjan.components;
}

llvm::SmallVector<llvm::SmallVector<unsigned>>
attn::topologicalOrder(llvm::ArrayRef<llvm::SmallVector<unsigned>> groups,
                       llvm::ArrayRef<std::pair<unsigned, unsigned>> edges) {
  unsigned numNodes = 0;
  for (const auto &group : groups)
    for (unsigned node : group)
      numNodes = std::max(numNodes, node + 1);
  llvm::SmallVector<unsigned> groupOf(numNodes, ~0u);
  for (auto [index, group] : llvm::enumerate(groups))
    for (unsigned node : group)
      groupOf[node] = index;

  llvm::SmallVector<std::set<unsigned>> predecessors(groups.size());
  for (auto [from, to] : edges)
    if (from < numNodes && to < numNodes && groupOf[from] != ~0u && groupOf[to] != ~0u &&
        groupOf[from] != groupOf[to])
      predecessors[groupOf[to]].insert(groupOf[from]);

  llvm::SmallVector<llvm::SmallVector<unsigned>> result;
  llvm::SmallVector<bool> done(groups.size(), false);
  while (result.size() < groups.size()) {
    // The groups are sorted by first member, so the first ready one is next.
    unsigned ready = 0;
    while (done[ready] || llvm::any_of(predecessors[ready], [&](unsigned p) { return !done[p]; }))
      ++ready;
    done[ready] = true;
    result.push_back(groups[ready]);
  }
  return result;
}
