// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-start-products))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-start-products))" --remarks-filter=hopper-start-products -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}7 [Passed] started | Category:hopper-start-products{{$}}
!tile = !tile.smem<64x64xbf16, swizzle = 128>
!acc = vector<64x64xf32>
!ch = !hopper.channel<!tile>

// A wait comes in front of the first use and leaves running what started later; the
// tile is given back behind it. Nothing is in flight at the end of a body.
// CHECK-LABEL: func.func @latest
// CHECK: role "compute"
// CHECK: scf.for
// CHECK-NEXT: %[[K:.*]] = hopper.receive %[[C:.*]] :
// CHECK-NEXT: %[[S0:.*]] = hopper.wgmma %{{.*}}, %[[K]], %{{.*}} transposeB
// CHECK-NEXT: %[[T0:.*]] = hopper.wgmma
// CHECK-NEXT: %[[S:.*]] = hopper.wait %[[S0]] pending(1)
// CHECK-NEXT: hopper.release %[[C]]
// CHECK-NEXT: %[[E:.*]] = math.exp2 %[[S]]
// CHECK-NEXT: %[[T:.*]] = hopper.wait %[[T0]] pending(0)
// CHECK-NEXT: arith.addf %[[E]], %[[T]]
func.func @latest(%n: index, %zero: !acc, %q: vector<64x64xbf16>, %p: vector<64x64xbf16>, %v: !tile, %y: memref<64x64xf32>, %b: i1, %a: memref<?x64xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 384 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %c = hopper.channel depth(1) : !ch
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        scf.for %i = %c0 to %n step %c1 {
          hopper.send %a[%i, %c0] to %c : memref<?x64xbf16>, !ch
        }
      }
      role "compute" warpgroups(2) registers(240) (%w) {
        %r = scf.for %i = %c0 to %n step %c1 iter_args(%o = %zero) -> (!acc) {
          %k = hopper.receive %c : !ch -> !tile
          %s = tile.mma %q, %k, %zero transposeB : vector<64x64xbf16>, !tile, !acc
          hopper.release %c : !ch
          %t = tile.mma %p, %v, %o : vector<64x64xbf16>, !tile, !acc
          %e = math.exp2 %s : !acc
          %f = arith.addf %e, %t : !acc
          scf.yield %f : !acc
        }
        vector.transfer_write %r, %y[%c0, %c0] : !acc, memref<64x64xf32>
      }
    gpu.terminator
  }
  return
}

// What is in flight is waited for in front of a branch that has products.
// CHECK-LABEL: func.func @branch
// CHECK: %[[S:.*]] = hopper.wgmma
// CHECK-NEXT: hopper.wait %[[S]] pending(0)
// CHECK-NEXT: scf.if
// CHECK-NEXT: %[[T:.*]] = hopper.wgmma
// CHECK-NEXT: hopper.wait %[[T]] pending(0)
// CHECK-NEXT: scf.yield
func.func @branch(%n: index, %zero: !acc, %q: vector<64x64xbf16>, %p: vector<64x64xbf16>, %v: !tile, %y: memref<64x64xf32>, %b: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %s = tile.mma %q, %v, %zero transposeB : vector<64x64xbf16>, !tile, !acc
        %r = scf.if %b -> (!acc) {
          %t = tile.mma %p, %v, %zero : vector<64x64xbf16>, !tile, !acc
          scf.yield %t : !acc
        } else {
          scf.yield %zero : !acc
        }
        %f = arith.addf %r, %s : !acc
        vector.transfer_write %f, %y[%c0, %c0] : !acc, memref<64x64xf32>
      }
    gpu.terminator
  }
  return
}

// Zeros are no accumulator.
// CHECK-LABEL: func.func @zeros
// CHECK: hopper.wgmma %{{[^,]*}}, %{{[^,]*}} transposeB :
func.func @zeros(%n: index, %zero: !acc, %q: vector<64x64xbf16>, %p: vector<64x64xbf16>, %v: !tile, %y: memref<64x64xf32>, %b: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %z = arith.constant dense<0.0> : !acc
        %s = tile.mma %q, %v, %z transposeB : vector<64x64xbf16>, !tile, !acc
        vector.transfer_write %s, %y[%c0, %c0] : !acc, memref<64x64xf32>
      }
    gpu.terminator
  }
  return
}

// Two tiles of a channel in a row (a loop of one iteration was folded): the first one is given
// back before the second one is received, which may need its room.
// CHECK-LABEL: func.func @twice
// CHECK: %[[K0:.*]] = hopper.receive %[[C:.*]] :
// CHECK-NEXT: %[[S0:.*]] = hopper.wgmma %{{.*}}, %[[K0]]
// CHECK-NEXT: %[[S:.*]] = hopper.wait %[[S0]] pending(0)
// CHECK-NEXT: hopper.release %[[C]]
// CHECK-NEXT: %[[K1:.*]] = hopper.receive %[[C]]
// CHECK-NEXT: %[[T0:.*]] = hopper.wgmma %{{.*}}, %[[K1]], %[[S]]
// CHECK-NEXT: hopper.wait %[[T0]] pending(0)
// CHECK-NEXT: hopper.release %[[C]]
func.func @twice(%n: index, %zero: !acc, %q: vector<64x64xbf16>, %y: memref<64x64xf32>, %a: memref<?x64xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 384 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %c = hopper.channel depth(1) : !ch
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        hopper.send %a[%c0, %c0] to %c : memref<?x64xbf16>, !ch
        hopper.send %a[%c1, %c0] to %c : memref<?x64xbf16>, !ch
      }
      role "compute" warpgroups(2) registers(240) (%w) {
        %k0 = hopper.receive %c : !ch -> !tile
        %s = tile.mma %q, %k0, %zero : vector<64x64xbf16>, !tile, !acc
        hopper.release %c : !ch
        %k1 = hopper.receive %c : !ch -> !tile
        %t = tile.mma %q, %k1, %s : vector<64x64xbf16>, !tile, !acc
        hopper.release %c : !ch
        vector.transfer_write %t, %y[%c0, %c0] : !acc, memref<64x64xf32>
      }
    gpu.terminator
  }
  return
}
