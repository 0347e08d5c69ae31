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
