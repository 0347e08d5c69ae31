// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows and columns of global memory are read one iteration ahead.

#include "Loops.h"
#include "Memory.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERPREFETCHREADS
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

class Prefetcher {
public:
  explicit Prefetcher(scf::ForOp loop) : loop(loop), b(loop) {}

  bool run() {
    for (auto product : loop.getBody()->getOps<hopper::MmaOp>())
      last = product;
    for (auto read : loop.getBody()->getOps<vector::TransferReadOp>())
      if (last && isAhead(read))
        reads.push_back(read);
    if (reads.empty())
      return false;
    SmallVector<Value> first = readFirst();
    b.setInsertionPointAfter(last);
    // The last iteration has nothing ahead: it reads its own again.
    Location loc = loop.getLoc();
    Value iv = loop.getInductionVar();
    Value next = arith::AddIOp::create(b, loc, iv, loop.getStep());
    Value isInside =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, next, loop.getUpperBound());
    next = arith::SelectOp::create(b, loc, isInside, next, iv);
    SmallVector<Value> ahead;
    for (vector::TransferReadOp read : reads)
      ahead.push_back(readAt(read, next));
    IRRewriter rewriter(b.getContext());
    auto yieldAhead = [&](OpBuilder &, Location, ArrayRef<BlockArgument>) { return ahead; };
    FailureOr<LoopLikeOpInterface> made = loop.replaceWithAdditionalYields(
        rewriter, first, /*replaceInitOperandUsesInLoop=*/false, yieldAhead);
    if (failed(made))
      return false;
    auto carried = cast<scf::ForOp>(made->getOperation());
    for (auto [read, argument] :
         llvm::zip_equal(reads, carried.getRegionIterArgs().take_back(reads.size()))) {
      read.replaceAllUsesWith(argument);
      vector::TransferReadOp(read).erase();
    }
    return true;
  }

private:
  /// A row or column, in front of the last product, that follows from the loop's
  /// variable and is not written in the loop.
  bool isAhead(vector::TransferReadOp read) {
    auto memref = dyn_cast<MemrefValue>(read.getBase());
    if (!memref || read.getVectorType().getRank() != 1 || read.getMask() ||
        !read->isBeforeInBlock(last))
      return false;
    SmallVector<Operation *> slice;
    return hasIndices(read, slice) && !hopper::isWrittenIn(loop, memref);
  }

  /// Whether what addresses the read is arithmetic on the loop's variable; `slice`
  /// is that arithmetic in order, with the read at its end.
  bool hasIndices(vector::TransferReadOp read, SmallVectorImpl<Operation *> &slice) {
    llvm::SetVector<Operation *> ops;
    bool usesVariable = false;
    std::function<bool(Value)> add = [&](Value value) {
      usesVariable |= value == loop.getInductionVar();
      if (loop.isDefinedOutsideOfLoop(value))
        return true;
      Operation *op = value.getDefiningOp();
      if (!op)
        return value == loop.getInductionVar();
      if (!isPure(op) || op->getNumRegions() > 0)
        return false;
      for (Value operand : op->getOperands())
        if (!add(operand))
          return false;
      ops.insert(op);
      return true;
    };
    for (Value operand : read->getOperands())
      if (!add(operand))
        return false;
    if (!usesVariable)
      return false;
    ops.insert(read);
    slice.assign(ops.begin(), ops.end());
    return true;
  }

  /// What the first iteration reads; a loop without iterations reads nothing.
  SmallVector<Value> readFirst() {
    Location loc = loop.getLoc();
    Value runs = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, loop.getLowerBound(),
                                       loop.getUpperBound());
    SmallVector<Type> types;
    for (vector::TransferReadOp read : reads)
      types.push_back(read.getVectorType());
    auto branch = scf::IfOp::create(b, loc, types, runs, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    for (bool isRead : {true, false}) {
      b.setInsertionPointToStart(isRead ? branch.thenBlock() : branch.elseBlock());
      SmallVector<Value> values;
      for (vector::TransferReadOp read : reads)
        values.push_back(
            isRead ? readAt(read, loop.getLowerBound())
                   : Value(arith::ConstantOp::create(b, loc, b.getZeroAttr(read.getVectorType()))));
      scf::YieldOp::create(b, loc, values);
    }
    return SmallVector<Value>(branch.getResults());
  }

  Value readAt(vector::TransferReadOp read, Value at) {
    IRMapping mapping;
    mapping.map(loop.getInductionVar(), at);
    SmallVector<Operation *> slice;
    hasIndices(read, slice);
    Operation *copy = nullptr;
    for (Operation *op : slice)
      copy = b.clone(*op, mapping);
    return copy->getResult(0);
  }

  scf::ForOp loop;
  OpBuilder b;
  hopper::MmaOp last;
  SmallVector<vector::TransferReadOp> reads;
};

struct PrefetchReadsPass : attn::impl::HopperPrefetchReadsBase<PrefetchReadsPass> {
  void runOnOperation() override {
    for (scf::ForOp loop : hopper::getInnermostLoops(getOperation()))
      Prefetcher(loop).run();
  }
};

} // namespace
