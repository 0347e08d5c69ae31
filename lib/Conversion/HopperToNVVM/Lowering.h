// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The state of lowering one kernel to the code of one thread. The pass walks the
// old body in order and writes the new one; a value of the warpgroup is mapped
// to the values that a thread has of it.

#ifndef ATTN_CONVERSION_HOPPERTONVVM_LOWERING_H
#define ATTN_CONVERSION_HOPPERTONVVM_LOWERING_H

#include "CarriedValues.h"
#include "Layouts.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/DenseSet.h"

namespace attn::hopper {

/// A thread's part of a value. Element e of an index vector is
/// `values[e] + offsets[e]`: a comparison of two of them then needs one
/// difference for the thread and a constant for the element. A tile of 16-bit
/// floats has pairs of columns as `vector<2xT>`, as instructions take them.
struct Parts {
  llvm::SmallVector<mlir::Value> values;
  llvm::SmallVector<int64_t> offsets; ///< empty where all are 0

  Parts() = default;
  Parts(mlir::ValueRange range) : values(range.begin(), range.end()) {}
  int64_t offset(size_t e) const { return offsets.empty() ? 0 : offsets[e]; }
};

/// Shared memory of a kernel: offsets from the base, and how arrivals count.
struct SharedMemory {
  llvm::DenseMap<mlir::Value, int64_t> offsets;
  /// Arrivals by warpgroups count once per warp: see `planSharedMemory`.
  llvm::DenseMap<mlir::Value, bool> perWarp;
  int64_t bytes = 0;
};

/// Offsets for all tiles and mbarriers of a kernel.
llvm::FailureOr<SharedMemory> planSharedMemory(mlir::gpu::GPUFuncOp function);

/// Arrivals before which the threads of each warp have to meet.
llvm::DenseSet<mlir::Operation *> findSyncedArrivals(mlir::gpu::GPUFuncOp function);

/// The threads that hold a tile of 64 rows together: warps that have as many rows each.
struct Group {
  int64_t warps = 4;
  int64_t threads() const { return 32 * warps; }
  int64_t rowsOfWarp() const { return kWarpgroupRows / warps; }
};
/// Those of a kernel: the block's threads divided by the number of groups that its roles say.
Group findGroup(mlir::gpu::GPUFuncOp function);

/// The compute capability that the kernel's module is compiled for, 90 for 9.0: by its target
/// (`#nvvm.target`), of which there is at most one.
int64_t findCapability(mlir::gpu::GPUFuncOp function);

/// (offset >> 3) & mask: what the offset of a byte in a slab is XORed with. It depends on the row,
/// modulo 8, only.
mlir::Value swizzleOf(mlir::Value row, int64_t swizzle, mlir::ImplicitLocOpBuilder &b,
                      llvm::function_ref<mlir::Value(int64_t)> constant);

class KernelLowering {
public:
  KernelLowering(mlir::gpu::GPUFuncOp function, const VectorLayouts &layouts, SharedMemory memory);
  llvm::LogicalResult run();
  /// Of a kernel that is the code of one thread already (hopper.threads): only what upstream's
  /// lowering does not know changes.
  llvm::LogicalResult runThread();

private:
  //===--- Kernel.cpp: the frame, and what the rest builds on ---===//
  void emitPrologue(mlir::Region &body);
  void emitGridWait(int64_t blocks);
  void emitBarrierInitialization(mlir::Region &body);
  llvm::LogicalResult lowerBlock(mlir::Block &block);
  llvm::LogicalResult lower(mlir::Operation *op);
  llvm::LogicalResult lowerVectorOp(mlir::Operation *op);
  llvm::LogicalResult lowerHopperOp(mlir::Operation *op);

  const Parts &parts(mlir::Value value, Layout layout) const;
  void setParts(mlir::Value value, Layout layout, Parts parts);
  mlir::Value scalar(mlir::Value value) const {
    return ofThreads ? value : parts(value, Layout::Scalar).values[0];
  }
  void setScalar(mlir::Value value, mlir::Value to) {
    setParts(value, Layout::Scalar, Parts(mlir::ValueRange(to)));
  }
  /// All parts of a value in the layouts of `like`, offsets added.
  void flattenAs(mlir::Value value, mlir::Value like, llvm::SmallVectorImpl<mlir::Value> &to);
  void flattenTypes(mlir::Value value, llvm::SmallVectorImpl<mlir::Type> &to) const;
  /// The inverse of `flattenAs`: takes values off the front of `from`.
  void bind(mlir::Value value, mlir::ValueRange &from);

  int64_t elementsPerThread(mlir::VectorType type, Layout layout) const {
    return hopper::elementsPerThread(type, layout, registers.rows);
  }
  mlir::Value constant(mlir::TypedAttr attribute);
  mlir::Value constantI32(int64_t value) { return constant(b.getI32IntegerAttr(int32_t(value))); }
  mlir::Value constantIndex(int64_t value) { return constant(b.getIndexAttr(value)); }
  mlir::Value element(const Parts &parts, size_t e);
  mlir::Value toI32(mlir::Value index);
  /// Pairs of 16-bit floats to single ones and back.
  llvm::SmallVector<mlir::Value> unpack(const Parts &parts);
  Parts pack(llvm::ArrayRef<mlir::Value> values);
  /// Elements of a value, unpacked, with offsets added.
  llvm::SmallVector<mlir::Value> elements(mlir::Value value, Layout layout);
  /// A pointer to shared memory at a 32-bit address.
  mlir::Value sharedPointer(mlir::Value address, int64_t offset = 0);
  mlir::Value addI32(mlir::Value value, int64_t constant);
  mlir::Value inlineAsm(mlir::Type result, mlir::ValueRange operands, const llvm::Twine &text,
                        const llvm::Twine &constraints, bool sideEffects);
  /// Runs `emit` in the first thread of the CTA.
  void inFirstThread(llvm::function_ref<void()> emit);
  /// Runs `emit` in one thread of the warpgroup, always the same one.
  void inLeader(llvm::function_ref<void()> emit);

  //===--- Structure.cpp: loops, branches, roles ---===//
  llvm::LogicalResult lowerFor(mlir::scf::ForOp op);
  llvm::LogicalResult lowerIf(mlir::scf::IfOp op);
  void splitPartialSum(mlir::MutableArrayRef<mlir::Value> inits);
  void joinPartialSum(mlir::Value result);
  llvm::LogicalResult lowerWhile(mlir::scf::WhileOp op);
  llvm::LogicalResult lowerRoles(RolesOp op);
  llvm::LogicalResult lowerRole(RolesOp op, unsigned role, int64_t firstWarpgroup);
  llvm::LogicalResult lowerThread(RolesOp op, unsigned role, int64_t ofWarp);

  //===--- Elementwise.cpp ---===//
  llvm::LogicalResult lowerElementwise(mlir::Operation *op);
  llvm::LogicalResult lowerElementwise(mlir::Operation *op, Layout layout);
  bool lowerSmallComparison(mlir::Operation *op);
  bool lowerIndexSum(mlir::Operation *op, Layout layout);
  mlir::Value saturatedDifference(mlir::Value x, mlir::Value y);
  bool lowerColumnBound(mlir::Operation *op, Layout layout);
  bool lowerBoundsOfBoth(mlir::Operation *op, Layout layout);
  bool lowerSelectByBits(mlir::Operation *op, Layout layout);
  mlir::Value testBit(llvm::ArrayRef<mlir::Value> words, unsigned row, int64_t column);
  void setBits(mlir::Value value, llvm::ArrayRef<mlir::Value> words, int64_t columns);
  bool lowerIndexComparison(mlir::Operation *op, Layout layout);
  bool lowerPackedTruncation(mlir::Operation *op, Layout layout);
  bool lowerTanh(mlir::Operation *op, Layout layout);
  bool lowerExp2(mlir::Operation *op, Layout layout);
  mlir::Value emulateExp2(mlir::Value x);
  bool lowerRescaling(mlir::Operation *op, Layout layout);
  bool lowerRandomBits(mlir::Operation *op, Layout layout); // RandomBits.cpp
  /// Of a pair whose bits are drawn, the query or the key.
  struct Place {
    mlir::Value number;   ///< that a call takes
    mlir::Value position; ///< without the known bits
    int64_t known;        ///< bits that are constants,
    int64_t set;          ///< and those of them that are 1
  };
  llvm::SmallVector<Place> placesOf(mlir::Value positions, Layout layout, int64_t bits,
                                    int64_t known);
  mlir::Value chooseByBit(const Place &place, int64_t bit, mlir::Value no, mlir::Value yes);
  Parts rescale(llvm::ArrayRef<mlir::Value> factors,
                llvm::function_ref<llvm::SmallVector<mlir::Value>()> take);
  llvm::LogicalResult lowerConstant(mlir::arith::ConstantOp op);
  mlir::Value emitElement(mlir::Operation *op, mlir::ValueRange operands);
  mlir::Value emitGeneric(mlir::Operation *op, mlir::ValueRange operands);
  mlir::Value emitIntrinsic(mlir::Operation *op, mlir::ValueRange operands);
  mlir::Value fma(mlir::Value x, mlir::Value y, mlir::Value z) {
    return mlir::LLVM::FMAOp::create(b, x, y, z);
  }
  mlir::Value emitMath(mlir::Operation *op, mlir::ValueRange operands);
  std::pair<mlir::Value, mlir::Value> splitExponent(mlir::Value x);
  mlir::Value logarithmNearOne(mlir::Value x);
  mlir::Value intrinsic(llvm::StringRef name, mlir::Type type, mlir::ValueRange operands);
  mlir::Value constantF32(double value) { return constant(b.getF32FloatAttr(value)); }
  mlir::Value exp2(mlir::Value x) { return intrinsic("llvm.nvvm.ex2.approx.ftz", x.getType(), x); }

  //===--- Vectors.cpp: shapes and reductions ---===//
  llvm::LogicalResult lowerBroadcast(mlir::vector::BroadcastOp op);
  Parts splat(mlir::Value value, mlir::VectorType type, Layout layout);
  void setTile(mlir::Value tile, mlir::Value source, Layout layout);
  llvm::LogicalResult lowerTranspose(mlir::vector::TransposeOp op);
  llvm::LogicalResult lowerShapeCast(mlir::vector::ShapeCastOp op);
  llvm::LogicalResult lowerSlice(mlir::vector::ExtractStridedSliceOp op);
  llvm::LogicalResult lowerStep(mlir::vector::StepOp op);
  llvm::LogicalResult lowerMultiReduction(mlir::vector::MultiDimReductionOp op);
  llvm::LogicalResult lowerReduction(mlir::vector::ReductionOp op);
  mlir::Value combine(mlir::vector::CombiningKind kind, mlir::Value a, mlir::Value b);
  mlir::Value reduceThread(mlir::vector::CombiningKind kind, llvm::ArrayRef<mlir::Value> values);
  llvm::SmallVector<llvm::SmallVector<mlir::Value>> elementsOfRows(mlir::Value tile);
  mlir::Value reduceLanes(mlir::vector::CombiningKind kind, mlir::Value value, int64_t lanes);
  /// The value of the lane whose number differs in the bit `distance`, by shuffles of 32 bits.
  mlir::Value shuffle(mlir::Value value, int64_t distance);

  //===--- GlobalMemory.cpp ---===//
  struct Access;
  llvm::LogicalResult lowerRead(mlir::vector::TransferReadOp op);
  llvm::LogicalResult lowerWrite(mlir::vector::TransferWriteOp op);
  llvm::LogicalResult lowerAdd(TileAddOp op);
  llvm::LogicalResult lowerGather(mlir::vector::GatherOp op);
  llvm::LogicalResult lowerVectorLoad(mlir::vector::LoadOp op);
  llvm::LogicalResult lowerVectorStore(mlir::vector::StoreOp op);
  llvm::FailureOr<Access> makeAccess(mlir::Operation *op, mlir::Value memref,
                                     mlir::ValueRange indices, mlir::VectorType type,
                                     mlir::AffineMap map, llvm::ArrayRef<bool> inBounds,
                                     Layout layout);
  llvm::FailureOr<mlir::Value> elementAddress(mlir::Operation *op, mlir::Value memref,
                                              mlir::ValueRange indices);
  llvm::FailureOr<Access> makeAccess(mlir::Operation *op, mlir::Value base,
                                     mlir::ValueRange indices, mlir::VectorType type,
                                     Layout layout);
  mlir::Value load(mlir::Type type, mlir::Value address, mlir::Value predicate, mlir::Value other);
  void store(mlir::Value value, mlir::Value address, mlir::Value predicate);
  llvm::SmallVector<mlir::Value> loadWords(mlir::Value address, int64_t count,
                                           mlir::Value predicate, mlir::Value other);
  void storeWords(llvm::ArrayRef<mlir::Value> words, mlir::Value address, mlir::Value predicate);
  Parts readPieces(const Access &access, mlir::VectorType type, Layout layout, int64_t size,
                   llvm::ArrayRef<mlir::Value> other);
  Parts readElement(const Access &access, mlir::VectorType type, Layout layout,
                    llvm::ArrayRef<mlir::Value> mask, llvm::ArrayRef<mlir::Value> other);
  void writePieces(const Access &access, const Parts &tile, int64_t size);
  void transposeInRow(llvm::MutableArrayRef<mlir::Value> words);
  void writeRows(const Access &access, const Parts &tile);
  void addByElements(const Access &access, llvm::ArrayRef<mlir::Value> values,
                     mlir::Value rowBytes);
  int64_t sizeOfPiece(const Access &access, Layout layout) const;
  Parts readColumns(const Access &access, mlir::VectorType type, llvm::ArrayRef<mlir::Value> other);
  Parts readElements(const Access &access, mlir::VectorType type, Layout layout,
                     llvm::ArrayRef<mlir::Value> mask, llvm::ArrayRef<mlir::Value> other);
  void writeElement(const Access &access, mlir::Value value, Layout layout,
                    llvm::ArrayRef<mlir::Value> mask);
  void writeElements(const Access &access, mlir::Value value, Layout layout,
                     llvm::ArrayRef<mlir::Value> mask);

  //===--- Scatter.cpp ---===//
  llvm::LogicalResult lowerScatter(ScatterAddOp op);
  llvm::SmallVector<mlir::Value> findCells(ScatterAddOp op, llvm::ArrayRef<mlir::Value> values);

  //===--- SharedMemory.cpp ---===//
  void lowerSlot(SlotOp op);
  void lowerRows(tile::RowsOp op);
  void lowerColumns(tile::ColumnsOp op);
  llvm::LogicalResult lowerTileWrite(tile::WriteOp op);
  void lowerTileRead(tile::ReadOp op);
  void loadVector(tile::ReadOp op, Layout layout);
  /// Where the rows of 8 x 8 blocks of 16-bit elements lie that a warp moves at a time: those of
  /// this lane, and at constant distances from it.
  struct Matrices {
    tile::SmemType type;
    bool transpose; // of a value that is written or read: its columns are rows in memory
    mlir::Value base, inRow;
  };
  Matrices placeMatrices(mlir::Value tile, tile::SmemType type, mlir::Value row, mlir::Value chunk,
                         bool transpose = false);
  mlir::Value pointerTo(const Matrices &matrices, int64_t rows, int64_t chunks);
  mlir::Value bitsOfLane(int64_t shift, int64_t mask);
  Matrices placeValue(mlir::Value tile, tile::SmemType type, bool transpose);
  mlir::Value pointerToColumn(const Matrices &matrices, int64_t column);
  mlir::Value pointerToElement(mlir::Value tile, tile::SmemType type, mlir::Value row,
                               mlir::Value column);
  void storePairs(tile::WriteOp op);
  void storeDoubles(tile::WriteOp op);
  void storePieces(tile::WriteOp op);
  void storeMatrices(tile::WriteOp op);
  void storeWords(tile::WriteOp op);
  mlir::Value pointerToRegisters(mlir::Value tile, int64_t first);
  void storeRegisters(tile::WriteOp op);
  void loadRegisters(tile::ReadOp op);

  //===--- Asynchronous.cpp: mbarriers, copies, named barriers ---===//
  mlir::Value barrierAddress(mlir::Value barriers, mlir::Value index);
  void lowerExpect(MBarrierExpectOp op);
  void lowerArrive(MBarrierArriveOp op);
  void lowerClusterArrive(MBarrierArriveOp op, mlir::Value address);
  mlir::Value clusterMask();
  void lowerClusterSync();
  void lowerRemoteLoad(RemoteLoadOp op);
  void inThread0(llvm::function_ref<void()> emit);
  llvm::LogicalResult lowerGridSync(GridSyncOp op);
  llvm::LogicalResult lowerLastArrival(LastArrivalOp op);
  mlir::Value threadAddress(mlir::Value memref, mlir::ValueRange indices);
  llvm::LogicalResult lowerOpaque(OpaqueOp op);
  void lowerRounded(mlir::vector::FromElementsOp op);
  llvm::LogicalResult lowerOfThread(mlir::Operation *op);
  void lowerMBarrierWait(MBarrierWaitOp op);
  void copySlabs(TmaLoadOp op, mlir::Value map, llvm::ArrayRef<mlir::Value> coordinates,
                 mlir::Value place, mlir::Value barrier, mlir::Value mask);
  std::pair<mlir::Value, mlir::Value> marksAt(mlir::Value memref, mlir::ValueRange leading);
  void copyRows(TmaLoadOp op, llvm::ArrayRef<mlir::Value> coordinates, mlir::Value barrier);
  void lowerTmaLoad(TmaLoadOp op);
  template <typename Op> void lowerTmaStore(Op op);
  void lowerTmaWait(TmaWaitOp op);
  llvm::FailureOr<mlir::Value> semaphoreAddress(mlir::Operation *op, mlir::Value semaphores,
                                                mlir::ValueRange indices);
  mlir::LogicalResult lowerSemaphoreWait(SemaphoreWaitOp op);
  mlir::LogicalResult lowerSemaphorePeek(SemaphorePeekOp op);
  mlir::LogicalResult lowerFirstTouch(SemaphoreFirstTouchOp op);
  mlir::LogicalResult lowerSemaphoreRelease(SemaphoreReleaseOp op);
  template <typename Op> void lowerNamedBarrier(Op op);
  void lowerBarrierReduce(BarrierReduceOp op);
  mlir::Value reportAddress(mlir::Value reports);
  mlir::Value flagAddress(mlir::Value flags, mlir::Value number);
  void clearReports(mlir::Region &body);
  void lowerReport(ReportOp op);
  void reportWarp(ReportOp op, mlir::Value any);
  void lowerRedo(RedoOp op);
  void lowerRunIf(RunIfOp op);
  void endUnless(mlir::Value runs);
  mlir::Value isAnySet(mlir::Value flags);
  llvm::SmallVector<mlir::Value> reversed(mlir::OperandRange coordinates);

  //===--- TileCopies.cpp ---===//
  struct Pages;
  struct TileCopy;
  mlir::Value readInvariant(mlir::Type type, mlir::Value address);
  void planPages(tile::CopyOp op, mlir::Value pageBytes, TileCopy &copy);
  void findPages(tile::CopyOp op, TileCopy &copy);
  mlir::Value placeInPages(const TileCopy &copy, mlir::Value row, mlir::Value isInside);
  mlir::FailureOr<TileCopy> planCopy(tile::CopyOp op);
  mlir::Value swizzledOffset(mlir::Value row, mlir::Value chunk, int64_t swizzle);
  void forEachChunk(const TileCopy &copy,
                    llvm::function_ref<void(mlir::Value, mlir::Value, mlir::Value)> emit);
  void copyAsync(const TileCopy &copy, int64_t size);
  void copyElements(const TileCopy &copy);
  mlir::LogicalResult lowerTileCopy(tile::CopyOp op);
  void lowerAwait(tile::AwaitOp op);

  //===--- WarpProducts.cpp ---===//
  mlir::LogicalResult lowerMma(tile::MmaOp op);
  llvm::SmallVector<mlir::Value> loadBlocks(mlir::Value pointer, int32_t count, bool transpose);
  void multiplyFragments(tile::MmaOp op);
  void multiplyElements(tile::MmaOp op);
  llvm::SmallVector<mlir::Value> splitTf32(mlir::Value x, int64_t terms);
  mlir::LogicalResult multiplyTf32(tile::MmaOp op);

  //===--- Products.cpp ---===//
  void lowerWgmma(WgmmaOp op);
  void lowerWait(WaitOp op);
  Parts waitFor(WaitOp op, mlir::ValueRange product);

  mlir::gpu::GPUFuncOp function;
  const VectorLayouts &layouts;
  SharedMemory memory;
  const CarriedValues carried;
  const int64_t piece; ///< columns that a thread has side by side
  const Group group;
  const Registers registers;
  const int64_t capability; ///< that code is made for, 90 for 9.0
  mlir::ImplicitLocOpBuilder b;

  llvm::DenseMap<std::pair<mlir::Value, unsigned>, Parts> map;
  /// Conditions of a tile that are words of bits: see `lowerColumnBound`.
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Value>> columnBits;
  llvm::DenseMap<mlir::Attribute, mlir::Value> constants;
  llvm::DenseSet<mlir::Operation *> syncedArrivals;
  llvm::DenseSet<mlir::Operation *> loweredEarly; ///< together with what they follow from
  mlir::Block *entry = nullptr;

  /// Of this thread, i32 where not said otherwise.
  mlir::Value warpgroup, warp /* in its warpgroup */, lane;
  mlir::Value isLane0, isLeader;     // i1
  mlir::Value firstRow, firstColumn; // index: of a tile
  mlir::Value sharedBase;            // address
  mlir::Value clusterSize;           // CTAs, i32; null where they have nothing in common
  bool singleThread = false;         ///< the region is run by one thread
  bool ofThreads = false;            ///< the kernel is the code of one thread
  unsigned numOpaque = 0;            ///< groups of values, of hopper.opaque
  bool isRare = false;               ///< the kernel ends at once in most calls
  bool multipliesByWarps = false;    ///< products are tile.mma
};

} // namespace attn::hopper

#endif
