// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles leave through shared memory: stmatrix, then a store by TMA.

#include "Barriers.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Memory.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERSTAGEOUTPUTS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numStaged("hopper-stage-outputs", "staged",
                            "Writes that go through shared memory");
static attn::Left numLeft("hopper-stage-outputs", "not staged", "Writes from registers");

namespace {

/// Columns that the four threads of a row have 16 bytes of side by side, where no product
/// says which elements a thread has (convert-hopper-to-nvvm).
constexpr int64_t kColumnsOfRow = 32;

/// Slots of a warpgroup for outputs in slabs.
constexpr int64_t kSlots = 2;

/// A write as TMA sees it: the memref on the host and a position in it.
struct Target {
  Value memref;
  SmallVector<Value> indices;
};

/// A loop in front of outputs in which the warpgroups exchange tiles. When all of them have ended
/// it, what they have exchanged and received is memory for outputs.
struct Exchange {
  hopper::AllocOp ring;
  bool isRingFree = true;
  hopper::ReleaseOp release; // of what the first output takes the place of
  hopper::TmaStoreOp last;   // the last store
  int64_t behind = 0;        // stores behind that of the first output
};

class Stager {
public:
  Stager(gpu::LaunchOp launch, hopper::RolesOp roles, unsigned role, bool reuse, int64_t columns)
      : launch(launch), roles(roles), region(roles.getBodies()[role]), reuse(reuse),
        columns(columns), warpgroups(roles.getWarpgroups()[role]), b(launch.getContext()) {
    region.walk([&](Operation *op) { hasProducts |= isa<tile::MmaOp, hopper::WgmmaOp>(op); });
  }

  void run() {
    SmallVector<std::pair<vector::TransferWriteOp, std::optional<Target>>> all;
    region.walk([&](vector::TransferWriteOp write) { all.push_back({write, match(write)}); });
    for (auto &[write, target] : all)
      if (target) {
        numStaged.at(write);
        stage(write, *target);
      } else {
        numLeft.at(write) << remark::reason(
            "no tile that TMA can copy, or one that threads write in whole words, too");
      }
    for (auto &[block, exchange] : exchanges)
      if (exchange.release)
        releaseBehind(exchange);
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
    Target target{write.getBase(), SmallVector<Value>(write.getIndices())};
    b.setInsertionPoint(write);
    if (auto view = target.memref.getDefiningOp<memref::SubViewOp>())
      if (!programs::lookThroughView(b, view, target.memref, target.indices))
        return std::nullopt;
    bool onHost = !launch.getBody().isAncestor(target.memref.getParentRegion());
    auto type = cast<MemRefType>(target.memref.getType());
    SmallVector<int64_t> strides;
    int64_t offset;
    // Rows whose length nobody knows need not start at multiples of 16 bytes, nor others.
    int64_t unit = 16 / tile::getElementBytes(type.getElementType());
    if (!onHost || type.getRank() > 5 || failed(type.getStridesAndOffset(strides, offset)) ||
        strides.back() != 1 || type.isDynamicDim(type.getRank() - 1) ||
        type.getShape().back() % unit)
      return std::nullopt;
    for (int64_t stride : ArrayRef(strides).drop_back())
      if (!ShapedType::isDynamic(stride) && stride % unit)
        return std::nullopt;
    // A padded slab is copied whole: what is beyond the tile must be beyond the memref, too.
    int64_t width = vector.getDimSize(1);
    if (width < type.getShape().back() && width % getTile(vector, width).getSlabColumns())
      return std::nullopt;
    // Threads write 16 bytes at a time, too, where rows are known to start at multiples of
    // these.
    if (!hasProducts && target.memref.getDefiningOp<memref::AllocOp>() &&
        vector.getDimSize(1) % kColumnsOfRow == 0)
      return std::nullopt;
    return target;
  }

  static tile::SmemType getTile(VectorType vector, int64_t columns) {
    int64_t bytes = columns * tile::getElementBytes(vector.getElementType());
    return tile::SmemType::get({vector.getDimSize(0), columns}, vector.getElementType(),
                               bytes > 64   ? 128
                               : bytes > 32 ? 64
                                            : 32);
  }

  void stage(vector::TransferWriteOp write, const Target &target) {
    Location loc = write.getLoc();
    VectorType vector = write.getVectorType();
    // All slabs are alike: what they do not divide leaves whole.
    bool inSlabs =
        columns > 0 && columns < vector.getDimSize(1) && vector.getDimSize(1) % columns == 0;
    int64_t width = inSlabs ? columns : vector.getDimSize(1);
    Exchange *exchange = reuse ? findExchange(write) : nullptr;
    bool isInRing = exchange && exchange->release && fitsRing(*exchange, vector);
    if (isInRing)
      width = getRingColumns(*exchange, vector);
    tile::SmemType tile = getTile(vector, width);
    // Writes of one tile in several branches share map and memory.
    Value &map = maps[{target.memref, tile}];
    if (!map) {
      b.setInsertionPoint(launch);
      auto rank = cast<MemRefType>(target.memref.getType()).getRank();
      map = hopper::TensorMapOp::create(
          b, loc, hopper::TensorMapType::get(b.getContext(), tile, rank), target.memref);
    }
    hopper::ReleaseOp release;
    bool isFirst = exchange && !exchange->release;
    Value received = reuse && (isFirst || !exchange)
                         ? findReceived(write, tile, release, /*isShared=*/isFirst)
                         : Value();
    int64_t slabs = llvm::divideCeil(vector.getDimSize(1), width);
    for (int64_t slab = 0; slab < slabs; ++slab) {
      b.setInsertionPoint(write);
      Value slot = isInRing ? getRingSlot(*exchange, tile, slab) : received;
      if (!slot) {
        slot = getSlot(loc, target.memref, tile, inSlabs ? slab % kSlots : 0, inSlabs);
        // Slabs go through the slots by turns; an odd number of them ends with
        // the slot that the next tile begins with.
        bool isNext = inSlabs && (slab > 0 || slabs % kSlots == 0);
        hopper::TmaWaitOp::create(b, loc, isNext ? kSlots - 1 : 0,
                                  /*read=*/true);
      }
      bool isFree = isInRing || (isFirst && received);
      hopper::TmaStoreOp stored = store(write, target, slab * width, slot, map, isFree);
      if (!exchange)
        continue;
      exchange->last = stored;
      exchange->behind += exchange->release ? 1 : 0;
    }
    if (isInRing)
      exchange->isRingFree = false;
    if (isFirst && release) {
      exchange->release = release;
    } else if (release) {
      hopper::TmaWaitOp::create(b, loc, 0, /*read=*/true);
      release->moveBefore(write);
    }
    write.erase();
    hasStores = true;
  }

  /// The warpgroup's memory for outputs, or one of its slots for slabs of
  /// them.
  Value getSlot(Location loc, Value memref, tile::SmemType tile, int64_t number, bool inSlabs) {
    int64_t slots = inSlabs ? kSlots : 1;
    Value &ring = rings[{memref, tile}];
    if (!ring) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(roles);
      ring = hopper::AllocOp::create(
          b, loc,
          tile::SmemType::get({slots * warpgroups, tile.getRows(), tile.getColumns()},
                              tile.getElementType(), tile.getSwizzle()));
    }
    Value index = region.getArgument(0);
    if (inSlabs) {
      Value first =
          arith::MulIOp::create(b, loc, index, arith::ConstantIndexOp::create(b, loc, slots));
      index = arith::AddIOp::create(b, loc, first, arith::ConstantIndexOp::create(b, loc, number));
    }
    return hopper::SlotOp::create(b, loc, tile, ring, index);
  }

  /// The exchange in front of a write; the warpgroups meet behind it, and what the tile before has
  /// left in the ring has been copied in front of it.
  Exchange *findExchange(Operation *write) {
    auto [it, isNew] = exchanges.try_emplace(write->getBlock());
    Exchange &exchange = it->second;
    if (!isNew)
      return exchange.ring ? &exchange : nullptr;
    scf::ForOp loop;
    region.walk([&](hopper::SlotOp slot) {
      auto ring = slot.getRing().getDefiningOp<hopper::AllocOp>();
      auto around = dyn_cast_or_null<scf::ForOp>(write->getBlock()->findAncestorOpInBlock(*slot));
      if (!ring || !around || !around->isBeforeInBlock(write) ||
          !llvm::all_of(ring->getUsers(),
                        [&](Operation *user) { return around->isAncestor(user); }))
        return;
      exchange.ring = ring;
      loop = around;
    });
    if (!loop)
      return nullptr;
    // In front of the barrier, in front of the loop or in it, at which all threads learn of it.
    Operation *front = loop;
    for (Operation *op = loop->getPrevNode();
         op && (isa<hopper::BarrierSyncOp>(op) || isMemoryEffectFree(op)); op = op->getPrevNode())
      if (isa<hopper::BarrierSyncOp>(op))
        front = op;
    b.setInsertionPoint(front);
    hopper::TmaWaitOp::create(b, write->getLoc(), 0, /*read=*/true);
    b.setInsertionPoint(write);
    hopper::BarrierSyncOp::create(b, write->getLoc(), findMeeting(loop), warpgroups);
    return &exchange;
  }

  /// The barrier at which the warpgroups meet in a loop; a new one if they do not.
  Value findMeeting(scf::ForOp loop) {
    Value found;
    loop.walk([&](hopper::BarrierSyncOp barrier) {
      Value id = barrier.getId();
      if (int64_t(barrier.getWarpgroups()) == warpgroups && loop.isDefinedOutsideOfLoop(id) &&
          !programs::dependsOn(id, region.getArgument(0)))
        found = id;
    });
    return found ? found
                 : hopper::createNamedBarriers(roles->getBlock(), loop.getLoc(), /*count=*/1);
  }

  static int64_t getRingColumns(Exchange &exchange, VectorType vector) {
    tile::SmemType tile = exchange.ring.getType().getTile();
    return std::min<int64_t>(tile.getSlabColumns(), vector.getDimSize(1));
  }

  /// Whether each slot of the ring has room for a slab of all warpgroups.
  bool fitsRing(Exchange &exchange, VectorType vector) {
    tile::SmemType ring = exchange.ring.getType();
    int64_t width = getRingColumns(exchange, vector);
    return exchange.isRingFree && ring.getElementType() == vector.getElementType() &&
           ring.getRows() == warpgroups * vector.getDimSize(0) &&
           vector.getDimSize(1) % width == 0 &&
           vector.getDimSize(1) / width <= ring.getShape().front() &&
           getTile(vector, width).getSwizzle() == ring.getSwizzle();
  }

  /// This warpgroup's rows of the first columns of a slot.
  Value getRingSlot(Exchange &exchange, tile::SmemType tile, int64_t number) {
    Location loc = exchange.ring.getLoc();
    tile::SmemType type = exchange.ring.getType().getTile();
    Value index = arith::ConstantIndexOp::create(b, loc, number);
    Value slot = hopper::SlotOp::create(b, loc, type, exchange.ring, index);
    if (type.getColumns() > tile.getColumns()) {
      type = tile::SmemType::get({type.getRows(), tile.getColumns()}, type.getElementType(),
                                 type.getSwizzle());
      Value zero = arith::ConstantIndexOp::create(b, loc, 0);
      slot = tile::ColumnsOp::create(b, loc, type, slot, zero);
    }
    auto rows = tile::SmemType::get(b.getContext(), tile.getShape(), type.getElementType(),
                                    type.getSwizzle(), type.getRows());
    Value first = affine::makeComposedAffineApply(
        b, loc, getAffineDimExpr(0, b.getContext()) * tile.getRows(),
        {OpFoldResult(region.getArgument(0))});
    return tile::RowsOp::create(b, loc, rows, slot, first);
  }

  /// What the first output took the place of is given back once that has been copied.
  void releaseBehind(Exchange &exchange) {
    b.setInsertionPointAfter(exchange.last);
    auto wait =
        hopper::TmaWaitOp::create(b, exchange.last.getLoc(), exchange.behind, /*read=*/true);
    exchange.release->moveAfter(wait);
  }

  /// Columns of the vector from `column` on, through `slot`, which may be free already.
  hopper::TmaStoreOp store(vector::TransferWriteOp write, const Target &target, int64_t column,
                           Value slot, Value map, bool isFree) {
    Location loc = write.getLoc();
    VectorType type = write.getVectorType();
    int64_t count =
        std::min(cast<tile::SmemType>(slot.getType()).getColumns(), type.getDimSize(1) - column);
    Value value = write.getVector();
    SmallVector<Value> indices(target.indices);
    if (count < type.getDimSize(1)) {
      value = vector::ExtractStridedSliceOp::create(b, loc, value, ArrayRef<int64_t>{0, column},
                                                    ArrayRef<int64_t>{type.getDimSize(0), count},
                                                    ArrayRef<int64_t>{1, 1});
      Value offset = arith::ConstantIndexOp::create(b, loc, column);
      indices.back() = arith::AddIOp::create(b, loc, indices.back(), offset);
    }
    if (!ofFirst)
      ofFirst = hopper::createNamedBarriers(roles->getBlock(), loc, warpgroups);
    Value id = arith::AddIOp::create(b, loc, region.getArgument(0), ofFirst);
    // Everybody is done with what was in the tile before.
    if (!isFree)
      hopper::BarrierSyncOp::create(b, loc, id, 1);
    tile::WriteOp::create(b, loc, value, slot, /*transpose=*/false);
    hopper::BarrierSyncOp::create(b, loc, id, 1);
    hopper::FenceAsyncOp::create(b, loc);
    return hopper::TmaStoreOp::create(b, loc, slot, map, indices);
  }

  /// This warpgroup's rows of a tile as large as `tile` that is released in the block of `write`,
  /// in front of it. Where all warpgroups are done with what they have received (`isShared`), of
  /// the one that is released last, which has the most stages.
  Value findReceived(Operation *write, tile::SmemType tile, hopper::ReleaseOp &release,
                     bool isShared) {
    Value found;
    for (Operation &op : *write->getBlock()) {
      auto receive = dyn_cast<hopper::ReceiveOp>(op);
      Value part = receive && warpgroups == 1 ? receive.getTile() : Value();
      if (auto rows = dyn_cast<tile::RowsOp>(op)) {
        receive = rows.getSource().getDefiningOp<hopper::ReceiveOp>();
        part = rows.getTile();
      }
      if (!receive || !part)
        continue;
      // What other warpgroups read of it is not this one's to overwrite.
      bool isMine = warpgroups == 1 || isShared ||
                    llvm::all_of(receive.getTile().getUsers(), llvm::IsaPred<tile::RowsOp>);
      isMine &= llvm::none_of(receive.getChannel().getUsers(), [&](Operation *user) {
        return isa<hopper::ReceiveOp>(user) && !region.isAncestor(user->getParentRegion());
      });
      auto type = cast<tile::SmemType>(part.getType());
      if (!isMine || type.getShape() != tile.getShape() ||
          type.getElementType() != tile.getElementType() || type.getSwizzle() != tile.getSwizzle())
        continue;
      for (auto candidate : write->getBlock()->getOps<hopper::ReleaseOp>())
        if (candidate.getChannel() == receive.getChannel() && candidate->isBeforeInBlock(write) &&
            (!release || release->isBeforeInBlock(candidate))) {
          release = candidate;
          found = part;
        }
      if (found && !isShared)
        return found;
    }
    return found;
  }

  gpu::LaunchOp launch;
  hopper::RolesOp roles;
  Region &region;
  bool reuse;
  int64_t columns, warpgroups;
  OpBuilder b;
  Value ofFirst; // the named barrier of the first warpgroup on its own
  /// By memref and tile.
  llvm::DenseMap<std::pair<Value, Type>, Value> maps, rings;
  llvm::MapVector<Block *, Exchange> exchanges; // a block without one has no ring
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
