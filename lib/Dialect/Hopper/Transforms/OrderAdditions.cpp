// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The CTAs of a launch add to memory in one order: who computes which tile when, and who waits
// for whom. The order is that in which CTAs of one speed come to a tile of the sum.
//
// Tiles of a line are numbered 0 to n - 1; p of them start (all, or of a growing start the first
// half), and CTA k of a gang has tile k, then, where starts grow, tile 2 p - 1 - k. The loop's
// values are [lo_k, end) in steps; those from `middle` = lo_p on, all starting tiles have.
// (To go around is the "shift scheduling" of Qiang et al., "DASH: Deterministic Attention
// Scheduling for High-throughput Reproducible LLM Training", 2026.)

#include "Loops.h"
#include "Roles.h"
#include "RowFlags.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Arithmetic.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Transforms/Programs/Trends.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/RenamedOptions.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include <limits>

namespace attn {
#define GEN_PASS_DEF_HOPPERORDERADDITIONS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using programs::Arithmetic;

static attn::Done
    numOrdered("hopper-order-additions", "ordered",
               "Additions to memory that have one order, or start at different places");
static attn::Left numLeft("hopper-order-additions", "not ordered",
                          "Additions to memory that stay as they are");

namespace {

/// The part of one role; its numbers have 32 bits.
struct Part {
  Region *region;
  affine::AffineDelinearizeIndexOp position;
  SmallVector<scf::ForOp, 1> loops;
  Value k, tile, isSecond; // of the CTA, of its current tile
  Value tileIndex;         // as an index
};

class Orderer {
public:
  Orderer(gpu::LaunchOp launch, hopper::RolesOp roles, hopper::AddOp addition, bool hasSemaphores)
      : launch(launch), roles(roles), addition(addition), hasSemaphores(hasSemaphores), b(launch),
        loc(addition.getLoc()) {
    if (Value first = addition.getFirst())
      firstTouch = first.getDefiningOp<hopper::SemaphoreFirstTouchOp>();
  }

  LogicalResult run(int64_t ctas) {
    if (failed(find()))
      return failure(hasSemaphores);
    if (!hasSemaphores && grows)
      return success(); // each tile starts elsewhere
    findSizes();
    if (hasSemaphores)
      dealTiles(ctas);
    for (Part &part : parts) {
      hasSemaphores ? deal(part) : locate(part);
      for (scf::ForOp loop : part.loops)
        reorder(part, loop);
    }
    return success();
  }

private:
  LogicalResult find() {
    std::optional<ScopedDiagnosticHandler> quiet;
    if (!hasSemaphores)
      quiet.emplace(launch->getContext(), [](Diagnostic &) { return success(); });
    return success(succeeded(findParts()) && succeeded(findForm()));
  }

  /// Of what would be added in an order that nobody knows.
  InFlightDiagnostic refuse(Location at) {
    InFlightDiagnostic error =
        addition.emitOpError("is done by several CTAs, and depends on the order of their "
                             "additions to the same elements: ");
    error.attachNote(at) << "see here";
    return error;
  }

  LogicalResult findParts() {
    for (Region &region : roles.getBodies()) {
      Part part{&region, {}, {}, {}, {}, {}, {}};
      region.walk([&](Operation *op) {
        auto position = dyn_cast<affine::AffineDelinearizeIndexOp>(op);
        if (position && position.getLinearIndex() == launch.getBlockIds().x)
          part.position = position;
        if (op->hasAttr(hopper::kAddingAttr))
          part.loops.push_back(cast<scf::ForOp>(op));
      });
      if (!part.position)
        return refuse(roles.getLoc()) << "a role does not say which tile it computes";
      parts.push_back(part);
    }
    return success();
  }

  /// The loop around the addition says how the bounds change along a line.
  LogicalResult findForm() {
    auto loop = cast<scf::ForOp>(addition->getParentOp());
    Part &part = *llvm::find_if(
        parts, [&](const Part &part) { return part.region == hopper::getRole(addition); });
    if (hasSemaphores && !hopper::isSingleThreaded(*part.region))
      return refuse(part.region->getLoc()) << "several threads of its role find the bounds of its "
                                              "loop, and a semaphore takes one";
    ValueRange coordinates = part.position.getResults();
    programs::Trends trends(coordinates.back());
    programs::Trend start = trends.find(loop.getLowerBound());
    programs::Trend end = trends.find(loop.getUpperBound());
    if (end != 0 || !start || *start < 0)
      return refuse(loop.getLoc()) << "the bounds neither stay from tile to tile nor does the "
                                      "first one grow and the last one stay";
    std::optional<int64_t> constant = getConstantIntValue(loop.getStep());
    if (!constant || !programs::isMultiple(loop.getLowerBound(), *constant))
      return refuse(loop.getLoc()) << "it does not start at a multiple of a constant step";
    ValueRange indices = addition.getIndices(), leading = indices.drop_back(2);
    if (indices[leading.size()] != loop.getInductionVar() ||
        addition.getTile().getType().getRows() > *constant)
      return refuse(loop.getLoc()) << "its variable is not the first row, or steps overlap";
    if (*constant % hopper::RowFlags::kStep)
      return refuse(loop.getLoc())
             << "a step is not of whole flags, of " << hopper::RowFlags::kStep << " rows each";
    // Tiles of one line share semaphores, others have nothing in common.
    SmallVector<OpFoldResult> basis = part.position.getPaddedBasis();
    bool areApart = llvm::all_of(llvm::zip(coordinates.drop_back(), basis), [&](auto pair) {
      auto [coordinate, size] = pair;
      return isConstantIntValue(size, 1) || llvm::is_contained(leading, coordinate);
    });
    bool isOfLine = llvm::all_of(leading, [&](Value x) { return trends.find(x) == 0; });
    if (!areApart || !isOfLine || !getConstantIntValue(indices.back()))
      return refuse(part.position.getLoc())
             << "not all coordinates but the last one of a tile are indices of what it adds to";
    if (hasSemaphores && addition.getFirst() &&
        !(firstTouch && firstTouch.getSeen().getDefiningOp<hopper::SemaphorePeekOp>()))
      return refuse(loop.getLoc()) << "what its first touch has seen is of another iteration "
                                      "(hopper-store-first{look-ahead=false} leaves it here)";
    grows = *start == 1;
    step = *constant;
    return success();
  }

  void findSizes() {
    b.setInsertionPoint(launch);
    Arithmetic a{b, launch.getLoc(), /*isNarrow=*/false};
    affine::AffineDelinearizeIndexOp position = parts.front().position;
    for (OpFoldResult size : position.getPaddedBasis())
      sizes.push_back(getValueOrCreateConstantIndexOp(b, launch.getLoc(), size));
    Value length = sizes.back();
    starting = a.max(grows ? a.divideUp(length, a.number(2)) : length, a.number(1));
  }

  /// Without semaphores, whoever has a tile starts at its part of the loop.
  void locate(Part &part) {
    b.setInsertionPointAfter(part.position);
    Arithmetic a{b, part.position.getLoc(), /*isNarrow=*/true};
    part.tileIndex = part.position.getResults().back();
    part.tile = part.k = a.narrow(part.tileIndex);
  }

  /// How many gangs of how many CTAs there are, and how many lines.
  void dealTiles(int64_t ctas) {
    Arithmetic a{b, launch.getLoc(), /*isNarrow=*/false};
    Value length = sizes.back();
    lines = a.number(1);
    for (Value size : ArrayRef(sizes).drop_back())
      lines = a.multiply(lines, size);
    gangs = a.min(a.max(a.divide(a.number(ctas), starting), a.number(1)), lines);
    // Without tiles there is nothing to do.
    Value hasTiles = a.isLess(a.number(0), length);
    Value grid = a.select(hasTiles, a.multiply(gangs, starting), a.number(0));
    launch.getGridSizeXMutable().assign(grid);
    launch->setAttr(hopper::kDealtAttr, b.getUnitAttr());
    launch->setAttr(hopper::kCooperativeAttr, b.getUnitAttr());
    createSemaphores(a);
  }

  /// A flag for each tile of the sum, 0 at first.
  void createSemaphores(const Arithmetic &a) {
    if (firstTouch) {
      flags.emplace(firstTouch.getSemaphores());
      return;
    }
    flags = hopper::RowFlags::create(a, addition.getDest(), b.getI32Type());
    Value memory = flags->getAllocation();
    Value count = memref::DimOp::create(b, a.loc, memory, 0);
    constexpr int64_t kFlags = hopper::kWarpgroupRows;
    Value one = a.number(1), size = a.number(kFlags);
    auto fill = gpu::LaunchOp::create(b, a.loc, a.divideUp(count, size), one, one,
                                      a.number(hopper::kThreadsPerWarpgroup), one, one);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(&fill.getBody().front());
    auto terminator = gpu::TerminatorOp::create(b, a.loc);
    b.setInsertionPoint(terminator);
    auto role = hopper::RolesOp::create(b, a.loc, b.getStrArrayAttr({hopper::kComputeRole}),
                                        b.getDenseI64ArrayAttr({1}),
                                        b.getDenseI64ArrayAttr({kRegistersOfFill}), 1);
    Block *body = b.createBlock(&role.getBodies().front());
    body->addArgument(b.getIndexType(), a.loc);
    Value first = a.multiply(fill.getBlockIds().x, size);
    auto type = VectorType::get(kFlags, b.getI32Type());
    Value zeros = arith::ConstantOp::create(b, a.loc, b.getZeroAttr(type));
    vector::TransferWriteOp::create(b, a.loc, zeros, memory, first, ArrayRef<bool>{false});
    hopper::YieldOp::create(b, a.loc);
  }

  /// A role's work in a loop over the tiles of its CTA.
  void deal(Part &part) {
    Block *body = &part.region->front();
    b.setInsertionPointToStart(body);
    Arithmetic a{b, body->getParentOp()->getLoc(), /*isNarrow=*/true};
    Value block = a.narrow(launch.getBlockIds().x), gangSize = a.narrow(starting);
    Value gang = a.divide(block, gangSize), stride = a.narrow(gangs);
    part.k = a.subtract(block, a.multiply(gang, gangSize));
    Value own = a.divideUp(a.subtract(a.narrow(lines), gang), stride);
    Value zero = arith::ConstantIndexOp::create(b, a.loc, 0);
    Value one = arith::ConstantIndexOp::create(b, a.loc, 1);
    auto loop = scf::ForOp::create(b, a.loc, zero,
                                   a.widen(grows ? a.multiply(own, a.number(2)) : own), one);
    loop->setAttr(hopper::kNonemptyAttr, b.getUnitAttr()); // there are no more gangs than lines
    b.setInsertionPointToStart(loop.getBody());
    Value round = a.narrow(loop.getInductionVar());
    part.tile = part.k;
    if (grows) {
      part.isSecond = a.isLess(a.number(0), a.both(round, a.number(1)));
      Value last = a.subtract(a.multiply(gangSize, a.number(2)), a.number(1));
      part.tile = a.select(part.isSecond, a.subtract(last, part.k), part.k);
      round = arith::ShRUIOp::create(b, a.loc, round, a.number(1));
    }
    part.tileIndex = a.widen(part.tile);
    Value line = a.widen(a.add(gang, a.multiply(round, stride)));
    SmallVector<Value> coordinates;
    if (sizes.size() > 1)
      llvm::append_range(coordinates, affine::AffineDelinearizeIndexOp::create(
                                          b, a.loc, line, ArrayRef<Value>(sizes).drop_back())
                                          .getResults());
    coordinates.push_back(part.tileIndex);
    for (Operation &op : llvm::make_early_inc_range(llvm::make_range(
             std::next(loop->getIterator()), body->getTerminator()->getIterator())))
      op.moveBefore(loop.getBody()->getTerminator());
    part.position.replaceAllUsesWith(coordinates);
    part.position.erase();
  }

  /// A value that depends on the current tile, for another tile of the line.
  Value copyFor(const Part &part, Value value, Value tile) {
    if (value == part.tileIndex)
      return tile;
    // The trend of what is copied is known: it is arithmetic.
    if (!programs::dependsOn(value, part.tileIndex))
      return value;
    Operation *op = value.getDefiningOp();
    IRMapping mapping;
    for (Value operand : op->getOperands())
      mapping.map(operand, copyFor(part, operand, tile));
    return b.clone(*op, mapping)->getResult(0);
  }

  /// Of the loop's values, those that all starting tiles have: `span` of them from `middle` on,
  /// up to `end`.
  struct Square {
    Value middle, span, end;
  };

  /// Where starting tile `k` begins to go around: at a multiple of the step.
  Value getStart(const Arithmetic &a, const Square &square, Value k) {
    Value steps = a.divide(square.span, a.number(step));
    return a.multiply(a.divide(a.multiply(k, steps), a.narrow(starting)), a.number(step));
  }

  /// Lets the loop run from 0, and take its values in the order of the tile.
  void reorder(Part &part, scf::ForOp loop) {
    b.setInsertionPoint(loop);
    Arithmetic a{b, loop.getLoc(), /*isNarrow=*/true};
    Value bound = loop.getLowerBound(), low = a.narrow(bound);
    Square square;
    square.end =
        a.multiply(a.divideUp(a.narrow(loop.getUpperBound()), a.number(step)), a.number(step));
    square.middle = a.min(grows ? a.narrow(copyFor(part, bound, starting)) : low, square.end);
    square.span = a.subtract(square.end, square.middle);
    Order order = findOrder(a, part, square, low);
    Value all = a.max(a.subtract(square.end, low), a.number(0));
    loop.setUpperBound(a.widen(all));
    loop.setLowerBound(arith::ConstantIndexOp::create(b, a.loc, 0));
    if (hasSemaphores && addition->getParentOp() == loop)
      return useSemaphores(part, loop, bound, square, order, all);
    if (!grows && !loop.getInitArgs().empty())
      return goAround(loop, square, order.first);
    b.setInsertionPointToStart(loop.getBody());
    Value n = a.narrow(loop.getInductionVar());
    replaceVariable(loop, a.widen(getValue(a, order, n)), n);
  }

  /// Carries the value, which takes fewer registers than to compute it from its number: where
  /// results are carried, too.
  void goAround(scf::ForOp loop, const Square &square, Value first) {
    IRRewriter rewriter(b);
    rewriter.setInsertionPoint(loop);
    auto yieldNext = [&](OpBuilder &inside, Location at, ArrayRef<BlockArgument> value) {
      Arithmetic a{inside, at, /*isNarrow=*/true};
      Value next = a.add(value.back(), a.number(step));
      return SmallVector<Value>{a.select(a.isLess(next, square.end), next, square.middle)};
    };
    // Nothing else makes this fail than a loop that is none.
    auto carried =
        cast<scf::ForOp>(cast<LoopLikeOpInterface>(*loop)
                             .replaceWithAdditionalYields(
                                 rewriter, first, /*replaceInitOperandUsesInLoop=*/false, yieldNext)
                             ->getOperation());
    b.setInsertionPointToStart(carried.getBody());
    Arithmetic a{b, carried.getLoc(), /*isNarrow=*/true};
    carried.getInductionVar().replaceAllUsesWith(a.widen(carried.getRegionIterArgs().back()));
  }

  static void replaceVariable(scf::ForOp loop, Value value, Value number) {
    loop.getInductionVar().replaceAllUsesExcept(value, number.getDefiningOp());
  }

  /// The n-th value of a loop is an offset and n (or less n): up to the end, again from the
  /// middle on, then from the start to the middle.
  struct Order {
    Value first, second, third; // offsets
    Value firstEnd, secondEnd;  // of n
    Value sign;                 // null: 1
  };

  Order findOrder(const Arithmetic &a, const Part &part, const Square &square, Value low) {
    Value start = getStart(a, square, part.k);
    Order order;
    order.first = a.add(square.middle, start);
    order.second = a.subtract(order.first, square.span);
    order.firstEnd = a.subtract(square.span, start);
    if (!grows) // where the third part would be empty
      return order;
    order.third = a.subtract(low, square.span);
    order.secondEnd = square.span;
    // Second tiles have all values from the last one on.
    Value last = a.subtract(square.end, a.number(step));
    Value never = a.number(std::numeric_limits<int32_t>::max());
    order.first = a.select(part.isSecond, last, order.first);
    order.firstEnd = a.select(part.isSecond, never, order.firstEnd);
    order.sign = a.select(part.isSecond, a.number(-1), a.number(1));
    return order;
  }

  Value getValue(const Arithmetic &a, const Order &order, Value n) {
    Value later = order.third ? a.select(a.isLess(n, order.secondEnd), order.second, order.third)
                              : order.second;
    Value offset = a.select(a.isLess(n, order.firstEnd), order.first, later);
    return a.add(offset, order.sign ? a.multiply(n, order.sign) : n);
  }

  /// The loop that adds has the value and whom it waits for from the iteration before, which
  /// looks at the flag while its own addition is under way.
  void useSemaphores(Part &part, scf::ForOp loop, Value bound, const Square &square,
                     const Order &order, Value all) {
    Arithmetic a{b, loc, /*isNarrow=*/true};
    ValueRange leading = addition.getIndices().drop_back(2);
    // Numbers start at 1; a flag is 0 as long as nobody has added.
    auto getNumber = [&](Value value) {
      return a.add(findBefore(part, bound, square, value), a.number(1));
    };
    Value first = getValue(a, order, a.number(0));
    SmallVector<Value> inits = {first, getNumber(first), a.number(0)};
    IRRewriter rewriter(b);
    auto keep = [](OpBuilder &, Location, ArrayRef<BlockArgument> arguments) {
      return SmallVector<Value>(arguments.begin(), arguments.end());
    };
    auto carried =
        cast<scf::ForOp>(cast<LoopLikeOpInterface>(*loop)
                             .replaceWithAdditionalYields(
                                 rewriter, inits, /*replaceInitOperandUsesInLoop=*/false, keep)
                             ->getOperation());
    ValueRange state = carried.getRegionIterArgs();
    Value value = state[0], number = state[1], seen = state[2];
    b.setInsertionPointToStart(carried.getBody());
    Value n = a.narrow(carried.getInductionVar());
    replaceVariable(carried, a.widen(value), n);
    // Before the tile is there.
    Operation *receive = addition.getTile().getDefiningOp();
    b.setInsertionPoint(receive && receive->getBlock() == addition->getBlock() ? receive
                                                                               : addition);
    Value semaphores = flags->getMemory();
    SmallVector<Value> flag = flags->createIndices(a, leading, value);
    if (firstTouch)
      dropFirstTouch(a.isEqual(number, a.number(0)));
    Value isMissing = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, seen, number);
    Value waits = a.both(a.isLess(a.number(0), number), isMissing);
    hopper::SemaphoreWaitOp::create(b, loc, semaphores, flag,
                                    a.select(waits, number, a.number(-1)));
    // While the addition is under way.
    b.setInsertionPointAfter(addition);
    Value next = a.add(n, a.number(step));
    Value isInside = a.isLess(next, all);
    Value nextValue = getValue(a, order, a.select(isInside, next, n));
    Value nextSeen = hopper::SemaphorePeekOp::create(b, loc, semaphores,
                                                     flags->createIndices(a, leading, nextValue));
    b.setInsertionPoint(carried.getBody()->getTerminator());
    hopper::TmaWaitOp::create(b, loc, 0, /*read=*/false);
    hopper::SemaphoreReleaseOp::create(b, loc, semaphores, flag, a.add(part.tile, a.number(1)));
    carried.getBody()->getTerminator()->setOperands({nextValue, getNumber(nextValue), nextSeen});
  }

  /// Who is the first one is known.
  void dropFirstTouch(Value isFirst) {
    Operation *seen = firstTouch.getSeen().getDefiningOp();
    for (Operation *user : llvm::make_early_inc_range(firstTouch->getUsers()))
      if (isa<scf::IfOp>(user)) // which releases the semaphore
        user->erase();
    for (auto wait :
         llvm::make_early_inc_range(firstTouch->getBlock()->getOps<hopper::SemaphoreWaitOp>()))
      wait.erase();
    firstTouch.replaceAllUsesWith(isFirst);
    firstTouch.erase();
    seen->erase();
  }

  /// The tile of the line that adds to `value` before the current one, or -1.
  Value findBefore(Part &part, Value bound, const Square &square, Value value) {
    Arithmetic a{b, loc, /*isNarrow=*/true};
    Value none = a.number(-1), gangSize = a.narrow(starting), next = a.add(part.k, a.number(1));
    Value hasNext = a.isLess(next, gangSize);
    Value inSquare = a.subtract(value, square.middle);
    // Going around, tiles that started at the value or before come first, the furthest first.
    Value hasStarted = a.isAtMost(getStart(a, square, part.k), inSquare);
    Value nextHasStarted = a.isAtMost(getStart(a, square, next), inSquare);
    Value isFirst = a.differ(hasStarted, nextHasStarted);
    Value around =
        a.select(hasNext, a.select(isFirst, none, next), a.select(hasStarted, none, a.number(0)));
    if (!grows)
      return around;
    Value low = a.narrow(copyFor(part, bound, a.widen(next)));
    Value isShared = a.both(hasNext, a.isAtMost(low, value));
    Value before = a.select(a.isLess(value, square.middle), a.select(isShared, next, none), around);
    // Of the second tiles, that of the last CTA comes behind all that go around: behind the
    // first one that starts after the value, or tile 0.
    Value steps = a.divide(square.span, a.number(step));
    Value passed = a.add(a.divide(inSquare, a.number(step)), a.number(1));
    Value after = a.divideUp(a.multiply(passed, gangSize), a.max(steps, a.number(1)));
    Value lastAround = a.select(a.isLess(after, gangSize), after, a.number(0));
    Value second = a.select(hasNext, a.subtract(part.tile, a.number(1)), lastAround);
    return a.select(part.isSecond, second, before);
  }

  static constexpr int64_t kRegistersOfFill = 240;

  gpu::LaunchOp launch;
  hopper::RolesOp roles;
  hopper::AddOp addition;
  bool hasSemaphores;
  OpBuilder b;
  Location loc;
  SmallVector<Part> parts;
  bool grows = false; // the first value of the loop, from tile to tile
  int64_t step = 1;
  SmallVector<Value> sizes;
  Value lines, gangs, starting; // starting tiles of a line: the CTAs of a gang
  std::optional<hopper::RowFlags> flags;
  hopper::SemaphoreFirstTouchOp firstTouch; // of an addition that may be the first one, else null
};

struct OrderAdditionsPass
    : attn::WithRenamedOptions<attn::impl::HopperOrderAdditionsBase<OrderAdditionsPass>> {
  using WithRenamedOptions::WithRenamedOptions;

  void runOnOperation() override {
    if (ctas < 1) {
      getOperation().emitError() << "expected at least one CTA, got " << int64_t(ctas);
      return signalPassFailure();
    }
    SmallVector<hopper::AddOp> additions;
    WalkResult walk = getOperation().walk([&](Operation *op) {
      if (auto add = dyn_cast<hopper::AddOp>(op))
        additions.push_back(add);
      if (!semaphore || !isa<TileAddOp>(op))
        return WalkResult::advance();
      op->emitOpError("cannot be ordered: each warpgroup adds on its own");
      return WalkResult::interrupt();
    });
    if (walk.wasInterrupted())
      return signalPassFailure();
    SmallPtrSet<Operation *, 2> launches;
    for (hopper::AddOp addition : additions) {
      auto launch = addition->getParentOfType<gpu::LaunchOp>();
      auto roles = addition->getParentOfType<hopper::RolesOp>();
      bool isInLoop = launch && roles && isa<scf::ForOp>(addition->getParentOp());
      bool isOnly = launches.insert(launch).second;
      // The CTAs of a cluster copy the same tiles for each other.
      if (!semaphore && !(isInLoop && isOnly && !launch.hasClusterSize())) {
        numLeft.at(addition) << remark::reason(
            "expected the only addition of a launch without clusters, in a loop of a role");
        continue;
      }
      if (!isInLoop) {
        addition.emitOpError("expected to be in a loop of a role");
        return signalPassFailure();
      }
      if (!isOnly) {
        addition.emitOpError("cannot be ordered: the launch has another addition");
        return signalPassFailure();
      }
      Location at = addition.getLoc();
      if (failed(Orderer(launch, roles, addition, semaphore).run(ctas)))
        return signalPassFailure();
      numOrdered.at(at);
    }
  }
};

} // namespace
