// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Builds the dependence graph of a structured nest: linalg ops on tensors, and
// attn.fold with such ops in its body. The loops are the classes of dimensions
// that indexing maps tie together through shared tensors.

#ifndef ATTN_ANALYSIS_STRUCTUREDDEPENDENCES_H
#define ATTN_ANALYSIS_STRUCTUREDDEPENDENCES_H

#include "attn/Analysis/DependenceGraph.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace mlir {
class Block;
}

namespace attn {

/// The graph of a structured nest, and which loop each dimension of an op is.
struct StructuredDependences {
  DependenceGraph graph;
  /// By op and number of its iteration dimension; a fold's streamed one is 0.
  llvm::DenseMap<std::pair<mlir::Operation *, unsigned>, unsigned> loops;

  std::optional<unsigned> findLoop(mlir::Operation *op, unsigned dim) const {
    auto it = loops.find({op, dim});
    return it == loops.end() ? std::nullopt : std::optional(it->second);
  }
};

/// Builds the graph of the tensor statements in `block`.
///
/// Statements are linalg ops and elementwise ops on tensors, each over the
/// classes of its dimensions; any other op that takes or makes tensors is a
/// statement without loops. Filling an accumulator belongs to the reduction
/// that takes it. The body of a fold is part of the nest: its streamed
/// dimension is a loop around all its statements, on blocks of one element
/// (their size is not part of a fold's meaning), and each state argument is a
/// value of the iteration before.
///
/// A statement that reads a tensor along the dimension that the tensor's
/// producer ran over depends on it at distance 0 there; where it needs the
/// producer's whole loop, the loops are separated.
///
/// Dimensions are named by the array attribute `attn.dims` of an op (one string
/// per iteration dimension) or the string attribute `attn.loop` of a fold, else
/// i, j, k, ... by first appearance.
///
/// With `isPart`, of the block's ops only those of which it is true: the rest is as if it were in
/// another function.
StructuredDependences
buildStructuredDependences(mlir::Block &block,
                           llvm::function_ref<bool(mlir::Operation *)> isPart = nullptr);

/// Whether the block has statements of a structured nest, folds included.
bool hasStructuredStatements(mlir::Block &block);

} // namespace attn

#endif
