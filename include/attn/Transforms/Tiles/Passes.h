// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Passes on L2 tile programs that turn masks into loop structure. See
// Passes.td and docs/mask-projection.md.

#ifndef ATTN_TRANSFORMS_TILES_PASSES_H
#define ATTN_TRANSFORMS_TILES_PASSES_H

#include "attn/Dialect/Attn/IR/Facts.h"
#include "mlir/Pass/Pass.h"

namespace attn {

#define GEN_PASS_DECL
#include "attn/Transforms/Tiles/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "attn/Transforms/Tiles/Passes.h.inc"
} // namespace attn

#endif
