// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From attention to the protocol form of the hopper dialect. The schedule is
// chosen from a table by what the module multiplies; options override it.

#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Pipelines/Passes.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

namespace attn {
#define GEN_PASS_DEF_ATTNLOWERTOHOPPER
#include "attn/Pipelines/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// One row of the table: what a module whose widest tile has at most `columns`
/// columns gets. Registers are what limits the tiles: a warpgroup holds
/// 64 x keys scores in f32, the same in 16 bits, and 64 x columns of output.
struct Schedule {
  int64_t columns, rows, keys, stages;
  bool reuse; // outputs leave through the memory of an input
  /// Three warpgroups of 160 registers: none to spare for what a score or a mask
  /// loads or computes with many steps.
  bool isTight = false;
};
constexpr Schedule kSchedules[] = {
    {64, 192, 128, 2, false, /*isTight=*/true},
    {128, 128, 128, 2, false},
    {192, 128, 96, 2, true},
    {256, 128, 80, 2, true},
};

/// The largest static size of what is contracted, or kept by a contraction.
int64_t findColumns(Operation *root) {
  int64_t columns = 0;
  root->walk([&](linalg::GenericOp op) {
    if (op.getNumReductionLoops() == 0)
      return;
    for (Value input : op.getInputs())
      if (auto type = dyn_cast<RankedTensorType>(input.getType());
          type && type.getRank() >= 2 && !type.isDynamicDim(type.getRank() - 1) &&
          type.getElementType().getIntOrFloatBitWidth() == 16)
        columns = std::max(columns, type.getShape().back());
  });
  return columns;
}

/// What the tensor core and TMA take: 16-bit elements, rows of whole 16 bytes,
/// and an output that a warpgroup can hold.
LogicalResult checkForward(ForwardOp op) {
  for (Value operand : {op.getQuery(), op.getKey(), op.getValue()}) {
    auto type = cast<RankedTensorType>(operand.getType());
    Type element = type.getElementType();
    if (!element.isBF16() && !element.isF16())
      return op.emitOpError() << "has elements of " << element
                              << "; the tensor core takes bf16 and f16";
    int64_t size = type.getShape().back();
    if (size > 256)
      return op.emitOpError() << "has a head dimension of " << size
                              << ", more than the 256 that a warpgroup can hold";
    if (size % 8)
      return op.emitOpError() << "has a head dimension of " << size
                              << "; TMA copies rows of a multiple of 8 elements: pad to "
                              << llvm::alignTo(size, 8);
  }
  return success();
}

/// Whether `value` depends on one of the statement's last two loops.
bool variesInTile(Value value, linalg::GenericOp statement) {
  Operation *op = value.getDefiningOp();
  if (!op || op->getBlock() != statement.getBody())
    return false;
  if (auto index = dyn_cast<linalg::IndexOp>(op))
    return index.getDim() + 2 >= statement.getNumLoops();
  return llvm::any_of(op->getOperands(),
                      [&](Value operand) { return variesInTile(operand, statement); });
}

/// Whether a statement along rows and columns reads tensors by row or column, or
/// is long.
bool needsRegisters(Operation *root) {
  constexpr unsigned kLong = 12; // operations of a window's mask, and some
  return root
      ->walk([&](linalg::GenericOp op) {
        if (op.getNumReductionLoops() > 0)
          return WalkResult::advance();
        unsigned count = 0;
        bool heavy = false;
        for (Operation &inner : *op.getBody()) {
          ++count;
          if (auto extract = dyn_cast<tensor::ExtractOp>(inner))
            heavy |= llvm::any_of(extract.getIndices(),
                                  [&](Value index) { return variesInTile(index, op); });
        }
        return heavy || count > kLong ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

void addCleanUp(OpPassManager &pm) {
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

struct LowerToHopperPass : attn::impl::AttnLowerToHopperBase<LowerToHopperPass> {
  using Base::Base;

  void getDependentDialects(DialectRegistry &registry) const override {
    OpPassManager pm(ModuleOp::getOperationName());
    buildNestPipeline(pm, PipelineOptions());
    addLowering(pm, kSchedules[0]);
    pm.getDependentDialects(registry);
  }

  void runOnOperation() override {
    WalkResult walk = getOperation().walk(
        [](ForwardOp op) { return WalkResult(checkForward(op)); });
    if (walk.wasInterrupted())
      return signalPassFailure();
    OpPassManager nests(ModuleOp::getOperationName());
    PipelineOptions options;
    options.order = "rows";
    buildNestPipeline(nests, options);
    if (failed(runPipeline(nests, getOperation())))
      return signalPassFailure();
    int64_t columns = findColumns(getOperation());
    bool heavy = needsRegisters(getOperation());
    const Schedule *schedule = llvm::find_if(kSchedules, [&](const Schedule &s) {
      return columns <= s.columns && !(heavy && s.isTight);
    });
    if (schedule == std::end(kSchedules)) {
      getOperation().emitError() << "a head dimension of " << columns
                                 << " is more than the 256 that a warpgroup can hold";
      return signalPassFailure();
    }
    OpPassManager lowering(ModuleOp::getOperationName());
    addLowering(lowering, *schedule);
    if (failed(runPipeline(lowering, getOperation())))
      signalPassFailure();
  }

  void addLowering(OpPassManager &pm, const Schedule &schedule) const {
    PipelineOptions tiles;
    tiles.order = "rows";
    tiles.rowTile = rows > 0 ? rows : schedule.rows;
    tiles.rowMultiple = hopper::kWarpgroupRows;
    tiles.streamTile = keys > 0 ? keys : schedule.keys;
    tiles.branchMasks = true;
    buildTileStage(pm, tiles);
    buildBufferization(pm);
    OpPassManager &nested = pm.nest<func::FuncOp>();
    nested.addPass(createControlFlowSinkPass());
    nested.addPass(createCanonicalizerPass());
    nested.addPass(createAttnMergeBounds());
    nested.addPass(createAttnUseExp2());
    addCleanUp(nested);
    nested.addPass(createHopperTileCopies());
    nested.addPass(createHopperSinkReads());
    nested.addPass(createHopperDistributeRows());
    addCleanUp(nested);
    nested.addPass(createHopperFormProducts());
    nested.addPass(createHopperSpecializeWarps());
    nested.addPass(createHopperScheduleTiles(HopperScheduleTilesOptions{ctas}));
    addCleanUp(nested);
    if (pipeline) {
      nested.addPass(createHopperPipelineProducts());
      nested.addPass(createAttnFoldInfinities());
      addCleanUp(nested);
    }
    if (overlap && !schedule.reuse) {
      nested.addPass(createHopperOverlapTiles());
      addCleanUp(nested);
    }
    nested.addPass(createHopperStageOutputs(HopperStageOutputsOptions{schedule.reuse}));
    nested.addPass(createHopperStartProducts());
    if (pingPong)
      nested.addPass(createHopperPingPong());
    nested.addPass(createHopperExpandChannels(
        HopperExpandChannelsOptions{stages > 0 ? stages : schedule.stages}));
    addCleanUp(nested);
  }
};

} // namespace

llvm::Error attn::addLowerToHopper(OpPassManager &pm, StringRef options) {
  std::unique_ptr<Pass> lowering = createAttnLowerToHopper();
  std::string reason;
  if (failed(lowering->initializeOptions(options, [&](const Twine &text) {
        reason = text.str();
        return failure();
      })))
    return llvm::createStringError("--schedule: " + reason);
  pm.addPass(std::move(lowering));
  return llvm::Error::success();
}
