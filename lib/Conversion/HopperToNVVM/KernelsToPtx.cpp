// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Modules of kernels to PTX, as gpu-module-to-binary, but with what the LLVM
// dialect cannot say of inline assembly.

#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/GPU/IR/CompilationInterfaces.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Threading.h"
#include "mlir/Target/LLVM/NVVM/Target.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"

namespace attn {
#define GEN_PASS_DEF_ATTNKERNELSTOPTX
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numModules("attn-kernels-to-ptx", "compiled",
                             "Modules of kernels that were compiled to PTX");

/// Products, barriers and waits are executed by all threads of a warp together;
/// they must not move into branches that only some of them take.
static void markConvergent(llvm::Module &module) {
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::instructions(function))
      if (auto *call = llvm::dyn_cast<llvm::CallInst>(&instruction))
        if (auto *text = llvm::dyn_cast<llvm::InlineAsm>(call->getCalledOperand()))
          if (text->hasSideEffects())
            call->setConvergent();
}

namespace {
struct AttnKernelsToPtx : attn::impl::AttnKernelsToPtxBase<AttnKernelsToPtx> {
  void getDependentDialects(DialectRegistry &registry) const override {
    registerBuiltinDialectTranslation(registry);
    registerGPUDialectTranslation(registry);
    registerLLVMDialectTranslation(registry);
    registerNVVMDialectTranslation(registry);
    NVVM::registerNVVMTargetInterfaceExternalModels(registry);
  }

  void runOnOperation() override {
    // What a launch has to know of its kernel.
    WalkResult walk = getOperation()->walk([&](gpu::LaunchFuncOp launch) {
      Operation *kernel = SymbolTable::lookupSymbolIn(getOperation(), launch.getKernel());
      auto bytes = kernel ? kernel->getAttrOfType<IntegerAttr>(attn::hopper::kSharedBytesAttr)
                          : IntegerAttr();
      APInt given(64, 0);
      Value size = launch.getDynamicSharedMemorySize();
      bool isKnown = !size || matchPattern(size, m_ConstantInt(&given));
      if (bytes && isKnown && given.getSExtValue() < bytes.getInt()) {
        launch.emitOpError() << "gives " << given.getSExtValue()
                             << " bytes of shared memory to a kernel that takes " << bytes.getInt();
        return WalkResult::interrupt();
      }
      for (StringRef name : {attn::hopper::kCooperativeAttr, attn::hopper::kEarlyAttr})
        if (Attribute told = kernel ? kernel->getAttr(name) : Attribute())
          launch->setAttr(name, told);
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      return signalPassFailure();
    gpu::TargetOptions options(/*toolkitPath=*/{}, /*librariesToLink=*/{}, /*cmdOptions=*/{},
                               /*elfSection=*/{}, gpu::CompilationTarget::Assembly,
                               /*getSymbolTableCallback=*/{}, markConvergent);

    // Code generation is most of what compiling a kernel takes; each module has a
    // parent of its own, so that threads change nothing that they share.
    SmallVector<OwningOpRef<ModuleOp>> parents;
    for (auto kernels : llvm::make_early_inc_range(getOperation().getOps<gpu::GPUModuleOp>())) {
      numModules.at(kernels);
      parents.emplace_back(ModuleOp::create(kernels.getLoc()));
      kernels->moveBefore(parents.back()->getBody(), parents.back()->getBody()->end());
    }
    if (failed(failableParallelForEach(&getContext(), parents, [&](OwningOpRef<ModuleOp> &parent) {
          return gpu::transformGpuModulesToBinaries(*parent, nullptr, options);
        })))
      return signalPassFailure();
    Block *body = getOperation().getBody();
    for (OwningOpRef<ModuleOp> &parent : parents)
      body->getOperations().splice(body->end(), parent->getBody()->getOperations());
  }
};
} // namespace
