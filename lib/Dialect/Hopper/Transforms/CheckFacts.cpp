// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a fact of a hopper program says is compared with what is there.

#include "attn/Dialect/Hopper/Transforms/CheckFacts.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Tiles/CheckFacts.h"
#include "attn/Utils/Memory.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERCHECKFACTS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using namespace attn::hopper;

namespace {

class Checker {
public:
  LogicalResult run(Operation *root) {
    root->walk([&](Operation *op) {
      if (auto launch = dyn_cast<gpu::LaunchOp>(op))
        checkLaunch(launch);
      else if (op->hasAttr(kNonemptyAttr))
        checkNonempty(cast<scf::ForOp>(op));
      else if (op->hasAttr(kAliasesAttr))
        checkAliases(cast<memref::AllocOp>(op));
      if (auto roles = dyn_cast<RolesOp>(op))
        for (Region &role : roles.getBodies())
          checkTrimmed(role);
    });
    return success(isTrue);
  }

private:
  /// Says what is wrong with a fact; with a note at another op, if there is one that shows it.
  void error(Operation *op, StringRef fact, const Twine &text, Operation *at = nullptr,
             StringRef note = {}) {
    isTrue = false;
    InFlightDiagnostic error = op->emitError() << "'" << fact << "' " << text;
    if (at)
      error.attachNote(at->getLoc()) << note;
  }

  //===--------------------------------------------------------------------===//
  // Launches
  //===--------------------------------------------------------------------===//

  void checkLaunch(gpu::LaunchOp launch) {
    checkAdding(launch);
    checkSemaphores(launch);
    SmallVector<affine::AffineDelinearizeIndexOp> positions = findPositions(launch);
    if (launch->hasAttr(kDealtAttr) && !positions.empty())
      error(launch, kDealtAttr, "on a launch whose CTAs have the tile of their number",
            positions.front(), "found from the number here");
    if (launch->hasAttr(kDescendingAttr))
      for (affine::AffineDelinearizeIndexOp position : positions)
        if (!isEntryOfOrder(position.getResult(0)))
          error(launch, kDescendingAttr, "on a launch whose tiles are in no order that was sorted",
                position, "this number is of no entry of an order");
  }

  /// What makes the coordinates of a tile of the number of a CTA, or of a cluster.
  static SmallVector<affine::AffineDelinearizeIndexOp> findPositions(gpu::LaunchOp launch) {
    std::optional<gpu::KernelDim3> clusters = launch.getClusterIds();
    Value number = clusters ? clusters->x : launch.getBlockIds().x;
    SmallVector<affine::AffineDelinearizeIndexOp> positions;
    for (Operation *user : number.getUsers())
      if (auto position = dyn_cast<affine::AffineDelinearizeIndexOp>(user))
        positions.push_back(position);
    return positions;
  }

  /// Whether a CTA may wait for another one here.
  static bool mayWait(SemaphoreWaitOp wait) { return !isConstantIntValue(wait.getNumber(), -1); }

  void checkSemaphores(gpu::LaunchOp launch) {
    if (launch->hasAttr(kCooperativeAttr))
      return;
    launch.walk([&](Operation *op) {
      auto wait = dyn_cast<SemaphoreWaitOp>(op);
      if (wait ? !mayWait(wait) : !isa<GridSyncOp>(op))
        return WalkResult::advance();
      error(launch, kCooperativeAttr, "is missing: CTAs wait for each other", op, "here");
      return WalkResult::interrupt();
    });
  }

  //===--------------------------------------------------------------------===//
  // Loops of roles
  //===--------------------------------------------------------------------===//

  /// The innermost loop around an op of a role, if there is no other loop in it.
  static scf::ForOp getInnermost(Operation *op) {
    auto loop = op->getParentOfType<scf::ForOp>();
    if (!loop || !loop->getParentOfType<RolesOp>())
      return {};
    WalkResult walk = loop.getBody()->walk([](scf::ForOp) { return WalkResult::interrupt(); });
    return walk.wasInterrupted() ? scf::ForOp() : loop;
  }

  /// Loops on both sides of a channel go through the same tiles: all of them are those of an
  /// addition, or none.
  void checkChannel(ChannelOp channel) {
    scf::ForOp adding, other;
    for (Operation *user : channel.getChannel().getUsers()) {
      scf::ForOp loop = getInnermost(user);
      if (!loop)
        return; // of some iterations that were taken out
      (loop->hasAttr(kAddingAttr) ? adding : other) = loop;
    }
    if (adding && other)
      error(other, kAddingAttr, "is missing on a loop that passes on the tiles of one that has it",
            adding, "that loop");
  }

  void checkAdding(gpu::LaunchOp launch) {
    llvm::SmallPtrSet<Region *, 4> adders;
    launch.walk([&](Operation *op) {
      if (auto channel = dyn_cast<ChannelOp>(op))
        checkChannel(channel);
      if (!isa<AddOp, TmaReduceOp>(op))
        return;
      adders.insert(getRole(op));
      auto loop = op->getParentOfType<scf::ForOp>();
      if (isa<AddOp>(op) && loop && !loop->hasAttr(kAddingAttr))
        error(loop, kAddingAttr, "is missing on a loop whose tiles a role adds to memory", op,
              "added here");
    });
    launch.walk([&](scf::ForOp loop) {
      if (!loop->hasAttr(kAddingAttr))
        return;
      auto outer = loop->getParentOfType<scf::ForOp>();
      while (outer && !outer->hasAttr(kAddingAttr))
        outer = outer->getParentOfType<scf::ForOp>();
      if (outer)
        error(loop, kAddingAttr, "on a loop inside of another one that has it", outer, "that loop");
      else if (adders.empty())
        error(loop, kAddingAttr, "in a launch that adds no tiles to memory");
      else if (adders.contains(getRole(loop)) && !adds(loop))
        error(loop, kAddingAttr, "on a loop of the adding role that adds nothing");
    });
  }

  static bool adds(scf::ForOp loop) {
    auto find = [](Operation *op) {
      return isa<AddOp, TmaReduceOp>(op) ? WalkResult::interrupt() : WalkResult::advance();
    };
    return loop.walk(find).wasInterrupted();
  }

  /// What a warpgroup leaves out of a loop, another one of its role passes on.
  void checkTrimmed(Region &role) {
    SmallVector<scf::ForOp> loops, rests;
    role.walk([&](scf::ForOp loop) {
      if (!loop->hasAttr(kTrimmedAttr))
        return;
      auto find = [](Operation *op) {
        return isa<tile::MmaOp, WgmmaOp>(op) ? WalkResult::interrupt() : WalkResult::advance();
      };
      (loop.walk(find).wasInterrupted() ? loops : rests).push_back(loop);
    });
    if (loops.size() != rests.size())
      error(loops.empty() ? rests.back() : loops.back(), kTrimmedAttr,
            "on " + Twine(loops.size()) + " loops with products and " + Twine(rests.size()) +
                " that pass on the tiles which these leave out; expected as many");
  }

  /// Only a loop over the tiles of a CTA, of which each CTA has one, is known to run.
  void checkNonempty(scf::ForOp loop) {
    auto outer = loop->getParentOfType<scf::ForOp>();
    if (!loop->getParentOfType<RolesOp>())
      error(loop, kNonemptyAttr, "on a loop outside of a role");
    else if (outer)
      error(loop, kNonemptyAttr, "on a loop that is not over the tiles of a CTA", outer,
            "inside of this one");
  }

  //===--------------------------------------------------------------------===//
  // Memory
  //===--------------------------------------------------------------------===//

  /// What lies in an output is not needed any more when that is written.
  void checkAliases(memref::AllocOp alloc) {
    FailureOr<Value> aliased = findAliased(alloc, alloc->getAttrOfType<IntegerAttr>(kAliasesAttr));
    if (failed(aliased)) {
      isTrue = false;
      return;
    }
    Block *block = alloc->getBlock();
    Operation *last = alloc;
    for (Operation *access : collectAccesses(alloc))
      if (Operation *place = block->findAncestorOpInBlock(*access);
          place && !isa<memref::DeallocOp>(access) && last->isBeforeInBlock(place))
        last = place;
    for (Operation *access : collectAccesses(*aliased)) {
      // A description for TMA is no access.
      if (isa<TensorMapOp, TmaReachesOp>(access))
        continue;
      if (Operation *place = block->findAncestorOpInBlock(*access);
          place && !last->isBeforeInBlock(place))
        return error(alloc, kAliasesAttr, "on memory that is needed when its argument is accessed",
                     access, "accessed here");
    }
  }

  bool isTrue = true;
};

struct CheckFactsPass : attn::impl::HopperCheckFactsBase<CheckFactsPass> {
  void runOnOperation() override {
    if (failed(checkHopperFacts(getOperation())))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace

LogicalResult attn::hopper::checkHopperFacts(Operation *root) { return Checker().run(root); }
