// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sequences whose rows lie in pages: verification, shapes and canonicalisation.

#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace attn;

/// Static sizes that must agree; dynamic ones are checked when shapes are known.
static LogicalResult checkSize(PagesOp op, StringRef what, int64_t actual, int64_t expected) {
  if (ShapedType::isDynamic(actual) || ShapedType::isDynamic(expected) || actual == expected)
    return success();
  return op.emitOpError("expected ") << what << " to be " << expected << ", got " << actual;
}

LogicalResult PagesOp::verify() {
  ShapedType pool = getPoolType();
  auto table = cast<ShapedType>(getTable().getType());
  auto lengths = cast<ShapedType>(getLengths().getType());
  auto result = cast<ShapedType>(getResult().getType());
  for (ShapedType type : {table, lengths, result})
    if (isa<TensorType>(type) != isa<TensorType>(pool))
      return emitOpError("expected tensors or memrefs alone, got ") << pool << " and " << type;
  if (pool.getElementType() != result.getElementType())
    return emitOpError("expected elements of ")
           << pool.getElementType() << ", got " << result.getElementType();
  int64_t page = getPageSize();
  if (ShapedType::isDynamic(page) || page < 1)
    return emitOpError("expected pages of a static size, got a pool of ") << pool;
  if (pool.isDynamicDim(3))
    return emitOpError("expected a static head dimension, got a pool of ") << pool;
  int64_t rows = table.isDynamicDim(1) ? ShapedType::kDynamic : table.getDimSize(1) * page;
  return success(
      succeeded(
          checkSize(*this, "the number of lengths", lengths.getDimSize(0), table.getDimSize(0))) &&
      succeeded(
          checkSize(*this, "the result's batch", result.getDimSize(0), table.getDimSize(0))) &&
      succeeded(checkSize(*this, "the result's heads", result.getDimSize(1), pool.getDimSize(1))) &&
      succeeded(checkSize(*this, "the result's rows", result.getDimSize(2), rows)) &&
      succeeded(
          checkSize(*this, "the result's columns", result.getDimSize(3), pool.getDimSize(3))));
}

LogicalResult PagesOp::reifyResultShapes(OpBuilder &builder, ReifiedRankedShapedTypeDims &shapes) {
  auto size = [&](Value value, int64_t dim) -> OpFoldResult {
    if (isa<TensorType>(value.getType()))
      return tensor::getMixedSize(builder, getLoc(), value, dim);
    return memref::getMixedSize(builder, getLoc(), value, dim);
  };
  OpFoldResult rows = size(getTable(), 1);
  if (auto pages = dyn_cast<Value>(rows)) {
    Value page = arith::ConstantIndexOp::create(builder, getLoc(), getPageSize());
    rows = arith::MulIOp::create(builder, getLoc(), pages, page).getResult();
  } else {
    rows = builder.getIndexAttr(*getConstantIntValue(rows) * getPageSize());
  }
  shapes.push_back({size(getTable(), 0), size(getPool(), 1), rows, size(getPool(), 3)});
  // The type's sizes are the ones to say.
  auto type = cast<ShapedType>(getResult().getType());
  for (auto [dim, shape] : llvm::enumerate(shapes.back()))
    if (!type.isDynamicDim(dim))
      shape = builder.getIndexAttr(type.getDimSize(dim));
  return success();
}

namespace {
/// The size of a sequence's space follows from the table.
template <typename DimOp> struct FoldSize : OpRewritePattern<DimOp> {
  using OpRewritePattern<DimOp>::OpRewritePattern;

  LogicalResult matchAndRewrite(DimOp op, PatternRewriter &rewriter) const override {
    auto pages = op.getSource().template getDefiningOp<PagesOp>();
    std::optional<int64_t> dim = op.getConstantIndex();
    if (!pages || !dim || *dim < 0 || *dim > 3)
      return failure();
    ReifiedRankedShapedTypeDims shapes;
    if (failed(pages.reifyResultShapes(rewriter, shapes)))
      return failure();
    rewriter.replaceOp(
        op, getValueOrCreateConstantIndexOp(rewriter, op.getLoc(), shapes.front()[*dim]));
    return success();
  }
};

/// Some columns or heads of the rows are those of the pool.
struct SlicePool : OpRewritePattern<tensor::ExtractSliceOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(tensor::ExtractSliceOp op,
                                PatternRewriter &rewriter) const override {
    auto pages = op.getSource().getDefiningOp<PagesOp>();
    if (!pages || !op.hasUnitStride() || op.getType().getRank() != 4)
      return failure();
    SmallVector<OpFoldResult> offsets = op.getMixedOffsets(), sizes = op.getMixedSizes();
    auto isWhole = [&](unsigned dim) {
      if (!isConstantIntValue(offsets[dim], 0))
        return false;
      if (std::optional<int64_t> size = getConstantIntValue(sizes[dim]))
        return *size == op.getSourceType().getDimSize(dim);
      auto size = cast<Value>(sizes[dim]).getDefiningOp<tensor::DimOp>();
      return size && size.getSource() == op.getSource() && size.getConstantIndex() == dim;
    };
    if (!isWhole(0) || !isWhole(2))
      return failure();
    Value pool = pages.getPool();
    for (unsigned dim : {0u, 2u})
      sizes[dim] = tensor::getMixedSize(rewriter, op.getLoc(), pool, dim);
    auto type = cast<RankedTensorType>(pool.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[1] = op.getType().getDimSize(1), shape[3] = op.getType().getDimSize(3);
    Value part = tensor::ExtractSliceOp::create(rewriter, op.getLoc(), type.clone(shape), pool,
                                                offsets, sizes, op.getMixedStrides());
    rewriter.replaceOpWithNewOp<PagesOp>(op, op.getType(), part, pages.getTable(),
                                         pages.getLengths());
    return success();
  }
};
} // namespace

void PagesOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<FoldSize<tensor::DimOp>, FoldSize<memref::DimOp>, SlicePool>(context);
}
