// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products become asynchronous: started in their place, waited for at the
// first use, tiles given back when nothing reads them any more.

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERSTARTPRODUCTS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numStarted("hopper-start-products", "started",
                             "Products that run while other operations do");

namespace {

struct Flight {
  hopper::WgmmaOp product;
  Value result; // of the tile.mma that it replaces
  SmallVector<hopper::ReleaseOp> releases;
};

/// The channel that a tile was received from.
Value getChannel(Value tile) {
  while (isa_and_nonnull<tile::RowsOp, tile::ColumnsOp>(tile.getDefiningOp()))
    tile = tile.getDefiningOp()->getOperand(0);
  if (auto held = tile.getDefiningOp<hopper::HeldOp>())
    return held.getChannel();
  auto receive = tile.getDefiningOp<hopper::ReceiveOp>();
  return receive ? receive.getChannel() : Value();
}

/// Products in flight at a time. Each keeps the registers and tiles of its operands.
constexpr size_t kMostFlights = 3;

/// One block: products in flight in the order in which they were started.
class BlockStarter {
public:
  void run(Block &block) {
    for (Operation &op : llvm::make_early_inc_range(block)) {
      settleUses(&op);
      if (auto product = dyn_cast<tile::MmaOp>(op)) {
        start(product);
      } else if (auto release = dyn_cast<hopper::ReleaseOp>(op)) {
        defer(release);
      } else if (isa<hopper::ReceiveOp>(op)) {
        settle(&op, countBefore(&op));
      } else if (op.hasTrait<OpTrait::IsTerminator>()) {
        settle(&op, flights.size());
      } else if (op.getNumRegions()) {
        bool hasProducts =
            op.walk([](tile::MmaOp) { return WalkResult::interrupt(); }).wasInterrupted();
        settle(&op, hasProducts ? flights.size() : countBefore(&op));
        for (Region &region : op.getRegions())
          for (Block &nested : region)
            BlockStarter().run(nested);
      }
    }
    for (Operation *op : finished)
      op->erase();
  }

private:
  void start(tile::MmaOp product) {
    numStarted.at(product);
    if (flights.size() == kMostFlights)
      settle(product, 1);
    OpBuilder b(product);
    Value accumulator = product.getAccumulator();
    if (matchPattern(accumulator, m_AnyZeroFloat()))
      accumulator = {};
    auto type = hopper::PendingType::get(b.getContext(), product.getResult().getType());
    auto started =
        hopper::WgmmaOp::create(b, product.getLoc(), type, product.getA(), product.getB(),
                                accumulator, product.getTransposeA(), product.getTransposeB());
    flights.push_back({started, product.getResult(), {}});
    finished.push_back(product);
  }

  void defer(hopper::ReleaseOp release) {
    for (Flight &flight : llvm::reverse(flights))
      for (Value tile : flight.product->getOperands().take_front(2))
        if (isa<tile::SmemType>(tile.getType()) && getChannel(tile) == release.getChannel()) {
          flight.releases.push_back(release);
          return;
        }
  }

  /// Products whose tiles must have been given back when an op begins that receives
  /// more of the same channel: it may need their room.
  size_t countBefore(Operation *op) {
    size_t needed = 0;
    op->walk([&](hopper::ReceiveOp receive) {
      for (auto [i, flight] : llvm::enumerate(flights))
        if (llvm::any_of(flight.releases, [&](hopper::ReleaseOp release) {
              return release.getChannel() == receive.getChannel();
            }))
          needed = std::max(needed, i + 1);
    });
    return needed;
  }

  void settleUses(Operation *op) {
    size_t needed = 0;
    auto check = [&](Value value) {
      for (auto [i, flight] : llvm::enumerate(flights))
        if (flight.result == value)
          needed = std::max(needed, i + 1);
    };
    for (Value operand : op->getOperands())
      check(operand);
    for (Region &region : op->getRegions())
      visitUsedValuesDefinedAbove(region, [&](OpOperand *use) { check(use->get()); });
    for (auto [i, flight] : llvm::enumerate(flights))
      if (replacesOperand(op, flight.product))
        needed = std::max(needed, i + 1);
    settle(op, needed);
  }

  /// Whether `op` makes what the next iteration has in place of the product's left
  /// operand: the same registers, which the product still reads.
  static bool replacesOperand(Operation *op, hopper::WgmmaOp product) {
    auto argument = dyn_cast<BlockArgument>(product.getA());
    if (!argument || !isa<VectorType>(argument.getType()))
      return false;
    auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
    if (!loop || argument.getArgNumber() == 0)
      return false;
    return loop.getYieldedValues()[argument.getArgNumber() - 1].getDefiningOp() == op;
  }

  /// Waits in front of `op` for the `count` oldest products.
  void settle(Operation *op, size_t count) {
    OpBuilder b(op);
    size_t pending = flights.size() - count;
    for (Flight &flight : MutableArrayRef(flights).take_front(count)) {
      auto wait = hopper::WaitOp::create(b, flight.product.getLoc(), flight.result.getType(),
                                         flight.product.getResult(), pending);
      flight.result.replaceAllUsesWith(wait.getResult());
      for (hopper::ReleaseOp release : flight.releases)
        release->moveBefore(op);
    }
    flights.erase(flights.begin(), flights.begin() + count);
  }

  SmallVector<Flight> flights;
  SmallVector<Operation *> finished;
};

struct StartProductsPass : attn::impl::HopperStartProductsBase<StartProductsPass> {
  void runOnOperation() override {
    getOperation().walk([](hopper::RolesOp roles) {
      for (Region &region : roles.getBodies())
        BlockStarter().run(region.front());
    });
  }
};

} // namespace
