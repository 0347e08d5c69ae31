// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Passes on the statement nest (L1) and from it to tile programs (L2).

#ifndef ATTN_TRANSFORMS_NEST_PASSES_H
#define ATTN_TRANSFORMS_NEST_PASSES_H

#include "mlir/Pass/Pass.h"

namespace attn {

/// On a fold: how many rows its tiles have, and how many streamed elements.
inline constexpr llvm::StringLiteral kRowTileAttr = "attn.row_tile";
inline constexpr llvm::StringLiteral kStreamTileAttr = "attn.stream_tile";

#define GEN_PASS_DECL
#include "attn/Transforms/Nest/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "attn/Transforms/Nest/Passes.h.inc"
} // namespace attn

#endif
