// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The first product of an iteration is computed in the one before.

#include "Loops.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Transforms/Programs/Memory.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERADVANCEPRODUCTS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numAdvanced("hopper-advance-products", "advanced",
                              "Loops that start the first product of the next iteration");

namespace {

class Advancer {
public:
  explicit Advancer(scf::ForOp loop) : loop(loop) {}

  /// Whether the first product can come early; finds what it takes.
  bool analyze() {
    SmallVector<tile::MmaOp> products(loop.getBody()->getOps<tile::MmaOp>());
    if (products.size() < 2)
      return false;
    first = products.front();
    last = products.back();
    if (!matchPattern(first.getAccumulator(), m_AnyZeroFloat()) ||
        !loop.isDefinedOutsideOfLoop(first.getAccumulator()))
      return false;
    for (Value operand : first->getOperands().take_front(2))
      if (!loop.isDefinedOutsideOfLoop(operand) && !findReceive(operand))
        return false;
    return receive && findUses() && findAddress();
  }

  void run() {
    advanceSend();
    IRRewriter b(loop.getContext());
    b.setInsertionPoint(loop);
    Value start = createProduct(b);
    b.setInsertionPointAfter(last->isBeforeInBlock(release) ? release.getOperation()
                                                            : last.getOperation());
    Value next = createProduct(b);
    b.setInsertionPoint(receive);
    Location loc = receive.getLoc();
    Value channel = receive.getChannel();
    b.replaceOpWithNewOp<hopper::HeldOp>(receive, receive.getTile().getType(), channel);
    auto yieldNext = [&](OpBuilder &, Location, ArrayRef<BlockArgument>) {
      return SmallVector<Value>{next};
    };
    // Nothing else makes this fail than a loop that is none.
    auto carried =
        cast<scf::ForOp>(loop.replaceWithAdditionalYields(
                                 b, start, /*replaceInitOperandUsesInLoop=*/false, yieldNext)
                             ->getOperation());
    b.replaceOp(first, carried.getRegionIterArgs().back());
    b.setInsertionPointAfter(carried);
    hopper::ReleaseOp::create(b, loc, channel);
  }

private:
  /// What is received in the loop and seen through views.
  bool findReceive(Value tile) {
    while (isa_and_nonnull<tile::RowsOp, tile::ColumnsOp>(tile.getDefiningOp())) {
      Operation *view = tile.getDefiningOp();
      if (!loop.isDefinedOutsideOfLoop(view->getOperand(1)))
        return false;
      views.insert(views.begin(), view);
      tile = view->getOperand(0);
    }
    auto source = tile.getDefiningOp<hopper::ReceiveOp>();
    if (!source || receive || source->getBlock() != loop.getBody())
      return false;
    receive = source;
    return true;
  }

  /// The one send and the one release of the channel.
  bool findUses() {
    for (Operation *user : receive.getChannel().getUsers()) {
      if (auto op = dyn_cast<hopper::SendOp>(user); op && !send)
        send = op;
      else if (auto op = dyn_cast<hopper::ReleaseOp>(user); op && !release)
        release = op;
      else if (user != receive)
        return false;
    }
    return send && release && release->getBlock() == loop.getBody();
  }

  /// What the copy's place follows from, in its loop.
  bool findAddress() {
    copies = dyn_cast<scf::ForOp>(send->getParentOp());
    if (!copies || !programs::isInnermost(copies))
      return false;
    BackwardSliceOptions options;
    options.inclusive = true;
    options.filter = [&](Operation *op) { return op->getBlock() == copies.getBody(); };
    SmallVector<Value> places(send.getIndices());
    if (Value some = send.getSome())
      places.push_back(some);
    for (Value index : places)
      if (index.getDefiningOp() && failed(getBackwardSlice(index, &address, options)))
        return false;
    auto roles = loop->getParentOfType<hopper::RolesOp>();
    return llvm::all_of(address, [&](Operation *op) {
      if (auto load = dyn_cast<memref::LoadOp>(op)) {
        readsTable = true;
        return roles && !programs::isWrittenIn(roles, cast<MemrefValue>(load.getMemRef()));
      }
      return isPure(op) && op->getNumRegions() == 0;
    });
  }

  /// The first tile in front of the loop; then each one behind the other copies of the
  /// iteration before, which that one is waiting for.
  void advanceSend() {
    OpBuilder b(copies);
    auto copyAt = [&](Value at) {
      IRMapping mapping;
      mapping.map(copies.getInductionVar(), at);
      for (Operation *op : address)
        b.clone(*op, mapping);
      b.clone(*send, mapping);
    };
    copyAt(copies.getLowerBound());
    b.setInsertionPoint(copies.getBody()->getTerminator());
    Location loc = send.getLoc();
    Value next = arith::AddIOp::create(b, loc, copies.getInductionVar(), copies.getStep());
    if (readsTable) { // has no entry beyond the last one, which is sent once more
      Value isInside =
          arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, next, copies.getUpperBound());
      next = arith::SelectOp::create(b, loc, isInside, next, copies.getInductionVar());
    }
    copyAt(next);
    send.erase();
  }

  Value createProduct(OpBuilder &b) {
    IRMapping mapping;
    b.clone(*receive, mapping);
    for (Operation *view : views)
      b.clone(*view, mapping);
    return b.clone(*first, mapping)->getResult(0);
  }

  scf::ForOp loop, copies;
  tile::MmaOp first, last;
  hopper::ReceiveOp receive;
  hopper::SendOp send;
  hopper::ReleaseOp release;
  SmallVector<Operation *> views;
  SetVector<Operation *> address;
  bool readsTable = false;
};

struct AdvanceProductsPass : attn::impl::HopperAdvanceProductsBase<AdvanceProductsPass> {
  void runOnOperation() override {
    for (scf::ForOp loop : hopper::getInnermostLoops(getOperation()))
      if (Advancer advancer(loop); advancer.analyze()) {
        numAdvanced.at(loop);
        advancer.run();
      }
  }
};

} // namespace
