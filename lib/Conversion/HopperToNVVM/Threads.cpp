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
  function.walk([&](Operation *op) { ops.push_back(op); });
  for (Operation *op : ops)
    if (failed(lowerOfThread(op)))
      return failure();
  return success();
}

LogicalResult KernelLowering::lowerOfThread(Operation *op) {
  b.setInsertionPoint(op);
  b.setLoc(op->getLoc());
  if (isa<ThreadsOp>(op))
    return op->erase(), success();
  if (isa<ClusterSyncOp>(op))
    return lowerClusterSync(), op->erase(), success();
  if (auto load = dyn_cast<RemoteLoadOp>(op))
    return lowerRemoteLoad(load), success();
  if (isa_and_nonnull<HopperDialect, attn::tile::TileDialect>(op->getDialect()))
    return op->emitOpError("is of warpgroups, not of threads");
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
