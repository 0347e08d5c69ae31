// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Splits of a dimension into several dynamic sizes, and views without dimensions that their types
// do not tell, as casts with strides.

#include "attn/Conversion/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "attn/Utils/Views.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace attn {
#define GEN_PASS_DEF_ATTNRESOLVEEXPANSIONS
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numResolved("attn-resolve-expansions", "resolved",
                              "Expansions with several unknown sizes that became casts");
static attn::Done numViews("attn-resolve-expansions", "views resolved",
                           "Views whose strides do not tell which dimensions they leave out");

namespace {
struct ResolveExpansions : attn::impl::AttnResolveExpansionsBase<ResolveExpansions> {
  void runOnOperation() override {
    SmallVector<memref::ExpandShapeOp> ops;
    getOperation()->walk([&](memref::ExpandShapeOp op) {
      MemRefType type = op.getResultType();
      for (const ReassociationIndices &group : op.getReassociationIndices())
        if (llvm::count_if(group, [&](int64_t dim) { return type.isDynamicDim(dim); }) > 1) {
          ops.push_back(op);
          break;
        }
    });
    for (memref::ExpandShapeOp op : ops) {
      numResolved.at(op);
      resolve(op);
    }
    SmallVector<memref::SubViewOp> views;
    getOperation()->walk([&](memref::SubViewOp op) {
      if (attn::isAmbiguous(op))
        views.push_back(op);
    });
    for (memref::SubViewOp op : views) {
      numViews.at(op);
      resolve(op);
    }
  }

  void resolve(memref::SubViewOp op) {
    OpBuilder b(op);
    Location loc = op.getLoc();
    MemRefType type = op.getType();
    auto metadata = memref::ExtractStridedMetadataOp::create(b, loc, op.getSource());
    auto [typeStrides, typeOffset] = type.getStridesAndOffset();
    llvm::SmallBitVector dropped = attn::findDroppedDims(op);
    SmallVector<OpFoldResult> sizes, strides;
    Value offset = metadata.getOffset();
    for (unsigned dim = 0; dim < dropped.size(); ++dim) {
      Value stride = metadata.getStrides()[dim];
      Value first = getValueOrCreateConstantIndexOp(b, loc, op.getMixedOffsets()[dim]);
      offset = arith::AddIOp::create(b, loc, offset, arith::MulIOp::create(b, loc, first, stride));
      if (dropped[dim])
        continue;
      int64_t known = typeStrides[sizes.size()];
      sizes.push_back(op.getMixedSizes()[dim]);
      Value step = getValueOrCreateConstantIndexOp(b, loc, op.getMixedStrides()[dim]);
      strides.push_back(ShapedType::isDynamic(known)
                            ? OpFoldResult(arith::MulIOp::create(b, loc, stride, step).getResult())
                            : b.getIndexAttr(known));
    }
    OpFoldResult start =
        ShapedType::isDynamic(typeOffset) ? OpFoldResult(offset) : b.getIndexAttr(typeOffset);
    auto cast = memref::ReinterpretCastOp::create(b, loc, type, metadata.getBaseBuffer(), start,
                                                  sizes, strides);
    op.replaceAllUsesWith(cast.getResult());
    op.erase();
  }

  void resolve(memref::ExpandShapeOp op) {
    OpBuilder b(op);
    Location loc = op.getLoc();
    MemRefType type = op.getResultType();
    auto metadata = memref::ExtractStridedMetadataOp::create(b, loc, op.getSrc());
    auto [typeStrides, typeOffset] = type.getStridesAndOffset();
    SmallVector<OpFoldResult> sizes = op.getMixedOutputShape();
    SmallVector<OpFoldResult> strides(sizes.size());
    for (auto [source, group] : llvm::enumerate(op.getReassociationIndices())) {
      Value stride = metadata.getStrides()[source];
      for (int64_t dim : llvm::reverse(group)) {
        // What the type says stays static; the rest is computed.
        strides[dim] = ShapedType::isDynamic(typeStrides[dim]) ? OpFoldResult(stride)
                                                               : b.getIndexAttr(typeStrides[dim]);
        if (dim != group.front())
          stride = arith::MulIOp::create(b, loc, stride,
                                         getValueOrCreateConstantIndexOp(b, loc, sizes[dim]));
      }
    }
    OpFoldResult offset = ShapedType::isDynamic(typeOffset) ? OpFoldResult(metadata.getOffset())
                                                            : b.getIndexAttr(typeOffset);
    auto cast = memref::ReinterpretCastOp::create(b, loc, type, metadata.getBaseBuffer(), offset,
                                                  sizes, strides);
    // Sizes that are equal are then seen to be.
    for (Operation *user : llvm::make_early_inc_range(op->getUsers()))
      if (auto dim = dyn_cast<memref::DimOp>(user))
        if (std::optional<int64_t> position = dim.getConstantIndex()) {
          OpBuilder::InsertionGuard guard(b);
          b.setInsertionPoint(dim);
          dim.replaceAllUsesWith(getValueOrCreateConstantIndexOp(b, loc, sizes[*position]));
          dim.erase();
        }
    op.replaceAllUsesWith(cast.getResult());
    op.erase();
  }
};
} // namespace
