// RUN: attn-opt %s -pass-pipeline='builtin.module(attn-hoist-invariants{statements=S1,S2 loop=i})' | FileCheck %s

// Out of two loops at once, together with what is computed from it.
// CHECK-LABEL: func @two
// CHECK-NEXT:    affine.load
// CHECK-NEXT:    arith.mulf
// CHECK-NEXT:    affine.for
// CHECK-NEXT:      affine.for
// CHECK-NEXT:        affine.store
func.func @two(%A: memref<1xf32>, %B: memref<8x8xf32>) {
  affine.for %i = 0 to 8 {
    affine.for %j = 0 to 8 {
      %0 = affine.load %A[0] : memref<1xf32>
      %1 = arith.mulf %0, %0 : f32
      affine.store %1, %B[%i, %j] : memref<8x8xf32>
    }
  }
  return
}
