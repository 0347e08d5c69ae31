// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Distances, direction vectors and strongly connected components: the part of
// dependence analysis that knows no IR. A vector has one entry per loop that
// the two statements share; an order of loops is legal where every vector stays
// lexicographically non-negative (Allen and Kennedy, Optimizing Compilers for
// Modern Architectures, chapters 2 and 5).

#ifndef ATTN_ANALYSIS_DEPENDENCEVECTOR_H
#define ATTN_ANALYSIS_DEPENDENCEVECTOR_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace attn {

/// The set of values that (sink iteration - source iteration) takes on one
/// loop: the integers of [lower, upper], unbounded where an end is absent.
/// Measured in values of the loop's variable, not in iterations.
struct Distance {
  std::optional<int64_t> lower, upper;

  static Distance exact(int64_t value) { return {value, value}; }
  static Distance positive(int64_t step = 1) { return {step, std::nullopt}; }
  static Distance unknown() { return {}; }

  bool isZero() const { return lower == 0 && upper == 0; }
  bool isPositive() const { return lower && *lower > 0; }
  bool mayBeNegative() const { return !lower || *lower < 0; }

  bool operator==(const Distance &other) const {
    return lower == other.lower && upper == other.upper;
  }

  /// The entry as the literature writes it: a number of iterations where the
  /// distance is exact, else +, -, 0+, 0- or *. `step` is the loop's step.
  std::string str(int64_t step = 1) const;
};

using DistanceVector = llvm::SmallVector<Distance, 4>;

/// Returns whether no element of the vector is lexicographically negative.
bool isLexicographicallyNonNegative(llvm::ArrayRef<Distance> vector);

/// Reorders a vector: entry k of the result is entry `order[k]` of `vector`.
DistanceVector permute(llvm::ArrayRef<Distance> vector, llvm::ArrayRef<unsigned> order);

/// Prints "(0, +, -1)". `steps` is empty or has one step per entry.
std::string formatVector(llvm::ArrayRef<Distance> vector, llvm::ArrayRef<int64_t> steps = {});

/// The strongly connected components of a graph over 0..numNodes-1: members
/// increasing, components by their smallest member. Tarjan (1972), iterative.
llvm::SmallVector<llvm::SmallVector<unsigned>>
stronglyConnectedComponents(unsigned numNodes, llvm::ArrayRef<std::pair<unsigned, unsigned>> edges);

/// Orders groups of nodes so that every edge between groups runs forward, the
/// group with the smaller first member first where both orders are possible.
/// `groups` must be the strongly connected components of the graph.
llvm::SmallVector<llvm::SmallVector<unsigned>>
topologicalOrder(llvm::ArrayRef<llvm::SmallVector<unsigned>> groups,
                 llvm::ArrayRef<std::pair<unsigned, unsigned>> edges);

} // namespace attn

#endif
