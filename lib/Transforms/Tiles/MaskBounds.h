// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Projection of a mask onto the tile starts of a loop. For a formula in the
// tile start v and the lanes of a tile, MAY holds those v for which some lanes
// satisfy it (an over-approximation) and MUST those for which all lanes do (an
// under-approximation). A conjunction of atoms is projected exactly over the
// rationals by Fourier-Motzkin elimination of the lanes; disjunctions keep one
// interval per disjunct.

#ifndef ATTN_LIB_TRANSFORMS_TILES_MASKBOUNDS_H
#define ATTN_LIB_TRANSFORMS_TILES_MASKBOUNDS_H

#include "MaskPredicate.h"

namespace attn::tiles {

/// A half-space of one atom after its terms have been bounded:
/// iv * v + lanes . lane + uniform <= 0.
struct HalfSpace {
  int64_t iv = 0;
  llvm::SmallVector<int64_t, 2> lanes;
  mlir::AffineExpr uniform;
};

/// Tile starts between the greatest of `lower` and the least of `upper`
/// (exclusive), all multiples of the step from the loop's lower bound, if all
/// `conditions` (<= 0) and `flags` hold. Without bounds: the whole loop.
struct Interval {
  bool empty = false;
  llvm::SmallVector<mlir::AffineExpr, 2> lower, upper, conditions;
  /// The bounds before rounding to tiles, inclusive.
  llvm::SmallVector<mlir::AffineExpr, 2> first, last;
  llvm::SmallVector<mlir::Value, 1> flags;

  bool isWhole() const {
    return !empty && lower.empty() && upper.empty() && conditions.empty() && flags.empty();
  }
};

/// Projects predicates of one loop; emits bounds at a builder placed before
/// the loop.
class Projector {
public:
  Projector(LoopUniforms &uniforms, llvm::ArrayRef<int64_t> shape, mlir::OpBuilder &b);

  /// Contains only tiles on which the formula holds for all lanes.
  Interval must(const Predicate &p);

  /// Restricts `a` by `other`; notes where bounds exclude each other.
  void intersect(Interval &a, const Interval &other);

  /// The values [lo, hi) of an interval; a null bound is the loop's own.
  struct Range {
    mlir::Value lo, hi;
  };
  Range emit(const Interval &interval);
  Range emitWithLoopBounds(const Interval &interval);

  /// Ranges that contain every tile on which the formula holds for some lane.
  /// More than one means that there may be empty tiles between them.
  llvm::SmallVector<Range> emitMay(const Predicate &p);
  /// The least range that contains all pieces.
  Range emitHull(llvm::ArrayRef<Range> pieces);

  /// True if `index + size <= extent` in every iteration whose tile start
  /// satisfies one of the atoms that `p` implies on all lanes.
  bool impliesInBounds(const Predicate &p, const Linear &index, int64_t size, const Linear &extent);

  mlir::Value emitMax(llvm::ArrayRef<mlir::AffineExpr> exprs);
  mlir::Value emitMin(llvm::ArrayRef<mlir::AffineExpr> exprs);

private:
  enum class Mode { May, Must };
  /// One interval per disjunct; their union contains every non-empty tile.
  llvm::SmallVector<Interval> may(const Predicate &p);
  Interval mustHold(const Predicate &p);
  /// Merges pieces that share a bound.
  llvm::SmallVector<Range> emitPieces(llvm::ArrayRef<Interval> pieces);
  mlir::Value emitAreSmall(llvm::ArrayRef<mlir::Value> values);
  std::optional<HalfSpace> bound(const Linear &e, Mode mode);
  std::optional<HalfSpace> solveQuotient(const Linear &e, unsigned term, Mode mode);
  mlir::AffineExpr extreme(const Linear &e, bool least);
  void restrictBy(Interval &interval, const HalfSpace &h);
  void restrictByFlag(Interval &interval, const Predicate &p, Mode mode);
  HalfSpace allLanes(HalfSpace h);
  void eliminateLanes(llvm::SmallVectorImpl<HalfSpace> &system);
  Interval projectConjunction(llvm::ArrayRef<const Predicate *> leaves);
  Interval unite(const Interval &a, const Interval &b);
  mlir::AffineExpr symbolOf(mlir::Value value);
  mlir::Value emitAffine(llvm::ArrayRef<mlir::AffineExpr> exprs, bool isMin);
  mlir::Value emitConditions(const Interval &interval);
  mlir::AffineExpr simplify(mlir::AffineExpr e);

  LoopUniforms &uniforms;
  mlir::scf::ForOp loop;
  llvm::SmallVector<int64_t, 2> shape;
  mlir::OpBuilder &b;
  mlir::Location loc;
  mlir::AffineExpr lowerBound, upperBound;
  int64_t step;
};

} // namespace attn::tiles

#endif
