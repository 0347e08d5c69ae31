// RUN: attn-run %s --check | FileCheck %s
// RUN: attn-run %s --loop-order=n_outer --check | FileCheck %s
// One tensor as query, key and value.
// CHECK: check: result 0: ok
func.func @self(%x: tensor<2x3x130x32xf32>) -> tensor<2x3x130x32xf32> {
  %o = attn.forward %x, %x, %x : tensor<2x3x130x32xf32>, tensor<2x3x130x32xf32>, tensor<2x3x130x32xf32> -> tensor<2x3x130x32xf32>
  return %o : tensor<2x3x130x32xf32>
}
