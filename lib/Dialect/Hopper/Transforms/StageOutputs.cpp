// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles leave through shared memory: stmatrix, then a store by TMA.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERSTAGEOUTPUTS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// Named barriers from here on are for warpgroups on their own; those below are
/// for turns at the tensor core.
constexpr int64_t kFirstOwnBarrier = 4;

/// Columns that the four threads of a row have 16 bytes of side by side, where no product
/// says which elements a thread has (convert-hopper-to-nvvm).
constexpr int64_t kColumnsOfRow = 32;

/// Slots of a warpgroup for outputs in pieces.
constexpr int64_t kSlots = 2;

/// A write as TMA sees it: the memref on the host and a position in it.
struct Target {
  Value memref;
  SmallVector<Value> indices;
};

/// A tile that leaves: written, or added to what is there.
struct Departure {
  Operation *op;
  Value value;
  bool adds;
  VectorType getType() const { return cast<VectorType>(value.getType()); }
};

class Stager {
public:
  Stager(gpu::LaunchOp launch, hopper::RolesOp roles, unsigned role, bool reuse, int64_t columns)
      : launch(launch), roles(roles), region(roles.getBodies()[role]), reuse(reuse),
        columns(columns), warpgroups(roles.getWarpgroups()[role]), b(launch.getContext()) {
    region.walk([&](Operation *op) { hasProducts |= isa<hopper::MmaOp, hopper::WgmmaOp>(op); });
  }

  void run() {
    SmallVector<std::pair<Departure, std::optional<Target>>> all;
    region.walk([&](Operation *op) {
      if (auto write = dyn_cast<vector::TransferWriteOp>(op))
        all.push_back({{op, write.getVector(), false}, match(write)});
      if (auto add = dyn_cast<TileAddOp>(op))
        all.push_back({{op, add.getValues(), true}, match(add)});
    });
    for (auto &[departure, target] : all)
      if (target)
        stage(departure, *target);
    if (!hasStores)
      return;
    // Shared memory outlives the copies.
    b.setInsertionPoint(region.front().getTerminator());
    hopper::TmaWaitOp::create(b, region.getLoc(), 0, /*read=*/false);
  }

private:
  std::optional<Target> match(vector::TransferWriteOp write) {
    auto vector = write.getVectorType();
    auto memref = dyn_cast<MemRefType>(write.getBase().getType());
    if (!memref || vector.getRank() != 2 || vector.getDimSize(1) % 8 || write.getMask() ||
        !write.getPermutationMap().isMinorIdentity() ||
        !(vector.getElementType().isBF16() || vector.getElementType().isF16()))
      return std::nullopt;
    return find(write, write.getBase(), write.getIndices());
  }

  /// Sums are added in f32.
  std::optional<Target> match(TileAddOp add) {
    auto vector = cast<VectorType>(add.getValues().getType());
    if (!isa<MemRefType>(add.getDest().getType()) || vector.getRank() != 2 ||
        vector.getDimSize(1) % 8 || !vector.getElementType().isF32())
      return std::nullopt;
    return find(add, add.getDest(), add.getIndices());
  }

  std::optional<Target> find(Operation *op, Value memref, ValueRange indices) {
    Target target{memref, SmallVector<Value>(indices)};
    b.setInsertionPoint(op);
    if (auto view = target.memref.getDefiningOp<memref::SubViewOp>())
      if (!resolve(view, target))
        return std::nullopt;
    bool onHost = !launch.getBody().isAncestor(target.memref.getParentRegion());
    auto type = cast<MemRefType>(target.memref.getType());
    SmallVector<int64_t> strides;
    int64_t offset;
    // Rows whose length nobody knows need not start at multiples of 16 bytes, nor others.
    int64_t unit = 16 / hopper::getElementBytes(type.getElementType());
    if (!onHost || type.getRank() > 5 || failed(type.getStridesAndOffset(strides, offset)) ||
        strides.back() != 1 || type.isDynamicDim(type.getRank() - 1) ||
        type.getShape().back() % unit)
      return std::nullopt;
    for (int64_t stride : ArrayRef(strides).drop_back())
      if (!ShapedType::isDynamic(stride) && stride % unit)
        return std::nullopt;
    // Threads write 16 bytes at a time, too, where rows are known to start at multiples of
    // these.
    auto write = dyn_cast<vector::TransferWriteOp>(op);
    if (!hasProducts && write && target.memref.getDefiningOp<memref::AllocOp>() &&
        write.getVectorType().getDimSize(1) % kColumnsOfRow == 0)
      return std::nullopt;
    return target;
  }

  /// A view that ends where the memref ends, or where the tile ends.
  bool resolve(memref::SubViewOp view, Target &target) {
    if (!view.hasUnitStride() || view.getSourceType().getRank() != view.getType().getRank())
      return false;
    for (auto [index, offset] : llvm::zip_equal(target.indices, view.getMixedOffsets())) {
      Value start = getValueOrCreateConstantIndexOp(b, view.getLoc(), offset);
      index = b.createOrFold<arith::AddIOp>(view.getLoc(), start, index);
    }
    target.memref = view.getSource();
    return true;
  }

  static hopper::SmemType getTile(VectorType vector, int64_t columns) {
    int64_t bytes = columns * hopper::getElementBytes(vector.getElementType());
    return hopper::SmemType::get({vector.getDimSize(0), columns}, vector.getElementType(),
                                 bytes > 64   ? 128
                                 : bytes > 32 ? 64
                                              : 32);
  }

  void stage(const Departure &write, const Target &target) {
    Location loc = write.op->getLoc();
    VectorType vector = write.getType();
    // All pieces are alike: what they do not divide leaves whole.
    bool inPieces = columns > 0 && !write.adds && columns < vector.getDimSize(1) &&
                    vector.getDimSize(1) % columns == 0;
    int64_t width = inPieces ? columns : vector.getDimSize(1);
    hopper::SmemType tile = getTile(vector, width);
    // Writes of one tile in several branches share map and memory.
    Value &map = maps[{target.memref, tile}];
    if (!map) {
      b.setInsertionPoint(launch);
      auto rank = cast<MemRefType>(target.memref.getType()).getRank();
      map = hopper::TensorMapOp::create(
          b, loc, hopper::TensorMapType::get(b.getContext(), tile, rank), target.memref);
    }
    hopper::ReleaseOp release;
    bool reuses = reuse && !write.adds, isWithSums = reuses && sums && fitsSums(tile);
    Value received = reuses && !isWithSums ? findReceived(write.op, tile, release) : Value();
    int64_t pieces = llvm::divideCeil(vector.getDimSize(1), width);
    bool isOrdered = false;
    for (int64_t piece = 0; piece < pieces; ++piece) {
      b.setInsertionPoint(write.op);
      Value slot = received;
      if (!slot) {
        slot = isWithSums
                   ? hopper::SlotOp::create(b, loc, tile, sums, region.getArgument(0))
                   : getSlot(loc, target.memref, tile, inPieces ? piece % kSlots : 0, inPieces);
        if (write.adds)
          sums = slot.getDefiningOp<hopper::SlotOp>().getRing();
        // Pieces go through the slots by turns; an odd number of them ends with
        // the slot that the next tile begins with.
        bool isNext = inPieces && (piece > 0 || pieces % kSlots == 0);
        if (hopper::BarrierSyncOp before = write.adds ? findBarrier(write.op) : nullptr) {
          b.setInsertionPoint(before);
          isOrdered = true;
        }
        hopper::TmaWaitOp::create(b, loc, isNext ? kSlots - 1 : 0,
                                  /*read=*/true);
        b.setInsertionPoint(write.op);
      }
      store(write, target, piece * width, slot, map, isOrdered);
    }
    if (release) {
      hopper::TmaWaitOp::create(b, loc, 0, /*read=*/true);
      release->moveBefore(write.op);
    }
    write.op->erase();
    hasStores = true;
  }

  /// Whether a tile has room where the warpgroup's sums leave, which come first.
  bool fitsSums(hopper::SmemType tile) const {
    hopper::SmemType sum = cast<hopper::SmemType>(sums.getType()).getTile();
    return tile.getRows() == sum.getRows() && tile.getSwizzle() == sum.getSwizzle() &&
           tile.getSlabs() <= sum.getSlabs();
  }

  /// The warpgroup's memory for outputs, or one of its slots for pieces of
  /// them.
  Value getSlot(Location loc, Value memref, hopper::SmemType tile, int64_t number, bool inPieces) {
    int64_t slots = inPieces ? kSlots : 1;
    Value &ring = rings[{memref, tile}];
    if (!ring) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(roles);
      ring = hopper::AllocOp::create(
          b, loc,
          hopper::SmemType::get({slots * warpgroups, tile.getRows(), tile.getColumns()},
                                tile.getElementType(), tile.getSwizzle()));
    }
    Value index = region.getArgument(0);
    if (inPieces) {
      Value first =
          arith::MulIOp::create(b, loc, index, arith::ConstantIndexOp::create(b, loc, slots));
      index = arith::AddIOp::create(b, loc, first, arith::ConstantIndexOp::create(b, loc, number));
    }
    return hopper::SlotOp::create(b, loc, tile, ring, index);
  }

  /// The last barrier of all warpgroups in front of an op in its block: who waits
  /// there for the copies before has all of the warpgroup know it.
  hopper::BarrierSyncOp findBarrier(Operation *op) {
    hopper::BarrierSyncOp last;
    for (auto barrier : op->getBlock()->getOps<hopper::BarrierSyncOp>())
      if (barrier->isBeforeInBlock(op) && int64_t(barrier.getWarpgroups()) == warpgroups)
        last = barrier;
    return last;
  }

  /// Columns of the vector from `column` on, through `slot`. `isOrdered`: everybody
  /// knows already that the slot is free.
  void store(const Departure &write, const Target &target, int64_t column, Value slot, Value map,
             bool isOrdered) {
    Location loc = write.op->getLoc();
    VectorType type = write.getType();
    int64_t count =
        std::min(cast<hopper::SmemType>(slot.getType()).getColumns(), type.getDimSize(1) - column);
    Value value = write.value;
    SmallVector<Value> indices(target.indices);
    if (count < type.getDimSize(1)) {
      value = vector::ExtractStridedSliceOp::create(b, loc, value, ArrayRef<int64_t>{0, column},
                                                    ArrayRef<int64_t>{type.getDimSize(0), count},
                                                    ArrayRef<int64_t>{1, 1});
      Value offset = arith::ConstantIndexOp::create(b, loc, column);
      indices.back() = arith::AddIOp::create(b, loc, indices.back(), offset);
    }
    Value id = arith::AddIOp::create(b, loc, region.getArgument(0),
                                     arith::ConstantIndexOp::create(b, loc, kFirstOwnBarrier));
    // Everybody is done with what was in the tile before.
    if (!isOrdered)
      hopper::BarrierSyncOp::create(b, loc, id, 1);
    hopper::TileStoreOp::create(b, loc, value, slot, /*transpose=*/false);
    hopper::FenceAsyncOp::create(b, loc);
    hopper::BarrierSyncOp::create(b, loc, id, 1);
    if (write.adds)
      hopper::TmaReduceOp::create(b, loc, slot, map, indices);
    else
      hopper::TmaStoreOp::create(b, loc, slot, map, indices);
  }

  /// This warpgroup's rows of a tile as large as `tile` that is released in the
  /// block of `write`, in front of it.
  Value findReceived(Operation *write, hopper::SmemType tile, hopper::ReleaseOp &release) {
    for (auto rows : write->getBlock()->getOps<hopper::RowsOp>()) {
      hopper::SmemType type = rows.getTile().getType();
      auto receive = rows.getSource().getDefiningOp<hopper::ReceiveOp>();
      // What other warpgroups read of it is not this one's to overwrite.
      if (!receive || !llvm::all_of(receive.getTile().getUsers(), llvm::IsaPred<hopper::RowsOp>) ||
          type.getShape() != tile.getShape() || type.getElementType() != tile.getElementType() ||
          type.getSwizzle() != tile.getSwizzle())
        continue;
      for (auto candidate : write->getBlock()->getOps<hopper::ReleaseOp>())
        if (candidate.getChannel() == receive.getChannel() && candidate->isBeforeInBlock(write))
          release = candidate;
      if (release)
        return rows.getTile();
    }
    return {};
  }

  gpu::LaunchOp launch;
  hopper::RolesOp roles;
  Region &region;
  bool reuse;
  int64_t columns, warpgroups;
  OpBuilder b;
  /// By memref and tile.
  llvm::DenseMap<std::pair<Value, Type>, Value> maps, rings;
  Value sums; // ring of the tiles that are added
  bool hasProducts = false, hasStores = false;
};

struct StageOutputsPass : attn::impl::HopperStageOutputsBase<StageOutputsPass> {
  using Base::Base;

  void runOnOperation() override {
    getOperation().walk([&](gpu::LaunchOp launch) {
      for (auto roles : llvm::to_vector(launch.getBody().front().getOps<hopper::RolesOp>()))
        for (unsigned role = 0; role < roles.getBodies().size(); ++role)
          Stager(launch, roles, role, reuse, columns).run();
    });
  }
};

} // namespace
