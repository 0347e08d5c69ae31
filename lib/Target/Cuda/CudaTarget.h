// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What targets for NVIDIA's GPUs have in common: PTX and host code, loaded by the
// CUDA driver into the context of the thread that calls. Their pipelines differ.

#ifndef ATTN_LIB_TARGET_CUDA_CUDATARGET_H
#define ATTN_LIB_TARGET_CUDA_CUDATARGET_H

#include "attn/Target/Target.h"

namespace attn::target {

class CudaTarget : public Target {
public:
  using Target::Target;

  llvm::Expected<std::unique_ptr<Program>>
  generate(mlir::ModuleOp module, const CodeOptions &options, CompileTimes &times) const override;
  std::unique_ptr<Program> readProgram(llvm::StringRef bytes) const override;
  llvm::Expected<std::unique_ptr<LoadedProgram>> load(std::unique_ptr<Program> program,
                                                      const DiskCache &cache,
                                                      CompileTimes &times) const override;
  llvm::Expected<std::string> describeDevice() const override;
  /// As many CTAs at a time as the device has multiprocessors, unless the schedule says how many.
  llvm::Error fitDevice(PipelineOptions &options) const override;
};

} // namespace attn::target

#endif
