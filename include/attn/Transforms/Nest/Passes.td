// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef ATTN_TRANSFORMS_NEST_PASSES
#define ATTN_TRANSFORMS_NEST_PASSES

include "mlir/Pass/PassBase.td"

def AttnFuseReductions : Pass<"attn-fuse-reductions", "::mlir::func::FuncOp"> {
  let summary = "Fuse a cascade of reductions into one pass with carried state";
  let description = [{
    Looks for a dimension (the keys, in attention) that an intermediate tensor
    spans and a later statement reduces, and fuses all statements over it into
    one `attn.fold`, so that the intermediate is never stored.

    Where a statement of the cascade reads the result of a reduction over the
    same dimension, a fusion-preventing dependence stands in the way: the final
    value is needed before the first element is read. It is repaired where every
    reader is homogeneous in that value:

    * The value is a running maximum `m`, and the reader's terms change by the
      factor `exp(-d)` when `m` grows by `d` (as `exp(s - m)` does). The fold
      carries `m`, uses the running one, and multiplies a carried sum by
      `exp(m_old - m_new)` before it adds a block (Milakov and Gimelshein,
      2018; FlashAttention, algorithm 1).
    * The value is a running sum `l`, and the reader's terms are a power `l^k`
      times something that does not depend on it (as `x / l` is). The factor is
      taken out of the sum and applied once, at the end.

    Other readers are refused with a remark that names the reduction, the reader
    and the op that breaks the form.

    Statements over the dimension whose whole result is needed (the output of a
    row softmax) become a second fold that maps blocks to blocks.

    The fold gets a `merge` region where states of parts of the dimension can be
    combined.

    Before: the cascade of `attn-expand`. After (shortened):

    ```mlir
    %r:3 = attn.fold %n streams(%k, %v : ...) dims [2, 2] carries(%m0, %l0, %o0 : ...) {
    ^bb0(%j0: index, %kb: tensor<..x?x64xf32>, %vb: tensor<..x?x64xf32>, %m: ..., %l: ..., %o: ...):
      %s  = linalg.generic ...   // sum_d q kb
      %m1 = linalg.generic ...   // max(m, max_j s)
      %ms = linalg.generic ...   // m1 == -inf ? 0 : m1
      %p  = linalg.generic ...   // exp(s - ms)
      %c  = linalg.generic ...   // exp(m - ms)
      %l1 = linalg.generic ...   // l c + sum_j p
      %o1 = linalg.generic ...   // o c + sum_j p vb
      attn.yield %m1, %l1, %o1 : ...
    }
    ```
  }];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::tensor::TensorDialect"];
}

#endif
