// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The passes: kernels of the protocol form to the code of one thread, and what
// can only be said of a kernel once it is a function of the LLVM dialect.

#include "Lowering.h"
#include "attn/Conversion/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace attn {
#define GEN_PASS_DEF_CONVERTHOPPERTONVVM
#define GEN_PASS_DEF_ATTNFINISHKERNELS
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn::hopper;

static attn::Done numKernels("convert-hopper-to-nvvm", "converted",
                             "Kernels that became instructions");
static attn::Done numFinished("attn-finish-kernels", "finished",
                              "Kernels that got their attributes");

/// Warpgroups of a CTA; fails where threads are no warpgroups.
static LogicalResult verifyThreads(gpu::GPUFuncOp function) {
  std::optional<ArrayRef<int32_t>> size = function.getKnownBlockSize();
  if (!size || (*size)[1] != 1 || (*size)[2] != 1 || (*size)[0] % 32)
    return function.emitOpError(
        "expects a known block size of whole warps, (32 * n, 1, 1) threads");
  WalkResult walk = function.walk([&](RolesOp op) {
    int64_t groups = op.getNumWarpgroups();
    if (groups * kThreadsPerWarpgroup == (*size)[0] ||
        (op.getBodies().size() == 1 && groups * kThreadsOfWarpPair == (*size)[0]))
      return WalkResult::advance();
    op.emitOpError() << "has " << op.getNumWarpgroups() << " warpgroups, the launch has "
                     << (*size)[0] << " threads";
    return WalkResult::interrupt();
  });
  return failure(walk.wasInterrupted());
}

namespace {
struct ConvertHopperToNVVM : attn::impl::ConvertHopperToNVVMBase<ConvertHopperToNVVM> {
  void runOnOperation() override {
    bool usesShared = false;
    for (auto function : getOperation().getOps<gpu::GPUFuncOp>()) {
      if (!function.isKernel())
        continue;
      if (failed(convert(function, usesShared)))
        return signalPassFailure();
    }
    if (!usesShared)
      return;
    // The launch gives the size; the symbol gives the address.
    OpBuilder b = OpBuilder::atBlockBegin(getOperation().getBody());
    auto bytes = LLVM::LLVMArrayType::get(b.getI8Type(), 0);
    LLVM::GlobalOp::create(b, getOperation().getLoc(), bytes, /*isConstant=*/false,
                           LLVM::Linkage::External, "hopper_shared_memory", Attribute(),
                           /*alignment=*/1024, unsigned(NVVM::NVVMMemorySpace::Shared));
  }

  LogicalResult convert(gpu::GPUFuncOp function, bool &usesShared) {
    if (!function.getBody().hasOneBlock())
      return function.emitOpError("expects structured control flow");
    if (!function.getBody().getOps<ThreadsOp>().empty()) {
      numKernels.at(function) << remark::metric("SharedBytes", 0);
      return KernelLowering(function, VectorLayouts(), SharedMemory()).runThread();
    }
    if (failed(verifyThreads(function)))
      return failure();
    VectorLayouts layouts(function);
    if (failed(layouts.verify(function)))
      return failure();
    FailureOr<SharedMemory> memory = planSharedMemory(function);
    if (failed(memory))
      return failure();
    numKernels.at(function) << remark::metric("SharedBytes", memory->bytes);
    usesShared |= memory->bytes != 0;
    function->setAttr(kSharedBytesAttr,
                      IntegerAttr::get(IntegerType::get(&getContext(), 64), memory->bytes));
    return KernelLowering(function, layouts, std::move(*memory)).run();
  }
};

struct AttnFinishKernels : attn::impl::AttnFinishKernelsBase<AttnFinishKernels> {
  void runOnOperation() override {
    MLIRContext *context = &getContext();
    auto map = LLVM::LLVMArrayType::get(IntegerType::get(context, 8), 128);
    for (auto function : getOperation().getOps<LLVM::LLVMFuncOp>()) {
      if (!function->hasAttr(NVVM::NVVMDialect::getKernelFuncAttrName()))
        continue;
      numFinished.at(function);
      if (auto occupancy = function->getAttrOfType<IntegerAttr>(kOccupancyAttr))
        function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                          IntegerAttr::get(IntegerType::get(context, 32), occupancy.getInt()));
      auto maps = function->getAttrOfType<DenseI64ArrayAttr>(kTensorMapsAttr);
      for (int64_t i : maps ? maps.asArrayRef() : ArrayRef<int64_t>()) {
        if (i >= function.getNumArguments() ||
            !isa<LLVM::LLVMPointerType>(function.getArgument(i).getType())) {
          function.emitError("parameter ") << i << " is no tensor map";
          return signalPassFailure();
        }
        function.setArgAttr(i, LLVM::LLVMDialect::getByValAttrName(), TypeAttr::get(map));
        function.setArgAttr(i, LLVM::LLVMDialect::getAlignAttrName(),
                            IntegerAttr::get(IntegerType::get(context, 64), 64));
        function.setArgAttr(i, NVVM::NVVMDialect::getGridConstantAttrName(),
                            UnitAttr::get(context));
      }
    }
  }
};
} // namespace
