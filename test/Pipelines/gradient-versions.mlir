// Kernels of a gradient have two versions, of which the device runs one: with large scores, and without. Both mark first
// additions by the same words; what computes maxima and sums again runs with the second one.
// RUN: split-file %s %t
// RUN: attn-opt %t/causal.mlir --attn-differentiate="function=f saved-results" --attn-lower-to-hopper=order=n_outer | FileCheck %s
// RUN: attn-opt %t/causal.mlir --attn-differentiate="function=f saved-results" \
// RUN:   --attn-lower-to-hopper="order=n_outer large-scores=false" | FileCheck %s --check-prefix=WITHOUT
// Keys that are the values, the forward beside the gradient: no gradient is one pass, and each sum has a kernel.
// RUN: attn-opt %t/bias.mlir --attn-differentiate=function=f --attn-lower-to-hopper | FileCheck %s --check-prefix=APART
// RUN: not attn-opt %t/bias.mlir --attn-differentiate=function=f --attn-lower-to-hopper=order=n_outer -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=STREAM

// CHECK-LABEL: func.func @f_gradient(
// CHECK: hopper.report warpgroups %{{.*}} to %[[FLAGS:[a-z0-9_]*]] : vector<64xi1>
// CHECK: hopper.run_if none %[[FLAGS]]
// CHECK: hopper.semaphore.first_touch %[[FLAGS_OF_SUM:[a-z0-9_]*]][
// CHECK: hopper.run_if any %[[FLAGS]]
// CHECK-NOT: hopper.semaphore.first_touch
// CHECK: hopper.run_if any %[[FLAGS]]
// CHECK: hopper.semaphore.first_touch %[[FLAGS_OF_SUM]][
// CHECK-NOT: hopper.run_if
// CHECK: return

// WITHOUT-NOT: hopper.run_if
// WITHOUT-NOT: hopper.report warpgroups

// APART-LABEL: func.func @f_gradient(
// APART: hopper.run_if none
// APART: hopper.run_if any
// APART-NOT: hopper.add
// APART: return

// STREAM: error: order=n_outer: sums that are added to memory have 64 or 128 columns

//--- causal.mlir
!t = tensor<?x?x?x128xbf16>
func.func @f(%q: !t, %k: !t, %v: !t) -> (!t, tensor<?x?x?xf32>) {
  %o, %lse = attn.forward %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %keep = arith.cmpi sge, %i, %j : index
    attn.yield %keep : i1
  } : !t, !t, !t -> !t, tensor<?x?x?xf32>
  return %o, %lse : !t, tensor<?x?x?xf32>
}

//--- bias.mlir
!t = tensor<?x2x?x64xbf16>
!bias = tensor<?x2x?x?xbf16>
func.func @f(%q: !t, %k: !t, %t: !bias) -> !t {
  %o = attn.forward %q, %k, %k captures(%t : !bias) score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: !bias):
    %v = tensor.extract %c[%b, %h, %i, %j] : !bias
    %w = arith.extf %v : bf16 to f32
    %r = arith.addf %s, %w : f32
    attn.yield %r : f32
  } mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index, %c: !bias):
    %keep = arith.cmpi sge, %i, %j : index
    attn.yield %keep : i1
  } : !t, !t, !t -> !t
  return %o : !t
}
