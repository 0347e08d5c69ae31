// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From IR to programs on a GPU, with what was compiled before kept on disk: the
// program by its IR, options and compiler; machine code of the kernels by their
// PTX and the driver.

#ifndef ATTN_COMPILER_CUDACOMPILER_H
#define ATTN_COMPILER_CUDACOMPILER_H

#include "attn/Compiler/DiskCache.h"
#include "attn/Runtime/CudaExecutable.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace mlir {
class OpPassManager;
class PassManager;
} // namespace mlir

namespace attn {

struct PipelineOptions;

/// Seconds spent, what came from the cache, and what was said.
struct CudaCompileTimes {
  /// IR to PTX and host code; PTX to machine code; loading both.
  double passes = 0, host = 0, ptx = 0, load = 0;
  bool programCached = false, cubinsCached = false;
  /// PTX is compiled while it is loaded, unless the driver has done it before.
  bool driverCompiles = false;
  /// What the PTX compiler warned of, such as products that it serialised.
  std::vector<std::string> warnings;
};

/// `schedule` for a device: with as many CTAs at a time as it has multiprocessors, unless it
/// says how many.
std::string getScheduleFor(const cuda::DeviceInfo &device, llvm::StringRef schedule);

/// Compiles `module`, and changes it on the way. Its public functions are those
/// that can be called. A function has gpu.launch in it, or none of its module
/// does. `configure` sees the pass manager before it runs; errors of passes come
/// as diagnostics of the context besides.
llvm::Expected<CudaProgram>
compileCudaProgram(mlir::ModuleOp module, const PipelineOptions &options, const DiskCache &cache,
                   CudaCompileTimes &times,
                   llvm::function_ref<llvm::Error(mlir::PassManager &)> configure);

/// Brings a program to a device.
llvm::Expected<std::unique_ptr<CudaExecutable>> loadCudaProgram(const CudaProgram &program,
                                                                const cuda::DeviceInfo &device,
                                                                const DiskCache &cache,
                                                                CudaCompileTimes &times);

} // namespace attn

#endif
