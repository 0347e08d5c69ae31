// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Masked accesses to 16-bit floats, as integers.

#include "attn/Conversion/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace attn {
#define GEN_PASS_DEF_ATTNMASKHALVESASINTEGERS
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;

namespace {
struct MaskHalvesAsIntegers
    : attn::impl::AttnMaskHalvesAsIntegersBase<MaskHalvesAsIntegers> {
  void runOnOperation() override {
    getOperation()->walk([&](Operation *op) {
      if (isa<LLVM::MaskedLoadOp, LLVM::masked_gather>(op))
        moveIntegers(op, op->getResults());
      else if (isa<LLVM::MaskedStoreOp, LLVM::masked_scatter>(op))
        moveIntegers(op, {});
    });
  }

private:
  /// The integers of a vector of 16-bit floats; null for others.
  static Type getIntegers(Type type) {
    auto vector = dyn_cast<VectorType>(type);
    if (!vector || !isa<BFloat16Type, Float16Type>(vector.getElementType()))
      return {};
    return vector.clone(IntegerType::get(type.getContext(), 16));
  }

  void moveIntegers(Operation *op, ValueRange loaded) {
    OpBuilder b(op);
    for (OpOperand &operand : op->getOpOperands())
      if (Type integers = getIntegers(operand.get().getType()))
        operand.set(LLVM::BitcastOp::create(b, op->getLoc(), integers, operand.get()));
    b.setInsertionPointAfter(op);
    for (Value result : loaded) {
      Type type = result.getType();
      Type integers = getIntegers(type);
      if (!integers)
        continue;
      result.setType(integers);
      auto cast = LLVM::BitcastOp::create(b, op->getLoc(), type, result);
      result.replaceAllUsesExcept(cast, cast);
    }
  }
};
} // namespace
