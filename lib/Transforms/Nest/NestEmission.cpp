// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The pieces that every loop order is made of: parallel and sequential loops,
// slices of results, a fold's loop, what follows it.

#include "Nest.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Transforms/LoopInvariantCodeMotionUtils.h"

using namespace mlir;
using namespace attn;
using linalg::GenericOp;

/// Tensors for the outputs. What the first fold maps may be left out where its
/// mask keeps nothing, and is 0 there (attn-project-masks).
SmallVector<Value> Nest::outputTensors() {
  bool selects = false;
  // One tile is never left out.
  const TileDim &stream = emitter->dims[streamDim];
  if (!stream.exact || getConstantIntValue(stream.size) != stream.tile)
    folds.front().getBody().walk([&](arith::SelectOp) { selects = true; });
  SmallVector<Value> tensors;
  for (auto [position, output] : llvm::enumerate(outputs)) {
    auto type = cast<RankedTensorType>(output.result.getType());
    SmallVector<OpFoldResult> sizes;
    for (auto [d, dim] : llvm::enumerate(output.dims)) {
      if (type.isDynamicDim(d))
        sizes.push_back(getValueOrCreateConstantIndexOp(b, b.getLoc(), emitter->dims[dim].size));
      else
        sizes.push_back(b.getIndexAttr(type.getDimSize(d)));
    }
    tensors.push_back(tensor::EmptyOp::create(b, sizes, type.getElementType()));
    bool isAddedTo = llvm::any_of(mappedOutputs, [&, at = position](const MappedOutput &mapped) {
      return mapped.output == at && rowSums.contains(mapped.yielded.getDefiningOp());
    });
    isAddedTo |= rowTreatment == LoopTreatment::Atomics && tableOf(output);
    if ((selects && isMapped(position) && !folds.front().getState().empty()) || isAddedTo) {
      Value zero = arith::ConstantOp::create(b, b.getZeroAttr(type.getElementType()));
      tensors.back() = linalg::FillOp::create(b, zero, tensors.back()).getResult(0);
    }
  }
  return tensors;
}

/// Where the part lies that the current worker (and row tile) writes.
void Nest::locate(Output &output) {
  output.offsets.clear();
  output.sizes.clear();
  for (unsigned dim : output.dims) {
    TileDim &info = emitter->dims[dim];
    OpFoldResult zero = b.getIndexAttr(0);
    output.offsets.push_back(info.base && info.role != LoopRole::Streamed ? OpFoldResult(info.base)
                                                                          : zero);
    if (info.role == LoopRole::Around && !info.base) {
      output.sizes.push_back(info.size);
    } else if (info.isScalar()) {
      output.sizes.push_back(b.getIndexAttr(1));
    } else if (info.role == LoopRole::Row && info.base && !info.exact) {
      AffineExpr d0, d1;
      bindDims(b.getContext(), d0, d1);
      AffineMap map =
          AffineMap::get(2, 0, {b.getAffineConstantExpr(info.tile), d1 - d0}, b.getContext());
      output.sizes.push_back(
          affine::makeComposedFoldedAffineMin(b, b.getLoc(), map, {info.base, sizeValue(dim)}));
    } else if (info.role == LoopRole::Row && info.base) {
      output.sizes.push_back(b.getIndexAttr(info.tile));
    } else if (info.length) {
      output.sizes.push_back(info.length);
    } else {
      output.sizes.push_back(info.size);
    }
  }
}

/// The part of `tensor` that the current worker (and row tile) writes.
void Nest::slicePart(Output &output, Value tensor) {
  locate(output);
  output.slice =
      tensor::ExtractSliceOp::create(b, tensor, output.offsets, output.sizes, unitStrides(output));
}

/// A parallel loop over workers, row tiles (with `withRows`) and `parts`, whose
/// body fills `outputs`' slices of `outs`.
scf::ForallOp
Nest::createForall(ArrayRef<Value> outs, ArrayRef<Output> outputs, bool withRows,
                   OpFoldResult parts,
                   function_ref<LogicalResult(SmallVector<Output> &, Value part)> body) {
  SmallVector<OpFoldResult> bounds;
  SmallVector<unsigned> loopDims;
  for (auto &[dim, info] : emitter->dims)
    if (info.role == LoopRole::Worker) {
      bounds.push_back(info.size);
      loopDims.push_back(dim);
    }
  if (withRows && rowDim) {
    TileDim &row = emitter->dims[*rowDim];
    AffineExpr d0 = b.getAffineDimExpr(0);
    bounds.push_back(
        affine::makeComposedFoldedAffineApply(b, b.getLoc(), d0.ceilDiv(row.tile), {row.size}));
    loopDims.push_back(*rowDim);
  }
  if (parts)
    bounds.push_back(parts);
  auto forall = scf::ForallOp::create(b, bounds, ValueRange(outs), std::nullopt);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(forall.getBody());
  SmallVector<Value> ivs = forall.getInductionVars();
  for (auto [iv, dim] : llvm::zip(ivs, loopDims)) {
    TileDim &info = emitter->dims[dim];
    if (info.role == LoopRole::Worker) {
      info.base = iv;
      continue;
    }
    AffineExpr d0 = b.getAffineDimExpr(0);
    info.base = affine::AffineApplyOp::create(b, AffineMap::get(1, 0, d0 * info.tile), iv);
  }
  SmallVector<Output> local(outputs.begin(), outputs.end());
  for (auto [output, tensor] : llvm::zip(local, forall.getRegionIterArgs()))
    slicePart(output, tensor);
  if (failed(body(local, parts ? ivs.back() : Value())))
    return {};
  b.setInsertionPointToStart(forall.getTerminator().getBody());
  for (auto [output, tensor] : llvm::zip(local, forall.getRegionIterArgs())) {
    SmallVector<OpFoldResult> strides(output.offsets.size(), b.getIndexAttr(1));
    tensor::ParallelInsertSliceOp::create(b, output.slice, tensor, output.offsets, output.sizes,
                                          strides);
  }
  for (unsigned dim : loopDims)
    emitter->dims[dim].base = {};
  return forall;
}

scf::ForOp
Nest::createLoop(Value from, Value to, int64_t step, ValueRange inits,
                 function_ref<LogicalResult(Value, ValueRange, SmallVectorImpl<Value> &)> body,
                 LogicalResult &status) {
  auto loop = scf::ForOp::create(b, from, to, index(step), inits);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> next;
  status = body(loop.getInductionVar(), loop.getRegionIterArgs(), next);
  if (failed(status))
    next.assign(loop.getRegionIterArgs().begin(), loop.getRegionIterArgs().end());
  if (!inits.empty())
    scf::YieldOp::create(b, next);
  return loop;
}

LogicalResult Nest::emitPrologue() {
  for (Operation *op : ops) {
    if (op == folds.front())
      break;
    if (auto generic = dyn_cast<GenericOp>(op))
      if (failed(emitter->emit(generic)))
        return failure();
  }
  return success();
}

Tile Nest::stateTile(Value state, Value vector) {
  Tile tile;
  tile.value = vector;
  tile.dims = emitter->spanOf(state);
  return tile;
}

/// A fold's carried results, as the vectors `states`.
void Nest::bindStates(FoldOp fold, ValueRange states) {
  for (auto [position, state] : llvm::enumerate(states))
    emitter->tiles[fold.getResult(position)] = stateTile(fold.getState()[position], state);
}

/// The sizes of a worker's part of a state of the first fold.
SmallVector<OpFoldResult> Nest::sizesOfState(Value state) {
  SmallVector<OpFoldResult> sizes;
  for (unsigned dim : dimsOf(state, true))
    sizes.push_back(emitter->dims[dim].size);
  return sizes;
}

/// A worker's memory for a state of the first fold.
Value Nest::emptyState(Value state) {
  SmallVector<OpFoldResult> sizes = sizesOfState(state);
  return tensor::EmptyOp::create(b, sizes,
                                 cast<RankedTensorType>(state.getType()).getElementType());
}

Value Nest::zeroTable(Value memory) {
  Type element = cast<RankedTensorType>(memory.getType()).getElementType();
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(element));
  return linalg::FillOp::create(b, zero, memory).getResult(0);
}

/// The worker's part of the output as a table.
Value Nest::sliceTable(const Output &output, Value state) {
  SmallVector<int64_t> shape;
  SmallVector<Value> dynamic;
  dispatchIndexOpFoldResults(sizesOfState(state), dynamic, shape);
  auto type = cast<RankedTensorType>(state.getType());
  SmallVector<OpFoldResult> offsets(output.dims.size(), b.getIndexAttr(0));
  return tensor::ExtractSliceOp::create(b, RankedTensorType::get(shape, type.getElementType()),
                                        output.slice, offsets, output.sizes, unitStrides(output));
}

/// A worker's `table` as its part of the output.
Value Nest::insertTable(const Output &output, Value table) {
  SmallVector<OpFoldResult> offsets(output.dims.size(), b.getIndexAttr(0));
  return tensor::InsertSliceOp::create(b, table, output.slice, offsets, output.sizes,
                                       unitStrides(output));
}

/// The tiles that a fold starts from.
SmallVector<Tile> Nest::startTiles(FoldOp fold) {
  SmallVector<Tile> tiles;
  for (auto [init, state] : llvm::zip(fold.getInits(), fold.getState())) {
    Tile tile;
    // A table goes on from where the worker is.
    if (fold == folds.front() && isTable(tiles.size())) {
      tiles.push_back(emitter->tiles.lookup(state));
      continue;
    }
    if (auto known = emitter->tiles.find(init); known != emitter->tiles.end()) {
      tile = known->second;
    } else if (Value fill = getFillValue(init)) {
      tile.value = fill;
    } else {
      SmallVector<std::optional<unsigned>> access;
      for (int64_t d = 0, e = cast<RankedTensorType>(init.getType()).getRank(); d < e; ++d)
        access.push_back(classes->ofValue(state, d));
      tile = emitter->read(init, access);
    }
    Type element = cast<RankedTensorType>(init.getType()).getElementType();
    SmallVector<unsigned, 2> span = emitter->spanOf(state);
    Tile whole;
    whole.value = emitter->toVector(tile, span, element);
    whole.dims = span;
    tiles.push_back(whole);
  }
  return tiles;
}

/// The statements of a fold's body on the current tiles, but for those that need
/// a sum over all rows.
LogicalResult Nest::emitBody(FoldOp fold) {
  for (auto [block, input] : llvm::zip(fold.getBlocks(), fold.getInputs()))
    emitter->sources[block] = input;
  emitter->scalars[fold.getOffset()] = emitter->dims[streamDim].base;
  for (auto op : fold.getBody().getOps<GenericOp>())
    if (!afterRows.contains(op) && failed(emitter->emit(op)))
      return failure();
  return success();
}

/// The statements of a fold's body that need a sum over all rows.
LogicalResult Nest::emitAfterRows(FoldOp fold) {
  for (auto op : fold.getBody().getOps<GenericOp>())
    if (afterRows.contains(op) && failed(emitter->emit(op)))
      return failure();
  return success();
}

/// The current tile of a statement's result, as a vector of its whole span.
Value Nest::vectorOf(Value result) {
  Type element = cast<RankedTensorType>(result.getType()).getElementType();
  return emitter->toVector(emitter->tiles.lookup(result), emitter->spanOf(result), element);
}

/// The loops of a fold; final state vectors.
FailureOr<SmallVector<Value>> Nest::emitFold(FoldOp fold, SmallVectorImpl<Output> &outputs,
                                             Value from, Value to) {
  SmallVector<Value> inits;
  for (const Tile &tile : startTiles(fold))
    inits.push_back(tile.value);
  SmallVector<unsigned> loops;
  for (auto &[dim, info] : emitter->dims)
    if (info.role == LoopRole::Around)
      loops.push_back(dim);
  return emitLoops(fold, outputs, from, to, inits, loops);
}

/// The loops over the indices of `loops`, and in them that over streamed tiles.
FailureOr<SmallVector<Value>> Nest::emitLoops(FoldOp fold, SmallVectorImpl<Output> &outputs,
                                              Value from, Value to, ArrayRef<Value> inits,
                                              ArrayRef<unsigned> loops) {
  if (loops.empty())
    return emitStreamedTiles(fold, outputs, from, to, inits);
  TileDim &info = emitter->dims[loops.front()];
  LogicalResult status = success();
  // Tensors that the streamed tiles change are carried, too.
  SmallVector<Value> all(inits);
  SmallVector<Output *> maps;
  for (Output *output : mapsOf(fold, outputs))
    if (output) {
      maps.push_back(output);
      all.push_back(output->slice);
    }
  scf::ForOp loop = createLoop(
      index(0), sizeValue(loops.front()), 1, all,
      [&](Value iv, ValueRange args, SmallVectorImpl<Value> &next) -> LogicalResult {
        info.base = iv;
        for (auto [output, tensor] : llvm::zip_equal(maps, args.drop_front(inits.size())))
          output->slice = tensor;
        FailureOr<SmallVector<Value>> states =
            emitLoops(fold, outputs, from, to, SmallVector<Value>(args.take_front(inits.size())),
                      loops.drop_front());
        if (failed(states))
          return failure();
        next.assign(*states);
        for (Output *output : maps)
          next.push_back(output->slice);
        return success();
      },
      status);
  info.base = {};
  if (failed(status))
    return failure();
  moveLoopInvariantCode(cast<LoopLikeOpInterface>(loop.getOperation()));
  b.setInsertionPointAfter(loop);
  for (auto [output, result] : llvm::zip_equal(maps, loop.getResults().drop_front(inits.size())))
    output->slice = result;
  return SmallVector<Value>(loop.getResults().take_front(inits.size()));
}

/// The outputs that a fold maps, in its order; null where nothing reads one.
SmallVector<Nest::Output *> Nest::mapsOf(FoldOp fold, MutableArrayRef<Output> outputs) {
  SmallVector<Output *> maps;
  for (Value result : fold.getResults().drop_front(fold.getState().size())) {
    auto output = llvm::find_if(outputs, [&](Output &other) { return other.result == result; });
    maps.push_back(output == outputs.end() ? nullptr : &*output);
  }
  return maps;
}

/// The loop over streamed tiles [from, to).
FailureOr<SmallVector<Value>> Nest::emitStreamedTiles(FoldOp fold, SmallVectorImpl<Output> &outputs,
                                                      Value from, Value to,
                                                      ArrayRef<Value> starts) {
  SmallVector<Value> inits(starts);
  unsigned carried = inits.size();
  SmallVector<Output *> maps = mapsOf(fold, outputs);
  for (Output *output : maps)
    if (output)
      inits.push_back(output->slice);
  TileDim &stream = emitter->dims[streamDim];
  LogicalResult status = success();
  auto outer = emitter->tiles;
  scf::ForOp loop = createLoop(
      from, to, stream.tile, inits,
      [&](Value iv, ValueRange args, SmallVectorImpl<Value> &next) -> LogicalResult {
        stream.base = iv;
        for (auto [state, argument] : llvm::zip(fold.getState(), args))
          emitter->tiles[state] = stateTile(state, argument);
        if (failed(emitBody(fold)))
          return failure();
        unsigned tensors = carried;
        for (auto [position, yielded] : llvm::enumerate(fold.getYield()->getOperands())) {
          Tile tile = emitter->tiles.lookup(yielded);
          if (!tile.value)
            return fold.emitError("expected a statement's result as yielded "
                                  "value #")
                   << position;
          Type element = cast<RankedTensorType>(yielded.getType()).getElementType();
          if (position < carried)
            next.push_back(
                emitter->toVector(tile, emitter->spanOf(fold.getState()[position]), element));
          else if (Output *output = maps[position - carried]) {
            Value tensor = args[tensors++];
            FailureOr<Value> changed =
                rowSums.contains(yielded.getDefiningOp())
                    ? emitter->add(tile, tensor, output->dims)
                    : FailureOr<Value>(emitter->write(tile, tensor, output->dims));
            if (failed(changed))
              return failure();
            next.push_back(*changed);
          }
        }
        return success();
      },
      status);
  if (failed(status))
    return failure();
  emitter->tiles = outer;
  stream.base = {};
  if (carried)
    loop->setAttr(kFoldLoopAttr, b.getUnitAttr());
  moveLoopInvariantCode(cast<LoopLikeOpInterface>(loop.getOperation()));
  b.setInsertionPointAfter(loop);
  unsigned at = carried;
  for (Output *output : maps)
    if (output)
      output->slice = loop.getResult(at++);
  return SmallVector<Value>(loop.getResults().take_front(carried));
}

/// What follows the first fold: statements on its results, further folds.
LogicalResult Nest::emitEpilogue(SmallVectorImpl<Output> &outputs) {
  bool after = false;
  for (Operation *op : ops) {
    after |= op == folds.front();
    if (!after || op == folds.front())
      continue;
    if (auto generic = dyn_cast<GenericOp>(op)) {
      if (failed(emitter->emit(generic)))
        return failure();
      continue;
    }
    auto fold = cast<FoldOp>(op);
    FailureOr<SmallVector<Value>> states = emitFold(fold, outputs, index(0), sizeValue(streamDim));
    if (failed(states))
      return failure();
    bindStates(fold, *states);
  }
  for (Output &output : outputs)
    if (auto known = emitter->tiles.find(output.result);
        known != emitter->tiles.end() && !tableOf(output))
      output.slice = emitter->write(known->second, output.slice, output.dims);
  return success();
}

void Nest::replaceResult(const Output &output, Value value) {
  Value old = output.result;
  if (value.getType() != old.getType())
    value = tensor::CastOp::create(b, old.getType(), value);
  old.replaceUsesWithIf(value, [&](OpOperand &use) {
    return !ops.contains(block.findAncestorOpInBlock(*use.getOwner()));
  });
}

void Nest::replaceResults(ValueRange results) {
  for (auto [output, result] : llvm::zip(outputs, results))
    replaceResult(output, result);
  for (Operation *op : llvm::reverse(ops.getArrayRef()))
    if (op->use_empty())
      op->erase();
  sortTopologically(&block);
}
