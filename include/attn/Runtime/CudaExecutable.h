// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A CUDA program on a device.

#ifndef ATTN_RUNTIME_CUDAEXECUTABLE_H
#define ATTN_RUNTIME_CUDAEXECUTABLE_H

#include "attn/Runtime/CudaDevice.h"
#include "attn/Runtime/CudaJit.h"
#include "attn/Runtime/CudaProgram.h"

namespace attn {

/// What the device's compiler made of a kernel.
struct CudaKernelInfo {
  std::string name;
  int registers = 0, spilledBytes = 0, staticSharedBytes = 0;
};

class CudaExecutable {
public:
  ~CudaExecutable();

  /// Loads into the calling thread's context, which is one of `device`. `image`
  /// is the program's PTX, or machine code of it.
  static llvm::Expected<std::unique_ptr<CudaExecutable>>
  load(const CudaProgram &program, const cuda::DeviceInfo &device, const std::string &image);

  using Packed = CpuExecutable::Packed;
  llvm::Expected<Packed> lookup(llvm::StringRef function) { return host->lookupPacked(function); }

  /// Starts a function on a stream. `slots` are as CpuExecutable::Packed's, but
  /// for a first one, which this fills in. Memrefs are of device memory.
  llvm::Error run(Packed function, void **slots, cuda::Stream stream, cuda::Address workspace,
                  size_t workspaceBytes);

  /// Runs the host code of a function without launching anything; addresses may
  /// be null. Gives the bytes of workspace that a call of these sizes takes.
  static llvm::Expected<size_t> measure(Packed function, void **slots);

  const cuda::DeviceInfo &getDevice() const { return *device; }
  cuda::Context getContext() const { return context; }
  llvm::ArrayRef<CudaKernelInfo> getKernels() const { return infos; }
  /// What the driver said of PTX that it compiled; it says nothing of what it
  /// found in its own cache.
  llvm::StringRef getLog() const { return log; }

private:
  CudaExecutable() = default;
  llvm::Error loadKernels(const CudaProgram &program, const std::string &image);

  const cuda::DeviceInfo *device = nullptr;
  cuda::Context context = nullptr;
  std::unique_ptr<CpuExecutable> host;
  cuda::Module module = nullptr;
  std::vector<cuda::Function> kernels;
  std::vector<CudaKernelInfo> infos;
  cuda::Buffer zeros;
  std::string log;
};

} // namespace attn

#endif
