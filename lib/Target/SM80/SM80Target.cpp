// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// GPUs since Ampere: products of single warps and copies by cp.async. See SM80.h.

#include "../Cuda/CudaTarget.h"
#include "attn/Pipelines/Passes.h"
#include "attn/Pipelines/Pipelines.h"
#include "attn/Target/SM80/SM80.h"
#include "mlir/Pass/PassManager.h"

using namespace llvm;
using namespace attn;
using namespace attn::target;

namespace {
/// One for each chip: its code runs on later ones, too, but theirs is made for their limits.
template <unsigned number> class SM80Target : public CudaTarget {
  static constexpr const sm80::Chip &chip = sm80::kChips[number];

public:
  SM80Target()
      : CudaTarget({chip.name, chip.name, chip.capability, Memory::Cuda, chip.limits, sm80::kAtoms,
                    /*runsLater=*/true}) {}

  Error buildPipeline(mlir::OpPassManager &pm, const PipelineOptions &options,
                      Form form) const override {
    if (form == Form::Tensors)
      if (Error error = addLowerToHopper(pm, options, chip.name))
        return error;
    buildCudaCodegenPipeline(pm, chip.name, chip.features);
    buildCudaHostPipeline(pm);
    return Error::success();
  }
};

template <unsigned... numbers> void registerChips(std::integer_sequence<unsigned, numbers...>) {
  (registerTarget<SM80Target<numbers>>(sm80::kChips[numbers].name, sm80::kChips[numbers].summary),
   ...);
}
} // namespace

namespace attn::target {
void registerSM80Target() {
  registerChips(std::make_integer_sequence<unsigned, std::size(sm80::kChips)>());
}
} // namespace attn::target
