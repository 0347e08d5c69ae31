// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One-shot bufferization with the function boundary that callers of compiled
// code use; the upstream pass offers no layout with a unit innermost stride.

#include "attn/Conversion/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotAnalysis.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotModuleBufferize.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace attn {
#define GEN_PASS_DEF_ATTNBUFFERIZE
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numBufferized("attn-bufferize", "bufferized",
                                "Modules whose tensors became memory");

namespace {
struct Bufferize : attn::impl::AttnBufferizeBase<Bufferize> {
  void runOnOperation() override {
    bufferization::OneShotBufferizationOptions options;
    options.bufferizeFunctionBoundaries = true;
    options.setFunctionBoundaryTypeConversion(bufferization::LayoutMapOption::InferLayoutMap);
    options.functionArgTypeConverterFn =
        [](bufferization::TensorLikeType type, Attribute, func::FuncOp,
           const bufferization::BufferizationOptions &) -> bufferization::BufferLikeType {
      if (auto ranked = dyn_cast<RankedTensorType>(type))
        return cast<bufferization::BufferLikeType>(attn::boundaryMemRefType(ranked));
      auto unranked = cast<UnrankedTensorType>(type);
      return cast<bufferization::BufferLikeType>(
          Type(UnrankedMemRefType::get(unranked.getElementType(), nullptr)));
    };
    bufferization::BufferizationState state;
    bufferization::BufferizationStatistics counts;
    if (failed(bufferization::runOneShotModuleBufferize(getOperation(), options, state, &counts)))
      return signalPassFailure();
    numBufferized.at(getOperation()) << remark::metric("Allocations", counts.numBufferAlloc)
                                     << remark::metric("InPlace", counts.numTensorInPlace)
                                     << remark::metric("Copies", counts.numTensorOutOfPlace);
    bufferization::removeBufferizationAttributesInModule(getOperation());
  }
};
} // namespace
