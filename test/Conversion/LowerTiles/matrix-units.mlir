// RUN: attn-opt %s --attn-lower-tiles="vector-bits=512 matrix-unit=avx512_bf16" --canonicalize --cse --split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-lower-tiles="vector-bits=512 matrix-unit=amx" --canonicalize --cse --split-input-file | FileCheck %s --check-prefix=AMX
// RUN: attn-opt %s --attn-lower-tiles="vector-bits=512" --canonicalize --cse --split-input-file | FileCheck %s --check-prefix=NONE

#q = affine_map<(i,j,d)->(i,d)>
#k = affine_map<(i,j,d)->(j,d)>
#s = affine_map<(i,j,d)->(i,j)>
#v = affine_map<(i,j,d)->(j,d)>
#o = affine_map<(i,j,d)->(i,d)>

// Scores and their product with the values. The queries, which have the lanes, are transposed as pairs once; the
// keys are read where they lie, two elements at a time; of the weights, rounded, two rows are interleaved,
// and of the values, too.
// CHECK-LABEL: func @attention
// CHECK:         %[[QP:.*]] = memref.alloca() {{.*}} : memref<16x64xi32>
// CHECK:         vector.bitcast %{{.*}} : vector<32xbf16> to vector<16xi32>
// CHECK:         vector.shuffle
// CHECK:         scf.for %[[PAIR:.*]] = %c0 to %c16 step
// CHECK:           vector.load %{{.*}} : memref<16x64xi32>, vector<16xi32>
// CHECK:           vector.load %arg1{{.*}} vector<2xbf16>
// CHECK:           x86vector.avx512.dot
// CHECK:         x86vector.avx512.cvt.packed.f32_to_bf16
// CHECK:         vector.interleave
// CHECK:         vector.store %{{.*}} : memref<64x64xi32>, vector<16xi32>
// CHECK:         vector.interleave
// CHECK:         vector.store %{{.*}} : memref<64x32xi32>, vector<16xi32>
// CHECK:         memref.load %{{.*}} : memref<64x32xi32>
// CHECK:         x86vector.avx512.dot
// CHECK-NOT:     vector.fma
// AMX has the rows of its left tile whole: the values are transposed, too. Two by two tiles at a time.
// AMX-LABEL: func @attention
// AMX-COUNT-4:   amx.tile_zero
// AMX:           amx.tile_load %{{.*}} : memref<128x32xbf16{{.*}}> into !amx.tile<16x32xbf16>
// AMX:           amx.tile_load %{{.*}} : memref<16x64xi32> into !amx.tile<16x32xbf16>
// AMX-COUNT-4:   amx.tile_mulf
// AMX-COUNT-4:   amx.tile_store %{{.*}} : memref<128x64xf32>
// AMX:           vector.interleave
// AMX:           vector.shuffle
// AMX:           amx.tile_load %{{.*}} : memref<32x64xi32> into !amx.tile<16x32xbf16>
// What is there already is added when a tile is stored.
// AMX:           amx.tile_store %{{.*}} : memref<16x16xf32>
// AMX:           arith.addf
// AMX-NOT:     vector.fma
// NONE-LABEL: func @attention
// NONE-NOT:     x86vector
// NONE-NOT:     amx
// NONE:         vector.fma
func.func @attention(%q: memref<64x32xbf16>, %k: memref<128x32xbf16>, %v: memref<128x32xbf16>, %out: memref<64x32xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : bf16
  %none = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<64x128xf32>
  %q0 = vector.transfer_read %q[%c0, %c0], %pad {in_bounds = [true, true]} : memref<64x32xbf16>, vector<64x32xbf16>
  %k0 = vector.transfer_read %k[%c0, %c0], %pad {in_bounds = [true, true]} : memref<128x32xbf16>, vector<128x32xbf16>
  %v0 = vector.transfer_read %v[%c0, %c0], %pad {in_bounds = [true, true]} : memref<128x32xbf16>, vector<128x32xbf16>
  %old = vector.transfer_read %out[%c0, %c0], %none {in_bounds = [true, true]} : memref<64x32xf32>, vector<64x32xf32>
  %qf = arith.extf %q0 : vector<64x32xbf16> to vector<64x32xf32>
  %kf = arith.extf %k0 : vector<128x32xbf16> to vector<128x32xf32>
  %vf = arith.extf %v0 : vector<128x32xbf16> to vector<128x32xf32>
  %s = vector.contract {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qf, %kf, %zero : vector<64x32xf32>, vector<128x32xf32> into vector<64x128xf32>
  %e = math.absf %s : vector<64x128xf32>
  %r = arith.truncf %e : vector<64x128xf32> to vector<64x128xbf16>
  %p = arith.extf %r : vector<64x128xbf16> to vector<64x128xf32>
  %o = vector.contract {indexing_maps = [#s, #v, #o], iterator_types = ["parallel", "reduction", "parallel"], kind = #vector.kind<add>} %p, %vf, %old : vector<64x128xf32>, vector<128x32xf32> into vector<64x32xf32>
  vector.transfer_write %o, %out[%c0, %c0] {in_bounds = [true, true]} : vector<64x32xf32>, memref<64x32xf32>
  return
}

// -----

#q = affine_map<(i,j,d)->(i,d)>
#k = affine_map<(i,j,d)->(j,d)>
#s = affine_map<(i,j,d)->(i,j)>

// A sum of 48 elements is that of f32.
// CHECK-LABEL: func @odd_sum
// CHECK-NOT:     x86vector
// CHECK:         vector.fma
// AMX-LABEL: func @odd_sum
// AMX-NOT:       amx
// AMX:           vector.fma
func.func @odd_sum(%q: memref<64x48xbf16>, %k: memref<128x48xbf16>, %out: memref<64x128xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : bf16
  %zero = arith.constant dense<0.0> : vector<64x128xf32>
  %q0 = vector.transfer_read %q[%c0, %c0], %pad {in_bounds = [true, true]} : memref<64x48xbf16>, vector<64x48xbf16>
  %k0 = vector.transfer_read %k[%c0, %c0], %pad {in_bounds = [true, true]} : memref<128x48xbf16>, vector<128x48xbf16>
  %qf = arith.extf %q0 : vector<64x48xbf16> to vector<64x48xf32>
  %kf = arith.extf %k0 : vector<128x48xbf16> to vector<128x48xf32>
  %s = vector.contract {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qf, %kf, %zero : vector<64x48xf32>, vector<128x48xf32> into vector<64x128xf32>
  vector.transfer_write %s, %out[%c0, %c0] {in_bounds = [true, true]} : vector<64x128xf32>, memref<64x128xf32>
  return
}

// -----

#q = affine_map<(i,j,d)->(i,d)>
#k = affine_map<(i,j,d)->(j,d)>
#s = affine_map<(i,j,d)->(i,j)>

// 24 rows are no tiles of AMX, whose hosts have vectors of pairs, too.
// CHECK-LABEL: func @rows
// CHECK:         x86vector.avx512.dot
// AMX-LABEL: func @rows
// AMX-NOT:       amx
// AMX:           x86vector.avx512.dot
func.func @rows(%q: memref<24x32xbf16>, %k: memref<64x32xbf16>, %out: memref<24x64xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : bf16
  %zero = arith.constant dense<0.0> : vector<24x64xf32>
  %q0 = vector.transfer_read %q[%c0, %c0], %pad {in_bounds = [true, true]} : memref<24x32xbf16>, vector<24x32xbf16>
  %k0 = vector.transfer_read %k[%c0, %c0], %pad {in_bounds = [true, true]} : memref<64x32xbf16>, vector<64x32xbf16>
  %qf = arith.extf %q0 : vector<24x32xbf16> to vector<24x32xf32>
  %kf = arith.extf %k0 : vector<64x32xbf16> to vector<64x32xf32>
  %s = vector.contract {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qf, %kf, %zero : vector<24x32xf32>, vector<64x32xf32> into vector<24x64xf32>
  vector.transfer_write %s, %out[%c0, %c0] {in_bounds = [true, true]} : vector<24x64xf32>, memref<24x64xf32>
  return
}
