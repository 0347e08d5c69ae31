// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels that are the same become one.

#include "attn/Conversion/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace attn {
#define GEN_PASS_DEF_ATTNDEDUPLICATEKERNELS
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numRemoved("attn-deduplicate-kernels", "removed",
                             "Modules of kernels that are those of another launch");

/// Whether two modules differ in their names and locations only.
static bool areSame(gpu::GPUModuleOp a, gpu::GPUModuleOp b) {
  return a.getTargetsAttr() == b.getTargetsAttr() &&
         OperationEquivalence::isRegionEquivalentTo(&a.getBodyRegion(), &b.getBodyRegion(),
                                                    OperationEquivalence::IgnoreLocations);
}

namespace {
struct AttnDeduplicateKernels : attn::impl::AttnDeduplicateKernelsBase<AttnDeduplicateKernels> {
  void runOnOperation() override {
    SmallVector<gpu::GPUModuleOp> kept;
    llvm::DenseMap<StringAttr, StringAttr> renamed;
    for (auto module : llvm::make_early_inc_range(getOperation().getOps<gpu::GPUModuleOp>())) {
      auto same =
          llvm::find_if(kept, [&](gpu::GPUModuleOp other) { return areSame(other, module); });
      if (same == kept.end()) {
        kept.push_back(module);
        continue;
      }
      renamed[module.getNameAttr()] = same->getNameAttr();
      numRemoved.at(module);
      module.erase();
    }
    getOperation().walk([&](gpu::LaunchFuncOp launch) {
      if (StringAttr name = renamed.lookup(launch.getKernelModuleName()))
        launch.setKernelAttr(
            SymbolRefAttr::get(name, {FlatSymbolRefAttr::get(launch.getKernelName())}));
    });
  }
};
} // namespace
