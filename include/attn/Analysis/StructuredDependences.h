// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Builds the dependence graph of a structured nest: linalg ops on tensors, and
// attn.fold with such ops in its body. The loops are the classes of dimensions
// that indexing maps tie together through shared tensors.

#ifndef ATTN_ANALYSIS_STRUCTUREDDEPENDENCES_H
#define ATTN_ANALYSIS_STRUCTUREDDEPENDENCES_H

#include "attn/Analysis/DependenceGraph.h"

namespace mlir {
class Block;
}

namespace attn {

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
DependenceGraph buildStructuredDependences(mlir::Block &block);

/// Whether the block has statements of a structured nest, folds included.
bool hasStructuredStatements(mlir::Block &block);

} // namespace attn

#endif
