// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "attn/Utils/Memory.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;

bool attn::isView(Operation *op) {
  return isa<ViewLikeOpInterface, memref::DimOp, memref::ExtractStridedMetadataOp>(op);
}

SmallVector<Operation *> attn::collectAccesses(Value memory) {
  SmallVector<Value> worklist{memory};
  SmallVector<Operation *> accesses;
  while (!worklist.empty())
    for (Operation *user : worklist.pop_back_val().getUsers()) {
      if (!isView(user)) {
        accesses.push_back(user);
        continue;
      }
      for (Value result : user->getResults())
        if (isa<MemRefType>(result.getType()))
          worklist.push_back(result);
    }
  return accesses;
}
