// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows outside (FlashAttention-2, Dao 2023).

#include "Nest.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Transforms/LoopInvariantCodeMotionUtils.h"

using namespace mlir;
using namespace attn;
using linalg::GenericOp;
using Role = TileDim::Role;

/// One worker does all row tiles in order, because it owns tables.
LogicalResult Nest::emitRowsInWorker(SmallVectorImpl<Output> &outputs) {
  FoldOp fold = folds.front();
  SmallVector<Output *> ofRows;
  SmallVector<Value> inits;
  for (Output &output : outputs)
    if (!tableOf(output)) {
      ofRows.push_back(&output);
      inits.push_back(output.slice);
    }
  for (unsigned table : tables)
    inits.push_back(zeroTable(emptyState(fold.getState()[table])));
  auto rows = createRowLoop(
      inits,
      [&](ValueRange args, SmallVectorImpl<Value> &next) -> LogicalResult {
        SmallVector<Output> parts;
        for (auto [output, tensor] : llvm::zip(ofRows, args))
          parts.push_back(partOfSlice(*output, tensor));
        for (auto [table, tensor] :
             llvm::zip(tables, args.drop_front(parts.size()))) {
          Value state = fold.getState()[table];
          emitter->tiles[state] = stateTile(state, tensor);
        }
        if (failed(emitPrologue()))
          return failure();
        FailureOr<SmallVector<Value>> states =
            emitFold(fold, parts, index(0), sizeValue(streamDim));
        if (failed(states))
          return failure();
        bindStates(fold, *states);
        if (failed(emitEpilogue(parts)))
          return failure();
        for (auto [part, tensor] : llvm::zip(parts, args))
          next.push_back(tensor::InsertSliceOp::create(
              b, part.slice, tensor, part.offsets, part.sizes,
              unitStrides(part)));
        for (unsigned table : tables)
          next.push_back((*states)[table]);
        return success();
      });
  if (failed(rows))
    return failure();
  for (auto [output, result] : llvm::zip(ofRows, rows->getResults()))
    output->slice = result;
  ValueRange final = rows->getResults().drop_front(ofRows.size());
  for (Output &output : outputs)
    if (std::optional<unsigned> table = tableOf(output))
      output.slice = insertTable(
          output, final[llvm::find(tables, *table) - tables.begin()]);
  return success();
}

LogicalResult Nest::tileRows() {
  FoldOp fold = folds.front();
  SmallVector<Value> outs = outputTensors();
  scf::ForallOp forall = createForall(
      outs, outputs, /*withRows=*/tables.empty(), /*parts=*/0,
      [&](SmallVector<Output> &local, Value) -> LogicalResult {
        if (!tables.empty())
          return emitRowsInWorker(local);
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

