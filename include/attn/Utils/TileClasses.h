// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Dimension classes of a tile program. Two dimensions of two vectors belong to
// one class where an op ties their positions together (elementwise operands,
// the maps of a contraction, the kept dimensions of a reduction, loop-carried
// values). All vectors of a class are indexed by the same loop; the class with
// the highest score among the dimensions of a value is its lane dimension,
// which becomes the elements of machine vectors and is stored innermost.

#ifndef ATTN_UTILS_TILECLASSES_H
#define ATTN_UTILS_TILECLASSES_H

#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace attn::tiles {

/// The type of `value` as a tile, or null where it is no vector.
inline mlir::VectorType tileType(mlir::Value value) {
  return mlir::dyn_cast<mlir::VectorType>(value.getType());
}

/// Rows of a tile so few that they leave most of a vector empty, and that what they share is read
/// once.
inline constexpr int64_t kFewRows = 4;

class DimClasses {
public:
  /// Ties the dimensions of every vector below `root`. Emits an error at the
  /// first op that cannot be a part of a tile program and fails.
  mlir::LogicalResult build(mlir::Operation *root);

  /// The same; where the dimensions of a vector are tied to each other, because one tile is read
  /// for unrelated ones (queries that are the keys), each use gets a read of its own first.
  mlir::LogicalResult buildSeparating(mlir::Operation *root);

  /// The class of each dimension of `value`; -1 for a dimension of extent one,
  /// whose only position needs no loop.
  llvm::SmallVector<int> dims(mlir::Value value);

  /// The classes of `value` without those of extent one, each once, in order.
  llvm::SmallVector<int> domain(mlir::Value value);

  /// Number of elements along a class.
  int64_t extent(int cls) { return extents[find(cls)]; }

  /// The class of `classes` to vectorise, or -1 where there is none: the one
  /// that contractions keep most often, less how often it is reduced, where
  /// that is more than never; else the one along which memory is accessed
  /// contiguously most often, else the last; one of few elements only where all are. The order of
  /// all classes is one, so a value has the same lanes wherever it is used.
  int lane(llvm::ArrayRef<int> classes);

  /// Up to how many elements are few: fewer than a vector has.
  void setFewElements(int64_t elements) { fewElements = elements; }
  bool isFew(int cls) { return extent(cls) <= fewElements; }

  /// Makes the classes of two dimensions one.
  void unite(mlir::Value a, unsigned dimA, mlir::Value b, unsigned dimB);

private:
  mlir::LogicalResult tieAll(mlir::Operation *root);
  /// An op with a vector whose dimensions are tied to each other; null if there is none.
  mlir::Operation *findTied(mlir::Operation *root);
  mlir::LogicalResult checkIndependent(mlir::Operation *root);

  int find(int node);
  void uniteAll(mlir::Value a, mlir::Value b);
  llvm::SmallVector<int> &nodes(mlir::Value value);
  mlir::LogicalResult tie(mlir::Operation *op);
  mlir::LogicalResult tieVectorOp(mlir::Operation *op);
  mlir::LogicalResult tieShapeCast(mlir::vector::ShapeCastOp cast);
  mlir::LogicalResult tieContraction(mlir::vector::ContractionOp contract);
  std::optional<mlir::LogicalResult> tieMemoryOp(mlir::Operation *op);
  void tieControlFlow(mlir::Operation *op);
  mlir::LogicalResult checkTypes(mlir::Operation *op);
  void score(mlir::Operation *op);
  int64_t scoreOf(int cls);

  llvm::DenseMap<mlir::Value, llvm::SmallVector<int>> nodesOf;
  llvm::SmallVector<int> parents;
  llvm::SmallVector<int64_t> extents;
  llvm::DenseMap<int, int> kept, reduced, contiguous;
  int64_t fewElements = 0;
};

/// The dimension of the memref that vector dimension `dim` of a transfer walks
/// along, or -1 where the transfer broadcasts it.
int memoryDim(mlir::AffineMap map, unsigned dim);

} // namespace attn::tiles

#endif
