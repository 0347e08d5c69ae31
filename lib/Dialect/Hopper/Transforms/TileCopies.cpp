// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copies in the memory of the device become tile programs.

#include "attn/Dialect/Hopper/IR/Hopper.h"
#include "attn/Dialect/Hopper/Transforms/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn {
#define GEN_PASS_DEF_HOPPERTILECOPIES
#include "attn/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

void tile(memref::CopyOp copy, MemRefType type) {
  OpBuilder b(copy);
  Location loc = copy.getLoc();
  AffineExpr i = getAffineDimExpr(0, b.getContext());
  SmallVector<OpFoldResult> counts =
      memref::getMixedSizes(b, loc, copy.getSource());
  counts.back() = affine::makeComposedFoldedAffineApply(
      b, loc, i.ceilDiv(hopper::kWarpgroupRows), {counts.back()});
  auto forall = scf::ForallOp::create(b, loc, counts, ValueRange(), /*mapping=*/std::nullopt);
  b.setInsertionPointToStart(forall.getBody());
  SmallVector<Value> indices(forall.getInductionVars());
  indices.back() = affine::makeComposedAffineApply(b, loc, i * hopper::kWarpgroupRows,
                                                   {OpFoldResult(indices.back())});
  auto vector = VectorType::get(hopper::kWarpgroupRows, type.getElementType());
  Value padding = arith::ConstantOp::create(b, loc, b.getZeroAttr(type.getElementType()));
  AffineMap map = AffineMap::getMinorIdentityMap(type.getRank(), 1, b.getContext());
  bool inBounds[] = {false};
  Value value = vector::TransferReadOp::create(b, loc, vector, copy.getSource(), indices, padding,
                                               map, inBounds);
  vector::TransferWriteOp::create(b, loc, value, copy.getTarget(), indices, map,
                                  ArrayRef<bool>(inBounds));
  copy.erase();
}

struct TileCopiesPass : attn::impl::HopperTileCopiesBase<TileCopiesPass> {
  void runOnOperation() override {
    for (auto copy : llvm::make_early_inc_range(getOperation().getOps<memref::CopyOp>())) {
      auto type = dyn_cast<MemRefType>(copy.getSource().getType());
      if (type && type.getRank() > 0 && isa<MemRefType>(copy.getTarget().getType()) &&
          type.getElementType().isIntOrIndexOrFloat())
        tile(copy, type);
    }
  }
};

} // namespace
