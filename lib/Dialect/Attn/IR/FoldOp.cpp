// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The streaming fold of level L1.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;

LogicalResult FoldOp::verify() {
  if (getStreamDims().size() != getInputs().size())
    return emitOpError("expected one streamed dimension per input, got ")
           << getStreamDims().size() << " for " << getInputs().size() << " inputs";
  for (auto [input, dim] : llvm::zip(getInputs(), getStreamDims())) {
    auto type = cast<RankedTensorType>(input.getType());
    if (dim < 0 || dim >= type.getRank())
      return emitOpError("expected a streamed dimension of ") << type << ", got " << dim;
  }
  if (getInits().size() + getMapDims().size() != getResults().size())
    return emitOpError("expected one result per carried value and per mapped dimension, got ")
           << getResults().size() << " results for " << getInits().size() << " and "
           << getMapDims().size();
  for (auto [index, init] : llvm::enumerate(getInits()))
    if (init.getType() != getResult(index).getType())
      return emitOpError("expected result #")
             << index << " to have the type of its initial value " << init.getType() << ", got "
             << getResult(index).getType();
  return success();
}

static RankedTensorType withDynamicDim(RankedTensorType type, int64_t dim) {
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] = ShapedType::kDynamic;
  return type.clone(shape);
}

LogicalResult FoldOp::verifyRegions() {
  auto check = [&](Block &block, TypeRange arguments, TypeRange yielded,
                   StringRef name) -> LogicalResult {
    if (block.getArgumentTypes() != arguments)
      return emitOpError("expected the ")
             << name << " to take (" << arguments << "), got (" << block.getArgumentTypes() << ")";
    auto yield = dyn_cast<YieldOp>(block.getTerminator());
    if (!yield || yield.getOperandTypes() != yielded)
      return emitOpError("expected the ")
             << name << " to end in attn.yield of (" << yielded << "), got ("
             << block.getTerminator()->getOperandTypes() << ")";
    return success();
  };
  SmallVector<Type> arguments = {IndexType::get(getContext())};
  for (auto [input, dim] : llvm::zip(getInputs(), getStreamDims()))
    arguments.push_back(withDynamicDim(cast<RankedTensorType>(input.getType()), dim));
  llvm::append_range(arguments, getInits().getTypes());
  SmallVector<Type> yielded(getInits().getTypes());
  for (auto [result, dim] : llvm::zip(getResults().drop_front(getInits().size()), getMapDims())) {
    auto type = cast<RankedTensorType>(result.getType());
    if (dim < 0 || dim >= type.getRank())
      return emitOpError("expected a mapped dimension of ") << type << ", got " << dim;
    yielded.push_back(withDynamicDim(type, dim));
  }
  if (failed(check(getBody().front(), arguments, yielded, "body")))
    return failure();
  if (getMerge().empty())
    return success();
  SmallVector<Type> twice(getInits().getTypes());
  llvm::append_range(twice, getInits().getTypes());
  return check(getMerge().front(), twice, getInits().getTypes(), "merge region");
}

LogicalResult FoldOp::reifyResultShapes(OpBuilder &builder, ReifiedRankedShapedTypeDims &shapes) {
  for (Value init : getInits())
    shapes.push_back(tensor::getMixedSizes(builder, getLoc(), init));
  // A mapped result is as long as the streamed dimension along its own; its
  // other sizes need the body, so only static ones can be named here.
  for (auto [result, dim] : llvm::zip(getResults().drop_front(getInits().size()), getMapDims())) {
    auto type = cast<RankedTensorType>(result.getType());
    SmallVector<OpFoldResult> sizes;
    for (auto [index, size] : llvm::enumerate(type.getShape())) {
      if (int64_t(index) == dim)
        sizes.push_back(getExtent());
      else if (!ShapedType::isDynamic(size))
        sizes.push_back(builder.getIndexAttr(size));
      else
        return failure();
    }
    shapes.push_back(sizes);
  }
  return success();
}
