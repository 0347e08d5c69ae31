// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A cascade of reductions over one dimension of a nest: found, proved to need
// one pass only, and fused into a fold. Used by attn-fuse-reductions.

#ifndef ATTN_LIB_TRANSFORMS_NEST_CASCADE_H
#define ATTN_LIB_TRANSFORMS_NEST_CASCADE_H

#include "DimClasses.h"
#include "attn/Utils/Statement.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace attn {

/// A reduction over the fused dimension and what its state needs.
struct Carried {
  mlir::linalg::GenericOp op;
  Reduction reduction;
  /// Pivots (running maxima) whose growth scales this state.
  llvm::SmallVector<mlir::Value> pivots;
  /// Pivots taken out of the sum, with their exponents.
  llvm::SmallVector<std::pair<mlir::Value, double>> factors;
  /// What the fold starts from: the statement's own start value, or the neutral
  /// element where that joins at the end.
  mlir::Value start;
};

/// One cascade over one dimension of the nest: found, proved, then fused.
class Cascade {
public:
  /// What belongs to the cascade of a reduction: the statements that tensors of
  /// the dimension connect with it, or also those that reduced values do.
  enum class Reach { Tensors, Returns };

  /// Sums of its values along another dimension, which depend on two loops:
  /// they are left to other cascades; belong to it, with what follows from
  /// them, and the loop of that other dimension can only be inside; or belong
  /// to it without what follows, so that parts of that loop may be added up in
  /// any order.
  enum class OtherSums { Left, Finished, Partial };

  Cascade(mlir::Block &block, const DimClasses &classes, mlir::linalg::GenericOp root,
          unsigned loop, Reach reach, OtherSums kept)
      : block(block), classes(classes), dim(classes.ofLoop(root, loop)), kept(kept) {
    collect(root, reach);
  }

  /// What fusing would save: an intermediate that spans the dimension and is
  /// reduced along it, larger than anything that is read (a product of two
  /// tensors); any such intermediate that is not itself a sum; a second pass,
  /// because a reduced value comes back along the dimension; nothing, but that a
  /// lone sum of what is read gets tiles.
  enum class Gain { Product, Stored, Returned, Tiles };
  bool isCandidate(Gain gain);
  /// Whether there is a product that no statement reduces along the dimension
  /// alone, of which tiles are mapped: its stores, or sums along others
  /// besides.
  bool isMappedProduct(mlir::linalg::GenericOp root);
  /// Proves that one pass suffices; remarks at the offender otherwise.
  mlir::LogicalResult prove();
  /// Statements that sum values of the cascade along another dimension; in it
  /// or not.
  llvm::ArrayRef<mlir::linalg::GenericOp> getOtherSums() const { return otherSums; }
  /// The statements that `op` needs, of the cascade's, its reductions excluded.
  llvm::SetVector<mlir::Operation *> getSlice(mlir::linalg::GenericOp op);
  bool contains(mlir::linalg::GenericOp op) const { return isMember(op); }
  /// The statements of the cascade.
  llvm::ArrayRef<mlir::linalg::GenericOp> getMembers() const { return members; }
  /// The statements that reduce the dimension.
  llvm::SmallVector<mlir::linalg::GenericOp> getReductions() {
    return llvm::filter_to_vector(members, [&](mlir::linalg::GenericOp op) { return reduces(op); });
  }
  /// Replaces the cascade by a fold, and a second one for mapped results.
  mlir::LogicalResult fuse();

private:
  std::optional<unsigned> loopOf(mlir::linalg::GenericOp op) const;
  bool spans(mlir::linalg::GenericOp op) const { return loopOf(op).has_value(); }
  bool reduces(mlir::linalg::GenericOp op) const;
  bool isMember(mlir::linalg::GenericOp op) const { return op && memberSet.contains(op); }
  void collect(mlir::linalg::GenericOp root, Reach reach);
  bool isPreparation(mlir::linalg::GenericOp op);
  bool isLoneSum() const;
  std::optional<unsigned> getRowDim(mlir::linalg::GenericOp op) const;
  bool isNoLarger(mlir::linalg::GenericOp op) const;
  bool readsWhole(mlir::linalg::GenericOp op);
  bool isOutside(mlir::Operation *user) const;
  llvm::DenseSet<unsigned> getOtherReduced(mlir::linalg::GenericOp op) const;
  llvm::DenseSet<unsigned> getStreamedDims() const;
  bool isAfter(mlir::Operation *op) const { return afterwards.contains(op); }
  bool feedsMember(mlir::Value value, llvm::DenseSet<mlir::Operation *> &visited) const;
  mlir::LogicalResult proveStatementsBetween();
  mlir::LogicalResult refuse(mlir::linalg::GenericOp op, const llvm::Twine &why,
                             mlir::Operation *reason, mlir::linalg::GenericOp source);
  bool hasDimensionsOf(mlir::linalg::GenericOp state, mlir::linalg::GenericOp pivot);
  mlir::LogicalResult provePivot(mlir::Value pivot, bool asShift, bool report);
  mlir::LogicalResult findMaps();
  mlir::LogicalResult findStreams(llvm::ArrayRef<mlir::linalg::GenericOp> statements,
                                  llvm::MapVector<mlir::Value, int64_t> &streams);
  bool needsReduced(const llvm::SetVector<mlir::Operation *> &slice) const;
  void sliceOf(mlir::linalg::GenericOp op, llvm::SetVector<mlir::Operation *> &slice);
  llvm::SmallVector<mlir::linalg::GenericOp>
  ordered(const llvm::SetVector<mlir::Operation *> &slice);
  FoldOp createFold(mlir::ImplicitLocOpBuilder &b,
                    llvm::ArrayRef<mlir::linalg::GenericOp> statements,
                    const llvm::MapVector<mlir::Value, int64_t> &streams,
                    llvm::MutableArrayRef<Carried> carried,
                    llvm::ArrayRef<mlir::linalg::GenericOp> mapped, mlir::IRMapping mapping);
  void cloneStatement(mlir::ImplicitLocOpBuilder &b, mlir::linalg::GenericOp op, FoldOp fold,
                      mlir::IRMapping &mapping);
  mlir::Value rescaling(mlir::ImplicitLocOpBuilder &b, mlir::Value from, mlir::Value to);
  mlir::Value scaleBy(
      mlir::ImplicitLocOpBuilder &b, mlir::linalg::GenericOp like, mlir::Value state,
      mlir::linalg::GenericOp pivotOp, mlir::Value factor,
      llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Location, mlir::Value, mlir::Value)>
          apply);
  mlir::Value guard(mlir::ImplicitLocOpBuilder &b, mlir::Value pivot);
  void buildMerge(mlir::ImplicitLocOpBuilder &b, FoldOp fold);
  mlir::Value combine(mlir::ImplicitLocOpBuilder &b, const Carried &state, mlir::Value left,
                      mlir::Value right);
  void startNeutral(mlir::ImplicitLocOpBuilder &b, Carried &state);
  llvm::SmallVector<mlir::linalg::GenericOp>
  findStatements(const llvm::SetVector<mlir::Operation *> &slice);
  mlir::IRMapping replaceReductions(mlir::ImplicitLocOpBuilder &b, FoldOp fold,
                                    llvm::ArrayRef<mlir::linalg::GenericOp> statements);
  void replaceMapped(mlir::ValueRange maps, FoldOp fold);

  mlir::Block &block;
  const DimClasses &classes;
  unsigned dim;
  OtherSums kept;
  bool keepsSums() const { return kept != OtherSums::Left; }
  llvm::SmallVector<mlir::linalg::GenericOp> members; // in program order
  llvm::DenseSet<mlir::Operation *> memberSet;
  llvm::SmallVector<mlir::linalg::GenericOp> otherSums;
  llvm::DenseSet<mlir::Operation *> afterwards;      // need results of all of it
  llvm::SmallVector<Carried> carried;                // its reductions, in order
  llvm::SmallVector<mlir::linalg::GenericOp> mapped; // statements whose whole result is needed
  llvm::DenseSet<mlir::Value> factored;              // pivots that leave the sums
  llvm::DenseSet<mlir::Value> guardedFactors;        // of them, those compared with zero
  llvm::DenseSet<mlir::Value> running;               // pivots whose running value is used
};

/// Whether a statement is the guard m == -inf ? 0 : m.
bool isGuard(mlir::linalg::GenericOp op);

/// The size of a tensor's dimension without keeping the tensor alive.
mlir::OpFoldResult sizeOf(mlir::ImplicitLocOpBuilder &b, mlir::Value tensor, unsigned index);

} // namespace attn

#endif
