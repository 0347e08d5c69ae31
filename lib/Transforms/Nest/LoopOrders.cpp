// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows outside (FlashAttention-2, Dao 2023), and parts of the streamed
// dimension in parallel with a merge (Flash-Decoding).

#include "Nest.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Transforms/LoopInvariantCodeMotionUtils.h"

using namespace mlir;
using namespace attn;
using linalg::GenericOp;
using Role = TileDim::Role;

LogicalResult Nest::tileRows() {
  FoldOp fold = folds.front();
  SmallVector<Value> outs = outputTensors();
  scf::ForallOp forall = createForall(
      outs, outputs, /*withRows=*/true, /*parts=*/0,
      [&](SmallVector<Output> &local, Value) -> LogicalResult {
        if (failed(emitPrologue()))
          return failure();
        FailureOr<SmallVector<Value>> states =
            emitFold(fold, local, index(0), sizeValue(streamDim));
        if (failed(states))
          return failure();
        bindStates(fold, *states);
        return emitEpilogue(local);
      });
  if (!forall)
    return failure();
  replaceResults(forall.getResults());
  return success();
}

/// Two states of disjoint parts, by the fold's merge region.
LogicalResult Nest::emitMerge(FoldOp fold, ArrayRef<Value> left,
                              ArrayRef<Value> right,
                              SmallVectorImpl<Value> &merged) {
  Block &merge = fold.getMerge().front();
  unsigned count = left.size();
  for (unsigned position = 0; position < count; ++position) {
    Value state = fold.getState()[position];
    emitter->tiles[merge.getArgument(position)] =
        stateTile(state, left[position]);
    emitter->tiles[merge.getArgument(count + position)] =
        stateTile(state, right[position]);
  }
  for (auto op : merge.getOps<GenericOp>())
    if (failed(emitter->emit(op)))
      return failure();
  for (auto [position, yielded] :
       llvm::enumerate(merge.getTerminator()->getOperands())) {
    Type element = cast<RankedTensorType>(yielded.getType()).getElementType();
    merged.push_back(
        emitter->toVector(emitter->tiles.lookup(yielded),
                         emitter->spanOf(fold.getState()[position]), element));
  }
  return success();
}

/// Parts of the streamed dimension in parallel, then a merge per row tile.
LogicalResult Nest::tileSplit() {
  FoldOp fold = folds.front();
  TileDim &stream = emitter->dims[streamDim];
  // A whole number of tiles per part.
  AffineExpr d0 = b.getAffineDimExpr(0);
  OpFoldResult chunk = affine::makeComposedFoldedAffineApply(
      b, b.getLoc(),
      d0.ceilDiv(options.parts * stream.tile) * stream.tile, {stream.size});
  Value chunkValue = getValueOrCreateConstantIndexOp(b, b.getLoc(), chunk);

  // Workspace: each state with a leading dimension of parts.
  SmallVector<Value> workspace;
  SmallVector<Output> states;
  for (Value state : fold.getState()) {
    Output output;
    output.result = state;
    auto type = cast<RankedTensorType>(state.getType());
    SmallVector<OpFoldResult> sizes = {b.getIndexAttr(options.parts)};
    for (int64_t d = 0; d < type.getRank(); ++d) {
      output.dims.push_back(*classes->ofValue(state, d));
      sizes.push_back(emitter->dims[output.dims.back()].size);
    }
    states.push_back(output);
    workspace.push_back(
        tensor::EmptyOp::create(b, sizes, type.getElementType()));
  }
  // The part of a state's workspace that a worker uses: rank-reduced.
  auto partSlice = [&](Output &output, Value tensor, Value part) {
    slicePart(output, tensor::EmptyOp::create(
                          b, [&] {
                            SmallVector<OpFoldResult> sizes;
                            for (unsigned dim : output.dims)
                              sizes.push_back(emitter->dims[dim].size);
                            return sizes;
                          }(),
                          cast<RankedTensorType>(tensor.getType())
                              .getElementType()));
    output.offsets.insert(output.offsets.begin(), part);
    output.sizes.insert(output.sizes.begin(), b.getIndexAttr(1));
    SmallVector<OpFoldResult> strides(output.offsets.size(), b.getIndexAttr(1));
    auto reduced = cast<RankedTensorType>(output.slice.getType());
    output.slice = tensor::ExtractSliceOp::create(
        b, reduced, tensor, output.offsets, output.sizes, strides);
  };
  scf::ForallOp partial = createForall(
      workspace, {}, /*withRows=*/true, options.parts,
      [&](SmallVector<Output> &, Value part) -> LogicalResult {
        auto self = cast<scf::ForallOp>(b.getInsertionBlock()->getParentOp());
        Value from = arith::MulIOp::create(b, part, chunkValue);
        Value end = arith::AddIOp::create(b, from, chunkValue);
        Value to = arith::MinUIOp::create(b, end, sizeValue(streamDim));
        if (failed(emitPrologue()))
          return failure();
        SmallVector<Output> none;
        FailureOr<SmallVector<Value>> final = emitFold(fold, none, from, to);
        if (failed(final))
          return failure();
        for (auto [state, tensor, vector] :
             llvm::zip(states, self.getRegionIterArgs(), *final)) {
          partSlice(state, tensor, part);
          Value written = emitter->write(stateTile(state.result, vector),
                                        state.slice, state.dims);
          OpBuilder::InsertionGuard guard(b);
          b.setInsertionPointToEnd(self.getTerminator().getBody());
          SmallVector<OpFoldResult> strides(state.offsets.size(),
                                            b.getIndexAttr(1));
          tensor::ParallelInsertSliceOp::create(b, written, tensor,
                                                state.offsets, state.sizes,
                                                strides);
        }
        return success();
      });
  if (!partial)
    return failure();
  emitter->tiles.clear();
  b.setInsertionPointAfter(partial);

  SmallVector<Value> outs = outputTensors();
  scf::ForallOp forall = createForall(
      outs, outputs, /*withRows=*/true, /*parts=*/0,
      [&](SmallVector<Output> &local, Value) -> LogicalResult {
        if (failed(emitPrologue()))
          return failure();
        auto load = [&](Value part) {
          SmallVector<Value> vectors;
          for (auto [state, tensor] : llvm::zip(states, partial.getResults())) {
            Output output = state;
            partSlice(output, tensor, part);
            // The slice starts at the tile.
            SmallVector<Value> bases;
            for (auto &[dim, info] : emitter->dims) {
              bases.push_back(info.base);
              info.base = {};
            }
            for (auto &[dim, info] : emitter->dims)
              if (info.isScalar())
                info.base = index(0);
            SmallVector<std::optional<unsigned>> access(state.dims.begin(),
                                                        state.dims.end());
            vectors.push_back(emitter->read(output.slice, access).value);
            for (auto [entry, base] : llvm::zip(emitter->dims, bases))
              entry.second.base = base;
          }
          return vectors;
        };
        SmallVector<Value> first = load(index(0));
        LogicalResult status = success();
        auto outer = emitter->tiles;
        scf::ForOp loop = createLoop(
            index(1), index(options.parts), 1, first,
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
        return emitEpilogue(local);
      });
  if (!forall)
    return failure();
  replaceResults(forall.getResults());
  return success();
}
