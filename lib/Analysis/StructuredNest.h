// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The tensor statements of a structured nest, their dimension classes, and how
// they become a dependence graph.

#ifndef ATTN_LIB_ANALYSIS_STRUCTUREDNEST_H
#define ATTN_LIB_ANALYSIS_STRUCTUREDNEST_H

#include "DimensionClasses.h"
#include "attn/Analysis/StructuredDependences.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/IR/AffineMap.h"
#include <functional>

namespace attn::detail {

/// A tensor statement before it has loops.
struct TensorStatement {
  mlir::Operation *op;
  unsigned numDims = 0;
  llvm::SmallVector<mlir::AffineMap> operandMaps,
      resultMaps; ///< Empty: not indexed.
  llvm::SmallVector<unsigned> reductions;
  llvm::SmallVector<unsigned> streams; ///< Class nodes of the folds around it.
  llvm::SmallVector<mlir::Operation *> folds;
};

/// Where a tensor comes from: a statement's result, the folds that carry it
/// from an earlier iteration, and whether it has the result's dimensions.
struct Definition {
  unsigned statement = 0, result = 0;
  llvm::SmallVector<mlir::Operation *, 1> carriedBy;
  bool aligned = true;
};

class NestBuilder {
public:
  /// Ops of the block that `isPart` leaves out are as if they were elsewhere.
  NestBuilder(DependenceGraph &graph, llvm::function_ref<bool(mlir::Operation *)> isPart)
      : graph(graph), isPart(isPart) {}
  void run(mlir::Block &block);
  /// After run(): the loops of all dimensions.
  void nameLoops(StructuredDependences &result);

private:
  void collect(mlir::Block &block);
  void collectFold(FoldOp fold);
  void addStatement(TensorStatement statement);
  bool isProduced(mlir::Value tensor);
  void uniteAll(mlir::Value a, mlir::Value b, int64_t exceptDim = -1);

  void addLoops();
  unsigned streamNode(mlir::Operation *fold) { return classes.node(fold, 0u); }
  unsigned loopOf(unsigned node) { return loopOfClass.lookup(classes.find(node)); }
  /// The loops of a tensor's dimensions as `statement` indexes it.
  llvm::SmallVector<std::optional<unsigned>> indexLoops(unsigned statement, mlir::AffineMap map);

  void resolve(mlir::Value value, Definition path);
  void addDependences(unsigned sink);
  void addDependence(const Definition &from, unsigned sink, mlir::AffineMap map);
  void addReductions(unsigned statement);
  void findCombiner(unsigned statement);

  DependenceGraph &graph;
  llvm::function_ref<bool(mlir::Operation *)> isPart;
  /// What readers of tensors from elsewhere have in common: after what the nest's own have.
  std::vector<std::function<void()>> later;
  DimensionClasses classes;
  std::vector<TensorStatement> parts;
  llvm::DenseMap<mlir::Operation *, unsigned> statementOf;
  llvm::DenseMap<unsigned, unsigned> loopOfClass;
  llvm::SmallVector<FoldOp> enclosing;
  llvm::SmallVector<FoldOp> folds;

  // The search of resolve().
  llvm::SmallVector<Definition> found;
  std::vector<std::pair<mlir::Value, Definition>> seen;
};

} // namespace attn::detail

#endif
