// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loop passes that the dependence graph justifies. See Passes.td.

#ifndef ATTN_TRANSFORMS_LOOPS_PASSES_H
#define ATTN_TRANSFORMS_LOOPS_PASSES_H

#include "mlir/Pass/Pass.h"

namespace attn {
#define GEN_PASS_DECL
#include "attn/Transforms/Loops/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "attn/Transforms/Loops/Passes.h.inc"
} // namespace attn

#endif
