// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Passes on tile programs in memory, for targets whose programs are those of a group of threads.
// See Passes.td.

#ifndef ATTN_TRANSFORMS_PROGRAMS_PASSES_H
#define ATTN_TRANSFORMS_PROGRAMS_PASSES_H

#include "attn/Dialect/Attn/IR/Facts.h"
#include "mlir/Pass/Pass.h"

namespace attn {

#define GEN_PASS_DECL
#include "attn/Transforms/Programs/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "attn/Transforms/Programs/Passes.h.inc"
} // namespace attn

#endif
