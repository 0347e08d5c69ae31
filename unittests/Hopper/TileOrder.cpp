// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// See TileOrder.h.

#include "TileOrder.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Pipelines/Passes.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "gtest/gtest.h"
#include <set>

using namespace mlir;
using namespace attn;

namespace {

/// What stands in a log in front of numbers: a role of a CTA starts, a tile, a number of a loop
/// that adds, the sizes of the space of tiles.
enum Mark : int64_t { kRole = std::numeric_limits<int64_t>::min(), kTile, kInner, kSizes, kEnd };
/// On a mark and its launch: the number of the launch.
constexpr llvm::StringLiteral kMarkAttr = "test.mark";
template <typename Op> SmallVector<Op> collect(Operation *root) {
  SmallVector<Op> found;
  root->walk([&](Op op) { found.push_back(op); });
  return found;
}

constexpr unsigned kLog = 0, kCount = 1; // arguments

/// Copies functions in front of the passes that order tiles.
struct Catcher : PassInstrumentation {
  Catcher(std::vector<Kernel> &kernels) : kernels(kernels) {}

  void runBeforePass(Pass *pass, Operation *op) override {
    auto function = dyn_cast<func::FuncOp>(op);
    if (!function)
      return;
    Kernel::Additions additions = Kernel::None;
    if (pass->getArgument() == "hopper-order-additions") {
      std::string text;
      llvm::raw_string_ostream stream(text);
      pass->printAsTextualPipeline(stream);
      additions = StringRef(text).contains("semaphore=false") ? Kernel::Started : Kernel::Dealt;
      ordered.insert(op);
    } else if (pass->getArgument() != "hopper-schedule-tiles" || ordered.erase(op)) {
      return;
    }
    kernels.emplace_back(OwningOpRef<func::FuncOp>(function.clone()), additions);
  }

  std::vector<Kernel> &kernels;
  std::set<Operation *> ordered;
};

/// Writes marks into a function: where a role knows its tile, and the numbers of loops that
/// add.
class Marker {
public:
  explicit Marker(func::FuncOp function) : function(function), b(function) {
    auto log = MemRefType::get({ShapedType::kDynamic}, b.getIndexType());
    auto count = MemRefType::get({1}, b.getIndexType());
    (void)function.insertArgument(kLog, log, {}, function.getLoc());
    (void)function.insertArgument(kCount, count, {}, function.getLoc());
  }

  void mark(gpu::LaunchOp launch, hopper::RolesOp roles) {
    number = b.getI64IntegerAttr(launches++);
    launch->setAttr(kMarkAttr, number);
    Value unit = launch.getClusterIds() ? launch.getClusterIds()->x : launch.getBlockIds().x;
    bool hasSizes = false;
    for (Region &role : roles.getBodies()) {
      affine::AffineDelinearizeIndexOp position;
      role.walk([&](Operation *op) {
        auto found = dyn_cast<affine::AffineDelinearizeIndexOp>(op);
        if (found && found.getLinearIndex() == unit)
          position = found;
        auto loop = dyn_cast<scf::ForOp>(op);
        if (loop && loop->hasAttr(attn::hopper::kAddingAttr)) {
          b.setInsertionPointToStart(loop.getBody());
          emit(kInner, loop.getInductionVar());
        }
      });
      b.setInsertionPointToStart(&role.front());
      if (position)
        b.setInsertionPointAfter(position);
      emit(kTile, position ? ValueRange(position.getResults()) : ValueRange(unit));
      if (std::exchange(hasSizes, true))
        continue;
      b.setInsertionPoint(launch);
      SmallVector<Value> sizes;
      if (position)
        for (OpFoldResult size : position.getPaddedBasis())
          sizes.push_back(getValueOrCreateConstantIndexOp(b, launch.getLoc(), size));
      else
        sizes.push_back(launch.getGridSizeX());
      emit(kSizes, sizes);
    }
  }

  void emit(Mark mark, ValueRange values) {
    Location loc = function.getLoc();
    Value zero = arith::ConstantIndexOp::create(b, loc, 0);
    Value kind = arith::ConstantIndexOp::create(b, loc, mark);
    SmallVector<Value> all = {kind};
    llvm::append_range(all, values);
    for (Value value : all)
      memref::StoreOp::create(b, loc, value, function.getArgument(kLog), zero)
          ->setAttr(kMarkAttr, number);
  }

private:
  func::FuncOp function;
  OpBuilder b;
  int64_t launches = 0;
  Attribute number;
};

/// Makes of a function whose launches are marked one that runs the marks of one launch, CTA by
/// CTA and role by role, and nothing else.
class Extractor {
public:
  Extractor(func::FuncOp function, gpu::LaunchOp launch)
      : function(function), launch(launch), b(function), number(launch->getAttr(kMarkAttr)) {}

  void run() {
    hopper::RolesOp roles = *launch.getBody().front().getOps<hopper::RolesOp>().begin();
    reduceAll(function.front(), launch);
    reduceAll(launch.getBody().front(), roles);
    for (Region &role : roles.getBodies())
      reduceAll(role.front());
    serialize(roles);
    for (memref::StoreOp mark : collect<memref::StoreOp>(function))
      append(mark);
  }

private:
  bool isMark(Operation *op) const { return op->getAttr(kMarkAttr) == number; }
  bool hasMarks(Operation &op) const {
    return op
        .walk([&](Operation *nested) {
          return isMark(nested) ? WalkResult::interrupt() : WalkResult::advance();
        })
        .wasInterrupted();
  }

  static bool isArithmetic(Operation &op) {
    auto isScalar = [](Type type) { return type.isIntOrIndex(); };
    return op.getNumRegions() == 0 && isMemoryEffectFree(&op) &&
           llvm::all_of(op.getOperandTypes(), isScalar) &&
           llvm::all_of(op.getResultTypes(), isScalar);
  }

  bool isSize(Operation &op) {
    auto dim = dyn_cast<memref::DimOp>(op);
    return dim && isa<BlockArgument>(dim.getSource()) && dim.getConstantIndex();
  }

  /// Erases what is neither a mark nor arithmetic.
  void reduceAll(Block &block, Operation *but = nullptr) {
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (&op != but && !op.hasTrait<OpTrait::IsTerminator>())
        reduce(op);
  }

  void reduce(Operation &op) {
    if (isMark(&op) || isArithmetic(op) || isSize(op))
      return;
    if (isa<scf::ForOp, scf::IfOp>(op) && hasMarks(op)) {
      for (Region &region : op.getRegions())
        reduceAll(region.front());
      if (auto loop = dyn_cast<scf::ForOp>(op))
        dropTiles(loop);
      return;
    }
    b.setInsertionPoint(&op);
    for (Value result : op.getResults())
      if (!result.use_empty())
        result.replaceAllUsesWith(ub::PoisonOp::create(b, op.getLoc(), result.getType()));
    op.erase();
  }

  /// A loop carries numbers only. (What else there was nobody reads any more.)
  void dropTiles(scf::ForOp loop) {
    SmallVector<Value> inits, yielded;
    SmallVector<unsigned> kept;
    for (auto [n, init] : llvm::enumerate(loop.getInitArgs()))
      if (init.getType().isIntOrIndex()) {
        kept.push_back(n);
        inits.push_back(init);
        yielded.push_back(loop.getYieldedValues()[n]);
      }
    if (inits.size() == loop.getInitArgs().size())
      return;
    b.setInsertionPoint(loop);
    auto other = scf::ForOp::create(b, loop.getLoc(), loop.getLowerBound(), loop.getUpperBound(),
                                    loop.getStep(), inits);
    Block *from = loop.getBody(), *to = other.getBody();
    to->getOperations().clear();
    loop.getInductionVar().replaceAllUsesWith(other.getInductionVar());
    for (auto [n, old] : llvm::enumerate(kept)) {
      loop.getRegionIterArg(old).replaceAllUsesWith(other.getRegionIterArg(n));
      loop.getResult(old).replaceAllUsesWith(other.getResult(n));
    }
    for (Value dropped : loop.getResults()) // which the loop around it yields
      if (!dropped.use_empty())
        dropped.replaceAllUsesWith(ub::PoisonOp::create(b, loop.getLoc(), dropped.getType()));
    from->getTerminator()->setOperands(yielded);
    to->getOperations().splice(to->end(), from->getOperations());
    loop.erase();
  }

  /// The launch as a loop.
  void serialize(hopper::RolesOp roles) {
    b.setInsertionPoint(launch);
    Location loc = launch.getLoc();
    auto number = [&](int64_t value) -> Value {
      return arith::ConstantIndexOp::create(b, loc, value);
    };
    Value zero = number(0), one = number(1), units = launch.getGridSizeX();
    Value size = launch.getClusterSizeX();
    if (size)
      units = arith::DivUIOp::create(b, loc, units, size);
    auto loop = scf::ForOp::create(b, loc, zero, units, one);
    Value unit = loop.getInductionVar(), block = unit;
    b.setInsertionPointToStart(loop.getBody());
    if (size) {
      launch.getClusterIds()->x.replaceAllUsesWith(unit);
      block = arith::MulIOp::create(b, loc, unit, size);
    }
    launch.getBlockIds().x.replaceAllUsesWith(block);
    launch.getGridSize().x.replaceAllUsesWith(launch.getGridSizeX());
    for (BlockArgument argument : launch.getBody().getArguments())
      argument.replaceAllUsesWith(zero);
    Operation *end = loop.getBody()->getTerminator();
    auto move = [&](Block &block) {
      for (Operation &op : llvm::make_early_inc_range(block.without_terminator()))
        if (&op != roles)
          op.moveBefore(end);
    };
    move(launch.getBody().front());
    for (Region &role : roles.getBodies()) {
      for (BlockArgument argument : role.getArguments())
        argument.replaceAllUsesWith(zero);
      b.setInsertionPoint(end);
      markRole();
      move(role.front());
    }
    launch.erase();
  }

  void markRole() {
    Value zero = arith::ConstantIndexOp::create(b, function.getLoc(), 0);
    Value kind = arith::ConstantIndexOp::create(b, function.getLoc(), kRole);
    memref::StoreOp::create(b, function.getLoc(), kind, function.getArgument(kLog), zero)
        ->setAttr(kMarkAttr, number);
  }

  /// A mark goes behind those before it.
  void append(memref::StoreOp mark) {
    b.setInsertionPoint(mark);
    Location loc = mark.getLoc();
    Value zero = arith::ConstantIndexOp::create(b, loc, 0), count = function.getArgument(kCount);
    Value place = memref::LoadOp::create(b, loc, count, zero);
    Value next = arith::AddIOp::create(b, loc, place, arith::ConstantIndexOp::create(b, loc, 1));
    memref::StoreOp::create(b, loc, next, count, zero);
    mark.getIndicesMutable().assign(place);
  }

  func::FuncOp function;
  gpu::LaunchOp launch;
  OpBuilder b;
  Attribute number;
};

} // namespace

std::vector<Kernel> Kernel::make(MLIRContext &context, StringRef text, StringRef options,
                                 bool ofGradient) {
  std::vector<Kernel> kernels;
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  PassManager pm(&context);
  std::string pipeline = "attn-lower-to-hopper{" + options.str() + "}";
  if (ofGradient)
    pipeline = "attn-differentiate{function=main saved-results results=0}," + pipeline;
  if (!module || failed(parsePassPipeline(pipeline, pm)))
    return {};
  pm.addInstrumentation(std::make_unique<Catcher>(kernels));
  if (failed(pm.run(*module)))
    return {};
  for (Kernel &kernel : kernels) {
    Marker marker(*kernel.function);
    for (auto launch : collect<gpu::LaunchOp>(*kernel.function))
      for (auto roles : launch.getBody().front().getOps<hopper::RolesOp>())
        if (roles.getBodies().size() > 1)
          marker.mark(launch, roles);
  }
  return kernels;
}

/// What the arithmetic of memref.dim is about becomes an argument; memory goes.
static std::vector<std::pair<unsigned, int64_t>> takeSizes(func::FuncOp function) {
  std::vector<std::pair<unsigned, int64_t>> sizes;
  unsigned first = function.getNumArguments();
  Type index = IndexType::get(function.getContext());
  for (auto dim : collect<memref::DimOp>(function)) {
    std::pair<unsigned, int64_t> size = {cast<BlockArgument>(dim.getSource()).getArgNumber(),
                                         *dim.getConstantIndex()};
    auto known = llvm::find(sizes, size);
    unsigned place = first + unsigned(known - sizes.begin());
    if (known == sizes.end()) {
      sizes.push_back(size);
      (void)function.insertArgument(place, index, {}, function.getLoc());
    }
    dim.replaceAllUsesWith(function.getArgument(place));
    dim.erase();
  }
  llvm::BitVector unused(function.getNumArguments());
  unused.set(kCount + 1, first);
  (void)function.eraseArguments(unused);
  return sizes;
}

/// Those of the kernel, before anything is simplified.
std::vector<TileOrder> TileOrder::extract(const Kernel &kernel, int64_t ctas) {
  func::FuncOp original = *kernel.function;
  MLIRContext *context = original.getContext();
  OwningOpRef<ModuleOp> module = ModuleOp::create(original.getLoc());
  module->push_back(original.clone());
  auto getFunction = [](ModuleOp module) { return *module.getOps<func::FuncOp>().begin(); };
  std::string number = std::to_string(ctas), pipeline;
  if (kernel.additions != Kernel::None)
    pipeline = "hopper-order-additions{ctas=" + number +
               (kernel.additions == Kernel::Started ? " semaphore=false}," : "},");
  PassManager pm(context);
  if (failed(parsePassPipeline(
          "func.func(" + pipeline + "hopper-schedule-tiles{ctas=" + number + "})", pm)) ||
      failed(pm.run(*module)))
    return {};
  std::vector<TileOrder> orders;
  unsigned launches = collect<gpu::LaunchOp>(*module).size();
  for (unsigned n = 0; n < launches; ++n) {
    OwningOpRef<ModuleOp> copy = module->clone();
    func::FuncOp function = getFunction(*copy);
    gpu::LaunchOp launch = collect<gpu::LaunchOp>(function)[n];
    if (!launch->hasAttr(kMarkAttr))
      continue;
    TileOrder order;
    order.roles = collect<hopper::RolesOp>(launch).front().getBodies().size();
    order.mayPad = kernel.additions == Kernel::Dealt;
    for (Type type : function.getArgumentTypes())
      order.ranks.push_back(isa<MemRefType>(type) ? cast<MemRefType>(type).getRank() : 0);
    Extractor(function, launch).run();
    order.dimensions = takeSizes(function);
    function->remove();
    order.function = function;
    orders.push_back(std::move(order));
  }
  return orders;
}

/// Simplifies the function and makes it one that can run; false where it cannot.
bool TileOrder::finish() {
  MLIRContext *context = function->getContext();
  OwningOpRef<ModuleOp> module = ModuleOp::create(function->getLoc());
  func::FuncOp inside = function.release();
  module->push_back(inside);
  PassManager cleanUp(context);
  for (int round = 0; round < 2; ++round) {
    cleanUp.addPass(createCSEPass());
    cleanUp.addPass(createCanonicalizerPass());
  }
  if (failed(cleanUp.run(*module)))
    return false;
  // What a table bounds is no arithmetic.
  for (auto loop : collect<scf::ForOp>(inside))
    if (loop.getUpperBound().getDefiningOp<ub::PoisonOp>() && loop->use_empty())
      loop.erase();
  if (failed(cleanUp.run(*module)))
    return false;
  llvm::raw_string_ostream(text) << inside;
  inside->remove();
  function = inside;
  FailureOr<Interpreter> made = Interpreter::create(inside);
  if (failed(made)) {
    ADD_FAILURE() << "no arithmetic alone:\n" << text;
    return false;
  }
  interpreter = std::make_unique<Interpreter>(std::move(*made));
  return true;
}

std::vector<TileOrder> TileOrder::make(const Kernel &kernel, int64_t ctas) {
  std::vector<TileOrder> orders = extract(kernel, ctas);
  for (TileOrder &order : orders)
    if (!order.finish())
      return {};
  return orders;
}

/// The ops that marks follow from, in order.
static SmallVector<Operation *> findArithmetic(func::FuncOp function) {
  SetVector<Operation *> slice;
  BackwardSliceOptions options;
  options.omitBlockArguments = false;
  for (auto mark : collect<memref::StoreOp>(function))
    for (Value operand : mark->getOperands())
      (void)getBackwardSlice(operand, &slice, options);
  return slice.takeVector();
}

/// Whether an op is right with a constant that is one off, too: the number of CTAs is anybody's
/// choice, a divisor of 0 becomes some other number, and a quotient by multiplication has bits to
/// spare at these sizes. Bounds of loops inside of a tile are the mask's, not the order's.
static bool isIndifferent(Operation *op) {
  auto isLog = [](Value value) {
    Operation *from = value.getDefiningOp();
    while (isa_and_nonnull<arith::SubIOp, arith::ExtUIOp>(from))
      from = from->getOperand(isa<arith::SubIOp>(from) ? 1 : 0).getDefiningOp();
    return isa_and_nonnull<math::CountLeadingZerosOp>(from);
  };
  bool findsLog = llvm::any_of(op->getUsers(), llvm::IsaPred<math::CountLeadingZerosOp>);
  return isa<arith::MaxUIOp, arith::MaxSIOp, arith::MinUIOp, affine::AffineMinOp,
             affine::AffineMaxOp, arith::ShLIOp>(op) ||
         findsLog || (isa<arith::SubIOp>(op) && isLog(op->getResult(0)));
}

std::vector<std::vector<TileOrder>> TileOrder::makeMutants(const Kernel &kernel, int64_t ctas,
                                                           size_t every) {
  std::vector<std::vector<TileOrder>> all;
  for (TileOrder &order : extract(kernel, ctas)) {
    std::vector<TileOrder> &mutants = all.emplace_back();
    func::FuncOp original = *order.function;
    auto findUses = [](func::FuncOp function) {
      SmallVector<OpOperand *> uses;
      for (Operation *op : findArithmetic(function))
        if (!isa<memref::LoadOp, memref::StoreOp>(op) && !isIndifferent(op))
          for (OpOperand &operand : op->getOpOperands())
            if (auto constant = operand.get().getDefiningOp<arith::ConstantOp>();
                constant && !constant.getType().isInteger(1))
              uses.push_back(&operand);
      return uses;
    };
    size_t count = findUses(original).size();
    for (size_t n = 0; n < count; n += every) {
      TileOrder mutant;
      mutant.function = original.clone();
      mutant.dimensions = order.dimensions;
      mutant.ranks = order.ranks;
      mutant.roles = order.roles;
      mutant.mayPad = order.mayPad;
      OpOperand *use = findUses(*mutant.function)[n];
      OpBuilder b(use->getOwner());
      llvm::raw_string_ostream(mutant.mistake) << *use->getOwner();
      auto constant = use->get().getDefiningOp<arith::ConstantOp>();
      int64_t value = cast<IntegerAttr>(constant.getValue()).getInt() + (n / every % 2 ? -1 : 1);
      use->set(arith::ConstantOp::create(b, constant.getLoc(),
                                         b.getIntegerAttr(constant.getType(), value)));
      mutant.mistake += " with " + std::to_string(value);
      if (mutant.finish())
        mutants.push_back(std::move(mutant));
    }
  }
  return all;
}

static HostTensor makeTensor(ArrayRef<int64_t> shape) {
  return llvm::cantFail(HostTensor::create(ElementKind::I64, shape));
}

std::string TileOrder::check(const Sizes &sizes) {
  constexpr int64_t kMostMarks = 1 << 18;
  static const HostTensor log = makeTensor({kMostMarks}), count = makeTensor({1});
  auto *written = reinterpret_cast<int64_t *>(count.getBase()) + count.getOffset();
  *written = 0;
  static std::vector<HostTensor> numbers;
  std::vector<const HostTensor *> arguments = {&log, &count};
  while (numbers.size() < 32)
    numbers.push_back(makeTensor({}));
  for (auto [n, place] : llvm::enumerate(dimensions)) {
    auto [argument, dimension] = place;
    unsigned tensor = argument - kCount - 1; // Q, K, V, and what else there is
    bool isOfKeys = tensor == 1 || tensor == 2;
    int64_t ofHeads = isOfKeys ? sizes.keyHeads : sizes.keyHeads * sizes.group;
    int64_t ofRows = isOfKeys ? sizes.keys : sizes.queries;
    int64_t value = dimension == 0                          ? sizes.batch
                    : dimension == 1 && ranks[argument] > 2 ? ofHeads
                                                            : ofRows;
    HostTensor &number = numbers.at(n);
    storeInteger(ElementKind::I64, number.getBase() + 8 * number.getOffset(), value);
    arguments.push_back(&number);
  }
  std::string said;
  ScopedDiagnosticHandler quiet(function->getContext(), [&](Diagnostic &diagnostic) {
    said = diagnostic.str();
    return success();
  });
  if (failed(interpreter->run(arguments, InterpreterOptions())))
    return "the interpreter: " + said;
  auto *start = reinterpret_cast<const int64_t *>(log.getBase()) + log.getOffset();
  return judge(ArrayRef(start, size_t(*written)));
}

namespace {
/// What one role of one CTA did.
struct Visits {
  std::vector<std::vector<int64_t>> tiles; // coordinates
  std::vector<std::vector<int64_t>> inner; // of each tile
};
} // namespace

std::string TileOrder::judge(ArrayRef<int64_t> log) const {
  auto isMark = [](int64_t x) { return x < kEnd; };
  auto takeNumbers = [&] {
    ArrayRef<int64_t> numbers = log.take_until(isMark);
    log = log.drop_front(numbers.size());
    return std::vector<int64_t>(numbers);
  };
  std::vector<int64_t> sizes;
  std::vector<Visits> all;
  while (!log.empty()) {
    int64_t mark = log.front();
    log = log.drop_front();
    std::vector<int64_t> numbers = takeNumbers();
    if (mark == kSizes)
      sizes = numbers;
    else if (mark == kRole)
      all.emplace_back();
    else if (mark == kTile)
      all.back().tiles.push_back(numbers), all.back().inner.emplace_back();
    else if (all.back().inner.empty())
      return "a loop that adds outside of tiles";
    else
      all.back().inner.back().push_back(numbers.front());
  }
  // Where starts grow, a line of an odd number has one tile more, in which there is nothing.
  if (mayPad && llvm::any_of(all, [&](const Visits &visits) {
        return llvm::any_of(visits.tiles, [&](auto &tile) { return tile.back() == sizes.back(); });
      }))
    sizes.back() += sizes.back() % 2;
  int64_t total = 1;
  for (int64_t size : sizes)
    total *= size;
  if (all.size() % roles)
    return "a role of a CTA is missing";
  std::set<std::vector<int64_t>> seen;
  for (size_t first = 0; first < all.size(); first += roles) {
    auto where = [&](size_t role) {
      return "CTA " + std::to_string(first / roles) + ", role " + std::to_string(role) + ": ";
    };
    for (size_t role = 0; role < roles; ++role) {
      const Visits &visits = all[first + role];
      if (visits.tiles.empty())
        return where(role) + "no tile";
      if (visits.tiles != all[first].tiles)
        return where(role) + "other tiles than role 0";
      if (visits.inner != all[first].inner && !visits.inner.front().empty())
        return where(role) + "other iterations than role 0";
    }
    for (const std::vector<int64_t> &tile : all[first].tiles) {
      if (tile.size() != sizes.size())
        return where(0) + "other coordinates than the tiles have";
      for (auto [coordinate, size] : llvm::zip_equal(tile, sizes))
        if (coordinate < 0 || coordinate >= size)
          return where(0) + "no tile has coordinate " + std::to_string(coordinate);
      if (!seen.insert(tile).second)
        return where(0) + "a tile twice";
    }
  }
  if (int64_t(seen.size()) != total)
    return std::to_string(seen.size()) + " of " + std::to_string(total) + " tiles";
  return "";
}
