// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef ATTN_DIALECT_ATTN_TRANSFORMS_PASSES
#define ATTN_DIALECT_ATTN_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

def AttnExpand : Pass<"attn-expand"> {
  let summary = "Expand attention ops into the naive chain of linalg statements";
}

#endif
