// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef ATTN_TRANSFORMS_HOST_PASSES
#define ATTN_TRANSFORMS_HOST_PASSES

include "mlir/Pass/PassBase.td"

def AttnEmitShapeFunction : Pass<"attn-emit-shape-function", "::mlir::ModuleOp"> {
  let summary = "Give each public function one that computes its results' sizes";
  let description = [{
    For each public function with ranked tensor results, adds a function
    `@<name>_shape` that takes the same arguments and returns the sizes of the
    results, all dimensions of all tensor results in order, as index values. A
    caller uses it to allocate the results. It contains no computation on
    elements: a size that cannot be expressed in sizes of the arguments (and
    scalar arguments) is an error.

    The pass must run before attention ops are expanded to loops, while result
    sizes can be reified.

    ```mlir
    func.func @main(%q: tensor<2x8x?x64xf32>, %k: tensor<2x8x?x64xf32>,
                    %v: tensor<2x8x?x64xf32>) -> tensor<2x8x?x64xf32> {
      %o = attn.forward %q, %k, %v : ...
      return %o : tensor<2x8x?x64xf32>
    }
    ```

    gives beside it

    ```mlir
    func.func @main_shape(%q: tensor<2x8x?x64xf32>, %k: tensor<2x8x?x64xf32>,
                          %v: tensor<2x8x?x64xf32>) -> (index, index, index, index) {
      %c2 = arith.constant 2 : index
      %c8 = arith.constant 8 : index
      %c64 = arith.constant 64 : index
      %n = tensor.dim %q, %c2 : tensor<2x8x?x64xf32>
      return %c2, %c8, %n, %c64 : index, index, index, index
    }
    ```

    Needed by: all kernels that `attn-run` and `libattnc` compile from tensors.
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::tensor::TensorDialect"];
}

#endif
