// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From the tile program to the LLVM dialect for CPUs.

#ifndef ATTN_PIPELINES_CPUPIPELINE_H
#define ATTN_PIPELINES_CPUPIPELINE_H

#include "mlir/Pass/PassOptions.h"

namespace mlir {
class OpPassManager;
}

namespace attn {

struct CpuPipelineOptions : mlir::PassPipelineOptions<CpuPipelineOptions> {
  Option<int64_t> vectorBits{
      *this, "vector-bits",
      llvm::cl::desc("Bits of a vector register: 128, 256 or 512; 0 takes the host's"),
      llvm::cl::init(0)};
};

/// Adds the passes that lower a module at the level of tile programs (tensors at
/// the edges, vector tiles inside) to the LLVM dialect. Afterwards every public
/// function takes its inputs, then its outputs, as memrefs, and has a C
/// interface; parallel loops call `attnRuntimeParallelFor`.
void populateCpuPipeline(mlir::OpPassManager &pm, const CpuPipelineOptions &options);

/// Registers `attn-cpu-pipeline`.
void registerCpuPipeline();

} // namespace attn

#endif
