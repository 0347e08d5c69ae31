// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Warpgroups of a role take turns at the tensor core.

#include "Barriers.h"
#include "Loops.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/DenseSet.h"
#include <optional>

namespace attn {
#define GEN_PASS_DEF_HOPPERPINGPONG
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numTurns("hopper-ping-pong", "turns", "Roles whose warpgroups take turns");

namespace {

/// Values that may differ between the warpgroups of a role.
llvm::DenseSet<Value> collectDivergent(Region &role) {
  llvm::DenseSet<Value> divergent;
  divergent.insert(role.getArgument(0));
  role.walk<WalkOrder::PreOrder>([&](Operation *op) {
    bool depends =
        llvm::any_of(op->getOperands(), [&](Value value) { return divergent.contains(value); });
    if (depends)
      divergent.insert(op->result_begin(), op->result_end());
  });
  return divergent;
}

class Turns {
public:
  Turns(hopper::RolesOp roles, unsigned role)
      : region(roles.getBodies()[role]), warpgroups(roles.getWarpgroups()[role]) {}

  LogicalResult run() {
    if (meets())
      return success();
    llvm::DenseSet<Value> divergent = collectDivergent(region);
    SmallVector<SmallVector<hopper::WgmmaOp>> runs;
    bool failed = false;
    SmallVector<scf::ForOp> rests;
    std::optional<size_t> turnsOfTrimmed; // in an iteration
    region.walk([&](scf::ForOp loop) {
      size_t before = runs.size();
      if (loop->hasAttr(hopper::kTrimmedAttr) && loop.getBody()->getOps<hopper::WgmmaOp>().empty())
        rests.push_back(loop);
      SmallVector<hopper::WgmmaOp> current;
      for (Operation &op : *loop.getBody()) {
        if (auto product = dyn_cast<hopper::WgmmaOp>(op))
          current.push_back(product);
        bool ends = isa<hopper::WaitOp>(op) || op.hasTrait<OpTrait::IsTerminator>();
        if (ends && !current.empty())
          runs.push_back(std::exchange(current, {}));
      }
      if (size_t turns = runs.size() - before; turns && loop->hasAttr(hopper::kTrimmedAttr)) {
        if (!failed && turnsOfTrimmed.value_or(turns) != turns) {
          loop.emitOpError() << "takes " << turns << " turns in an iteration, another trimmed loop "
                             << *turnsOfTrimmed << ": what is left of them cannot be told apart";
          failed = true;
        }
        turnsOfTrimmed = turns;
      }
      if (runs.empty())
        return;
      for (Operation *parent = loop; parent && !isa<hopper::RolesOp>(parent);
           parent = parent->getParentOp()) {
        if (parent->hasAttr(hopper::kTrimmedAttr))
          continue; // its other loop takes the turns that are left
        auto controls = parent->getOperands().take_front(isa<scf::IfOp>(parent) ? 1 : 3);
        for (Value control : controls)
          if (!failed && divergent.contains(control)) {
            parent->emitOpError("depends on the warpgroup: warpgroups that do not run the same "
                                "iterations cannot take turns at the tensor core");
            failed = true;
          }
      }
    });
    if (failed)
      return failure();
    if (!runs.empty())
      numTurns.at(region.getLoc()) << remark::metric("Turns", runs.size());
    if (!runs.empty())
      insert(runs, rests, turnsOfTrimmed.value_or(0));
    return success();
  }

private:
  /// Whether warpgroups wait for each other in each iteration of a loop with products.
  bool meets() {
    return region
        .walk([](scf::ForOp loop) {
          bool found = false;
          if (programs::isInnermost(loop) && !loop.getBody()->getOps<hopper::WgmmaOp>().empty())
            loop.walk([&](hopper::BarrierSyncOp barrier) { found |= barrier.getWarpgroups() > 1; });
          return found ? WalkResult::interrupt() : WalkResult::advance();
        })
        .wasInterrupted();
  }

  /// An iteration of `rests` takes as many turns as one of the loops that were trimmed.
  void insert(ArrayRef<SmallVector<hopper::WgmmaOp>> runs, ArrayRef<scf::ForOp> rests,
              size_t turnsOfRest) {
    OpBuilder b = OpBuilder::atBlockBegin(&region.front());
    Location loc = region.getLoc();
    auto constant = [&](int64_t value) -> Value {
      return arith::ConstantIndexOp::create(b, loc, value);
    };
    Block *launch = region.getParentOp()->getBlock();
    Value ofFirst = hopper::createNamedBarriers(launch, loc, warpgroups);
    Value warpgroup = region.getArgument(0), one = constant(1);
    Value isLast = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, warpgroup,
                                         constant(warpgroups - 1));
    Value mine = arith::AddIOp::create(b, loc, warpgroup, ofFirst);
    Value following = arith::AddIOp::create(b, loc, mine, one);
    Value next = arith::SelectOp::create(b, loc, isLast, ofFirst, following);
    auto first = scf::IfOp::create(b, loc, isLast, /*withElseRegion=*/false);
    b.setInsertionPointToStart(first.thenBlock());
    hopper::BarrierArriveOp::create(b, loc, ofFirst, 2);
    for (scf::ForOp rest : rests) {
      b.setInsertionPointToStart(rest.getBody());
      for (size_t turn = 0; turn < turnsOfRest; ++turn) {
        hopper::BarrierSyncOp::create(b, loc, mine, 2);
        hopper::BarrierArriveOp::create(b, loc, next, 2);
      }
    }
    for (ArrayRef<hopper::WgmmaOp> products : runs) {
      hopper::WgmmaOp start = products.front(), end = products.back();
      b.setInsertionPoint(start);
      hopper::BarrierSyncOp::create(b, start.getLoc(), mine, 2);
      b.setInsertionPointAfter(end);
      hopper::BarrierArriveOp::create(b, end.getLoc(), next, 2);
    }
  }

  Region &region;
  int64_t warpgroups;
};

struct PingPongPass : attn::impl::HopperPingPongBase<PingPongPass> {
  void runOnOperation() override {
    WalkResult walk = getOperation().walk([](hopper::RolesOp roles) {
      for (auto [role, warpgroups] : llvm::enumerate(roles.getWarpgroups()))
        if (warpgroups > 1 && failed(Turns(roles, role).run()))
          return WalkResult::interrupt();
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
