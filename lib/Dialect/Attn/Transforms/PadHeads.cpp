// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Head dimensions that are no multiple of what a target copies get columns of zeros.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

namespace attn {
#define GEN_PASS_DEF_ATTNPADHEADS
#include "attn/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

static attn::Done numPadded("attn-pad-heads", "padded", "Operations whose heads got more columns");

namespace {

int64_t getColumns(Value tensor) {
  return cast<RankedTensorType>(tensor.getType()).getShape().back();
}

/// The type with `columns` columns.
RankedTensorType withColumns(Value tensor, int64_t columns) {
  auto type = cast<RankedTensorType>(tensor.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape.back() = columns;
  return type.clone(shape);
}

/// The tensor with columns of zeros behind its own.
Value pad(OpBuilder &b, Value tensor, int64_t columns) {
  if (getColumns(tensor) == columns)
    return tensor;
  Location loc = tensor.getLoc();
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, tensor);
  SmallVector<OpFoldResult> padded(sizes), zeros(sizes.size(), b.getIndexAttr(0)),
      ones(sizes.size(), b.getIndexAttr(1));
  padded.back() = b.getIndexAttr(columns);
  Type element = getElementTypeOrSelf(tensor);
  Value empty = tensor::EmptyOp::create(b, loc, padded, element);
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(element));
  Value filled = linalg::FillOp::create(b, loc, zero, empty).getResult(0);
  return tensor::InsertSliceOp::create(b, loc, tensor, filled, zeros, sizes, ones);
}

/// The first columns of a padded result, as many as `type` has.
Value slice(OpBuilder &b, Value padded, RankedTensorType type) {
  if (padded.getType() == type)
    return padded;
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, padded.getLoc(), padded);
  SmallVector<OpFoldResult> zeros(sizes.size(), b.getIndexAttr(0)),
      ones(sizes.size(), b.getIndexAttr(1));
  sizes.back() = b.getIndexAttr(type.getShape().back());
  return tensor::ExtractSliceOp::create(b, padded.getLoc(), type, padded, zeros, sizes, ones);
}

/// Pads the operands and results of an op whose key and value have columns to pad.
template <typename Op> class HeadPadder {
public:
  HeadPadder(Op op, int64_t multiple)
      : op(op), b(op), keys(llvm::alignTo(getColumns(op.getKey()), multiple)),
        values(llvm::alignTo(getColumns(op.getValue()), multiple)) {}

  void run() {
    if (keys == getColumns(op.getKey()) && values == getColumns(op.getValue()))
      return;
    numPadded.at(op) << remark::metric("Keys", keys) << remark::metric("Values", values);
    // It is that of the columns that were there.
    if (!op.getScaleOperand())
      op.setScaleAttr(b.getF64FloatAttr(*op.getStaticScale()));
    padOperand(op.getQueryMutable(), keys);
    padOperand(op.getKeyMutable(), keys);
    padOperand(op.getValueMutable(), values);
    if constexpr (std::is_same_v<Op, JvpOp> || std::is_same_v<Op, BackwardJvpOp>) {
      for (auto [operand, columns] : {std::pair(op.getQueryTangentMutable(), keys),
                                      {op.getKeyTangentMutable(), keys},
                                      {op.getValueTangentMutable(), values}})
        padOperands(operand, columns);
      padOperand(op.getOutputMutable(), values);
    }
    if constexpr (std::is_same_v<Op, JvpOp>) {
      b.setInsertionPointAfter(op);
      padResult(op.getOutputTangent(), values);
    } else if constexpr (std::is_same_v<Op, BackwardJvpOp>) {
      padOperand(op.getOutputGradientMutable(), values);
      padOperand(op.getOutputTangentMutable(), values);
      padOperands(op.getOutputGradientTangentMutable(), values);
      b.setInsertionPointAfter(op);
      padResult(op.getQueryGradient(), keys);
      padResult(op.getKeyGradient(), keys);
      padResult(op.getValueGradient(), values);
    } else if constexpr (std::is_same_v<Op, BackwardOp>) {
      padOperand(op.getOutputGradientMutable(), values);
      padOperand(op.getOutputMutable(), values);
      b.setInsertionPointAfter(op);
      padResult(op.getQueryGradient(), keys);
      padResult(op.getKeyGradient(), keys);
      padResult(op.getValueGradient(), values);
    } else {
      b.setInsertionPointAfter(op);
      padResult(op.getOutput(), values);
    }
  }

private:
  void padOperand(OpOperand &operand, int64_t columns) {
    operand.set(pad(b, operand.get(), columns));
  }

  /// None or one.
  void padOperands(MutableOperandRange operands, int64_t columns) {
    for (OpOperand &operand : operands)
      padOperand(operand, columns);
  }

  void padResult(Value result, int64_t columns) {
    auto type = cast<RankedTensorType>(result.getType());
    auto uses = llvm::map_to_vector(result.getUses(), [](OpOperand &use) { return &use; });
    result.setType(withColumns(result, columns));
    Value own = slice(b, result, type);
    for (OpOperand *use : uses)
      use->set(own);
  }

  Op op;
  OpBuilder b;
  int64_t keys, values; // columns
};

struct PadHeadsPass : attn::impl::AttnPadHeadsBase<PadHeadsPass> {
  using Base::Base;

  void runOnOperation() override {
    if (multiple < 1) {
      getOperation()->emitError() << "option 'multiple' expected a positive number, got "
                                  << int64_t(multiple);
      return signalPassFailure();
    }
    getOperation()->walk([&](Operation *op) {
      llvm::TypeSwitch<Operation *>(op).Case<ForwardOp, BackwardOp, JvpOp, BackwardJvpOp>(
          [&](auto known) { HeadPadder<decltype(known)>(known, multiple).run(); });
    });
  }
};

} // namespace
