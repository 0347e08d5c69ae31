// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Passes that choose a pipeline by what they find in the module. See Passes.td.

#ifndef ATTN_PIPELINES_PASSES_H
#define ATTN_PIPELINES_PASSES_H

#include "mlir/Pass/Pass.h"
#include "llvm/Support/Error.h"

namespace attn {
#define GEN_PASS_DECL
#include "attn/Pipelines/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "attn/Pipelines/Passes.h.inc"

struct PipelineOptions;

/// Adds attn-lower-to-hopper with the order, determinism and schedule of `options`; what the
/// schedule says comes last and counts. An error says what is wrong with it.
llvm::Error addLowerToHopper(mlir::OpPassManager &pm, const PipelineOptions &options,
                             llvm::StringRef chip);
} // namespace attn

#endif
