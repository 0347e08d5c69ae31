// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is needed until an output is written may lie in the output's memory.

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "attn/Utils/Memory.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERALIASWORKSPACE
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numAliased("hopper-alias-workspace", "aliased",
                             "Workspace that aliases an output");

namespace {

/// An argument that is only written, and the op of the function's body that does so first.
struct Output {
  BlockArgument argument;
  Operation *first;
};

struct AliasWorkspacePass : attn::impl::HopperAliasWorkspaceBase<AliasWorkspacePass> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function.getBody().hasOneBlock())
      return;
    Block *body = &function.front();
    SmallVector<Output> outputs = collectOutputs(body);
    Builder b(&getContext());
    for (auto alloc : body->getOps<memref::AllocOp>()) {
      Operation *last = findLast(alloc, body);
      const Output *output = llvm::find_if(
          outputs, [&](const Output &each) { return last && last->isBeforeInBlock(each.first); });
      if (output == outputs.end())
        continue;
      numAliased.at(alloc) << remark::metric("Argument", output->argument.getArgNumber());
      alloc->setAttr(hopper::kAliasesAttr, b.getIndexAttr(output->argument.getArgNumber()));
    }
  }

  static SmallVector<Output> collectOutputs(Block *body) {
    SmallVector<Output> outputs;
    for (BlockArgument argument : body->getArguments()) {
      if (!isa<MemRefType>(argument.getType()))
        continue;
      Operation *first = nullptr;
      bool isOnlyWritten = true;
      for (Operation *access : collectAccesses(argument)) {
        Operation *place = body->findAncestorOpInBlock(*access);
        isOnlyWritten &= place && isa<vector::TransferWriteOp>(access);
        if (place && (!first || place->isBeforeInBlock(first)))
          first = place;
      }
      if (first && isOnlyWritten)
        outputs.push_back({argument, first});
    }
    return outputs;
  }

  /// The last launch that accesses the memory; null if nothing does, or something else.
  static Operation *findLast(memref::AllocOp alloc, Block *body) {
    Operation *last = nullptr;
    for (Operation *access : collectAccesses(alloc)) {
      if (isa<memref::DeallocOp>(access))
        continue;
      Operation *place = body->findAncestorOpInBlock(*access);
      if (!isa_and_nonnull<gpu::LaunchOp>(place))
        return nullptr;
      if (!last || last->isBeforeInBlock(place))
        last = place;
    }
    return last;
  }
};

} // namespace
