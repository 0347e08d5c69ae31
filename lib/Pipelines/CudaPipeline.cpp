// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From the protocol form of the hopper dialect to PTX.

#include "mlir/Pass/PassManager.h" // conversion headers below rely on it

#include "attn/Conversion/Passes.h"
#include "attn/Pipelines/Pipelines.h"
#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

/// Kernels of the protocol form to the LLVM dialect. One nest: in between, the
/// launches outside have the types of before.
static void addKernelLowering(OpPassManager &kernels) {
  kernels.addPass(createLowerAffinePass());
  kernels.addPass(createCSEPass());
  attn::AttnExpandMathOptions math; // but for what the device has
  math.keep = {"math.absf",      "math.ceil",  "math.copysign", "math.exp",   "math.exp2",
               "math.floor",     "math.fma",   "math.log",      "math.log10", "math.log2",
               "math.roundeven", "math.rsqrt", "math.sqrt",     "math.tanh",  "math.trunc"};
  math.doubles = true;
  kernels.addPass(attn::createAttnExpandMath(math));
  kernels.addPass(attn::createAttnExpandRandomBits({/*onlyNumbers=*/true}));
  kernels.addPass(attn::createConvertHopperToNVVM());
  kernels.addPass(memref::createExpandStridedMetadataPass());
  kernels.addPass(createLowerAffinePass());
  kernels.addPass(createSCFToControlFlowPass());
  kernels.addPass(arith::createArithExpandOpsPass());
  ConvertGpuOpsToNVVMOpsOptions toNvvm;
  toNvvm.indexBitwidth = 64;
  kernels.addPass(createConvertGpuOpsToNVVMOps(toNvvm));
  kernels.addPass(createConvertNVVMToLLVMPass());
  kernels.addPass(createReconcileUnrealizedCastsPass());
  kernels.addPass(attn::createAttnFinishKernels());
}

void attn::buildCudaCodegenPipeline(OpPassManager &pm, StringRef chip, StringRef features) {
  pm.addNestedPass<func::FuncOp>(createGpuLaunchSinkIndexComputationsPass());
  pm.addPass(createGpuKernelOutliningPass());
  GpuNVVMAttachTargetOptions target;
  target.chip = chip.str();
  target.features = features.str();
  target.optLevel = 3;
  pm.addPass(createGpuNVVMAttachTarget(target));
  pm.addPass(attn::createAttnDeduplicateKernels());
  pm.addPass(attn::createAttnNameKernels());
  addKernelLowering(pm.nest<gpu::GPUModuleOp>());
  pm.addPass(attn::createAttnKernelsToPtx());
}
