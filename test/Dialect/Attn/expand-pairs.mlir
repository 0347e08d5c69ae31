// RUN: attn-opt %s --attn-expand --canonicalize | FileCheck %s
// RUN: attn-opt %s --attn-expand=pairs-apart --canonicalize | FileCheck %s --check-prefix=APART

// Products of two rows for each pair: scores, and dO with V. With pairs-apart they are
// there twice, for the bias has an element for each pair.
// CHECK-LABEL: func @bias
// CHECK-COUNT-2: iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]
// CHECK-NOT: iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]
// APART-LABEL: func @bias
// APART-COUNT-4: iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]
// APART-NOT: iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]
// Summed over batch and heads in one statement.
// APART: iterator_types = ["reduction", "reduction", "parallel", "parallel"]
!t = tensor<2x4x?x16xf32>
func.func @bias(%x: !t, %lse: tensor<2x4x?xf32>, %c: tensor<?x?xf32>) -> (!t, !t, !t, tensor<?x?xf32>) {
  %dq, %dk, %dv, %dc = attn.backward %x, %x, %x, %x, %x, %lse captures(%c : tensor<?x?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<?x?xf32>):
      %v = tensor.extract %t[%i, %j] : tensor<?x?xf32>
      %r = arith.addf %s, %v : f32
      attn.yield %r : f32
    } gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<?x?xf32>, %dt: f32):
      attn.accumulate %dt into %t[%i, %j] : f32 into tensor<?x?xf32>
      attn.yield %dt : f32
    } : !t, !t, !t, !t, !t, tensor<2x4x?xf32> -> !t, !t, !t captures(tensor<?x?xf32>)
  return %dq, %dk, %dv, %dc : !t, !t, !t, tensor<?x?xf32>
}
