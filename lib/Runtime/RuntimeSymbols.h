// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Symbols that compiled code may call.

#ifndef ATTN_LIB_RUNTIME_RUNTIMESYMBOLS_H
#define ATTN_LIB_RUNTIME_RUNTIMESYMBOLS_H

#include "llvm/ExecutionEngine/Orc/Core.h"

namespace llvm::orc {
class LLJIT;
}

namespace attn {
/// The runtime's own functions, and those of the C library that lowering may
/// call. They are named one by one because a static program that does not use
/// them itself would not contain them.
llvm::orc::SymbolMap getRuntimeSymbols(llvm::orc::LLJIT &jit);
} // namespace attn

#endif
