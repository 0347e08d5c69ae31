// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// mbarriers, copies by TMA and named barriers.

#include "Lowering.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

using namespace mlir;
using namespace attn::hopper;

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
      NVVM::MBarrierArriveExpectTxOp::create(b, Type(), pointer, bytes,
                                             NVVM::MemScopeKind::CTA, false, Value());
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
    bool accesses = isa<TileStoreOp, TileLoadOp>(other) ||
                    (!isa_and_nonnull<HopperDialect>(other->getDialect()) &&
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

void KernelLowering::lowerTmaLoad(TmaLoadOp op) {
  SmemType tile = op.getTile().getType();
  Value barrier = barrierAddress(op.getBarriers(), op.getIndex());
  SmallVector<Value> coordinates = reversed(op.getCoordinates());
  inLeader([&] {
    Value mask = op.getMulticast() ? clusterMask() : Value();
    for (int64_t slab = 0; slab < tile.getSlabs(); ++slab) {
      SmallVector<Value> box = coordinates;
      box[0] = addI32(box[0], slab * tile.getSlabColumns());
      Value target = sharedPointer(scalar(op.getTile()), slab * tile.getSlabBytes());
      if (mask)
        target = LLVM::AddrSpaceCastOp::create(
            b,
            LLVM::LLVMPointerType::get(b.getContext(),
                                       unsigned(NVVM::NVVMMemorySpace::SharedCluster)),
            target);
      NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp::create(
          b, target, scalar(op.getMap()), box, sharedPointer(barrier), ValueRange(), mask, Value(),
          NVVM::TMALoadMode::TILE, /*isCTAOnly=*/!mask, NVVM::CTAGroupKindAttr(), Value());
    }
  });
}

template <typename Op> void KernelLowering::lowerTmaStore(Op op) {
  SmemType tile = op.getTile().getType();
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
        NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp::create(b, scalar(op.getMap()), pointer, box,
                                                           Value(), NVVM::TMAStoreMode::TILE,
                                                           Value());
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

/// The address of a word of other CTAs' turns.
FailureOr<Value> KernelLowering::turnAddress(Operation *op, Value turns, ValueRange indices) {
  if (!singleThread)
    return op->emitOpError("expects a role of one thread, which waits on behalf of what it starts");
  return elementAddress(op, turns, indices);
}

LogicalResult KernelLowering::lowerTurnWait(TurnWaitOp op) {
  FailureOr<Value> address = turnAddress(op, op.getTurns(), op.getIndices());
  if (failed(address))
    return failure();
  // Only a fence where there is nobody to wait for.
  std::optional<int64_t> number = getConstantIntValue(op.getNumber());
  if (!number || *number >= 0)
    function->setAttr(kCooperativeAttr, b.getUnitAttr());
  inlineAsm(Type(), {*address, scalar(op.getNumber())},
            "{ .reg .pred p; .reg .b16 half; .reg .s32 word; setp.lt.s32 p, $1, 0; @p bra DONE; "
            "AGAIN: ld.acquire.gpu.global.b16 half, [$0]; cvt.s32.s16 word, half; "
            "setp.ne.s32 p, word, $1; @p bra AGAIN; DONE: fence.proxy.async.global; }",
            "l,r,~{memory}", /*sideEffects=*/true);
  return success();
}

LogicalResult KernelLowering::lowerTurnPeek(TurnPeekOp op) {
  FailureOr<Value> address = turnAddress(op, op.getTurns(), op.getIndices());
  if (failed(address))
    return failure();
  setScalar(op.getNumber(),
            inlineAsm(b.getI32Type(), *address,
                      "{ .reg .b16 half; ld.acquire.gpu.global.b16 half, [$1]; "
                      "cvt.s32.s16 $0, half; }",
                      "=r,l,~{memory}", /*sideEffects=*/true));
  return success();
}

/// A swap of 16 bits would be a load and a swap of 32 bits in a loop: the loop alone, which tries
/// with a zero beside the word first.
LogicalResult KernelLowering::lowerTurnClaim(TurnClaimOp op) {
  FailureOr<Value> address = turnAddress(op, op.getTurns(), op.getIndices());
  if (failed(address))
    return failure();
  Value first = inlineAsm(
      b.getI32Type(), {*address, scalar(op.getSeen())},
      "{ .reg .pred p; .reg .b64 place; .reg .b32 shift, claimed, both, found; .reg .s32 word; "
      ".reg .b16 half; mov.b32 $0, 0; setp.gt.s32 p, $2, 0; @p bra DONE; "
      "and.b64 place, $1, -4; cvt.u32.u64 shift, $1; and.b32 shift, shift, 2; "
      "shl.b32 shift, shift, 3; shl.b32 claimed, 0xffff, shift; mov.b32 both, 0; "
      "SWAP: or.b32 found, both, claimed; "
      "atom.acquire.gpu.global.cas.b32 found, [place], both, found; "
      "setp.eq.b32 p, found, both; @p bra FIRST; mov.b32 both, found; "
      "bfe.s32 word, found, shift, 16; setp.eq.s32 p, word, 0; @p bra SWAP; bra TEST; "
      "FIRST: mov.b32 $0, 1; bra DONE; "
      "AGAIN: ld.acquire.gpu.global.b16 half, [$1]; cvt.s32.s16 word, half; "
      "TEST: setp.lt.s32 p, word, 1; @p bra AGAIN; fence.proxy.async.global; DONE: }",
      "=&r,l,r,~{memory}", /*sideEffects=*/true);
  setScalar(op.getFirst(),
            arith::CmpIOp::create(b, arith::CmpIPredicate::ne, first, constantI32(0)));
  return success();
}

LogicalResult KernelLowering::lowerTurnPass(TurnPassOp op) {
  FailureOr<Value> address = turnAddress(op, op.getTurns(), op.getIndices());
  if (failed(address))
    return failure();
  inlineAsm(Type(), {*address, scalar(op.getNumber())},
            "{ .reg .b16 half; cvt.u16.u32 half, $1; st.release.gpu.global.b16 [$0], half; }",
            "l,r,~{memory}", /*sideEffects=*/true);
  return success();
}

template <typename Op> void KernelLowering::lowerNamedBarrier(Op op) {
  Value id = toI32(scalar(op.getId()));
  Value threads = constantI32(op.getWarpgroups() * kThreadsPerWarpgroup);
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
  Value threads = constantI32(op.getWarpgroups() * kThreadsPerWarpgroup);
  // NVVM's op has reductions at barrier 0 only.
  Value result = inlineAsm(b.getI32Type(), {bit, id, threads},
                           Twine("{ .reg .pred p, q; setp.ne.u32 p, $1, 0; bar.red.") +
                               (all ? "and" : "or") +
                               ".pred q, $2, $3, p; selp.u32 $0, 1, 0, q; }",
                           "=r,r,r,r,~{memory}", /*sideEffects=*/true);
  setScalar(op.getResult(),
            arith::CmpIOp::create(b, arith::CmpIPredicate::ne, result, constantI32(0)));
}
