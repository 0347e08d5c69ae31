// Gradients of functions that use attention in more ways than one.
// RUN: attn-run %s --entry=feeds_another --grad --shape 0=1x2x70x16 --shape 1=1x2x90x16 --check | FileCheck %s
// RUN: attn-run %s --entry=only_lse --grad --shape 0=1x2x70x16 --shape 1=1x2x90x16 --check | FileCheck %s
// CHECK: check: gradient 0: ok
// CHECK-NEXT: check: gradient 1: ok
// CHECK-NOT: check:

// The output is the query of another attention, and a result.
func.func @feeds_another(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %o = attn.forward %q, %k, %k mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %keep = arith.cmpi sge, %i, %j : index
    attn.yield %keep : i1
  } : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> -> tensor<1x2x?x16xf32>
  %p = attn.forward %o, %k, %k : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> -> tensor<1x2x?x16xf32>
  return %o, %p : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// The output is not used: its gradient is absent.
func.func @only_lse(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>) -> tensor<1x2x?xf32> {
  %o, %lse = attn.forward %q, %k, %k
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> -> tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
  return %lse : tensor<1x2x?xf32>
}
