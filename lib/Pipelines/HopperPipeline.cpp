// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From attention to the protocol form of the hopper dialect. The schedule is
// chosen from a table by what the module multiplies; options override it.

#include "HopperForms.h"
#include "HopperSchedules.h"
#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Attn/Transforms/Masks.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Pipelines/Passes.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Transforms/Nest/Passes.h"
#include "attn/Transforms/Tiles/Passes.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include <limits>

namespace attn {
#define GEN_PASS_DEF_ATTNLOWERTOHOPPER
#include "attn/Pipelines/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// Where outputs stand in shared memory: in their own, in that of an input, or
/// a slab at a time.
enum class Output { Own, Reuse, Pieces };
constexpr int64_t kPieceColumns = 64;

/// One row of the table: what a module whose widest tile has at most `columns`
/// columns gets. Registers are what limits the tiles: a warpgroup holds
/// 64 x keys scores in f32, the same in 16 bits, and 64 x columns of output.
struct Schedule {
  int64_t columns;
  enum Masks { Any, Masked, Unmasked, Banded } masks; // banded ones are masked, too
  /// For streams of at most as many elements, which may be known only when the
  /// kernel is launched; 0 is no limit.
  int64_t length;
  int64_t rows, keys;
  Output output;
  bool overlap, pingPong;
  bool trims = false;
  /// No register to spare for what a score or a mask loads or computes with
  /// many steps.
  bool isTight = false;
  /// A fold also adds sums to memory: registers are short, and all warpgroups meet in
  /// each iteration. What all tiles compute alike from rows of memory is computed once and
  /// copied; the first product of an iteration runs beside the end of the one before.
  bool addsSums = false;
  /// Nothing fills these sums, and tiles of keys start at different queries. (At d 64, with
  /// arithmetic that keeps the FMA units busy, both together are 3 % slower.)
  bool storesFirst = true;
  /// The fence for what is added is the adder's, not the consumers'. (At d 128, causal, 3 %
  /// slower.)
  bool adderFences = false;
  int64_t stages = 2;
  /// Of so many pairs of a tile's columns one has its exponentials by polynomials, where
  /// the FMA units have little else to do; 0: none.
  int64_t polynomials = 0;
  /// How much a running maximum grows before sums are corrected, in powers of two; 0: they
  /// always are. It pays where outputs are wide, or where nothing else keeps the FMA units
  /// busy and registers are short.
  double growth = 0;
  /// Where the maximum of a row's first tile may stand in for the running one
  /// (hopper-fix-maxima): whether it does in this row, or must not.
  enum Maxima { Either, Fixed, Running } maxima = Either;
  /// CTAs that share a multiprocessor, and its registers: one computes while another waits.
  int64_t occupancy = 1;
  /// The last product of an iteration runs beside the next one. Without it, registers are too
  /// few for that, and for what a score computes with many steps.
  bool pipelines = true;

  bool isFor(MaskForm mask) const {
    return masks != (mask.isMasked ? Unmasked : Masked) && (masks != Banded || mask.isBanded);
  }
};
/// A key whose weight is not 2^0 brings the error of its rounding into the output: where it has
/// most of a row's weight that should be small. Normal scores grow by more once in 10^7.
constexpr double kGrowth = 4;
constexpr Schedule withGrowth(Schedule row) {
  row.growth = kGrowth;
  return row;
}
constexpr Schedule withMaxima(Schedule row, Schedule::Maxima maxima) {
  row.maxima = maxima;
  return row;
}
constexpr Schedule withOccupancy(Schedule row, bool pipelines) {
  row.occupancy = 2;
  row.pipelines = pipelines;
  return row;
}
// The first row that fits is taken. Loops are trimmed (hopper-trim-loops) where
// that leaves out whole tiles: where a warpgroup's rows are no multiple of the
// tile's keys. Not with overlap: ptxas then serialises the products (C7514).
constexpr Schedule kSchedules[] = {
    // Where a band bounds the tiles of keys, all lengths are short ones.
    withOccupancy({64, Schedule::Banded, 0, 64, 128, Output::Own, false, false},
                  /*pipelines=*/true),
    // 192 rows have 1.7 times the scores of a causal mask at length 512, 128
    // have 1.25.
    withOccupancy({64, Schedule::Masked, 2048, 128, 64, Output::Own, false, false,
                   /*trims=*/false, /*isTight=*/true},
                  /*pipelines=*/false),
    {64, Schedule::Masked, 1024, 128, 128, Output::Own, false, false,
     /*trims=*/false, /*isTight=*/true},
    withGrowth({64, Schedule::Masked, 0, 192, 128, Output::Own, false, true,
                /*trims=*/true, /*isTight=*/true}),
    {64, Schedule::Any, 0, 192, 128, Output::Own, true, true, /*trims=*/false,
     /*isTight=*/true},
    withOccupancy({64, Schedule::Masked, 0, 128, 64, Output::Own, false, false},
                  /*pipelines=*/false),
    withMaxima({128, Schedule::Unmasked, 4096, 128, 128, Output::Own, true, true,
                /*trims=*/false, /*isTight=*/true},
               Schedule::Running),
    withMaxima({128, Schedule::Unmasked, 0, 128, 176, Output::Reuse, false, true,
                /*trims=*/false, /*isTight=*/true},
               Schedule::Running),
    // Half of the code, and as fast.
    withMaxima({128, Schedule::Masked, 0, 128, 128, Output::Own, false, true,
                /*trims=*/false, /*isTight=*/true},
               Schedule::Fixed),
    {128, Schedule::Any, 0, 128, 128, Output::Own, true, true,
     /*trims=*/false, /*isTight=*/true},
    {128, Schedule::Any, 0, 128, 128, Output::Own, false, true},
    withGrowth({192, Schedule::Any, 0, 128, 96, Output::Reuse, false, true}),
    // Pieces leave Q's memory for the next tile early, which pays where tiles
    // are short.
    withGrowth({256, Schedule::Masked, 2048, 128, 64, Output::Pieces, false, true,
                /*trims=*/true}),
    withGrowth({256, Schedule::Any, 1024, 128, 64, Output::Pieces, false, true}),
    withGrowth({256, Schedule::Any, 0, 128, 80, Output::Reuse, false, true,
                /*trims=*/true}),
};

// Where a score reads tiles by row and column, which are copied beside the keys
// (hopper-load-tiles) and need room. Registers, too: what is read is held with
// the scores.
constexpr Schedule kCopiedSchedules[] = {
    {64, Schedule::Any, 0, 128, 128, Output::Own, false, true},
    {128, Schedule::Any, 0, 128, 128, Output::Reuse, false, true},
    withGrowth({256, Schedule::Any, 0, 128, 64, Output::Reuse, false, true}),
};

// For functions with folds of three or more products (gradients), whose sizes
// of tiles are those of HopperSchedules.cpp: outputs, and tiles of other folds.
constexpr Schedule kGradientSchedules[] = {
    {128, Schedule::Any, 0, 128, 128, Output::Own, false, true},
    {192, Schedule::Any, 0, 128, 96, Output::Reuse, false, true},
    {256, Schedule::Any, 0, 128, 64, Output::Reuse, false, true},
};

// The same where such a fold also adds to memory. (Its warpgroups meet in each iteration
// and have no turns; those of others may.)
constexpr Schedule kAddedSchedules[] = {
    {64, Schedule::Any, 0, 128, 128, Output::Reuse, false, true, /*trims=*/false,
     /*isTight=*/false, /*addsSums=*/true, /*storesFirst=*/true, /*adderFences=*/true,
     /*stages=*/2, /*polynomials=*/3},
    {64, Schedule::Any, 0, 128, 128, Output::Reuse, false, true, /*trims=*/false,
     /*isTight=*/false, /*addsSums=*/true, /*storesFirst=*/false, /*adderFences=*/true,
     /*stages=*/2, /*polynomials=*/3},
    {128, Schedule::Unmasked, 0, 128, 128, Output::Reuse, false, true, /*trims=*/false,
     /*isTight=*/false, /*addsSums=*/true, /*storesFirst=*/true, /*adderFences=*/true},
    {128, Schedule::Any, 0, 128, 128, Output::Reuse, false, true, /*trims=*/false,
     /*isTight=*/false, /*addsSums=*/true},
};

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

/// Bodies of functions in two versions: that of `special` runs where the
/// condition that `createCondition` puts in front holds; null if it never does.
using CreateCondition = function_ref<Value(OpBuilder &, func::FuncOp, func::FuncOp special)>;
void mergeVersions(ModuleOp general, ModuleOp special, CreateCondition createCondition) {
  for (auto function : general.getOps<func::FuncOp>()) {
    auto other = special.lookupSymbol<func::FuncOp>(function.getName());
    auto find = [](gpu::LaunchOp) { return WalkResult::interrupt(); };
    if (!other || !function.walk(find).wasInterrupted())
      continue; // such as one that says how large the results are
    Block &body = function.front();
    OpBuilder b = OpBuilder::atBlockBegin(&body);
    Location loc = function.getLoc();
    Value condition = createCondition(b, function, other);
    if (!condition)
      continue;
    auto branch = scf::IfOp::create(b, loc, condition, /*withElseRegion=*/true);
    auto moveTo = [](Block *target, Block &from, Block::iterator first) {
      target->getOperations().splice(target->getTerminator()->getIterator(), from.getOperations(),
                                     first, from.getTerminator()->getIterator());
    };
    moveTo(branch.elseBlock(), body, std::next(branch->getIterator()));
    for (auto [argument, old] : llvm::zip_equal(function.getArguments(), other.getArguments()))
      old.replaceAllUsesWith(argument);
    moveTo(branch.thenBlock(), other.front(), other.front().begin());
  }
}

/// Whether the dimension is at most `most`.
Value createIsShort(OpBuilder &b, func::FuncOp function, const StreamLength &length, int64_t most) {
  Location loc = function.getLoc();
  Value size = memref::DimOp::create(b, loc, function.getArgument(length.argument), length.dim);
  Value limit = arith::ConstantIndexOp::create(b, loc, most);
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ule, size, limit);
}

/// The version of `few` runs where the dimension is at most `most`.
void mergeByLength(ModuleOp many, ModuleOp few, const StreamLength &length, int64_t most) {
  mergeVersions(many, few, [&](OpBuilder &b, func::FuncOp function, func::FuncOp) {
    return createIsShort(b, function, length, most);
  });
}

/// Arguments of a function that TMA copies.
llvm::SmallSetVector<unsigned, 8> findCopiedArguments(func::FuncOp function) {
  llvm::SmallSetVector<unsigned, 8> numbers;
  function.walk([&](hopper::TensorMapOp map) {
    Value root = memref::skipViewLikeOps(cast<MemrefValue>(map.getSource()));
    if (auto argument = dyn_cast<BlockArgument>(root))
      numbers.insert(argument.getArgNumber());
  });
  return numbers;
}

/// Whether TMA reaches what it copies in `copying` alone; null where that is nothing.
Value createReaches(OpBuilder &b, func::FuncOp function, func::FuncOp copying, func::FuncOp other) {
  auto always = findCopiedArguments(other);
  Value all;
  for (unsigned number : findCopiedArguments(copying)) {
    if (always.contains(number))
      continue;
    Value reaches =
        hopper::TmaReachesOp::create(b, function.getLoc(), function.getArgument(number));
    all = all ? arith::AndIOp::create(b, function.getLoc(), all, reaches) : reaches;
  }
  return all;
}

/// Whether a launch has more CTAs than `ctas` that wait for each other; null if none has.
Value createIsTooLarge(OpBuilder &b, func::FuncOp function, int64_t ctas) {
  Value grid;
  function.walk([&](gpu::LaunchOp launch) {
    if (launch->hasAttr(hopper::kCooperativeAttr))
      grid = launch.getGridSizeX();
  });
  if (!grid)
    return {};
  SetVector<Operation *> slice;
  BackwardSliceOptions options;
  options.inclusive = true;
  if (failed(getBackwardSlice(grid, &slice, options)))
    return {};
  IRMapping mapping;
  for (Operation *op : slice)
    b.clone(*op, mapping);
  Value most = arith::ConstantIndexOp::create(b, function.getLoc(), ctas);
  return arith::CmpIOp::create(b, function.getLoc(), arith::CmpIPredicate::ugt,
                               mapping.lookupOrDefault(grid), most);
}

void addCleanUp(OpPassManager &pm) {
  pm.addPass(createHopperMapPrograms());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

struct LowerToHopperPass : attn::impl::AttnLowerToHopperBase<LowerToHopperPass> {
  using Base::Base;

  void getDependentDialects(DialectRegistry &registry) const override {
    OpPassManager pm(ModuleOp::getOperationName());
    buildNestPipeline(pm, PipelineOptions());
    addLowering(pm, withMaxima(kAddedSchedules[0], Schedule::Fixed), /*copiesTiles=*/true);
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

  LogicalResult lowerWith(ModuleOp module, const Schedule &schedule, bool copiesTiles = false) {
    OpPassManager lowering(ModuleOp::getOperationName());
    addLowering(lowering, schedule, copiesTiles);
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
    return check("output", output, {"auto", "own", "reuse", "pieces"});
  }

  void addLowering(OpPassManager &pm, const Schedule &schedule, bool copiesTiles) const {
    PipelineOptions tiles;
    tiles.order = "rows";
    tiles.parallelSums = true;
    tiles.rowTile = rows > 0 ? rows : schedule.rows;
    tiles.rowMultiple = hopper::kWarpgroupRows;
    tiles.streamTile = keys > 0 ? keys : schedule.keys;
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
    if (double most = fixes ? 0 : growth >= 0 ? double(growth) : schedule.growth)
      nested.addPass(createAttnDelayCorrections(AttnDelayCorrectionsOptions{most}));
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
    if (fixes)
      nested.addPass(fixMaxima == "true" ? createHopperFixMaxima({/*fewTiles=*/0, /*fewInAll=*/0})
                                         : createHopperFixMaxima());
    nested.addPass(createAttnTestFactors());
    nested.addPass(createAttnSinkIntoBranches());
    nested.addPass(createAttnMergeBranches());
    nested.addPass(createHopperDistributeRows());
    addCleanUp(nested);
    nested.addPass(createHopperFormProducts());
    nested.addPass(createCSEPass()); // tiles that products have in common
    nested.addPass(createHopperReuseTiles());
    if (copiesTiles || schedule.addsSums)
      nested.addPass(createHopperLoadTiles(HopperLoadTilesOptions{copiesTiles}));
    nested.addPass(createHopperGuardReads());
    nested.addPass(createHopperOrderProducts());
    if (int64_t every = polynomials >= 0 ? int64_t(polynomials) : schedule.polynomials)
      nested.addPass(createHopperDivideExponentials(HopperDivideExponentialsOptions{every}));
    nested.addPass(createHopperScaleLargeMaxima());
    int64_t neighbours = occupancy > 0 ? int64_t(occupancy) : schedule.occupancy;
    bool isOrdered = schedule.addsSums && ordersSums;
    nested.addPass(createHopperSpecializeWarps(
        HopperSpecializeWarpsOptions{producerRegisters, neighbours, schedule.adderFences}));
    nested.addPass(createHopperDivideSums());
    nested.addPass(createHopperFormClusters(HopperFormClustersOptions{cluster}));
    if (schedule.addsSums)
      addCleanUp(nested); // places of whole tiles
    nested.addPass(createHopperDropRows());
    // Whose turn it is says who is the first one; where there are no turns, starts at different
    // places come first.
    if (isOrdered) {
      nested.addPass(
          createHopperStoreFirst(HopperStoreFirstOptions{/*looksAhead=*/false, /*leastBytes=*/0}));
      nested.addPass(createHopperOrderAdditions(HopperOrderAdditionsOptions{ctas}));
    } else if (schedule.addsSums && schedule.storesFirst) {
      nested.addPass(
          createHopperOrderAdditions(HopperOrderAdditionsOptions{ctas, /*turns=*/false}));
      nested.addPass(createHopperStoreFirst());
    }
    nested.addPass(createHopperBorrowOutputs());
    nested.addPass(createHopperScheduleTiles(HopperScheduleTilesOptions{ctas * neighbours}));
    addCleanUp(nested);
    bool pipelines = isOn(pipeline, schedule.pipelines);
    if (pipelines) {
      nested.addPass(createHopperPipelineProducts());
      nested.addPass(createAttnFoldInfinities());
      if (isOn(trim, schedule.trims))
        nested.addPass(createHopperTrimLoops());
      addCleanUp(nested);
    }
    if (schedule.addsSums && pipelines)
      nested.addPass(createHopperAdvanceProducts());
    if (isOn(overlap, schedule.overlap)) {
      nested.addPass(createHopperOverlapTiles());
      addCleanUp(nested);
    }
    Output staging = llvm::StringSwitch<Output>(output)
                         .Case("own", Output::Own)
                         .Case("reuse", Output::Reuse)
                         .Case("pieces", Output::Pieces)
                         .Default(schedule.output);
    nested.addPass(createHopperShareTiles());
    nested.addPass(createHopperStageOutputs(HopperStageOutputsOptions{
        staging == Output::Reuse, staging == Output::Pieces ? kPieceColumns : 0}));
    nested.addPass(createHopperStartProducts());
    if (isOn(pingPong, schedule.pingPong))
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
