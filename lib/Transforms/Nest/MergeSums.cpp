// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-merge-sums: a sum of a sum is one sum over both dimensions.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Transforms/Nest/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/Statement.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_ATTNMERGESUMS
#include "attn/Transforms/Nest/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using linalg::GenericOp;

static attn::Done numMerged("attn-merge-sums", "merged", "Sums of sums that became one");

namespace {

/// A fold that only adds up one streamed tensor, along dimension `dim` of it.
struct Total {
  FoldOp fold;
  int64_t dim;
};

/// The only op that reads a value, but for sizes that it alone uses.
Operation *getOnlyReader(Value value) {
  Operation *reader = nullptr;
  SmallVector<Operation *> sizes;
  for (Operation *user : value.getUsers()) {
    if (isa<tensor::DimOp>(user)) {
      sizes.push_back(user);
      continue;
    }
    if (reader && reader != user)
      return nullptr;
    reader = user;
  }
  for (Operation *size : sizes)
    for (Operation *user : size->getUsers())
      if (user != reader)
        return nullptr;
  return reader;
}

/// The statement that adds to carried value `position`, which nothing else reads.
GenericOp getSum(FoldOp fold, unsigned position) {
  auto sum = fold.getYield()->getOperand(position).getDefiningOp<GenericOp>();
  BlockArgument state = fold.getState()[position];
  if (!sum || sum->getBlock() != &fold.getBody().front() || sum->getNumResults() != 1 ||
      !sum->hasOneUse() || !state.hasOneUse() || sum.getDpsInits()[0] != state ||
      !sum.getMatchingIndexingMap(sum.getDpsInitOperand(0)).isProjectedPermutation())
    return {};
  std::optional<Reduction> reduction = matchReduction(sum, 0);
  return reduction && reduction->monoid == Reduction::Monoid::Add ? sum : GenericOp();
}

std::optional<Total> matchTotal(OpResult partial) {
  auto fold = dyn_cast_or_null<FoldOp>(getOnlyReader(partial));
  if (!fold || fold->getBlock() != partial.getOwner()->getBlock() || fold.getInputs().size() != 1 ||
      fold.getInputs()[0] != partial || fold->getNumResults() != 1 || fold.getInits().size() != 1)
    return std::nullopt;
  GenericOp sum = getSum(fold, 0);
  auto statements = fold.getBody().getOps<GenericOp>();
  if (!sum || !llvm::hasSingleElement(statements) || sum.getNumDpsInputs() != 1 ||
      sum.getDpsInputs()[0] != fold.getBlocks()[0] ||
      !isa<BlockArgument>(matchReduction(sum, 0)->term) ||
      !isNeutralFill(fold.getInits()[0], Reduction::Monoid::Add))
    return std::nullopt;
  // The state is the streamed tensor without the dimension, in the same order.
  int64_t dim = fold.getStreamDims()[0];
  AffineMap in = sum.getMatchingIndexingMap(sum.getDpsInputOperand(0));
  AffineMap out = sum.getMatchingIndexingMap(sum.getDpsInitOperand(0));
  if (!in.isIdentity() || in.dropResult(dim) != out)
    return std::nullopt;
  return Total{fold, dim};
}

class Merger {
public:
  explicit Merger(FoldOp fold) : fold(fold), b(fold) {}

  bool match() {
    unsigned states = fold.getInits().size();
    // Sums of what is only read merge as well as they are, one after the other.
    auto statements = fold.getBody().getOps<GenericOp>();
    if (states == 0 || llvm::range_size(statements) <= states)
      return false;
    // A tile of what is only mapped has no place for another dimension; sums are added to memory.
    auto isMapped = [](Value value) {
      auto statement = value.getDefiningOp<GenericOp>();
      return !statement || statement.getNumReductionLoops() == 0;
    };
    if (llvm::any_of(fold.getYield()->getOperands().drop_front(states), isMapped))
      return false;
    for (unsigned position = 0; position < states; ++position) {
      std::optional<Total> total = matchTotal(fold->getResult(position));
      GenericOp sum = getSum(fold, position);
      if (!total || !sum || (!totals.empty() && total->dim != totals.front().dim) ||
          !isNeutralFill(fold.getInits()[position], Reduction::Monoid::Add))
        return false;
      totals.push_back(*total);
    }
    return true;
  }

  void run() {
    Location loc = fold.getLoc();
    SmallVector<Value> inits;
    SmallVector<Type> types;
    for (const Total &total : totals) {
      inits.push_back(FoldOp(total.fold).getInits()[0]);
      types.push_back(inits.back().getType());
    }
    ResultRange mapped = fold->getResults().drop_front(inits.size());
    llvm::append_range(types, mapped.getTypes());
    auto merged = FoldOp::create(b, loc, types, fold.getExtent(), fold.getInputs(), inits,
                                 fold.getStreamDims(), fold.getMapDims(), /*plan=*/PlanAttr());
    merged->setDiscardableAttrs(fold->getDiscardableAttrDictionary());
    cloneBody(merged);
    cloneMerge(merged);
    for (auto [total, result] : llvm::zip(totals, merged->getResults()))
      FoldOp(total.fold)->getResult(0).replaceAllUsesWith(result);
    mapped.replaceAllUsesWith(merged->getResults().drop_front(inits.size()));
    SmallVector<Operation *> sizes;
    for (Value partial : fold->getResults().take_front(inits.size()))
      for (Operation *user : partial.getUsers())
        if (isa<tensor::DimOp>(user))
          sizes.push_back(user);
    for (const Total &total : totals)
      FoldOp(total.fold).erase();
    for (Operation *size : sizes)
      size->erase();
    fold.erase();
    sortTopologically(merged->getBlock());
  }

private:
  void cloneBody(FoldOp merged) {
    OpBuilder::InsertionGuard guard(b);
    IRMapping mapping;
    fold.getBody().cloneInto(&merged.getBody(), mapping);
    for (auto [position, total] : llvm::enumerate(totals)) {
      auto sum = merged.getYield()->getOperand(position).getDefiningOp<GenericOp>();
      Type type = merged.getInits()[position].getType();
      merged.getState()[position].setType(type);
      SmallVector<AffineMap> maps = sum.getIndexingMapsArray();
      unsigned loop = maps.back().getDimPosition(total.dim);
      maps.back() = maps.back().dropResult(total.dim);
      SmallVector<utils::IteratorType> iterators = sum.getIteratorTypesArray();
      iterators[loop] = utils::IteratorType::reduction;
      b.setInsertionPoint(sum);
      auto both = GenericOp::create(b, sum.getLoc(), TypeRange(type), sum.getDpsInputs(),
                                    sum.getDpsInits(), maps, iterators);
      both->setDiscardableAttrs(sum->getDiscardableAttrDictionary());
      both.getRegion().takeBody(sum.getRegion());
      sum->replaceAllUsesWith(both);
      sum.erase();
    }
  }

  /// States of parts of the streamed dimension combine as the totals did.
  void cloneMerge(FoldOp merged) {
    if (llvm::any_of(totals, [](Total total) { return total.fold.getMerge().empty(); }))
      return;
    OpBuilder::InsertionGuard guard(b);
    SmallVector<Type> types(merged.getInits().getTypes());
    llvm::append_range(types, merged.getInits().getTypes());
    Block *block = b.createBlock(&merged.getMerge(), {}, types,
                                 SmallVector<Location>(types.size(), merged.getLoc()));
    SmallVector<Value> results;
    for (auto [position, total] : llvm::enumerate(totals)) {
      Block &from = FoldOp(total.fold).getMerge().front();
      IRMapping mapping;
      mapping.map(from.getArgument(0), block->getArgument(position));
      mapping.map(from.getArgument(1), block->getArgument(totals.size() + position));
      for (Operation &op : from.without_terminator())
        b.clone(op, mapping);
      results.push_back(mapping.lookup(from.getTerminator()->getOperand(0)));
    }
    YieldOp::create(b, merged.getLoc(), results);
  }

  FoldOp fold;
  OpBuilder b;
  SmallVector<Total> totals;
};

struct MergeSumsPass : attn::impl::AttnMergeSumsBase<MergeSumsPass> {
  void runOnOperation() override {
    for (Block &block : getOperation().getBody())
      for (FoldOp fold : llvm::to_vector(block.getOps<FoldOp>())) {
        // What has been merged into another fold is gone.
        if (llvm::none_of(block.getOps<FoldOp>(), [&](FoldOp other) { return other == fold; }))
          continue;
        // A nest that is planned stays as the plan has it.
        if (fold.getPlan())
          continue;
        if (Merger merger(fold); merger.match()) {
          numMerged.at(fold);
          merger.run();
        }
      }
  }
};

} // namespace
