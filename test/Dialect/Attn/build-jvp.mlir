// RUN: attn-opt %s --attn-build-jvp="function=f" | FileCheck %s
// RUN: attn-opt %s --attn-build-jvp="function=f arguments=2 saved-results" | FileCheck %s --check-prefix=SOME
// RUN: attn-opt %s --attn-differentiate="function=f saved-results" \
// RUN:   --attn-differentiate="function=f_gradient arguments=0,5" | FileCheck %s --check-prefix=TWICE
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
