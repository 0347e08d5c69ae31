// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-split-sums: sums that do not fit beside each other get passes of their own.

#include "SumCosts.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Transforms/Nest/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Analysis/SliceAnalysis.h"
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

static attn::Done numStored("attn-split-sums", "stored apart",
                            "Folds whose stored values got a pass of their own");
static attn::Done numSplit("attn-split-sums", "split",
                           "Folds that were split into one for each sum");
static attn::Left numWide("attn-split-sums", "not split",
                          "Folds wider than wanted that stay whole");

namespace {

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

/// A fold with the results at `positions`, carried ones first, and what they need.
FoldOp take(FoldOp fold, ArrayRef<unsigned> positions) {
  OpBuilder b(fold);
  unsigned states = fold.getInits().size();
  // The whole fold first, then without what is not used.
  auto whole = cast<FoldOp>(b.clone(*fold));
  Operation *yield = whole.getYield();
  SmallVector<Value> inits, kept;
  SmallVector<int64_t> mapDims;
  llvm::BitVector unused(whole.getBody().getNumArguments());
  llvm::BitVector others(2 * states, true); // of the arguments of the merge region
  for (auto [index, state] : llvm::enumerate(whole.getState()))
    if (!llvm::is_contained(positions, index))
      unused.set(state.getArgNumber());
  for (unsigned position : positions) {
    kept.push_back(yield->getOperand(position));
    if (position >= states) {
      mapDims.push_back(fold.getMapDims()[position - states]);
      continue;
    }
    inits.push_back(fold.getInits()[position]);
    others.reset(position);
    others.reset(states + position);
  }
  yield->setOperands(kept);
  eraseDead(whole.getBody().front());
  SmallVector<Value> inputs;
  SmallVector<int64_t> dims;
  for (auto [index, block] : llvm::enumerate(whole.getBlocks())) {
    if (block.use_empty()) {
      unused.set(block.getArgNumber());
      continue;
    }
    inputs.push_back(whole.getInputs()[index]);
    dims.push_back(whole.getStreamDims()[index]);
  }
  SmallVector<Type> types;
  for (unsigned position : positions)
    types.push_back(fold->getResult(position).getType());
  auto part =
      FoldOp::create(b, fold.getLoc(), types, fold.getExtent(), inputs, inits, dims, mapDims,
                     /*plan=*/PlanAttr());
  part->setDiscardableAttrs(fold->getDiscardableAttrDictionary());
  part.getBody().takeBody(whole.getBody());
  part.getBody().front().eraseArguments(unused);
  if (!whole.getMerge().empty() && !inits.empty()) {
    part.getMerge().takeBody(whole.getMerge());
    Block &merge = part.getMerge().front();
    Operation *merged = merge.getTerminator();
    SmallVector<Value> values;
    for (unsigned position : positions.take_front(inits.size()))
      values.push_back(merged->getOperand(position));
    merged->setOperands(values);
    eraseDead(merge);
    merge.eraseArguments(others);
  }
  whole.erase();
  return part;
}

/// Replaces a fold by one for each of `groups`, which hold all of its results; returns the
/// first one.
FoldOp split(FoldOp fold, ArrayRef<SmallVector<unsigned>> groups) {
  FoldOp first;
  for (ArrayRef<unsigned> group : groups) {
    FoldOp part = take(fold, group);
    for (auto [position, result] : llvm::zip_equal(group, part->getResults()))
      fold->getResult(position).replaceAllUsesWith(result);
    first = first ? first : part;
  }
  fold.erase();
  return first;
}

/// Whether a mapped value is computed, element by element, from sums that are complete in
/// one block of the streamed dimension (products of matrices), and from nothing carried.
bool isStored(FoldOp fold, Value value) {
  auto op = value.getDefiningOp<GenericOp>();
  if (!op || op.getNumReductionLoops() > 0)
    return false;
  SetVector<Operation *> slice;
  BackwardSliceOptions options;
  options.inclusive = true;
  options.omitUsesFromAbove = false;
  options.filter = [&](Operation *each) { return fold->isProperAncestor(each); };
  (void)getBackwardSlice(op.getOperation(), &slice, options);
  bool sums = false;
  for (Operation *each : slice) {
    auto statement = dyn_cast<GenericOp>(each);
    sums |= statement && statement.getNumReductionLoops() > 0;
    for (Value operand : each->getOperands())
      if (llvm::is_contained(fold.getState(), operand))
        return false;
  }
  return sums;
}

struct SplitSumsPass : attn::impl::AttnSplitSumsBase<SplitSumsPass> {
  using AttnSplitSumsBase::AttnSplitSumsBase;

  void runOnOperation() override {
    SmallVector<FoldOp> folds;
    getOperation().walk([&](FoldOp fold) { folds.push_back(fold); });
    for (FoldOp fold : folds) {
      // A nest that is planned stays as the plan has it.
      if (fold.getPlan())
        continue;
      unsigned states = fold.getInits().size();
      SmallVector<unsigned> sums, stored;
      for (auto [position, value] : llvm::enumerate(fold.getYield()->getOperands()))
        (position >= states && isStored(fold, value) ? stored : sums).push_back(position);
      if (!stored.empty() && !sums.empty()) {
        numStored.at(fold);
        fold = split(fold, {sums, stored});
      }
      int64_t all = 0;
      for (Value state : fold.getState())
        all += getSumColumns(state);
      if (all <= columns)
        continue;
      if (states < 2 || !isIndependent(fold)) {
        numWide.at(fold) << remark::reason("its {0} columns are of {1}", all,
                                           states < 2 ? "one sum" : "sums that need each other");
        continue;
      }
      numSplit.at(fold) << remark::metric("Columns", all);
      SmallVector<SmallVector<unsigned>> each;
      for (unsigned position = 0; position < states; ++position)
        each.push_back({position});
      split(fold, each);
    }
  }
};

} // namespace
