// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "attn/Dialect/Attn/IR/Masks.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace attn;

/// query + offset + constant.
Value MaskBuilder::shifted(Value offset, int64_t constant) {
  Value result = query;
  if (offset)
    result = arith::AddIOp::create(builder, loc, result, offset);
  if (constant != 0) {
    Value shift = arith::ConstantIndexOp::create(builder, loc, constant);
    result = arith::AddIOp::create(builder, loc, result, shift);
  }
  return result;
}

Value MaskBuilder::causal(Value offset) {
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sle, key, shifted(offset, 0));
}

Value MaskBuilder::window(std::optional<int64_t> left, std::optional<int64_t> right, Value offset) {
  Value result;
  if (left)
    result = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sge, key,
                                   shifted(offset, -*left));
  if (right) {
    Value below = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sle, key,
                                        shifted(offset, *right));
    result = result ? both(result, below) : below;
  }
  if (!result)
    result = arith::ConstantIntOp::create(builder, loc, 1, 1);
  return result;
}

Value MaskBuilder::prefix(Value length) {
  Value inside = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::slt, key, length);
  return arith::OrIOp::create(builder, loc, inside, causal());
}

Value MaskBuilder::document(Value queryDocuments, Value keyDocuments) {
  Value a = tensor::ExtractOp::create(builder, loc, queryDocuments, ValueRange{batch, query});
  Value b = tensor::ExtractOp::create(builder, loc, keyDocuments, ValueRange{batch, key});
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, a, b);
}

Value MaskBuilder::both(Value a, Value b) { return arith::AndIOp::create(builder, loc, a, b); }

void attn::buildMask(ForwardOp op, ValueRange captures,
                     function_ref<Value(MaskBuilder &, ValueRange)> body) {
  assert(op.getMask().empty() && "the op has a mask already");
  OpBuilder builder(op.getContext());
  Location loc = op.getLoc();
  for (Region &region : op->getRegions())
    if (!region.empty())
      for (Value capture : captures)
        region.addArgument(capture.getType(), capture.getLoc());
  op.getCapturesMutable().append(captures);
  Block *block = builder.createBlock(&op.getMask());
  for (unsigned index = 0; index < 4; ++index)
    block->addArgument(builder.getIndexType(), loc);
  for (Value capture : op.getCaptures())
    block->addArgument(capture.getType(), capture.getLoc());
  MaskBuilder mask(builder, loc, block->getArguments().take_front(4));
  Value keep = body(mask, block->getArguments().take_back(captures.size()));
  YieldOp::create(builder, loc, keep);
}

Value attn::buildBottomRightOffset(OpBuilder &builder, ForwardOp op) {
  Location loc = op.getLoc();
  Value keys = tensor::DimOp::create(builder, loc, op.getKey(), 2);
  Value queries = tensor::DimOp::create(builder, loc, op.getQuery(), 2);
  return arith::SubIOp::create(builder, loc, keys, queries);
}
