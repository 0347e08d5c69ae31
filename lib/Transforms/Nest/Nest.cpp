// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What belongs to a nest, and the role of each of its dimensions.

#include "Nest.h"
#include "attn/Transforms/Nest/Passes.h"
#include "attn/Utils/Tiles.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;
using linalg::GenericOp;
using Role = TileDim::Role;

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

/// Checks that what such a sum keeps are dimensions of workers and of the table,
/// and that it sums over the rest.
LogicalResult Nest::checkTables(ArrayRef<unsigned> workers) {
  for (Operation *op : tableSums) {
    auto sum = cast<GenericOp>(op);
    ScatterSum form = *matchScatterSum(sum);
    for (unsigned loop = 0; loop < sum.getNumLoops(); ++loop) {
      unsigned dim = classes->ofLoop(sum, loop);
      bool isIndex = llvm::any_of(form.indices, [&](auto index) { return index.first == loop; });
      bool isWorker = llvm::is_contained(workers, dim) && dim != rowDim;
      bool expected = sum.getIteratorTypesArray()[loop] == utils::IteratorType::reduction
                          ? dim == streamDim || dim == rowDim
                          : isIndex != isWorker;
      if (!expected)
        return op->emitError("expected a sum at computed indices over the rows "
                             "and the streamed dimension, got another one");
    }
  }
  return success();
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
  Attribute rows = folds.front()->getAttr(kRowTileAttr), own = fold->getAttr(kRowTileAttr);
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

void Nest::collect(FoldOp first) {
  ops.insert(first);
  folds.push_back(first);
  for (Operation &op : llvm::make_range(std::next(first->getIterator()), block.end()))
    if (joins(&op)) {
      ops.insert(&op);
      if (auto fold = dyn_cast<FoldOp>(op))
        folds.push_back(fold);
    }
  Operation *last = ops.back();
  for (Operation &op : llvm::reverse(block)) {
    auto generic = dyn_cast<GenericOp>(op);
    if (generic && !ops.contains(generic) && generic->isBeforeInBlock(last) && isPrologue(generic))
      ops.insert(generic);
  }
  SmallVector<Operation *> sorted(ops.begin(), ops.end());
  llvm::sort(sorted, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  ops.clear();
  ops.insert(sorted.begin(), sorted.end());
}

/// The size of a dimension, from a tensor that the nest does not produce.
OpFoldResult Nest::sizeOfClass(unsigned dim) {
  auto fromOutside = [&](GenericOp op) -> OpFoldResult {
    for (OpOperand &operand : op->getOpOperands()) {
      AffineMap map = op.getMatchingIndexingMap(&operand);
      for (unsigned d = 0; d < map.getNumResults(); ++d) {
        std::optional<unsigned> loop = getLoop(map, d);
        if (!loop || classes->ofLoop(op, *loop) != dim)
          continue;
        Value root = operand.get();
        while (auto dest = root.getDefiningOp<DestinationStyleOpInterface>())
          root = dest.getDpsInits()[cast<OpResult>(root).getResultNumber()];
        auto empty = root.getDefiningOp<tensor::EmptyOp>();
        if (empty && empty->getBlock() == &block)
          return empty.getMixedSizes()[d];
        if (root.getParentBlock() == &block)
          return tensor::getMixedSize(b, b.getLoc(), root, d);
        // Inside of a fold: sizes of its own tensors come from outside.
        if (empty) {
          OpFoldResult size = empty.getMixedSizes()[d];
          auto value = dyn_cast<Value>(size);
          if (!value || value.getParentBlock() == &block)
            return size;
        }
        auto type = cast<RankedTensorType>(root.getType());
        if (!type.isDynamicDim(d))
          return b.getIndexAttr(type.getDimSize(d));
        if (auto argument = dyn_cast<BlockArgument>(root))
          if (auto fold = dyn_cast<FoldOp>(argument.getOwner()->getParentOp()))
            for (auto [block, input] : llvm::zip(fold.getBlocks(), fold.getInputs()))
              if (block == root)
                return tensor::getMixedSize(b, b.getLoc(), input, d);
      }
    }
    return {};
  };
  for (Operation *op : ops) {
    if (auto generic = dyn_cast<GenericOp>(op)) {
      if (OpFoldResult size = fromOutside(generic))
        return size;
      continue;
    }
    auto fold = cast<FoldOp>(op);
    if (classes->ofStream(fold) == dim)
      return fold.getExtent();
    for (auto init : fold.getInits())
      for (int64_t d = 0, e = cast<RankedTensorType>(init.getType()).getRank(); d < e; ++d)
        if (auto known = classes->ofValue(
                fold.getResult(llvm::find(fold.getInits(), init) - fold.getInits().begin()), d);
            known == dim) {
          Value root = init;
          while (auto dest = root.getDefiningOp<DestinationStyleOpInterface>())
            root = dest.getDpsInits()[cast<OpResult>(root).getResultNumber()];
          return tensor::getMixedSize(b, b.getLoc(), root, d);
        }
    for (auto generic : fold.getBody().getOps<GenericOp>())
      if (OpFoldResult size = fromOutside(generic))
        return size;
  }
  return {};
}

static int64_t tileFor(int64_t wanted, OpFoldResult size, int64_t multiple = 16) {
  std::optional<int64_t> known = getConstantIntValue(size);
  if (!known)
    return wanted;
  // A short dimension needs no tile beyond its end, up to a vector's length.
  return std::min(wanted, std::max(multiple, int64_t(llvm::alignTo(*known, multiple))));
}

/// Whether the fold is inner products of rows: sums of products along the
/// streamed dimension, of which each term belongs to one row. Those of a head's
/// size are taken in one tile, like the products of matrices that sum over one:
/// in the same order, so that their difference is exact where terms are equal.
static bool isInnerProduct(FoldOp fold, const DimClasses &classes, ArrayRef<unsigned> workers,
                           unsigned streamDim) {
  bool isProduct = !fold.getState().empty();
  for (Value yielded : fold.getYield()->getOperands().take_front(fold.getState().size())) {
    auto sum = yielded.getDefiningOp<GenericOp>();
    std::optional<Reduction> reduction;
    if (sum && sum.getNumReductionLoops() == 1 && sum->getNumResults() == 1)
      reduction = matchReduction(sum, 0);
    isProduct = isProduct && reduction && reduction->monoid == Reduction::Monoid::Add &&
                reduction->term.getDefiningOp<arith::MulFOp>();
  }
  for (auto op : fold.getBody().getOps<GenericOp>())
    for (unsigned loop = 0; loop < op.getNumLoops(); ++loop) {
      unsigned dim = classes.ofLoop(op, loop);
      isProduct &= dim == streamDim || llvm::is_contained(workers, dim);
    }
  return isProduct;
}

/// Where a fold does nothing but add up matrices, all that it streams having
/// their two innermost dimensions: these, as classes. Rows that are vectors then
/// fill the registers, and what is streamed needs no tile.
static std::optional<std::pair<unsigned, unsigned>>
getSummedMatrix(FoldOp fold, const DimClasses &classes, ArrayRef<unsigned> workers) {
  std::optional<std::pair<unsigned, unsigned>> found;
  auto statements = fold.getBody().getOps<GenericOp>();
  if (!llvm::hasSingleElement(statements))
    return std::nullopt;
  GenericOp op = *statements.begin();
  std::optional<Reduction> reduction = matchReduction(op, 0);
  if (!reduction || reduction->monoid != Reduction::Monoid::Add)
    return std::nullopt;
  for (OpOperand *input : op.getDpsInputOperands()) {
    if (!llvm::is_contained(fold.getBlocks(), input->get()))
      continue;
    auto type = cast<RankedTensorType>(input->get().getType());
    AffineMap map = op.getMatchingIndexingMap(input);
    if (type.getRank() < 2 || type.isDynamicDim(type.getRank() - 1) ||
        type.getShape().back() > longestWholeTile)
      return std::nullopt;
    std::optional<unsigned> row = getLoop(map, type.getRank() - 2);
    std::optional<unsigned> column = getLoop(map, type.getRank() - 1);
    if (!row || !column)
      return std::nullopt;
    std::pair<unsigned, unsigned> matrix(classes.ofLoop(op, *row), classes.ofLoop(op, *column));
    if ((found && *found != matrix) || !llvm::is_contained(workers, matrix.first) ||
        !llvm::is_contained(workers, matrix.second))
      return std::nullopt;
    found = matrix;
  }
  return found;
}

LogicalResult Nest::assignRoles() {
  classes = std::make_unique<DimClasses>(ops.getArrayRef());
  emitter = std::make_unique<TileEmitter>(b, *classes);
  for (Operation *op : ops)
    if (auto generic = dyn_cast<GenericOp>(op); generic && classes->isCrossing(generic))
      return generic.emitError("expected each dimension of the nest to be read "
                               "as one dimension of a statement");
  FoldOp first = folds.front();
  streamDim = classes->ofStream(first);
  for (FoldOp fold : folds)
    if (classes->ofStream(fold) != streamDim)
      return fold.emitError("expected one streamed dimension in a nest, got a "
                            "second");
  // Canonical order: as the folds' statements name their loops first.
  SmallVector<unsigned> order;
  std::optional<SmallVector<unsigned>> workers;
  auto visit = [&](GenericOp op) {
    SmallVector<unsigned> span;
    bool streams = false;
    for (unsigned loop = 0; loop < op.getNumLoops(); ++loop) {
      unsigned dim = classes->ofLoop(op, loop);
      if (!llvm::is_contained(order, dim))
        order.push_back(dim);
      streams |= dim == streamDim;
      if (op.getIteratorTypesArray()[loop] == utils::IteratorType::parallel)
        span.push_back(dim);
    }
    return std::make_pair(streams, span);
  };
  auto restrict = [&](ArrayRef<unsigned> span) {
    if (!workers)
      workers.emplace(span.begin(), span.end());
    llvm::erase_if(
        *workers, [&](unsigned dim) { return dim == streamDim || !llvm::is_contained(span, dim); });
  };
  findRowSums();
  for (FoldOp fold : folds) {
    for (auto op : fold.getBody().getOps<GenericOp>())
      if (auto [streams, span] = visit(op);
          streams && !followsRowSum(op) && !tableSums.contains(op))
        restrict(span);
    for (auto [position, state] : llvm::enumerate(fold.getState())) {
      if (fold == first && isTable(position))
        continue;
      SmallVector<unsigned> span;
      for (int64_t d = 0, e = cast<RankedTensorType>(state.getType()).getRank(); d < e; ++d)
        span.push_back(*classes->ofValue(state, d));
      restrict(span);
    }
  }
  for (Operation *op : ops)
    if (auto generic = dyn_cast<GenericOp>(op))
      visit(generic);
  if (!workers || !llvm::is_contained(order, streamDim))
    return first.emitError("expected a statement over the streamed dimension");
  for (FoldOp fold : folds)
    for (auto [position, state] : llvm::enumerate(fold.getState()))
      for (int64_t d = 0, e = cast<RankedTensorType>(state.getType()).getRank(); d < e; ++d)
        if (unsigned dim = *classes->ofValue(state, d);
            dim == streamDim || !llvm::is_contained(order, dim))
          return emitError(fold.getLoc())
                 << "expected a statement over dimension " << d << " of carried value #" << position
                 << ", which is not the streamed one";

  // What sums over no worker is no sum over rows.
  auto reducesWorker = [&](Operation *op) {
    auto sum = cast<GenericOp>(op);
    for (unsigned loop = 0; loop < sum.getNumLoops(); ++loop)
      if (sum.getIteratorTypesArray()[loop] == utils::IteratorType::reduction &&
          llvm::is_contained(*workers, classes->ofLoop(sum, loop)))
        return true;
    return false;
  };
  SmallVector<Operation *> others =
      llvm::filter_to_vector(rowSums, [&](Operation *op) { return !reducesWorker(op); });
  for (Operation *op : others)
    restrict(visit(cast<GenericOp>(op)).second);
  if (!others.empty())
    findRowSums(others);

  // The row dimension: rows share what is streamed, so no streamed input has
  // it; without such a dimension the last one.
  DenseSet<unsigned> streamedDims;
  for (FoldOp fold : folds)
    for (auto op : fold.getBody().getOps<GenericOp>())
      for (OpOperand *input : op.getDpsInputOperands())
        if (llvm::is_contained(fold.getBlocks(), input->get())) {
          AffineMap map = op.getMatchingIndexingMap(input);
          for (unsigned d = 0; d < map.getNumResults(); ++d)
            if (std::optional<unsigned> loop = getLoop(map, d))
              streamedDims.insert(classes->ofLoop(op, *loop));
        }
  for (unsigned dim : order)
    if (llvm::is_contained(*workers, dim) &&
        (!rowDim || !streamedDims.contains(dim) || streamedDims.contains(*rowDim)))
      rowDim = dim;
  // Where rows are first, columns are those of matrix instructions.
  auto isWide = [&](unsigned column) {
    std::optional<int64_t> size = getConstantIntValue(sizeOfClass(column));
    return !options.rowsFirst || (size && *size % 8 == 0);
  };
  if (auto matrix = getSummedMatrix(first, *classes, *workers);
      matrix && isWide(matrix->second) && folds.size() == 1 && rowSums.empty() && tables.empty()) {
    sumsMatrices = true;
    rowDim = matrix->first;
    llvm::erase(*workers, matrix->second);
  }

  if (failed(checkTables(*workers)))
    return failure();
  DenseSet<unsigned> tableDims;
  for (Operation *op : tableSums) {
    ScatterSum form = *matchScatterSum(cast<GenericOp>(op));
    for (auto [loop, index] : form.indices)
      tableDims.insert(classes->ofLoop(cast<GenericOp>(op), loop));
  }
  emitter->tables = tableSums;
  emitter->branchesRowTails = options.parallelSums;

  for (Operation *op : rowSums)
    for (auto [loop, kind] : llvm::enumerate(cast<GenericOp>(op).getIteratorTypesArray()))
      if (unsigned dim = classes->ofLoop(cast<GenericOp>(op), loop);
          kind == utils::IteratorType::reduction && dim != rowDim &&
          llvm::is_contained(*workers, dim))
        return op->emitError("expected a sum over the streamed dimension or "
                             "over the rows, got one over a worker dimension");

  if (options.rowsFirst && rowDim) {
    llvm::erase(order, *rowDim);
    order.insert(order.begin(), *rowDim);
  }

  SmallVector<unsigned> loops = findLoops(*workers);
  b.setInsertionPoint(ops.back());
  b.setLoc(first.getLoc());
  for (unsigned dim : order) {
    TileDim info;
    info.size = sizeOfClass(dim);
    if (!info.size)
      return first.emitError("cannot find the size of a dimension of the nest");
    if (auto value = dyn_cast<Value>(info.size))
      if (std::optional<int64_t> known = getConstantIntValue(value))
        info.size = b.getIndexAttr(*known);
    std::optional<int64_t> known = getConstantIntValue(info.size);
    if (dim == streamDim) {
      info.role = Role::Stream;
      bool isWhole = known && *known > 0 && *known <= longestWholeTile && folds.size() == 1 &&
                     isInnerProduct(first, *classes, *workers, streamDim);
      // Tiles of rank 2 where rows are first, with columns as a matrix
      // instruction's.
      int64_t whole = !isWhole ? 0 : options.rowsFirst ? llvm::alignTo(*known, 8) : *known;
      info.tile = sumsMatrices ? 1 : isWhole ? whole : tileFor(options.streamTile, info.size);
      info.exact = info.tile == 1 || (known && *known % info.tile == 0);
      info.isSingle = sumsMatrices && options.rowsFirst;
    } else if (dim == rowDim) {
      info.role = Role::Row;
      info.tile = tileFor(options.rowTile, info.size, options.rowMultiple);
      info.exact = known && *known % info.tile == 0;
    } else if (llvm::is_contained(*workers, dim)) {
      info.role = Role::Worker;
    } else if (tableDims.contains(dim)) {
      // In memory: it has no tile.
      info.exact = true;
    } else if (llvm::is_contained(loops, dim)) {
      info.role = Role::Loop;
    } else if (known && options.rowsFirst && *known != 1 && *known % 8 != 0) {
      return first.emitError("expected a multiple of 8 as the size of a dimension that is "
                             "whole in each tile (a head size), got ")
             << *known;
    } else if (known) {
      info.role = Role::Full;
      info.tile = *known;
      info.exact = true;
    } else {
      return first.emitError("expected a static size of a dimension that is "
                             "whole in each tile (a head size), got a dynamic one");
    }
    emitter->dims[dim] = info;
  }
  return success();
}

/// Dimensions that every carried sum is over, besides the streamed one, and that
/// all statements which lead to these sums have.
SmallVector<unsigned> Nest::findLoops(ArrayRef<unsigned> workers) {
  FoldOp fold = folds.front();
  // What is mapped has no place for the index, unless it is added to memory.
  ValueRange yielded = fold.getYield()->getOperands();
  ValueRange mapped = yielded.drop_front(fold.getState().size());
  if (folds.size() > 1 || fold.getState().empty() ||
      llvm::any_of(mapped, [&](Value value) { return !rowSums.contains(value.getDefiningOp()); }))
    return {};
  std::optional<llvm::SetVector<unsigned>> common;
  auto keep = [&](GenericOp op, utils::IteratorType kind) {
    llvm::SetVector<unsigned> dims;
    for (unsigned loop = 0; loop < op.getNumLoops(); ++loop)
      if (op.getIteratorTypesArray()[loop] == kind)
        dims.insert(classes->ofLoop(op, loop));
    if (!common)
      common = dims;
    else
      common->remove_if([&](unsigned dim) { return !dims.contains(dim); });
  };
  llvm::SmallDenseSet<Operation *> sums;
  for (Value value : yielded.take_front(fold.getState().size())) {
    auto sum = value.getDefiningOp<GenericOp>();
    if (!sum)
      return {};
    keep(sum, utils::IteratorType::reduction);
    sums.insert(sum);
  }
  bool leads = false;
  for (auto op : fold.getBody().getOps<GenericOp>())
    if (!sums.contains(op)) {
      keep(op, utils::IteratorType::parallel);
      leads = true;
    }
  if (!leads)
    return {};
  SmallVector<unsigned> loops;
  for (unsigned dim : *common)
    if (dim != streamDim && dim != rowDim && !llvm::is_contained(workers, dim))
      loops.push_back(dim);
  return loops;
}

/// Statements of the first fold that sum its values over another dimension than
/// the streamed one, `but` some, and what follows them. assignRoles checks that
/// it is the rows.
void Nest::findRowSums(ArrayRef<Operation *> but) {
  FoldOp fold = folds.front();
  rowSums.clear();
  afterRows.clear();
  for (auto op : fold.getBody().getOps<GenericOp>()) {
    if (llvm::is_contained(but, op) || tableSums.contains(op))
      continue;
    bool sums = false, follows = false;
    for (OpOperand *input : op.getDpsInputOperands()) {
      auto source = input->get().getDefiningOp<GenericOp>();
      if (!source || source->getBlock() != op->getBlock())
        continue;
      follows |= followsRowSum(source);
      AffineMap map = op.getMatchingIndexingMap(input);
      for (unsigned d = 0; d < map.getNumResults(); ++d)
        if (std::optional<unsigned> loop = getLoop(map, d))
          sums |= op.getIteratorTypesArray()[*loop] == utils::IteratorType::reduction &&
                  classes->ofLoop(op, *loop) != streamDim;
    }
    if (follows)
      afterRows.insert(op);
    else if (sums)
      rowSums.insert(op);
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
NestSize Nest::measure() {
  NestSize size;
  auto sizeOf = [&](unsigned dim) -> double {
    const TileDim &info = emitter->dims[dim];
    if (std::optional<int64_t> known = getConstantIntValue(info.size))
      return *known;
    return info.role == Role::Worker ? 8 : options.assumedSize;
  };
  // Bytes of a tensor per element of the dimensions that vary with tiles.
  auto bytesOf = [&](Type type, ArrayRef<unsigned> span) {
    double bytes = getBits(cast<RankedTensorType>(type).getElementType()) / 8.0;
    for (unsigned dim : span)
      if (emitter->dims[dim].role == Role::Full)
        bytes *= sizeOf(dim);
    return bytes;
  };
  auto spanOf = [&](Value tensor) {
    SmallVector<unsigned> span;
    for (int64_t d = 0, e = cast<RankedTensorType>(tensor.getType()).getRank(); d < e; ++d)
      span.push_back(*classes->ofValue(tensor, d));
    return span;
  };
  size.parts = options.parts;
  size.threads = options.threads;
  for (auto &[dim, info] : emitter->dims) {
    if (info.role == Role::Worker)
      size.workers *= sizeOf(dim);
    if (info.role == Role::Row)
      size.rows = sizeOf(dim), size.rowTile = info.tile;
    if (info.role == Role::Stream)
      size.streamed = sizeOf(dim), size.streamTile = info.tile;
  }
  DenseSet<Value> seen;
  for (FoldOp fold : folds) {
    for (auto [position, state] : llvm::enumerate(fold.getState()))
      if (fold != folds.front() || !isTable(position))
        size.stateBytes += bytesOf(state.getType(), spanOf(state));
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
        if (emitter->dims[dim].role == Role::Full)
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
