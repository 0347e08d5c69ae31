// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products start as early as what they read allows: list scheduling of a block.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERORDERPRODUCTS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numOrdered("hopper-order-products", "ordered",
                             "Loops whose operations were put in order around products");

namespace {

class Scheduler {
public:
  explicit Scheduler(Block &block) : block(block) {}

  void run() {
    for (Operation &op : block.without_terminator()) {
      order.push_back(&op);
      if (isa<tile::MmaOp>(op))
        products.push_back(&op);
    }
    for (Operation *op : order)
      if (Operation *product = findMetProduct(op))
        vectors[product].push_back(op);
    // Vectors from memory are on their way while the first products are computed. Tiles from
    // shared memory are there before the products are, and would have to wait for what the
    // tensor core takes from the same memory.
    for (Operation *op : order)
      if (isVectorRead(op) || isTileRead(op))
        place(op);
    placeReady();
    isStart = false;
    waiting.clear();
    for (Operation *op : order)
      if (isa<tile::ReadOp>(op) && !findMetProduct(op) && isAvailable(op))
        place(op);
    for (Operation *op : order) {
      place(op);
      placeReady();
    }
    Operation *end = block.getTerminator();
    for (Operation *op : placed)
      op->moveBefore(end);
  }

private:
  /// A read of a row or column of global memory that nothing here writes.
  bool isVectorRead(Operation *op) {
    auto read = dyn_cast<vector::TransferReadOp>(op);
    return read && read.getVectorType().getRank() == 1 && isAvailable(op);
  }

  /// A read of a tile, not of a vector, in shared memory.
  bool isTileRead(Operation *op) {
    auto load = dyn_cast<tile::ReadOp>(op);
    return load && cast<VectorType>(load.getValue().getType()).getRank() == 2 && isAvailable(op);
  }

  /// For a vector in shared memory, the product whose result it meets first in
  /// arithmetic. It is read behind that product; and in front of the next one if that
  /// starts right away, or else it would wait for what the tensor core takes from the same
  /// memory.
  Operation *findMetProduct(Operation *op) {
    auto load = dyn_cast<tile::ReadOp>(op);
    if (!load || cast<VectorType>(load.getValue().getType()).getRank() != 1)
      return nullptr;
    llvm::SetVector<Operation *> followers;
    followers.insert(op);
    for (unsigned i = 0; i < followers.size(); ++i)
      for (Operation *user : followers[i]->getUsers()) {
        Operation *follower = block.findAncestorOpInBlock(*user);
        if (!follower)
          continue;
        Operation *met = nullptr;
        forEachSource(follower, [&](Operation *source) {
          if (Operation *product = followers.contains(source) ? nullptr : findLastProduct(source);
              product && (!met || met->isBeforeInBlock(product)))
            met = product;
        });
        if (met)
          return met;
        followers.insert(follower);
      }
    return nullptr;
  }

  /// The last product that `op` follows from, or is.
  Operation *findLastProduct(Operation *op) {
    if (isa<tile::MmaOp>(op))
      return op;
    if (auto known = lastProducts.find(op); known != lastProducts.end())
      return known->second;
    Operation *last = nullptr;
    forEachSource(op, [&](Operation *source) {
      Operation *product = findLastProduct(source);
      if (product && (!last || last->isBeforeInBlock(product)))
        last = product;
    });
    return lastProducts[op] = last;
  }

  /// Tiles, what they are addressed by (by a table, too), and the rounding of an operand
  /// come along with a product; whatever else is computed must be there.
  bool isAvailable(Operation *op) {
    bool available = true;
    forEachSource(op, [&](Operation *source) {
      bool comes = isa<tile::LoadOp, tile::RowsOp, tile::ColumnsOp, tile::ShareOp, memref::LoadOp,
                       arith::TruncFOp>(source) ||
                   (isPure(source) && source->getNumRegions() == 0 &&
                    llvm::none_of(source->getResultTypes(), llvm::IsaPred<VectorType>));
      available &= placed.contains(source) || (comes && isAvailable(source));
    });
    return available;
  }

  void forEachSource(Operation *op, function_ref<void(Operation *)> visit) {
    auto check = [&](Value value) {
      if (Operation *source = value.getDefiningOp(); source && source->getBlock() == &block)
        visit(source);
    };
    for (Value operand : op->getOperands())
      check(operand);
    for (Region &region : op->getRegions())
      visitUsedValuesDefinedAbove(region, [&](OpOperand *use) { check(use->get()); });
  }

  void place(Operation *op) {
    if (placed.contains(op))
      return;
    forEachSource(op, [&](Operation *source) { place(source); });
    if (isa<tile::MmaOp>(op)) {
      for (Operation *vector : std::exchange(waiting, {}))
        place(vector);
      if (isStart)
        waiting = vectors.lookup(op);
    }
    placed.insert(op);
  }

  /// Products that read what all warpgroups bring come behind the others, which run
  /// while the warpgroups wait for each other.
  void placeReady() {
    SmallVector<Operation *> shared;
    for (Operation *product : products) {
      if (placed.contains(product) || !isAvailable(product) || mustWait(product))
        continue;
      if (Operation *share = findShare(cast<tile::MmaOp>(product).getA())) {
        place(share);
        shared.push_back(product);
      } else {
        place(product);
      }
    }
    for (Operation *product : shared)
      place(product);
  }

  /// A wide operand in registers is rounded only when what it was computed with is no
  /// longer needed: in front of what all warpgroups bring.
  bool mustWait(Operation *product) {
    auto type = dyn_cast<VectorType>(cast<tile::MmaOp>(product).getA().getType());
    if (!type || type.getDimSize(1) <= kEarlyColumns)
      return false;
    return llvm::any_of(block.getOps<tile::ShareOp>(),
                        [&](Operation *share) { return !isAvailable(share); });
  }

  static constexpr int64_t kEarlyColumns = 64;

  static Operation *findShare(Value tile) {
    while (auto columns = tile.getDefiningOp<tile::ColumnsOp>())
      tile = columns.getSource();
    return tile.getDefiningOp<tile::ShareOp>();
  }

  Block &block;
  SmallVector<Operation *> order, products;
  /// Reads of vectors by the product that they meet; those of the last product.
  llvm::DenseMap<Operation *, SmallVector<Operation *>> vectors;
  llvm::DenseMap<Operation *, Operation *> lastProducts;
  SmallVector<Operation *> waiting;
  bool isStart = true; // while only what is there at first is placed
  llvm::SetVector<Operation *> placed;
};

/// Whether only reads, products, arithmetic, and additions to what nothing here
/// reads are in the block: nothing then depends on an order that its operands do
/// not tell.
bool isFree(Block &block) {
  return !block
              .walk([](Operation *op) {
                auto effects = dyn_cast<MemoryEffectOpInterface>(op);
                bool reads = effects && effects.onlyHasEffect<MemoryEffects::Read>();
                return reads || isa<tile::ShareOp, TileAddOp>(op) ||
                               op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() ||
                               isMemoryEffectFree(op)
                           ? WalkResult::advance()
                           : WalkResult::interrupt();
              })
              .wasInterrupted();
}

struct OrderProductsPass : attn::impl::HopperOrderProductsBase<OrderProductsPass> {
  void runOnOperation() override {
    SmallVector<Block *> blocks;
    getOperation().walk([&](scf::ForOp loop) {
      auto products = loop.getBody()->getOps<tile::MmaOp>();
      if (!products.empty() && isFree(*loop.getBody()))
        blocks.push_back(loop.getBody());
    });
    for (Block *block : blocks) {
      numOrdered.at(block->getParentOp());
      Scheduler(*block).run();
    }
  }
};

} // namespace
