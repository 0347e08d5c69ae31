// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The iteration space that a set of statements shares.
//
// Loops of different statements are the same dimension of the nest where they
// index the same dimension of a tensor that one of the statements produces
// (union-find). A tensor from outside ties two statements together only where
// that leaves every statement's own loops apart: the same matrix may be read as
// query and as key.

#ifndef ATTN_LIB_TRANSFORMS_NEST_DIMCLASSES_H
#define ATTN_LIB_TRANSFORMS_NEST_DIMCLASSES_H

#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include <optional>

namespace attn {

/// The longest static dimension (the size of a head) that a tile takes whole
/// where it has the choice.
constexpr int64_t longestWholeTile = 1024;

class DimClasses {
public:
  /// `ops` are linalg.generic and attn.fold ops; folds with their bodies.
  explicit DimClasses(llvm::ArrayRef<mlir::Operation *> ops);

  /// The class of a loop of a statement.
  unsigned ofLoop(mlir::linalg::GenericOp op, unsigned loop) const;
  /// The class of the dimension that a fold streams.
  unsigned ofStream(FoldOp fold) const;
  /// The class of a dimension of a tensor that the statements produce or carry.
  std::optional<unsigned> ofValue(mlir::Value value, unsigned dim) const;

  /// Whether a statement reads a tensor of another one along dimensions that it
  /// would make one (the sum of a tensor of queries and one of keys, which are
  /// the same tokens): it shares no iteration space with that statement.
  bool isCrossing(mlir::linalg::GenericOp op) const { return crossing.contains(op); }

private:
  unsigned find(unsigned node) const;
  void unite(unsigned a, unsigned b);
  unsigned add(unsigned count);
  void addGeneric(mlir::linalg::GenericOp op);
  void addFold(FoldOp fold);
  void uniteGeneric(mlir::linalg::GenericOp op);
  void uniteFold(FoldOp fold);
  void uniteThroughInputs(llvm::ArrayRef<mlir::Operation *> ops);
  bool hasConflict() const;
  void addValue(mlir::Value value);
  void uniteValues(mlir::Value a, mlir::Value b);

  llvm::SmallVector<unsigned> parents;
  llvm::DenseSet<mlir::Operation *> crossing;
  llvm::DenseMap<mlir::Operation *, unsigned> loops; // first node of an op
  llvm::DenseMap<mlir::Value, unsigned> values;      // first node of a tensor
  /// Blocks of streamed inputs: the streamed dimension and its fold.
  llvm::DenseMap<mlir::Value, std::pair<unsigned, mlir::Operation *>> blocks;
};

} // namespace attn

#endif
