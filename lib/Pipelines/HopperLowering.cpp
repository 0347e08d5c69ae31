// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "HopperLowering.h"
#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace attn;

static void addCleanUp(OpPassManager &pm) {
  pm.addPass(createHopperMapPrograms());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

/// Programs of one tile each, as they read and write memory, and the arithmetic in them.
static void addPrograms(OpPassManager &nested, const Lowering &lowering) {
  const Schedule &schedule = lowering.schedule;
  addCleanUp(nested);
  nested.addPass(createAttnOrderFactors());
  nested.addPass(createHopperBranchByRows());
  nested.addPass(createHopperCarrySums());
  nested.addPass(createHopperTileStatements());
  nested.addPass(createHopperSinkReads());
  if (schedule.addsSums)
    nested.addPass(createHopperPrepareVectors());
  addCleanUp(nested); // bounds of loops that are the same
  nested.addPass(createHopperFusePrograms());
  nested.addPass(createHopperVersionPrograms());
  nested.addPass(createAttnOrderFactors()); // of weights that are no choice any more
  addCleanUp(nested);
  nested.addPass(createHopperAdvanceReads());
  nested.addPass(createHopperSortTiles());
  if (schedule.maxima == Schedule::Fixed)
    nested.addPass(lowering.fixesShort ? createHopperFixMaxima({/*fewTiles=*/0, /*fewInAll=*/0})
                                       : createHopperFixMaxima());
  nested.addPass(createAttnTestFactors());
  nested.addPass(createAttnSinkIntoBranches());
  nested.addPass(createAttnMergeBranches());
  nested.addPass(createHopperDistributeRows());
  addCleanUp(nested);
}

/// Products for the tensor core, and where the other values of a tile are.
static void addProducts(OpPassManager &nested, const Lowering &lowering) {
  const Schedule &schedule = lowering.schedule;
  nested.addPass(createHopperFormProducts());
  nested.addPass(createCSEPass()); // tiles that products have in common
  nested.addPass(createHopperReuseTiles());
  if (lowering.copiesTiles || schedule.addsSums)
    nested.addPass(createHopperLoadTiles(HopperLoadTilesOptions{lowering.copiesTiles}));
  nested.addPass(createHopperGuardReads());
  nested.addPass(createHopperOrderProducts());
  if (int64_t every = schedule.polynomials)
    nested.addPass(createHopperDivideExponentials(HopperDivideExponentialsOptions{every}));
  nested.addPass(createHopperScaleLargeMaxima());
}

/// Roles of warpgroups, what they send each other, and the tiles that a CTA takes.
static void addRoles(OpPassManager &nested, const Lowering &lowering) {
  const Schedule &schedule = lowering.schedule;
  bool isOrdered = schedule.addsSums && lowering.ordersSums;
  nested.addPass(createHopperSpecializeWarps(HopperSpecializeWarpsOptions{
      lowering.producerRegisters, schedule.occupancy, schedule.adderFences}));
  nested.addPass(createHopperDivideSums());
  nested.addPass(createHopperFormClusters(HopperFormClustersOptions{lowering.cluster}));
  if (schedule.addsSums)
    addCleanUp(nested); // places of whole tiles
  nested.addPass(createHopperDropRows());
  // Whose turn it is says who is the first one; where there are no turns, starts at different
  // places come first.
  if (isOrdered) {
    nested.addPass(
        createHopperStoreFirst(HopperStoreFirstOptions{/*looksAhead=*/false, /*leastBytes=*/0}));
    nested.addPass(createHopperOrderAdditions(HopperOrderAdditionsOptions{lowering.ctas}));
  } else if (schedule.addsSums && schedule.storesFirst) {
    nested.addPass(
        createHopperOrderAdditions(HopperOrderAdditionsOptions{lowering.ctas, /*turns=*/false}));
    nested.addPass(createHopperStoreFirst());
  }
  nested.addPass(createHopperBorrowOutputs());
  nested.addPass(
      createHopperScheduleTiles(HopperScheduleTilesOptions{lowering.ctas * schedule.occupancy}));
  addCleanUp(nested);
}

/// What runs beside what.
static void addOverlap(OpPassManager &nested, const Schedule &schedule) {
  if (schedule.pipelines) {
    nested.addPass(createHopperPipelineProducts());
    nested.addPass(createAttnFoldInfinities());
    if (schedule.trims)
      nested.addPass(createHopperTrimLoops());
    addCleanUp(nested);
  }
  if (schedule.addsSums && schedule.pipelines)
    nested.addPass(createHopperAdvanceProducts());
  if (schedule.overlap) {
    nested.addPass(createHopperOverlapTiles());
    addCleanUp(nested);
  }
}

/// Memory, barriers and asynchronous instructions.
static void addProtocol(OpPassManager &nested, const Schedule &schedule) {
  nested.addPass(createHopperShareTiles());
  nested.addPass(createHopperStageOutputs(HopperStageOutputsOptions{
      schedule.output == Output::Reuse, schedule.output == Output::Pieces ? kPieceColumns : 0}));
  nested.addPass(createHopperStartProducts());
  if (schedule.pingPong)
    nested.addPass(createHopperPingPong());
  nested.addPass(createHopperExpandChannels(HopperExpandChannelsOptions{schedule.stages}));
  addCleanUp(nested);
}

void attn::addLowering(OpPassManager &pm, const Lowering &lowering) {
  const Schedule &schedule = lowering.schedule;
  PipelineOptions tiles;
  tiles.order = "rows";
  tiles.parallelSums = true;
  tiles.rowTile = schedule.rows;
  tiles.rowMultiple = hopper::kWarpgroupRows;
  tiles.streamTile = schedule.keys;
  tiles.rowsFirst = true;
  tiles.branchMasks = true;
  tiles.keepPrograms = true;
  buildTileStage(pm, tiles);
  buildBufferization(pm);
  OpPassManager &nested = pm.nest<func::FuncOp>();
  nested.addPass(createControlFlowSinkPass());
  nested.addPass(createCanonicalizerPass());
  nested.addPass(createAttnMergeBounds());
  nested.addPass(createAttnUseExp2());
  bool fixes = schedule.maxima == Schedule::Fixed;
  if (double most = fixes ? 0 : schedule.growth)
    nested.addPass(createAttnDelayCorrections(AttnDelayCorrectionsOptions{most}));
  addPrograms(nested, lowering);
  addProducts(nested, lowering);
  addRoles(nested, lowering);
  addOverlap(nested, schedule);
  addProtocol(nested, schedule);
}
