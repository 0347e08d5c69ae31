// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "mlir/Pass/Pass.h" // conversion headers below rely on it

#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Pipelines/Passes.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Registration/Registration.h"
#include "attn/Transforms/Host/Passes.h"
#include "attn/Transforms/Loops/Passes.h"
#include "attn/Transforms/Nest/Passes.h"
#include "attn/Transforms/Programs/Passes.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Conversion/VectorToSCF/VectorToSCF.h"
#include "mlir/Dialect/Affine/Transforms/Passes.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/SCF/Transforms/Passes.h"
#include "mlir/Transforms/Passes.h"

// The conversion headers declare create functions only; their registrations
// live in mlir/Conversion/Passes.h, which costs 25 s to include. Passes of the
// lowering pipelines are registered here one by one.
namespace {
template <typename CreateFn> void registerOne(CreateFn create) {
  mlir::registerPass([create] { return std::unique_ptr<mlir::Pass>(create()); });
}
} // namespace

void attn::registerPasses() {
  mlir::registerTransformsPasses();
  mlir::affine::registerAffinePasses();
  mlir::arith::registerArithPasses();
  mlir::bufferization::registerBufferizationPasses();
  mlir::registerGPUPasses();
  mlir::registerLinalgPasses();
  mlir::math::registerMathPasses();
  mlir::memref::registerMemRefPasses();
  mlir::registerSCFPasses();
  registerOne([] { return mlir::createConvertGpuOpsToNVVMOps(); });
  registerOne([] { return mlir::createConvertNVVMToLLVMPass(); });
  registerOne([] { return mlir::createLowerAffinePass(); });
  registerOne([] { return mlir::createArithToLLVMConversionPass(); });
  registerOne([] { return mlir::createConvertControlFlowToLLVMPass(); });
  registerOne([] { return mlir::createConvertFuncToLLVMPass(); });
  registerOne([] { return mlir::createConvertIndexToLLVMPass(); });
  registerOne([] { return mlir::createConvertMathToLLVMPass(); });
  registerOne([] { return mlir::createConvertMathToLibmPass(); });
  registerOne([] { return mlir::createFinalizeMemRefToLLVMConversionPass(); });
  registerOne([] { return mlir::createReconcileUnrealizedCastsPass(); });
  registerOne([] { return mlir::createSCFToControlFlowPass(); });
  registerOne([] { return mlir::createConvertVectorToLLVMPass(); });
  registerOne([] { return mlir::createConvertVectorToSCFPass(); });
  attn::registerAttnPasses();
  attn::registerAttnNestPasses();
  attn::registerPipelines();
  attn::registerAttnLoopPasses();
  attn::registerAttnTilePasses();
  attn::registerAttnProgramPasses();
  attn::registerHostPasses();
  attn::registerAttnHopperPasses();
  attn::registerAttnPipelinePasses();
  attn::registerAttnConversionPasses();
}
