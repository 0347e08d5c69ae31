// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels of different modules get different names.

#include "attn/Conversion/Passes.h"
#include "attn/Utils/Outcomes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "llvm/ADT/StringSet.h"

namespace attn {
#define GEN_PASS_DEF_ATTNNAMEKERNELS
#include "attn/Conversion/Passes.h.inc"
} // namespace attn

using namespace mlir;

static attn::Done numRenamed("attn-name-kernels", "renamed", "Kernels that got another name");

namespace {
struct AttnNameKernels : attn::impl::AttnNameKernelsBase<AttnNameKernels> {
  void runOnOperation() override {
    llvm::StringSet<> taken;
    for (auto module : getOperation().getOps<gpu::GPUModuleOp>())
      for (auto function : module.getOps<gpu::GPUFuncOp>())
        taken.insert(function.getName());

    llvm::StringSet<> seen;
    llvm::DenseMap<Attribute, SymbolRefAttr> renamed;
    for (auto module : getOperation().getOps<gpu::GPUModuleOp>())
      for (auto function : module.getOps<gpu::GPUFuncOp>()) {
        StringAttr old = function.getNameAttr();
        if (seen.insert(old.getValue()).second)
          continue;
        std::string name;
        for (unsigned number = 0; name.empty() || !taken.insert(name).second; ++number)
          name = (old.getValue() + "_" + Twine(number)).str();
        function.setName(name);
        numRenamed.at(function);
        auto refer = [&](StringRef kernel) {
          return SymbolRefAttr::get(module.getNameAttr(),
                                    {FlatSymbolRefAttr::get(&getContext(), kernel)});
        };
        renamed[refer(old)] = refer(name);
      }
    getOperation().walk([&](gpu::LaunchFuncOp launch) {
      if (SymbolRefAttr kernel = renamed.lookup(launch.getKernelAttr()))
        launch.setKernelAttr(kernel);
    });
  }
};
} // namespace
