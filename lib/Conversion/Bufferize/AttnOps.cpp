// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How the ops of attn bufferize that are both of tensors and of memory: sums change memory in
// place, pages are a view of it.

#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Bufferization/IR/DstBufferizableOpInterfaceImpl.h"
#include "mlir/IR/DialectRegistry.h"

using namespace mlir;
using namespace mlir::bufferization;

namespace {
struct ScatterAddModel
    : DstBufferizableOpInterfaceExternalModel<ScatterAddModel, attn::ScatterAddOp> {
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options, BufferizationState &state) const {
    auto scatter = cast<attn::ScatterAddOp>(op);
    if (!isa<RankedTensorType>(scatter.getTable().getType()))
      return success();
    FailureOr<Value> table = getBuffer(rewriter, scatter.getTable(), options, state);
    if (failed(table))
      return failure();
    attn::ScatterAddOp::create(rewriter, op->getLoc(), TypeRange(), scatter.getValues(),
                               scatter.getIndices(), *table);
    replaceOpWithBufferizedValues(rewriter, op, *table);
    return success();
  }
};

struct ScatterSumModel
    : DstBufferizableOpInterfaceExternalModel<ScatterSumModel, attn::ScatterSumOp> {
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options, BufferizationState &state) const {
    auto scatter = cast<attn::ScatterSumOp>(op);
    if (!isa<RankedTensorType>(scatter.getDest().getType()))
      return success();
    FailureOr<Value> values = getBuffer(rewriter, scatter.getValues(), options, state);
    FailureOr<Value> dest = getBuffer(rewriter, scatter.getDest(), options, state);
    if (failed(values) || failed(dest))
      return failure();
    auto inPlace = attn::ScatterSumOp::create(rewriter, op->getLoc(), TypeRange(), *values, *dest);
    rewriter.inlineRegionBefore(scatter.getAt(), inPlace.getAt(), inPlace.getAt().begin());
    replaceOpWithBufferizedValues(rewriter, op, *dest);
    return success();
  }
};

struct TileAddModel : DstBufferizableOpInterfaceExternalModel<TileAddModel, attn::TileAddOp> {
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options, BufferizationState &state) const {
    auto add = cast<attn::TileAddOp>(op);
    if (!isa<RankedTensorType>(add.getDest().getType()))
      return success();
    FailureOr<Value> dest = getBuffer(rewriter, add.getDest(), options, state);
    if (failed(dest))
      return failure();
    attn::TileAddOp::create(rewriter, op->getLoc(), TypeRange(), add.getValues(), *dest,
                            add.getIndices());
    replaceOpWithBufferizedValues(rewriter, op, *dest);
    return success();
  }
};

/// The view is read only, wherever it is read; its operands are then.
struct PagesModel : BufferizableOpInterface::ExternalModel<PagesModel, attn::PagesOp> {
  bool bufferizesToMemoryRead(Operation *, OpOperand &, const AnalysisState &) const {
    return true;
  }
  bool bufferizesToMemoryWrite(Operation *, OpOperand &, const AnalysisState &) const {
    return false;
  }
  AliasingValueList getAliasingValues(Operation *op, OpOperand &, const AnalysisState &) const {
    return {{op->getResult(0), BufferRelation::Unknown, /*isDefinite=*/false}};
  }
  bool isWritable(Operation *, Value, const AnalysisState &) const { return false; }

  FailureOr<BufferLikeType> getBufferType(Operation *op, Value, const BufferizationOptions &,
                                          const BufferizationState &, SmallVector<Value> &) const {
    return cast<BufferLikeType>(
        attn::boundaryMemRefType(cast<RankedTensorType>(op->getResult(0).getType())));
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options, BufferizationState &state) const {
    auto pages = cast<attn::PagesOp>(op);
    auto type = dyn_cast<RankedTensorType>(pages.getResult().getType());
    if (!type)
      return success();
    FailureOr<Value> pool = getBuffer(rewriter, pages.getPool(), options, state);
    FailureOr<Value> table = getBuffer(rewriter, pages.getTable(), options, state);
    FailureOr<Value> lengths = getBuffer(rewriter, pages.getLengths(), options, state);
    if (failed(pool) || failed(table) || failed(lengths))
      return failure();
    replaceOpWithNewBufferizedOp<attn::PagesOp>(rewriter, op, attn::boundaryMemRefType(type), *pool,
                                                *table, *lengths);
    return success();
  }
};
} // namespace

void attn::registerBufferizableOpInterfaceExternalModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, attn::AttnDialect *) {
    ScatterAddOp::attachInterface<ScatterAddModel>(*context);
    ScatterSumOp::attachInterface<ScatterSumModel>(*context);
    PagesOp::attachInterface<PagesModel>(*context);
    TileAddOp::attachInterface<TileAddModel>(*context);
  });
}
