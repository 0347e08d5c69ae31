// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline="builtin.module(func.func(hopper-exchange-rows))" | FileCheck %s
// RUN: not attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(hopper-exchange-rows))" --remarks-filter=hopper-exchange-rows -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] exchanged | Category:hopper-exchange-rows{{$}}
!whole = !tile.smem<128x64xbf16, swizzle = 128>

// Each warpgroup's rows to one of two tiles of the CTA, by turns, with a barrier of both
// warpgroups in front of the product that reads them, and one in front of the loop.
// CHECK-LABEL: func.func @shared
// CHECK: gpu.launch
// CHECK-NEXT: %[[ID:.*]] = hopper.named_barriers count(1)
// CHECK: %[[RING:.*]] = hopper.alloc : <2x128x64xbf16, swizzle = 128>
// CHECK: hopper.roles
// CHECK: role "compute" warpgroups(2) registers(240) (%[[W:.*]]) {
// CHECK: hopper.barrier.sync %[[ID]] warpgroups(2)
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %{{.*}}, %[[TURN:.*]] = %{{.*}}) ->
// CHECK-NOT: hopper.barrier
// CHECK: %[[TILE:.*]] = hopper.slot %[[RING]][%[[TURN]]]
// CHECK: %[[FIRST:.*]] = affine.apply {{.*}}(%[[W]])
// CHECK-NEXT: %[[MINE:.*]] = tile.rows %[[TILE]][%[[FIRST]]]
// CHECK-NEXT: tile.write %{{.*}} to %[[MINE]] :
// CHECK-NEXT: arith.addf
// CHECK-NEXT: hopper.barrier.sync %[[ID]] warpgroups(2)
// CHECK-NEXT: hopper.fence.async
// CHECK-NEXT: tile.mma %[[TILE]], %{{.*}} transposeA
// CHECK: %[[NEXT:.*]] = arith.subi %{{.*}}, %[[TURN]]
// CHECK: scf.yield %{{.*}}, %[[NEXT]]
func.func @shared(%n: index, %v: vector<64x64xbf16>, %zero: vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %k = hopper.alloc : !whole
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %zero) -> (vector<64x64xf32>) {
          %all = tile.share %v : vector<64x64xbf16> -> !whole
          %c = arith.addf %a, %a : vector<64x64xf32>
          %b = tile.mma %all, %k, %c transposeA : !whole, !whole, vector<64x64xf32>
          scf.yield %b : vector<64x64xf32>
        }
      }
    gpu.terminator
  }
  return
}

// -----

!whole = !tile.smem<128x64xbf16, swizzle = 128>
func.func @parts(%n: index, %v: vector<64x64xbf16>) {
  %c1 = arith.constant 1 : index
  %threads = arith.constant 384 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(3) registers(160) (%w) {
        // expected-error @+1 {{has 2 parts in a role of 3 warpgroups}}
        %all = tile.share %v : vector<64x64xbf16> -> !whole
      }
    gpu.terminator
  }
  return
}
