// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The stages from nests of statements to the protocol form of the hopper dialect.

#include "HopperTable.h"
#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Pipelines/Passes.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Transforms/Nest/Passes.h"
#include "attn/Transforms/Programs/Passes.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERFORMNESTS
#define GEN_PASS_DEF_HOPPERRUNSTAGE
#include "attn/Pipelines/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using hopper::Maxima;
using hopper::NestsAttr;
using hopper::OutputMemory;
using hopper::ScheduleAttr;
using hopper::Sums;

/// Whether each stage checks what it promises.
#ifdef NDEBUG
static constexpr bool kChecksForms = false;
#else
static constexpr bool kChecksForms = true;
#endif

static bool usesWarps(ScheduleAttr schedule) {
  return schedule.getProducts() == hopper::Products::Mma;
}

static void addCleanUp(OpPassManager &pm) {
  pm.addPass(createAttnMapPrograms());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

/// Tiles of nests, in memory, with exponentials to the base 2.
static void addArithmetic(OpPassManager &pm, ScheduleAttr schedule) {
  PipelineOptions tiles;
  tiles.order = schedule.getParts() == 1 ? "m_outer" : "split_kv";
  tiles.parts = schedule.getParts();
  tiles.threads = std::max<int64_t>(1, schedule.getCtas() * schedule.getOccupancy());
  tiles.parallelSums = true;
  tiles.blockM = schedule.getBlockM();
  tiles.blockMMultiple = hopper::kWarpgroupRows;
  tiles.blockN = schedule.getBlockN();
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
  if (FloatAttr threshold = schedule.getRescaleThreshold())
    nested.addPass(
        createAttnDelayRescaling(AttnDelayRescalingOptions{threshold.getValueAsDouble()}));
}

/// Programs of one tile each, as they read and write memory, and the arithmetic in them.
static void addPrograms(OpPassManager &pm, ScheduleAttr schedule) {
  OpPassManager &nested = pm.nest<func::FuncOp>();
  addCleanUp(nested);
  nested.addPass(createAttnOrderFactors());
  nested.addPass(createAttnBranchByRows());
  nested.addPass(createAttnCarrySums());
  if (schedule.getParts() != 1) {
    nested.addPass(createAttnDivideColumns());
    nested.addPass(createAttnGroupIterations());
  }
  nested.addPass(createAttnTileStatements({hopper::kWarpgroupRows, hopper::kProgramRows}));
  nested.addPass(createAttnSinkReads());
  if (schedule.getAddsSums())
    nested.addPass(createAttnPrepareVectors({hopper::kProgramRows, hopper::kWarpgroupRows}));
  addCleanUp(nested); // bounds of loops that are the same
  nested.addPass(createAttnFusePrograms({/*rowBytes=*/256, target::sm90::kAtoms[0].k}));
  nested.addPass(createHopperVersionPrograms());
  nested.addPass(createAttnOrderFactors()); // of weights that are no choice any more
  addCleanUp(nested);
  nested.addPass(createAttnAdvanceReads());
  nested.addPass(createAttnSortTiles({hopper::kWarpgroupRows}));
  if (schedule.getMaxima() == Maxima::AlwaysFixed)
    nested.addPass(createHopperFixMaxima({/*fewTiles=*/0, /*fewInAll=*/0}));
  else if (schedule.getMaxima() == Maxima::Fixed)
    nested.addPass(createHopperFixMaxima());
  nested.addPass(createAttnTestFactors());
  nested.addPass(createAttnSinkIntoBranches());
  nested.addPass(createAttnMergeBranches());
  nested.addPass(createHopperDistributeRows());
  addCleanUp(nested);
}

/// Products for the tensor core, and where the other values of a tile are.
static void addTiles(OpPassManager &pm, ScheduleAttr schedule) {
  OpPassManager &nested = pm.nest<func::FuncOp>();
  nested.addPass(
      createHopperFormProducts(HopperFormProductsOptions{usesWarps(schedule), schedule.getTf32()}));
  nested.addPass(createCSEPass()); // tiles that products have in common
  nested.addPass(createHopperReuseTiles());
  if (schedule.getLoadsTiles() || schedule.getAddsSums())
    nested.addPass(createHopperLoadTiles(HopperLoadTilesOptions{schedule.getLoadsTiles()}));
  nested.addPass(createHopperGuardReads());
  nested.addPass(createHopperOrderProducts());
  if (int64_t every = schedule.getExp2Emulation())
    nested.addPass(createHopperEmulateExponentials(HopperEmulateExponentialsOptions{every}));
  nested.addPass(createAttnScaleLargeMaxima());
}

/// Roles of warpgroups, what they send each other, the tiles that a CTA takes, and what runs
/// beside what.
static void addChannels(OpPassManager &pm, ScheduleAttr schedule) {
  OpPassManager &nested = pm.nest<func::FuncOp>();
  bool addsSums = schedule.getAddsSums();
  int64_t ctas = schedule.getCtas(), occupancy = schedule.getOccupancy();
  nested.addPass(createHopperCreateLaunches(HopperCreateLaunchesOptions{schedule.getGroupWarps()}));
  if (usesWarps(schedule)) {
    nested.addPass(createHopperAliasWorkspace());
    nested.addPass(createHopperScheduleTiles(HopperScheduleTilesOptions{/*ctas=*/0}));
    return addCleanUp(nested);
  }
  nested.addPass(createHopperSpecializeWarps(HopperSpecializeWarpsOptions{
      schedule.getProducerRegisters(), occupancy, schedule.getAdderFences()}));
  nested.addPass(createHopperDivideSums());
  nested.addPass(createHopperFormClusters(HopperFormClustersOptions{schedule.getCluster()}));
  if (addsSums)
    addCleanUp(nested); // places of whole tiles
  nested.addPass(createHopperDropRows());
  // The semaphore says who is the first one; where there is none, starts at different
  // places come first.
  if (schedule.getOrdered()) {
    nested.addPass(
        createHopperStoreFirst(HopperStoreFirstOptions{/*looksAhead=*/false, /*leastBytes=*/0}));
    nested.addPass(createHopperOrderAdditions(HopperOrderAdditionsOptions{ctas}));
  } else if (schedule.getStoresFirst()) {
    nested.addPass(
        createHopperOrderAdditions(HopperOrderAdditionsOptions{ctas, /*semaphore=*/false}));
    nested.addPass(createHopperStoreFirst());
  }
  nested.addPass(createHopperAliasWorkspace());
  nested.addPass(createHopperScheduleTiles(HopperScheduleTilesOptions{ctas * occupancy}));
  addCleanUp(nested);
  if (schedule.getPipeline()) {
    nested.addPass(createHopperPipelineProducts());
    nested.addPass(createAttnFoldInfinities());
    if (schedule.getTrim())
      nested.addPass(createHopperTrimLoops());
    addCleanUp(nested);
  }
  if (addsSums && schedule.getPipeline())
    nested.addPass(createHopperAdvanceProducts());
  if (schedule.getOverlap()) {
    nested.addPass(createHopperOverlapTiles());
    addCleanUp(nested);
  }
}

/// Shared memory, barriers and asynchronous instructions.
static void addProtocol(OpPassManager &pm, ScheduleAttr schedule) {
  OpPassManager &nested = pm.nest<func::FuncOp>();
  OutputMemory output = schedule.getOutput();
  if (usesWarps(schedule)) {
    if (int64_t columns = schedule.getProductColumns())
      nested.addPass(createHopperDivideProducts(HopperDivideProductsOptions{columns}));
    nested.addPass(createHopperStageLoads(HopperStageLoadsOptions{schedule.getStages()}));
    nested.addPass(createHopperExchangeRows());
    nested.addPass(createHopperAllocateBarriers());
    return addCleanUp(nested);
  }
  nested.addPass(createHopperExchangeRows());
  nested.addPass(createHopperStageOutputs(HopperStageOutputsOptions{
      output == OutputMemory::Reuse, output == OutputMemory::Slabs ? kSlabColumns : 0}));
  nested.addPass(createHopperStartProducts());
  if (schedule.getPingPong())
    nested.addPass(createHopperPingPong());
  nested.addPass(createHopperExpandChannels(HopperExpandChannelsOptions{schedule.getStages()}));
  nested.addPass(createHopperAllocateBarriers()); // once all have asked for theirs
  addCleanUp(nested);
}

namespace {
struct Stage {
  StringLiteral name, summary;
  void (*add)(OpPassManager &, ScheduleAttr);
};
constexpr Stage kStages[] = {
    {"arithmetic", "Tiles of nests, in memory (L1 to L2)", addArithmetic},
    {"programs", "Reads, arithmetic and writes of each tile (L2)", addPrograms},
    {"tiles", "Products of tiles in shared memory (L2 to L3)", addTiles},
    {"channels", "Roles of warpgroups and what they send each other (L3)", addChannels},
    {"protocol", "Shared memory, barriers and asynchronous instructions (L3)", addProtocol},
};

/// All that a schedule may ask for: for the dialects that its passes need.
ScheduleAttr getFullSchedule(MLIRContext *context) {
  return ScheduleAttr::get(context, 128, 128, 1, 2, 132, 1, 1, 0, OutputMemory::Own, Maxima::Fixed,
                           /*pipeline=*/true, /*overlap=*/false, /*ping_pong=*/true, /*trim=*/true,
                           Builder(context).getF64FloatAttr(1), 1, /*adds_sums=*/true,
                           /*ordered=*/true, true, true, /*loads_tiles=*/true,
                           hopper::Products::Wgmma, /*group_warps=*/4, /*tf32=*/0,
                           /*product_columns=*/0);
}

struct RunStagePass : attn::impl::HopperRunStageBase<RunStagePass> {
  using Base::Base;

  void getDependentDialects(DialectRegistry &registry) const override {
    static const DialectRegistry needed = [] {
      DialectRegistry all;
      all.insert<AttnDialect, hopper::HopperDialect>();
      MLIRContext context(MLIRContext::Threading::DISABLED);
      context.loadDialect<hopper::HopperDialect>();
      OpPassManager pm(ModuleOp::getOperationName());
      for (const Stage &each : kStages)
        each.add(pm, getFullSchedule(&context));
      pm.addNestedPass<func::FuncOp>(createHopperDivideProducts());
      pm.addNestedPass<func::FuncOp>(createHopperStageLoads());
      pm.getDependentDialects(all);
      return all;
    }();
    needed.appendTo(registry);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    const Stage *found =
        llvm::find_if(kStages, [&](const Stage &each) { return each.name == stage.getValue(); });
    if (found == std::end(kStages)) {
      module.emitError() << "expected a stage arithmetic, programs, tiles, channels or protocol, "
                         << "got '" << stage << "'";
      return signalPassFailure();
    }
    auto schedule = module->getAttrOfType<ScheduleAttr>(hopper::kScheduleAttr);
    if (!schedule) {
      module.emitError() << "expected '" << hopper::kScheduleAttr
                         << "' on the module, which hopper-select-schedule sets";
      return signalPassFailure();
    }
    OpPassManager pm(ModuleOp::getOperationName());
    found->add(pm, schedule);
    if (failed(runPipeline(pm, module)))
      signalPassFailure();
  }
};

struct FormNestsPass : attn::impl::HopperFormNestsBase<FormNestsPass> {
  using Base::Base;

  static void addPasses(OpPassManager &pm, bool together, int64_t columns, bool largeScores) {
    PipelineOptions options;
    options.order = "m_outer";
    options.parallelSums = together;
    options.tableRows = hopper::kWarpRows;
    options.pairsApart = true;
    options.largeRows = true;
    options.largeScores = largeScores ? "rows" : "inexact";
    buildNestPipeline(pm, options);
    pm.addNestedPass<func::FuncOp>(createAttnMergeSums());
    pm.addNestedPass<func::FuncOp>(createAttnSplitSums(AttnSplitSumsOptions{columns}));
    pm.addNestedPass<func::FuncOp>(createAttnSliceSums());
  }

  void getDependentDialects(DialectRegistry &registry) const override {
    OpPassManager pm(ModuleOp::getOperationName());
    addPasses(pm, true, 256, true);
    pm.getDependentDialects(registry);
  }

  void runOnOperation() override {
    auto nests = getOperation()->getAttrOfType<NestsAttr>(hopper::kNestsAttr);
    OpPassManager pm(ModuleOp::getOperationName());
    addPasses(pm, !nests || nests.getSums() == Sums::Together, nests ? nests.getColumns() : 256,
              largeScores);
    if (failed(runPipeline(pm, getOperation())))
      signalPassFailure();
  }
};
} // namespace

SmallVector<StringRef> attn::listHopperStages() {
  return llvm::map_to_vector(kStages, [](const Stage &each) { return StringRef(each.name); });
}

void attn::addHopperStage(OpPassManager &pm, StringRef stage) {
  pm.addPass(createHopperRunStage(HopperRunStageOptions{stage.str()}));
}

void attn::addHopperStageChecks(OpPassManager &pm, StringRef stage) {
  if (!kChecksForms)
    return;
  OpPassManager &nested = pm.nest<func::FuncOp>();
  nested.addPass(createHopperCheckForm(HopperCheckFormOptions{stage.str()}));
  if (stage == "protocol")
    nested.addPass(createHopperCheckProtocol(HopperCheckProtocolOptions{/*remarks=*/false}));
}

void attn::registerHopperStages() {
  static SmallVector<std::string> names;
  for (const Stage &each : kStages)
    names.push_back(("hopper-" + each.name).str());
  static SmallVector<std::unique_ptr<PassPipelineRegistration<>>> registrations;
  for (auto [name, each] : llvm::zip_equal(names, kStages))
    registrations.push_back(std::make_unique<PassPipelineRegistration<>>(
        name, each.summary, [stage = each.name](OpPassManager &pm) {
          addHopperStage(pm, stage);
          addHopperStageChecks(pm, stage);
        }));
}
