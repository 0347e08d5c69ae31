// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One class for each order; which one is chosen is at the end.

#include "TileOrders.h"
#include "Loops.h"
#include "Roles.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Division.h"
#include "attn/Transforms/Programs/Trends.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include <memory>

using namespace mlir;
using namespace attn;
using hopper::getUnit;
using programs::Divisor;

Value hopper::getUnit(gpu::LaunchOp launch) {
  std::optional<gpu::KernelDim3> clusters = launch.getClusterIds();
  return clusters ? clusters->x : launch.getBlockIds().x;
}

namespace {

/// How the work of tiles changes with their last coordinate.
struct Unevenness {
  bool last;       // the last ones have most; not told for a band
  scf::ForOp band; // a loop whose start and end both grow, or both fall
  Value coordinate;
};

/// Where a loop ends that has iterations: one that has none may end where it starts.
Value getEnd(scf::ForOp loop) {
  Value start = loop.getLowerBound(), end = loop.getUpperBound();
  auto select = end.getDefiningOp<arith::SelectOp>();
  if (select && select.getFalseValue() == start)
    return select.getTrueValue();
  return select && select.getTrueValue() == start ? select.getFalseValue() : end;
}

/// nullopt where all tiles have the same work.
std::optional<Unevenness> findUnevenness(Region &role,
                                         ArrayRef<affine::AffineDelinearizeIndexOp> positions) {
  const auto *position = llvm::find_if(
      positions, [&](Operation *op) { return role.isAncestor(op->getParentRegion()); });
  if (position == positions.end())
    return std::nullopt;
  Value coordinate = affine::AffineDelinearizeIndexOp(*position).getResults().back();
  programs::Trends trends(coordinate);
  bool isUneven = false, falls = false;
  scf::ForOp band;
  role.walk([&](scf::ForOp loop) {
    programs::Trend start = trends.find(loop.getLowerBound());
    programs::Trend end = trends.find(getEnd(loop));
    isUneven |= start != 0 || end != 0;
    falls |= (start == 1 && end == 0) || (start == 0 && end == -1);
    if (start && start != 0 && start == end)
      band = loop;
  });
  if (!isUneven)
    return std::nullopt;
  return Unevenness{!falls, band, coordinate};
}

/// Computes a value of a launch in front of it. None if it depends on more than sizes, and on
/// what is known already.
Value computeBefore(Value value, gpu::LaunchOp launch, OpBuilder &host, IRMapping &known) {
  if (Value found = known.lookupOrNull(value))
    return found;
  if (!launch.getBody().isAncestor(value.getParentRegion()))
    return value;
  Operation *op = value.getDefiningOp();
  if (!op || !isMemoryEffectFree(op) || op->getNumRegions() > 0)
    return {};
  for (Value operand : op->getOperands())
    if (!computeBefore(operand, launch, host, known))
      return {};
  host.clone(*op, known);
  return known.lookup(value);
}

/// The number of tiles; a cluster's count as one.
Value countTiles(gpu::LaunchOp launch) {
  OpBuilder host(launch);
  Value tiles = launch.getGridSizeX();
  if (Value size = launch.getClusterSizeX())
    tiles = arith::DivUIOp::create(host, launch.getLoc(), tiles, size);
  return tiles;
}

/// The tiles of one CTA (or cluster): every `grid`-th one.
class Persistence {
public:
  Persistence(gpu::LaunchOp launch, int64_t ctas)
      : b(launch), loc(launch.getLoc()), tiles(countTiles(launch)), block(getUnit(launch)),
        launch(launch) {
    Value size = launch.getClusterSizeX(), most = index(ctas);
    if (size) {
      Value whole = arith::DivUIOp::create(b, loc, most, size);
      most = arith::MaxUIOp::create(b, loc, whole, index(1));
    }
    deal(arith::MinUIOp::create(b, loc, tiles, most));
  }
  virtual ~Persistence() = default;

  void run(Block *body) {
    b.setInsertionPointToStart(body);
    scf::ForOp loop = createLoop();
    // deal() leaves no CTA without a tile.
    loop->setAttr(hopper::kNonemptyAttr, b.getUnitAttr());
    Block *inside = loop.getBody();
    b.setInsertionPointToStart(inside);
    Value tile = getTile(loop.getInductionVar());
    for (Operation &op : llvm::make_early_inc_range(llvm::make_range(
             std::next(loop->getIterator()), body->getTerminator()->getIterator()))) {
      op.moveBefore(inside->getTerminator());
      op.walk([&](Operation *user) { user->replaceUsesOfWith(block, tile); });
    }
  }

protected:
  /// Launches so many CTAs (or clusters); each has to get a tile.
  void deal(Value ctas) {
    grid = ctas;
    Value size = launch.getClusterSizeX();
    Value blocks = size ? Value(arith::MulIOp::create(b, loc, grid, size)) : grid;
    launch.getGridSizeXMutable().assign(blocks);
  }

  virtual scf::ForOp createLoop() { return scf::ForOp::create(b, loc, block, tiles, grid); }
  /// The tile of an iteration.
  virtual Value getTile(Value variable) { return variable; }

  Value index(int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value subtract(Value x, Value y) { return arith::SubIOp::create(b, loc, x, y); }
  Value multiply(Value x, Value y) { return arith::MulIOp::create(b, loc, x, y); }
  Value isBelow(Value x, Value y) {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, x, y);
  }
  Value select(Value condition, Value x, Value y) {
    return arith::SelectOp::create(b, loc, condition, x, y);
  }
  Value count(Value condition) { return select(condition, index(1), index(0)); }
  Value narrow(Value x) { return arith::IndexCastOp::create(b, loc, b.getI32Type(), x); }
  Value widen(Value x) { return arith::IndexCastOp::create(b, loc, b.getIndexType(), x); }
  /// In 32 bits.
  Value divide(Value x, Value y) {
    return widen(arith::DivUIOp::create(b, loc, narrow(x), narrow(y)));
  }

  Value isOdd(Value number) {
    return isBelow(index(0), arith::AndIOp::create(b, loc, number, index(1)));
  }
  /// The place as seen from the other end of a row, where the condition holds.
  Value turnIf(Value condition, Value place) {
    return select(condition, subtract(subtract(grid, index(1)), place), place);
  }

  /// The place in the `round`-th row of `grid` places: from the other end every other time.
  Value getTurn(Value round) { return turnIf(isOdd(round), block); }

  /// Rows of `grid` places, of `places`, in which this CTA has one.
  Value countTurns(Value places) {
    Value whole = divide(places, grid);
    Value rest = subtract(places, multiply(whole, grid));
    return add(whole, count(isBelow(getTurn(whole), rest)));
  }

  OpBuilder b;
  Location loc;
  Value tiles, block, grid;

private:
  gpu::LaunchOp launch;
};

/// Tiles in the order of their work: one of each `grid` in a row.
class SortedTiles : public Persistence {
public:
  using Persistence::Persistence;

private:
  scf::ForOp createLoop() override {
    return scf::ForOp::create(b, loc, index(0), countTurns(tiles), index(1));
  }
  Value getTile(Value round) override { return add(multiply(round, grid), getTurn(round)); }
};

/// Tiles that are sorted by their work along the first coordinate, and alike along the others
/// (heads). If all of these were taken together, what the CTAs read at a time would be more than
/// the L2 cache has. So the others are divided into groups (one, or an even number) with some rows
/// of `grid` tiles each, the longest first. In every other group the CTAs have each other's
/// places, and in every pair of groups places further on. What is left of the groups, their
/// shortest tiles, comes last, in the order of its work.
class SortedGroups : public Persistence {
public:
  /// `places`: how many values the first coordinate has.
  SortedGroups(gpu::LaunchOp launch, int64_t ctas, Value places) : Persistence(launch, ctas) {
    // Without tiles nothing is divided, but the host must not divide by zero.
    Value safe = arith::MaxUIOp::create(b, loc, grid, index(1));
    Value ranks = arith::MaxUIOp::create(b, loc, places, index(1));
    others = arith::DivUIOp::create(b, loc, tiles, ranks);
    Value some = arith::MaxUIOp::create(b, loc, others, index(1));
    // The largest power of two that divides the others and leaves rows enough to each group.
    Value rows = arith::DivUIOp::create(b, loc, tiles, multiply(safe, index(kRows)));
    Value zeros = math::CountLeadingZerosOp::create(
        b, loc, narrow(arith::MaxUIOp::create(b, loc, rows, index(1))));
    Value bits = arith::SubIOp::create(b, loc, arith::ConstantIntOp::create(b, loc, 31, 32), zeros);
    Value power = arith::ShLIOp::create(b, loc, index(1), widen(bits));
    Value divides = arith::AndIOp::create(b, loc, some, subtract(index(0), some));
    groups = arith::MinUIOp::create(b, loc, power, divides);
    Value ofGroup = arith::DivUIOp::create(b, loc, some, groups);
    Value size = multiply(places, ofGroup);
    rowsOfGroup = arith::DivUIOp::create(b, loc, size, safe);
    inRows = multiply(rowsOfGroup, grid);
    steps = multiply(rowsOfGroup, groups);
    left = multiply(subtract(size, inRows), groups);
    Value pairs =
        arith::MaxUIOp::create(b, loc, arith::ShRUIOp::create(b, loc, groups, index(1)), index(1));
    shift = arith::DivUIOp::create(b, loc, grid, pairs);
    perRows.emplace(b, loc, Value(arith::MaxUIOp::create(b, loc, rowsOfGroup, index(1))));
    perGroup.emplace(b, loc, ofGroup);
    perGroups.emplace(b, loc, groups);
  }

private:
  /// Rows of the grid that a group has at least: fewer leave more for the end.
  static constexpr int64_t kRows = 3;

  scf::ForOp createLoop() override {
    Value whole = divide(left, grid);
    Value rest = subtract(left, multiply(whole, grid));
    Value ofLeft = add(whole, count(isBelow(getTurn(add(steps, whole)), rest)));
    return scf::ForOp::create(b, loc, index(0), add(steps, ofLeft), index(1));
  }

  static Value quotient(OpBuilder &b, Location loc, const Divisor &divisor, Value number) {
    Value narrow = arith::IndexCastOp::create(b, loc, b.getI32Type(), number);
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), divisor.divide(b, loc, narrow));
  }

  Value getTile(Value step) override {
    // In a row of a group.
    Value group = quotient(b, loc, *perRows, step);
    Value row = subtract(step, multiply(group, rowsOfGroup));
    Value pair = arith::ShRUIOp::create(b, loc, group, index(1));
    Value place = add(turnIf(isOdd(group), block), multiply(pair, shift));
    place = select(isBelow(place, grid), place, subtract(place, grid));
    Value number = add(multiply(row, grid), turnIf(isOdd(row), place));
    // Behind them: the number in its group.
    Value behind = subtract(step, steps);
    Value ofLeft = add(multiply(behind, grid), getTurn(step));
    Value numberLeft = quotient(b, loc, *perGroups, ofLeft);
    Value groupLeft = subtract(ofLeft, multiply(numberLeft, groups));
    Value isInRow = isBelow(step, steps);
    number = select(isInRow, number, add(inRows, numberLeft));
    group = select(isInRow, group, groupLeft);
    Value rank = quotient(b, loc, *perGroup, number);
    Value ofGroup = widen(perGroup->divisor);
    Value inGroup = subtract(number, multiply(rank, ofGroup));
    return add(multiply(rank, others), add(multiply(group, ofGroup), inGroup));
  }

  Value others, groups, rowsOfGroup; // values of the other coordinates; of them; rows
  Value inRows, steps, left;         // tiles in the rows of a group; rows of all; tiles behind them
  Value shift;                       // of places from a pair of groups to the next
  std::optional<Divisor> perRows, perGroup, perGroups;
};

/// Tiles whose work grows or falls evenly along the last coordinate, in two parts. First
/// pairs, each with as much work as any other: groups of an even number of tiles (a line, all
/// values of the last coordinate, or two) are taken from both ends to the middle, by every
/// `grid`-th CTA. The tiles that CTAs have at a time are neighbours, so that they read the same
/// memory. Then what is left of these, sorted, for pairs would leave CTAs without work at
/// the end: one of each `grid` in a row, where the first row starts with the CTAs that have a
/// pair less.
class UnevenTiles : public Persistence {
public:
  /// `line`: how many values the last coordinate has; whether the `last` ones have most work.
  UnevenTiles(gpu::LaunchOp launch, int64_t ctas, Value line, bool last)
      : Persistence(launch, ctas), line(line), last(last) {
    // Without tiles nothing is divided, but the host must not divide by zero.
    Value length = arith::MaxUIOp::create(b, loc, line, index(1));
    Value odd = arith::AndIOp::create(b, loc, length, index(1));
    group = arith::ShLIOp::create(b, loc, length, odd);
    Value groups = arith::DivUIOp::create(b, loc, tiles, group);
    Value ofGroup = arith::DivUIOp::create(b, loc, group, index(2));
    Value safe = arith::MaxUIOp::create(b, loc, grid, index(1));
    // As many for each CTA as there are, or one less; or all of them.
    Value all = multiply(groups, ofGroup);
    Value rounds = arith::DivUIOp::create(b, loc, all, safe);
    Value even = multiply(rounds, grid);
    Value left = subtract(all, even);
    Value isFull = isBelow(multiply(grid, index(4)), multiply(left, index(5)));
    Value few = multiply(arith::MinUIOp::create(b, loc, rounds, index(1)), grid);
    Value isLong = isBelow(index(kShortLine - 1), line);
    Value most = select(isLong, subtract(even, few), select(isFull, all, even));
    paired = multiply(arith::DivUIOp::create(b, loc, most, ofGroup), group);
    Value rest = subtract(tiles, paired);
    pairs = arith::DivUIOp::create(b, loc, paired, index(2));
    pairsOfAll = arith::DivUIOp::create(b, loc, pairs, safe);
    ahead = subtract(pairs, multiply(pairsOfAll, grid));
    places = add(ahead, rest);
    // Where pairs take all tiles, there may be fewer of them than CTAs.
    deal(arith::MinUIOp::create(b, loc, grid, add(pairs, rest)));
    half.emplace(b, loc, ofGroup);
    lines.emplace(b, loc, Value(arith::DivUIOp::create(b, loc, rest, length)));
  }

private:
  /// In lines of fewer tiles what pairs leave over is enough to be even, if it is not a pair for
  /// more than four of five CTAs; and what sorted tiles read takes as much of the L2 cache.
  static constexpr int64_t kShortLine = 16;

  scf::ForOp createLoop() override {
    // Two for each pair, of which some CTAs have one more, and a turn less.
    Value steps = add(multiply(pairsOfAll, index(2)), countTurns(places));
    return scf::ForOp::create(b, loc, index(0), add(steps, countAhead()), index(1));
  }

  /// 1 for a CTA that has one more pair.
  Value countAhead() { return count(isBelow(block, ahead)); }

  Value getTile(Value step) override {
    Value round = arith::ShRUIOp::create(b, loc, step, index(1));
    Value pair = add(block, multiply(round, grid));
    return select(isBelow(pair, pairs), getPaired(step, pair), getSorted(step));
  }

  Value getPaired(Value step, Value pair) {
    Value second = arith::AndIOp::create(b, loc, step, index(1));
    Value number = widen(half->divide(b, loc, narrow(pair)));
    Value fromStart = subtract(pair, multiply(number, widen(half->divisor)));
    Value fromEnd = subtract(subtract(group, index(1)), fromStart);
    Value offset = select(isBelow(index(0), second), fromStart, fromEnd);
    return add(multiply(number, group), offset);
  }

  Value getSorted(Value step) {
    // With a pair more and a turn less, the next turn is one step later.
    Value round = subtract(subtract(step, multiply(pairsOfAll, index(2))), countAhead());
    Value place = add(multiply(round, grid), getTurn(round));
    Value number = subtract(place, ahead);
    Value rank = widen(lines->divide(b, loc, narrow(number)));
    Value inLine = subtract(number, multiply(rank, widen(lines->divisor)));
    Value offset = last ? subtract(subtract(line, index(1)), rank) : rank;
    return add(paired, add(multiply(inLine, line), offset));
  }

  Value line, group, paired; // tiles
  bool last;
  Value pairs, pairsOfAll, ahead; // pairs, those that each CTA has, CTAs that have one more
  Value places;                   // of sorted tiles, and of those that are ahead
  std::optional<Divisor> half, lines;
};

/// Tiles whose loop is a band: most have the same work, those at one end of the last coordinate
/// less. First the others, as they lie, so that neighbours read the same memory; each CTA has
/// another place of the `grid` in each row of them, by one, so that no pattern of the lines and of
/// `grid` gives one CTA the long tiles always. Then the short ones of all lines, the longest first,
/// from the other end every other time.
class BandTiles : public Persistence {
public:
  BandTiles(gpu::LaunchOp launch, int64_t ctas, Value line, const Unevenness &work)
      : Persistence(launch, ctas), line(line) {
    Value length = arith::MaxUIOp::create(b, loc, line, index(1));
    Value count = arith::DivUIOp::create(b, loc, tiles, length);
    Value some = arith::MaxUIOp::create(b, loc, count, index(1));
    Value few = arith::CeilDivUIOp::create(b, loc, multiply(grid, index(kShortRows)), some);
    few = arith::MinUIOp::create(b, loc, few, line);
    Value many = subtract(line, few);
    whole = multiply(many, count);
    Value last = isLastLonger(launch, work);
    firstOfMany = select(last, few, index(0));
    firstOfFew = select(last, subtract(few, index(1)), many);
    step = select(last, index(-1), index(1));
    Value safe = arith::MaxUIOp::create(b, loc, grid, index(1));
    rows = arith::DivUIOp::create(b, loc, whole, safe);
    perRow.emplace(b, loc, safe);
    perLine.emplace(b, loc, many);
    lines.emplace(b, loc, count);
  }

private:
  /// Rows of the grid that the short tiles fill: fewer leave CTAs without work at the end, more
  /// read what L2 has lost.
  static constexpr int64_t kShortRows = 3;

  /// Whether the last tile of a line has more work than the first one.
  Value isLastLonger(gpu::LaunchOp launch, Unevenness work) {
    Value ends[] = {index(0), subtract(line, index(1))}, iterations[2];
    for (auto [end, length] : llvm::zip(ends, iterations)) {
      IRMapping known;
      known.map(work.coordinate, end);
      Value from = computeBefore(work.band.getLowerBound(), launch, b, known);
      Value to = computeBefore(work.band.getUpperBound(), launch, b, known);
      if (!from || !to)
        return arith::ConstantIntOp::create(b, loc, 1, 1);
      length = subtract(to, from);
    }
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, iterations[1], iterations[0]);
  }

  scf::ForOp createLoop() override {
    Value turns = divide(tiles, grid);
    Value rest = subtract(tiles, multiply(turns, grid));
    Value steps = add(turns, count(isBelow(getPlace(turns), rest)));
    return scf::ForOp::create(b, loc, index(0), steps, index(1));
  }

  /// This CTA's place in a row of `grid` tiles.
  Value getPlace(Value row) {
    Value turned = arith::MinUIOp::create(b, loc, row, rows);
    Value number = subtract(turned, multiply(widen(perRow->divide(b, loc, narrow(turned))), grid));
    Value place = subtract(block, number);
    place = select(isBelow(block, number), add(place, grid), place);
    return turnIf(isOdd(subtract(row, turned)), place);
  }

  Value getTile(Value row) override {
    Value number = add(multiply(row, grid), getPlace(row));
    Value ofMany = widen(perLine->divide(b, loc, narrow(number)));
    Value inMany = subtract(number, multiply(ofMany, widen(perLine->divisor)));
    Value place = subtract(number, whole);
    Value rank = widen(lines->divide(b, loc, narrow(place)));
    Value ofFew = subtract(place, multiply(rank, widen(lines->divisor)));
    Value isOfMany = isBelow(number, whole);
    Value ranked = add(firstOfFew, multiply(step, rank));
    Value offset = select(isOfMany, add(firstOfMany, inMany), ranked);
    return add(multiply(select(isOfMany, ofMany, ofFew), line), offset);
  }

  Value line, whole;                   // tiles: of a line, of those that are not short
  Value rows;                          // of the grid that these fill
  Value firstOfMany, firstOfFew, step; // places in a line
  std::optional<Divisor> perRow, perLine, lines;
};

std::unique_ptr<Persistence> createOrder(gpu::LaunchOp launch, hopper::RolesOp roles,
                                         ArrayRef<affine::AffineDelinearizeIndexOp> positions,
                                         int64_t ctas) {
  OpBuilder host(launch);
  auto getSize = [&](OpFoldResult size) {
    return getValueOrCreateConstantIndexOp(host, launch.getLoc(), size);
  };
  if (launch->hasAttr(kDescendingAttr)) {
    // Where CTAs share a multiprocessor and its registers, the arithmetic of groups costs more
    // than they save.
    if (positions.empty() || roles.getOccupancy() > 1)
      return std::make_unique<SortedTiles>(launch, ctas);
    affine::AffineDelinearizeIndexOp position = positions.front();
    return std::make_unique<SortedGroups>(launch, ctas, getSize(position.getPaddedBasis().front()));
  }
  std::optional<unsigned> computing = hopper::findComputeRole(roles);
  std::optional<Unevenness> work;
  if (computing)
    work = findUnevenness(roles.getBodies()[*computing], positions);
  if (!work)
    return std::make_unique<Persistence>(launch, ctas);
  affine::AffineDelinearizeIndexOp position = positions.front();
  Value line = getSize(position.getPaddedBasis().back());
  if (work->band)
    return std::make_unique<BandTiles>(launch, ctas, line, *work);
  return std::make_unique<UnevenTiles>(launch, ctas, line, work->last);
}

} // namespace

void hopper::makePersistent(gpu::LaunchOp launch, RolesOp roles,
                            ArrayRef<affine::AffineDelinearizeIndexOp> positions, int64_t ctas) {
  std::unique_ptr<Persistence> persistence = createOrder(launch, roles, positions, ctas);
  for (Region &region : roles.getBodies())
    persistence->run(&region.front());
}
