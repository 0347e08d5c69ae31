// RUN: attn-opt %s --attn-build-jvp="function=f" | FileCheck %s
// RUN: attn-opt %s --attn-build-jvp="function=f arguments=2 saved-results" | FileCheck %s --check-prefix=SOME
// RUN: attn-opt %s --attn-differentiate="function=f saved-results" \
// RUN:   --attn-differentiate="function=f_gradient arguments=0,3,6" | FileCheck %s --check-prefix=TWICE
// RUN: attn-opt %s --attn-differentiate="function=f saved-results" \
// RUN:   --attn-build-jvp="function=f_gradient arguments=0" | FileCheck %s --check-prefix=OVER

// The score s^2 c[h], whose derivatives are 2 s c and s^2, and those of the tangent 2 s c s' + s^2 c'.

!t = tensor<1x2x?x8xf32>
!r = tensor<1x2x?xf32>

func.func @f(%q: !t, %k: !t, %v: !t, %c: tensor<2xf32>) -> (!t, !r) {
  %o, %lse = attn.forward %q, %k, %v captures(%c : tensor<2xf32>) score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %a: tensor<2xf32>):
      %x = tensor.extract %a[%h] : tensor<2xf32>
      %y = arith.mulf %s, %s : f32
      %t = arith.mulf %y, %x : f32
      attn.yield %t : f32
    } : !t, !t, !t -> !t, !r
  return %o, %lse : !t, !r
}

// CHECK-LABEL: func @f_jvp
// CHECK-SAME: (%[[Q:.*]]: tensor<1x2x?x8xf32>, %[[K:.*]]: tensor<1x2x?x8xf32>, %[[V:.*]]: tensor<1x2x?x8xf32>, %[[C:.*]]: tensor<2xf32>,
// CHECK-SAME: %[[TQ:.*]]: tensor<1x2x?x8xf32>, %[[TK:.*]]: tensor<1x2x?x8xf32>, %[[TV:.*]]: tensor<1x2x?x8xf32>, %[[TC:.*]]: tensor<2xf32>)
// CHECK: %[[O:.*]], %[[LSE:.*]] = attn.forward
// CHECK: %[[TO:.*]], %[[TLSE:.*]] = attn.jvp %[[Q]], %[[K]], %[[V]], %[[O]], %[[LSE]]
// CHECK-SAME: query(%[[TQ]] : tensor<1x2x?x8xf32>) key(%[[TK]] : tensor<1x2x?x8xf32>) value(%[[TV]] : tensor<1x2x?x8xf32>)
// CHECK-SAME: captures(%[[C]] : tensor<2xf32>) capture_tangents [0](%[[TC]] : tensor<2xf32>) score {
// CHECK: } tangent {
// CHECK: ^bb0(%[[S:.*]]: f32, %{{.*}}: index, %[[H:.*]]: index, %{{.*}}: index, %{{.*}}: index, %[[A:.*]]: tensor<2xf32>, %[[TA:.*]]: tensor<2xf32>, %[[TS:.*]]: f32):
// CHECK:   %[[X:.*]] = tensor.extract %[[A]][%[[H]]]
// CHECK:   %[[Y:.*]] = arith.mulf %[[S]], %[[S]]
// CHECK:   %[[D:.*]] = arith.mulf %[[X]], %[[S]]
// CHECK:   %[[D2:.*]] = arith.addf %[[D]],
// CHECK:   %[[TX:.*]] = tensor.extract %[[TA]][%[[H]]]
// CHECK:   %[[OFC:.*]] = arith.mulf %[[Y]], %[[TX]]
// CHECK:   %[[OFS:.*]] = arith.mulf %[[D2]], %[[TS]]
// CHECK:   %[[T:.*]] = arith.addf %[[OFC]], %[[OFS]]
// CHECK:   attn.yield %[[T]] : f32
// CHECK: return %[[TO]], %[[TLSE]]

// One tangent, that of V; O and LSE are given, and are not computed again.
// SOME-LABEL: func @f_jvp
// SOME-SAME: %[[C:.*]]: tensor<2xf32>, %[[O:.*]]: tensor<1x2x?x8xf32>, %[[LSE:.*]]: tensor<1x2x?xf32>, %[[TV:.*]]: tensor<1x2x?x8xf32>)
// SOME-NOT: attn.forward
// SOME: attn.jvp %{{.*}}, %{{.*}}, %{{.*}}, %[[O]], %[[LSE]] value(%[[TV]] : tensor<1x2x?x8xf32>) captures
// SOME-NOT: capture_tangents

// Reverse mode of the gradient: the gradients of dQ, dK, dV and dC that come in are tangents, what is
// wanted are the gradients of Q, C and dO. Those of O would be 0, for it is a function of the others.
// TWICE-LABEL: func @f_gradient_gradient
// TWICE-SAME: %[[Q:[^:]*]]: tensor<1x2x?x8xf32>,
// TWICE-NOT: attn.backward %
// TWICE: %[[TO:.*]], %[[TLSE:.*]] = attn.jvp
// TWICE: %[[R:.*]], %{{.*}}, %{{.*}}, %[[RC:.*]] = attn.backward_jvp %{{.*}} tangents(%[[TO]], %[[TLSE]]) lse_gradient(
// TWICE-NOT: output_gradient
// TWICE: } gradient {
// TWICE: attn.accumulate
// TWICE: attn.yield %{{.*}}, %{{.*}} : f32, f32
// TWICE: return %[[R]], %[[RC]], %[[TO]]

// Forward mode of the gradient, along Q alone: tangents of O and LSE are those of arguments, here 0.
// OVER-LABEL: func @f_gradient_jvp
// OVER: %[[ZERO:.*]] = linalg.fill
// OVER: attn.backward_jvp %{{.*}} tangents(%[[ZERO]], %{{.*}}) lse_gradient(
