// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Persistent CTAs, where they pay, and the coordinates of tiles in 32 bits. The orders in which
// CTAs take tiles are in TileOrders.cpp.

#include "Loops.h"
#include "TileOrders.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Division.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/Slices.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Transforms/RegionUtils.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERSCHEDULETILES
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numPersistent("hopper-schedule-tiles", "persistent",
                                "Launches of CTAs that take several tiles each");
static attn::Done numReversed("hopper-schedule-tiles", "reversed",
                              "Launches that start with their last tile");

namespace {

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
      const programs::Divisor &divisor = divisors[k - 1];
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
  SmallVector<programs::Divisor> divisors;
};

struct ScheduleTilesPass : attn::impl::HopperScheduleTilesBase<ScheduleTilesPass> {
  using Base::Base;

  static bool followsLaunch(gpu::LaunchOp launch) {
    for (Operation *op = launch->getPrevNode(); op; op = op->getPrevNode())
      if (isa<gpu::LaunchOp>(op))
        return true;
    return false;
  }

  /// Whether loops are the longer the larger the last coordinate is, as those of a causal mask.
  static bool growsAlong(Region &role, ArrayRef<affine::AffineDelinearizeIndexOp> positions) {
    if (positions.size() != 1)
      return false;
    Value last = positions.front()->getResults().back();
    auto depends = [&](Value bound) {
      return followsFrom(bound, [&](Value each) { return each == last; });
    };
    WalkResult walk = role.walk([&](scf::ForOp loop) {
      bool loads = !loop.getBody()->getOps<tile::LoadOp>().empty();
      return loads && depends(loop.getUpperBound()) && !depends(loop.getLowerBound())
                 ? WalkResult::interrupt()
                 : WalkResult::advance();
    });
    return walk.wasInterrupted();
  }

  /// The last tile first.
  static void reverse(gpu::LaunchOp launch, Region &role) {
    OpBuilder b(role);
    Location loc = launch.getLoc();
    Value block = hopper::getUnit(launch), one = arith::ConstantIndexOp::create(b, loc, 1);
    Value last = arith::SubIOp::create(b, loc, launch.getGridSize().x, one);
    Value tile = arith::SubIOp::create(b, loc, last, block);
    replaceAllUsesInRegionWith(block, tile, role);
    tile.getDefiningOp()->replaceUsesOfWith(tile, block);
  }

  void runOnOperation() override {
    getOperation().walk([&](gpu::LaunchOp launch) {
      SmallVector<hopper::RolesOp> all(launch.getBody().front().getOps<hopper::RolesOp>());
      if (all.size() != 1)
        return;
      hopper::RolesOp roles = all.front();
      SmallVector<affine::AffineDelinearizeIndexOp> positions;
      bool isDealt = launch->hasAttr(hopper::kDealtAttr);
      roles.walk([&](affine::AffineDelinearizeIndexOp op) {
        if (isDealt || op.getLinearIndex() == hopper::getUnit(launch))
          positions.push_back(op);
      });
      // What one role does alone needs nothing to be early: CTAs share a multiprocessor.
      bool isAlone = roles.getBodies().size() == 1 && !launch.getClusterIds();
      if (isAlone && !isDealt &&
          (followsLaunch(launch) || growsAlong(roles.getBodies().front(), positions))) {
        numReversed.at(launch);
        reverse(launch, roles.getBodies().front());
      } else if (ctas > 0 && roles.getBodies().size() > 1 && !isDealt) {
        numPersistent.at(launch);
        hopper::makePersistent(launch, roles, positions, ctas);
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
