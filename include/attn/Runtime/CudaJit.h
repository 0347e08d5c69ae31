// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// PTX to machine code of the device, by the driver's compiler.

#ifndef ATTN_RUNTIME_CUDAJIT_H
#define ATTN_RUNTIME_CUDAJIT_H

#include "attn/Runtime/CudaDevice.h"

namespace attn::cuda {

struct Cubin {
  std::string image;
  /// What the compiler said: registers, spills, warnings.
  std::string log;
};

/// What the driver is to load: the PTX itself, which it compiles, or, where the
/// environment variable ATTNC_PTXAS names a ptxas, what that makes of it for a
/// chip ("sm_90a"). `name` stands in messages.
llvm::Expected<Cubin> compilePtx(llvm::StringRef ptx, llvm::StringRef chip, llvm::StringRef name);

/// Whether compilePtx gives machine code.
bool compilesBeforeLoading();

/// What the result of compilePtx depends on besides the PTX.
std::string describePtxCompiler(const DeviceInfo &device);

} // namespace attn::cuda

#endif
