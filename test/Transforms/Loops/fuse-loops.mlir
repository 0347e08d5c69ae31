// RUN: attn-opt %s -split-input-file -attn-fuse-loops | FileCheck %s
// RUN: attn-opt %s -split-input-file -attn-fuse-loops --remarks-filter=attn-fuse-loops -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Missed] not fused | Category:attn-fuse-loops{{$}}
// REMARKS-DAG: {{^ *}}3 [Passed] fused | Category:attn-fuse-loops{{$}}

// Distance 0 and distance 1 from the first to the second; also inside.
// CHECK-LABEL: func @forward
// CHECK:       affine.for %[[I:.*]] = 1 to 8 {
// CHECK-NEXT:    affine.for %[[J:.*]] = 0 to 4 {
// CHECK-NEXT:      affine.store %{{.*}}, %{{.*}}[%[[I]], %[[J]]]
// CHECK-NEXT:      affine.load %{{.*}}[%[[I]] - 1, %[[J]]]
// CHECK-NEXT:      affine.store
// CHECK-NEXT:    }
// CHECK-NEXT:  }
// CHECK-NEXT:  return
func.func @forward(%A: memref<8x4xf32>, %B: memref<8x4xf32>, %x: f32) {
  affine.for %i = 1 to 8 {
    affine.for %j = 0 to 4 {
      affine.store %x, %A[%i, %j] : memref<8x4xf32>
    }
  }
  affine.for %i = 1 to 8 {
    affine.for %j = 0 to 4 {
      %0 = affine.load %A[%i - 1, %j] : memref<8x4xf32>
      affine.store %0, %B[%i, %j] : memref<8x4xf32>
    }
  }
  return
}

// -----

// The outer loops may be joined, the inner ones not: the row is read backwards.
// CHECK-LABEL: func @outer_only
// CHECK:       affine.for
// CHECK-NEXT:    affine.for
// CHECK-NEXT:      affine.store
// CHECK-NEXT:    }
// CHECK-NEXT:    affine.for
// CHECK-NEXT:      affine.load
// CHECK-NEXT:      affine.store
// CHECK-NEXT:    }
// CHECK-NEXT:  }
// CHECK-NEXT:  return
func.func @outer_only(%A: memref<8x4xf32>, %B: memref<8x4xf32>, %x: f32) {
  affine.for %i = 0 to 8 {
    affine.for %j = 0 to 4 {
      affine.store %x, %A[%i, %j] : memref<8x4xf32>
    }
  }
  affine.for %i = 0 to 8 {
    affine.for %j = 0 to 4 {
      %0 = affine.load %A[%i, -%j + 3] : memref<8x4xf32>
      affine.store %0, %B[%i, %j] : memref<8x4xf32>
    }
  }
  return
}

// -----

// Other bounds, or something with effects in between: left alone.
// CHECK-LABEL: func @not_neighbours
// CHECK-COUNT-3: affine.for
func.func @not_neighbours(%A: memref<8xf32>, %B: memref<8xf32>, %x: f32) {
  affine.for %i = 0 to 8 {
    affine.store %x, %A[%i] : memref<8xf32>
  }
  affine.for %i = 0 to 7 {
    affine.store %x, %B[%i] : memref<8xf32>
  }
  affine.store %x, %A[0] : memref<8xf32>
  affine.for %i = 0 to 7 {
    affine.store %x, %A[%i] : memref<8xf32>
  }
  return
}
