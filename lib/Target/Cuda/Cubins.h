// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A CUDA program to a device, with machine code of its PTX from the cache.

#ifndef ATTN_LIB_TARGET_CUDA_CUBINS_H
#define ATTN_LIB_TARGET_CUDA_CUBINS_H

#include "attn/Compiler/DiskCache.h"
#include "attn/Runtime/CudaExecutable.h"
#include "attn/Target/Target.h"

namespace attn::target {

/// Into the calling thread's context, which is one of `device`; `chip` is what the PTX was made
/// for.
llvm::Expected<std::unique_ptr<CudaExecutable>>
loadCudaProgram(const CudaProgram &program, llvm::StringRef chip, const cuda::DeviceInfo &device,
                const DiskCache &cache, CompileTimes &times);

} // namespace attn::target

#endif
