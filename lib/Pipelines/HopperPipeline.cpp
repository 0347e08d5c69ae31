// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From attention to the protocol form of the hopper dialect: the stages on each version of a
// function, without those that a stage refuses.

#include "HopperOptions.h"
#include "WarpTiles.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Pipelines/Passes.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Target/SM80/SM80.h"
#include "attn/Target/SM90/SM90.h"
#include "attn/Transforms/Host/Passes.h"
#include "attn/Transforms/Loops/Passes.h"
#include "attn/Transforms/Nest/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/RenamedOptions.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/TypeSwitch.h"

namespace attn {
#define GEN_PASS_DEF_ATTNLOWERTOHOPPER
#include "attn/Pipelines/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static Left numRefused("attn-lower-to-hopper", "left-out",
                       "Versions of functions that were refused");

/// TMA copies rows of whole 16 bytes, of 16-bit elements.
static constexpr int64_t kColumnMultiple = 8;

/// What products take: the operand types of their atoms, and an output that a warpgroup can hold.
template <typename Op> static LogicalResult checkTypes(Op op, bool onlyTensorCore) {
  for (Value operand : {op.getQuery(), op.getKey(), op.getValue()}) {
    auto type = cast<RankedTensorType>(operand.getType());
    Type element = type.getElementType();
    ArrayRef<target::MmaAtom> atoms(target::sm90::kAtoms);
    if (!onlyTensorCore)
      atoms = target::sm80::kAtoms;
    if (!target::findMmaAtom(atoms, element))
      return op.emitOpError() << "has elements of " << element << "; "
                              << (onlyTensorCore ? "the tensor core takes " : "GPU kernels take ")
                              << target::listOperands(atoms);
    // Each slice of a sum's columns has kernels of its own.
    constexpr int64_t kMostColumns = 8192;
    int64_t size = type.getShape().back();
    int64_t most = onlyTensorCore ? target::sm90::kAtoms[0].n.most : kMostColumns;
    if (size > most)
      return op.emitOpError() << "has a head dimension of " << size << ", more than the " << most
                              << (onlyTensorCore ? " that a warpgroup can hold"
                                                 : " that GPU kernels are made for");
  }
  return success();
}

namespace {
struct LowerToHopperPass
    : attn::WithRenamedOptions<attn::impl::AttnLowerToHopperBase<LowerToHopperPass>> {
  using WithRenamedOptions::WithRenamedOptions;
  template <typename Pass> friend bool attn::asksForTiles(const Pass &);
  template <typename Pass> friend LogicalResult attn::checkOptions(Operation *, const Pass &);

  void getDependentDialects(DialectRegistry &registry) const override {
    OpPassManager pm(ModuleOp::getOperationName());
    pm.addPass(createInlinerPass());
    addFront(pm, /*pads=*/true);
    pm.addPass(createHopperFormNests());
    pm.addPass(createHopperSelectSchedule());
    addRowPrograms(pm, {});
    pm.addPass(createAttnDistributeReductions());
    addLoops(pm, {}, {});
    for (StringRef stage : listHopperStages()) {
      addHopperStage(pm, stage);
      addHopperStageChecks(pm, stage);
    }
    pm.addPass(createAttnMergeVersions());
    pm.getDependentDialects(registry);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    bool onlyTensorCore = products == "wgmma";
    WalkResult walk = module.walk([&](Operation *op) {
      return llvm::TypeSwitch<Operation *, WalkResult>(op)
          .Case<ForwardOp, BackwardOp>(
              [&](auto known) { return WalkResult(checkTypes(known, onlyTensorCore)); })
          .Case<JvpOp, BackwardJvpOp>([&](auto known) -> WalkResult {
            if (onlyTensorCore)
              return known.emitOpError("has kernels of products=mma only");
            return checkTypes(known, onlyTensorCore);
          })
          .Default([](Operation *) { return WalkResult::advance(); });
    });
    if (!walk.wasInterrupted() && onlyTensorCore)
      walk = module.walk([&](PagesOp op) -> WalkResult {
        return op.emitOpError("finds rows by a table, and products=wgmma copies by TMA, which "
                              "does not; products=mma does");
      });
    if (walk.wasInterrupted() || failed(checkOptions(module, *this)))
      return signalPassFailure();
    if (hasLoops(module)) {
      if (failed(lowerLoops(module)))
        signalPassFailure();
      return;
    }
    if (failed(checkLoopOptions(module)))
      return signalPassFailure();
    OpPassManager front(ModuleOp::getOperationName());
    // Each function is lowered by itself.
    if (module.walk([](func::CallOp) { return WalkResult::interrupt(); }).wasInterrupted())
      front.addPass(createInlinerPass());
    addFront(front, padsHeads(module));
    if (failed(runPipeline(front, module)))
      return signalPassFailure();
    for (auto versions : llvm::make_early_inc_range(module.getOps<VersionsOp>()))
      if (failed(lowerVersions(versions)))
        return signalPassFailure();
    if (failed(checkRowOptions(module)))
      return signalPassFailure();
    OpPassManager back(ModuleOp::getOperationName());
    back.addPass(createAttnMergeVersions());
    if (failed(runPipeline(back, module)))
      return signalPassFailure();
  }

  /// What is asked of row programs means nothing where there is none.
  LogicalResult checkRowOptions(ModuleOp module) {
    if (int64_t most = findLimits(chip)->ctasPerCluster; rowCtas.hasValue() && rowCtas > most)
      return module.emitError() << "schedule option 'row-ctas=" << int64_t(rowCtas)
                                << "' needs clusters, which " << chip.getValue() << " has not";
    const Pass::Option<int64_t> *options[] = {&rowThreads, &rowCtas, &rowParts};
    if (module.walk([](hopper::ThreadsOp) { return WalkResult::interrupt(); }).wasInterrupted())
      return success();
    for (const Pass::Option<int64_t> *option : options)
      if (option->hasValue())
        return module.emitError() << "schedule option '" << option->getArgStr()
                                  << "' is of functions that only reduce rows, as row programs";
    return success();
  }

  /// A user's loops on memory.
  static bool hasLoops(ModuleOp module) {
    return module.walk([](affine::AffineForOp) { return WalkResult::interrupt(); })
        .wasInterrupted();
  }

  /// What is asked of loops means nothing where there is none.
  LogicalResult checkLoopOptions(ModuleOp module) {
    const Option<std::string> *words[] = {&treatment, &loopMerge, &loopTeam};
    const Option<int64_t> *numbers[] = {&loopThreads, &loopParts};
    auto refuse = [&](StringRef option) {
      return module.emitError() << "schedule option '" << option
                                << "' is of affine loops on memory";
    };
    for (const Option<std::string> *option : words)
      if (option->hasValue())
        return refuse(option->getArgStr());
    for (const Option<int64_t> *option : numbers)
      if (option->hasValue())
        return refuse(option->getArgStr());
    return success();
  }

  static void addLoops(OpPassManager &pm, const AttnPlanLoopsOptions &plan,
                       const HopperLaunchLoopsOptions &launch) {
    pm.addPass(createAttnPlanLoops(plan));
    pm.addNestedPass<func::FuncOp>(createHopperLaunchLoops(launch));
    pm.addPass(createCanonicalizerPass());
    pm.addPass(createCSEPass());
  }

  LogicalResult lowerLoops(ModuleOp module) {
    for (auto function : module.getOps<func::FuncOp>()) {
      auto isTensor = [](Type type) { return isa<TensorType>(type); };
      if (llvm::any_of(function.getArgumentTypes(), isTensor) ||
          llvm::any_of(function.getResultTypes(), isTensor))
        return function.emitError(
            "a module has functions of tensors or affine loops on memory, not "
            "both");
    }
    if (asksForTiles(*this))
      return module.emitError("schedule options of tiles (block-m, block-n, stages, order, parts) "
                              "are not of affine loops on memory");
    OpPassManager pm(ModuleOp::getOperationName());
    // In these no unfinished value may be read.
    std::string name = treatment;
    llvm::replace(name, '-', '_');
    std::optional<LoopTreatment> asked = symbolizeLoopTreatment(name);
    if (asked && *asked != LoopTreatment::OwnerComputes &&
        *asked != LoopTreatment::OrderedTurnstile)
      pm.addPass(createAttnDistributeReductions());
    AttnPlanLoopsOptions plan;
    plan.treatment = treatment;
    plan.ctas = ctas;
    plan.cluster = findLimits(chip)->ctasPerCluster;
    addLoops(pm, plan, {loopThreads, loopParts, ctas, loopMerge, loopTeam});
    return runPipeline(pm, module);
  }

  /// Whether heads get columns of zeros: TMA copies whole 16 bytes; threads copy any columns, but a
  /// dimension of one element is none that a product has.
  bool padsHeads(ModuleOp module) const {
    bool usesTma = chip == target::sm90::kChip && products != "mma" && !hasPages(module) &&
                   !hasTangents(module);
    auto needs = [&](auto op) {
      return llvm::any_of(ValueRange{op.getQuery(), op.getValue()}, [&](Value operand) {
        auto type = cast<RankedTensorType>(operand.getType());
        return type.getShape().back() == 1 ||
               (usesTma && type.getElementType().getIntOrFloatBitWidth() == 16);
      });
    };
    WalkResult walk = module.walk([&](Operation *op) {
      bool pads = llvm::TypeSwitch<Operation *, bool>(op)
                      .Case<ForwardOp, BackwardOp, JvpOp, BackwardJvpOp>(needs)
                      .Default(false);
      return pads ? WalkResult::interrupt() : WalkResult::advance();
    });
    return walk.wasInterrupted();
  }

  void addFront(OpPassManager &pm, bool pads) const {
    if (pads)
      pm.addPass(createAttnPadHeads(AttnPadHeadsOptions{kColumnMultiple}));
    pm.addPass(createAttnDefineIntegers());
    bool rows = isOn(rowPrograms, !asksForTiles(*this));
    pm.addPass(createHopperCreateVersions(HopperCreateVersionsOptions{order, divideSums, rows}));
  }

  /// From what the front of the pipeline leaves to launches of threads.
  static void addRowPrograms(OpPassManager &pm, const HopperFormRowProgramsOptions &options) {
    pm.addPass(createCanonicalizerPass());
    pm.addPass(createConvertElementwiseToLinalgPass());
    pm.addNestedPass<func::FuncOp>(createAttnNormalizeStatements());
    pm.addPass(createAttnExpand());
    pm.addPass(createCanonicalizerPass());
    pm.addPass(createCSEPass());
    buildBufferization(pm);
    pm.addPass(createCanonicalizerPass());
    pm.addPass(createCSEPass());
    pm.addNestedPass<func::FuncOp>(createHopperFormRowPrograms(options));
    pm.addPass(createCanonicalizerPass());
    pm.addPass(createCSEPass());
  }

  /// From what the front of the pipeline leaves to nests with a schedule.
  LogicalResult select(ModuleOp version) {
    OpPassManager pm(ModuleOp::getOperationName());
    pm.addPass(createHopperFormNests(HopperFormNestsOptions{largeScores}));
    // Its options are this pass's own.
    std::string text;
    llvm::raw_string_ostream os(text);
    printAsTextualPipeline(os);
    StringRef options = StringRef(text).split('{').second;
    std::unique_ptr<Pass> selection = createHopperSelectSchedule();
    if (failed(selection->initializeOptions(options.rsplit('}').first, [&](const Twine &reason) {
          return version.emitError() << reason, failure();
        })))
      return failure();
    pm.addPass(std::move(selection));
    return runPipeline(pm, version);
  }

  /// Runs the stages on a version. With `refused`, what they refuse it for is left there and is no
  /// error; a form that is wrong behind a stage is one.
  LogicalResult runStages(ModuleOp version, std::string *refused) {
    for (StringRef stage : listHopperStages()) {
      OpPassManager pm(ModuleOp::getOperationName()), checks(ModuleOp::getOperationName());
      addHopperStage(pm, stage);
      if (failed(runStage(version, pm, refused)))
        return failure();
      addHopperStageChecks(checks, stage);
      if (failed(runPipeline(checks, version))) {
        if (refused)
          refused->clear();
        return failure();
      }
    }
    return success();
  }

  /// Runs the stages, with smaller tiles while a kernel needs more shared memory than a CTA has;
  /// sizes that were asked for stay, and what is too large is refused behind.
  LogicalResult runUntilFits(ModuleOp version, std::string *refused) {
    bool isAsked = blockM > 0 || blockN > 0 || blockNDq > 0 || blockMDkv > 0 || stages > 0;
    int64_t limit = findLimits(chip)->sharedBytesPerCta;
    while (true) {
      OwningOpRef<ModuleOp> before = version.clone();
      if (failed(runStages(version, refused)))
        return failure();
      if (isAsked || findSharedBytes(version) <= limit)
        return success();
      if (!shrinkWarpTiles(*before)) {
        std::string reason = "the smallest tiles need " + std::to_string(findSharedBytes(version)) +
                             " bytes of shared memory, a CTA of " + chip + " has " +
                             std::to_string(limit);
        if (!refused)
          return version.emitError() << reason;
        *refused = reason;
        return failure();
      }
      version.getBodyRegion().takeBody(before->getBodyRegion());
      version->setAttrs((*before)->getAttrDictionary());
    }
  }

  LogicalResult runStage(ModuleOp version, OpPassManager &pm, std::string *refused) {
    std::optional<ScopedDiagnosticHandler> handler;
    if (refused)
      handler.emplace(&getContext(), [&](Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() != DiagnosticSeverity::Error)
          return failure();
        llvm::raw_string_ostream(*refused) << (refused->empty() ? "" : "; ") << diagnostic;
        return success();
      });
    return runPipeline(pm, version);
  }

  /// Conditions of a version; none if it always runs.
  static ArrayRef<Attribute> getConditions(ModuleOp version) {
    auto when = version->getAttrOfType<ArrayAttr>(kWhenAttr);
    return when ? when.getValue() : ArrayRef<Attribute>();
  }

  /// Whether `later` runs only where `version` does, which comes before it.
  static bool hides(ModuleOp version, ModuleOp later) {
    return llvm::all_of(getConditions(version), [&](Attribute condition) {
      return llvm::is_contained(getConditions(later), condition);
    });
  }

  LogicalResult lowerVersions(VersionsOp versions) {
    SmallVector<ModuleOp> open = versions.getModules(), lowered;
    // With an order that was asked for, what is refused is an error.
    bool mayLeaveOut = order != "n_outer";
    for (size_t i = 0; i < open.size(); ++i) {
      ModuleOp version = open[i];
      if (llvm::any_of(lowered, [&](ModuleOp before) { return hides(before, version); }))
        continue;
      bool isOfRows = version->hasAttr(hopper::kRowsAttr);
      if (!isOfRows && !version->hasAttr(hopper::kScheduleAttr) && failed(select(version)))
        return failure();
      std::string refused;
      if (auto reason = version->getAttrOfType<StringAttr>(hopper::kRefusedAttr)) {
        refused = reason.str();
      } else {
        // One that runs wherever this one does can stand in for it.
        auto standsIn = [&](ModuleOp later) { return hides(later, version); };
        bool hasOther = mayLeaveOut && llvm::any_of(ArrayRef(open).drop_front(i + 1), standsIn) &&
                        !(isOfRows && rowPrograms == "true");
        LogicalResult result = lower(version, hasOther ? &refused : nullptr);
        // Without a reason it is no refusal.
        if (failed(result) && refused.empty())
          return failure();
        if (succeeded(result)) {
          lowered.push_back(version);
          continue;
        }
      }
      numRefused.at(version) << remark::reason("{0}", refused);
    }
    if (lowered.empty() || !getConditions(lowered.back()).empty())
      return versions.emitError() << "no version of '" << versions.getSymName()
                                  << "' is right for all calls";
    keep(versions, lowered);
    return success();
  }

  /// Runs the stages on a version, or on the versions that it was divided into.
  LogicalResult lower(ModuleOp version, std::string *refused) {
    if (version->hasAttr(hopper::kRowsAttr)) {
      OpPassManager pm(ModuleOp::getOperationName());
      int64_t most = std::min<int64_t>(rowCtas, findLimits(chip)->ctasPerCluster);
      HopperFormRowProgramsOptions options{most, ctas, rowThreads, rowParts};
      addRowPrograms(pm, options);
      return runStage(version, pm, refused);
    }
    if (version.getOps<VersionsOp>().empty()) {
      auto schedule = version->getAttrOfType<hopper::ScheduleAttr>(hopper::kScheduleAttr);
      bool usesWarps = schedule && schedule.getProducts() == hopper::Products::Mma;
      return usesWarps ? runUntilFits(version, refused) : runStages(version, refused);
    }
    for (auto inner : llvm::make_early_inc_range(version.getOps<VersionsOp>()))
      if (failed(lowerVersions(inner)))
        return failure();
    return success();
  }

  /// Makes an op with these versions of `versions`.
  static void keep(VersionsOp versions, ArrayRef<ModuleOp> modules) {
    if (modules.size() == versions.getVersions().size())
      return;
    OpBuilder b(versions);
    auto kept = VersionsOp::create(b, versions.getLoc(), versions.getSymName(), modules.size());
    for (auto [region, module] : llvm::zip_equal(kept.getVersions(), modules))
      module->moveBefore(&region.emplaceBlock(), region.front().end());
    versions.erase();
  }
};
} // namespace

llvm::Error attn::addLowerToHopper(OpPassManager &pm, const PipelineOptions &options,
                                   StringRef chip) {
  std::string parts = options.parts < 0 ? "" : " parts=" + std::to_string(int64_t(options.parts));
  std::string given = ("chip=" + chip + " order=").str() + options.order + parts +
                      " deterministic=" + (options.deterministic ? "true" : "false") + " " +
                      options.schedule;
  std::unique_ptr<Pass> lowering = createAttnLowerToHopper();
  std::string reason;
  if (failed(lowering->initializeOptions(given, [&](const Twine &text) {
        reason = text.str();
        return failure();
      })))
    return llvm::createStringError("--schedule: " + reason);
  pm.addPass(std::move(lowering));
  return llvm::Error::success();
}
