// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From launches of PTX kernels to the LLVM dialect for the host.

#include "mlir/Pass/PassManager.h" // Passes.h relies on it

#include "attn/Conversion/Passes.h"
#include "attn/Pipelines/Pipelines.h"

void attn::buildCudaHostPipeline(mlir::OpPassManager &pm) {
  pm.addPass(createAttnLowerLaunches());
  buildHostLowering(pm);
}
