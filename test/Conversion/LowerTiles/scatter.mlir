// RUN: attn-opt %s --split-input-file --attn-lower-tiles=vector-bits=512 --canonicalize | FileCheck %s

// A small table: sums of the tile in scratch, in copies that neighbours do not
// share, then once to the table.
// CHECK-LABEL: func @small
// CHECK-SAME: %[[T:.*]]: memref<32xf32>
// CHECK: %[[S:.*]] = memref.alloca() {{.*}} : memref<8x32xf32>
// CHECK: memref.store %{{.*}}, %[[S]]
// CHECK: arith.cmpi ult
// CHECK: memref.load %[[S]][%c0
// CHECK: arith.addf
// CHECK: memref.store %{{.*}}, %[[S]][%c0
// CHECK: memref.store %{{.*}}, %[[S]][%c7
// CHECK: memref.load %[[T]]
// CHECK: arith.addf
// CHECK: memref.store %{{.*}}, %[[T]]
// CHECK-NOT: attn.scatter_add
func.func @small(%t: memref<32xf32>, %x: memref<16x64xf32>, %at: memref<16x64xindex>) {
  %c0 = arith.constant 0 : index
  %z = arith.constant 0.0 : f32
  %v = vector.transfer_read %x[%c0, %c0], %z {in_bounds = [true, true]} : memref<16x64xf32>, vector<16x64xf32>
  %i = vector.transfer_read %at[%c0, %c0], %c0 {in_bounds = [true, true]} : memref<16x64xindex>, vector<16x64xindex>
  attn.scatter_add %v at(%i) into %t : vector<16x64xf32>, memref<32xf32>
  return
}

// -----

// A table of any size: an element at a time, where there is one.
// CHECK-LABEL: func @dynamic
// CHECK-SAME: %[[T:.*]]: memref<?x?xf32>
// CHECK: scf.if
// CHECK-NEXT: memref.load %[[T]]
// CHECK-NEXT: arith.addf
// CHECK-NEXT: memref.store %{{.*}}, %[[T]]
func.func @dynamic(%t: memref<?x?xf32>, %x: memref<16xf32>, %at: memref<16xindex>) {
  %c0 = arith.constant 0 : index
  %z = arith.constant 0.0 : f32
  %v = vector.transfer_read %x[%c0], %z {in_bounds = [true]} : memref<16xf32>, vector<16xf32>
  %i = vector.transfer_read %at[%c0], %c0 {in_bounds = [true]} : memref<16xindex>, vector<16xindex>
  attn.scatter_add %v at(%i, %i) into %t : vector<16xf32>, memref<?x?xf32>
  return
}
