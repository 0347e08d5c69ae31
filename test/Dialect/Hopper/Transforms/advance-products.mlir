// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-advance-products))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-advance-products))" --remarks-filter=hopper-advance-products -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] advanced | Category:hopper-advance-products{{$}}

// The first product needs nothing but its tile: it starts one iteration early, and so does
// the copy, behind the others of the iteration. One tile more is sent and given back.
// CHECK-LABEL: func.func @gradient
// CHECK: %[[CQ:.*]] = hopper.channel
// CHECK: %[[CG:.*]] = hopper.channel
// CHECK: role "load"
// CHECK: hopper.send %arg0[%[[LO:.*]], %c0] to %[[CQ]]
// CHECK: scf.for %[[I:.*]] = %[[LO]] to %{{.*}} step %[[STEP:.*]] {
// CHECK-NEXT: hopper.send %arg1[%[[I]], %c0] to %[[CG]]
// CHECK-NEXT: %[[NEXT:.*]] = arith.addi %[[I]], %[[STEP]]
// CHECK-NEXT: hopper.send %arg0[%[[NEXT]], %c0] to %[[CQ]]
// CHECK-NEXT: }
// CHECK: role "compute"
// CHECK: %[[Q0:.*]] = hopper.receive %[[CQ]]
// CHECK-NEXT: %[[S0:.*]] = tile.mma %{{.*}}, %[[Q0]],
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %{{.*}}, %[[S:.*]] = %[[S0]])
// CHECK-NEXT: %[[Q:.*]] = hopper.held %[[CQ]]
// CHECK-NEXT: hopper.receive %[[CG]]
// CHECK: math.exp2 %[[S]]
// CHECK: tile.mma %{{.*}}, %[[Q]],
// CHECK-NEXT: hopper.release %[[CQ]]
// CHECK-NEXT: %[[Q1:.*]] = hopper.receive %[[CQ]]
// CHECK-NEXT: %[[S1:.*]] = tile.mma %{{.*}}, %[[Q1]],
// CHECK: scf.yield %{{.*}}, %[[S1]]
// CHECK: hopper.release %[[CQ]]
!tile = !tile.smem<64x64xbf16, swizzle = 128>
!channel = !hopper.channel<!tile>
func.func @gradient(%Q: memref<?x64xbf16>, %G: memref<?x64xbf16>, %k: memref<?x64xbf16>, %n: index, %lo: index, %out: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    %cq = hopper.channel depth(1) : !channel
    %cg = hopper.channel depth(1) : !channel
    %tk = hopper.alloc : !tile
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        scf.for %i = %lo to %n step %c64 {
          hopper.send %Q[%i, %c0] to %cq : memref<?x64xbf16>, !channel
          hopper.send %G[%i, %c0] to %cg : memref<?x64xbf16>, !channel
        }
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %r = scf.for %i = %lo to %n step %c64 iter_args(%a = %zero) -> (vector<64x64xf32>) {
          %q = hopper.receive %cq : !channel -> !tile
          %s = tile.mma %tk, %q, %zero transposeB : !tile, !tile, vector<64x64xf32>
          %g = hopper.receive %cg : !channel -> !tile
          %t = tile.mma %tk, %g, %zero transposeB : !tile, !tile, vector<64x64xf32>
          hopper.release %cg : !channel
          %p = math.exp2 %s : vector<64x64xf32>
          %u = arith.mulf %p, %t : vector<64x64xf32>
          %u16 = arith.truncf %u : vector<64x64xf32> to vector<64x64xbf16>
          %b = tile.mma %u16, %q, %a : vector<64x64xbf16>, !tile, vector<64x64xf32>
          hopper.release %cq : !channel
          scf.yield %b : vector<64x64xf32>
        }
        vector.transfer_write %r, %out[%bx, %c0] : vector<64x64xf32>, memref<?x64xf32>
      }
    gpu.terminator
  }
  return
}

// A first product that adds to what the iteration before made, and a channel that is used
// outside of the loop, too.
// CHECK-LABEL: func.func @kept
// CHECK-NOT: hopper.held
func.func @kept(%Q: memref<?x64xbf16>, %n: index, %out: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    %cq = hopper.channel depth(1) : !channel
    %cg = hopper.channel depth(1) : !channel
    %tk = hopper.alloc : !tile
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        scf.for %i = %c0 to %n step %c64 {
          hopper.send %Q[%i, %c0] to %cq : memref<?x64xbf16>, !channel
        }
        hopper.send %Q[%c0, %c0] to %cg : memref<?x64xbf16>, !channel
        scf.for %i = %c0 to %n step %c64 {
          hopper.send %Q[%i, %c0] to %cg : memref<?x64xbf16>, !channel
        }
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %r = scf.for %i = %c0 to %n step %c64 iter_args(%a = %zero) -> (vector<64x64xf32>) {
          %q = hopper.receive %cq : !channel -> !tile
          %s = tile.mma %tk, %q, %a transposeB : !tile, !tile, vector<64x64xf32>
          %t = tile.mma %tk, %q, %s transposeB : !tile, !tile, vector<64x64xf32>
          hopper.release %cq : !channel
          scf.yield %t : vector<64x64xf32>
        }
        %first = hopper.receive %cg : !channel -> !tile
        hopper.release %cg : !channel
        %r1 = scf.for %i = %c0 to %n step %c64 iter_args(%a = %r) -> (vector<64x64xf32>) {
          %q = hopper.receive %cg : !channel -> !tile
          %s = tile.mma %tk, %q, %zero transposeB : !tile, !tile, vector<64x64xf32>
          %p = arith.truncf %s : vector<64x64xf32> to vector<64x64xbf16>
          %t = tile.mma %p, %q, %a : vector<64x64xbf16>, !tile, vector<64x64xf32>
          hopper.release %cg : !channel
          scf.yield %t : vector<64x64xf32>
        }
        vector.transfer_write %r1, %out[%bx, %c0] : vector<64x64xf32>, memref<?x64xf32>
      }
    gpu.terminator
  }
  return
}
