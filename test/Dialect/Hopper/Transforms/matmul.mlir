// A tiled product of matrices, written at L2: the passes know nothing of
// attention.
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-distribute-rows,canonicalize,cse,hopper-form-products))" | FileCheck %s --check-prefix=TILES
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-distribute-rows,canonicalize,cse,hopper-form-products,hopper-create-launches,hopper-specialize-warps))" | FileCheck %s --check-prefix=CHANNELS
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-distribute-rows,canonicalize,cse,hopper-form-products,hopper-create-launches,hopper-specialize-warps,hopper-schedule-tiles{ctas=8},canonicalize,hopper-pipeline-products,hopper-stage-outputs,hopper-start-products,hopper-ping-pong,hopper-expand-channels{stages=3},hopper-allocate-barriers,canonicalize,cse))" | FileCheck %s --check-prefix=PROTOCOL
#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// TILES-LABEL: func.func @matmul
// TILES: scf.forall (%[[I:.*]], %[[J:.*]]) in
// TILES: scf.forall (%[[W:.*]]) in (2)
// TILES: scf.for
// The rows of both warpgroups come together.
// TILES: %[[A:.*]] = tile.load %{{.*}} -> <128x64xbf16, swizzle = 128>
// TILES: %[[A1:.*]] = tile.rows %[[A]]
// TILES: %[[B:.*]] = tile.load %{{.*}} -> <64x128xbf16, swizzle = 128>
// TILES: tile.mma %[[A1]], %[[B]], {{.*}} vector<64x128xf32>
// TILES: mapping = [#gpu.warpgroup<linear_dim_0>]

// CHANNELS: gpu.launch
// CHANNELS: %[[CA:.*]] = hopper.channel depth(1)
// CHANNELS: %[[CB:.*]] = hopper.channel depth(1)
// CHANNELS: role "load" warpgroups(1) registers(24)
// CHANNELS: scf.for
// CHANNELS: hopper.send {{.*}} to %[[CA]]
// CHANNELS: hopper.send {{.*}} to %[[CB]]
// CHANNELS: role "compute" warpgroups(2) registers(240)
// CHANNELS: hopper.receive %[[CA]]
// CHANNELS: hopper.receive %[[CB]]
// CHANNELS: tile.mma
// CHANNELS: hopper.release
// CHANNELS: hopper.release

// PROTOCOL: hopper.alloc : <3x128x64xbf16, swizzle = 128>
// PROTOCOL: hopper.mbarrier arrivals(1) : <3>
// PROTOCOL: hopper.mbarrier arrivals(2) : <3>
// PROTOCOL: scf.for {{.*}} iter_args
// PROTOCOL: hopper.mbarrier.wait
// PROTOCOL-NEXT: hopper.mbarrier.expect {{.*}} bytes(16384)
// PROTOCOL: hopper.tma.load
// PROTOCOL: hopper.barrier.sync
// PROTOCOL: hopper.wgmma
// PROTOCOL: hopper.barrier.arrive
// PROTOCOL: hopper.wait {{.*}} pending(0)
// PROTOCOL-NEXT: hopper.mbarrier.arrive
// PROTOCOL-NEXT: hopper.mbarrier.arrive
// PROTOCOL: tile.write
// PROTOCOL-NEXT: hopper.barrier.sync
// PROTOCOL-NEXT: hopper.fence.async
// PROTOCOL-NEXT: hopper.tma.store
// PROTOCOL: hopper.tma.wait pending(0)
func.func @matmul(%A: memref<?x?xbf16, strided<[?, 1]>>, %B: memref<?x?xbf16, strided<[?, 1]>>, %C: memref<?x264xbf16, strided<[?, 1]>>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %pad = arith.constant 0.0 : bf16
  %zero = arith.constant dense<0.0> : vector<128x128xf32>
  %M = memref.dim %A, %c0 : memref<?x?xbf16, strided<[?, 1]>>
  %K = memref.dim %A, %c1 : memref<?x?xbf16, strided<[?, 1]>>
  %N = memref.dim %B, %c1 : memref<?x?xbf16, strided<[?, 1]>>
  %m = arith.ceildivui %M, %c128 : index
  %n = arith.ceildivui %N, %c128 : index
  scf.forall (%i, %j) in (%m, %n) {
    %i0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%i)
    %j0 = affine.apply affine_map<(d0) -> (d0 * 128)>(%j)
    %c = scf.for %k = %c0 to %K step %c64 iter_args(%acc = %zero) -> (vector<128x128xf32>) {
      %a = vector.transfer_read %A[%i0, %k], %pad : memref<?x?xbf16, strided<[?, 1]>>, vector<128x64xbf16>
      %b = vector.transfer_read %B[%k, %j0], %pad : memref<?x?xbf16, strided<[?, 1]>>, vector<64x128xbf16>
      %a1 = arith.extf %a : vector<128x64xbf16> to vector<128x64xf32>
      %b1 = arith.extf %b : vector<64x128xbf16> to vector<64x128xf32>
      %d = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a1, %b1, %acc : vector<128x64xf32>, vector<64x128xf32> into vector<128x128xf32>
      scf.yield %d : vector<128x128xf32>
    }
    %o = arith.truncf %c : vector<128x128xf32> to vector<128x128xbf16>
    vector.transfer_write %o, %C[%i0, %j0] : vector<128x128xbf16>, memref<?x264xbf16, strided<[?, 1]>>
  }
  return
}
