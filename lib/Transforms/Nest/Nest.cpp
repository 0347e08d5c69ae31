// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What belongs to a nest, its sizes and what it costs.

#include "Nest.h"
#include "attn/Dialect/Attn/IR/Facts.h"
#include "attn/Transforms/Nest/Passes.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;
using linalg::GenericOp;

/// Whether an op needs something outside of the nest that needs the nest.
bool Nest::waitsForNest(Operation *op) {
  llvm::SetVector<Operation *> sources;
  auto addSources = [&](Operation *reader) {
    reader->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands()) {
        Operation *source = operand.getDefiningOp();
        source = source ? block.findAncestorOpInBlock(*source) : nullptr;
        if (source && source != reader && !ops.contains(source))
          sources.insert(source);
      }
    });
  };
  addSources(op);
  for (unsigned at = 0; at < sources.size(); ++at) {
    // A size is known before the nest runs.
    if (isa<tensor::DimOp>(sources[at]))
      continue;
    WalkResult walk = sources[at]->walk([&](Operation *inner) {
      bool reads = llvm::any_of(inner->getOperands(), [&](Value operand) {
        Operation *source = operand.getDefiningOp();
        return source && ops.contains(source);
      });
      return reads ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (walk.wasInterrupted())
      return true;
    addSources(sources[at]);
  }
  return false;
}

/// Finds the sums of the first fold at computed indices and over two dimensions.
/// Other sums at computed indices are taken element by element of the result.
void Nest::findTables(FoldOp first) {
  for (auto [position, init] : llvm::enumerate(first.getInits())) {
    auto op = first.getYield()->getOperand(position).getDefiningOp<GenericOp>();
    if (op && op->getBlock() == &first.getBody().front() && op.getNumReductionLoops() == 2 &&
        matchScatterSum(op) && op.getDpsInits()[0] == first.getState()[position] &&
        isNeutralFill(init, Reduction::Monoid::Add)) {
      tables.push_back(position);
      tableSums.insert(op);
    }
  }
}

/// Whether a statement or fold after the first fold belongs to its nest: it
/// finishes results of the nest, row by row.
bool Nest::joins(Operation *op) {
  auto inNest = [&](Value value) {
    Operation *source = value.getDefiningOp();
    return source && ops.contains(source);
  };
  // What a fold maps has no rows, and no table has.
  auto isMap = [&](Value value) {
    auto fold = value.getDefiningOp<FoldOp>();
    unsigned result = fold ? cast<OpResult>(value).getResultNumber() : 0;
    return fold && (result >= fold.getInits().size() || (fold == folds.front() && isTable(result)));
  };
  if (auto generic = dyn_cast<GenericOp>(op))
    return generic.getNumReductionLoops() == 0 && llvm::any_of(generic.getDpsInputs(), inNest) &&
           llvm::none_of(generic.getDpsInputs(), isMap) && !waitsForNest(op);
  auto fold = dyn_cast<FoldOp>(op);
  if (!fold || llvm::any_of(fold.getInputs(), inNest) || waitsForNest(op))
    return false;
  // The rows of a nest are those of its first fold, and so are its tables.
  Attribute rows = folds.front()->getAttr(kBlockMAttr), own = fold->getAttr(kBlockMAttr);
  bool hasTable = llvm::any_of(fold.getBody().getOps<GenericOp>(), [](GenericOp sum) {
    return sum.getNumReductionLoops() > 1 && matchScatterSum(sum);
  });
  if ((rows && own && rows != own) || hasTable)
    return false;
  bool shares = llvm::any_of(fold.getInputs(), [&](Value input) {
    return llvm::is_contained(folds.front().getInputs(), input);
  });
  bool reads = false;
  fold.getBody().walk(
      [&](Operation *inner) { reads |= llvm::any_of(inner->getOperands(), inNest); });
  return shares && reads;
}

/// A statement without reduction that only prepares values for the nest.
bool Nest::isPrologue(GenericOp op) const {
  if (op.getNumReductionLoops() != 0 || op->getNumResults() != 1)
    return false;
  return llvm::all_of(op->getUsers(), [&](Operation *user) {
    Operation *top = block.findAncestorOpInBlock(*user);
    if (!ops.contains(top))
      return false;
    auto fold = dyn_cast<FoldOp>(top);
    return !fold || !llvm::is_contained(fold.getInputs(), op.getResult(0));
  });
}

void Nest::collect(FoldOp first, const DenseSet<Operation *> &taken) {
  ops.insert(first);
  folds.push_back(first);
  for (Operation &op : llvm::make_range(std::next(first->getIterator()), block.end()))
    if (!taken.contains(&op) && joins(&op)) {
      ops.insert(&op);
      if (auto fold = dyn_cast<FoldOp>(op))
        folds.push_back(fold);
    }
  Operation *last = ops.back();
  for (Operation &op : llvm::reverse(block)) {
    auto generic = dyn_cast<GenericOp>(op);
    if (generic && !ops.contains(generic) && !taken.contains(generic) &&
        generic->isBeforeInBlock(last) && isPrologue(generic))
      ops.insert(generic);
  }
  SmallVector<Operation *> sorted(ops.begin(), ops.end());
  llvm::sort(sorted, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  ops.clear();
  ops.insert(sorted.begin(), sorted.end());
}

/// Where the size of a dimension is found, outside of what the nest computes.
std::optional<Nest::Extent> Nest::findExtent(unsigned dim) {
  auto rootOf = [](Value tensor) {
    while (auto dest = tensor.getDefiningOp<DestinationStyleOpInterface>())
      tensor = dest.getDpsInits()[cast<OpResult>(tensor).getResultNumber()];
    return tensor;
  };
  auto ofOperand = [&](Value operand, unsigned d) -> std::optional<Extent> {
    Value root = rootOf(operand);
    auto empty = root.getDefiningOp<tensor::EmptyOp>();
    if (empty && empty->getBlock() == &block)
      return Extent{empty.getMixedSizes()[d], {}, 0};
    if (root.getParentBlock() == &block)
      return Extent{{}, root, d};
    // Inside of a fold: sizes of its own tensors come from outside.
    if (empty) {
      OpFoldResult size = empty.getMixedSizes()[d];
      auto value = dyn_cast<Value>(size);
      if (!value || value.getParentBlock() == &block)
        return Extent{size, {}, 0};
    }
    auto type = cast<RankedTensorType>(root.getType());
    if (!type.isDynamicDim(d))
      return Extent{b.getIndexAttr(type.getDimSize(d)), {}, 0};
    if (auto argument = dyn_cast<BlockArgument>(root))
      if (auto fold = dyn_cast<FoldOp>(argument.getOwner()->getParentOp()))
        for (auto [block, input] : llvm::zip(fold.getBlocks(), fold.getInputs()))
          if (block == root)
            return Extent{{}, input, d};
    return std::nullopt;
  };
  auto fromOutside = [&](GenericOp op) -> std::optional<Extent> {
    for (OpOperand &operand : op->getOpOperands()) {
      AffineMap map = op.getMatchingIndexingMap(&operand);
      for (unsigned d = 0; d < map.getNumResults(); ++d)
        if (std::optional<unsigned> loop = getLoop(map, d);
            loop && classes->ofLoop(op, *loop) == dim)
          if (std::optional<Extent> extent = ofOperand(operand.get(), d))
            return extent;
    }
    return std::nullopt;
  };
  for (Operation *op : ops) {
    if (auto generic = dyn_cast<GenericOp>(op)) {
      if (std::optional<Extent> extent = fromOutside(generic))
        return extent;
      continue;
    }
    auto fold = cast<FoldOp>(op);
    if (classes->ofStream(fold) == dim)
      return Extent{fold.getExtent(), {}, 0};
    for (auto init : fold.getInits())
      for (int64_t d = 0, e = cast<RankedTensorType>(init.getType()).getRank(); d < e; ++d)
        if (auto known = classes->ofValue(
                fold.getResult(llvm::find(fold.getInits(), init) - fold.getInits().begin()), d);
            known == dim)
          return Extent{{}, rootOf(init), unsigned(d)};
    for (auto generic : fold.getBody().getOps<GenericOp>())
      if (std::optional<Extent> extent = fromOutside(generic))
        return extent;
  }
  return std::nullopt;
}

std::optional<int64_t> Nest::Extent::getKnown() const {
  if (!tensor)
    return getConstantIntValue(given);
  auto type = cast<RankedTensorType>(tensor.getType());
  return type.isDynamicDim(dim) ? std::nullopt : std::optional(type.getDimSize(dim));
}

std::optional<int64_t> Nest::Extent::getExpected() const {
  OpFoldResult size = given;
  Value of = tensor;
  unsigned position = dim;
  while (true) {
    // The op that computes the size of a tensor, through those that take it from another one.
    if (of) {
      Operation *source = of.getDefiningOp();
      if (auto expand = dyn_cast_if_present<tensor::ExpandShapeOp>(source))
        size = expand.getMixedOutputShape()[position];
      else if (auto empty = dyn_cast_if_present<tensor::EmptyOp>(source))
        size = empty.getMixedSizes()[position];
      else if (auto dest = dyn_cast_if_present<DestinationStyleOpInterface>(source)) {
        of = dest.getDpsInits()[cast<OpResult>(of).getResultNumber()];
        continue;
      } else {
        return std::nullopt;
      }
    }
    auto value = dyn_cast_if_present<Value>(size);
    Operation *op = value ? value.getDefiningOp() : nullptr;
    if (!op)
      return std::nullopt;
    if (auto expected = op->getAttrOfType<IntegerAttr>(kExpectedSizeAttr))
      return expected.getInt();
    auto dimOp = dyn_cast<tensor::DimOp>(op);
    std::optional<int64_t> index = dimOp ? dimOp.getConstantIndex() : std::nullopt;
    if (!index)
      return std::nullopt;
    of = dimOp.getSource();
    position = *index;
  }
}

/// The sizes of all dimensions, where the builder stands.
void Nest::emitSizes() {
  for (auto &[dim, info] : emitter->dims) {
    Extent extent = *findExtent(dim);
    info.size = extent.tensor ? tensor::getMixedSize(b, b.getLoc(), extent.tensor, extent.dim)
                              : extent.given;
    if (auto value = dyn_cast<Value>(info.size))
      if (std::optional<int64_t> known = getConstantIntValue(value))
        info.size = b.getIndexAttr(*known);
  }
}

bool Nest::addsRowSums() const {
  FoldOp fold = folds.front();
  ValueRange mapped = fold.getYield()->getOperands().drop_front(fold.getState().size());
  return afterRows.empty() && llvm::all_of(rowSums, [&](Operation *op) {
           auto sum = cast<GenericOp>(op);
           std::optional<Reduction> reduction = matchReduction(sum, 0);
           return reduction && reduction->monoid == Reduction::Monoid::Add &&
                  isNeutralFill(sum.getDpsInits()[0], Reduction::Monoid::Add) &&
                  llvm::is_contained(mapped, sum->getResult(0)) && sum->hasOneUse();
         });
}

/// Results that something outside of the nest reads.
LogicalResult Nest::findOutputs() {
  for (Operation *op : ops)
    for (OpResult result : op->getResults()) {
      bool escapes = llvm::any_of(result.getUsers(), [&](Operation *user) {
        return !ops.contains(block.findAncestorOpInBlock(*user));
      });
      if (!escapes)
        continue;
      Output output;
      output.result = result;
      for (int64_t d = 0, e = cast<RankedTensorType>(result.getType()).getRank(); d < e; ++d) {
        output.dims.push_back(*classes->ofValue(result, d));
        // What no statement computes has no tile.
        if (!emitter->dims.contains(output.dims.back()))
          return emitError(op->getLoc()) << "expected a statement over dimension " << d
                                         << " of result #" << result.getResultNumber();
      }
      outputs.push_back(output);
      unsigned position = result.getResultNumber();
      unsigned states = folds.front().getState().size();
      if (op == folds.front() && position >= states)
        mappedOutputs.push_back(
            {unsigned(outputs.size() - 1), folds.front().getYield()->getOperand(position)});
    }
  return success();
}

/// The nest in numbers; dynamic sizes as the options assume them.
NestSize Nest::measure(const PlanOptions &plan) {
  NestSize size;
  auto sizeOf = [&](unsigned dim) -> double {
    const TileDim &info = emitter->dims[dim];
    if (info.known)
      return *info.known;
    if (info.role == LoopRole::Worker)
      return 8;
    std::optional<Extent> extent = findExtent(dim);
    std::optional<int64_t> expected = extent ? extent->getExpected() : std::nullopt;
    return expected.value_or(plan.assumedSize);
  };
  auto isWhole = [&](unsigned dim) {
    LoopRole role = emitter->dims[dim].role;
    return role == LoopRole::Whole || role == LoopRole::Table;
  };
  // Bytes of a tensor per element of the dimensions that vary with tiles.
  auto bytesOf = [&](Type type, ArrayRef<unsigned> span) {
    double bytes = getBits(cast<RankedTensorType>(type).getElementType()) / 8.0;
    for (unsigned dim : span)
      if (isWhole(dim))
        bytes *= sizeOf(dim);
    return bytes;
  };
  size.parts = plan.parts;
  size.threads = plan.threads;
  for (auto &[dim, info] : emitter->dims) {
    if (info.role == LoopRole::Worker)
      size.workers *= sizeOf(dim);
    if (info.role == LoopRole::Row)
      size.rows = sizeOf(dim), size.blockM = info.tile;
    if (info.role == LoopRole::Streamed)
      size.streamed = sizeOf(dim), size.blockN = info.tile;
  }
  if (size.parts == 0)
    size.parts =
        std::max<int64_t>(1, plan.threads / (size.workers * std::ceil(size.rows / size.blockM)));
  DenseSet<Value> seen;
  for (FoldOp fold : folds) {
    for (auto [position, state] : llvm::enumerate(fold.getState()))
      if (fold != folds.front() || !isTable(position))
        size.stateBytes += bytesOf(state.getType(), dimsOf(state, /*ofWorker=*/false));
    for (auto op : fold.getBody().getOps<GenericOp>()) {
      if (tableSums.contains(op)) {
        // A pair adds to one element, in a tenth of the time of a vector's.
        size.pointFlops += 100;
        continue;
      }
      double flops = 1;
      bool overStream = false;
      for (unsigned loop = 0; loop < op.getNumLoops(); ++loop) {
        unsigned dim = classes->ofLoop(op, loop);
        overStream |= dim == streamDim;
        if (isWhole(dim))
          flops *= sizeOf(dim);
      }
      if (overStream)
        size.pointFlops += flops * (op.getNumReductionLoops() ? 2 : 1);
      for (OpOperand *input : op.getDpsInputOperands()) {
        if (!seen.insert(input->get()).second || emitter->tiles.contains(input->get()) ||
            classes->ofValue(input->get(), 0))
          continue;
        SmallVector<unsigned> span;
        AffineMap map = op.getMatchingIndexingMap(input);
        for (unsigned d = 0; d < map.getNumResults(); ++d)
          if (std::optional<unsigned> loop = getLoop(map, d))
            span.push_back(classes->ofLoop(op, *loop));
        double bytes = bytesOf(input->get().getType(), span);
        if (llvm::is_contained(span, streamDim))
          size.streamBytes += bytes;
        else if (rowDim && llvm::is_contained(span, *rowDim))
          size.rowBytes += bytes;
      }
    }
  }
  size.rowsInWorker = !tables.empty() && !options.parallelSums;
  for (const Output &output : outputs)
    if (!tableOf(output))
      size.outBytes += bytesOf(output.result.getType(), output.dims);
  return size;
}
