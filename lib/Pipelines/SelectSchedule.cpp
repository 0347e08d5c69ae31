// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One schedule for each module: the table's, with options in the place of what they override.

#include "HopperForms.h"
#include "HopperOptions.h"
#include "HopperSchedules.h"
#include "HopperTable.h"
#include "WarpTiles.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Pipelines/Passes.h"
#include "attn/Transforms/Nest/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERSELECTSCHEDULE
#include "attn/Pipelines/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using hopper::Maxima;
using hopper::NestsAttr;
using hopper::OutputMemory;
using hopper::ScheduleAttr;
using hopper::Sums;

static Done numSelected("hopper-select-schedule", "selected", "Modules that got a schedule");

/// Of a head: what threads have registers for.
static constexpr int64_t kMostColumns = 256;

/// Queries up to which sums that are to have one order have a kernel each: where tiles of dQ are
/// few, all tiles of keys wait for them.
static constexpr int64_t kMostRowsApart = 256;

static LogicalResult refuseColumns(ModuleOp module, int64_t columns) {
  return module.emitError() << "a head dimension of " << columns
                            << " is more than the 256 that a warpgroup can hold";
}

namespace {
/// A version of a module's function and what it asks of a call.
struct Choice {
  ScheduleAttr schedule;
  Attribute condition; // null for none
};

struct SelectSchedulePass : attn::impl::HopperSelectScheduleBase<SelectSchedulePass> {
  using Base::Base;
  template <typename Pass> friend bool attn::asksForTiles(const Pass &);
  template <typename Pass> friend LogicalResult attn::checkOptions(Operation *, const Pass &);

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (failed(checkOptions(module, *this)))
      return signalPassFailure();
    if (usesWarps(module)) {
      if (failed(selectForWarps(module)))
        signalPassFailure();
      return;
    }
    auto nests = module->getAttrOfType<NestsAttr>(hopper::kNestsAttr);
    if (!nests)
      nests = NestsAttr::get(&getContext(), Sums::Together, 256, false);
    FailureOr<bool> fits = checkSums(module, nests);
    if (failed(fits))
      return signalPassFailure();
    if (!*fits)
      return;
    assignTiles(module, blockNDq, blockMDkv);
    LogicalResult result = hasGradient(module) ? selectForGradient(module, nests) : select(module);
    if (failed(result))
      return signalPassFailure();
  }

  //===--------------------------------------------------------------------===//
  // Products of single warps
  //===--------------------------------------------------------------------===//

  bool usesWarps(ModuleOp module) {
    return products == "mma" ||
           (products == "auto" &&
            (chip != target::sm90::kChip || findProductSizes(module).bytes != 2 ||
             findProductSizes(module).columns > kMostColumns || hasPages(module) ||
             module->hasAttr(hopper::kWarpsAttr)));
  }

  /// CTAs of a multiprocessor at a time. One of few rows waits for its copies, while another one
  /// computes.
  int64_t findResident(const WarpTiles &tiles, ProductSizes sizes, const WarpKernel &kernel,
                       const target::Limits &limits) {
    if (occupancy > 0)
      return occupancy;
    int64_t reserved = limits.sharedBytesReserved;
    bool areTwo = 2 * (tiles.getSharedBytes(sizes, /*staying=*/1) + reserved) <=
                  limits.sharedBytesPerCta + reserved;
    return kernel.isFewRows && areTwo ? 2 : 1;
  }

  LogicalResult selectForWarps(ModuleOp module) {
    auto nests = module->getAttrOfType<NestsAttr>(hopper::kNestsAttr);
    bool isGradient = hasGradient(module);
    bool adds = false;
    if (nests && nests.getGradient() && nests.getSums() == Sums::Together) {
      adds = findProductSizes(module).bytes == 2 && addsSums(module) && canAddSums(module);
      if (adds) {
        constexpr int64_t kQueries = 64; // of more a thread's registers do not hold the scores
        assignTiles(module, blockNDq, blockMDkv);
        setStream(module, blockMDkv > 0 ? int64_t(blockMDkv) : kQueries);
      }
      StringRef reason =
          deterministic ? "additions to memory by all threads have no order"
                        : "sums that are added to memory have 64 or 128 columns of 16-bit "
                          "elements, are products of matrices, beside others of at most 128 and "
                          "none at computed indices, for 64 queries and 65 keys or more";
      if (order == "n_outer" && (!adds || deterministic))
        return module.emitError() << "order=n_outer with products=mma: " << reason
                                  << "; order=m_outer has a kernel for each sum";
      if (!adds || deterministic) {
        module->setAttr(hopper::kRefusedAttr, StringAttr::get(&getContext(), reason));
        return success();
      }
    }
    if (nests && nests.getColumns() > kMostColumns) {
      module->setAttr(hopper::kRefusedAttr,
                      StringAttr::get(&getContext(), "two sums of more columns than a warpgroup "
                                                     "holds are those of two roles"));
      return success();
    }
    if (failed(refuseRoles(module)))
      return failure();
    if (isGradient && splits())
      return module.emitError()
             << "schedule option '" << (parts >= 0 ? "parts" : "order=split_kv")
             << "' is of forwards; gradients have the orders m_outer and n_outer";
    constexpr int64_t kNarrow = 64; // columns
    const target::Limits &limits = *findLimits(chip);
    ProductSizes sizes = findProductSizes(module);
    int64_t terms = precision == "tf32x3" ? 3 : precision == "tf32" ? 1 : 0;
    sizes.usesFma = sizes.bytes >= 4 && terms == 0;
    WarpTiles asked = {blockM, blockN, stages, groupWarps, productColumns};
    bool isFew = !isGradient && hasFewRows(module);
    WarpKernel kernel = {isGradient, isFew || splits(), isGradient ? int64_t(2) : int64_t(1),
                         findMaskForm(module).isMasked};
    std::optional<WarpTiles> tiles = findWarpTiles(sizes, kernel, limits, asked);
    if (!tiles)
      return module.emitError() << "no tile of " << sizes.columns << " columns fits into the "
                                << limits.sharedBytesPerCta << " bytes of shared memory of a CTA ("
                                << chip.getValue() << ")";
    if (adds) {
      tiles->rows = blockM > 0 ? int64_t(blockM) : 128;
      tiles->groupWarps = groupWarps > 0 ? int64_t(groupWarps) : 4;
    } else if (isGradient) {
      asked.stream = blockNDq > 0 ? blockNDq : blockMDkv;
      asked.groupWarps = tiles->groupWarps;
      asked.productColumns = tiles->productColumns;
      if (failed(assignWarpTiles(module, limits, asked)))
        return failure();
    } else {
      assignTiles(module, /*ofOneSum=*/0, /*ofTwoSums=*/0);
    }
    // Narrow outputs are scaled faster than asked whether they have to be.
    double threshold = rescaleThreshold >= 0     ? double(rescaleThreshold)
                       : sizes.columns > kNarrow ? kRescaleThreshold
                                                 : 0;
    int64_t resident = findResident(*tiles, sizes, kernel, limits);
    auto get = [&](int64_t parts) {
      auto emitError = [&] { return module.emitError(); };
      return ScheduleAttr::getChecked(
          emitError, &getContext(), tiles->rows, tiles->stream, parts, tiles->stages, int64_t(ctas),
          resident, /*cluster=*/int64_t(1),
          /*producer_registers=*/int64_t(0), OutputMemory::Own, Maxima::Running, /*pipeline=*/false,
          /*overlap=*/false, /*ping_pong=*/false, /*trim=*/false,
          threshold > 0 ? Builder(&getContext()).getF64FloatAttr(threshold) : FloatAttr(),
          exp2Emulation > 0 ? int64_t(exp2Emulation) : int64_t(0), /*adds_sums=*/adds,
          /*ordered=*/false,
          /*stores_first=*/false, /*adder_fences=*/false, /*loads_tiles=*/false,
          hopper::Products::Mma, tiles->groupWarps, sizes.bytes == 4 ? terms : int64_t(0),
          /*product_columns=*/tiles->productColumns);
    };
    SmallVector<Choice> choices;
    auto add = [&](int64_t parts, Attribute condition) -> LogicalResult {
      ScheduleAttr schedule = get(parts);
      if (schedule)
        choices.push_back({schedule, condition});
      return success(bool(schedule));
    };
    int64_t asPlanned = parts >= 0 ? int64_t(parts) : 0;
    LogicalResult result =
        splits() ? add(asPlanned, {})
        : isFew && order == "auto" && parts < 0
            ? LogicalResult(failure(failed(add(0, DividedConditionAttr::get(&getContext()))) ||
                                    failed(add(1, {}))))
            : add(1, {});
    if (failed(result))
      return failure();
    finish(module, choices);
    return success();
  }

  /// What is asked of roles that copy means nothing to threads that copy for themselves.
  LogicalResult refuseRoles(ModuleOp module) {
    std::pair<StringRef, bool> asked[] = {{"cluster", cluster != 1},
                                          {"producer-registers", producerRegisters != 0},
                                          {"pipeline", pipeline == "true"},
                                          {"overlap", overlap == "true"},
                                          {"trim", trim == "true"},
                                          {"ping-pong", pingPong == "true"},
                                          {"fix-maxima", fixMaxima == "true"},
                                          {"divide-sums", divideSums == "true"},
                                          {"output", output != "auto"}};
    for (auto [name, isAsked] : asked)
      if (isAsked)
        return module.emitError() << "schedule option '" << name
                                  << "' is of products=wgmma, whose kernels have roles that copy";
    return success();
  }

  /// Whether sums can be as `nests` says; an error where they must be and cannot.
  FailureOr<bool> checkSums(ModuleOp module, NestsAttr nests) {
    if (nests.getSums() == Sums::Apart)
      return true;
    std::optional<StreamLength> length = findStreamLength(module, /*ofGradient=*/true);
    bool isShort = order == "auto" && deterministic && length && length->number &&
                   *length->number <= kMostRowsApart;
    // Where no gradient is one pass, tiles of its scores would be whole in memory.
    bool adds = addsSums(module), lacksPass = nests.getGradient() && !adds;
    if (!isShort && canAddSums(module) && !lacksPass)
      return true;
    auto functions = module.getOps<func::FuncOp>();
    auto gradient = llvm::find_if(functions, hasGradient);
    if (gradient == functions.end() && nests.getGradient())
      gradient = functions.begin();
    StringRef reason =
        "sums that are added to memory have 64 or 128 columns, are products of matrices, beside "
        "others of at most 128 and none at computed indices, for 64 queries and 65 keys or more";
    if (order == "n_outer" && gradient != functions.end())
      return (*gradient).emitError()
             << "order=n_outer: " << reason << "; order=m_outer has a kernel for each sum";
    if (isShort)
      reason = "few queries: all tiles of keys would wait for one tile of dQ";
    module->setAttr(hopper::kRefusedAttr, StringAttr::get(&getContext(), reason));
    return false;
  }

  /// Whether the keys of each row are divided.
  bool splits() { return parts >= 0 ? parts != 1 : order == "split_kv"; }

  /// A row of the table with options in the place of what they override.
  FailureOr<ScheduleAttr> withOptions(ModuleOp module, Schedule row, bool loadsTiles = false) {
    row.blockM = blockM > 0 ? blockM : row.blockM;
    row.blockN = blockN > 0 ? blockN : row.blockN;
    row.parts = row.parts != 1 && parts >= 0 ? int64_t(parts) : row.parts;
    row.stages = stages > 0 ? stages : row.stages;
    row.rescaleThreshold = rescaleThreshold >= 0 ? rescaleThreshold : row.rescaleThreshold;
    row.exp2Emulation = exp2Emulation >= 0 ? exp2Emulation : row.exp2Emulation;
    row.occupancy = occupancy > 0 ? occupancy : row.occupancy;
    row.pipelines = isOn(pipeline, row.pipelines);
    row.trims = isOn(trim, row.trims);
    row.overlap = isOn(overlap, row.overlap);
    // Of what excludes something else, what is asked for stays.
    if (trim == "auto")
      row.trims &= overlap != "true" && row.pipelines;
    row.overlap &= trim != "true";
    row.pingPong = isOn(pingPong, row.pingPong);
    if (output != "auto")
      row.output = output == "own"     ? OutputMemory::Own
                   : output == "reuse" ? OutputMemory::Reuse
                                       : OutputMemory::Slabs;
    if (row.trims && !row.pipelines)
      return module.emitError(
          "schedule option 'trim=true' needs 'pipeline', which the schedule of this module leaves "
          "out; ask for 'pipeline=true', too");
    bool fixes = row.maxima == Schedule::Fixed;
    Maxima maxima = !fixes                ? Maxima::Running
                    : fixMaxima == "true" ? Maxima::AlwaysFixed
                                          : Maxima::Fixed;
    Builder b(&getContext());
    FloatAttr threshold =
        row.rescaleThreshold && !fixes ? b.getF64FloatAttr(row.rescaleThreshold) : FloatAttr();
    auto emitError = [&] { return module.emitError(); };
    ScheduleAttr schedule = ScheduleAttr::getChecked(
        emitError, &getContext(), row.blockM, row.blockN, row.parts, row.stages, int64_t(ctas),
        row.occupancy, int64_t(cluster), int64_t(producerRegisters), row.output, maxima,
        row.pipelines, row.overlap, row.pingPong, row.trims, threshold, row.exp2Emulation,
        row.addsSums, row.addsSums && deterministic, row.addsSums && row.storesFirst,
        row.addsSums && row.adderFences, loadsTiles, hopper::Products::Wgmma,
        /*group_warps=*/int64_t(4), /*tf32=*/int64_t(0), /*product_columns=*/int64_t(0));
    if (!schedule)
      return failure();
    return schedule;
  }

  void set(ModuleOp module, ScheduleAttr schedule) {
    module->setAttr(hopper::kScheduleAttr, schedule);
    numSelected.at(module) << remark::metric("BlockM", schedule.getBlockM())
                           << remark::metric("BlockN", schedule.getBlockN())
                           << remark::metric("Products",
                                             hopper::stringifyProducts(schedule.getProducts()));
  }

  /// Adds to what the module asks of a call.
  static void addConditions(ModuleOp module, ArrayRef<Attribute> conditions) {
    SmallVector<Attribute> all;
    if (auto when = module->getAttrOfType<ArrayAttr>(kWhenAttr))
      llvm::append_range(all, when);
    llvm::append_range(all, conditions);
    if (!all.empty())
      module->setAttr(kWhenAttr, ArrayAttr::get(module.getContext(), all));
  }

  LogicalResult selectForGradient(ModuleOp module, NestsAttr nests) {
    if (splits())
      return module.emitError()
             << "schedule option '" << (parts >= 0 ? "parts" : "order=split_kv")
             << "' is of forwards; gradients have the orders m_outer and n_outer";
    int64_t columns = findColumns(module);
    bool adds = addsSums(module);
    ArrayRef<Schedule> rows = adds ? ArrayRef(kAddedSchedules) : ArrayRef(kGradientSchedules);
    bool isBusy = keepsFmaUnitsBusy(module);
    MaskForm mask = findMaskForm(module);
    const Schedule *row = llvm::find_if(rows, [&](const Schedule &row) {
      return columns <= row.columns && row.isFor(mask) &&
             !(isBusy && row.columns <= 64 && row.storesFirst);
    });
    if (row == rows.end())
      return refuseColumns(module, columns);
    bool isTogether = nests.getSums() == Sums::Together && adds;
    bool loads = isTogether && loadTiles && row->addsSums && readsTiles(module);
    FailureOr<ScheduleAttr> schedule = withOptions(module, *row, loads);
    if (failed(schedule))
      return failure();
    set(module, *schedule);
    SmallVector<Attribute> conditions;
    if (isTogether && deterministic && order == "auto") {
      std::optional<StreamLength> length = findStreamLength(module, /*ofGradient=*/true);
      if (length && !length->number)
        conditions.push_back(SizeConditionAttr::get(&getContext(), length->argument, length->dim,
                                                    SizeRelation::Above, kMostRowsApart));
      conditions.push_back(hopper::ResidentConditionAttr::get(&getContext(), ctas));
    }
    if (loads)
      conditions.push_back(hopper::ReachIfAnyConditionAttr::get(&getContext()));
    addConditions(module, conditions);
    return success();
  }

  /// Whether maxima are fixed: where outputs are wide, rescaling that is delayed does as well,
  /// and where scores grow with the column's number, the first tile says nothing.
  bool fixesMaxima(ModuleOp module, int64_t columns) {
    constexpr int64_t kMostColumns = 128;
    return isOn(fixMaxima, columns <= kMostColumns && rescaleThreshold < 0 && cluster == 1 &&
                               !module->hasAttr(hopper::kRunningMaximaAttr) &&
                               !numbersColumns(module));
  }

  /// Few rows: bytes count, and the keys of each row are divided; unless that was asked for, they
  /// are whole where rows are enough for all CTAs.
  LogicalResult selectForFewRows(ModuleOp module, int64_t columns,
                                 SmallVectorImpl<Choice> &choices) {
    const Schedule *row =
        llvm::find_if(kSplitSchedules, [&](const Schedule &row) { return columns <= row.columns; });
    if (row == std::end(kSplitSchedules))
      return refuseColumns(module, columns);
    Attribute isDivided = splits() ? Attribute() : DividedConditionAttr::get(&getContext());
    auto add = [&](Schedule row, Attribute condition) -> LogicalResult {
      FailureOr<ScheduleAttr> schedule = withOptions(module, row);
      if (succeeded(schedule))
        choices.push_back({*schedule, condition});
      return schedule;
    };
    if (failed(add(*row, isDivided)))
      return failure();
    if (splits())
      return success();
    Schedule whole = *row;
    whole.parts = 1;
    return add(whole, {});
  }

  LogicalResult select(ModuleOp module) {
    SmallVector<Choice> choices;
    int64_t columns = findColumns(module);
    if (splits() || (order == "auto" && parts < 0 && cluster == 1 && hasFewRows(module))) {
      if (failed(selectForFewRows(module, columns, choices)))
        return failure();
      finish(module, choices);
      return success();
    }
    // What a score reads by row and column is copied by TMA where that reaches it: which depends
    // on strides that are known at run time only.
    const Schedule *row = llvm::find_if(
        kCopiedSchedules, [&](const Schedule &row) { return columns <= row.columns; });
    bool loads = loadTiles && row != std::end(kCopiedSchedules) && readsTiles(module);
    if (loads) {
      Schedule loading = *row;
      if (fixesMaxima(module, columns))
        loading.maxima = Schedule::Fixed;
      FailureOr<ScheduleAttr> schedule = withOptions(module, loading, /*loadsTiles=*/true);
      if (failed(schedule))
        return failure();
      choices.push_back({*schedule, hopper::ReachConditionAttr::get(&getContext())});
    }
    // Two kernels less to compile, for what is rarely needed.
    if (failed(selectByLength(module, columns, /*mayFix=*/!loads, choices)))
      return failure();
    finish(module, choices);
    return success();
  }

  void finish(ModuleOp module, ArrayRef<Choice> choices) {
    if (choices.size() == 1)
      set(module, choices.front().schedule);
    else
      createVersions(module, choices);
  }

  /// The schedule that fits; two where the length of the stream, which decides, is known at run
  /// time only.
  LogicalResult selectByLength(ModuleOp module, int64_t columns, bool mayFix,
                               SmallVectorImpl<Choice> &choices) {
    bool heavy = needsRegisters(module), isPlain = hasPlainScores(module);
    MaskForm mask = findMaskForm(module);
    std::optional<StreamLength> length = findStreamLength(module, /*ofGradient=*/false);
    bool fixes = mayFix && fixesMaxima(module, columns);
    auto find = [&](bool isShort) {
      return llvm::find_if(kSchedules, [&](const Schedule &row) {
        return columns <= row.columns && !(heavy && row.isTight) && (isPlain || row.pipelines) &&
               row.isFor(mask) && (isShort || row.length == 0) &&
               row.maxima != (fixes ? Schedule::Running : Schedule::Fixed);
      });
    };
    const Schedule *many = find(/*isShort=*/false), *few = find(/*isShort=*/true);
    if (many == std::end(kSchedules))
      return refuseColumns(module, columns);
    auto add = [&](Schedule row, Attribute condition) -> LogicalResult {
      row.rescaleThreshold = columns <= 64 && !isPlain ? 0 : row.rescaleThreshold;
      row.maxima = fixes ? Schedule::Fixed : Schedule::Running;
      if (blockM > 0 || blockN > 0) { // other tiles, which may need all registers
        row.occupancy = 1;
        row.pipelines = true;
      }
      FailureOr<ScheduleAttr> schedule = withOptions(module, row);
      if (succeeded(schedule))
        choices.push_back({*schedule, condition});
      return schedule;
    };
    if (few == many || few->columns != many->columns || !length || blockM > 0 || blockN > 0)
      return add(*many, {});
    if (length->number)
      return add(*length->number <= few->length ? *few : *many, {});
    auto isShort = SizeConditionAttr::get(&getContext(), length->argument, length->dim,
                                          SizeRelation::AtMost, few->length);
    return failure(failed(add(*few, isShort)) || failed(add(*many, {})));
  }

  /// Gives each function of the module a version for each choice.
  void createVersions(ModuleOp module, ArrayRef<Choice> choices) {
    for (auto function : llvm::make_early_inc_range(module.getOps<func::FuncOp>())) {
      OpBuilder b(function);
      Location loc = function.getLoc();
      auto versions = VersionsOp::create(b, loc, function.getName(), choices.size());
      for (auto [region, choice] : llvm::zip_equal(versions.getVersions(), choices)) {
        OpBuilder inner = OpBuilder::atBlockBegin(&region.emplaceBlock());
        auto version = ModuleOp::create(inner, loc);
        version.push_back(function.clone());
        if (choice.condition)
          addConditions(version, choice.condition);
        set(version, choice.schedule);
      }
      function.erase();
    }
  }
};
} // namespace
