// RUN: attn-opt %s -split-input-file -attn-parallelize-loops -verify-diagnostics | FileCheck %s
// RUN: attn-opt %s -split-input-file -attn-parallelize-loops --remarks-filter=attn-parallelize-loops -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}2 [Passed] parallel | Category:attn-parallelize-loops{{$}}

// Rows are independent, the sum along a row is not; the name goes along.
// CHECK-LABEL: func @rows
// CHECK:       affine.parallel (%{{.*}}) = (0) to (8) {
// CHECK:         affine.for %{{.*}} = 0 to 16 {
// CHECK:       } {attn.loop = "row"}
func.func @rows(%A: memref<8x16xf32>, %S: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    affine.for %j = 0 to 16 {
      %a = affine.load %A[%i, %j] : memref<8x16xf32>
      %s = affine.load %S[%i] : memref<8xf32>
      %t = arith.addf %s, %a : f32
      affine.store %t, %S[%i] : memref<8xf32>
    }
  } {attn.loop = "row"}
  return
}

// -----

// A buffer of one iteration does not stand in the way.
// CHECK-LABEL: func @private
// CHECK:       affine.parallel
func.func @private(%A: memref<8xf32>, %x: f32) {
  affine.for %i = 0 to 8 {
    %t = memref.alloca() : memref<1xf32>
    affine.store %x, %t[0] : memref<1xf32>
    %y = affine.load %t[0] : memref<1xf32>
    affine.store %y, %A[%i] : memref<8xf32>
  }
  return
}
