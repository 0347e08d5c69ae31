// RUN: attn-opt %s -split-input-file -attn-hoist-invariants | FileCheck %s
// RUN: attn-opt %s -split-input-file -attn-hoist-invariants --remarks-filter=attn-hoist-invariants -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}6 [Passed] hoisted | Category:attn-hoist-invariants{{$}}

// Reads leave the loops that they do not vary in, as far as they can; with
// them goes what is computed from them.
// CHECK-LABEL: func @locality
// CHECK-NEXT:    %[[c:.*]] = affine.load %{{.*}}[0]
// CHECK-NEXT:    affine.for %[[I:.*]] = 0 to 8 {
// CHECK-NEXT:      %[[q:.*]] = affine.load %{{.*}}[%[[I]]]
// CHECK-NEXT:      %[[s:.*]] = arith.mulf %[[q]], %[[c]]
// CHECK-NEXT:      affine.for %[[J:.*]] = 0 to 16 {
// CHECK-NEXT:        affine.store %[[s]]
func.func @locality(%Q: memref<8xf32>, %C: memref<1xf32>, %S: memref<8x16xf32>) {
  affine.for %i = 0 to 8 {
    affine.for %j = 0 to 16 {
      %q = affine.load %Q[%i] : memref<8xf32>
      %c = affine.load %C[0] : memref<1xf32>
      %s = arith.mulf %q, %c : f32
      affine.store %s, %S[%i, %j] : memref<8x16xf32>
    }
  }
  return
}

// -----

// m is written in j, so its read stays; the element of the row before is
// complete when j starts, so that read leaves.
// CHECK-LABEL: func @written
// CHECK:         affine.for %[[I:.*]] = 1 to 8 {
// CHECK-NEXT:      %{{.*}} = affine.load %{{.*}}[%[[I]] - 1]
// CHECK-NEXT:      affine.for %{{.*}} = 0 to 16 {
// CHECK-NEXT:        affine.load %{{.*}}[%[[I]]]
func.func @written(%m: memref<8xf32>) {
  affine.for %i = 1 to 8 {
    affine.for %j = 0 to 16 {
      %a = affine.load %m[%i] : memref<8xf32>
      %b = affine.load %m[%i - 1] : memref<8xf32>
      %c = arith.addf %a, %b : f32
      affine.store %c, %m[%i] : memref<8xf32>
    }
  }
  return
}

// -----

// A read must not happen where there was none: not from a loop that may be
// empty, not from under a condition.
// CHECK-LABEL: func @may_not_run
// CHECK-NEXT:    affine.for
// CHECK-NEXT:      affine.load
// CHECK:         affine.for
// CHECK-NEXT:      affine.if
// CHECK-NEXT:        affine.load
func.func @may_not_run(%n: index, %Q: memref<?xf32>, %S: memref<?xf32>) {
  affine.for %j = 0 to %n {
    %q = affine.load %Q[0] : memref<?xf32>
    affine.store %q, %S[%j] : memref<?xf32>
  }
  affine.for %j = 0 to 8 {
    affine.if affine_set<(d) : (d - 3 >= 0)>(%j) {
      %q = affine.load %Q[100] : memref<?xf32>
      affine.store %q, %S[%j] : memref<?xf32>
    }
  }
  return
}

// -----

// CHECK-LABEL: func @shared_index
// CHECK-NEXT:    %[[a:.*]] = affine.apply
// CHECK-NEXT:    %[[b:.*]] = affine.apply {{.*}}(%[[a]], %[[a]])
// CHECK-NEXT:    affine.load %{{.*}}[%[[b]], %[[a]]]
// CHECK-NEXT:    affine.for
func.func @shared_index(%n: index, %A: memref<99x99xf32>, %B: memref<8xf32>) {
  affine.for %j = 0 to 8 {
    %a = affine.apply affine_map<()[s] -> (s + 1)>()[%n]
    %b = affine.apply affine_map<(d0, d1) -> (d0 + d1)>(%a, %a)
    %0 = affine.load %A[%b, %a] : memref<99x99xf32>
    affine.store %0, %B[%j] : memref<8xf32>
  }
  return
}
