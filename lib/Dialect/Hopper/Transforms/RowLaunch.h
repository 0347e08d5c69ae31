// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One launch in which groups of threads hold rows: see hopper-form-row-programs.

#ifndef ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_ROWLAUNCH_H
#define ATTN_LIB_DIALECT_HOPPER_TRANSFORMS_ROWLAUNCH_H

#include "RowSpace.h"
#include "ThreadLaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/DenseSet.h"

namespace attn::hopper {

/// What a thread reads at a time, in bytes.
constexpr int64_t kPieceBytes = 16;
/// How rows lie in threads.
struct Form {
  int64_t threads = 0, rows = 1; ///< of a row in a CTA; of a CTA
  int64_t ctas = 1;              ///< that share a row
  int64_t pieces = 1, size = 8;  ///< of a thread, and elements of a piece
  int64_t capacity() const { return threads * ctas * pieces * size; }
  int64_t warps() const { return std::max<int64_t>(1, threads / kLanes); }
};

/// What a thread has of some memory: vectors that it has read, a value for each of its elements or
/// one for all, or a statement that is done for an element where that is used.
struct Content {
  llvm::SmallVector<mlir::Value> pieces, elements;
  const RowStatement *statement = nullptr;
  llvm::SmallVector<Content *> operands; ///< of the statement; null for those that it does not use
};

/// Whether neighbouring elements of a row are read and written as pieces of `size`.
bool hasPieces(const RowSpace &space, mlir::Value memref, int64_t size);

/// How a launch takes part in a division of rows.
struct Share {
  unsigned level = 0;        ///< which reductions it does
  bool isLast = true;        ///< and all that is stored
  mlir::Value parts, chunks; ///< of a row; chunks of a part; null where a group holds a row
  llvm::SmallVector<mlir::Value> partials; ///< by statement: results of parts, or null
};

/// Emits one launch.
class RowLaunch {
public:
  RowLaunch(const RowSpace &space, const Form &form, Share share, mlir::ImplicitLocOpBuilder &b)
      : space(space), form(form), share(std::move(share)), b(b) {}

  /// The sizes of rows' dimensions, and the number of elements of a row.
  mlir::gpu::LaunchOp emit(llvm::ArrayRef<mlir::Value> rowSizes, mlir::Value length);

private:
  mlir::Value index(int64_t value) { return mlir::arith::ConstantIndexOp::create(b, value); }
  mlir::Value i32(int64_t value) { return mlir::arith::ConstantIntOp::create(b, value, 32); }
  mlir::Value toIndex(mlir::Value value) {
    return mlir::arith::IndexCastOp::create(b, b.getIndexType(), value);
  }
  mlir::Value toI32(mlir::Value value) {
    return mlir::arith::IndexCastOp::create(b, b.getI32Type(), value);
  }
  mlir::Value add(mlir::Value a, mlir::Value c) { return mlir::arith::AddIOp::create(b, a, c); }
  mlir::Value sub(mlir::Value a, mlir::Value c) { return mlir::arith::SubIOp::create(b, a, c); }
  mlir::Value mul(mlir::Value a, mlir::Value c) { return mlir::arith::MulIOp::create(b, a, c); }
  mlir::Value both(mlir::Value a, mlir::Value c) {
    return !a ? c : !c ? a : mlir::arith::AndIOp::create(b, a, c);
  }
  mlir::Value compare(mlir::arith::CmpIPredicate predicate, mlir::Value a, mlir::Value c) {
    return mlir::arith::CmpIOp::create(b, predicate, a, c);
  }

  /// Reductions that meet in this launch, in order.
  llvm::SmallVector<const RowStatement *> ownReductions() const;

  /// Reductions whose threads meet in shared memory.
  unsigned countMeetings() const;

  void createLaunch();

  /// The row, the part of it and the thread of the row.
  void findPlace();

  mlir::Value coordinateOf(Dim dim) const;

  /// Elements in front of the row's first one, from a multiple of a piece's size on.
  mlir::Value findMisalignment(mlir::Value memref);

  /// Pieces begin at multiples of their size in the first memory that has pieces; there, and where
  /// rows begin alike, they are read and written whole.
  void findColumns(mlir::Value length);

  /// Elements from a piece of a thread to its next one, a power of two.
  int64_t step() const { return form.threads * form.ctas * form.size; }

  /// The elements from `start` on, which is a multiple of a piece from the first one.
  void enterChunk(mlir::Value start);

  /// How many of the thread's pieces begin at `last` or before.
  mlir::Value countPieces(mlir::Value last);

  int64_t placeOf(size_t e) const {
    return int64_t(e) / form.size * step() + int64_t(e) % form.size;
  }

  /// Whether element e is one of the row.
  mlir::Value isInside(size_t e);
  mlir::Value columnOf(size_t e) { return add(firstColumn, index(placeOf(e))); }

  /// Whether a piece is one of the first `count`; only the first one may begin in front of the row.
  mlir::Value isAmong(int64_t piece, mlir::Value count, mlir::Value begins);
  /// Whether all of a piece is in the row, or some of it.
  mlir::Value isWhole(int64_t piece) { return isAmong(piece, numWhole, beginsInside); }
  mlir::Value isSome(int64_t piece) { return isAmong(piece, numSome, {}); }

  llvm::SmallVector<mlir::Value> indicesOf(mlir::Value memref, mlir::Value column);

  mlir::Value zeroOf(mlir::Type type) {
    return mlir::arith::ConstantOp::create(b, b.getZeroAttr(type));
  }

  llvm::MaybeAlign alignmentOf(mlir::Type element) const;

  mlir::Value loadElement(mlir::Value memref, size_t e);

  /// The memory of a view as one row, and where a row of it starts there.
  std::pair<mlir::Value, mlir::Value> flatten(mlir::Value memref);

  /// Reads pieces; of one that is not all in the row, what is beside it too, where that is memory
  /// of the same view.
  Content loadColumns(mlir::Value memref);

  void storeElement(mlir::Value memref, size_t e, mlir::Value value);

  void storeColumns(mlir::Value memref, const Content &content);

  /// What a thread has of an operand.
  Content *contentOf(mlir::Value operand);
  Content *keep(Content content);

  mlir::Value get(const Content &content, size_t e);

  llvm::SmallVector<Content *> operandsOf(const RowStatement &statement);

  /// A value of the host that follows from memory of the device is computed by the thread.
  mlir::Value sunk(mlir::Value value);

  /// An element divided by a value of the row: times its inverse, which is computed once. Both are
  /// scaled by a power of two where the inverse would leave the numbers.
  mlir::Value emitQuotient(mlir::Operation &inner, const RowStatement &statement,
                           llvm::ArrayRef<Content *> operands, mlir::IRMapping &mapping);

  /// The statement's body for one element (or the row): the value that it yields, or its term.
  mlir::Value emitBody(const RowStatement &statement, llvm::ArrayRef<Content *> operands, size_t e);

  mlir::Value combine(const RowStatement &statement, mlir::Value a, mlir::Value c);

  mlir::Value neutralOf(const RowStatement &statement);

  /// What the thread's elements come to, after `before`.
  mlir::Value reduceThread(const RowStatement &statement, mlir::Value before);

  mlir::Value shuffle(mlir::Value value, int64_t distance);

  /// Over `count` neighbouring lanes: all of them get the same bits.
  mlir::Value reduceLanes(const RowStatement &statement, mlir::Value value, int64_t count);

  /// Over all threads of a row: lanes, then warps (of all CTAs of a cluster) through shared
  /// memory, of which each reduction has its own.
  mlir::Value reduceGroup(const RowStatement &statement, mlir::Value value);

  /// The result of a reduction: what was there before, with what the row comes to.
  void setReduced(const RowStatement &statement, mlir::Value total);

  void emitPlain(const RowStatement &statement);

  /// Stores what is seen outside, the last content of each.
  void storeAllColumns();

  void storeRows();

  /// A group holds a row: statements in order. What was read is what is kept from one meeting to
  /// the next, not what follows from it.
  void emitWhole();

  /// Results of the reductions of earlier launches, and what follows from them for the row.
  void readPartials();

  /// All statements in order: those of elements for one chunk, into `sums` where they are reduced
  /// here, if `ofColumns`. Reductions of earlier launches have their totals.
  void emitDivided(bool ofColumns, llvm::MutableArrayRef<mlir::Value> sums);

  void emitChunks();

  const RowSpace &space;
  const Form form;
  const Share share;
  mlir::ImplicitLocOpBuilder &b;
  mlir::gpu::LaunchOp launch;
  mlir::Operation *firstOp = nullptr; ///< of the launch
  llvm::SmallVector<mlir::Value> sizes, coordinates;
  mlir::Value lastRow, rowNumber, rowOfCta, part, isRow, isFirst, isFirstPart, warp, lane;
  mlir::Value rowLength, shift, origin, firstColumn;
  mlir::Value firstPiece, low, high, numWhole, numSome; ///< in i32
  mlir::Value beginsInside;
  llvm::DenseSet<mlir::Value> aligned;                ///< memory with pieces
  llvm::DenseMap<mlir::Value, mlir::Value> isAligned; ///< where rows may begin differently
  llvm::DenseMap<mlir::Value, Content *> contents;
  std::vector<std::unique_ptr<Content>> kept;
  llvm::DenseMap<mlir::Value, mlir::Value> sunkValues;
  llvm::DenseMap<size_t, mlir::Value> totals;
  llvm::DenseMap<mlir::Value, std::pair<mlir::Value, mlir::Value>>
      inverses; ///< of divisors: scale, inverse
  bool usesCluster = false;
  unsigned numMeetings = 0;
};

} // namespace attn::hopper

#endif
