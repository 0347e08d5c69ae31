// RUN: attn-opt %s --hopper-reuse-tiles --split-input-file | FileCheck %s
// RUN: attn-opt %s --hopper-reuse-tiles --split-input-file --remarks-filter=hopper-reuse-tiles -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}2 [Passed] reused | Category:hopper-reuse-tiles{{$}}

// Each warpgroup reads its rows of the tile that is copied for a product, behind the read of other memory.
// CHECK-LABEL: func @reuses
// CHECK-SAME: (%[[X:[a-z0-9]+]]: memref<?x64xbf16>, %[[Y:[a-z0-9]+]]: memref<?x64xbf16>
// CHECK: scf.forall (%[[T:.*]]) in
// CHECK: scf.forall (%[[W:.*]]) in (2)
// CHECK: %[[B:.*]] = vector.transfer_read %[[Y]]
// CHECK: %[[WIDE:.*]] = arith.extf %[[B]]
// CHECK: %[[TILE:.*]] = tile.load %[[X]]
// CHECK: %[[ROWS:.*]] = tile.rows %[[TILE]]
// CHECK-NEXT: %[[A:.*]] = tile.read %[[ROWS]]
// CHECK-NEXT: %[[OWN:.*]] = arith.extf %[[A]]
// CHECK-NEXT: arith.mulf %[[OWN]], %[[WIDE]]
// CHECK-NOT: tile.load
// CHECK: tile.mma
func.func @reuses(%x: memref<?x64xbf16>, %y: memref<?x64xbf16>, %out: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : bf16
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %zeros = arith.constant dense<0.0> : vector<64xf32>
  scf.forall (%t) in (%n) {
    scf.forall (%w) in (2) {
      %offset = affine.apply affine_map<(d0) -> (d0 * 64)>(%w)
      %first = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
      %own = affine.apply affine_map<(d0, d1) -> (d0 * 64 + d1 * 128)>(%w, %t)
      %a = vector.transfer_read %x[%own, %c0], %zero {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
      %aa = arith.extf %a : vector<64x64xbf16> to vector<64x64xf32>
      %b = vector.transfer_read %y[%own, %c0], %zero {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
      %bb = arith.extf %b : vector<64x64xbf16> to vector<64x64xf32>
      %p = arith.mulf %aa, %bb : vector<64x64xf32>
      %s = vector.multi_reduction <add>, %p, %zeros [1] : vector<64x64xf32> to vector<64xf32>
      vector.transfer_write %s, %out[%own] : vector<64xf32>, memref<?xf32>
      %tile = tile.load %x[%first, %c0] : memref<?x64xbf16> -> <128x64xbf16, swizzle = 128>
      %rows = tile.rows %tile[%offset] : <128x64xbf16, swizzle = 128> -> <64x64xbf16, swizzle = 128, slab_rows = 128>
      %product = tile.mma %rows, %rows, %none : !tile.smem<64x64xbf16, swizzle = 128, slab_rows = 128>, !tile.smem<64x64xbf16, swizzle = 128, slab_rows = 128>, vector<64x64xf32>
      %sums = vector.multi_reduction <add>, %product, %zeros [1] : vector<64x64xf32> to vector<64xf32>
      vector.transfer_write %sums, %out[%own] : vector<64xf32>, memref<?xf32>
    } {mapping = [#gpu.warpgroup<x>]}
  }
  return
}

// -----

// Other rows, memory that the program writes, another padding: read where they are.
// CHECK-LABEL: func @stays
// CHECK-NOT: tile.read
// CHECK-COUNT-1: tile.load
// CHECK-NOT: tile.load
func.func @stays(%x: memref<?x64xbf16>, %y: memref<?x64xbf16>, %out: memref<?x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : bf16
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %one = arith.constant 1.0 : bf16
  scf.forall (%t) in (%n) {
    scf.forall (%w) in (2) {
      %offset = affine.apply affine_map<(d0) -> (d0 * 64)>(%w)
      %first = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
      %own = affine.apply affine_map<(d0, d1) -> (d0 * 64 + d1 * 128)>(%w, %t)
      %next = affine.apply affine_map<(d0, d1) -> (d0 * 64 + d1 * 128 + 64)>(%w, %t)
      %a = vector.transfer_read %x[%next, %c0], %zero {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
      %b = vector.transfer_read %x[%own, %c0], %one {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
      %c = vector.transfer_read %out[%own, %c0], %zero {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
      vector.transfer_write %a, %out[%own, %c0] : vector<64x64xbf16>, memref<?x64xbf16>
      %tile = tile.load %x[%first, %c0] : memref<?x64xbf16> -> <128x64xbf16, swizzle = 128>
      %rows = tile.rows %tile[%offset] : <128x64xbf16, swizzle = 128> -> <64x64xbf16, swizzle = 128, slab_rows = 128>
      %product = tile.mma %rows, %rows, %none : !tile.smem<64x64xbf16, swizzle = 128, slab_rows = 128>, !tile.smem<64x64xbf16, swizzle = 128, slab_rows = 128>, vector<64x64xf32>
      %short = arith.truncf %product : vector<64x64xf32> to vector<64x64xbf16>
      %bc = arith.addf %b, %c : vector<64x64xbf16>
      %all = arith.addf %short, %bc : vector<64x64xbf16>
      vector.transfer_write %all, %y[%own, %c0] : vector<64x64xbf16>, memref<?x64xbf16>
    } {mapping = [#gpu.warpgroup<x>]}
  }
  return
}

// -----

// A tile of one warpgroup, which is read ahead of the product: its load comes first, and serves both.
// CHECK-LABEL: func @whole
// CHECK: %[[TILE:.*]] = tile.load
// CHECK: tile.read %[[TILE]]
// CHECK-NOT: tile.load
// CHECK: tile.mma %[[TILE]], %[[TILE]]
func.func @whole(%x: memref<?x64xbf16>, %out: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : bf16
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %zeros = arith.constant dense<0.0> : vector<64xf32>
  scf.forall (%t) in (%n) {
    scf.forall (%w) in (1) {
      %first = affine.apply affine_map<(d0) -> (d0 * 64)>(%t)
      %a = vector.transfer_read %x[%first, %c0], %zero {in_bounds = [false, true]} : memref<?x64xbf16>, vector<64x64xbf16>
      %aa = arith.extf %a : vector<64x64xbf16> to vector<64x64xf32>
      %s = vector.multi_reduction <add>, %aa, %zeros [1] : vector<64x64xf32> to vector<64xf32>
      vector.transfer_write %s, %out[%first] : vector<64xf32>, memref<?xf32>
      %tile = tile.load %x[%first, %c0] : memref<?x64xbf16> -> <64x64xbf16, swizzle = 128>
      %product = tile.mma %tile, %tile, %none : !tile.smem<64x64xbf16, swizzle = 128>, !tile.smem<64x64xbf16, swizzle = 128>, vector<64x64xf32>
      %sums = vector.multi_reduction <add>, %product, %zeros [1] : vector<64x64xf32> to vector<64xf32>
      vector.transfer_write %sums, %out[%first] : vector<64xf32>, memref<?xf32>
    } {mapping = [#gpu.warpgroup<x>]}
  }
  return
}
