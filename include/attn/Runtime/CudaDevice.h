// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The GPU that programs run on, and memory on it.

#ifndef ATTN_RUNTIME_CUDADEVICE_H
#define ATTN_RUNTIME_CUDADEVICE_H

#include "attn/Runtime/CudaDriver.h"
#include <string>

namespace attn::cuda {

struct DeviceInfo {
  const Driver *driver;
  Device device;
  std::string name;
  /// 90 for sm_90.
  int capability, multiprocessors, maxSharedBytes, driverVersion;

  /// The device of the calling thread's context. A thread without one gets the
  /// primary context of the first device, which PyTorch and the CUDA runtime use
  /// too. An error where the device does not have the capability that code is for, or, with
  /// `orLater`, has an earlier one.
  static llvm::Expected<const DeviceInfo *> current(int capability, bool orLater = false);

  /// The calling thread's context, or null.
  llvm::Expected<Context> getContext() const;
};

/// Memory of the device.
class Buffer {
public:
  Buffer() = default;
  Buffer(Buffer &&other) { *this = std::move(other); }
  Buffer &operator=(Buffer &&other);
  ~Buffer();

  /// At least one byte, aligned to 256.
  static llvm::Expected<Buffer> allocate(const DeviceInfo &device, size_t bytes);

  Address address() const { return start; }
  size_t size() const { return bytes; }

private:
  const DeviceInfo *device = nullptr;
  Address start = 0;
  size_t bytes = 0;
};

} // namespace attn::cuda

#endif
