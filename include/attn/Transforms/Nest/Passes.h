// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Passes on the statement nest (L1) and from it to tile programs (L2).

#ifndef ATTN_TRANSFORMS_NEST_PASSES_H
#define ATTN_TRANSFORMS_NEST_PASSES_H

#include "attn/Dialect/Attn/IR/Facts.h"
#include "mlir/Pass/Pass.h"

namespace attn {

#define GEN_PASS_DECL
#include "attn/Transforms/Nest/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "attn/Transforms/Nest/Passes.h.inc"
} // namespace attn

#endif
