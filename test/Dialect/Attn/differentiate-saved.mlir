// RUN: attn-opt %s --attn-differentiate="saved-results function=both" | FileCheck %s --check-prefix=BOTH
// RUN: attn-opt %s --attn-differentiate=saved-results | FileCheck %s

// Nothing is computed again, and only the named function is differentiated.
// BOTH-NOT: @output_gradient
// BOTH-LABEL: func.func @both_gradient(
// BOTH-SAME: %[[Q:[^:]*]]: tensor<1x2x?x16xf32>, %[[O:[^:]*]]: tensor<1x2x?x16xf32>, %[[LSE:[^:]*]]: tensor<1x2x?xf32>, %[[DO:[^:]*]]: tensor<1x2x?x16xf32>, %[[DLSE:[^:]*]]: tensor<1x2x?xf32>)
// BOTH-NEXT: attn.backward %[[DO]], %[[Q]], %[[Q]], %[[Q]], %[[O]], %[[LSE]] lse_gradient(%[[DLSE]] : tensor<1x2x?xf32>) :
// BOTH-NEXT: arith.addf
// BOTH-NEXT: arith.addf
// BOTH-NEXT: return
// BOTH-NOT: @output_gradient
func.func @both(%q: tensor<1x2x?x16xf32>) -> (tensor<1x2x?x16xf32>, i32, tensor<1x2x?xf32>) {
  %c = arith.constant 1 : i32
  %o, %lse = attn.forward %q, %q, %q : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
               -> tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
  return %o, %c, %lse : tensor<1x2x?x16xf32>, i32, tensor<1x2x?xf32>
}

// The log-sum-exp is missing: it is computed, the output is the saved one, for
// the second attention too. The third result is an argument of the function.
// CHECK-LABEL: func.func @output_gradient(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<1x2x8x16xf32>, %[[O:[^:]*]]: tensor<1x2x8x16xf32>, %[[P:[^:]*]]: tensor<1x2x8x16xf32>, %[[SQ:[^:]*]]: tensor<1x2x8x16xf32>, %[[DO:[^:]*]]: tensor<1x2x8x16xf32>, %[[DP:[^:]*]]: tensor<1x2x8x16xf32>, %[[DSQ:[^:]*]]: tensor<1x2x8x16xf32>)
// CHECK: %{{.*}}, %[[L1:.*]] = attn.forward %[[Q]], %[[Q]], %[[Q]]
// CHECK: %{{.*}}, %[[L2:.*]] = attn.forward %[[O]], %[[Q]], %[[Q]]
// CHECK: attn.backward %[[DP]], %[[O]], %[[Q]], %[[Q]], %[[P]], %[[L2]]
// CHECK: attn.backward %{{.*}}, %[[Q]], %[[Q]], %[[Q]], %[[O]], %[[L1]]
func.func @output(%q: tensor<1x2x8x16xf32>)
    -> (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) {
  %o = attn.forward %q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
         -> tensor<1x2x8x16xf32>
  %p = attn.forward %o, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
         -> tensor<1x2x8x16xf32>
  return %o, %p, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
}

// Softmax needs its result only.
// CHECK-LABEL: func.func @softmax_gradient(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4x8xf16>, %[[Y:[^:]*]]: tensor<4x8xf16>, %[[DY:[^:]*]]: tensor<4x8xf16>)
// CHECK-NEXT: %[[DX:.*]] = attn.softmax_backward %[[DY]], %[[X]], %[[Y]] : tensor<4x8xf16>
// CHECK-NEXT: return %[[DX]]
func.func @softmax(%x: tensor<4x8xf16>) -> tensor<4x8xf16> {
  %y = attn.softmax %x : tensor<4x8xf16>
  return %y : tensor<4x8xf16>
}

// Of one result, for some arguments: nothing else is taken or given.
// RUN: attn-opt %s --attn-differentiate="saved-results function=both arguments=0 results=0" | FileCheck %s --check-prefix=SOME
// SOME-LABEL: func.func @both_gradient(
// SOME-SAME: %[[Q:[^:]*]]: tensor<1x2x?x16xf32>, %[[O:[^:]*]]: tensor<1x2x?x16xf32>, %[[LSE:[^:]*]]: tensor<1x2x?xf32>, %[[DO:[^:]*]]: tensor<1x2x?x16xf32>)
// SOME-NOT: lse_gradient
// SOME: return

// RUN: attn-opt %s --attn-differentiate="function=three arguments=0,2" | FileCheck %s --check-prefix=THREE
// RUN: not attn-opt %s --attn-differentiate="function=three arguments=3" 2>&1 | FileCheck %s --check-prefix=POSITION
// RUN: not attn-opt %s --attn-differentiate="function=three results=1" 2>&1 | FileCheck %s --check-prefix=RESULT
// THREE-LABEL: func.func @three_gradient(
// THREE: %[[DQ:[^,]*]], %{{[^,]*}}, %[[DV:[^ ]*]] = attn.backward
// THREE: return %[[DQ]], %[[DV]] :
// POSITION: error: expected positions of float arguments, got 3
// RESULT: error: expected positions of float tensor results, got 1
func.func @three(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>, %v: tensor<1x2x?x16xf32>, %n: i32)
    -> tensor<1x2x?x16xf32> {
  %o = attn.forward %q, %k, %v : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> -> tensor<1x2x?x16xf32>
  return %o : tensor<1x2x?x16xf32>
}
