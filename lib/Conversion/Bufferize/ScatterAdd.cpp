// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How attn.scatter_add bufferizes: the table changes in place.

#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Dialect/Bufferization/IR/DstBufferizableOpInterfaceImpl.h"
#include "mlir/IR/DialectRegistry.h"

using namespace mlir;
using namespace mlir::bufferization;

namespace {
struct ScatterAddModel
    : DstBufferizableOpInterfaceExternalModel<ScatterAddModel,
                                              attn::ScatterAddOp> {
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto scatter = cast<attn::ScatterAddOp>(op);
    if (!isa<RankedTensorType>(scatter.getTable().getType()))
      return success();
    FailureOr<Value> table =
        getBuffer(rewriter, scatter.getTable(), options, state);
    if (failed(table))
      return failure();
    attn::ScatterAddOp::create(rewriter, op->getLoc(), TypeRange(),
                               scatter.getValues(), scatter.getIndices(),
                               *table);
    replaceOpWithBufferizedValues(rewriter, op, *table);
    return success();
  }
};
} // namespace

void attn::registerBufferizableOpInterfaceExternalModels(
    DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, attn::AttnDialect *) {
    ScatterAddOp::attachInterface<ScatterAddModel>(*context);
  });
}
