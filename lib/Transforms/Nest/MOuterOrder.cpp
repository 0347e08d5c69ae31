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

/// The whole nest for the current row tile; the first fold's final states.
FailureOr<SmallVector<Value>> Nest::emitRowTile(SmallVectorImpl<Output> &outputs) {
  FoldOp fold = folds.front();
  if (failed(emitPrologue()))
    return failure();
  FailureOr<SmallVector<Value>> states = emitFold(fold, outputs, index(0), sizeValue(streamDim));
  if (failed(states))
    return failure();
  bindStates(fold, *states);
  if (failed(emitEpilogue(outputs)))
    return failure();
  return states;
}

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
  auto rows =
      createRowLoop(inits, [&](ValueRange args, SmallVectorImpl<Value> &next) -> LogicalResult {
        SmallVector<Output> parts;
        for (auto [output, tensor] : llvm::zip(ofRows, args))
          parts.push_back(partOfSlice(*output, tensor));
        for (auto [table, tensor] : llvm::zip(tables, args.drop_front(parts.size()))) {
          Value state = fold.getState()[table];
          emitter->tiles[state] = stateTile(state, tensor);
        }
        FailureOr<SmallVector<Value>> states = emitRowTile(parts);
        if (failed(states))
          return failure();
        insertParts(parts, args, next);
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
      output.slice = insertTable(output, final[llvm::find(tables, *table) - tables.begin()]);
  return success();
}

/// A row tile that adds to tables in memory, as others do at the same time.
LogicalResult Nest::emitSharingRowTile(SmallVectorImpl<Output> &outputs) {
  FoldOp fold = folds.front();
  for (Output &output : outputs)
    if (std::optional<unsigned> table = tableOf(output)) {
      Value state = fold.getState()[*table];
      emitter->tiles[state] = stateTile(state, sliceTable(output, state));
    }
  FailureOr<SmallVector<Value>> states = emitRowTile(outputs);
  if (failed(states))
    return failure();
  for (Output &output : outputs)
    if (std::optional<unsigned> table = tableOf(output))
      output.slice = insertTable(output, (*states)[*table]);
  return success();
}

LogicalResult Nest::tileRows() {
  SmallVector<Value> outs = outputTensors();
  bool ownsTables = !tables.empty() && rowTreatment == LoopTreatment::OwnerComputes;
  scf::ForallOp forall = createForall(outs, outputs, /*withRows=*/!ownsTables, /*parts=*/{},
                                      [&](SmallVector<Output> &local, Value) -> LogicalResult {
                                        if (ownsTables)
                                          return emitRowsInWorker(local);
                                        if (!tables.empty())
                                          return emitSharingRowTile(local);
                                        return emitRowTile(local);
                                      });
  if (!forall)
    return failure();
  replaceResults(forall.getResults());
  return success();
}
