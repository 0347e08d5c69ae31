// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Union-find over the dimensions of tensors and of iteration spaces.

#ifndef ATTN_LIB_ANALYSIS_DIMENSIONCLASSES_H
#define ATTN_LIB_ANALYSIS_DIMENSIONCLASSES_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <vector>

namespace attn::detail {

/// Classes of dimensions that run together. Two dimensions of one iteration
/// space never fall into one class, also where one tensor is read along both:
/// the union that would do it is left out.
class DimensionClasses {
public:
  /// Dimension `dim` of a tensor, or of the iteration space of an op.
  unsigned node(mlir::Value tensor, unsigned dim) {
    return node(tensor.getAsOpaquePointer(), dim, nullptr);
  }
  unsigned node(mlir::Operation *space, unsigned dim) { return node(space, dim, space); }

  unsigned find(unsigned x) {
    while (parents[x] != x)
      x = parents[x] = parents[parents[x]];
    return x;
  }

  void unite(unsigned a, unsigned b) {
    a = find(a), b = find(b);
    if (a == b)
      return;
    if (spaces[a].size() < spaces[b].size())
      std::swap(a, b);
    for (mlir::Operation *space : spaces[b])
      if (spaces[a].contains(space))
        return;
    spaces[a].insert(spaces[b].begin(), spaces[b].end());
    parents[b] = a;
  }

private:
  unsigned node(const void *key, unsigned dim, mlir::Operation *space) {
    auto [entry, isNew] = ids.insert({{key, dim}, parents.size()});
    if (isNew) {
      parents.push_back(entry->second);
      spaces.emplace_back();
      if (space)
        spaces.back().insert(space);
    }
    return entry->second;
  }

  llvm::DenseMap<std::pair<const void *, unsigned>, unsigned> ids;
  std::vector<unsigned> parents;
  std::vector<llvm::SmallPtrSet<mlir::Operation *, 4>> spaces;
};

} // namespace attn::detail

#endif
