// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which ops may write the memory that a tile is read from.

#include "Aliases.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;

static Value memoryRoot(Value memref) {
  while (auto view = memref.getDefiningOp<ViewLikeOpInterface>())
    memref = view.getViewSource();
  return memref;
}

static bool isDistinctObject(Value root) {
  if (auto arg = dyn_cast<BlockArgument>(root))
    return isa<FunctionOpInterface>(arg.getOwner()->getParentOp());
  return root.getDefiningOp<memref::AllocOp>() || root.getDefiningOp<memref::AllocaOp>();
}

bool attn::tiles::mayAlias(Value a, Value b) {
  a = memoryRoot(a);
  b = memoryRoot(b);
  return a == b || !isDistinctObject(a) || !isDistinctObject(b);
}

void attn::tiles::forEachWrite(Operation *op, llvm::function_ref<void(Value)> fn) {
  if (isMemoryEffectFree(op))
    return;
  auto effects = getEffectsRecursively(op);
  if (!effects)
    return fn(Value());
  for (const MemoryEffects::EffectInstance &effect : *effects)
    if (isa<MemoryEffects::Write, MemoryEffects::Free>(effect.getEffect()))
      fn(effect.getValue());
}

bool attn::tiles::mayChangeBefore(vector::TransferReadOp read, Operation *user) {
  Operation *last = read->getBlock()->findAncestorOpInBlock(*user);
  if (!last)
    return true;
  // An op with regions may run the user after any of its writes.
  bool isNested = last != user;
  bool changes = false;
  for (Operation *op = read->getNextNode(); op && !changes; op = op->getNextNode()) {
    if (op != last || isNested)
      forEachWrite(op,
                   [&](Value memref) { changes |= !memref || mayAlias(read.getBase(), memref); });
    if (op == last)
      break;
  }
  return changes;
}
