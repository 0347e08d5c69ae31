// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline="builtin.module(func.func(hopper-distribute-rows,canonicalize,cse))" | FileCheck %s

// A loop's bound is the same for all warpgroups: the vector that it is reduced
// from is whole, the one that is broadcast is divided.
// CHECK-LABEL: func.func @bound
// CHECK: scf.forall (%[[W:.*]]) in (3)
// CHECK-DAG: vector.transfer_read {{.*}} vector<64xi32>
// CHECK-DAG: %[[ALL:.*]] = vector.transfer_read {{.*}} vector<192xi32>
// CHECK: vector.reduction <maxsi>, %[[ALL]] : vector<192xi32> into i32
// CHECK: vector.transfer_write {{.*}} vector<64xi32>
func.func @bound(%X: memref<?xi32>, %Y: memref<?xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %pad = arith.constant 0 : i32
  scf.forall (%i) in (4) {
    %i0 = affine.apply affine_map<(d0) -> (d0 * 192)>(%i)
    %x = vector.transfer_read %X[%i0], %pad : memref<?xi32>, vector<192xi32>
    %m = vector.reduction <maxsi>, %x : vector<192xi32> into i32
    %n = arith.index_cast %m : i32 to index
    %r = scf.for %j = %c0 to %n step %c1 iter_args(%s = %x) -> (vector<192xi32>) {
      %t = arith.addi %s, %x : vector<192xi32>
      scf.yield %t : vector<192xi32>
    }
    vector.transfer_write %r, %Y[%i0] : vector<192xi32>, memref<?xi32>
  }
  return
}

// -----

// A row of a table: the warpgroups agree on whether any element is true, and all.
// CHECK-LABEL: func.func @table
// CHECK: scf.forall
// CHECK-NEXT: %[[ID:.*]] = hopper.named_barriers count(1)
// CHECK-NOT: hopper.named_barriers
// CHECK: scf.forall (%[[W:.*]]) in (2)
// CHECK: %[[KEEP:.*]] = arith.cmpi eq, {{.*}} : vector<64x128xi32>
// CHECK: %[[SOME:.*]] = hopper.barrier.reduce any %[[KEEP]], %[[ID]] warpgroups(2) : vector<64x128xi1>
// CHECK: scf.if %[[SOME]]
// CHECK: hopper.barrier.reduce all %[[KEEP]], %[[ID]] warpgroups(2) : vector<64x128xi1>
func.func @table(%X: memref<?xi32>, %Z: memref<?xi32>, %T: memref<?xi1>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0 : i32
  %none = arith.constant dense<false> : vector<128xi1>
  %every = arith.constant dense<true> : vector<128xi1>
  scf.forall (%i) in (4) {
    %i0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%i)
    %x = vector.transfer_read %X[%i0], %pad : memref<?xi32>, vector<128xi32>
    %z = vector.transfer_read %Z[%i0], %pad : memref<?xi32>, vector<128xi32>
    %xb = vector.broadcast %x : vector<128xi32> to vector<128x128xi32>
    %xt = vector.transpose %xb, [1, 0] : vector<128x128xi32> to vector<128x128xi32>
    %zb = vector.broadcast %z : vector<128xi32> to vector<128x128xi32>
    %keep = arith.cmpi eq, %xt, %zb : vector<128x128xi32>
    %o = vector.multi_reduction <or>, %keep, %none [0] : vector<128x128xi1> to vector<128xi1>
    %some = vector.reduction <or>, %o : vector<128xi1> into i1
    scf.if %some {
      %a = vector.multi_reduction <and>, %keep, %every [0] : vector<128x128xi1> to vector<128xi1>
      %full = vector.reduction <and>, %a : vector<128xi1> into i1
      memref.store %full, %T[%i] : memref<?xi1>
    }
  }
  return
}

// -----

func.func @sums(%Y: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  scf.forall (%i) in (4) {
    %i0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%i)
    %x = vector.transfer_read %Y[%i0, %c0], %pad {in_bounds = [false, true]} : memref<?x64xf32>, vector<128x64xf32>
    %acc = arith.constant dense<0.0> : vector<64xf32>
    // expected-error @+1 {{reduces over rows, which are divided among warpgroups}}
    %s = vector.multi_reduction <add>, %x, %acc [0] : vector<128x64xf32> to vector<64xf32>
    %b = vector.broadcast %s : vector<64xf32> to vector<128x64xf32>
    %d = arith.subf %x, %b : vector<128x64xf32>
    vector.transfer_write %d, %Y[%i0, %c0] {in_bounds = [false, true]} : vector<128x64xf32>, memref<?x64xf32>
  }
  return
}

// -----

// What repeats a value per column has no rows to divide: whether any is true is
// asked of the columns, which every warpgroup has.
// CHECK-LABEL: func.func @repeated
// CHECK:       scf.forall (%{{.*}}) in (2) {
// CHECK:         %[[IN:.*]] = arith.cmpi slt, {{.*}} : vector<128xindex>
// CHECK:         vector.reduction <or>, %{{.*}} : vector<128xi1> into i1
// CHECK-NOT:     vector<128x128xi1>
func.func @repeated(%X: memref<?x128xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %none = arith.constant dense<false> : vector<128xi1>
  scf.forall (%i) in (4) {
    %i0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%i)
    %x = vector.transfer_read %X[%i0, %c0], %pad {in_bounds = [false, true]} : memref<?x128xf32>, vector<128x128xf32>
    %j = vector.step : vector<128xindex>
    %end = vector.broadcast %n : index to vector<128xindex>
    %inside = arith.cmpi slt, %j, %end : vector<128xindex>
    %tile = vector.broadcast %inside : vector<128xi1> to vector<128x128xi1>
    %o = vector.multi_reduction <or>, %tile, %none [0] : vector<128x128xi1> to vector<128xi1>
    %some = vector.reduction <or>, %o : vector<128xi1> into i1
    scf.if %some {
      vector.transfer_write %x, %X[%i0, %c0] {in_bounds = [false, true]} : vector<128x128xf32>, memref<?x128xf32>
    }
  }
  return
}

// -----

// A product that sums over the rows and is added to memory: each warpgroup has the
// rows of all of them, and columns of its own.
#km = affine_map<(m, n, k) -> (k, m)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
// CHECK-LABEL: func.func @shared_sum
// CHECK: scf.forall (%[[W:.*]]) in (2)
// CHECK-DAG: %[[C:.*]] = affine.apply #{{.*}}(%[[W]])
// CHECK-DAG: %[[X:.*]] = vector.transfer_read %arg0[{{.*}} vector<64x64xbf16>
// CHECK-DAG: %[[K:.*]] = vector.transfer_read %arg1[%{{.*}}, %[[C]]], {{.*}} vector<128x64xbf16>
// CHECK-DAG: %[[K1:.*]] = arith.extf %[[K]] : vector<128x64xbf16> to vector<128x64xf32>
// CHECK-DAG: %[[ALL:.*]] = tile.gather %{{.*}} : vector<64x64xf32> -> vector<128x64xf32>
// CHECK: %[[P:.*]] = vector.contract {{.*}} %[[ALL]], %[[K1]], %{{.*}} : vector<128x64xf32>, vector<128x64xf32> into vector<64x64xf32>
// CHECK: attn.tile_add %[[P]] into %arg2[%c0, %[[C]]] : vector<64x64xf32>, memref<?x128xf32>
func.func @shared_sum(%X: memref<?x64xbf16>, %K: memref<?x128xbf16>, %D: memref<?x128xf32>, %Y: memref<?x64xbf16>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : bf16
  %zero = arith.constant dense<0.0> : vector<64x128xf32>
  scf.forall (%i) in (4) {
    %i0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%i)
    %x = vector.transfer_read %X[%i0, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<128x64xbf16>
    %k = vector.transfer_read %K[%i0, %c0], %pad {in_bounds = [false, true]} : memref<?x128xbf16>, vector<128x128xbf16>
    %x1 = arith.extf %x : vector<128x64xbf16> to vector<128x64xf32>
    %k1 = arith.extf %k : vector<128x128xbf16> to vector<128x128xf32>
    %p = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %x1, %k1, %zero : vector<128x64xf32>, vector<128x128xf32> into vector<64x128xf32>
    attn.tile_add %p into %D[%c0, %c0] : vector<64x128xf32>, memref<?x128xf32>
    vector.transfer_write %x, %Y[%i0, %c0] {in_bounds = [false, true]} : vector<128x64xbf16>, memref<?x64xbf16>
  }
  return
}

// -----

#km = affine_map<(m, n, k) -> (k, m)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @kept_sum(%X: memref<?x64xbf16>, %K: memref<?x128xbf16>, %D: memref<?x128xf32>, %Y: memref<?x64xbf16>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : bf16
  %zero = arith.constant dense<0.0> : vector<64x128xf32>
  scf.forall (%i) in (4) {
    %i0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%i)
    %x = vector.transfer_read %X[%i0, %c0], %pad {in_bounds = [false, true]} : memref<?x64xbf16>, vector<128x64xbf16>
    %k = vector.transfer_read %K[%i0, %c0], %pad {in_bounds = [false, true]} : memref<?x128xbf16>, vector<128x128xbf16>
    %x1 = arith.extf %x : vector<128x64xbf16> to vector<128x64xf32>
    %k1 = arith.extf %k : vector<128x128xbf16> to vector<128x128xf32>
    // expected-error @+1 {{reduces over rows, which are divided among warpgroups}}
    %p = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %x1, %k1, %zero : vector<128x64xf32>, vector<128x128xf32> into vector<64x128xf32>
    %q = arith.mulf %p, %p : vector<64x128xf32>
    attn.tile_add %q into %D[%c0, %c0] : vector<64x128xf32>, memref<?x128xf32>
    vector.transfer_write %x, %Y[%i0, %c0] {in_bounds = [false, true]} : vector<128x64xbf16>, memref<?x64xbf16>
  }
  return
}
