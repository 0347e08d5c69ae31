// RUN: attn-opt %s --attn-lower-scatter-sums --verify-diagnostics

func.func @tensors(%x: tensor<5xf32>, %t: tensor<3xf32>) -> tensor<3xf32> {
  // expected-error@+1 {{expected memrefs, got tensors; bufferize first}}
  %r = attn.scatter_sum %x into %t at {
  ^bb0(%i: index):
    attn.yield %i : index
  } : tensor<5xf32>, tensor<3xf32> -> tensor<3xf32>
  return %r : tensor<3xf32>
}
