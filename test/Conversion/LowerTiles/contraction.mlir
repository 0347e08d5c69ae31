// RUN: attn-opt %s --attn-lower-tiles=vector-bits=512 --canonicalize --cse --split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-lower-tiles=vector-bits=256 --canonicalize --cse --split-input-file | FileCheck %s --check-prefix=AVX

// A register block: four rows by four vectors of lanes, the row operand as
// scalars straight from memory. The lanes are i, which nothing reduces.
// CHECK-LABEL: func @scores
// CHECK:         %[[S:.*]] = memref.alloca() {alignment = 64 : i64} : memref<128x64xf32>
// CHECK:         %[[Q:.*]] = memref.alloca() {alignment = 64 : i64} : memref<32x64xf32>
// CHECK:         %[[K:.*]] = memref.subview %arg1[%{{.*}}, 0] [128, 32] [1, 1]
// CHECK:         scf.for %[[J:.*]] = %c0 to %c128 step %c4
// CHECK:           scf.for %[[D:.*]] = %c0 to %c32 step %c1 iter_args
// CHECK-COUNT-4:     vector.load %[[Q]][%[[D]], %c{{.*}}] : memref<32x64xf32>, vector<16xf32>
// CHECK:             memref.load %[[K]][%[[J]], %[[D]]]
// CHECK-COUNT-16:    vector.fma {{.*}} : vector<16xf32>
// CHECK-NOT:         vector.fma
// CHECK:             scf.yield
// CHECK-COUNT-16:  vector.store {{.*}}, %[[S]]
// CHECK-NOT:     vector.contract
// AVX-LABEL: func @scores
// AVX:           scf.for %{{.*}} = %c0 to %c32 step %c1 iter_args
// AVX-COUNT-8:     vector.fma {{.*}} : vector<8xf32>
// AVX-NOT:         vector.fma
// AVX:             scf.yield
func.func @scores(%q: memref<64x32xf32>, %k: memref<?x32xf32>, %o: memref<64x128xf32>, %j: index) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<64x128xf32>
  %a = vector.transfer_read %q[%c0, %c0], %pad {in_bounds = [true, true]} : memref<64x32xf32>, vector<64x32xf32>
  %b = vector.transfer_read %k[%j, %c0], %pad {in_bounds = [true, true]} : memref<?x32xf32>, vector<128x32xf32>
  %s = vector.contract {indexing_maps = [affine_map<(i,j,d)->(i,d)>, affine_map<(i,j,d)->(j,d)>, affine_map<(i,j,d)->(i,j)>], iterator_types = ["parallel","parallel","reduction"], kind = #vector.kind<add>} %a, %b, %zero : vector<64x32xf32>, vector<128x32xf32> into vector<64x128xf32>
  // A second one that sums over j makes i the only dimension that all keep.
  %p = vector.contract {indexing_maps = [affine_map<(i,j,d)->(i,j)>, affine_map<(i,j,d)->(j,d)>, affine_map<(i,j,d)->(i,d)>], iterator_types = ["parallel","reduction","parallel"], kind = #vector.kind<add>} %s, %b, %a : vector<64x128xf32>, vector<128x32xf32> into vector<64x32xf32>
  vector.transfer_write %p, %q[%c0, %c0] {in_bounds = [true, true]} : vector<64x32xf32>, memref<64x32xf32>
  return
}

// -----

// Rows that may lie outside are copied with their padding; the choice is made
// once per tile, and both sides have one type.
// CHECK-LABEL: func @ragged
// CHECK:         %[[IN:.*]] = arith.cmpi sle
// CHECK:         %[[ROWS:.*]] = scf.if %[[IN]] -> (memref<6x8xf32, strided<[?, 1], offset: ?>>)
// CHECK:           memref.subview
// CHECK:         } else {
// CHECK:           vector.create_mask
// CHECK:           vector.maskedload
// CHECK:           vector.store
// CHECK:         }
// CHECK:         memref.load %[[ROWS]]
func.func @ragged(%x: memref<8x16xf32>, %y: memref<?x8xf32>, %o: memref<6x16xf32>, %j: index) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<6x16xf32>
  %a = vector.transfer_read %x[%c0, %c0], %pad {in_bounds = [true, true]} : memref<8x16xf32>, vector<8x16xf32>
  %b = vector.transfer_read %y[%j, %c0], %pad {in_bounds = [false, true]} : memref<?x8xf32>, vector<6x8xf32>
  %s = vector.contract {indexing_maps = [affine_map<(i,j,d)->(i,d)>, affine_map<(i,j,d)->(d,j)>, affine_map<(i,j,d)->(i,j)>], iterator_types = ["parallel","parallel","reduction"], kind = #vector.kind<add>} %b, %a, %zero : vector<6x8xf32>, vector<8x16xf32> into vector<6x16xf32>
  vector.transfer_write %s, %o[%c0, %c0] {in_bounds = [true, true]} : vector<6x16xf32>, memref<6x16xf32>
  return
}

// -----

// A carried accumulator stays in one buffer: no copy around the contraction.
// CHECK-LABEL: func @in_place
// CHECK:         %[[ACC:.*]] = memref.alloca() {{.*}} : memref<8x16xf32>
// CHECK-NOT:     memref.alloca
// CHECK:         scf.for
// CHECK:           vector.load %[[ACC]]
// CHECK:           arith.mulf
// CHECK:           vector.fma
// CHECK:           vector.store %{{.*}}, %[[ACC]]
// CHECK-NOT:       vector.store
// CHECK:         vector.load %[[ACC]]
func.func @in_place(%x: memref<?x16xf32>, %y: memref<?x8xf32>, %o: memref<8x16xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<8x16xf32>
  %half = arith.constant dense<0.5> : vector<8x16xf32>
  %r = scf.for %j = %c0 to %n step %c1 iter_args(%acc = %zero) -> (vector<8x16xf32>) {
    %a = vector.transfer_read %x[%j, %c0], %pad {in_bounds = [true, true]} : memref<?x16xf32>, vector<1x16xf32>
    %b = vector.transfer_read %y[%j, %c0], %pad {in_bounds = [true, true]} : memref<?x8xf32>, vector<1x8xf32>
    %scaled = arith.mulf %acc, %half : vector<8x16xf32>
    %a1 = vector.shape_cast %a : vector<1x16xf32> to vector<16xf32>
    %b1 = vector.shape_cast %b : vector<1x8xf32> to vector<8xf32>
    %a2 = vector.broadcast %a1 : vector<16xf32> to vector<8x16xf32>
    %b2 = vector.broadcast %b1 : vector<8xf32> to vector<16x8xf32>
    %b3 = vector.transpose %b2, [1, 0] : vector<16x8xf32> to vector<8x16xf32>
    %next = vector.fma %a2, %b3, %scaled : vector<8x16xf32>
    scf.yield %next : vector<8x16xf32>
  }
  vector.transfer_write %r, %o[%c0, %c0] {in_bounds = [true, true]} : vector<8x16xf32>, memref<8x16xf32>
  return
}

// -----

// Rows that are not adjacent in memory are copied too: far apart, they would
// share few sets of the cache.
// CHECK-LABEL: func @distant_rows
// CHECK:         %{{.*}}, %{{.*}}, %{{.*}}:2, %[[STRIDES:.*]]:2 = memref.extract_strided_metadata %arg1
// CHECK:         %[[DENSE:.*]] = arith.cmpi eq, %[[STRIDES]]#0, %c8
// CHECK:         scf.if %[[DENSE]]
// CHECK:           memref.subview
// CHECK:         } else {
// CHECK:           vector.load
// CHECK:           vector.store
func.func @distant_rows(%x: memref<8x16xf32>, %y: memref<?x8xf32, strided<[?, 1]>>, %o: memref<6x16xf32>, %j: index) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<6x16xf32>
  %a = vector.transfer_read %x[%c0, %c0], %pad {in_bounds = [true, true]} : memref<8x16xf32>, vector<8x16xf32>
  %b = vector.transfer_read %y[%j, %c0], %pad {in_bounds = [true, true]} : memref<?x8xf32, strided<[?, 1]>>, vector<6x8xf32>
  %s = vector.contract {indexing_maps = [affine_map<(i,j,d)->(i,d)>, affine_map<(i,j,d)->(d,j)>, affine_map<(i,j,d)->(i,j)>], iterator_types = ["parallel","parallel","reduction"], kind = #vector.kind<add>} %b, %a, %zero : vector<6x8xf32>, vector<8x16xf32> into vector<6x16xf32>
  vector.transfer_write %s, %o[%c0, %c0] {in_bounds = [true, true]} : vector<6x16xf32>, memref<6x16xf32>
  return
}
