// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The role of each dimension of a nest, from the form of its statements.

#include "Nest.h"
#include "attn/Utils/TileClasses.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;
using linalg::GenericOp;

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

/// Checks that what such a sum keeps are dimensions of workers and of the table,
/// and that it sums over the rest.
LogicalResult Nest::checkTables() {
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

/// Lists the loops of a statement in canonical order; its parallel ones, and whether it is over the
/// streamed dimension.
std::pair<bool, SmallVector<unsigned>> Nest::visit(GenericOp op) {
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
  return {streams, span};
}

/// The dimensions that all statements over the streamed one have, and all states.
LogicalResult Nest::findWorkers() {
  FoldOp first = folds.front();
  std::optional<SmallVector<unsigned>> common;
  auto restrict = [&](ArrayRef<unsigned> span) {
    if (!common)
      common.emplace(span.begin(), span.end());
    llvm::erase_if(
        *common, [&](unsigned dim) { return dim == streamDim || !llvm::is_contained(span, dim); });
  };
  findRowSums();
  for (FoldOp fold : folds) {
    for (auto op : fold.getBody().getOps<GenericOp>())
      if (auto [streams, span] = visit(op);
          streams && !followsRowSum(op) && !tableSums.contains(op))
        restrict(span);
    for (auto [position, state] : llvm::enumerate(fold.getState()))
      if (fold != first || !isTable(position))
        restrict(dimsOf(state, /*ofWorker=*/false));
  }
  for (Operation *op : ops)
    if (auto generic = dyn_cast<GenericOp>(op))
      visit(generic);
  if (!common || !llvm::is_contained(order, streamDim))
    return first.emitError("expected a statement over the streamed dimension");
  for (FoldOp fold : folds)
    for (auto [position, state] : llvm::enumerate(fold.getState()))
      for (auto [d, dim] : llvm::enumerate(dimsOf(state, /*ofWorker=*/false)))
        if (dim == streamDim || !llvm::is_contained(order, dim))
          return emitError(fold.getLoc())
                 << "expected a statement over dimension " << d << " of carried value #" << position
                 << ", which is not the streamed one";

  // What sums over no worker is no sum over rows.
  auto reducesWorker = [&](Operation *op) {
    auto sum = cast<GenericOp>(op);
    for (unsigned loop = 0; loop < sum.getNumLoops(); ++loop)
      if (sum.getIteratorTypesArray()[loop] == utils::IteratorType::reduction &&
          llvm::is_contained(*common, classes->ofLoop(sum, loop)))
        return true;
    return false;
  };
  SmallVector<Operation *> others =
      llvm::filter_to_vector(rowSums, [&](Operation *op) { return !reducesWorker(op); });
  for (Operation *op : others)
    restrict(visit(cast<GenericOp>(op)).second);
  if (!others.empty())
    findRowSums(others);
  workers = *common;
  return success();
}

/// The row dimension: rows share what is streamed, so no streamed input has it; without such a
/// dimension the last one of the workers. Of one element it leaves rows to the one before it
/// (grouped heads of a single query), unless it is summed over.
void Nest::findRowDim() {
  FoldOp first = folds.front();
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
  auto isSingle = [&](unsigned dim) {
    std::optional<Extent> extent = findExtent(dim);
    return extent && extent->getKnown() == 1;
  };
  bool sumsRows = !rowSums.empty() || !tables.empty();
  for (unsigned dim : order) {
    if (!llvm::is_contained(workers, dim))
      continue;
    bool isShared = !streamedDims.contains(dim);
    if (!rowDim || streamedDims.contains(*rowDim) ||
        (isShared && (sumsRows || !isSingle(dim) || isSingle(*rowDim))))
      rowDim = dim;
  }
  // Where rows are first, columns are those of matrix instructions.
  auto isWide = [&](unsigned column) {
    if (!options.rowsFirst)
      return true;
    std::optional<Extent> extent = findExtent(column);
    std::optional<int64_t> size = extent ? extent->getKnown() : std::nullopt;
    return size && *size % 8 == 0;
  };
  if (auto matrix = getSummedMatrix(first, *classes, workers);
      matrix && isWide(matrix->second) && folds.size() == 1 && rowSums.empty() && tables.empty()) {
    sumsMatrices = true;
    rowDim = matrix->first;
    llvm::erase(workers, matrix->second);
  }
}

LogicalResult Nest::findRoles() {
  classes = std::make_unique<DimClasses>(ops.getArrayRef());
  emitter = std::make_unique<TileEmitter>(b, *classes);
  for (Operation *op : ops)
    if (auto generic = dyn_cast<GenericOp>(op); generic && classes->isCrossing(generic))
      return generic.emitError("expected each dimension of the nest to be read "
                               "as one dimension of a statement");
  streamDim = classes->ofStream(folds.front());
  for (FoldOp fold : folds)
    if (classes->ofStream(fold) != streamDim)
      return fold.emitError("expected one streamed dimension in a nest, got a second");
  if (failed(findWorkers()))
    return failure();
  findRowDim();
  if (failed(checkTables()))
    return failure();
  for (Operation *op : tableSums) {
    ScatterSum form = *matchScatterSum(cast<GenericOp>(op));
    for (auto [loop, index] : form.indices)
      tableDims.insert(classes->ofLoop(cast<GenericOp>(op), loop));
  }
  emitter->tables = tableSums;
  emitter->branchesRowTails = options.parallelSums;
  emitter->readsLastDims = options.rowsFirst;

  for (Operation *op : rowSums)
    for (auto [loop, kind] : llvm::enumerate(cast<GenericOp>(op).getIteratorTypesArray()))
      if (unsigned dim = classes->ofLoop(cast<GenericOp>(op), loop);
          kind == utils::IteratorType::reduction && dim != rowDim &&
          llvm::is_contained(workers, dim))
        return op->emitError("expected a sum over the streamed dimension or "
                             "over the rows, got one over a worker dimension");

  if (options.rowsFirst && rowDim) {
    llvm::erase(order, *rowDim);
    order.insert(order.begin(), *rowDim);
  }
  return assignTiles();
}

static int64_t tileFor(int64_t wanted, std::optional<int64_t> known, int64_t multiple = 16) {
  if (!known)
    return wanted;
  // A short dimension needs no tile beyond its end, up to a vector's length.
  return std::min(wanted, std::max(multiple, int64_t(llvm::alignTo(*known, multiple))));
}

/// The streamed dimension's tile.
void Nest::assignStreamTile(TileDim &info) {
  FoldOp first = folds.front();
  info.role = LoopRole::Streamed;
  bool isWhole = info.known && *info.known > 0 && *info.known <= longestWholeTile &&
                 folds.size() == 1 && isInnerProduct(first, *classes, workers, streamDim);
  // Tiles of rank 2 where rows are first, with columns as a matrix instruction's.
  int64_t whole = !isWhole ? 0 : options.rowsFirst ? llvm::alignTo(*info.known, 8) : *info.known;
  info.tile = sumsMatrices ? 1 : isWhole ? whole : tileFor(options.blockN, info.known);
  info.exact = info.tile == 1 || (info.known && *info.known % info.tile == 0);
  info.isSingle = sumsMatrices && options.rowsFirst;
}

/// A few rows are no vector: tiles of them need not be as long as one.
int64_t Nest::findRowTile(std::optional<int64_t> known, std::optional<int64_t> expected) {
  std::optional<int64_t> rows = known ? known : expected;
  if (!options.rowsFirst && rows && *rows > 0 && *rows <= tiles::kFewRows)
    return std::min(options.blockM, *rows);
  return tileFor(options.blockM, known, options.blockMMultiple);
}

LogicalResult Nest::assignTiles() {
  FoldOp first = folds.front();
  SmallVector<unsigned> loops = findLoops();
  for (unsigned dim : order) {
    TileDim info;
    std::optional<Extent> extent = findExtent(dim);
    if (!extent)
      return first.emitError("cannot find the size of a dimension of the nest");
    info.known = extent->getKnown();
    if (dim == streamDim) {
      assignStreamTile(info);
    } else if (dim == rowDim) {
      info.role = LoopRole::Row;
      info.tile = findRowTile(info.known, extent->getExpected());
      info.exact = info.tile == 1 || (info.known && *info.known % info.tile == 0);
    } else if (llvm::is_contained(workers, dim)) {
      info.role = LoopRole::Worker;
    } else if (tableDims.contains(dim)) {
      // In memory: it has no tile.
      info.role = LoopRole::Table;
      info.exact = true;
    } else if (llvm::is_contained(loops, dim)) {
      info.role = LoopRole::Around;
    } else if (info.known) {
      // Tiles of rank 2 where rows are first, with columns as a matrix instruction's: what lies
      // beyond is read as zeros, and not written.
      bool isRounded = options.rowsFirst && *info.known != 1;
      info.role = LoopRole::Whole;
      info.tile = isRounded ? llvm::alignTo(*info.known, 8) : *info.known;
      info.exact = info.tile == *info.known;
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
SmallVector<unsigned> Nest::findLoops() {
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
