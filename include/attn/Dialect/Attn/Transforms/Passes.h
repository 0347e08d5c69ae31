// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Passes on L0, and from L0 to the statement nest of L1. See Passes.td.

#ifndef ATTN_DIALECT_ATTN_TRANSFORMS_PASSES_H
#define ATTN_DIALECT_ATTN_TRANSFORMS_PASSES_H

#include "mlir/Pass/Pass.h"

namespace attn {
#define GEN_PASS_DECL
#include "attn/Dialect/Attn/Transforms/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "attn/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace attn

#endif
