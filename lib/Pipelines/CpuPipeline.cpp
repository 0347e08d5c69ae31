// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From tile programs to the LLVM dialect for CPUs.

#include "mlir/Pass/PassManager.h" // conversion headers below rely on it

#include "attn/Conversion/Passes.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Transforms/Host/Passes.h"
#include "attn/Utils/MatrixUnits.h"
#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Bufferization/Pipelines/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/SCF/Transforms/Passes.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

static void cleanUp(OpPassManager &pm) {
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

void attn::buildBufferization(OpPassManager &pm) {
  pm.addPass(attn::createAttnAppendOutputs());
  pm.addPass(bufferization::createEmptyTensorEliminationPass());
  pm.addPass(attn::createAttnBufferize());
  // Copies of a slice to itself, left by parallel_insert_slice, go here.
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createCanonicalizerPass());
  bufferization::BufferDeallocationPipelineOptions deallocation;
  bufferization::buildBufferDeallocationPipeline(pm, deallocation);
  pm.addPass(attn::createAttnResolveExpansions());
}

void attn::buildHostLowering(OpPassManager &pm) {
  pm.addPass(createForallToForLoopPass());
  pm.addPass(createLowerAffinePass());
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  cleanUp(pm);
  // bf16 is computed in f32 and rounded by integers: not every host converts it, the library
  // function for that is younger than some C libraries, and LLVM 22 loses the sign of a number
  // that it rounds where nothing else of it is read (test/Execution/bfloat-signs.mlir).
  pm.addPass(arith::createArithEmulateUnsupportedFloats({{"bf16"}, "f32"}));
  pm.addPass(math::createMathExtendToSupportedTypes({{"f16"}, "f32"}));
  // Functions of the library take vectors apart: before vectors are lowered.
  pm.addPass(createConvertMathToLLVMPass());
  pm.addPass(createConvertMathToLibmPass());
  ConvertVectorToLLVMPassOptions vectors;
  vectors.x86Vector = true;
  vectors.amx = true;
  pm.addPass(createConvertVectorToLLVMPass(vectors));
  arith::ArithExpandOpsPassOptions expansion;
  expansion.includeBf16 = true;
  pm.addPass(arith::createArithExpandOpsPass(expansion));
  pm.addPass(createFinalizeMemRefToLLVMConversionPass());
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertIndexToLLVMPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createConvertFuncToLLVMPass());
  pm.addPass(createUBToLLVMConversionPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(attn::createAttnMoveFloat16AsIntegers());
  cleanUp(pm);
}

/// The best unit of the host, where none is asked for.
static StringRef findMatrixUnit(const attn::PipelineOptions &options) {
  if (options.matrixUnit != "auto")
    return options.matrixUnit.getValue();
  return options.vectorBits == 0 || options.vectorBits == 512 ? attn::findHostMatrixUnit() : "none";
}

void attn::buildCpuPipeline(OpPassManager &pm, const PipelineOptions &options) {
  // Tiles and orders that were asked for are those of all calls.
  if (options.blockM == kDefaultBlockM && options.order == "auto")
    pm.addPass(createAttnSpecializeSingleQueries(
        AttnSpecializeSingleQueriesOptions{options.singleQueries}));
  buildTilePipeline(pm, options);
  buildBufferization(pm);
  pm.addPass(createAttnMergeVersions());
  pm.addNestedPass<func::FuncOp>(createAttnResolvePages());
  pm.addNestedPass<func::FuncOp>(createAttnLowerScatterSums());
  // Statements that belong to no nest.
  pm.addNestedPass<func::FuncOp>(createConvertLinalgToLoopsPass());
  AttnLowerTilesOptions tiles;
  tiles.vectorBits = options.vectorBits;
  StringRef unit = findMatrixUnit(options);
  bool isEmulated = unit.consume_front("emulated_");
  tiles.matrixUnit = unit.str();
  if (isEmulated && tiles.vectorBits == 0)
    tiles.vectorBits = 512;
  if (unit != "none")
    pm.addNestedPass<func::FuncOp>(createAttnRoundProducts());
  pm.addNestedPass<func::FuncOp>(createAttnLowerTiles(tiles));
  if (isEmulated)
    pm.addNestedPass<func::FuncOp>(createAttnEmulateMatrixUnits());
  pm.addPass(createAttnExpandCopies());
  cleanUp(pm);
  pm.addPass(createAttnExpandRandomBits());
  pm.addPass(createAttnExpandMath());
  cleanUp(pm);
  pm.addPass(createAttnOutlineForalls());
  buildHostLowering(pm);
}
