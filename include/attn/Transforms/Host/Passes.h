// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Passes that make what a host program needs to call compiled functions. See
// Passes.td.

#ifndef ATTN_TRANSFORMS_HOST_PASSES_H
#define ATTN_TRANSFORMS_HOST_PASSES_H

#include "mlir/Pass/Pass.h"

namespace attn {
#define GEN_PASS_DECL
#include "attn/Transforms/Host/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "attn/Transforms/Host/Passes.h.inc"
} // namespace attn

#endif
