// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From attention to the protocol form of the hopper dialect. The schedule is
// chosen from a table by what the module multiplies; options override it.

#include "HopperForms.h"
#include "HopperLowering.h"
#include "HopperSchedules.h"
#include "HopperVersions.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Attn/Transforms/Masks.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Pipelines/Passes.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Transforms/Nest/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace attn {
#define GEN_PASS_DEF_ATTNLOWERTOHOPPER
#include "attn/Pipelines/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// TMA copies rows of whole 16 bytes, of 16-bit elements.
constexpr int64_t kColumnMultiple = 8;

/// The dimension of queries or keys, of (batch, heads, length, head dimension).
constexpr int64_t kLength = 2;

/// Columns of the sums that one warpgroup holds, and two roles of one.
constexpr int64_t kMostSumColumns = 256, kMostDividedColumns = 512;

/// Queries up to which sums that are to have one order have a kernel each: where tiles of dQ are
/// few, all tiles of keys wait for them.
constexpr int64_t kMostRowsApart = 256;

/// What the tensor core takes: 16-bit elements, and an output that a warpgroup can hold.
template <typename Op> LogicalResult checkTypes(Op op) {
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
  }
  return success();
}

struct LowerToHopperPass : attn::impl::AttnLowerToHopperBase<LowerToHopperPass> {
  using Base::Base;

  void getDependentDialects(DialectRegistry &registry) const override {
    OpPassManager pm(ModuleOp::getOperationName());
    buildNestPipeline(pm, PipelineOptions());
    addLowering(pm,
                withOptions(withMaxima(kAddedSchedules[0], Schedule::Fixed), /*copiesTiles=*/true));
    pm.getDependentDialects(registry);
  }

  void runOnOperation() override {
    WalkResult walk = getOperation().walk([](ForwardOp op) { return WalkResult(checkTypes(op)); });
    if (!walk.wasInterrupted())
      walk = getOperation().walk([](BackwardOp op) { return WalkResult(checkTypes(op)); });
    if (walk.wasInterrupted() || failed(checkOptions()) || failed(padHeads()))
      return signalPassFailure();
    OpPassManager definition(ModuleOp::getOperationName());
    definition.addPass(createAttnDefineIntegers());
    if (failed(runPipeline(definition, getOperation())))
      return signalPassFailure();
    needsRunning = false;
    getOperation().walk([&](ForwardOp op) {
      bool mayLackKeys = !keepsKeys(op.getMask()) && !ignoresRows(op.getMask());
      needsRunning |= mayLackKeys || op.getSink();
    });
    OwningOpRef<ModuleOp> keyed, gradients;
    if (failed(cloneKeyed(keyed)) || failed(formGradients(getOperation(), gradients)) ||
        failed(lowerReads(getOperation())) ||
        (keyed && gradients && failed(addKeyed(*gradients, keyed.release()))))
      return signalPassFailure();
    if (gradients)
      getOperation().getBody()->getOperations().splice(getOperation().getBody()->end(),
                                                       gradients->getBody()->getOperations());
  }

  LogicalResult padHeads() {
    OpPassManager pm(ModuleOp::getOperationName());
    pm.addPass(createAttnPadHeads(AttnPadHeadsOptions{kColumnMultiple}));
    return runPipeline(pm, getOperation());
  }

  /// A copy of the gradients that need not look for rows without keys if there are no more rows
  /// than keys, which is known at run time only; null if there are none.
  LogicalResult cloneKeyed(OwningOpRef<ModuleOp> &keyed) {
    auto prove = [&](ModuleOp module, bool noMoreRows) {
      OpPassManager pm(ModuleOp::getOperationName());
      pm.addPass(createAttnProveKeys(AttnProveKeysOptions{noMoreRows}));
      return runPipeline(pm, module);
    };
    if (failed(prove(getOperation(), /*noMoreRows=*/false)))
      return failure();
    ModuleOp copy = getOperation().clone();
    for (auto function : llvm::make_early_inc_range(copy.getOps<func::FuncOp>())) {
      auto isOpen = [](BackwardOp op) {
        return op.getRowsHaveKeys() ? WalkResult::advance() : WalkResult::interrupt();
      };
      if (!function.walk(isOpen).wasInterrupted())
        function.erase();
    }
    // A pass runs pipelines on what is in its op only.
    getOperation().push_back(copy);
    if (failed(prove(copy, /*noMoreRows=*/true)))
      return failure();
    for (auto function : llvm::make_early_inc_range(copy.getOps<func::FuncOp>())) {
      auto isWithout = [](BackwardOp op) {
        Value rows = op.getQuery(), keys = op.getKey();
        auto isKnown = [](Value tensor) {
          return !cast<RankedTensorType>(tensor.getType()).isDynamicDim(kLength);
        };
        bool depends = isa<BlockArgument>(rows) && isa<BlockArgument>(keys) &&
                       !(isKnown(rows) && isKnown(keys));
        return op.getRowsHaveKeys() && depends ? WalkResult::advance() : WalkResult::interrupt();
      };
      if (function.walk(isWithout).wasInterrupted())
        function.erase();
    }
    copy->remove();
    keyed = copy;
    if (copy.getBody()->empty())
      keyed = nullptr;
    return success();
  }

  /// Gradients in which all rows have keys, for no more rows than keys. Erases `module`, which
  /// they come from.
  LogicalResult addKeyed(ModuleOp gradients, ModuleOp module) {
    struct Tensors {
      unsigned rows, keys;
    };
    llvm::StringMap<SmallVector<Tensors>> tensors;
    module.walk([&](BackwardOp op) {
      auto getNumber = [](Value value) { return cast<BlockArgument>(value).getArgNumber(); };
      tensors[op->getParentOfType<func::FuncOp>().getName()].push_back(
          {getNumber(op.getQuery()), getNumber(op.getKey())});
    });
    getOperation().push_back(module);
    OwningOpRef<ModuleOp> version;
    if (failed(formGradients(module, version)))
      return failure();
    module.erase();
    if (!version)
      return success();
    mergeVersions(gradients, *version, [&](OpBuilder &b, func::FuncOp function, func::FuncOp) {
      Location loc = function.getLoc();
      Value all;
      for (auto [rows, keys] : tensors.lookup(function.getName())) {
        auto getLength = [&](unsigned number) -> Value {
          return memref::DimOp::create(b, loc, function.getArgument(number), kLength);
        };
        Value count = getLength(rows), most = getLength(keys);
        Value isKeyed = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ule, count, most);
        all = all ? arith::AndIOp::create(b, loc, all, isKeyed) : isKeyed;
      }
      return all;
    });
    return success();
  }

  /// Takes functions with gradients to a module of their own and lowers them.
  LogicalResult formGradients(ModuleOp module, OwningOpRef<ModuleOp> &gradients) {
    return divide(module, gradients, [&]() -> LogicalResult {
      OwningOpRef<ModuleOp> apart;
      if (failed(formNests(module, apart)))
        return failure();
      assignTiles(module, sumKeys, sumQueries);
      return lowerGradients(module, gradients, std::move(apart));
    });
  }

  /// Calls `lower`, without its diagnostics where something else can stand in.
  LogicalResult attempt(bool hasOther, llvm::function_ref<LogicalResult()> lower) {
    std::optional<ScopedDiagnosticHandler> quiet;
    if (hasOther)
      quiet.emplace(&getContext(), [](Diagnostic &) { return success(); });
    return lower();
  }

  /// Whether two sums that one warpgroup cannot hold are to be in two roles of a kernel
  /// (hopper-divide-sums).
  bool dividesSums = false;

  /// Calls `lower`, which takes gradients from the module, first with divided sums where some
  /// need that. Whatever cannot be divided, kernels for each sum can do.
  LogicalResult divide(ModuleOp module, OwningOpRef<ModuleOp> &gradients,
                       llvm::function_ref<LogicalResult()> lower) {
    WalkResult walk = module.walk([](BackwardOp op) {
      auto getColumns = [](Value tensor) {
        return cast<RankedTensorType>(tensor.getType()).getShape().back();
      };
      return getColumns(op.getKey()) + getColumns(op.getValue()) > kMostSumColumns
                 ? WalkResult::interrupt()
                 : WalkResult::advance();
    });
    dividesSums = walk.wasInterrupted() && isOn(divideSums, true);
    if (!dividesSums)
      return lower();
    OwningOpRef<ModuleOp> before = module.clone();
    LogicalResult result = attempt(divideSums == "auto", lower);
    if (succeeded(result) || divideSums != "auto")
      return result;
    module.getBodyRegion().takeBody(before->getBodyRegion());
    gradients = nullptr;
    dividesSums = false;
    return lower();
  }

  /// The gradients, if there are any, with those of `apart` beside them where these are to stand
  /// in.
  LogicalResult lowerGradients(ModuleOp module, OwningOpRef<ModuleOp> &gradients,
                               OwningOpRef<ModuleOp> apart) {
    if (!apart)
      return lowerGradients(module, gradients);
    std::optional<StreamLength> length;
    if (order == "fixed")
      length = findStreamLength(module, /*ofGradient=*/true);
    bool copies = false;
    ordersSums = order == "ordered" || order == "fixed";
    // Whatever cannot be ordered, or has no room beside what else is in memory, kernels for each
    // sum can do.
    bool hasOther = order == "fixed" || order == "auto";
    LogicalResult result =
        attempt(hasOther, [&] { return lowerGradients(module, gradients, &copies); });
    if (failed(result) && !hasOther)
      return failure();
    if (!gradients)
      return lowerApart(apart.release(), gradients);
    if (!copies && order != "fixed")
      return success();
    return addGradientsApart(*gradients, apart.release(), length);
  }

  LogicalResult formNests(ModuleOp module, bool parallelSums) {
    OpPassManager nests(ModuleOp::getOperationName());
    PipelineOptions options;
    options.order = "rows";
    options.parallelSums = parallelSums;
    options.tableRows = hopper::kWarpRows;
    options.pairsApart = true;
    options.largeRows = true;
    options.largeScores = largeScores ? "rows" : "inexact";
    buildNestPipeline(nests, options);
    nests.addNestedPass<func::FuncOp>(createAttnMergeSums());
    nests.addNestedPass<func::FuncOp>(createAttnSplitSums(
        AttnSplitSumsOptions{dividesSums ? kMostDividedColumns : kMostSumColumns}));
    return runPipeline(nests, module);
  }

  /// Sums along two dimensions in one pass where the tensor core can do it; `apart`
  /// is then what came in.
  LogicalResult formNests(ModuleOp module, OwningOpRef<ModuleOp> &apart) {
    if (order == "rows")
      return formNests(module, /*parallelSums=*/false);
    OwningOpRef<ModuleOp> before = module.clone();
    if (failed(formNests(module, /*parallelSums=*/true)))
      return failure();
    std::optional<StreamLength> length = findStreamLength(module, /*ofGradient=*/true);
    bool isShort =
        order == "fixed" && length && length->number && *length->number <= kMostRowsApart;
    bool adds = addsSums(module);
    WalkResult walk = before->walk([](BackwardOp) { return WalkResult::interrupt(); });
    bool isGradient = walk.wasInterrupted();
    // Where no gradient is one pass, tiles of its scores would be whole in memory.
    if (!isShort && canAddSums(module) && (adds || !isGradient)) {
      if (adds)
        apart = std::move(before);
      return success();
    }
    auto functions = module.getOps<func::FuncOp>();
    auto gradient = llvm::find_if(functions, hasGradient);
    if (gradient == functions.end() && isGradient)
      gradient = functions.begin();
    if ((order == "stream" || order == "ordered") && gradient != functions.end())
      return (*gradient).emitError()
             << "order=" << order
             << " adds sums of 64 or 128 columns to memory, which are products of matrices, beside "
                "others of at most 128 and none at computed indices, for 64 queries and 65 keys or "
                "more; order=rows has a kernel for each sum";
    module.getBodyRegion().takeBody(before->getBodyRegion());
    return formNests(module, /*parallelSums=*/false);
  }

  /// A row of the table with options in the place of what they override.
  Lowering withOptions(Schedule schedule, bool copiesTiles) const {
    schedule.rows = rows > 0 ? rows : schedule.rows;
    schedule.keys = keys > 0 ? keys : schedule.keys;
    schedule.stages = stages > 0 ? stages : schedule.stages;
    schedule.growth = growth >= 0 ? growth : schedule.growth;
    schedule.polynomials = polynomials >= 0 ? polynomials : schedule.polynomials;
    schedule.occupancy = occupancy > 0 ? occupancy : schedule.occupancy;
    schedule.pipelines = isOn(pipeline, schedule.pipelines);
    schedule.trims = isOn(trim, schedule.trims);
    schedule.overlap = isOn(overlap, schedule.overlap);
    // Of what excludes something else, what is asked for stays.
    if (trim == "auto")
      schedule.trims &= overlap != "true" && schedule.pipelines;
    schedule.overlap &= trim != "true";
    schedule.pingPong = isOn(pingPong, schedule.pingPong);
    schedule.output = llvm::StringSwitch<Output>(output)
                          .Case("own", Output::Own)
                          .Case("reuse", Output::Reuse)
                          .Case("pieces", Output::Pieces)
                          .Default(schedule.output);
    return {schedule,           ctas, cluster, producerRegisters, copiesTiles, ordersSums,
            fixMaxima == "true"};
  }

  LogicalResult lowerWith(ModuleOp module, const Schedule &schedule, bool copiesTiles = false) {
    OpPassManager lowering(ModuleOp::getOperationName());
    Lowering chosen = withOptions(schedule, copiesTiles);
    if (chosen.schedule.trims && !chosen.schedule.pipelines)
      return getOperation().emitError(
          "schedule option 'trim=true' needs 'pipeline', which the schedule of this module leaves "
          "out; ask for 'pipeline=true', too");
    addLowering(lowering, chosen);
    return runPipeline(lowering, module);
  }

  static LogicalResult refuseColumns(ModuleOp module, int64_t columns) {
    return module.emitError() << "a head dimension of " << columns
                              << " is more than the 256 that a warpgroup can hold";
  }

  /// Takes functions with gradients to a module of their own and lowers them: what
  /// fits them does not fit the others. `copies`, if not null, is set where they copy tiles
  /// by TMA that it may not reach: another version is to stand in for them then.
  LogicalResult lowerGradients(ModuleOp module, OwningOpRef<ModuleOp> &taken,
                               bool *copies = nullptr) {
    SmallVector<func::FuncOp> gradients;
    for (auto function : module.getOps<func::FuncOp>())
      if (hasGradient(function))
        gradients.push_back(function);
    if (gradients.empty())
      return success();
    auto version = ModuleOp::create(module.getLoc());
    module.push_back(version);
    for (func::FuncOp function : gradients)
      function->moveBefore(version.getBody(), version.getBody()->end());
    int64_t columns = findColumns(version);
    ArrayRef<Schedule> schedules =
        addsSums(version) ? ArrayRef(kAddedSchedules) : ArrayRef(kGradientSchedules);
    bool isBusy = keepsFmaUnitsBusy(version);
    MaskForm mask = findMaskForm(version);
    const Schedule *schedule = llvm::find_if(schedules, [&](const Schedule &row) {
      return columns <= row.columns && row.isFor(mask) &&
             !(isBusy && row.columns <= 64 && row.storesFirst);
    });
    if (schedule == schedules.end())
      return refuseColumns(version, columns);
    bool copiesTiles = copies && loadTiles && schedule->addsSums && readsTiles(version);
    if (failed(lowerWith(version, *schedule, copiesTiles)))
      return version.erase(), failure();
    if (copies)
      *copies = copiesTiles;
    version->remove();
    taken = version;
    return success();
  }

  /// Gradients with a kernel for each sum. Erases `module`, which they come from.
  LogicalResult lowerApart(ModuleOp module, OwningOpRef<ModuleOp> &gradients) {
    // A pass runs pipelines on what is in its op only.
    getOperation().push_back(module);
    LogicalResult result = divide(module, gradients, [&]() -> LogicalResult {
      if (failed(formNests(module, /*parallelSums=*/false)))
        return failure();
      assignTiles(module, sumKeys, sumQueries);
      return lowerGradients(module, gradients);
    });
    module.erase(); // on failure, too: what is tried again must not find it
    return result;
  }

  /// A second version of gradients, with a kernel for each sum: for what TMA does not reach, and,
  /// where sums are to have one order, for few queries (if `length` says how many there are) and
  /// for more CTAs that wait for each other than run at a time.
  LogicalResult addGradientsApart(ModuleOp gradients, ModuleOp apart,
                                  std::optional<StreamLength> length) {
    OwningOpRef<ModuleOp> version;
    if (failed(lowerApart(apart, version)))
      return failure();
    mergeVersions(gradients, *version,
                  [&](OpBuilder &b, func::FuncOp function, func::FuncOp other) -> Value {
                    Location loc = function.getLoc();
                    Value any;
                    auto add = [&](Value condition) {
                      if (condition)
                        any = any ? arith::OrIOp::create(b, loc, any, condition) : condition;
                    };
                    if (length && !length->number)
                      add(createIsShort(b, function, *length, kMostRowsApart));
                    if (order == "fixed")
                      add(createIsTooLarge(b, function, ctas));
                    if (Value reaches = createReaches(b, function, function, other)) {
                      Value yes = arith::ConstantIntOp::create(b, loc, 1, 1);
                      add(arith::XOrIOp::create(b, loc, reaches, yes));
                    }
                    return any;
                  });
    return success();
  }

  /// What a score reads by row and column is copied by TMA where that reaches
  /// it: which depends on strides that are known at run time only.
  LogicalResult lowerReads(ModuleOp module) {
    int64_t columns = findColumns(module);
    const Schedule *schedule = llvm::find_if(
        kCopiedSchedules, [&](const Schedule &row) { return columns <= row.columns; });
    if (!loadTiles || schedule == std::end(kCopiedSchedules) || !readsTiles(module))
      return lowerVersions(module);
    Schedule row = *schedule;
    if (fixesMaxima(module, columns))
      row.maxima = Schedule::Fixed;
    OwningOpRef<ModuleOp> copy = module.clone();
    // Two kernels less to compile, for what is rarely needed.
    if (failed(lowerVersions(module, /*mayFix=*/false)))
      return failure();
    // A pass runs pipelines on what is in its op only.
    ModuleOp version = copy.release();
    module.push_back(version);
    if (failed(lowerWith(version, row, /*copiesTiles=*/true)))
      return failure();
    mergeVersions(module, version, [](OpBuilder &b, func::FuncOp general, func::FuncOp special) {
      return createReaches(b, general, special, general);
    });
    version.erase();
    return success();
  }

  /// Some maximum should run on: a mask may leave some rows of a head without keys, which would
  /// be computed twice, or a sink is the first term of the sums.
  bool needsRunning = false;

  /// Whether maxima are fixed: where outputs are wide, corrections that are delayed do as well,
  /// and where scores grow with the column's number, the first tile says nothing.
  bool fixesMaxima(ModuleOp module, int64_t columns) {
    constexpr int64_t kMostColumns = 128;
    return isOn(fixMaxima, columns <= kMostColumns && growth < 0 && cluster == 1 && !needsRunning &&
                               !numbersColumns(module));
  }

  /// With the schedule that fits; with two where the length of the stream,
  /// which decides, is known at run time only.
  LogicalResult lowerVersions(ModuleOp module, bool mayFix = true) {
    int64_t columns = findColumns(module);
    bool heavy = needsRegisters(module), isPlain = hasPlainScores(module);
    MaskForm mask = findMaskForm(module);
    std::optional<StreamLength> length = findStreamLength(module, /*ofGradient=*/false);
    bool fixes = mayFix && fixesMaxima(module, columns);
    auto fits = [&](const Schedule &row, bool isShort) {
      return columns <= row.columns && !(heavy && row.isTight) && (isPlain || row.pipelines) &&
             row.isFor(mask) && (isShort || row.length == 0) &&
             row.maxima != (fixes ? Schedule::Running : Schedule::Fixed);
    };
    const Schedule *many = llvm::find_if(
        kSchedules, [&](const Schedule &row) { return fits(row, /*isShort=*/false); });
    if (many == std::end(kSchedules))
      return refuseColumns(module, columns);
    const Schedule *few =
        llvm::find_if(kSchedules, [&](const Schedule &row) { return fits(row, /*isShort=*/true); });
    auto lower = [&](ModuleOp version, Schedule row) {
      row.growth = columns <= 64 && !isPlain ? 0 : row.growth;
      row.maxima = fixes ? Schedule::Fixed : Schedule::Running;
      if (rows > 0 || keys > 0) { // other tiles, which may need all registers
        row.occupancy = 1;
        row.pipelines = true;
      }
      return lowerWith(version, row);
    };
    if (few == many || few->columns != many->columns || !length || rows > 0 || keys > 0)
      return lower(module, *many);
    if (length->number)
      return lower(module, *length->number <= few->length ? *few : *many);
    OwningOpRef<ModuleOp> copy = module.clone();
    if (failed(lower(module, *many)))
      return failure();
    // A pass runs pipelines on what is in its op only.
    ModuleOp version = copy.release();
    module.push_back(version);
    if (failed(lower(version, *few)))
      return failure();
    mergeByLength(module, version, *length, few->length);
    version.erase();
    return success();
  }

  /// Whether what several CTAs add to memory has one order.
  bool ordersSums = false;

  static bool isOn(StringRef option, bool otherwise) {
    return option == "auto" ? otherwise : option == "true";
  }

  /// Options that are words must be known ones.
  LogicalResult checkOptions() {
    auto check = [&](StringRef name, StringRef value, ArrayRef<StringRef> known) -> LogicalResult {
      if (llvm::is_contained(known, value))
        return success();
      return getOperation().emitError() << "schedule option '" << name << "' is one of "
                                        << llvm::join(known, ", ") << "; got '" << value << "'";
    };
    if (failed(check("overlap", overlap, {"auto", "true", "false"})) ||
        failed(check("pipeline", pipeline, {"auto", "true", "false"})) ||
        failed(check("ping-pong", pingPong, {"auto", "true", "false"})) ||
        failed(check("trim", trim, {"auto", "true", "false"})) ||
        failed(check("divide-sums", divideSums, {"auto", "true", "false"})) ||
        failed(check("fix-maxima", fixMaxima, {"auto", "true", "false"})) ||
        failed(check("order", order, {"auto", "rows", "stream", "ordered", "fixed"})))
      return failure();
    if (fixMaxima == "true" && cluster != 1)
      return getOperation().emitError(
          "schedule option 'fix-maxima=true' excludes 'cluster': a CTA that ends alone leaves the "
          "others of its cluster without their part of the copies");
    if (trim == "true" && overlap == "true")
      return getOperation().emitError("schedule option 'trim=true' excludes 'overlap=true': the "
                                      "assembler would run the products one after the other");
    if (trim == "true" && pipeline == "false")
      return getOperation().emitError(
          "schedule option 'trim=true' needs 'pipeline': what is left out is the product that runs "
          "beside the next iteration");
    return check("output", output, {"auto", "own", "reuse", "pieces"});
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
