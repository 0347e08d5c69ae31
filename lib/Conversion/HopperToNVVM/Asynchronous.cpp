// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// mbarriers, copies by TMA and named barriers.

#include "Lowering.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

using namespace mlir;
using namespace attn::hopper;
namespace tile = attn::tile;

Value KernelLowering::barrierAddress(Value barriers, Value index) {
  Value step = arith::MulIOp::create(b, toI32(scalar(index)), constantI32(8));
  return arith::AddIOp::create(b, scalar(barriers), step);
}

/// One arrival by one thread, or, where arrivals count per warp, four at once.
void KernelLowering::lowerExpect(MBarrierExpectOp op) {
  Value address = barrierAddress(op.getBarriers(), op.getIndex());
  bool perWarp = memory.perWarp[op.getBarriers()];
  inLeader([&] {
    Value pointer = sharedPointer(address), bytes = constantI32(op.getBytes());
    if (!perWarp) {
      NVVM::MBarrierArriveExpectTxOp::create(b, Type(), pointer, bytes, NVVM::MemScopeKind::CTA,
                                             false, Value());
      return;
    }
    NVVM::MBarrierExpectTxOp::create(b, pointer, bytes);
    NVVM::MBarrierArriveOp::create(b, b.getI64Type(), pointer, constantI32(4));
  });
}

/// Whether `first` may have run before `second`, both inside of `region`.
static bool mayRunBefore(Operation *first, Operation *second, Region *region) {
  Operation *top = region->getParentOp();
  for (Operation *loop = second->getParentOp(); loop != top; loop = loop->getParentOp())
    if (isa<LoopLikeOpInterface>(loop) && loop->isProperAncestor(first))
      return true;
  for (Operation *after = second; after != top; after = after->getParentOp())
    if (Operation *before = after->getBlock()->findAncestorOpInBlock(*first))
      return before != after && before->isBeforeInBlock(after);
  return false;
}

/// Whether threads of a warp may have accesses of their own before an arrival,
/// which their lane 0 does not order.
static bool needsWarpSync(MBarrierArriveOp op) {
  Region *region = op->getParentRegion();
  while (!isa<RolesOp, gpu::GPUFuncOp>(region->getParentOp()))
    region = region->getParentRegion();
  WalkResult walk = region->walk([&](Operation *other) {
    bool accesses = isa<tile::WriteOp, tile::ReadOp>(other) ||
                    (!isa_and_nonnull<HopperDialect, tile::TileDialect>(other->getDialect()) &&
                     other->getNumRegions() == 0 && !isMemoryEffectFree(other));
    return accesses && mayRunBefore(other, op, region) ? WalkResult::interrupt()
                                                       : WalkResult::advance();
  });
  return walk.wasInterrupted();
}

DenseSet<Operation *> attn::hopper::findSyncedArrivals(gpu::GPUFuncOp function) {
  DenseSet<Operation *> arrivals;
  function.walk([&](MBarrierArriveOp op) {
    if (needsWarpSync(op))
      arrivals.insert(op);
  });
  return arrivals;
}

/// Of each warp (or of the one thread for its four), an arrival at each CTA, by as many lanes.
void KernelLowering::lowerClusterArrive(MBarrierArriveOp op, Value address) {
  auto arrive = [&](Value condition, Value cta, const Twine &count) {
    inlineAsm(Type(), {condition, address, cta},
              "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, $1, $2; "
              "@$0 mbarrier.arrive.shared::cluster.b64 _, [remote]" +
                  count + "; }",
              "b,r,r,~{memory}", /*sideEffects=*/true);
  };
  auto isMember = [&](Value number) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ult, number, clusterSize);
  };
  if (singleThread) {
    for (int64_t cta = 0; cta < kCtasPerCluster; ++cta)
      arrive(isMember(constantI32(cta)), constantI32(cta), ", 4");
    return;
  }
  if (syncedArrivals.contains(op))
    NVVM::SyncWarpOp::create(b, constantI32(-1));
  arrive(isMember(lane), lane, "");
}

/// A bit for each CTA of the cluster.
Value KernelLowering::clusterMask() {
  Value all = arith::SubIOp::create(b, arith::ShLIOp::create(b, constantI32(1), clusterSize),
                                    constantI32(1));
  return arith::TruncIOp::create(b, b.getI16Type(), all);
}

void KernelLowering::lowerClusterSync() {
  // The lanes of a warp may come from their roles one by one.
  NVVM::ClusterArriveOp::create(b, UnitAttr());
  NVVM::ClusterWaitOp::create(b, UnitAttr());
}

void KernelLowering::lowerArrive(MBarrierArriveOp op) {
  Value address = barrierAddress(op.getBarriers(), op.getIndex());
  if (op.getCluster())
    return lowerClusterArrive(op, address);
  if (singleThread) {
    NVVM::MBarrierArriveOp::create(b, b.getI64Type(), sharedPointer(address), constantI32(4));
    return;
  }
  if (syncedArrivals.contains(op))
    NVVM::SyncWarpOp::create(b, constantI32(-1));
  // With a predicate: a branch would end the block.
  inlineAsm(Type(), {isLane0, address}, "@$0 mbarrier.arrive.shared::cta.b64 _, [$1];",
            "b,r,~{memory}", /*sideEffects=*/true);
}

void KernelLowering::lowerMBarrierWait(MBarrierWaitOp op) {
  // The hint is how long a try may sleep; the op tries again.
  constexpr int64_t kNanoseconds = 10000000;
  NVVM::MBarrierTryWaitParityOp::create(
      b, sharedPointer(barrierAddress(op.getBarriers(), op.getIndex())), scalar(op.getPhase()),
      constantI32(kNanoseconds));
}

/// Coordinates in the order of a tensor map: innermost first.
SmallVector<Value> KernelLowering::reversed(OperandRange coordinates) {
  SmallVector<Value> values;
  for (Value coordinate : llvm::reverse(coordinates))
    values.push_back(toI32(scalar(coordinate)));
  return values;
}

/// Box by box: one for each slab.
void KernelLowering::copySlabs(TmaLoadOp op, Value map, ArrayRef<Value> coordinates, Value place,
                               Value barrier, Value mask) {
  tile::SmemType tile = op.getTile().getType();
  for (int64_t slab = 0; slab < tile.getSlabs(); ++slab) {
    SmallVector<Value> box(coordinates);
    box[0] = addI32(box[0], slab * tile.getSlabColumns());
    Value target = sharedPointer(place, slab * tile.getSlabBytes());
    if (mask)
      target = LLVM::AddrSpaceCastOp::create(
          b,
          LLVM::LLVMPointerType::get(b.getContext(),
                                     unsigned(NVVM::NVVMMemorySpace::SharedCluster)),
          target);
    NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp::create(
        b, target, map, box, sharedPointer(barrier), ValueRange(), mask, Value(),
        NVVM::TMALoadMode::TILE, /*isCTAOnly=*/!mask, NVVM::CTAGroupKindAttr(), Value());
  }
}

/// Marks of 16 bits along the last dimension of a memref: where the first one is, and the bytes
/// from one to the next, i64.
std::pair<Value, Value> KernelLowering::marksAt(Value memref, ValueRange leading) {
  Value source = scalar(memref);
  SmallVector<int64_t> known;
  int64_t offset;
  bool isStrided = succeeded(cast<MemRefType>(memref.getType()).getStridesAndOffset(known, offset));
  auto metadata = memref::ExtractStridedMetadataOp::create(b, source);
  SmallVector<Value> strides(metadata.getStrides());
  if (isStrided && !ShapedType::isDynamic(known.back()))
    strides.back() = constantIndex(known.back());
  Value position =
      isStrided && !ShapedType::isDynamic(offset) ? constantIndex(offset) : metadata.getOffset();
  for (auto [index, stride] : llvm::zip_equal(leading, ValueRange(strides).drop_back()))
    position = arith::AddIOp::create(b, position, arith::MulIOp::create(b, scalar(index), stride));
  auto inBytes = [&](Value elements) -> Value {
    return arith::MulIOp::create(b, elements, constantIndex(2));
  };
  auto toI64 = [&](Value value) -> Value {
    return arith::IndexCastOp::create(b, b.getI64Type(), value);
  };
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(b, source);
  return {toI64(arith::AddIOp::create(b, base, inBytes(position))), toI64(inBytes(strides.back()))};
}

/// Row by row: those that are marked from behind the last one.
void KernelLowering::copyRows(TmaLoadOp op, ArrayRef<Value> coordinates, Value barrier) {
  tile::SmemType tile = op.getTile().getType();
  ValueRange leading = op.getCoordinates().drop_back(2);
  auto marks = marksAt(op.getMarks(), leading), groups = marksAt(op.getGroups(), leading);
  Value rows =
      toI32(memref::ExtractStridedMetadataOp::create(b, scalar(op.getMarks())).getSizes().back());
  auto loop = scf::ForOp::create(b, constantI32(0), constantI32(tile.getRows()), constantI32(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value row = arith::AddIOp::create(b, coordinates[1], loop.getInductionVar());
  auto isMarked = [&](std::pair<Value, Value> from, Value number, Value predicate) -> Value {
    Value wide = arith::ExtSIOp::create(b, b.getI64Type(), number);
    Value offset = arith::MulIOp::create(b, wide, from.second);
    Value none = constant(b.getI16IntegerAttr(0));
    Value place = arith::AddIOp::create(b, from.first, offset);
    Value mark = load(b.getI16Type(), place, predicate, none);
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, mark, none);
  };
  Value isInside = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, row, rows);
  Value group = arith::DivUIOp::create(b, row, constantI32(kWarpgroupRows));
  Value isDropped = isMarked(marks, row, isMarked(groups, group, isInside));
  SmallVector<Value> box(coordinates);
  box[1] = arith::SelectOp::create(b, isDropped, rows, row);
  Value offset = arith::MulIOp::create(b, loop.getInductionVar(), constantI32(tile.getSwizzle()));
  copySlabs(op, scalar(op.getRowMap()), box, arith::AddIOp::create(b, scalar(op.getTile()), offset),
            barrier, /*mask=*/Value());
}

void KernelLowering::lowerTmaLoad(TmaLoadOp op) {
  Value barrier = barrierAddress(op.getBarriers(), op.getIndex());
  SmallVector<Value> coordinates = reversed(op.getCoordinates());
  inLeader([&] {
    auto copyTile = [&] {
      copySlabs(op, scalar(op.getMap()), coordinates, scalar(op.getTile()), barrier,
                op.getMulticast() ? clusterMask() : Value());
    };
    if (!op.getSome())
      return copyTile();
    auto branch = scf::IfOp::create(b, scalar(op.getSome()), /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    copyRows(op, coordinates, barrier);
    b.setInsertionPointToStart(branch.elseBlock());
    copyTile();
  });
}

template <typename Op> void KernelLowering::lowerTmaStore(Op op) {
  tile::SmemType tile = op.getTile().getType();
  SmallVector<Value> coordinates = reversed(op.getCoordinates());
  inLeader([&] {
    for (int64_t slab = 0; slab < tile.getSlabs(); ++slab) {
      SmallVector<Value> box = coordinates;
      box[0] = addI32(box[0], slab * tile.getSlabColumns());
      Value pointer = sharedPointer(scalar(op.getTile()), slab * tile.getSlabBytes());
      if constexpr (std::is_same_v<Op, TmaReduceOp>)
        NVVM::CpAsyncBulkTensorReduceOp::create(b, scalar(op.getMap()), pointer,
                                                NVVM::TMAReduxKind::ADD, NVVM::TMAStoreMode::TILE,
                                                box, Value());
      else
        NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp::create(
            b, scalar(op.getMap()), pointer, box, Value(), NVVM::TMAStoreMode::TILE, Value());
    }
    NVVM::CpAsyncBulkCommitGroupOp::create(b);
  });
}
template void KernelLowering::lowerTmaStore(TmaStoreOp op);
template void KernelLowering::lowerTmaStore(TmaReduceOp op);

void KernelLowering::lowerTmaWait(TmaWaitOp op) {
  inLeader([&] {
    NVVM::CpAsyncBulkWaitGroupOp::create(b, uint32_t(op.getPending()),
                                         op.getRead() ? b.getUnitAttr() : UnitAttr());
  });
}

/// The address of a semaphore.
FailureOr<Value> KernelLowering::semaphoreAddress(Operation *op, Value semaphores,
                                                  ValueRange indices) {
  if (!singleThread)
    return op->emitOpError("expects a role of one thread, which waits on behalf of what it starts");
  return elementAddress(op, semaphores, indices);
}

LogicalResult KernelLowering::lowerSemaphoreWait(SemaphoreWaitOp op) {
  FailureOr<Value> address = semaphoreAddress(op, op.getSemaphores(), op.getIndices());
  if (failed(address))
    return failure();
  // Only a fence where there is nobody to wait for.
  std::optional<int64_t> number = getConstantIntValue(op.getNumber());
  if (!number || *number >= 0)
    function->setAttr(kCooperativeAttr, b.getUnitAttr());
  inlineAsm(Type(), {*address, scalar(op.getNumber())},
            "{ .reg .pred p; .reg .b32 word; setp.lt.s32 p, $1, 0; @p bra DONE; "
            "AGAIN: ld.acquire.gpu.global.b32 word, [$0]; "
            "setp.ne.s32 p, word, $1; @p bra AGAIN; DONE: " +
                Twine(capability < 90 ? "}" : "fence.proxy.async.global; }"),
            "l,r,~{memory}", /*sideEffects=*/true);
  return success();
}

LogicalResult KernelLowering::lowerSemaphorePeek(SemaphorePeekOp op) {
  FailureOr<Value> address = semaphoreAddress(op, op.getSemaphores(), op.getIndices());
  if (failed(address))
    return failure();
  setScalar(op.getNumber(),
            inlineAsm(b.getI32Type(), *address, "ld.acquire.gpu.global.b32 $0, [$1];",
                      "=r,l,~{memory}", /*sideEffects=*/true));
  return success();
}

LogicalResult KernelLowering::lowerFirstTouch(SemaphoreFirstTouchOp op) {
  FailureOr<Value> address = semaphoreAddress(op, op.getSemaphores(), op.getIndices());
  if (failed(address))
    return failure();
  Value first =
      inlineAsm(b.getI32Type(), {*address, scalar(op.getSeen())},
                "{ .reg .pred p; .reg .b32 word; mov.b32 $0, 0; setp.gt.s32 p, $2, 0; @p bra DONE; "
                "atom.acquire.gpu.global.cas.b32 word, [$1], 0, -1; "
                "setp.ne.s32 p, word, 0; @p bra TEST; mov.b32 $0, 1; bra DONE; "
                "AGAIN: ld.acquire.gpu.global.b32 word, [$1]; "
                "TEST: setp.lt.s32 p, word, 1; @p bra AGAIN; fence.proxy.async.global; DONE: }",
                "=&r,l,r,~{memory}", /*sideEffects=*/true);
  setScalar(op.getFirst(),
            arith::CmpIOp::create(b, arith::CmpIPredicate::ne, first, constantI32(0)));
  return success();
}

LogicalResult KernelLowering::lowerSemaphoreRelease(SemaphoreReleaseOp op) {
  FailureOr<Value> address = semaphoreAddress(op, op.getSemaphores(), op.getIndices());
  if (failed(address))
    return failure();
  inlineAsm(Type(), {*address, scalar(op.getNumber())}, "st.release.gpu.global.b32 [$0], $1;",
            "l,r,~{memory}", /*sideEffects=*/true);
  return success();
}

template <typename Op> void KernelLowering::lowerNamedBarrier(Op op) {
  Value id = toI32(scalar(op.getId()));
  Value threads = constantI32(op.getWarpgroups() * group.threads());
  if constexpr (std::is_same_v<Op, BarrierSyncOp>)
    NVVM::BarrierOp::create(b, Type(), id, threads, NVVM::BarrierReductionAttr(), Value());
  else
    NVVM::BarrierArriveOp::create(b, id, threads);
}
template void KernelLowering::lowerNamedBarrier(BarrierSyncOp op);
template void KernelLowering::lowerNamedBarrier(BarrierArriveOp op);

/// Each thread's own elements first, then all threads at the barrier.
void KernelLowering::lowerBarrierReduce(BarrierReduceOp op) {
  bool all = op.getAll();
  auto kind = all ? vector::CombiningKind::AND : vector::CombiningKind::OR;
  SmallVector<Value> own = elements(op.getValue(), Layout::Tile);
  Value bit = arith::ExtUIOp::create(b, b.getI32Type(), reduceThread(kind, own));
  Value id = toI32(scalar(op.getId()));
  Value threads = constantI32(op.getWarpgroups() * group.threads());
  // NVVM's op has reductions at barrier 0 only.
  Value result = inlineAsm(b.getI32Type(), {bit, id, threads},
                           Twine("{ .reg .pred p, q; setp.ne.u32 p, $1, 0; bar.red.") +
                               (all ? "and" : "or") + ".pred q, $2, $3, p; selp.u32 $0, 1, 0, q; }",
                           "=r,r,r,r,~{memory}", /*sideEffects=*/true);
  setScalar(op.getResult(),
            arith::CmpIOp::create(b, arith::CmpIPredicate::ne, result, constantI32(0)));
}
