// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Writes one loop nest over the classes of a domain. A tile value is evaluated
// at a point: an index for each of its classes, where the lane class stands for
// `width` consecutive positions. Values without the lane class are scalars and
// are broadcast where they meet a vector. Every value is computed in the
// outermost loop that fixes all of its classes, once per point, so nothing that
// is invariant in a loop stays in it.

#ifndef ATTN_LIB_CONVERSION_LOWERTILES_NEST_H
#define ATTN_LIB_CONVERSION_LOWERTILES_NEST_H

#include "attn/Utils/TileClasses.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <map>

namespace attn::tiles {

/// Where a tile is kept: a scratch memref indexed by the classes of `layout`.
/// i1 elements occupy a byte each.
struct Buffer {
  mlir::Value memref;
  llvm::SmallVector<int> layout;
  explicit operator bool() const { return static_cast<bool>(memref); }
};

/// Where a contraction finds the operand that has its lanes.
struct LaneSource {
  /// Own: the tile's scratch, which has the same lanes. Memory: where its read
  /// takes it from. Copy: scratch with these lanes, beside its own. Lazy: read, and converted,
  /// where it is used. Sums: the same, but memory, and so the lanes, run along the sum.
  enum Kind { Own, Memory, Copy, Lazy, Sums } kind = Own;
  mlir::Value value;
  int lane = -1;
  /// Whether it is evaluated in the kernel.
  bool isRead() const { return kind == Lazy || kind == Sums; }
};

/// What multiplies two tiles of bf16 and adds in f32.
enum class MatrixUnit { None, Avx512Bf16, Amx };

/// A tile of bf16 as an operand of a matrix unit: pairs of elements along the sum, each an integer
/// of 32 bits, the first one in its low half.
struct Pairs {
  mlir::Value value;
  /// The class of the sum, and the other one.
  int sum = -1, other = -1;
  /// Indexed by (other, pair); else by (pair, other).
  bool isAlong = false;

  bool operator<(const Pairs &right) const {
    auto key = [](const Pairs &p) {
      return std::make_tuple(p.value.getAsOpaquePointer(), p.sum, p.isAlong);
    };
    return key(*this) < key(right);
  }
};

/// The operands of a contraction that a matrix unit computes, before they were extended to f32.
struct MatrixOperands {
  MatrixUnit unit = MatrixUnit::None;
  mlir::Value lanes, rows;
};

/// What all nests of one run of the pass share.
struct Context {
  DimClasses classes;
  llvm::DenseMap<mlir::Value, Buffer> buffers;
  /// Tiles with other lanes than their own, by value and lanes.
  llvm::DenseMap<std::pair<mlir::Value, int>, Buffer> copies;
  /// Tiles that are used where they lie in memory, by their reads.
  llvm::DenseMap<mlir::Value, Buffer> views;
  /// Of the contractions that become kernels.
  llvm::DenseMap<mlir::Operation *, LaneSource> laneSources;
  /// Of the contractions that a matrix unit computes.
  llvm::DenseMap<mlir::Operation *, MatrixOperands> matrixOperands;
  /// Scratch that holds tiles as pairs.
  std::map<Pairs, mlir::Value> pairs;
  int64_t vectorBits = 512;
  int64_t vectorRegisters = 32;
};

class Nest {
public:
  /// Writes before `position`.
  Nest(Context &context, mlir::Operation *position);

  /// The value of tile `value` at the current point.
  mlir::Value eval(mlir::Value value);
  /// The same as a vector, where the nest has lanes.
  mlir::Value evalWide(mlir::Value value);

  /// Opens a loop over [begin, end) that binds `cls`; without `cls` a plain
  /// loop.
  mlir::scf::ForOp open(int cls, int64_t begin, int64_t end, int64_t step,
                        mlir::ValueRange inits = {});
  /// Closes the innermost loop, which yields `values`.
  void close(mlir::ValueRange values = {});
  /// Runs `body` inside one unit-step loop per class; a class of the empty list
  /// gives straight-line code. `inits` are carried through all loops.
  llvm::SmallVector<mlir::Value>
  loops(llvm::ArrayRef<int> classes, mlir::ValueRange inits,
        llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::ValueRange)> body);

  /// Makes `cls` the lane class, `width` positions from `base` on.
  void setLanes(int cls, mlir::Value base, int64_t width);
  /// Goes back to lanes that `setLanes` has set before at the same level.
  void selectLanes(int cls, mlir::Value base, int64_t width);
  void bind(int cls, mlir::Value index);
  void clearLanes() { laneClass = -1; }
  mlir::Value indexOf(int cls) { return points.lookup(cls).index; }
  int lane() const { return laneClass; }
  int64_t laneWidth() const { return width; }

  /// Stores the value of a tile at the current point.
  void store(const Buffer &buffer, mlir::Value value);
  void storeTransfer(mlir::vector::TransferWriteOp write, mlir::Value value);

  /// Asks for the cache line of the current point of a read, a hint.
  void prefetch(mlir::vector::TransferReadOp read);

  mlir::Value constant(int64_t value);
  mlir::Value add(mlir::Value a, mlir::Value b);
  mlir::Value addConstant(mlir::Value a, int64_t b);
  /// The vector or scalar type of an element type at the current lanes.
  mlir::Type wide(mlir::Type element);
  mlir::Value splat(mlir::Value scalar);
  /// A builder that writes at the end of the innermost open loop.
  mlir::OpBuilder &builder();
  mlir::Location loc;

private:
  struct Level {
    mlir::Block *block;
    mlir::Operation *anchor; // null: the end of the block
    std::map<llvm::SmallVector<const void *, 4>, mlir::Value> memo;
  };
  struct Point {
    mlir::Value index;
    int level = 0;
  };

  bool hasLane(llvm::ArrayRef<int> classes) {
    return laneClass >= 0 && llvm::is_contained(classes, laneClass);
  }
  int levelOf(llvm::ArrayRef<int> classes);
  void insertAt(int level);
  mlir::Value compute(mlir::Value value, bool vector);
  mlir::Value computeElementwise(mlir::Operation *op, bool vector);
  mlir::Value computeStep(int cls, mlir::Type element, bool vector);
  mlir::Value computeMask(mlir::vector::CreateMaskOp op, bool vector);
  mlir::Value load(const Buffer &buffer, mlir::Type element, bool vector);
  mlir::Value loadTransfer(mlir::vector::TransferReadOp read, bool vector);
  mlir::Value loadGather(mlir::vector::GatherOp gather, bool vector);
  mlir::Value broadcastTo(mlir::Value value, mlir::Type type);
  mlir::Value perLane(mlir::Type element, llvm::function_ref<mlir::Value(mlir::Value)> scalar);
  llvm::SmallVector<mlir::Value> address(mlir::VectorTransferOpInterface transfer, int &laneDim);
  mlir::Value inBounds(mlir::VectorTransferOpInterface transfer, mlir::ValueRange indices,
                       bool skipLane);
  mlir::Value laneCount(mlir::VectorTransferOpInterface transfer, mlir::ValueRange indices,
                        int laneDim);

  Context &context;
  mlir::OpBuilder b;
  llvm::SmallVector<Level> levels;
  llvm::DenseMap<int, Point> points;
  int laneClass = -1;
  int64_t width = 1;
};

/// True where lane positions of a transfer are consecutive in memory, as in a vector.
bool isContiguousAlong(mlir::VectorTransferOpInterface transfer, int memoryDim);

/// The class along which a transfer walks memory contiguously, or -1.
int contiguousClass(DimClasses &classes, mlir::VectorTransferOpInterface transfer);

/// True for ops whose results are computed where they are used.
bool isLazy(mlir::Operation *op);

} // namespace attn::tiles

#endif
