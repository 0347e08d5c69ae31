// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Persistent CTAs, and the order in which they take the tiles.

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

/// How the work of a tile changes with its last coordinate.
enum class Work { Even, Grows, Shrinks };

/// By whether the bounds of a loop in the role depend on that coordinate: an end
/// that moves gives more work to later tiles, a start alone gives less.
Work getWork(Region &role) {
  affine::AffineDelinearizeIndexOp position;
  role.walk([&](affine::AffineDelinearizeIndexOp op) { position = op; });
  if (!position)
    return Work::Even;
  SetVector<Operation *> users;
  getForwardSlice(position.getResults().back(), &users);
  auto moves = [&](Value bound) {
    return bound.getDefiningOp() && users.contains(bound.getDefiningOp());
  };
  bool start = false, end = false;
  role.walk([&](scf::ForOp loop) {
    start |= moves(loop.getLowerBound());
    end |= moves(loop.getUpperBound());
  });
  return end ? Work::Grows : start ? Work::Shrinks : Work::Even;
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

/// The coordinates of tiles in 32 bits. Where work is uneven, the last coordinate
/// varies slowest, from its end with the most work.
class Coordinates {
public:
  Coordinates(gpu::LaunchOp launch, affine::AffineDelinearizeIndexOp position, Work work)
      : isSlowest(work != Work::Even), isReversed(work == Work::Grows) {
    OpBuilder host(launch);
    for (OpFoldResult size : position.getPaddedBasis())
      sizes.push_back(getValueOrCreateConstantIndexOp(host, launch.getLoc(), size));
    if (isSlowest)
      std::rotate(sizes.begin(), sizes.end() - 1, sizes.end());
    for (Value size : ArrayRef(sizes).drop_front())
      divisors.emplace_back(host, launch.getLoc(), size);
  }

  void replace(affine::AffineDelinearizeIndexOp position) {
    OpBuilder b(position);
    Location loc = position.getLoc();
    Value rest =
        arith::IndexCastOp::create(b, loc, b.getI32Type(), position.getLinearIndex());
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
    if (isReversed) {
      Value one = arith::ConstantIndexOp::create(b, loc, 1);
      Value end = arith::SubIOp::create(b, loc, sizes.front(), one);
      results[0] = arith::SubIOp::create(b, loc, end, results[0]);
    }
    if (isSlowest)
      std::rotate(results.begin(), results.begin() + 1, results.end());
    position.replaceAllUsesWith(results);
    position.erase();
  }

private:
  bool isSlowest, isReversed;
  SmallVector<Value> sizes;
  SmallVector<Divisor> divisors;
};

/// In every other round the CTAs take their tiles in the opposite order, so that
/// who had more work than the others has less. Carries whether the round is odd.
Value reverseOddRounds(OpBuilder &b, scf::ForOp loop, Value block, Value tiles, Value grid) {
  Location loc = loop.getLoc();
  Value tile = loop.getInductionVar();
  Value first = arith::SubIOp::create(b, loc, tile, block);
  Value next = arith::AddIOp::create(b, loc, first, grid);
  Value isWhole = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, next, tiles);
  Value reverses = arith::AndIOp::create(b, loc, isWhole, loop.getRegionIterArg(0));
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  Value last = arith::SubIOp::create(b, loc, next, one);
  Value reversed = arith::SubIOp::create(b, loc, last, block);
  return arith::SelectOp::create(b, loc, reverses, reversed, tile);
}

void persist(gpu::LaunchOp launch, hopper::RolesOp roles, int64_t ctas, bool uneven) {
  OpBuilder b(launch);
  Location loc = launch.getLoc();
  Value tiles = launch.getGridSizeX();
  Value count = arith::ConstantIndexOp::create(b, loc, ctas);
  Value grid = arith::MinUIOp::create(b, loc, tiles, count);
  launch.getGridSizeXMutable().assign(grid);
  Value block = launch.getBlockIds().x;
  for (Region &region : roles.getBodies()) {
    Block *body = &region.front();
    b.setInsertionPointToStart(body);
    SmallVector<Value> inits;
    if (uneven)
      inits.push_back(arith::ConstantIntOp::create(b, loc, 0, 1));
    auto loop = scf::ForOp::create(b, loc, block, tiles, grid, inits);
    if (loop.getBody()->mightHaveTerminator())
      loop.getBody()->getTerminator()->erase();
    b.setInsertionPointToStart(loop.getBody());
    Value tile = loop.getInductionVar();
    if (uneven)
      tile = reverseOddRounds(b, loop, block, tiles, grid);
    Block *inside = loop.getBody();
    Operation *before = inside->empty() ? nullptr : &inside->back();
    inside->getOperations().splice(inside->end(), body->getOperations(),
                                   std::next(loop->getIterator()),
                                   body->getTerminator()->getIterator());
    for (Operation &op : llvm::make_range(
             before ? std::next(before->getIterator()) : inside->begin(), inside->end()))
      op.walk([&](Operation *user) { user->replaceUsesOfWith(block, tile); });
    b.setInsertionPointToEnd(inside);
    SmallVector<Value> results;
    if (uneven) {
      Value yes = arith::ConstantIntOp::create(b, loc, 1, 1);
      results.push_back(arith::XOrIOp::create(b, loc, loop.getRegionIterArg(0), yes));
    }
    scf::YieldOp::create(b, loc, results);
  }
}

struct ScheduleTilesPass : attn::impl::HopperScheduleTilesBase<ScheduleTilesPass> {
  using Base::Base;

  void runOnOperation() override {
    getOperation().walk([&](gpu::LaunchOp launch) {
      SmallVector<hopper::RolesOp> all(launch.getBody().front().getOps<hopper::RolesOp>());
      if (all.size() != 1)
        return;
      hopper::RolesOp roles = all.front();
      Work work = getWork(roles.getBodies().back());
      SmallVector<affine::AffineDelinearizeIndexOp> positions;
      roles.walk([&](affine::AffineDelinearizeIndexOp op) { positions.push_back(op); });
      if (ctas > 0)
        persist(launch, roles, ctas, work != Work::Even);
      if (positions.empty())
        return;
      Coordinates coordinates(launch, positions.front(), work);
      for (affine::AffineDelinearizeIndexOp position : positions)
        coordinates.replace(position);
    });
  }
};

} // namespace
