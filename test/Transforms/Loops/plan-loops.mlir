// RUN: attn-opt %s -split-input-file -attn-plan-loops | FileCheck %s --check-prefixes=CHECK,AUTO
// RUN: attn-opt %s -split-input-file -pass-pipeline='builtin.module(attn-plan-loops{treatment=cluster-reduction})' | FileCheck %s --check-prefixes=CHECK,ASKED
// RUN: attn-opt %s -split-input-file -pass-pipeline='builtin.module(attn-plan-loops{explain})' -o /dev/null 2>&1 | FileCheck %s --check-prefix=EXPLAIN
// RUN: attn-opt %s -split-input-file -attn-plan-loops --remarks-filter=attn-plan-loops -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// Few long rows: workers are left over, and parts are worth their meetings.
// CHECK-LABEL: @few_rows
func.func @few_rows(%A: memref<2x65536xf32>, %S: memref<2xf32>) {
  affine.for %i = 0 to 2 {
    affine.for %j = 0 to 65536 {
      %a = affine.load %A[%i, %j] : memref<2x65536xf32>
      %s = affine.load %S[%i] : memref<2xf32>
      %t = arith.addf %s, %a : f32
      affine.store %t, %S[%i] : memref<2xf32>
    // AUTO:  } {attn.treatment = "grid_phases"}
    // ASKED: } {attn.treatment = "cluster_reduction"}
    }
  // CHECK-NEXT: } {attn.treatment = "parallel"}
  }
  return
}
// EXPLAIN:      remark: loop j runs by grid-phases
// EXPLAIN-NEXT: affine.for %j
// EXPLAIN:      note: owner-computes: {{[0-9.]+}} us estimated
// EXPLAIN:      note: cluster-reduction: {{[0-9.]+}} us estimated
// EXPLAIN:      note: grid-phases: {{[0-9.]+}} us estimated
// EXPLAIN:      note: partial-and-merge: {{[0-9.]+}} us estimated
// REMARK: remark: [Passed] planned | Category:attn-plan-loops | {{.*}}Treatment=parallel
// REMARK: remark: [Passed] planned | Category:attn-plan-loops | {{.*}}Treatment=grid_phases

// -----

// Many rows: each has an owner.
// CHECK-LABEL: @many_rows
func.func @many_rows(%A: memref<4096x64xf32>, %S: memref<4096xf32>) {
  affine.for %i = 0 to 4096 {
    affine.for %j = 0 to 64 {
      %a = affine.load %A[%i, %j] : memref<4096x64xf32>
      %s = affine.load %S[%i] : memref<4096xf32>
      %t = arith.addf %s, %a : f32
      affine.store %t, %S[%i] : memref<4096xf32>
    // AUTO:  } {attn.treatment = "owner_computes"}
    // ASKED: } {attn.treatment = "cluster_reduction"}
    }
  // CHECK-NEXT: } {attn.treatment = "parallel"}
  }
  return
}

// -----

// Of two loops that carry the sum the outer one is divided; a plan that is there already stays.
// CHECK-LABEL: @nested
func.func @nested(%A: memref<64x64xf32>, %S: memref<f32>) {
  affine.for %j = 0 to 64 {
    affine.for %k = 0 to 64 {
      %a = affine.load %A[%j, %k] : memref<64x64xf32>
      %s = affine.load %S[] : memref<f32>
      %t = arith.addf %s, %a : f32
      affine.store %t, %S[] : memref<f32>
    // CHECK: } {attn.treatment = "owner_computes"}
    }
  // CHECK-NEXT: } {attn.treatment = "atomics"}
  } {attn.treatment = "atomics"}
  return
}
