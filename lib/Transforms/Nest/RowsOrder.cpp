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

