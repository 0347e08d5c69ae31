// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Builds the dependence graph of affine.for nests over memrefs. Whether two
// accesses meet is upstream's question (checkMemrefAccessDependence, exact up
// to rational relaxation of the integer sets); statements, scalar values,
// views, opaque ops and the graph are ours.

#ifndef ATTN_ANALYSIS_AFFINEDEPENDENCES_H
#define ATTN_ANALYSIS_AFFINEDEPENDENCES_H

#include "attn/Analysis/DependenceGraph.h"
#include "mlir/Support/LLVM.h"

namespace mlir::affine {
class AffineForOp;
}

namespace attn {

/// Builds the graph of everything in `scope` (a function, or any op with
/// affine.for below it).
///
/// Statements are: every affine.load and affine.store; every maximal tree of
/// scalar computations in one block (an op joins its only user); every other
/// op that has effects on memory, or regions, as a whole. Constants, index
/// arithmetic by affine.apply, allocations and views are none. Ops of one block
/// with the same string attribute `attn.stmt` form one statement.
///
/// Loops are named by their string attribute `attn.loop`, else i, j, k, ... by
/// depth. Different memrefs are taken not to overlap, as everywhere in the
/// affine dialect, unless one is a view of the other or of unknown origin.
DependenceGraph buildAffineDependences(mlir::Operation *scope);

/// The dependences from statements in `first` to statements in `second`, two
/// loops in one block with equal bounds, over the one loop that joining them
/// gives; what an enclosing loop carries is left out.
std::vector<Dependence> getFusionDependences(const DependenceGraph &graph,
                                             mlir::affine::AffineForOp first,
                                             mlir::affine::AffineForOp second);

/// Prints, for every ordered pair of affine accesses and every depth, what
/// the graph says, in the words of upstream's dependence test; for comparison.
void printAccessPairs(const DependenceGraph &graph, mlir::Operation *scope, llvm::raw_ostream &os);

} // namespace attn

#endif
