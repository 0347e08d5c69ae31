// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Streamed tiles outside, rows inside (FlashAttention, Dao et al. 2022,
// algorithm 1; with sums over the rows, its backward, algorithm 4): the state of
// all rows is in memory, a sum over the rows in vectors.

#include "Nest.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Transforms/LoopInvariantCodeMotionUtils.h"

using namespace mlir;
using namespace attn;
using linalg::GenericOp;

namespace {
/// While it lives, the worker dimensions count from the worker's own slice.
class InWorkerSlice {
public:
  explicit InWorkerSlice(TileEmitter &emitter) : emitter(emitter) {
    for (auto &[dim, info] : emitter.dims) {
      bases.push_back(info.base);
      if (info.isScalar())
        info.base = {};
    }
  }
  ~InWorkerSlice() {
    for (auto [entry, base] : llvm::zip(emitter.dims, bases))
      entry.second.base = base;
  }

private:
  TileEmitter &emitter;
  SmallVector<Value> bases;
};
} // namespace

/// The classes of a tensor's dimensions; without those of which a worker's own
/// memory has one index.
SmallVector<unsigned> Nest::dimsOf(Value tensor, bool ofWorker) {
  SmallVector<unsigned> dims;
  for (int64_t d = 0, e = cast<RankedTensorType>(tensor.getType()).getRank(); d < e; ++d)
    if (unsigned dim = *classes->ofValue(tensor, d); !ofWorker || !emitter->dims[dim].isScalar())
      dims.push_back(dim);
  return dims;
}

/// Writes `tile` to `tensor`, a worker's memory with dimensions `dims`, at the
/// current row and streamed tile; the new tensor.
Value Nest::writeTile(const Tile &tile, Value tensor, ArrayRef<unsigned> dims) {
  // write() counts from the tile's first element; here the tensor is whole.
  InWorkerSlice scope(*emitter);
  Output part;
  part.dims.assign(dims.begin(), dims.end());
  slicePart(part, tensor);
  Value written = emitter->write(tile, part.slice, part.dims);
  return tensor::InsertSliceOp::create(b, written, tensor, part.offsets, part.sizes,
                                       unitStrides(part));
}

/// A loop over row tiles that carries `inits`.
FailureOr<scf::ForOp>
Nest::createRowLoop(ValueRange inits,
                    function_ref<LogicalResult(ValueRange, SmallVectorImpl<Value> &)> body) {
  TileDim &row = emitter->dims[*rowDim];
  LogicalResult status = success();
  auto outer = emitter->tiles;
  scf::ForOp loop = createLoop(
      index(0), sizeValue(*rowDim), row.tile, inits,
      [&](Value iv, ValueRange args, SmallVectorImpl<Value> &next) {
        row.base = iv;
        return body(args, next);
      },
      status);
  emitter->tiles = outer;
  row.base = {};
  if (failed(status))
    return failure();
  b.setInsertionPointAfter(loop);
  return loop;
}

/// Writes the start values of all rows to `memory`, a tensor per state.
FailureOr<SmallVector<Value>> Nest::emitRowStates(ValueRange memory) {
  FoldOp fold = folds.front();
  auto start =
      createRowLoop(memory, [&](ValueRange args, SmallVectorImpl<Value> &next) -> LogicalResult {
        if (failed(emitPrologue()))
          return failure();
        for (auto [position, tile] : llvm::enumerate(startTiles(fold)))
          next.push_back(isTable(position) ? args[position]
                                           : writeTile(tile, args[position],
                                                       dimsOf(fold.getState()[position], true)));
        return success();
      });
  if (failed(start))
    return failure();
  SmallVector<Value> states(start->getResults());
  for (unsigned table : tables)
    states[table] = zeroTable(states[table]);
  return states;
}

/// The row loop of one streamed tile. `memory` holds the states and then the
/// outputs that the fold maps; `sums` are the sums over the rows. Returns both.
FailureOr<SmallVector<Value>> Nest::emitRows(ValueRange memory, ValueRange sums) {
  FoldOp fold = folds.front();
  unsigned states = fold.getState().size();
  SmallVector<Value> inits(memory);
  llvm::append_range(inits, sums);
  auto rows =
      createRowLoop(inits, [&](ValueRange args, SmallVectorImpl<Value> &next) -> LogicalResult {
        for (auto [state, tensor] : llvm::zip(fold.getState(), args)) {
          if (isTable(state.getArgNumber() - fold.getState()[0].getArgNumber())) {
            emitter->tiles[state] = stateTile(state, tensor);
            continue;
          }
          SmallVector<unsigned> dims = dimsOf(state, true);
          SmallVector<std::optional<unsigned>> access(dims.begin(), dims.end());
          emitter->tiles[state] = emitter->read(tensor, access);
        }
        for (auto [op, sum] : llvm::zip(rowSums, args.drop_front(memory.size())))
          emitter->starts[op] = stateTile(op->getResult(0), sum);
        if (failed(emitBody(fold)))
          return failure();
        for (auto [position, tensor] : llvm::enumerate(args.take_front(memory.size()))) {
          bool isState = position < states;
          Value yielded = isState ? fold.getYield()->getOperand(position)
                                  : mappedOutputs[position - states].yielded;
          if (isState && isTable(position)) {
            next.push_back(emitter->tiles.lookup(yielded).value);
            continue;
          }
          if (!isState && followsRowSum(yielded.getDefiningOp())) {
            next.push_back(tensor);
            continue;
          }
          next.push_back(writeTile(emitter->tiles.lookup(yielded), tensor,
                                   isState ? dimsOf(fold.getState()[position], true)
                                           : dimsOf(yielded, false)));
        }
        for (Operation *op : rowSums)
          next.push_back(vectorOf(op->getResult(0)));
        return success();
      });
  if (failed(rows))
    return failure();
  emitter->starts.clear();
  (*rows)->setAttr(kFoldLoopAttr, b.getUnitAttr());
  moveLoopInvariantCode(cast<LoopLikeOpInterface>(rows->getOperation()));
  b.setInsertionPointAfter(*rows);
  return SmallVector<Value>(rows->getResults());
}

/// One streamed tile: all rows of it, then what their sums finish.
LogicalResult Nest::emitStreamTile(ValueRange memory, SmallVectorImpl<Value> &next) {
  FoldOp fold = folds.front();
  unsigned states = fold.getState().size();
  SmallVector<Value> sums;
  for (Operation *op : rowSums) {
    FailureOr<Tile> start = emitter->startOf(cast<GenericOp>(op));
    if (failed(start))
      return failure();
    Type element = cast<RankedTensorType>(op->getResult(0).getType()).getElementType();
    sums.push_back(emitter->toVector(*start, emitter->spanOf(op->getResult(0)), element));
  }
  FailureOr<SmallVector<Value>> rows = emitRows(memory, sums);
  if (failed(rows))
    return failure();
  for (auto [op, sum] : llvm::zip(rowSums, ArrayRef<Value>(*rows).drop_front(memory.size())))
    emitter->tiles[op->getResult(0)] = stateTile(op->getResult(0), sum);
  if (failed(emitAfterRows(fold)))
    return failure();
  next.assign(rows->begin(), rows->begin() + memory.size());
  for (auto [position, output] : llvm::enumerate(mappedOutputs))
    if (followsRowSum(output.yielded.getDefiningOp()))
      next[states + position] = writeTile(emitter->tiles.lookup(output.yielded),
                                          next[states + position], dimsOf(output.yielded, false));
  return success();
}

/// The loop over the streamed tiles of [from, to).
FailureOr<SmallVector<Value>> Nest::emitStreamLoop(ValueRange memory, Value from, Value to) {
  TileDim &stream = emitter->dims[streamDim];
  LogicalResult status = success();
  scf::ForOp loop = createLoop(
      from, to, stream.tile, memory,
      [&](Value iv, ValueRange args, SmallVectorImpl<Value> &next) {
        stream.base = iv;
        auto tiles = emitter->tiles;
        LogicalResult done = emitStreamTile(args, next);
        emitter->tiles = tiles;
        return done;
      },
      status);
  stream.base = {};
  if (failed(status))
    return failure();
  b.setInsertionPointAfter(loop);
  return SmallVector<Value>(loop.getResults());
}

/// The current row tile's part of `tensor`, a worker's slice of an output.
Nest::Output Nest::partOfSlice(const Output &output, Value tensor) {
  InWorkerSlice scope(*emitter);
  Output part = output;
  slicePart(part, tensor);
  return part;
}

/// Each tensor with its row tile's part put back.
void Nest::insertParts(ArrayRef<Output> parts, ValueRange tensors, SmallVectorImpl<Value> &next) {
  for (auto [part, tensor] : llvm::zip(parts, tensors))
    next.push_back(tensor::InsertSliceOp::create(b, part.slice, tensor, part.offsets, part.sizes,
                                                 unitStrides(part)));
}

/// Finishes all rows from their final `states`; fills the outputs' slices.
LogicalResult Nest::finishRows(ArrayRef<Value> states, MutableArrayRef<Output *> local) {
  FoldOp fold = folds.front();
  SmallVector<Value> slices;
  for (Output *output : local)
    slices.push_back(output->slice);
  auto finish =
      createRowLoop(slices, [&](ValueRange args, SmallVectorImpl<Value> &next) -> LogicalResult {
        for (auto [position, tensor] : llvm::enumerate(states)) {
          if (isTable(position))
            continue;
          SmallVector<unsigned> dims = dimsOf(fold.getState()[position], true);
          SmallVector<std::optional<unsigned>> access(dims.begin(), dims.end());
          emitter->tiles[fold.getResult(position)] = emitter->read(tensor, access);
        }
        // The worker's slice is whole along rows: take this tile's part.
        SmallVector<Output> parts;
        for (auto [output, tensor] : llvm::zip(local, args))
          parts.push_back(partOfSlice(*output, tensor));
        if (failed(emitEpilogue(parts)))
          return failure();
        insertParts(parts, args, next);
        return success();
      });
  if (failed(finish))
    return failure();
  for (auto [output, result] : llvm::zip(local, finish->getResults()))
    output->slice = result;
  return success();
}

/// One worker does all streamed tiles in order.
LogicalResult Nest::tileStream() {
  FoldOp fold = folds.front();
  scf::ForallOp forall =
      createForall(outputTensors(), outputs, /*withRows=*/false, /*parts=*/{},
                   [&](SmallVector<Output> &local, Value) -> LogicalResult {
                     SmallVector<Value> memory;
                     for (Value state : fold.getState())
                       memory.push_back(emptyState(state));
                     FailureOr<SmallVector<Value>> states = emitRowStates(memory);
                     if (failed(states))
                       return failure();
                     for (const MappedOutput &mapped : mappedOutputs)
                       states->push_back(local[mapped.output].slice);
                     states = emitStreamLoop(*states, index(0), sizeValue(streamDim));
                     if (failed(states))
                       return failure();
                     for (auto [position, mapped] : llvm::enumerate(mappedOutputs))
                       local[mapped.output].slice = (*states)[memory.size() + position];
                     SmallVector<Output *> ofRows;
                     for (auto [position, output] : llvm::enumerate(local))
                       if (std::optional<unsigned> table = tableOf(output))
                         output.slice = insertTable(output, (*states)[*table]);
                       else if (!isMapped(position))
                         ofRows.push_back(&output);
                     states->truncate(memory.size());
                     return finishRows(*states, ofRows);
                   });
  if (!forall)
    return failure();
  replaceResults(forall.getResults());
  return success();
}
