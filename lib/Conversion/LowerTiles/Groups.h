// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A group is what one loop nest computes: sinks over one domain whose operands
// are evaluated lazily inside it, or one contraction as a register-blocked
// kernel. See Plan.h for how ops are gathered into groups.

#ifndef ATTN_LIB_CONVERSION_LOWERTILES_GROUPS_H
#define ATTN_LIB_CONVERSION_LOWERTILES_GROUPS_H

#include "Nest.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include <memory>

namespace attn::tiles {

/// What a nest leaves behind.
struct Sink {
  enum Kind { Store, Copy, Reduce, Write, Extract } kind;
  /// Store: the tile to keep. Copy: the tile to keep with other lanes too.
  /// Write: the tile to write. Reduce, Extract: the result.
  mlir::Value value;
  /// The reduction, write or extraction; else null.
  mlir::Operation *op = nullptr;
  /// Where a Store, a Copy or a Reduce of a tile goes.
  Buffer target;
};

/// The operands of a contraction that fits the register-blocked kernel:
/// result[row, lane] = acc[row, lane] + sum_k rows[row, k] * lanes[k, lane].
struct Kernel {
  mlir::vector::ContractionOp op;
  mlir::Value lanes, rows;
  int laneClass = -1, rowClass = -1, sumClass = -1;
};

/// The kernel form of a contraction, or a null op where it has none.
Kernel matchKernel(DimClasses &classes, mlir::vector::ContractionOp op);

/// The read of an operand of a kernel, where its elements can be taken from
/// memory as they are; else null.
mlir::vector::TransferReadOp matchDirectRead(DimClasses &classes, mlir::Value operand);

/// Whether a number of its row or column is taken from each element of a result as it is. Equal
/// sums cancel then where they have the same bits: both are added up in the same order.
bool mayCancel(DimClasses &classes, mlir::vector::ContractionOp op);

/// Where the lanes operand comes from. Has to be asked before any code is
/// written: the answer depends on what is written to memory.
LaneSource findLaneSource(DimClasses &classes, const Kernel &kernel);

struct Group {
  enum Kind { Loops, Contraction, Scatter, Region, View, Pack } kind = Loops;
  /// The group's code goes before this op.
  mlir::Operation *position = nullptr;
  llvm::SmallVector<int> domain;
  llvm::SmallVector<Sink> sinks;
  Kernel kernel;
  /// The reads of operands that the kernel uses where they lie in memory.
  mlir::Value rowsView, lanesView;
  /// What a Pack makes. Of a Contraction of a matrix unit: its operands; rows from memory have
  /// none.
  Pairs pairs, rowPairs;
  /// Where a tile of AMX waits for what is added to it, 16 x 16.
  mlir::Value tile;
  Buffer result;
  /// The reads whose views this group, or an op in its region, uses. Of a View:
  /// the one that it makes.
  llvm::SmallVector<mlir::Value> views;
  /// The class to vectorise, where it is not that of the domain.
  int lane = -1;
  int laneOf(DimClasses &classes) const { return lane >= 0 ? lane : classes.lane(domain); }
  /// Not joined by other sinks.
  bool closed = false;
  /// Lower-dimensional groups to be computed just before this one.
  llvm::SmallVector<std::unique_ptr<Group>> preludes;
};

/// The values that a sink evaluates at each point of its domain, and those it
/// evaluates outside the reduced loops.
llvm::SmallVector<mlir::Value> innerOperands(const Sink &sink);
llvm::SmallVector<mlir::Value> outerOperands(const Sink &sink);

/// The classes that a sink reduces.
llvm::SmallVector<int> reducedClasses(DimClasses &classes, const Sink &sink);

/// How memory is walked: along the lanes of a nest, or not contiguously at all.
/// Other values are the class to walk along instead, in a transposing nest.
enum : int { alongLanes = -1, byElement = -2 };

/// How a nest with lanes `lane` has to walk the memory of a transfer.
int memoryWalk(DimClasses &classes, mlir::VectorTransferOpInterface transfer, int lane);

/// The same for the nest of a sink, by the first read of its whole domain that
/// it evaluates, or by its write. A buffer counts as memory.
int memoryWalk(DimClasses &classes, const Sink &sink, int lane,
               const llvm::DenseMap<mlir::Value, Buffer> &buffers);

/// Gives scratch for a tile, with the classes in the order of `layout`.
using AllocateFn = llvm::function_ref<Buffer(mlir::Value, llvm::ArrayRef<int> layout)>;

/// Writes the code of a group. Scalars produced replace the results of the ops.
void emitLoops(Context &context, Group &group);
void emitTransposition(Context &context, Group &group, int walk);
void emitContraction(Context &context, Group &group);

/// Scratch for the sums of one tile: a table that is small enough is added to
/// once per tile, which keeps rounding errors small, and lies several times
/// beside itself, so that neighbours which add to the same element need not wait
/// for each other. The type of the scratch, or null where there is none.
mlir::MemRefType scatterScratchType(DimClasses &classes, attn::ScatterAddOp op);
/// `scratch` has that type, or is null.
void emitScatter(Context &context, Group &group, mlir::Value scratch);

/// The operands of a contraction for a matrix unit, without one if it has to be computed in f32.
MatrixOperands matchMatrixOperands(DimClasses &classes, const Kernel &kernel, MatrixUnit unit);

/// A read of bf16 along the sum can be used where it lies in memory; else null.
mlir::vector::TransferReadOp matchRowsInMemory(DimClasses &classes, const Kernel &kernel,
                                               mlir::Value rows);

/// The tile that is evaluated for a tile as pairs: what is rounded to bf16 by it is f32.
mlir::Value getPairsSource(const Pairs &pairs);

/// The scratch of a tile as pairs.
mlir::MemRefType getPairsType(DimClasses &classes, const Pairs &pairs);
/// Fills it.
void emitPairs(Context &context, Group &group, mlir::Value scratch);

/// The shuffles of two vectors of `width` elements that interleave their lower, and their upper
/// halves.
struct Interleaving {
  llvm::SmallVector<int64_t> low, high;
};
Interleaving getInterleaving(int64_t width);

/// `total` and a shorter vector, which joins its first elements.
mlir::Value addToFirst(mlir::OpBuilder &b, mlir::Location loc, mlir::Value total, mlir::Value part);

/// Interleaves W vectors of W elements, W a power of two, to their transposition.
llvm::SmallVector<mlir::Value> transposeBlock(mlir::OpBuilder &b, mlir::Location loc,
                                              llvm::SmallVector<mlir::Value> rows);

/// Makes what a read would load usable as a memref, in the order of dimensions
/// that it has in memory.
Buffer emitView(Context &context, mlir::vector::TransferReadOp read, mlir::Operation *position,
                AllocateFn allocate);

/// Positions of a class as runs of equal vectors: `count` loop steps of
/// `vectors` vectors of `width` elements from `begin` on.
struct LaneRun {
  int64_t begin, count, vectors, width;
};
llvm::SmallVector<LaneRun> laneRuns(int64_t extent, int64_t width, int64_t vectors);

/// Terms of a sum of products that are added up before they join the rest, or 0
/// for all: rounding errors grow with the length of a running sum, and totals
/// that leave the registers once in a while cost little. A function of the
/// number of terms alone: all sums of the same products have the same bits.
int64_t productSumBlock(int64_t extent);

/// Elements of `type`'s size in a machine vector of `bits`; at least four bytes
/// each, so that 16-bit types pair with the f32 vectors they convert to.
int64_t laneCountFor(mlir::Type type, int64_t bits);

} // namespace attn::tiles

#endif
