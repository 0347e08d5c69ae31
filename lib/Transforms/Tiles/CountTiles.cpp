// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Counts visited tiles at run time, to see what mask projection saves.

#include "attn/Transforms/Tiles/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace attn {
#define GEN_PASS_DEF_ATTNCOUNTTILES
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numCounted("attn-count-tiles", "counted",
                             "Loops whose tiles are counted when they run");

namespace {

constexpr llvm::StringLiteral kCounter = "attnRuntimeCountTile";

void insertCall(Block *block, bool isFull) {
  OpBuilder b = OpBuilder::atBlockBegin(block);
  Location loc = block->getParentOp()->getLoc();
  Value kind = arith::ConstantIntOp::create(b, loc, isFull ? 1 : 0, 32);
  func::CallOp::create(b, loc, kCounter, TypeRange(), kind);
}

void count(scf::ForOp loop) {
  for (Operation &op : *loop.getBody()) {
    auto ifOp = dyn_cast<scf::IfOp>(op);
    if (!ifOp)
      continue;
    if (ifOp->hasAttr(attn::kGuardAttr))
      return insertCall(ifOp.thenBlock(), /*isFull=*/false);
    if (ifOp->hasAttr(attn::kTileKindAttr)) {
      insertCall(ifOp.thenBlock(), /*isFull=*/true);
      return insertCall(ifOp.elseBlock(), /*isFull=*/false);
    }
  }
  insertCall(loop.getBody(), loop->hasAttr(attn::kFullAttr));
}

struct CountTilesPass : attn::impl::AttnCountTilesBase<CountTilesPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto type = FunctionType::get(&getContext(), IntegerType::get(&getContext(), 32), TypeRange());
    Operation *known = module.lookupSymbol(kCounter);
    auto counter = dyn_cast_or_null<func::FuncOp>(known);
    if (known && (!counter || counter.getFunctionType() != type)) {
      known->emitError("expected @") << kCounter << " to be a function of type " << type;
      return signalPassFailure();
    }
    SmallVector<scf::ForOp> loops;
    module.walk([&](scf::ForOp loop) {
      bool isInnermost = true;
      loop.getBody()->walk(
          [&](scf::ForOp inner) { isInnermost &= !inner->hasAttr(attn::kFoldLoopAttr); });
      if (loop->hasAttr(attn::kFoldLoopAttr) && isInnermost)
        loops.push_back(loop);
    });
    if (loops.empty())
      return;
    if (!known) {
      OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
      func::FuncOp::create(b, module.getLoc(), kCounter, type).setPrivate();
    }
    for (scf::ForOp loop : loops) {
      count(loop);
      numCounted.at(loop);
    }
  }
};

} // namespace
