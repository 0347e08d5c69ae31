// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Statements to vector code on tiles.
//
// A tile value is a vector whose dimensions are dimensions of the nest, in one
// canonical order; a scalar spans none. Values are broadcast as late as they
// are combined, so that what depends on the row alone is computed per row.

#ifndef ATTN_LIB_TRANSFORMS_NEST_TILEEMITTER_H
#define ATTN_LIB_TRANSFORMS_NEST_TILEEMITTER_H

#include "DimClasses.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Utils/Statement.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include <array>

namespace attn {

/// What a dimension of the nest is in the tile program.
struct TileDim {
  LoopRole role = LoopRole::Whole;
  /// The size, where it is static.
  std::optional<int64_t> known;
  mlir::OpFoldResult size;
  /// Elements of a tile; 1 for a worker or loop dimension.
  int64_t tile = 1;
  /// Whether tiles never reach beyond the dimension's end.
  bool exact = false;
  /// The tile's first element.
  mlir::Value base;
  /// Of the streamed dimension, where a worker has a part of it: the part's
  /// first element and its length.
  mlir::Value origin, length;
  /// The streamed dimension goes one index at a time.
  bool isSingle = false;
  bool isScalar() const { return role == LoopRole::Worker || role == LoopRole::Around || isSingle; }
};

/// A value of a statement's body on one tile.
struct Tile {
  mlir::Value value;
  /// Dimensions of the vector, in canonical order; empty for a scalar.
  llvm::SmallVector<unsigned, 2> dims;
  /// What lanes beyond the end of the streamed dimension (first) and of the
  /// rows (second) hold.
  enum class Tail { Unknown, Finite, Zero, NegativeInfinity };
  std::array<Tail, 2> tails = {Tail::Unknown, Tail::Unknown};
  /// The dimension whose index this is, where it is just that.
  std::optional<unsigned> indexOf;
  /// The index counts from the tile's first element, not from the dimension's.
  bool local = false;
};

class TileEmitter {
public:
  TileEmitter(mlir::ImplicitLocOpBuilder &b, const DimClasses &classes) : b(b), classes(classes) {}

  /// Dimensions in canonical order, by class.
  llvm::MapVector<unsigned, TileDim> dims;
  /// Tiles of tensors that the nest produces or carries.
  llvm::DenseMap<mlir::Value, Tile> tiles;
  /// Tensors that stand for others (blocks of a streamed input).
  llvm::DenseMap<mlir::Value, mlir::Value> sources;
  /// Scalars of the nest (the fold's offset).
  llvm::DenseMap<mlir::Value, mlir::Value> scalars;
  /// What sums start from, where it is not their init.
  llvm::DenseMap<mlir::Operation *, Tile> starts;
  /// Sums that are added to a table in memory, a tensor of those dimensions of
  /// which a worker has more than one index: the tile of their init and of
  /// their result holds that tensor.
  llvm::SetVector<mlir::Operation *> tables;
  /// Tiles of rows that are whole branch around the end of the rows.
  bool branchesRowTails = false;
  /// Tiles are read from the last dimensions of tensors, for matrix instructions.
  bool readsLastDims = false;
  /// Where code common to all workers goes.
  mlir::Operation *outside = nullptr;

  /// Emits a statement on the current tile; its result is then in `tiles`.
  mlir::LogicalResult emit(mlir::linalg::GenericOp op);
  /// What a reduction starts from.
  mlir::FailureOr<Tile> startOf(mlir::linalg::GenericOp op);
  /// The vector of `tile` spanning exactly `target`.
  mlir::Value toVector(const Tile &tile, llvm::ArrayRef<unsigned> target, mlir::Type elementType);
  mlir::VectorType vectorType(llvm::ArrayRef<unsigned> span, mlir::Type elementType);
  /// The classes of a tensor's dimensions that are not scalar, canonical order.
  llvm::SmallVector<unsigned, 2> spanOf(mlir::Value tensor);
  /// Reads the tile of `tensor` whose dimension d runs over class `dimClasses[d]`
  /// (nothing: `fixed[d]`, or index 0 where there is no `fixed`).
  Tile read(mlir::Value tensor, llvm::ArrayRef<std::optional<unsigned>> dimClasses,
            llvm::ArrayRef<mlir::Value> fixed = {});
  /// Writes `tile` to `tensor`, whose first element is the tile's in every
  /// dimension but the streamed one; returns the new tensor.
  mlir::Value write(const Tile &tile, mlir::Value tensor, llvm::ArrayRef<unsigned> dimClasses);
  /// Adds `tile` to `tensor`, as `write` would write it, where others may add
  /// too; the tile has the tensor's last dimensions.
  mlir::FailureOr<mlir::Value> add(const Tile &tile, mlir::Value tensor,
                                   llvm::ArrayRef<unsigned> dimClasses);
  llvm::SmallVector<unsigned, 2> sorted(llvm::ArrayRef<unsigned> span);

private:
  struct Body {
    mlir::linalg::GenericOp op;
    llvm::DenseMap<mlir::Value, Tile> values;
  };
  mlir::FailureOr<Tile> value(Body &body, mlir::Value scalar);
  mlir::FailureOr<Tile> apply(mlir::Operation *op, llvm::ArrayRef<Tile> in);
  mlir::FailureOr<Tile> index(Body &body, mlir::linalg::IndexOp op);
  Tile indexTile(unsigned dim);
  mlir::Value constant(mlir::TypedAttr attr);

  //===--- TileAccess.cpp ---===//
  llvm::SmallVector<mlir::Value> indicesOf(llvm::ArrayRef<unsigned> dimClasses);
  mlir::FailureOr<Tile> argument(Body &body, mlir::BlockArgument argument);
  mlir::LogicalResult checkOutside(mlir::Operation *reader, mlir::Value tensor);
  mlir::FailureOr<Tile> size(Body &body, mlir::tensor::DimOp op);
  mlir::FailureOr<Tile> extract(Body &body, mlir::Operation *op);
  mlir::FailureOr<Tile> gather(mlir::Operation *op, mlir::Value tensor,
                               llvm::ArrayRef<Tile> indices);

  //===--- TileReductions.cpp ---===//
  mlir::FailureOr<Tile> reduce(Body &body, const Reduction &reduction);
  mlir::FailureOr<bool> contract(Body &body, mlir::arith::MulFOp product,
                                 llvm::ArrayRef<unsigned> reduced, const Tile &start, Tile &result);
  mlir::FailureOr<Tile> scatter(Body &body, const ScatterSum &sum);
  std::optional<unsigned> tailDim(unsigned which);
  std::array<bool, 2> reducedTails(mlir::linalg::GenericOp op);
  Tile withTails(const Tile &term, Reduction::Monoid monoid, std::array<bool, 2> which);
  Tile withTail(const Tile &term, Reduction::Monoid monoid, unsigned which);
  Tile settleTails(mlir::linalg::GenericOp op, const Tile &tile);

  mlir::ImplicitLocOpBuilder &b;
  const DimClasses &classes;
};

} // namespace attn

#endif
