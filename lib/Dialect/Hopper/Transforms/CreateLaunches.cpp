// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A tile program becomes a launch: its tiles are CTAs, its warpgroups the only role.

#include "Loops.h"
#include "Roles.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Programs.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERCREATELAUNCHES
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numCreated("hopper-create-launches", "created", "Programs that became launches");

namespace {

constexpr int64_t kThreadsPerWarp = 32;

class Creator {
public:
  Creator(scf::ForallOp forall, int64_t groupWarps)
      : forall(forall), b(forall), loc(forall.getLoc()), groupWarps(groupWarps) {}

  LogicalResult run() {
    if (failed(check()))
      return failure();
    WalkResult walk =
        forall.walk([&](tile::LoadOp load) { return WalkResult(hoist(load.getSource(), load)); });
    if (walk.wasInterrupted())
      return failure();
    createLaunch();
    createRole();
    numCreated.at(forall) << remark::metric("Warpgroups", warpgroups);
    forall.erase();
    return success();
  }

private:
  LogicalResult check() {
    for (Operation &op : forall.getBody()->without_terminator())
      if (auto loop = dyn_cast<scf::ForallOp>(op))
        inner = loop;
    if (!inner || !programs::isOfWarpgroups(inner) || !inner.isNormalized())
      return forall.emitOpError("expected rows divided among warpgroups "
                                "(hopper-distribute-rows) before their roles");
    if (!forall.isNormalized())
      return forall.emitOpError("expected loops from 0 in steps of 1");
    warpgroups = inner.getStaticUpperBound().front();
    if (inner.getRank() != 1 || warpgroups < 1 || warpgroups > 3)
      return inner.emitOpError("expected 1 to 3 warpgroups");
    return success();
  }

  /// Moves views of memory, which may stand in the branch that uses them, in front of the
  /// tiles: the host describes the memory to TMA.
  LogicalResult hoist(Value value, tile::LoadOp user) {
    if (!forall.getBodyRegion().isAncestor(value.getParentRegion()))
      return success();
    Operation *op = value.getDefiningOp();
    if (!op || op->getNumRegions() > 0 || !isPure(op)) {
      InFlightDiagnostic error = user->emitOpError("expects memory that no tile chooses");
      error.attachNote(value.getLoc()) << "chosen here";
      return error;
    }
    for (Value operand : op->getOperands())
      if (failed(hoist(operand, user)))
        return failure();
    op->moveBefore(forall);
    return success();
  }

  void createLaunch() {
    for (OpFoldResult bound : forall.getMixedUpperBound())
      sizes.push_back(getValueOrCreateConstantIndexOp(b, loc, bound));
    Value tiles = sizes.front();
    for (Value size : ArrayRef(sizes).drop_front())
      tiles = arith::MulIOp::create(b, loc, tiles, size);
    Value one = arith::ConstantIndexOp::create(b, loc, 1);
    Value threads =
        arith::ConstantIndexOp::create(b, loc, warpgroups * groupWarps * kThreadsPerWarp);
    launch = gpu::LaunchOp::create(b, loc, tiles, one, one, threads, one, one);
    if (forall->hasAttr(kDescendingAttr))
      launch->setAttr(kDescendingAttr, b.getUnitAttr());
    b.setInsertionPointToEnd(&launch.getBody().front());
    auto terminator = gpu::TerminatorOp::create(b, loc);
    b.setInsertionPoint(terminator);
    // What is the CTA's, not a warpgroup's.
    forall.walk([&](Operation *op) {
      if (isa<hopper::NamedBarriersOp, hopper::RedoOp, hopper::RunIfOp>(op))
        op->moveBefore(terminator);
    });
  }

  /// The body of both loops, of the tile with the number of this CTA.
  void createRole() {
    constexpr int64_t kMostRegisters = 240;
    int64_t registers =
        std::min(hopper::getInitialRegisters(warpgroups, /*occupancy=*/1), kMostRegisters);
    auto roles = hopper::RolesOp::create(b, loc, b.getStrArrayAttr({hopper::kComputeRole}),
                                         b.getDenseI64ArrayAttr(warpgroups),
                                         b.getDenseI64ArrayAttr(registers), /*bodiesCount=*/1);
    Block *body = b.createBlock(&roles.getBodies().front());
    body->addArgument(b.getIndexType(), loc);
    auto position =
        affine::AffineDelinearizeIndexOp::create(b, loc, launch.getBlockIds().x, ValueRange(sizes));
    IRMapping mapping;
    mapping.map(inner.getInductionVar(0), body->getArgument(0));
    mapping.map(forall.getInductionVars(), position.getResults());
    for (Operation &op : forall.getBody()->without_terminator()) {
      if (&op != inner) {
        b.clone(op, mapping);
        continue;
      }
      for (Operation &nested : inner.getBody()->without_terminator())
        b.clone(nested, mapping);
    }
    hopper::YieldOp::create(b, loc);
  }

  scf::ForallOp forall, inner;
  OpBuilder b;
  Location loc;
  int64_t groupWarps, warpgroups = 0;
  SmallVector<Value> sizes;
  gpu::LaunchOp launch;
};

struct CreateLaunchesPass : attn::impl::HopperCreateLaunchesBase<CreateLaunchesPass> {
  using Base::Base;
  void runOnOperation() override {
    if (groupWarps != 2 && groupWarps != 4) {
      getOperation().emitError("expected 2 or 4 warps for 64 rows, got ") << int64_t(groupWarps);
      return signalPassFailure();
    }
    for (scf::ForallOp forall : programs::findPrograms(getOperation()))
      if (failed(Creator(forall, groupWarps).run()))
        return signalPassFailure();
  }
};

} // namespace
