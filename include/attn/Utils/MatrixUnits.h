// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the host multiplies tiles of bf16 with.

#ifndef ATTN_UTILS_MATRIXUNITS_H
#define ATTN_UTILS_MATRIXUNITS_H

#include "llvm/ADT/StringRef.h"

namespace attn {

/// "amx", "avx512_bf16", or "none": the best unit that the host's processor has and its system
/// gives to this process. AMX has to be asked for (Linux, Documentation/arch/x86/xstate.rst); the
/// first call does so, and a process that runs code for it calls this before.
llvm::StringRef findHostMatrixUnit();

} // namespace attn

#endif
