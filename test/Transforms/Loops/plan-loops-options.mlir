// RUN: not attn-opt %s -pass-pipeline='builtin.module(attn-plan-loops{treatment=turnstile})' 2>&1 | FileCheck %s --check-prefix=TREATMENT
// TREATMENT: error: expected a treatment of attn-print-dependences or auto, and ctas and assumed-count of at least 1; got treatment turnstile
// RUN: not attn-opt %s -pass-pipeline='builtin.module(attn-plan-loops{treatment=atomics loops=i,k,n})' 2>&1 | FileCheck %s --check-prefix=LOOPS
// LOOPS: error: expected loops to plan, got none named k, n
// RUN: not attn-opt %s -pass-pipeline='builtin.module(attn-plan-loops{treatment=atomics loops=i})' 2>&1 | FileCheck %s --check-prefix=PARALLEL
// PARALLEL: error: loop i carries nothing: it is parallel, and needs no atomics
// RUN: attn-opt %s -pass-pipeline='builtin.module(attn-plan-loops{treatment=atomics loops=j})' | FileCheck %s
func.func @sum(%A: memref<8x16xf32>, %S: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    affine.for %j = 0 to 16 {
      %a = affine.load %A[%i, %j] : memref<8x16xf32>
      %s = affine.load %S[%i] : memref<8xf32>
      %t = arith.addf %s, %a : f32
      affine.store %t, %S[%i] : memref<8xf32>
    // CHECK: } {attn.treatment = "atomics"}
    }
  }
  return
}
