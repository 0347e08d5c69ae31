// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Builds the table of a mask in front of a fold loop, and the loop over its row.

#ifndef ATTN_LIB_TRANSFORMS_TILES_TABLEBUILDER_H
#define ATTN_LIB_TRANSFORMS_TILES_TABLEBUILDER_H

#include "TablePlan.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn::tiles {

/// An equality that must hold for any element, of a vector that is the same for
/// the whole loop and one that is loaded for each tile.
struct Equality {
  mlir::Value rows, columns;
  /// Tables of the columns' extremes: positions in the plan's dimensions, and
  /// the tables, which have the tile as a dimension more. Null if there are
  /// none.
  llvm::SmallVector<unsigned> dims;
  mlir::Value lows, highs;
  /// Of a row of the table, and of a tile.
  mlir::Value lowRow, highRow, lowColumn, highColumn;
};

class TableBuilder {
public:
  TableBuilder(Plan &plan, LoopUniforms &uniforms)
      : plan(plan), loop(plan.loop), b(plan.top), loc(loop.getLoc()), uniforms(uniforms) {}

  /// The loop over a row of the table, in the place of the plan's.
  mlir::scf::ForOp build();

private:
  mlir::Value index(int64_t value) { return mlir::arith::ConstantIndexOp::create(b, loc, value); }

  mlir::OpFoldResult ceilDivide(mlir::OpFoldResult lower, mlir::OpFoldResult upper,
                                mlir::OpFoldResult step);

  mlir::OpFoldResult outside(mlir::OpFoldResult bound);

  void buildTable();

  void collectEqualities();

  /// The extremes of the columns are the same for all rows of the table that do
  /// not differ in what the columns depend on.
  void buildExtremes(Equality &equality);

  /// The variable of a loop at a place of the table.
  void mapVariable(const Dimension &dim, mlir::Value place, mlir::IRMapping &mapping);

  /// Where a tile starts, by its number.
  mlir::Value startOf(mlir::Value tile);

  /// A program for each entry, and one that puts it behind those in front of it.
  void buildAtOnce();
  mlir::Value buildEntries();
  mlir::scf::ForallOp createForall(
      llvm::ArrayRef<mlir::Value> outs,
      llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::ValueRange, mlir::ValueRange)> emit);

  /// One row: the tiles of one iteration of the enclosing loops.
  void buildRow(mlir::scf::ForallOp forall);

  /// The loop over the tiles that the readable part of the masks leaves.
  mlir::scf::ForOp buildTiles(mlir::Value row, mlir::ValueRange places, mlir::IRMapping &mapping);

  using Comparison = mlir::arith::CmpIPredicate;

  mlir::Value compare(Comparison comparison, mlir::Value x, mlir::Value y) {
    return mlir::arith::CmpIOp::create(b, loc, comparison, x, y);
  }
  /// One may be null: nothing is known, or asked for.
  mlir::Value both(mlir::Value x, mlir::Value y) {
    return !x ? y : !y ? x : mlir::arith::AndIOp::create(b, loc, x, y).getResult();
  }
  mlir::Value either(mlir::Value x, mlir::Value y) {
    return mlir::arith::OrIOp::create(b, loc, x, y);
  }
  /// What is the same for all tiles, once per tile where there are several.
  mlir::Value like(mlir::Value tiles, mlir::Value value);

  mlir::Value number(int32_t value) {
    return mlir::arith::ConstantIntOp::create(b, loc, value, 32);
  }

  /// Where a tile's extremes are in their tables.
  llvm::SmallVector<mlir::Value> placeOf(const Equality &equality, mlir::ValueRange places,
                                         mlir::Value tile);

  /// Some tiles by their numbers, and the extremes of their columns: vectors.
  struct Several {
    mlir::Value numbers, lows, highs;
  };
  Several readSeveral(const Equality &equality, mlir::ValueRange places, mlir::Value first,
                      int64_t count);

  // Of the extremes of a tile's columns, or of several tiles' in vectors:

  /// Whether their range meets that of the rows.
  mlir::Value emitMeets(const Equality &equality, mlir::Value low, mlir::Value high);

  /// Whether rows and columns are one number.
  mlir::Value emitIsOne(const Equality &equality, mlir::Value low, mlir::Value high);

  /// Whether rows and columns have an extreme in common.
  mlir::Value emitShares(const Equality &equality, mlir::Value low, mlir::Value high);

  /// Where each tile between the first and the last one is listed without a
  /// test of its elements, as most are, all are listed in vectors, and the loop
  /// has nothing to do.
  void listAtOnce(mlir::scf::ForOp tiles, mlir::ValueRange places, mlir::IRMapping &mapping,
                  const Projector::Range &sureRange);

  /// From the first tile whose range meets that of the rows to the last one:
  /// all ranges at once, in vectors.
  void restrictByExtremes(mlir::scf::ForOp tiles, const Equality &equality,
                          mlir::ValueRange places);

  /// Equality of loaded values is impossible where their ranges are disjoint.
  mlir::Value emitPretest(mlir::scf::ForOp tiles, mlir::ValueRange places,
                          mlir::IRMapping &mapping);

  /// The masks hold everywhere if all values that must be equal are one value,
  /// and the tile lies where the rest of the masks holds everywhere. Null if
  /// that cannot be told so, or without tables of extremes; else `range` is
  /// where such tiles start.
  mlir::Value emitPosttest(mlir::scf::ForOp tiles, mlir::IRMapping &mapping,
                           Projector::Range &range);

  /// Whether rows and columns of a tile have an extreme in common, which is then
  /// a number of both: as far as the equality goes, the tile is not empty. Where
  /// the rest of the masks is affine, and bounds the tiles, such a tile is taken
  /// without a test of its elements. Null where several equalities must hold for
  /// the same pair.
  mlir::Value emitSharedExtreme(mlir::IRMapping &mapping);

  /// Whether all of a vector lies in the memory that it was read from; null if
  /// that is known.
  mlir::Value emitIsInside(mlir::Value vector, mlir::IRMapping &mapping);

  /// The dimension of memory along which a vector is read.
  static unsigned getDimOfRead(mlir::vector::TransferReadOp read) {
    return llvm::cast<mlir::AffineDimExpr>(read.getPermutationMap().getResult(0)).getPosition();
  }

  static mlir::Value getStartOfRead(mlir::vector::TransferReadOp read) {
    return read.getIndices()[getDimOfRead(read)];
  }

  /// Where the memory ends.
  mlir::Value emitEndOfRead(mlir::vector::TransferReadOp read, mlir::IRMapping &mapping);

  /// The number of a tile by its start.
  mlir::Value tileOf(mlir::Value start);

  /// The number of entries and the row, with one more entry.
  llvm::SmallVector<mlir::Value> append(mlir::scf::ForOp tiles, mlir::Value full);

  /// Whether the masks keep any (all) elements.
  mlir::Value reduceKeeps(mlir::vector::CombiningKind kind, llvm::ArrayRef<Condition> keeps);

  /// Appends the tile to the row if no mask is false everywhere.
  mlir::ValueRange emitEntry(mlir::scf::ForOp tiles, llvm::ArrayRef<Condition> keeps);

  /// Candidates end where the affine part of the masks ends.
  void restrictTiles(mlir::scf::ForOp tiles, llvm::ArrayRef<Condition> keeps);

  /// The fold loop over its row of the table.
  mlir::scf::ForOp buildLoop();

  mlir::IRMapping copyBody(mlir::Block *block, mlir::scf::ForOp run, mlir::Value start);

  Plan &plan;
  mlir::scf::ForOp loop;
  mlir::OpBuilder b;
  mlir::Location loc;
  LoopUniforms &uniforms; // of the loop, with which the masks were read
  mlir::IRMapping outer;  // values computed in front of the loops
  llvm::SmallVector<Equality> equalities;
  llvm::SmallVector<mlir::OpFoldResult> counts;
  mlir::OpFoldResult capacity;
  mlir::Value lower, upper, list, lengths;
};

} // namespace attn::tiles

#endif
