// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parts of the streamed dimension in parallel, each with a state of its own,
// and then a merge (Flash-Decoding; for a backward, partial dQ).

#include "Nest.h"
#include "attn/Dialect/Attn/IR/Facts.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;
using linalg::GenericOp;

/// Two states of disjoint parts, by the fold's merge region.
LogicalResult Nest::emitMerge(FoldOp fold, ArrayRef<Value> left, ArrayRef<Value> right,
                              SmallVectorImpl<Value> &merged) {
  Block &merge = fold.getMerge().front();
  unsigned count = left.size();
  for (unsigned position = 0; position < count; ++position) {
    Value state = fold.getState()[position];
    emitter->tiles[merge.getArgument(position)] = stateTile(state, left[position]);
    emitter->tiles[merge.getArgument(count + position)] = stateTile(state, right[position]);
  }
  for (auto op : merge.getOps<GenericOp>())
    if (failed(emitter->emit(op)))
      return failure();
  for (auto [position, yielded] : llvm::enumerate(merge.getTerminator()->getOperands())) {
    Type element = cast<RankedTensorType>(yielded.getType()).getElementType();
    merged.push_back(emitter->toVector(emitter->tiles.lookup(yielded),
                                       emitter->spanOf(fold.getState()[position]), element));
  }
  return success();
}

/// The current worker's (and row tile's) piece of a state's workspace, which has
/// a leading dimension of parts that the piece lacks; `ofWorker`: also without
/// the dimensions of which a worker has one index.
void Nest::slicePiece(Output &state, Value workspace, Value part, bool ofWorker) {
  locate(state);
  SmallVector<int64_t> shape;
  for (auto [dim, size] : llvm::zip(state.dims, state.sizes))
    if (!ofWorker || !emitter->dims[dim].isScalar())
      shape.push_back(getConstantIntValue(size).value_or(ShapedType::kDynamic));
  state.offsets.insert(state.offsets.begin(), part);
  state.sizes.insert(state.sizes.begin(), b.getIndexAttr(1));
  Type element = cast<RankedTensorType>(workspace.getType()).getElementType();
  state.slice = tensor::ExtractSliceOp::create(b, RankedTensorType::get(shape, element), workspace,
                                               state.offsets, state.sizes, unitStrides(state));
}

/// Puts `piece` back where `output` was sliced from, when the workers are done.
void Nest::insertPiece(scf::ForallOp forall, Value piece, Value tensor, const Output &output) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(forall.getTerminator().getBody());
  tensor::ParallelInsertSliceOp::create(b, piece, tensor, output.offsets, output.sizes,
                                        unitStrides(output));
}

/// One part, rows outside: the final states of the worker's row tile.
LogicalResult Nest::emitRowsOfPart(scf::ForallOp forall, MutableArrayRef<Output> states, Value part,
                                   Value from, Value to) {
  if (failed(emitPrologue()))
    return failure();
  SmallVector<Output> none;
  FailureOr<SmallVector<Value>> final = emitFold(folds.front(), none, from, to);
  if (failed(final))
    return failure();
  for (auto [state, tensor, vector] : llvm::zip(states, forall.getRegionIterArgs(), *final)) {
    slicePiece(state, tensor, part, /*ofWorker=*/false);
    Value written = emitter->write(stateTile(state.result, vector), state.slice, state.dims);
    insertPiece(forall, written, tensor, state);
  }
  return success();
}

/// One part, streamed tiles outside: the states of all rows, and the part of
/// what the fold maps.
LogicalResult Nest::emitStreamOfPart(scf::ForallOp forall, MutableArrayRef<Output> states,
                                     Value part, Value from, Value to) {
  TileDim &stream = emitter->dims[streamDim];
  SmallVector<Value> memory;
  for (auto [state, tensor] : llvm::zip(states, forall.getRegionIterArgs())) {
    slicePiece(state, tensor, part, /*ofWorker=*/true);
    memory.push_back(state.slice);
  }
  FailureOr<SmallVector<Value>> results = emitRowStates(memory);
  if (failed(results))
    return failure();
  Value length = arith::SubIOp::create(b, to, from);
  SmallVector<Output> maps;
  for (auto [mapped, tensor] :
       llvm::zip(mappedOutputs, forall.getRegionIterArgs().drop_front(states.size()))) {
    Output &map = maps.emplace_back(outputs[mapped.output]);
    locate(map);
    unsigned at = llvm::find(map.dims, streamDim) - map.dims.begin();
    map.offsets[at] = from;
    map.sizes[at] = length;
    map.slice = tensor::ExtractSliceOp::create(b, tensor, map.offsets, map.sizes, unitStrides(map));
    results->push_back(map.slice);
  }
  stream.origin = from;
  stream.length = length;
  results = emitStreamLoop(*results, from, to);
  stream.origin = stream.length = {};
  if (failed(results))
    return failure();
  SmallVector<Output> pieces(states.begin(), states.end());
  llvm::append_range(pieces, maps);
  for (auto [piece, tensor, result] : llvm::zip(pieces, forall.getRegionIterArgs(), *results))
    insertPiece(forall, result, tensor, piece);
  return success();
}

/// Of how many tiles of the stream a part has to be worth for its start, its states in memory and
/// their merge.
static constexpr int64_t kPartTiles = 2;
/// Rounds of programs that are tried, and the most parts.
static constexpr int64_t kMostRounds = 6, kMostParts = 128;

static Value ceilDiv(ImplicitLocOpBuilder &b, Value value, Value by) {
  Value one = arith::ConstantIndexOp::create(b, 1);
  Value rest = arith::SubIOp::create(b, by, one);
  return arith::DivUIOp::create(b, arith::AddIOp::create(b, value, rest), by);
}

/// How many parts keep `programs` busy: of the numbers that fill a whole number of rounds, the one
/// whose last round ends first, where a round takes as long as the tiles of a part, and a bit. With
/// workers and row tiles enough that is one part. None is empty, but of an empty stream.
Value Nest::countParts(Value tiles, bool rowsOutside) {
  Value one = index(1), workers = one;
  auto multiply = [&](OpFoldResult size) {
    Value value = getValueOrCreateConstantIndexOp(b, b.getLoc(), size);
    workers = arith::MulIOp::create(b, workers, value);
  };
  AffineExpr d0 = b.getAffineDimExpr(0);
  for (auto &[dim, info] : emitter->dims) {
    if (info.role == LoopRole::Worker)
      multiply(info.size);
    if (info.role == LoopRole::Row && rowsOutside)
      multiply(
          affine::makeComposedFoldedAffineApply(b, b.getLoc(), d0.ceilDiv(info.tile), {info.size}));
  }
  workers = arith::MaxUIOp::create(b, workers, one);
  Value most = arith::MinUIOp::create(b, arith::MaxUIOp::create(b, tiles, one), index(kMostParts));
  Value fewest, least;
  for (int64_t round = 1; round <= kMostRounds; ++round) {
    Value fits = arith::DivUIOp::create(b, index(round * programs), workers);
    Value count = arith::MinUIOp::create(b, arith::MaxUIOp::create(b, fits, one), most);
    Value rounds = ceilDiv(b, arith::MulIOp::create(b, workers, count), index(programs));
    Value length = arith::AddIOp::create(b, ceilDiv(b, tiles, count), index(kPartTiles));
    Value cost = arith::MulIOp::create(b, rounds, length);
    if (!fewest) {
      std::tie(fewest, least) = std::tie(count, cost);
      continue;
    }
    Value better = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, cost, least);
    fewest = arith::SelectOp::create(b, better, count, fewest);
    least = arith::SelectOp::create(b, better, cost, least);
  }
  Value length = arith::MaxUIOp::create(b, ceilDiv(b, tiles, fewest), one);
  auto count = arith::MaxUIOp::create(b, ceilDiv(b, tiles, length), one);
  count->setAttr(kPartCountAttr, b.getUnitAttr());
  return count;
}

/// The parts, in parallel; the tensors are the states' workspace and then what
/// the fold maps.
scf::ForallOp Nest::createParts(MutableArrayRef<Output> states, bool rowsOutside) {
  TileDim &stream = emitter->dims[streamDim];
  // A whole number of tiles per part.
  AffineExpr d0 = b.getAffineDimExpr(0);
  partCount = b.getIndexAttr(parts);
  if (programs) {
    Value tiles =
        getValueOrCreateConstantIndexOp(b, b.getLoc(),
                                        affine::makeComposedFoldedAffineApply(
                                            b, b.getLoc(), d0.ceilDiv(stream.tile), {stream.size}));
    partCount = countParts(tiles, rowsOutside);
  }
  Value end = sizeValue(streamDim), begin = index(0);
  Value count = getValueOrCreateConstantIndexOp(b, b.getLoc(), partCount);
  SmallVector<Value> tensors;
  for (const Output &state : states) {
    SmallVector<OpFoldResult> sizes = {partCount};
    for (unsigned dim : state.dims)
      sizes.push_back(emitter->dims[dim].size);
    Type type = state.result.getType();
    tensors.push_back(
        tensor::EmptyOp::create(b, sizes, cast<RankedTensorType>(type).getElementType()));
  }
  SmallVector<Value> outs = outputTensors();
  for (const MappedOutput &mapped : mappedOutputs)
    tensors.push_back(outs[mapped.output]);
  return createForall(tensors, {}, /*withRows=*/rowsOutside, partCount,
                      [&](SmallVector<Output> &, Value part) -> LogicalResult {
                        auto self = cast<scf::ForallOp>(b.getInsertionBlock()->getParentOp());
                        // The last parts may be empty.
                        auto own = PartOp::create(b, part, count, begin, end, stream.tile);
                        if (rowsOutside)
                          return emitRowsOfPart(self, states, part, own.getBegin(), own.getEnd());
                        // What is mapped is owned by these elements, whatever masks say.
                        auto [from, to] = expandPart(own);
                        return emitStreamOfPart(self, states, part, from, to);
                      });
}

/// The states of all parts merged for the current row tile, in order.
LogicalResult Nest::mergeParts(ArrayRef<Output> states, ValueRange workspace) {
  FoldOp fold = folds.front();
  auto load = [&](Value part) {
    SmallVector<Value> vectors;
    for (auto [state, tensor] : llvm::zip(states, workspace)) {
      Output piece = state;
      slicePiece(piece, tensor, part, /*ofWorker=*/true);
      // The piece starts at the tile.
      Value rowBase;
      if (rowDim)
        std::swap(rowBase, emitter->dims[*rowDim].base);
      SmallVector<unsigned> dims = dimsOf(state.result, true);
      SmallVector<std::optional<unsigned>> access(dims.begin(), dims.end());
      vectors.push_back(emitter->read(piece.slice, access).value);
      if (rowDim)
        std::swap(rowBase, emitter->dims[*rowDim].base);
    }
    return vectors;
  };
  SmallVector<Value> first = load(index(0));
  LogicalResult status = success();
  auto outer = emitter->tiles;
  scf::ForOp loop = createLoop(
      index(1), getValueOrCreateConstantIndexOp(b, b.getLoc(), partCount), 1, first,
      [&](Value iv, ValueRange args, SmallVectorImpl<Value> &next) {
        SmallVector<Value> left(args.begin(), args.end());
        return emitMerge(fold, left, load(iv), next);
      },
      status);
  if (failed(status))
    return failure();
  emitter->tiles = outer;
  b.setInsertionPointAfter(loop);
  bindStates(fold, loop.getResults());
  return success();
}

LogicalResult Nest::tileSplit() {
  FoldOp fold = folds.front();
  SmallVector<Output> states;
  for (Value state : fold.getState()) {
    Output &output = states.emplace_back();
    output.result = state;
    output.dims = dimsOf(state, false);
  }
  // What is mapped is owned by a part.
  bool rowsOutside = rowSums.empty() && mappedOutputs.empty();
  scf::ForallOp parts = createParts(states, rowsOutside);
  if (!parts)
    return failure();
  emitter->tiles.clear();
  b.setInsertionPointAfter(parts);
  for (auto [mapped, result] :
       llvm::zip(mappedOutputs, parts.getResults().drop_front(states.size())))
    replaceResult(outputs[mapped.output], result);
  SmallVector<Output> ofRows;
  for (auto [position, output] : llvm::enumerate(outputs))
    if (!isMapped(position))
      ofRows.push_back(output);
  outputs = ofRows;
  mappedOutputs.clear();

  scf::ForallOp forall =
      createForall(outputTensors(), outputs, /*withRows=*/true, /*parts=*/{},
                   [&](SmallVector<Output> &local, Value) -> LogicalResult {
                     if (failed(emitPrologue()) || failed(mergeParts(states, parts.getResults())))
                       return failure();
                     return emitEpilogue(local);
                   });
  if (!forall)
    return failure();
  replaceResults(forall.getResults());
  return success();
}
