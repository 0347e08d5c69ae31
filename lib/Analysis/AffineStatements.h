// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loops, statements and accesses of an affine nest, before dependences.

#ifndef ATTN_LIB_ANALYSIS_AFFINESTATEMENTS_H
#define ATTN_LIB_ANALYSIS_AFFINESTATEMENTS_H

#include "attn/Analysis/DependenceGraph.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

namespace attn::detail {

/// What one statement does to one memory.
struct Access {
  unsigned statement;
  mlir::Operation *op;
  mlir::Value memref; ///< The memref it names; null: not known.
  mlir::Value base;   ///< What that is a view of; null: may be anything.
  bool reads = false, writes = false;
  bool affine = false; ///< One element, at an affine index.
  std::string name;    ///< "m", for printing.
};

class AffineStatements {
public:
  AffineStatements(DependenceGraph &graph, mlir::Operation *scope);

  llvm::SmallVector<Access> accesses;
  llvm::DenseMap<mlir::Operation *, unsigned> statementOf;

  /// The memory under views; null where it cannot be told apart.
  mlir::Value getBase(mlir::Value memref);
  std::string getName(mlir::Value memref);

private:
  void collect(mlir::Block &block);
  void collectLoop(mlir::affine::AffineForOp loop);
  void addAccessStatement(mlir::Operation *op);
  void addComputation(llvm::ArrayRef<mlir::Operation *> members);
  void addOpaque(mlir::Operation *op);
  unsigned add(Statement statement);
  void addIndices(Statement &statement);
  std::string nameLoop(mlir::affine::AffineForOp loop);

  DependenceGraph &graph;
  llvm::SmallVector<unsigned> enclosing;
  llvm::StringMap<unsigned> loopNames;
  llvm::StringMap<mlir::Value> globals;
  llvm::DenseMap<mlir::Value, unsigned> allocations;
};

} // namespace attn::detail

#endif
