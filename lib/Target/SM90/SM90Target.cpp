// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Hopper: the hopper dialect, TMA and WGMMA. See SM90.h.

#include "../Cuda/CudaTarget.h"
#include "attn/Pipelines/Passes.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Target/SM90/SM90.h"
#include "mlir/Pass/PassManager.h"

using namespace llvm;
using namespace attn;
using namespace attn::target;

namespace {
class SM90Target : public CudaTarget {
public:
  SM90Target()
      : CudaTarget({sm90::kName, sm90::kChip, sm90::kCapability, Memory::Cuda, sm90::kLimits,
                    sm90::kAtoms}) {}

  Error buildPipeline(mlir::OpPassManager &pm, const PipelineOptions &options,
                      Form form) const override {
    if (form == Form::Tensors)
      if (Error error = addLowerToHopper(pm, options, sm90::kChip))
        return error;
    buildCudaCodegenPipeline(pm, sm90::kChip, sm90::kFeatures);
    buildCudaHostPipeline(pm);
    return Error::success();
  }
};
} // namespace

namespace attn::target {
void registerSM90Target() {
  registerTarget<SM90Target>(sm90::kName, "NVIDIA's Hopper GPUs (H100, H200, GH200)");
}
} // namespace attn::target
