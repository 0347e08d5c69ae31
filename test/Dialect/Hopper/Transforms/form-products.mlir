// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline="builtin.module(func.func(hopper-form-products))" | FileCheck %s
// RUN: not attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(hopper-form-products))" --remarks-filter=hopper-form-products -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}5 [Passed] formed | Category:hopper-form-products{{$}}

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
#nm = affine_map<(m, n, k) -> (n, m)>
// What is read from a memref lies in shared memory, as it is stored; the swizzle spans
// the row. What is computed is rounded to the type of the other operand.
// CHECK-LABEL: func.func @chain
// CHECK-DAG: %[[Q:.*]] = tile.load %{{.*}} : memref<?x64xbf16> -> <64x64xbf16, swizzle = 128>
// CHECK-DAG: %[[K:.*]] = tile.load %{{.*}} : memref<?x64xbf16> -> <128x64xbf16, swizzle = 128>
// CHECK-DAG: %[[V:.*]] = tile.load %{{.*}} : memref<?x32xf16> -> <128x32xf16, swizzle = 64>
// CHECK: %[[S:.*]] = tile.mma %[[Q]], %[[K]], %{{.*}} transposeB :
// CHECK: %[[P:.*]] = arith.truncf %[[S]] : vector<64x128xf32> to vector<64x128xf16>
// CHECK: tile.mma %[[P]], %[[V]], %{{.*}} : vector<64x128xf16>
func.func @chain(%Q: memref<?x64xbf16>, %K: memref<?x64xbf16>, %V: memref<?x32xf16>, %acc: vector<64x32xf32>, %i: index) -> vector<64x32xf32> {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : bf16
  %padv = arith.constant 0.0 : f16
  %zero = arith.constant dense<0.0> : vector<64x128xf32>
  %q = vector.transfer_read %Q[%i, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
  %k = vector.transfer_read %K[%c0, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<128x64xbf16>
  %v = vector.transfer_read %V[%c0, %c0], %padv {in_bounds = [false, true]} : memref<?x32xf16>, vector<128x32xf16>
  %q1 = arith.extf %q : vector<64x64xbf16> to vector<64x64xf32>
  %k1 = arith.extf %k : vector<128x64xbf16> to vector<128x64xf32>
  %v1 = arith.extf %v : vector<128x32xf16> to vector<128x32xf32>
  %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %q1, %k1, %zero : vector<64x64xf32>, vector<128x64xf32> into vector<64x128xf32>
  %o = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %s, %v1, %acc : vector<64x128xf32>, vector<128x32xf32> into vector<64x32xf32>
  return %o : vector<64x32xf32>
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @f32(%a: vector<64x16xf32>, %b: vector<16x32xf32>, %acc: vector<64x32xf32>) -> vector<64x32xf32> {
  // expected-error @+1 {{the right operand has elements of 'f32'; the tensor core takes bf16 or f16}}
  %o = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %acc : vector<64x16xf32>, vector<16x32xf32> into vector<64x32xf32>
  return %o : vector<64x32xf32>
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @registers(%a: vector<64x16xf32>, %b: vector<16x32xbf16>, %acc: vector<64x32xf32>) -> vector<64x32xf32> {
  %b1 = arith.extf %b : vector<16x32xbf16> to vector<16x32xf32>
  // expected-error @+1 {{the right operand is computed in registers; the tensor core takes it from shared memory, so it must be read from a memref}}
  %o = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b1, %acc : vector<64x16xf32>, vector<16x32xf32> into vector<64x32xf32>
  return %o : vector<64x32xf32>
}

// -----

#km = affine_map<(m, n, k) -> (k, m)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @transposed(%a: vector<16x64xf32>, %B: memref<16x32xbf16>, %acc: vector<64x32xf32>) -> vector<64x32xf32> {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : bf16
  %b = vector.transfer_read %B[%c0, %c0], %pad : memref<16x32xbf16>, vector<16x32xbf16>
  %b1 = arith.extf %b : vector<16x32xbf16> to vector<16x32xf32>
  // expected-error @+1 {{the left operand is computed in registers and transposed; the tensor core transposes tiles in shared memory only}}
  %o = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b1, %acc : vector<16x64xf32>, vector<16x32xf32> into vector<64x32xf32>
  return %o : vector<64x32xf32>
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @size(%a: vector<64x24xf32>, %B: memref<24x32xbf16>, %acc: vector<64x32xf32>) -> vector<64x32xf32> {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : bf16
  %b = vector.transfer_read %B[%c0, %c0], %pad : memref<24x32xbf16>, vector<24x32xbf16>
  %b1 = arith.extf %b : vector<24x32xbf16> to vector<24x32xf32>
  // expected-error @+1 {{k is a multiple of 16, got 24}}
  %o = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b1, %acc : vector<64x24xf32>, vector<24x32xf32> into vector<64x32xf32>
  return %o : vector<64x32xf32>
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @narrow(%a: vector<64x16xf32>, %B: memref<16x4xbf16>, %acc: vector<64x4xf32>) -> vector<64x4xf32> {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : bf16
  %b = vector.transfer_read %B[%c0, %c0], %pad : memref<16x4xbf16>, vector<16x4xbf16>
  %b1 = arith.extf %b : vector<16x4xbf16> to vector<16x4xf32>
  // expected-error @+1 {{n is a multiple of 8 and at most 256, got 4}}
  %o = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b1, %acc : vector<64x16xf32>, vector<16x4xf32> into vector<64x4xf32>
  return %o : vector<64x4xf32>
}

// -----

#k = affine_map<(m, k) -> (m, k)>
#kn = affine_map<(m, k) -> (k)>
#mn = affine_map<(m, k) -> (m)>
func.func @vector(%a: vector<64x16xf32>, %b: vector<16xf32>, %acc: vector<64xf32>) -> vector<64xf32> {
  // expected-error @+1 {{the tensor core has products of two matrices, added up}}
  %o = vector.contract {indexing_maps = [#k, #kn, #mn], iterator_types = ["parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %acc : vector<64x16xf32>, vector<16xf32> into vector<64xf32>
  return %o : vector<64xf32>
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @f64(%a: vector<64x16xbf16>, %b: vector<16x32xbf16>, %acc: vector<64x32xbf16>) -> vector<64x32xbf16> {
  // expected-error @+1 {{the tensor core accumulates in f32, got 'bf16'}}
  %o = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %acc : vector<64x16xbf16>, vector<16x32xbf16> into vector<64x32xbf16>
  return %o : vector<64x32xbf16>
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#nm = affine_map<(m, n, k) -> (n, m)>
// The result is transposed: rows of B are rows of the product.
func.func @swapped(%A: memref<?x16xbf16>, %b: vector<16x64xf32>, %acc: vector<64x32xf32>) -> vector<64x32xf32> {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : bf16
  %a = vector.transfer_read %A[%c0, %c0], %pad {in_bounds = [false, true]} : memref<?x16xbf16>, vector<32x16xbf16>
  %a1 = arith.extf %a : vector<32x16xbf16> to vector<32x16xf32>
  // expected-error @+1 {{the left operand is computed in registers and transposed; the tensor core transposes tiles in shared memory only}}
  %o = vector.contract {indexing_maps = [#mk, #kn, #nm], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a1, %b, %acc : vector<32x16xf32>, vector<16x64xf32> into vector<64x32xf32>
  return %o : vector<64x32xf32>
}

// -----

// The rows of all warpgroups come through shared memory, rounded; a warpgroup's columns
// are a part of the tile that all have.
#km = affine_map<(m, n, k) -> (k, m)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
// CHECK-LABEL: func.func @gathered
// CHECK: scf.forall (%[[W:.*]]) in (2)
// CHECK-DAG: %[[K:.*]] = tile.load %arg1[%{{.*}}, %c0{{.*}}] : memref<?x128xbf16> -> <128x128xbf16, swizzle = 128>
// CHECK-DAG: %[[MINE:.*]] = tile.columns %[[K]][%{{.*}}] : <128x128xbf16, swizzle = 128> -> <128x64xbf16, swizzle = 128>
// CHECK-DAG: %[[X:.*]] = arith.truncf %arg0 : vector<64x64xf32> to vector<64x64xbf16>
// CHECK-DAG: %[[ALL:.*]] = tile.share %[[X]] : vector<64x64xbf16> -> <128x64xbf16, swizzle = 128>
// CHECK: tile.mma %[[ALL]], %[[MINE]], %{{.*}} transposeA
func.func @gathered(%x: vector<64x64xf32>, %K: memref<?x128xbf16>, %D: memref<?x128xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : bf16
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  scf.forall (%i) in (4) {
    scf.forall (%w) in (2) {
      %i0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%i)
      %column = affine.apply affine_map<(d0) -> (d0 * 64)>(%w)
      %k = vector.transfer_read %K[%i0, %column], %pad {in_bounds = [false, true]} : memref<?x128xbf16>, vector<128x64xbf16>
      %k1 = arith.extf %k : vector<128x64xbf16> to vector<128x64xf32>
      %all = tile.gather %x : vector<64x64xf32> -> vector<128x64xf32>
      %p = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %all, %k1, %zero : vector<128x64xf32>, vector<128x64xf32> into vector<64x64xf32>
      attn.tile_add %p into %D[%c0, %column] : vector<64x64xf32>, memref<?x128xf32>
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}
