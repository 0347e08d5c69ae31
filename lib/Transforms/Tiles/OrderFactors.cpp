// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of several factors multiply first what is there first.

#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_ATTNORDERFACTORS
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numOrdered("attn-order-factors", "ordered",
                             "Products that multiply what does not wait for a contraction first");

namespace {

/// The products of one block.
class Products {
public:
  explicit Products(Block &block) : block(block) {
    for (Operation &op : block) {
      Operation *latest = nullptr;
      op.walk([&](Operation *inner) {
        for (Value operand : inner->getOperands())
          latest = getLater(latest, getContraction(operand));
      });
      contractions[&op] = isa<vector::ContractionOp>(op) ? &op : latest;
    }
  }

  void run() {
    SmallVector<arith::MulFOp> roots;
    for (auto product : block.getOps<arith::MulFOp>())
      if (isa<VectorType>(product.getType()) && !isFactor(product))
        roots.push_back(product);
    for (arith::MulFOp root : roots)
      order(root);
  }

private:
  static Operation *getLater(Operation *x, Operation *y) {
    return !x || (y && x->isBeforeInBlock(y)) ? y : x;
  }

  /// The last contraction of the block that a value needs, or null.
  Operation *getContraction(Value value) {
    Operation *op = value.getDefiningOp();
    return op && op->getBlock() == &block ? contractions.lookup(op) : nullptr;
  }

  arith::MulFOp getProduct(Value value) {
    auto product = value.getDefiningOp<arith::MulFOp>();
    return product && product->getBlock() == &block ? product : arith::MulFOp();
  }

  /// Whether a product is only computed for another one.
  bool isFactor(arith::MulFOp product) {
    return product->hasOneUse() && isa<arith::MulFOp>(*product->user_begin()) &&
           product->user_begin()->getBlock() == &block;
  }

  void findFactors(arith::MulFOp product, SmallVectorImpl<Value> &factors) {
    for (Value operand : product->getOperands()) {
      arith::MulFOp inner = getProduct(operand);
      if (inner && isFactor(inner))
        findFactors(inner, factors);
      else
        factors.push_back(operand);
    }
  }

  /// Moves what `value` needs in front of a contraction that it does not need.
  bool hoist(Value value, Operation *contraction) {
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != &block || op->isBeforeInBlock(contraction))
      return true;
    bool moves = isMemoryEffectFree(op) ||
                 (isa<vector::TransferReadOp>(op) && !writesBetween(contraction, op));
    if (!moves || op->getNumRegions() > 0 ||
        !llvm::all_of(op->getOperands(), [&](Value x) { return hoist(x, contraction); }))
      return false;
    op->moveBefore(contraction);
    return true;
  }

  static bool writesBetween(Operation *first, Operation *last) {
    for (Operation *op = first; op != last; op = op->getNextNode())
      if (!isMemoryEffectFree(op) && !isa<vector::TransferReadOp>(op))
        return true;
    return false;
  }

  void order(arith::MulFOp root) {
    SmallVector<Value> factors;
    findFactors(root, factors);
    Operation *last = nullptr;
    for (Value factor : factors)
      last = getLater(last, getContraction(factor));
    auto isLate = [&](Value factor) { return getContraction(factor) == last; };
    if (factors.size() < 3 || !last || llvm::all_of(factors, isLate))
      return;
    llvm::stable_sort(factors, [&](Value x, Value y) { return !isLate(x) && isLate(y); });
    auto late = llvm::find_if(factors, isLate);
    if (late - factors.begin() < 2 ||
        !llvm::all_of(llvm::make_range(factors.begin(), late),
                      [&](Value factor) { return hoist(factor, last); }))
      return;
    numOrdered.at(root) << remark::metric("Factors", factors.size());
    OpBuilder b(last);
    Value result = factors.front();
    for (auto factor = factors.begin() + 1; factor != factors.end(); ++factor) {
      if (factor == late)
        b.setInsertionPoint(root);
      Operation *latest = getLater(getContraction(result), getContraction(*factor));
      result = arith::MulFOp::create(b, root.getLoc(), result, *factor, root.getFastmath());
      contractions[result.getDefiningOp()] = latest;
    }
    root.replaceAllUsesWith(result);
    erase(root);
  }

  /// A product that nothing uses, with those that were only computed for it.
  void erase(arith::MulFOp product) {
    SmallVector<Value> operands(product->getOperands());
    product.erase();
    for (Value operand : operands)
      if (arith::MulFOp inner = getProduct(operand); inner && inner->use_empty())
        erase(inner);
  }

  Block &block;
  llvm::DenseMap<Operation *, Operation *> contractions;
};

struct OrderFactorsPass : attn::impl::AttnOrderFactorsBase<OrderFactorsPass> {
  void runOnOperation() override {
    SmallVector<Block *> blocks;
    getOperation()->walk([&](Block *block) {
      if (!block->getOps<vector::ContractionOp>().empty())
        blocks.push_back(block);
    });
    for (Block *block : blocks)
      Products(*block).run();
  }
};

} // namespace
