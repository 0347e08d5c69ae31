// RUN: attn-opt %s --attn-lower-tiles=vector-bits=512 --canonicalize --cse --split-input-file | FileCheck %s

#q = affine_map<(i,j,d)->(i,d)>
#k = affine_map<(i,j,d)->(j,d)>
#s = affine_map<(i,j,d)->(i,j)>

// Two rows. The keys are read once, where they lie, one after the other: vectors along the sum, for eight keys by two
// rows, whose elements are added up by shuffles; bf16 is widened on the way, and keys are asked for 64 ahead.
// CHECK-LABEL: func @scores
// CHECK-NOT:     memref.subview
// CHECK:         scf.for %{{.*}} = %c0 to %c64 step %c16
// CHECK:           %[[AHEAD:.*]] = arith.addi %{{.*}}, %c64
// CHECK:           memref.prefetch %arg1[%[[AHEAD]], %c0]
// CHECK-NOT:       memref.prefetch %arg1[%[[AHEAD]]
// CHECK:           vector.load %arg1[%[[KEY:.*]], %c0] : memref<64x32xbf16>, vector<16xbf16>
// CHECK:           arith.extf
// CHECK-COUNT-2:   vector.fma
// CHECK:           vector.load %arg1[%[[KEY]], %c16] : memref<64x32xbf16>, vector<16xbf16>
// CHECK-COUNT-30:  vector.fma
// CHECK-COUNT-16:  vector.shuffle
// CHECK:           vector.store %{{.*}} : memref<2x64xf32>, vector<16xf32>
func.func @scores(%q: memref<2x32xf32>, %k: memref<64x32xbf16>, %out: memref<2x64xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %none = arith.constant 0.0 : bf16
  %zero = arith.constant dense<0.0> : vector<2x64xf32>
  %a = vector.transfer_read %q[%c0, %c0], %pad {in_bounds = [true, true]} : memref<2x32xf32>, vector<2x32xf32>
  %n = vector.transfer_read %k[%c0, %c0], %none {in_bounds = [true, true]} : memref<64x32xbf16>, vector<64x32xbf16>
  %b = arith.extf %n : vector<64x32xbf16> to vector<64x32xf32>
  %s = vector.contract {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %zero : vector<2x32xf32>, vector<64x32xf32> into vector<2x64xf32>
  vector.transfer_write %s, %out[%c0, %c0] {in_bounds = [true, true]} : vector<2x64xf32>, memref<2x64xf32>
  return
}

// -----

#p = affine_map<(i,j,d)->(i,j)>
#v = affine_map<(i,j,d)->(j,d)>
#o = affine_map<(i,j,d)->(i,d)>

// One row: the values are read as they lie, eight vectors of a row at a time.
// CHECK-LABEL: func @output
// CHECK-NOT:     memref.subview
// CHECK:         scf.for %[[J:.*]] = %c0 to %c48 step %c1
// CHECK-COUNT-8:   vector.load %arg1[%[[J]], %{{.*}}] : memref<48x128xf32>, vector<16xf32>
// CHECK:           memref.load
// CHECK-COUNT-8:   vector.fma
func.func @output(%p: memref<1x48xf32>, %v: memref<48x128xf32>, %out: memref<1x128xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<1x128xf32>
  %a = vector.transfer_read %p[%c0, %c0], %pad {in_bounds = [true, true]} : memref<1x48xf32>, vector<1x48xf32>
  %b = vector.transfer_read %v[%c0, %c0], %pad {in_bounds = [true, true]} : memref<48x128xf32>, vector<48x128xf32>
  %o = vector.contract {indexing_maps = [#p, #v, #o], iterator_types = ["parallel", "reduction", "parallel"], kind = #vector.kind<add>} %a, %b, %zero : vector<1x48xf32>, vector<48x128xf32> into vector<1x128xf32>
  vector.transfer_write %o, %out[%c0, %c0] {in_bounds = [true, true]} : vector<1x128xf32>, memref<1x128xf32>
  return
}

// -----

#s = affine_map<(i,j,d)->(i,j)>
#q = affine_map<(i,j,d)->(i,d)>
#k = affine_map<(i,j,d)->(j,d)>

// Sums of one product are that product, row by row of memory.
// CHECK-LABEL: func @single
// CHECK-NOT:     memref.alloca
// CHECK:         scf.for %[[J:.*]] = %c0 to %c48 step %c1
// CHECK:           memref.load %arg0[%c0, %[[J]]]
// CHECK:           arith.mulf
// CHECK:           vector.store %{{.*}}, %arg2[%[[J]], %{{.*}}]
// CHECK-NOT:     vector.fma
func.func @single(%ds: memref<1x48xf32>, %q: memref<1x32xf32>, %out: memref<48x32xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<48x32xf32>
  %a = vector.transfer_read %ds[%c0, %c0], %pad {in_bounds = [true, true]} : memref<1x48xf32>, vector<1x48xf32>
  %b = vector.transfer_read %q[%c0, %c0], %pad {in_bounds = [true, true]} : memref<1x32xf32>, vector<1x32xf32>
  %o = vector.contract {indexing_maps = [#s, #q, #k], iterator_types = ["reduction", "parallel", "parallel"], kind = #vector.kind<add>} %a, %b, %zero : vector<1x48xf32>, vector<1x32xf32> into vector<48x32xf32>
  vector.transfer_write %o, %out[%c0, %c0] {in_bounds = [true, true]} : vector<48x32xf32>, memref<48x32xf32>
  return
}
