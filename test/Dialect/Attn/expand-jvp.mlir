// RUN: attn-opt %s --attn-expand=large-scores=inexact --canonicalize --cse | FileCheck %s

// With a tangent of Q alone s' is one product, and the values have none.

!t = tensor<1x2x16x8xf32>
!r = tensor<1x2x16xf32>

// CHECK-LABEL: func @jvp
// CHECK: linalg.generic {{.*}}ins(%[[Q:.*]], %[[K:.*]] : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) {{.*}}["b", "h", "i", "j", "d"]
// CHECK: linalg.generic {{.*}}ins(%[[TQ:.*]], %[[K]] : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) {{.*}}["b", "h", "i", "j", "d"]
// CHECK-NOT: ["b", "h", "i", "j", "d"]
// CHECK: math.exp
// CHECK: %[[T:.*]] = linalg.generic {{.*}}["b", "h", "i", "j"]
// CHECK: %[[U:.*]] = linalg.generic {{.*}}ins(%{{.*}}, %[[T]] : tensor<1x2x16x16xf32>, tensor<1x2x16x16xf32>)
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%[[U]]
// CHECK: %[[A:.*]] = linalg.generic {{.*}}ins(%[[U]], %{{.*}} : tensor<1x2x16x16xf32>, tensor<1x2x16x8xf32>) {{.*}}["b", "h", "i", "j", "e"]
// CHECK: linalg.generic {{.*}}ins(%[[A]], %[[SUM]], %{{.*}} : tensor<1x2x16x8xf32>, tensor<1x2x16xf32>, tensor<1x2x16x8xf32>)
// CHECK-NEXT: ^bb0(%[[IA:.*]]: f32, %[[IM:.*]]: f32, %[[IO:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT: %[[MEAN:.*]] = arith.mulf %[[IM]], %[[IO]]
// CHECK-NEXT: arith.subf %[[IA]], %[[MEAN]]
func.func @jvp(%q: !t, %k: !t, %v: !t, %o: !t, %lse: !r, %tq: !t) -> (!t, !r) {
  %to, %tlse = attn.jvp %q, %k, %v, %o, %lse query(%tq : !t) : !t, !t, !t, !t, !r -> !t, !r
  return %to, %tlse : !t, !r
}

// Products over pairs and d: Q K, Q' K, and the sums dQ' and both of dK'; over e: dO V, and the sum dV'.
// CHECK-LABEL: func @backward_jvp
// CHECK-COUNT-2: ["b", "h", "i", "j", "d"]
// CHECK: math.exp
// CHECK: ["b", "h", "i", "j", "e"]
// CHECK: ["b", "h", "i", "j", "d"]
// CHECK: ["b", "h", "i", "j", "d"]
// CHECK: ["b", "h", "i", "j", "e"]
// CHECK: ["b", "h", "i", "j", "d"]
// CHECK: return
func.func @backward_jvp(%do: !t, %q: !t, %k: !t, %v: !t, %o: !t, %lse: !r, %to: !t, %tlse: !r, %tq: !t)
    -> (!t, !t, !t) {
  %rq, %rk, %rv = attn.backward_jvp %do, %q, %k, %v, %o, %lse tangents(%to, %tlse) query(%tq : !t)
    : !t, !t, !t, !t, !t, !r -> !t, !t, !t
  return %rq, %rk, %rv : !t, !t, !t
}
