// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attn-round-products: operands of products as matrix units take them.

#include "attn/Conversion/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/TileClasses.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn {
#define GEN_PASS_DEF_ATTNROUNDPRODUCTS
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numRounded("attn-round-products", "rounded",
                             "Operands of products rounded to bf16");

namespace {
bool isExtended(Value value) {
  auto extension = value.getDefiningOp<arith::ExtFOp>();
  return extension && getElementTypeOrSelf(extension.getIn().getType()).isBF16();
}

struct RoundProductsPass : attn::impl::AttnRoundProductsBase<RoundProductsPass> {
  void runOnOperation() override {
    getOperation()->walk([](vector::ContractionOp op) {
      auto result = dyn_cast<VectorType>(op.getResult().getType());
      bool left = isExtended(op.getLhs()), right = isExtended(op.getRhs());
      if (!result || result.getRank() != 2 || !result.getElementType().isF32() || left == right ||
          llvm::any_of(result.getShape(),
                       [](int64_t size) { return size <= attn::tiles::kFewRows; }))
        return;
      OpOperand &other = op->getOpOperand(left ? 1 : 0);
      auto type = cast<VectorType>(other.get().getType());
      OpBuilder b(op);
      Value rounded =
          arith::TruncFOp::create(b, op.getLoc(), type.clone(b.getBF16Type()), other.get());
      other.set(arith::ExtFOp::create(b, op.getLoc(), type, rounded));
      numRounded.at(op);
    });
  }
};
} // namespace
