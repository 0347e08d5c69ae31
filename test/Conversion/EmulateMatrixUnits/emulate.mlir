// RUN: attn-opt %s --attn-emulate-matrix-units --split-input-file --verify-diagnostics | FileCheck %s

// Tiles are memory outside of all loops. Pairs are added up in two sums, of first and of second elements, and then
// to what was there.
// CHECK-LABEL: func @tiles
// CHECK-DAG:     %[[A:.*]] = memref.alloca() : memref<16x32xbf16>
// CHECK-DAG:     %[[C:.*]] = memref.alloca() : memref<16x16xf32>
// CHECK:         scf.for
// CHECK:           vector.load %arg0[%{{.*}}, %arg3] : memref<64x64xbf16>, vector<32xbf16>
// CHECK:           vector.bitcast %{{.*}} : vector<16xi32> to vector<32xbf16>
// CHECK:           scf.for
// CHECK:             scf.for %{{.*}} iter_args(%{{.*}}, %{{.*}}) -> (vector<16xf32>, vector<16xf32>)
// CHECK:               vector.deinterleave
// CHECK-COUNT-2:       vector.fma
// CHECK:             arith.addf
// CHECK:             arith.addf
// CHECK:           vector.store %{{.*}}, %arg2
// CHECK-NOT:     amx
func.func @tiles(%a: memref<64x64xbf16>, %b: memref<32x64xi32>, %c: memref<64x64xf32>, %i: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %k = %c0 to %i step %c1 {
    %z = amx.tile_zero : !amx.tile<16x16xf32>
    %x = amx.tile_load %a[%k, %i] : memref<64x64xbf16> into !amx.tile<16x32xbf16>
    %y = amx.tile_load %b[%c0, %k] : memref<32x64xi32> into !amx.tile<16x32xbf16>
    %r = amx.tile_mulf %x, %y, %z : !amx.tile<16x32xbf16>, !amx.tile<16x32xbf16>, !amx.tile<16x16xf32>
    amx.tile_store %c[%k, %c0], %r : memref<64x64xf32>, !amx.tile<16x16xf32>
  }
  return
}

// CHECK-LABEL: func @vectors
// CHECK:         arith.truncf %arg0 : vector<16xf32> to vector<16xbf16>
// CHECK-COUNT-2: vector.deinterleave
// CHECK-COUNT-2: vector.fma
// CHECK-NOT:     x86vector
func.func @vectors(%x: vector<16xf32>, %a: vector<32xbf16>, %b: vector<32xbf16>) -> (vector<16xbf16>, vector<16xf32>) {
  %h = x86vector.avx512.cvt.packed.f32_to_bf16 %x : vector<16xf32> -> vector<16xbf16>
  %r = x86vector.avx512.dot %x, %a, %b : vector<32xbf16> -> vector<16xf32>
  return %h, %r : vector<16xbf16>, vector<16xf32>
}

// -----

func.func @stride(%a: memref<?xbf16>, %s: index) {
  %c0 = arith.constant 0 : index
  // expected-error@below {{expected a tile of a matrix}}
  %x = amx.tile_load %a[%c0], %s : memref<?xbf16> into !amx.tile<16x32xbf16>
  return
}

// -----

func.func @integers(%a: memref<16x64xi8>, %b: memref<16x64xi8>, %c: memref<16x16xi32>) {
  %c0 = arith.constant 0 : index
  %x = amx.tile_load %a[%c0, %c0] : memref<16x64xi8> into !amx.tile<16x64xi8>
  %z = amx.tile_load %c[%c0, %c0] : memref<16x16xi32> into !amx.tile<16x16xi32>
  // expected-error@below {{expected an op of tiles of floats}}
  %r = amx.tile_muli %x, %x, %z : !amx.tile<16x64xi8>, !amx.tile<16x64xi8>, !amx.tile<16x16xi32>
  return
}
