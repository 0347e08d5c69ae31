// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-slice-sums: the columns of a sum that is wider than threads can hold are divided.

#include "SumCosts.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Transforms/Nest/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/Statement.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/MapVector.h"

namespace attn {
#define GEN_PASS_DEF_ATTNSLICESUMS
#include "attn/Transforms/Nest/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;
using linalg::GenericOp;

static attn::Done numSliced("attn-slice-sums", "sliced",
                            "Folds that were divided into one for each slice of columns");
static attn::Left numWhole("attn-slice-sums", "not sliced",
                           "Folds with more columns than wanted that stay whole");

namespace {

/// A range of columns.
struct Slice {
  int64_t offset, size;
};

RankedTensorType withSize(Type type, int64_t dim, int64_t size) {
  auto tensor = cast<RankedTensorType>(type);
  SmallVector<int64_t> shape(tensor.getShape());
  shape[size_t(dim)] = size;
  return tensor.clone(shape);
}

/// A fold with a wide sum, and what is computed from its columns one by one, in the fold and
/// behind it: the statements with a loop over the columns.
class Slicer {
public:
  Slicer(FoldOp fold, unsigned position) : fold(fold) {
    tieState(position, cast<RankedTensorType>(fold->getResult(position).getType()).getRank() - 1);
    // To the end, whatever stands in the way: rows are told by it.
    while (!open.empty())
      follow(open.pop_back_val());
  }

  /// Why the columns cannot be divided; empty if they can.
  StringRef getReason() const { return why; }

  /// Whether they are columns: a dimension that all statements of the fold have is one of rows.
  bool isOfColumns() {
    return llvm::any_of(fold.getBody().getOps<GenericOp>(),
                        [&](GenericOp op) { return !loops.contains(op); });
  }

  void run(ArrayRef<Slice> slices) {
    SmallVector<GenericOp> readers;
    for (auto [op, loop] : loops)
      if (op->getBlock() == fold->getBlock())
        readers.push_back(op);
    // They may read each other.
    llvm::sort(readers, [](GenericOp a, GenericOp b) { return a->isBeforeInBlock(b); });
    SmallVector<IRMapping> parts(slices.size());
    for (auto [slice, part] : llvm::zip_equal(slices, parts))
      cloneFold(slice, part);
    for (GenericOp op : readers)
      for (auto [slice, part] : llvm::zip_equal(slices, parts)) {
        OpBuilder b(op);
        cloneStatement(b, op, slice, part);
      }
    for (GenericOp op : llvm::reverse(readers)) {
      join(op->getResult(0), slices, parts);
      op->erase();
    }
    for (Value result : fold->getResults())
      join(result, slices, parts);
    fold->erase();
  }

private:
  bool isInside(Operation *op) const { return fold->isProperAncestor(op); }

  void tie(Value value, int64_t dim) {
    auto [known, isNew] = ties.try_emplace(value, dim);
    if (isNew)
      open.push_back(value);
    else if (known->second != dim)
      why = "one tensor has them twice";
  }

  /// Ties a carried value wherever it stands.
  void tieState(unsigned position, int64_t dim) {
    unsigned states = fold.getInits().size();
    if (position >= states) {
      why = "a result that is mapped has them, too";
      return;
    }
    for (Value value : {Value(fold.getState()[position]), Value(fold->getResult(position)),
                        fold.getYield()->getOperand(position)})
      tie(value, dim);
    if (fold.getMerge().empty())
      return;
    Block &merge = fold.getMerge().front();
    for (Value value :
         {Value(merge.getArgument(position)), Value(merge.getArgument(states + position)),
          merge.getTerminator()->getOperand(position)})
      tie(value, dim);
  }

  /// Whether each iteration of a loop is by itself, and the same.
  static bool isDivisible(GenericOp op, unsigned loop) {
    if (op->getNumResults() != 1 || !op.hasPureTensorSemantics() ||
        op.getIteratorTypesArray()[loop] != utils::IteratorType::parallel)
      return false;
    for (auto index : op.getBody()->getOps<linalg::IndexOp>())
      if (index.getDim() == loop)
        return false;
    return llvm::all_of(op.getIndexingMapsArray(),
                        [](AffineMap map) { return map.isProjectedPermutation(); });
  }

  /// The dimension of an operand that the loop over the columns indexes.
  std::optional<int64_t> findDim(GenericOp op, OpOperand &operand) const {
    AffineMap map = op.getMatchingIndexingMap(&operand);
    for (unsigned dim = 0; dim < map.getNumResults(); ++dim)
      if (getLoop(map, dim) == loops.lookup(op))
        return dim;
    return std::nullopt;
  }

  void follow(GenericOp op, unsigned loop) {
    if (!loops.insert({op, loop}).second)
      return;
    for (OpOperand &operand : op->getOpOperands()) {
      auto from = operand.get().getDefiningOp<GenericOp>();
      std::optional<int64_t> dim = findDim(op, operand);
      // What is computed in the fold, too; what is outside of it is read by slices.
      if (dim && from && isInside(from))
        tie(operand.get(), *dim);
    }
    if (std::optional<int64_t> dim = findDim(op, *op.getDpsInitOperand(0)))
      tie(op.getResult(0), *dim);
  }

  void follow(Value value) {
    auto dim = unsigned(ties.lookup(value));
    constexpr StringLiteral kNeedsAll = "a statement needs all of them";
    auto loopOf = [&](GenericOp op, AffineMap map) -> std::optional<unsigned> {
      std::optional<unsigned> loop = op ? getLoop(map, dim) : std::nullopt;
      if (!loop || isDivisible(op, *loop))
        return loop;
      if (!isInside(op)) // which reads them joined
        return std::nullopt;
      why = kNeedsAll;
      return loop;
    };
    auto op = value.getDefiningOp<GenericOp>();
    if (op && !loops.contains(op)) {
      std::optional<unsigned> loop = loopOf(op, op.getMatchingIndexingMap(op.getDpsInitOperand(0)));
      if (loop)
        follow(op, *loop);
      else
        why = kNeedsAll;
    }
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      auto reader = dyn_cast<GenericOp>(user);
      if (reader && loops.contains(reader))
        continue;
      std::optional<unsigned> loop =
          loopOf(reader, reader ? reader.getMatchingIndexingMap(&use) : AffineMap());
      if (loop)
        follow(reader, *loop);
      else if (isInside(user) && user->hasTrait<OpTrait::IsTerminator>())
        tieState(use.getOperandNumber(), dim);
      else if (isInside(user) && !isa<tensor::DimOp>(user))
        why = kNeedsAll;
    }
  }

  /// A slice of what a statement reads or starts from.
  Value getSlice(OpBuilder &b, Value tensor, int64_t dim, Slice slice, IRMapping &part) {
    if (ties.contains(tensor))
      return part.lookup(tensor);
    if (auto block = blocks.find({tensor, dim}); block != blocks.end())
      return block->second;
    Location loc = tensor.getLoc();
    RankedTensorType type = withSize(tensor.getType(), dim, slice.size);
    if (auto empty = tensor.getDefiningOp<tensor::EmptyOp>()) {
      SmallVector<Value> sizes;
      for (Value size : empty.getDynamicSizes())
        sizes.push_back(part.lookupOrDefault(size));
      return tensor::EmptyOp::create(b, loc, type, sizes);
    }
    if (auto fill = tensor.getDefiningOp<linalg::FillOp>()) {
      Value out = getSlice(b, fill.getDpsInits()[0], dim, slice, part);
      Value with = part.lookupOrDefault(fill.getInputs()[0]);
      return linalg::FillOp::create(b, loc, with, out).getResult(0);
    }
    Value whole = part.lookupOrDefault(tensor);
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, whole);
    SmallVector<OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0));
    SmallVector<OpFoldResult> ones(sizes.size(), b.getIndexAttr(1));
    offsets[size_t(dim)] = b.getIndexAttr(slice.offset);
    sizes[size_t(dim)] = b.getIndexAttr(slice.size);
    return tensor::ExtractSliceOp::create(b, loc, type, whole, offsets, sizes, ones);
  }

  void cloneStatement(OpBuilder &b, GenericOp op, Slice slice, IRMapping &part) {
    SmallVector<Value> operands;
    for (OpOperand &operand : op->getOpOperands()) {
      std::optional<int64_t> dim = findDim(op, operand);
      operands.push_back(dim ? getSlice(b, operand.get(), *dim, slice, part)
                             : part.lookupOrDefault(operand.get()));
    }
    Operation *clone = b.clone(*op, part);
    clone->setOperands(operands);
    clone->getResult(0).setType(cast<RankedTensorType>(operands.back().getType()));
  }

  void cloneBlock(Block &from, Block &to, Slice slice, IRMapping &part) {
    OpBuilder b = OpBuilder::atBlockEnd(&to);
    for (Operation &op : from) {
      auto statement = dyn_cast<GenericOp>(op);
      if (statement && loops.contains(statement))
        cloneStatement(b, statement, slice, part);
      else
        b.clone(op, part);
    }
  }

  /// What the fold streams that is read by its columns: it is streamed once more, sliced.
  SmallVector<std::pair<BlockArgument, int64_t>> findSlicedBlocks() {
    SetVector<std::pair<BlockArgument, int64_t>> sliced;
    for (auto [op, loop] : loops)
      for (OpOperand *operand : op.getDpsInputOperands())
        if (auto block = dyn_cast<BlockArgument>(operand->get()))
          if (std::optional<int64_t> dim = findDim(op, *operand))
            if (llvm::is_contained(fold.getBlocks(), block))
              sliced.insert({block, *dim});
    return sliced.takeVector();
  }

  void cloneFold(Slice slice, IRMapping &part) {
    OpBuilder b(fold);
    SmallVector<Value> inputs(fold.getInputs()), inits;
    SmallVector<int64_t> dims(fold.getStreamDims());
    SmallVector<std::pair<BlockArgument, int64_t>> sliced = findSlicedBlocks();
    for (auto [block, dim] : sliced) {
      unsigned input = block.getArgNumber() - 1;
      inputs.push_back(getSlice(b, fold.getInputs()[input], dim, slice, part));
      dims.push_back(fold.getStreamDims()[input]);
    }
    SmallVector<Type> types;
    for (auto [state, init] : llvm::zip_equal(fold.getState(), fold.getInits())) {
      auto tied = ties.find(state);
      inits.push_back(tied == ties.end() ? init : getSlice(b, init, tied->second, slice, part));
      types.push_back(inits.back().getType());
    }
    llvm::append_range(types, fold->getResults().drop_front(inits.size()).getTypes());
    auto clone = FoldOp::create(b, fold.getLoc(), types, fold.getExtent(), inputs, inits, dims,
                                fold.getMapDims(), /*plan=*/PlanAttr());
    clone->setDiscardableAttrs(fold->getDiscardableAttrDictionary());
    auto add = [&](Block &to, Value as, Type type) {
      part.map(as, to.addArgument(type, as.getLoc()));
    };
    Block &body = clone.getBody().emplaceBlock();
    add(body, fold.getOffset(), fold.getOffset().getType());
    for (BlockArgument block : fold.getBlocks())
      add(body, block, block.getType());
    for (auto [block, dim] : sliced)
      blocks[{block, dim}] =
          body.addArgument(withSize(block.getType(), dim, slice.size), block.getLoc());
    for (auto [state, init] : llvm::zip_equal(fold.getState(), inits))
      add(body, state, init.getType());
    cloneBlock(fold.getBody().front(), body, slice, part);
    blocks.clear();
    if (!fold.getMerge().empty()) {
      Block &from = fold.getMerge().front(), &merge = clone.getMerge().emplaceBlock();
      for (BlockArgument argument : from.getArguments())
        add(merge, argument, inits[argument.getArgNumber() % inits.size()].getType());
      cloneBlock(from, merge, slice, part);
    }
    dropUnused(clone);
    part.map(fold->getResults(), clone->getResults());
  }

  /// Streams no more what is read by slices alone.
  static void dropUnused(FoldOp fold) {
    SmallVector<int64_t> dims(fold.getStreamDims());
    for (size_t input = dims.size(); input-- > 0;) {
      BlockArgument block = fold.getBlocks()[input];
      for (Operation *user : llvm::make_early_inc_range(block.getUsers()))
        if (isOpTriviallyDead(user))
          user->erase();
      if (!block.use_empty())
        continue;
      fold.getBody().eraseArgument(block.getArgNumber());
      fold.getInputsMutable().erase(unsigned(input));
      dims.erase(dims.begin() + int64_t(input));
    }
    fold.setStreamDims(dims);
  }

  /// The sizes of a result: of what it starts from, so that they are known before it.
  static SmallVector<OpFoldResult> getSizes(OpBuilder &b, Value result) {
    auto fold = result.getDefiningOp<FoldOp>();
    Value start = fold ? fold.getInits()[cast<OpResult>(result).getResultNumber()]
                       : result.getDefiningOp<GenericOp>().getDpsInits()[0];
    while (auto fill = start.getDefiningOp<linalg::FillOp>())
      start = fill.getDpsInits()[0];
    if (auto empty = start.getDefiningOp<tensor::EmptyOp>())
      return empty.getMixedSizes();
    return tensor::getMixedSizes(b, result.getLoc(), start);
  }

  /// Gives those who read a result as a whole its parts, joined; sums without these columns are
  /// the same in all parts.
  void join(Value result, ArrayRef<Slice> slices, MutableArrayRef<IRMapping> parts) {
    Value first = parts.front().lookup(result);
    auto tied = ties.find(result);
    if (tied == ties.end()) {
      result.replaceAllUsesWith(first);
      return;
    }
    int64_t dim = tied->second;
    for (Operation *user : llvm::make_early_inc_range(result.getUsers()))
      if (auto size = dyn_cast<tensor::DimOp>(user); size && size.getConstantIndex() != dim)
        size.getSourceMutable().assign(first);
    if (result.use_empty())
      return;
    Operation *op = result.getDefiningOp();
    OpBuilder b(op);
    Location loc = result.getLoc();
    auto type = cast<RankedTensorType>(result.getType());
    SmallVector<OpFoldResult> sizes = getSizes(b, first);
    SmallVector<OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0));
    SmallVector<OpFoldResult> ones(sizes.size(), b.getIndexAttr(1));
    sizes[size_t(dim)] = b.getIndexAttr(type.getDimSize(unsigned(dim)));
    // Ahead of what computes the parts, so that these are computed in it.
    auto empty = tensor::EmptyOp::create(b, loc, sizes, type.getElementType());
    Operation *last = nullptr;
    for (Value size : empty.getDynamicSizes())
      if (Operation *definition = size.getDefiningOp();
          definition && (!last || last->isBeforeInBlock(definition)))
        last = definition;
    if (last)
      empty->moveAfter(last);
    else
      empty->moveBefore(&op->getBlock()->front());
    Value whole = empty;
    b.setInsertionPointAfter(op);
    for (auto [slice, part] : llvm::zip_equal(slices, parts)) {
      offsets[size_t(dim)] = b.getIndexAttr(slice.offset);
      sizes[size_t(dim)] = b.getIndexAttr(slice.size);
      whole =
          tensor::InsertSliceOp::create(b, loc, part.lookup(result), whole, offsets, sizes, ones);
    }
    result.replaceAllUsesWith(whole);
  }

  FoldOp fold;
  StringRef why;
  llvm::DenseMap<Value, int64_t> ties; ///< to the dimension of the columns
  llvm::MapVector<GenericOp, unsigned> loops;
  llvm::DenseMap<std::pair<Value, int64_t>, Value> blocks; ///< slices of streamed blocks
  SmallVector<Value> open;
};

struct SliceSumsPass : attn::impl::AttnSliceSumsBase<SliceSumsPass> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<FoldOp> folds;
    getOperation().walk([&](FoldOp fold) { folds.push_back(fold); });
    for (FoldOp fold : folds)
      if (!fold.getPlan()) // a nest that is planned stays as the plan has it
        slice(fold);
  }

  void slice(FoldOp fold) {
    SmallVector<std::pair<Slicer, Value>> wide;
    for (auto [position, state] : llvm::enumerate(fold.getState()))
      if (getSumColumns(state) > columns)
        if (Slicer slicer(fold, unsigned(position)); slicer.isOfColumns())
          wide.push_back({std::move(slicer), state});
    if (wide.empty())
      return;
    auto &[slicer, state] = wide.front();
    StringRef reason = wide.size() > 1 ? "two sums are wide" : slicer.getReason();
    int64_t size = cast<RankedTensorType>(state.getType()).getShape().back();
    if (!reason.empty()) {
      numWhole.at(fold) << remark::reason("of its {0} columns: {1}", size, reason);
      return;
    }
    // As equal as whole chunks of an instruction allow.
    int64_t count = llvm::divideCeil(getSumColumns(state), columns);
    int64_t each = llvm::alignTo(llvm::divideCeil(size, count), multiple);
    SmallVector<Slice> slices;
    for (int64_t offset = 0; offset < size; offset += each)
      slices.push_back({offset, std::min(each, size - offset)});
    numSliced.at(fold) << remark::metric("Columns", size)
                       << remark::metric("Slices", slices.size());
    slicer.run(slices);
  }
};
} // namespace
