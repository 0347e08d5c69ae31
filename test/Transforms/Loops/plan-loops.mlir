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
    // AUTO:  } {attn.treatment = "cluster_reduction"}
    // ASKED: } {attn.treatment = "cluster_reduction"}
    }
  // CHECK-NEXT: } {attn.treatment = "parallel"}
  }
  return
}
// EXPLAIN:      remark: loop j runs by cluster-reduction
// EXPLAIN-NEXT: affine.for %j
// EXPLAIN:      note: owner-computes: {{[0-9.]+}} us estimated
// EXPLAIN:      note: cluster-reduction: {{[0-9.]+}} us estimated
// EXPLAIN:      note: grid-phases: {{[0-9.]+}} us estimated
// EXPLAIN:      note: partial-and-merge: {{[0-9.]+}} us estimated
// REMARK: remark: [Passed] planned | Category:attn-plan-loops | {{.*}}Treatment=parallel
// REMARK: remark: [Passed] planned | Category:attn-plan-loops | {{.*}}Treatment=cluster_reduction

// -----

// Many rows: each has an owner.
// CHECK-LABEL: @many_rows
func.func @many_rows(%A: memref<65536x8xf32>, %S: memref<65536xf32>) {
  affine.for %i = 0 to 65536 {
    affine.for %j = 0 to 8 {
      %a = affine.load %A[%i, %j] : memref<65536x8xf32>
      %s = affine.load %S[%i] : memref<65536xf32>
      %t = arith.addf %s, %a : f32
      affine.store %t, %S[%i] : memref<65536xf32>
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

// -----

// What is not directly in outer parallel loops, or has other running values, is the owner's by itself.
// CHECK-LABEL: @others
func.func @others(%A: memref<4096x4xbf16>, %B: memref<2x4096x4xf32>, %S: memref<4xbf16>, %T: memref<4xf32>) {
  affine.for %i = 0 to 4 {
    affine.for %j = 0 to 4096 {
      %a = affine.load %A[%j, %i] : memref<4096x4xbf16>
      %s = affine.load %S[%i] : memref<4xbf16>
      %t = arith.addf %s, %a : bf16
      affine.store %t, %S[%i] : memref<4xbf16>
    // AUTO: } {attn.treatment = "owner_computes"}
    }
  }
  affine.for %i = 0 to 4 {
    affine.for %k = 0 to 2 {
      affine.for %j = 0 to 4096 {
        %a = affine.load %B[%k, %j, %i] : memref<2x4096x4xf32>
        %s = affine.load %T[%i] : memref<4xf32>
        %t = arith.addf %s, %a : f32
        affine.store %t, %T[%i] : memref<4xf32>
      // AUTO: } {attn.treatment = "owner_computes"}
      }
    // AUTO: } {attn.treatment = "owner_computes"}
    }
  }
  return
}
