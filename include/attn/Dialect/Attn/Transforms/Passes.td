// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef ATTN_DIALECT_ATTN_TRANSFORMS_PASSES
#define ATTN_DIALECT_ATTN_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

def AttnExpand : Pass<"attn-expand"> {
  let summary = "Expand attention ops into the naive chain of linalg statements";
  let description = [{
    Replaces each `attn.forward` and `attn.softmax` by its definition: one
    `linalg.generic` per statement (contraction, score, mask, row maximum,
    exponential, row sum, contraction, division). The chain is meant to be
    read, analysed and fused, not run: its intermediates have a query and a key
    dimension.

    Where query and key heads may differ, the query heads are split into
    (key head, group), so that every access is a projection of the iteration
    space. A row maximum of -inf (every key masked) is replaced by 0 before it
    is subtracted, so that such a row has p = 0.

    Afterwards no `attn.forward` and no `attn.softmax` is left.

    Before:

    ```mlir
    %o = attn.forward %q, %k, %v scale 0.125 : tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>,
             tensor<1x2x?x64xf32> -> tensor<1x2x?x64xf32>
    ```

    After (maps and bodies shortened):

    ```mlir
    %s  = linalg.generic (b,h,i,j,d) ins(%q, %k) ...   // sum_d q k
    %t  = linalg.generic (b,h,i,j)   ins(%s) ...       // scale, score
    %m  = linalg.generic (b,h,i,j)   ins(%t) ...       // max_j
    %ms = linalg.generic (b,h,i)     ins(%m) ...       // m == -inf ? 0 : m
    %p  = linalg.generic (b,h,i,j)   ins(%t, %ms) ...  // exp(t - ms)
    %l  = linalg.generic (b,h,i,j)   ins(%p) ...       // sum_j
    %a  = linalg.generic (b,h,i,j,e) ins(%p, %v) ...   // sum_j p v
    %o  = linalg.generic (b,h,i,e)   ins(%a, %l) ...   // l == 0 ? 0 : a / l
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect", "::mlir::tensor::TensorDialect"];
}

#endif
