// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-split-sums: sums that do not fit beside each other get passes of their own.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Transforms/Nest/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_ATTNSPLITSUMS
#include "attn/Transforms/Nest/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using linalg::GenericOp;

namespace {

/// Columns of a carried value: the last dimension, where it is static and there is
/// another one for the rows.
int64_t getColumns(Value state) {
  auto type = cast<RankedTensorType>(state.getType());
  if (type.getRank() < 2 || type.isDynamicDim(type.getRank() - 1))
    return 1;
  return type.getShape().back();
}

/// Whether no carried value is needed for another one.
bool isIndependent(FoldOp fold) {
  if (fold->getNumResults() != fold.getInits().size())
    return false;
  for (auto [position, state] : llvm::enumerate(fold.getState())) {
    Operation *sum = fold.getYield()->getOperand(position).getDefiningOp();
    for (Operation *user : state.getUsers())
      if (user != sum)
        return false;
    if (!sum || !sum->hasOneUse())
      return false;
  }
  return true;
}

void eraseDead(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

/// A fold with one of the carried values and what it needs.
FoldOp takeSum(FoldOp fold, unsigned position) {
  OpBuilder b(fold);
  Value init = fold.getInits()[position];
  // The whole fold first, then without what is not used.
  auto whole = cast<FoldOp>(b.clone(*fold));
  Operation *yield = whole.getYield();
  Value kept = yield->getOperand(position);
  yield->setOperands(kept);
  eraseDead(whole.getBody().front());
  SmallVector<Value> inputs;
  SmallVector<int64_t> dims;
  llvm::BitVector unused(whole.getBody().getNumArguments());
  for (auto [index, block] : llvm::enumerate(whole.getBlocks())) {
    if (block.use_empty()) {
      unused.set(block.getArgNumber());
      continue;
    }
    inputs.push_back(whole.getInputs()[index]);
    dims.push_back(whole.getStreamDims()[index]);
  }
  for (auto [index, state] : llvm::enumerate(whole.getState()))
    if (index != position)
      unused.set(state.getArgNumber());
  auto part = FoldOp::create(b, fold.getLoc(), TypeRange(init.getType()), fold.getExtent(), inputs,
                             ValueRange(init), dims, ArrayRef<int64_t>());
  part->setDiscardableAttrs(fold->getDiscardableAttrDictionary());
  unsigned states = whole.getState().size();
  part.getBody().takeBody(whole.getBody());
  part.getBody().front().eraseArguments(unused);
  if (!whole.getMerge().empty()) {
    part.getMerge().takeBody(whole.getMerge());
    Block &merge = part.getMerge().front();
    Operation *merged = merge.getTerminator();
    Value value = merged->getOperand(position);
    merged->setOperands(value);
    eraseDead(merge);
    llvm::BitVector others(2 * states, true);
    others.reset(position);
    others.reset(states + position);
    merge.eraseArguments(others);
  }
  whole.erase();
  return part;
}

struct SplitSumsPass : attn::impl::AttnSplitSumsBase<SplitSumsPass> {
  using AttnSplitSumsBase::AttnSplitSumsBase;

  void runOnOperation() override {
    SmallVector<FoldOp> folds;
    getOperation().walk([&](FoldOp fold) { folds.push_back(fold); });
    for (FoldOp fold : folds) {
      int64_t sum = 0;
      for (Value state : fold.getState())
        sum += getColumns(state);
      if (fold.getInits().size() < 2 || sum <= columns || !isIndependent(fold))
        continue;
      for (unsigned position = 0; position < fold->getNumResults(); ++position)
        fold->getResult(position).replaceAllUsesWith(takeSum(fold, position)->getResult(0));
      fold.erase();
    }
  }
};

} // namespace
