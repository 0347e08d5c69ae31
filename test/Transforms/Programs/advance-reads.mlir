// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-advance-reads))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-advance-reads))" --remarks-filter=attn-advance-reads -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] advanced | Category:attn-advance-reads{{$}}

// Reads come first, in their order, with their places; what the program writes itself is read
// where it was.
// CHECK-LABEL: func.func @sums
// CHECK: scf.forall
// CHECK-NEXT: %[[I:.*]] = affine.apply #{{.*}}(%{{.*}})
// CHECK-NEXT: %[[O:.*]] = vector.transfer_read %arg0[%[[I]], %{{.*}}]
// CHECK-NEXT: %[[G:.*]] = vector.transfer_read %arg1[%[[I]], %{{.*}}]
// CHECK-NEXT: %[[NEXT:.*]] = affine.apply #{{.*}}(%[[I]])
// CHECK-NEXT: %[[L:.*]] = vector.transfer_read %arg2[%[[NEXT]]]
// CHECK-NEXT: arith.mulf %[[O]], %[[G]]
// CHECK: vector.transfer_write %{{.*}}, %arg3
// CHECK-NEXT: vector.transfer_read %arg3
// CHECK: vector.transfer_write
func.func @sums(%O: memref<?x64xf32>, %G: memref<?x64xf32>, %L: memref<?xf32>, %D: memref<?xf32>, %E: memref<?xf32>, %tiles: index) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<64xf32>
  scf.forall (%t) in (%tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 64)>(%t)
    %o = vector.transfer_read %O[%i, %c0], %pad {in_bounds = [false, true]} : memref<?x64xf32>, vector<64x64xf32>
    %g = vector.transfer_read %G[%i, %c0], %pad {in_bounds = [false, true]} : memref<?x64xf32>, vector<64x64xf32>
    %p = arith.mulf %o, %g : vector<64x64xf32>
    %d = vector.multi_reduction <add>, %p, %zero [1] : vector<64x64xf32> to vector<64xf32>
    vector.transfer_write %d, %D[%i] : vector<64xf32>, memref<?xf32>
    %e = vector.transfer_read %D[%i], %pad : memref<?xf32>, vector<64xf32>
    %next = affine.apply affine_map<(d0) -> (d0 + 64)>(%i)
    %l = vector.transfer_read %L[%next], %pad : memref<?xf32>, vector<64xf32>
    %s = arith.addf %e, %l : vector<64xf32>
    vector.transfer_write %s, %E[%i] : vector<64xf32>, memref<?xf32>
  }
  return
}

// A read at a place that is read itself stays, and so do all of a program with a loop.
// CHECK-LABEL: func.func @stay
// CHECK: vector.transfer_read %arg0
// CHECK: memref.load
// CHECK: vector.transfer_write
// CHECK: vector.transfer_read %arg0
// CHECK: scf.forall
// CHECK: vector.transfer_read %arg0
// CHECK: scf.for
// CHECK: vector.transfer_write
// CHECK: vector.transfer_read %arg0
func.func @stay(%X: memref<?xf32>, %places: memref<?xindex>, %Y: memref<?xf32>, %tiles: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %pad = arith.constant 0.0 : f32
  scf.forall (%t) in (%tiles) {
    %x = vector.transfer_read %X[%t], %pad : memref<?xf32>, vector<64xf32>
    %place = memref.load %places[%t] : memref<?xindex>
    vector.transfer_write %x, %Y[%t] : vector<64xf32>, memref<?xf32>
    %y = vector.transfer_read %X[%place], %pad : memref<?xf32>, vector<64xf32>
    vector.transfer_write %y, %Y[%place] : vector<64xf32>, memref<?xf32>
  }
  scf.forall (%t) in (%tiles) {
    %x = vector.transfer_read %X[%t], %pad : memref<?xf32>, vector<64xf32>
    scf.for %i = %c0 to %t step %c1 {
      vector.transfer_write %x, %Y[%i] : vector<64xf32>, memref<?xf32>
    }
    %y = vector.transfer_read %X[%t], %pad : memref<?xf32>, vector<64xf32>
    vector.transfer_write %y, %Y[%t] : vector<64xf32>, memref<?xf32>
  }
  return
}
