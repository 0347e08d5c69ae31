// RUN: attn-opt %s -split-input-file -pass-pipeline='builtin.module(attn-interchange-loops{order=j,i})' | FileCheck %s
// RUN: attn-opt %s -split-input-file -pass-pipeline='builtin.module(attn-interchange-loops{order=j,i})' --remarks-filter=attn-interchange-loops -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}4 [Passed] interchanged | Category:attn-interchange-loops{{$}}

// A perfect nest whose only dependence is (1, 0).
// CHECK-LABEL: func @perfect
// CHECK:       affine.for %[[J:.*]] = 0 to 16
// CHECK-NEXT:    affine.for %[[I:.*]] = 1 to 8
// CHECK-NEXT:      affine.load %{{.*}}[%[[I]] - 1, %[[J]]]
func.func @perfect(%A: memref<8x16xf32>) {
  affine.for %i = 1 to 8 {
    affine.for %j = 0 to 16 {
      %0 = affine.load %A[%i - 1, %j] : memref<8x16xf32>
      affine.store %0, %A[%i, %j] : memref<8x16xf32>
    }
  }
  return
}

// -----

// A read between the loops moves into the inner one.
// CHECK-LABEL: func @sink
// CHECK:       affine.for %[[J:.*]] = 0 to 16
// CHECK-NEXT:    affine.for %[[I:.*]] = 0 to 8
// CHECK-NEXT:      affine.load %{{.*}}[%[[I]]]
func.func @sink(%Q: memref<8xf32>, %O: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    %q = affine.load %Q[%i] : memref<8xf32>
    affine.for %j = 0 to 16 {
      %o = affine.load %O[%i] : memref<8xf32>
      %s = arith.addf %o, %q : f32
      affine.store %s, %O[%i] : memref<8xf32>
    }
  }
  return
}

// -----

// Initialisation before and division after the inner loop get loops of their
// own; the read that both the inner loop and what follows use runs in both.
// CHECK-LABEL: func @distribute
// CHECK-SAME:    %[[Q:.*]]: memref<8xf32>, %[[O:.*]]: memref<8xf32>
// CHECK:       affine.for %[[I:.*]] = 0 to 8 {
// CHECK-NEXT:    affine.store %{{.*}}, %[[O]][%[[I]]]
// CHECK-NEXT:  }
// CHECK-NEXT:  affine.for %[[J:.*]] = 0 to 16 {
// CHECK-NEXT:    affine.for %[[I:.*]] = 0 to 8 {
// CHECK-NEXT:      %[[q:.*]] = affine.load %[[Q]][%[[I]]]
// CHECK-NEXT:      %[[o:.*]] = affine.load %[[O]][%[[I]]]
// CHECK-NEXT:      %[[s:.*]] = arith.addf %[[o]], %[[q]]
// CHECK-NEXT:      affine.store %[[s]], %[[O]][%[[I]]]
// CHECK-NEXT:    }
// CHECK-NEXT:  }
// CHECK-NEXT:  affine.for %[[I:.*]] = 0 to 8 {
// CHECK-NEXT:    %[[q:.*]] = affine.load %[[Q]][%[[I]]]
// CHECK-NEXT:    %[[o:.*]] = affine.load %[[O]][%[[I]]]
// CHECK-NEXT:    %[[s:.*]] = arith.divf %[[o]], %[[q]]
// CHECK-NEXT:    affine.store %[[s]], %[[O]][%[[I]]]
// CHECK-NEXT:  }
// CHECK-NEXT:  return
func.func @distribute(%Q: memref<8xf32>, %O: memref<8xf32>, %zero: f32) {
  affine.for %i = 0 to 8 {
    %q = affine.load %Q[%i] : memref<8xf32>
    affine.store %zero, %O[%i] : memref<8xf32>
    affine.for %j = 0 to 16 {
      %o = affine.load %O[%i] : memref<8xf32>
      %s = arith.addf %o, %q : f32
      affine.store %s, %O[%i] : memref<8xf32>
    }
    %t = affine.load %O[%i] : memref<8xf32>
    %d = arith.divf %t, %q : f32
    affine.store %d, %O[%i] : memref<8xf32>
  }
  return
}

// -----

// The loops may be inside of others, which keep their place.
// CHECK-LABEL: func @inside
// CHECK:       affine.for %{{.*}} = 0 to 4
// CHECK-NEXT:    affine.for %{{.*}} = 0 to 16
// CHECK-NEXT:      affine.for %{{.*}} = 0 to 8
// CHECK-NEXT:        affine.for %{{.*}} = 0 to 2
func.func @inside(%A: memref<4x8x16x2xf32>, %x: f32) {
  affine.for %b = 0 to 4 {
    affine.for %i = 0 to 8 {
      affine.for %j = 0 to 16 {
        affine.for %d = 0 to 2 {
          affine.store %x, %A[%b, %i, %j, %d] : memref<4x8x16x2xf32>
        } {attn.loop = "d"}
      } {attn.loop = "j"}
    } {attn.loop = "i"}
  } {attn.loop = "b"}
  return
}
