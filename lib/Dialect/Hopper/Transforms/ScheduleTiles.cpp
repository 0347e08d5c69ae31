// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Persistent CTAs, and the order in which they take the tiles.

#include "Loops.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERSCHEDULETILES
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// Whether the trip count of a loop in the role depends on the last coordinate
/// of the tile.
bool hasUnevenTiles(Region &role, ArrayRef<affine::AffineDelinearizeIndexOp> positions) {
  const auto *position = llvm::find_if(
      positions, [&](Operation *op) { return role.isAncestor(op->getParentRegion()); });
  if (position == positions.end())
    return false;
  SetVector<Operation *> users;
  getForwardSlice(affine::AffineDelinearizeIndexOp(*position).getResults().back(), &users);
  return role
      .walk([&](scf::ForOp loop) {
        for (Value bound : {loop.getLowerBound(), loop.getUpperBound()})
          if (bound.getDefiningOp() && users.contains(bound.getDefiningOp()))
            return WalkResult::interrupt();
        return WalkResult::advance();
      })
      .wasInterrupted();
}

/// Division of numbers below 2^31 by a divisor that the host knows: a product
/// and a shift (Granlund and Montgomery, "Division by invariant integers using
/// multiplication", 1994).
struct Divisor {
  Value divisor, factor, shift; // i32, i64, i64

  Divisor(OpBuilder &host, Location loc, Value size) {
    auto constant = [&](int64_t value, unsigned bits) -> Value {
      return arith::ConstantIntOp::create(host, loc, value, bits);
    };
    divisor = arith::IndexCastOp::create(host, loc, host.getI32Type(), size);
    Value below = arith::SubIOp::create(host, loc, divisor, constant(1, 32));
    Value zeros = math::CountLeadingZerosOp::create(host, loc, below);
    Value bits = arith::SubIOp::create(host, loc, constant(63, 32), zeros);
    shift = arith::ExtUIOp::create(host, loc, host.getI64Type(), bits);
    Value power = arith::ShLIOp::create(host, loc, constant(1, 64), shift);
    Value wide = arith::ExtUIOp::create(host, loc, host.getI64Type(), divisor);
    // Without tiles nothing is divided, but the host must not divide by zero.
    Value safe = arith::MaxUIOp::create(host, loc, wide, constant(1, 64));
    factor = arith::CeilDivUIOp::create(host, loc, power, safe);
  }

  Value divide(OpBuilder &b, Location loc, Value number) const {
    Value wide = arith::ExtUIOp::create(b, loc, b.getI64Type(), number);
    Value product = arith::MulIOp::create(b, loc, wide, factor);
    Value shifted = arith::ShRUIOp::create(b, loc, product, shift);
    return arith::TruncIOp::create(b, loc, b.getI32Type(), shifted);
  }
};

/// The coordinates of tiles in 32 bits.
class Coordinates {
public:
  Coordinates(gpu::LaunchOp launch, affine::AffineDelinearizeIndexOp position) {
    OpBuilder host(launch);
    for (OpFoldResult size : position.getPaddedBasis())
      sizes.push_back(getValueOrCreateConstantIndexOp(host, launch.getLoc(), size));
    for (Value size : ArrayRef(sizes).drop_front())
      divisors.emplace_back(host, launch.getLoc(), size);
  }

  void replace(affine::AffineDelinearizeIndexOp position) {
    OpBuilder b(position);
    Location loc = position.getLoc();
    Value rest = arith::IndexCastOp::create(b, loc, b.getI32Type(), position.getLinearIndex());
    SmallVector<Value> results(sizes.size());
    for (size_t k = sizes.size() - 1; k > 0; --k) {
      if (isConstantIntValue(sizes[k], 1)) {
        results[k] = arith::ConstantIndexOp::create(b, loc, 0);
        continue;
      }
      const Divisor &divisor = divisors[k - 1];
      Value quotient = divisor.divide(b, loc, rest);
      Value product = arith::MulIOp::create(b, loc, quotient, divisor.divisor);
      Value remainder = arith::SubIOp::create(b, loc, rest, product);
      results[k] = arith::IndexCastOp::create(b, loc, b.getIndexType(), remainder);
      rest = quotient;
    }
    results[0] = arith::IndexCastOp::create(b, loc, b.getIndexType(), rest);
    position.replaceAllUsesWith(results);
    position.erase();
  }

private:
  SmallVector<Value> sizes;
  SmallVector<Divisor> divisors;
};

/// An order in which each two tiles in a row have as much work as any other
/// two, where work grows or falls evenly along the last coordinate: groups of
/// an even number of tiles (those with all values of the last coordinate, or
/// twice as many) are taken from both ends to the middle. The tiles that CTAs
/// have at a time are neighbours, so that they read the same memory.
class Pairs {
public:
  /// `line`: how many values the last coordinate has.
  Pairs(OpBuilder host, Location loc, Value tiles, Value line)
      : count(arith::IndexCastOp::create(host, loc, host.getI32Type(), tiles)),
        group(getGroup(host, loc, line)), half(host, loc, getHalf(host, loc, group)) {}

  /// The tile at a place of the order (both of type index).
  Value getTile(OpBuilder &b, Location loc, Value place) const {
    Value at = arith::IndexCastOp::create(b, loc, b.getI32Type(), place);
    Value one = arith::ConstantIntOp::create(b, loc, 1, 32);
    Value pair = arith::ShRUIOp::create(b, loc, at, one);
    Value isSecond = arith::TruncIOp::create(b, loc, b.getI1Type(), at);
    Value number = half.divide(b, loc, pair);
    Value product = arith::MulIOp::create(b, loc, number, half.divisor);
    Value fromStart = arith::SubIOp::create(b, loc, pair, product);
    Value start = arith::MulIOp::create(b, loc, number, group);
    // The last group may have fewer tiles.
    Value rest = arith::SubIOp::create(b, loc, count, start);
    Value size = arith::MinUIOp::create(b, loc, rest, group);
    Value last = arith::SubIOp::create(b, loc, size, one);
    Value fromEnd = arith::SubIOp::create(b, loc, last, fromStart);
    Value offset = arith::SelectOp::create(b, loc, isSecond, fromStart, fromEnd);
    Value tile = arith::AddIOp::create(b, loc, start, offset);
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), tile);
  }

private:
  static Value getGroup(OpBuilder &b, Location loc, Value line) {
    Value size = arith::IndexCastOp::create(b, loc, b.getI32Type(), line);
    Value one = arith::ConstantIntOp::create(b, loc, 1, 32);
    Value odd = arith::AndIOp::create(b, loc, size, one);
    return arith::ShLIOp::create(b, loc, size, odd);
  }
  static Value getHalf(OpBuilder &b, Location loc, Value group) {
    Value one = arith::ConstantIntOp::create(b, loc, 1, 32);
    Value half = arith::ShRUIOp::create(b, loc, group, one);
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), half);
  }

  Value count, group; // i32
  Divisor half;
};

/// The number of a CTA, or of a cluster, whose tiles are taken as one.
Value getUnit(gpu::LaunchOp launch) {
  std::optional<gpu::KernelDim3> clusters = launch.getClusterIds();
  return clusters ? clusters->x : launch.getBlockIds().x;
}

/// The number of tiles; a cluster's count as one.
Value countTiles(gpu::LaunchOp launch) {
  OpBuilder host(launch);
  Value tiles = launch.getGridSizeX();
  if (Value size = launch.getClusterSizeX())
    tiles = arith::DivUIOp::create(host, launch.getLoc(), tiles, size);
  return tiles;
}

/// The tiles of one CTA (or cluster), which takes every `grid`-th one, or every `grid`-th
/// pair; or one of each `grid` in a row, from the other end every other time.
class Persistence {
public:
  Persistence(gpu::LaunchOp launch, int64_t ctas, std::optional<Pairs> pairs, bool turns)
      : pairs(pairs), turns(turns), b(launch), loc(launch.getLoc()), tiles(::countTiles(launch)),
        block(getUnit(launch)) {
    units = pairs ? Value(arith::CeilDivUIOp::create(b, loc, tiles, index(2))) : tiles;
    Value size = launch.getClusterSizeX(), most = index(ctas);
    if (size) {
      Value whole = arith::DivUIOp::create(b, loc, most, size);
      most = arith::MaxUIOp::create(b, loc, whole, index(1));
    }
    grid = arith::MinUIOp::create(b, loc, units, most);
    Value blocks = size ? Value(arith::MulIOp::create(b, loc, grid, size)) : grid;
    launch.getGridSizeXMutable().assign(blocks);
  }

  void run(Block *body) {
    b.setInsertionPointToStart(body);
    scf::ForOp loop = pairs   ? scf::ForOp::create(b, loc, index(0), countTiles(), index(1))
                      : turns ? scf::ForOp::create(b, loc, index(0), countTurns(), index(1))
                              : scf::ForOp::create(b, loc, block, tiles, grid);
    // There are no more CTAs than tiles, or pairs.
    loop->setAttr(hopper::kNonemptyAttr, b.getUnitAttr());
    Block *inside = loop.getBody();
    b.setInsertionPointToStart(inside);
    Value tile = loop.getInductionVar();
    if (pairs)
      tile = pairs->getTile(b, loc, getPlace(tile));
    else if (turns)
      tile = add(arith::MulIOp::create(b, loc, tile, grid), getTurn(tile));
    for (Operation &op : llvm::make_early_inc_range(llvm::make_range(
             std::next(loop->getIterator()), body->getTerminator()->getIterator()))) {
      op.moveBefore(inside->getTerminator());
      op.walk([&](Operation *user) { user->replaceUsesOfWith(block, tile); });
    }
  }

private:
  Value index(int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value subtract(Value x, Value y) { return arith::SubIOp::create(b, loc, x, y); }
  /// In 32 bits.
  Value divide(Value x, Value y) {
    auto narrow = [&](Value value) -> Value {
      return arith::IndexCastOp::create(b, loc, b.getI32Type(), value);
    };
    Value quotient = arith::DivUIOp::create(b, loc, narrow(x), narrow(y));
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), quotient);
  }

  /// Two for each pair but one that ends beyond the last tile.
  Value countTiles() {
    Value further = divide(subtract(subtract(units, block), index(1)), grid);
    Value whole = arith::MulIOp::create(b, loc, add(further, index(1)), index(2));
    Value final = getPlace(subtract(whole, index(1)));
    Value exists = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, final, tiles);
    Value lacking = arith::SelectOp::create(b, loc, exists, index(0), index(1));
    return subtract(whole, lacking);
  }

  /// The place in the order of this CTA's `step`-th tile.
  Value getPlace(Value step) {
    Value round = arith::ShRUIOp::create(b, loc, step, index(1));
    Value second = arith::AndIOp::create(b, loc, step, index(1));
    Value unit = add(block, arith::MulIOp::create(b, loc, round, grid));
    return add(arith::MulIOp::create(b, loc, unit, index(2)), second);
  }

  /// The place in the `round`-th row of `grid` tiles.
  Value getTurn(Value round) {
    Value backward = subtract(subtract(grid, index(1)), block);
    Value odd = arith::AndIOp::create(b, loc, round, index(1));
    Value isOdd = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, odd, index(0));
    return arith::SelectOp::create(b, loc, isOdd, backward, block);
  }

  /// One of each whole row, and of the rest if it is there.
  Value countTurns() {
    Value whole = divide(tiles, grid);
    Value rest = subtract(tiles, arith::MulIOp::create(b, loc, whole, grid));
    Value exists = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, getTurn(whole), rest);
    return add(whole, arith::SelectOp::create(b, loc, exists, index(1), index(0)));
  }

  std::optional<Pairs> pairs;
  bool turns;
  OpBuilder b;
  Location loc;
  Value tiles, block, units, grid;
};

struct ScheduleTilesPass : attn::impl::HopperScheduleTilesBase<ScheduleTilesPass> {
  using Base::Base;

  void runOnOperation() override {
    getOperation().walk([&](gpu::LaunchOp launch) {
      SmallVector<hopper::RolesOp> all(launch.getBody().front().getOps<hopper::RolesOp>());
      if (all.size() != 1)
        return;
      hopper::RolesOp roles = all.front();
      SmallVector<affine::AffineDelinearizeIndexOp> positions;
      roles.walk([&](affine::AffineDelinearizeIndexOp op) {
        if (op.getLinearIndex() == getUnit(launch))
          positions.push_back(op);
      });
      std::optional<Pairs> pairs;
      bool descends = launch->hasAttr(hopper::kDescendingAttr);
      // What one role does alone needs nothing to be early: CTAs share a multiprocessor.
      bool isPersistent = ctas > 0 && roles.getBodies().size() > 1;
      if (isPersistent && !descends && hasUnevenTiles(roles.getBodies().back(), positions)) {
        OpBuilder host(launch);
        Value line = getValueOrCreateConstantIndexOp(host, launch.getLoc(),
                                                     positions.front().getPaddedBasis().back());
        pairs.emplace(host, launch.getLoc(), countTiles(launch), line);
      }
      if (isPersistent) {
        Persistence persistence(launch, ctas, pairs, /*turns=*/descends);
        for (Region &region : roles.getBodies())
          persistence.run(&region.front());
      }
      if (positions.empty())
        return;
      Coordinates coordinates(launch, positions.front());
      for (affine::AffineDelinearizeIndexOp position : positions)
        coordinates.replace(position);
    });
  }
};

} // namespace
