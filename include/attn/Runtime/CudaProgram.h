// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A compiled CUDA program, not yet on any device: PTX of its kernels and object
// code of its host functions. Making one needs no GPU.

#ifndef ATTN_RUNTIME_CUDAPROGRAM_H
#define ATTN_RUNTIME_CUDAPROGRAM_H

#include "attn/Runtime/CpuExecutable.h"
#include <optional>
#include <string>
#include <vector>

namespace attn {

struct CudaProgram {
  /// One text for all kernels: the driver compiles them side by side, where it would load
  /// one text after the other.
  std::string ptx;
  /// Names, by the number that the host code knows them by.
  std::vector<std::string> kernels;
  /// The functions that can be called.
  std::vector<std::string> functions;
  /// A relocatable object file, see CpuExecutable::load.
  std::string hostObject;

  /// From a module after attn-lower-launches and the lowering of the rest of
  /// the host code to the LLVM dialect. Removes the module's gpu.binary ops.
  static llvm::Expected<CudaProgram> create(mlir::ModuleOp module, CpuCompileTimes &times);

  std::string serialize() const;
  /// Nothing where the bytes are not those of a program.
  static std::optional<CudaProgram> deserialize(llvm::StringRef bytes);
};

} // namespace attn

#endif
