// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "attn/Pipelines/Pipelines.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Target/SM90/SM90.h"
#include "attn/Transforms/Nest/Passes.h"
#include "attn/Transforms/Programs/Passes.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Utils/RenamedOptions.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

/// What any pass may leave behind: dead ops, equal ops.
static void addCleanUp(OpPassManager &pm) {
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}
static void addCleanUpOfTiles(OpPassManager &pm, const attn::PipelineOptions &options) {
  if (options.keepPrograms)
    pm.addNestedPass<func::FuncOp>(attn::createAttnMapPrograms());
  addCleanUp(pm);
}

void attn::buildNestPipeline(OpPassManager &pm, const PipelineOptions &options) {
  // First: what later passes know of integers holds where each operation has a result.
  pm.addPass(createAttnDefineIntegers());
  pm.addPass(createCanonicalizerPass());
  // What differentiation adds around attention, sums of tensors.
  pm.addPass(createConvertElementwiseToLinalgPass());
  pm.addNestedPass<func::FuncOp>(createAttnNormalizeStatements());
  pm.addPass(createAttnProveKeys());
  pm.addPass(createAttnExpand(AttnExpandOptions{options.tableRows, options.pairsApart,
                                                options.largeRows, options.largeScores}));
  // Without CSE: statements that two attention ops have in common stay apart,
  // for one may need what the other one computes from them.
  pm.addPass(createCanonicalizerPass());
  AttnFuseReductionsOptions fuse;
  // A pass with rows outside has one sum; the other orders can have both.
  fuse.sums = options.parallelSums         ? "parallel"
              : options.order == "m_outer" ? "apart"
              : options.order == "auto"    ? "auto"
                                           : "together";
  fuse.threads = options.threads;
  fuse.explain = options.explain;
  pm.addNestedPass<func::FuncOp>(createAttnFuseReductions(fuse));
  addCleanUp(pm);
}

void attn::buildTilePipeline(OpPassManager &pm, const PipelineOptions &options) {
  buildNestPipeline(pm, options);
  buildTileStage(pm, options);
}

void attn::buildTileStage(OpPassManager &pm, const PipelineOptions &options) {
  auto setTiles = [&](auto &pass) {
    pass.blockM = options.blockM;
    pass.blockMMultiple = options.blockMMultiple;
    pass.rowsFirst = options.rowsFirst;
    pass.parallelSums = options.parallelSums;
    pass.blockN = options.blockN;
  };
  AttnPlanNestOptions plan;
  setTiles(plan);
  plan.order = options.order;
  if (options.parts >= 0)
    plan.parts = options.parts;
  plan.threads = options.threads;
  plan.explain = options.explain;
  pm.addNestedPass<func::FuncOp>(createAttnPlanNest(plan));
  AttnTileNestOptions tile;
  setTiles(tile);
  pm.addNestedPass<func::FuncOp>(createAttnTileNest(tile));
  addCleanUpOfTiles(pm, options);
  // Tables first: they take the masks that projection cannot read.
  pm.addNestedPass<func::FuncOp>(
      createAttnTabulateMasks(AttnTabulateMasksOptions{options.branchMasks, options.branchMasks,
                                                       /*inPrograms=*/!options.branchMasks,
                                                       /*atOnce=*/options.branchMasks}));
  pm.addNestedPass<func::FuncOp>(
      createAttnProjectMasks(AttnProjectMasksOptions{options.branchMasks}));
  pm.addNestedPass<func::FuncOp>(createAttnExpandParts());
  // Before the canonicaliser, which may rebuild ops without their attributes.
  if (options.countTiles)
    pm.addPass(createAttnCountTiles());
  addCleanUpOfTiles(pm, options);
}

/// A pipeline that says the new name of an option that had another one.
static void registerPipeline(StringRef name, StringRef text,
                             void (*build)(OpPassManager &, const attn::PipelineOptions &)) {
  registerPassPipeline(
      name, text,
      [build](OpPassManager &pm, StringRef given,
              function_ref<LogicalResult(const Twine &)> error) -> LogicalResult {
        if (std::string message = attn::findRenamedOption(given); !message.empty())
          return error(message);
        attn::PipelineOptions options;
        if (failed(options.parseFromString(given)))
          return failure();
        build(pm, options);
        return success();
      },
      [](function_ref<void(const mlir::detail::PassOptions &)> handle) {
        handle(attn::PipelineOptions());
      });
}

void attn::registerPipelines() {
  registerPipeline("attn-nest-pipeline",
                   "Expand attention and fuse cascades of reductions (L0 to L1)",
                   buildNestPipeline);
  registerPipeline("attn-tile-pipeline",
                   "Tile programs with loops bounded by their masks (L0 or L1 to L2)",
                   buildTilePipeline);
  registerPipeline("attn-cpu-pipeline", "Code in the LLVM dialect for CPUs (L0, L1 or L2 to L4)",
                   buildCpuPipeline);
  registerHopperStages();
  static const std::string codegen =
      ("PTX for " + target::sm90::kChip + " from the hopper protocol form (L3 to L4)").str();
  PassPipelineRegistration<>("attn-cuda-codegen", codegen, [](OpPassManager &pm) {
    buildCudaCodegenPipeline(pm, target::sm90::kChip, target::sm90::kFeatures);
  });
  PassPipelineRegistration<>("attn-cuda-host",
                             "Host code in the LLVM dialect from launches of PTX kernels (L4)",
                             buildCudaHostPipeline);
}
