// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels that are the code of one thread: functions of f32 by instructions, and what threads of a
// cluster do together. Upstream's passes lower the rest.

#include "Lowering.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace attn::hopper;

LogicalResult KernelLowering::runThread() {
  entry = &function.front();
  ofThreads = singleThread = true; // who executes something does it for itself
  std::optional<ArrayRef<int32_t>> size = function.getKnownBlockSize();
  constexpr int64_t kMostThreads = 1024;
  if (!size || (*size)[1] != 1 || (*size)[2] != 1 || (*size)[0] > kMostThreads)
    return function.emitOpError("expects a known block size of (n, 1, 1) threads, n at most 1024");
  SmallVector<Operation *> ops;
  // What is opaque follows one number for all values that stand one behind the other.
  function.walk([&](Operation *op) {
    if (!isa<OpaqueOp>(op) || !isa_and_nonnull<OpaqueOp>(op->getPrevNode()))
      ops.push_back(op);
  });
  for (Operation *op : ops)
    if (failed(lowerOfThread(op)))
      return failure();
  return success();
}

LogicalResult KernelLowering::lowerOfThread(Operation *op) {
  b.setInsertionPoint(op);
  b.setLoc(op->getLoc());
  if (auto threads = dyn_cast<ThreadsOp>(op)) {
    if (IntegerAttr occupancy = threads.getOccupancyAttr())
      function->setAttr(kOccupancyAttr, occupancy);
    return op->erase(), success();
  }
  if (isa<ClusterArriveOp>(op))
    return NVVM::ClusterArriveOp::create(b, UnitAttr()), op->erase(), success();
  if (isa<ClusterWaitOp>(op))
    return NVVM::ClusterWaitOp::create(b, UnitAttr()), op->erase(), success();
  if (auto opaque = dyn_cast<OpaqueOp>(op))
    return lowerOpaque(opaque);
  if (isa<ClusterSyncOp>(op))
    return lowerClusterSync(), op->erase(), success();
  if (auto load = dyn_cast<RemoteLoadOp>(op))
    return lowerRemoteLoad(load), success();
  if (auto sync = dyn_cast<GridSyncOp>(op))
    return lowerGridSync(sync);
  if (auto last = dyn_cast<LastArrivalOp>(op))
    return lowerLastArrival(last);
  if (isa<SemaphoreWaitOp, SemaphoreReleaseOp>(op)) {
    LogicalResult result = lowerHopperOp(op);
    op->erase();
    return result;
  }
  if (isa_and_nonnull<HopperDialect, attn::tile::TileDialect>(op->getDialect()))
    return op->emitOpError("is of warpgroups, not of threads");
  if (auto join = dyn_cast<vector::FromElementsOp>(op))
    return lowerRounded(join), success();
  bool isMath = op->getDialect() && op->getDialect()->getNamespace() == "math";
  if (!op->hasTrait<OpTrait::Elementwise>() || op->getNumResults() != 1 ||
      !(isMath || isa<FloatType>(op->getResult(0).getType())))
    return success();
  Value value = emitElement(op, op->getOperands());
  if (!value)
    return failure();
  op->getResult(0).replaceAllUsesWith(value);
  op->erase();
  return success();
}

/// Words with a 0 added to them bitwise that no compiler knows: the assembler looks through moves.
LogicalResult KernelLowering::lowerOpaque(OpaqueOp first) {
  // Multiprocessors are fewer than 2^20; each time another shift, for the sum of two equal numbers
  // is known to be 0.
  constexpr unsigned kLeastShift = 20, kShifts = 12;
  unsigned shift = kLeastShift + numOpaque++ % kShifts;
  Type i32 = b.getI32Type();
  Value zero = inlineAsm(i32, {},
                         "{ .reg .b32 number; mov.u32 number, %smid; shr.u32 $0, number, " +
                             Twine(shift) + "; }",
                         "=r", /*sideEffects=*/true);
  while (first) {
    auto next = dyn_cast_if_present<OpaqueOp>(first->getNextNode());
    VectorType type = first.getValue().getType();
    Type element = type.getElementType();
    int64_t bits =
        element.isIntOrFloat() ? type.getNumElements() * element.getIntOrFloatBitWidth() : 0;
    if (bits == 0 || bits % 32 || type.getRank() != 1)
      return first.emitOpError() << "expected a vector of whole words, got " << type;
    auto words = VectorType::get(bits / 32, i32);
    b.setInsertionPoint(first);
    Value all = vector::BitCastOp::create(b, words, first.getValue());
    all = arith::XOrIOp::create(b, all, vector::BroadcastOp::create(b, words, zero));
    first.replaceAllUsesWith(Value(vector::BitCastOp::create(b, type, all)));
    first.erase();
    first = next;
  }
  return success();
}

/// Numbers of f32 that become a vector of 16-bit ones: one instruction for a pair.
void KernelLowering::lowerRounded(vector::FromElementsOp op) {
  VectorType type = op.getType();
  Type element = type.getElementType(), i32 = b.getI32Type();
  int64_t count = type.getNumElements();
  auto isRounded = [](Value value) {
    auto truncate = value.getDefiningOp<arith::TruncFOp>();
    return truncate && truncate.getIn().getType().isF32();
  };
  if (!(element.isBF16() || element.isF16()) || count % 2 || type.getRank() != 1 ||
      !llvm::all_of(op.getElements(), isRounded))
    return;
  SmallVector<Value> words;
  for (int64_t e = 0; e < count; e += 2) {
    auto wide = [&](int64_t n) {
      return op.getElements()[size_t(n)].getDefiningOp<arith::TruncFOp>().getIn();
    };
    auto pair = VectorType::get(2, element);
    auto rounding = NVVM::FPRoundingMode::RN;
    Value both = element.isBF16()
                     ? Value(NVVM::ConvertF32x2ToBF16x2Op::create(b, pair, wide(e + 1), wide(e),
                                                                  Value(), rounding))
                     : Value(NVVM::ConvertF32x2ToF16x2Op::create(b, pair, wide(e + 1), wide(e),
                                                                 Value(), rounding));
    words.push_back(LLVM::BitcastOp::create(b, i32, both));
  }
  Value joined = vector::FromElementsOp::create(b, VectorType::get(count / 2, i32), words);
  op.replaceAllUsesWith(Value(vector::BitCastOp::create(b, type, joined)));
  op.erase();
}

void KernelLowering::lowerRemoteLoad(RemoteLoadOp op) {
  auto pointer = [&](NVVM::NVVMMemorySpace space) {
    return LLVM::LLVMPointerType::get(b.getContext(), unsigned(space));
  };
  Value start = toI32(memref::ExtractAlignedPointerAsIndexOp::create(b, op.getMemory()));
  constexpr int64_t kBytes = 4; // of f32 and i32
  Value offset = arith::MulIOp::create(b, toI32(op.getIndex()), constantI32(kBytes));
  Value own = LLVM::IntToPtrOp::create(b, pointer(NVVM::NVVMMemorySpace::Shared),
                                       Value(arith::AddIOp::create(b, start, offset)));
  Value other = NVVM::MapaOp::create(b, pointer(NVVM::NVVMMemorySpace::SharedCluster), own,
                                     toI32(op.getRank()));
  // Another CTA writes there: the load must not move.
  Value value = LLVM::LoadOp::create(b, op.getType(), other, /*alignment=*/0, /*isVolatile=*/true);
  op.replaceAllUsesWith(value);
  op.erase();
}

Value KernelLowering::threadAddress(Value memref, ValueRange indices) {
  auto metadata = memref::ExtractStridedMetadataOp::create(b, memref);
  Value element = metadata.getOffset();
  for (auto [at, stride] : llvm::zip_equal(indices, metadata.getStrides()))
    element = arith::AddIOp::create(b, element, Value(arith::MulIOp::create(b, at, stride)));
  int64_t bytes = cast<MemRefType>(memref.getType()).getElementTypeBitWidth() / 8;
  Value start = memref::ExtractAlignedPointerAsIndexOp::create(b, memref);
  Value offset = arith::MulIOp::create(b, element, constantIndex(bytes));
  return arith::IndexCastOp::create(b, b.getI64Type(),
                                    Value(arith::AddIOp::create(b, start, offset)));
}

/// The CTA's number 0 of threads counts for all, between two barriers: what the others did before
/// comes before its release, and what they do behind comes behind its acquire.
void KernelLowering::inThread0(function_ref<void()> emit) {
  gpu::BarrierOp::create(b);
  Value isFirst = arith::CmpIOp::create(
      b, arith::CmpIPredicate::eq,
      Value(gpu::ThreadIdOp::create(b, b.getIndexType(), gpu::Dimension::x)), constantIndex(0));
  auto branch = scf::IfOp::create(b, isFirst);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    emit();
  }
  gpu::BarrierOp::create(b);
}

/// The counter goes up by the number of CTAs in each meeting.
LogicalResult KernelLowering::lowerGridSync(GridSyncOp op) {
  FailureOr<Value> address = elementAddress(op, op.getCounter(), constantIndex(0));
  if (failed(address))
    return failure();
  function->setAttr(kCooperativeAttr, b.getUnitAttr());
  Value ctas = constantI32(1);
  for (gpu::Dimension dim : {gpu::Dimension::x, gpu::Dimension::y, gpu::Dimension::z})
    ctas = arith::MulIOp::create(b, ctas,
                                 toI32(Value(gpu::GridDimOp::create(b, b.getIndexType(), dim))));
  inThread0([&] {
    Value before = inlineAsm(b.getI32Type(), {*address},
                             "atom.add.release.gpu.global.u32 $0, [$1], 1;", "=r,l,~{memory}",
                             /*sideEffects=*/true);
    Value meeting =
        arith::AddIOp::create(b, Value(arith::DivUIOp::create(b, before, ctas)), constantI32(1));
    Value all = arith::MulIOp::create(b, meeting, ctas);
    inlineAsm(Type(), {*address, all},
              "{ .reg .pred p; .reg .b32 word; AGAIN: ld.acquire.gpu.global.b32 word, [$0]; "
              "sub.s32 word, word, $1; setp.lt.s32 p, word, 0; @p bra AGAIN; }",
              "l,r,~{memory}", /*sideEffects=*/true);
  });
  op->erase();
  return success();
}

LogicalResult KernelLowering::lowerLastArrival(LastArrivalOp op) {
  FailureOr<Value> address = elementAddress(op, op.getCounters(), op.getIndex());
  if (failed(address))
    return failure();
  Type i32 = b.getI32Type();
  auto memory = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  Value answer = function.addWorkgroupAttribution(
      MemRefType::get({1}, i32, MemRefLayoutAttrInterface(), memory), op.getLoc());
  Value last = addI32(toI32(op.getCount()), -1);
  inThread0([&] {
    // From the last number back to 0.
    Value before = inlineAsm(i32, {*address, last}, "atom.inc.acq_rel.gpu.global.u32 $0, [$1], $2;",
                             "=r,l,r,~{memory}",
                             /*sideEffects=*/true);
    memref::StoreOp::create(b, before, answer, constantIndex(0));
  });
  Value before = memref::LoadOp::create(b, answer, constantIndex(0));
  op.replaceAllUsesWith(Value(arith::CmpIOp::create(b, arith::CmpIPredicate::eq, before, last)));
  op->erase();
  return success();
}
