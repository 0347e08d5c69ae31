// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-prefetch-reads))" | FileCheck %s
!tile = !hopper.smem<64x64xbf16, swizzle = 128>

// Read behind the last product for the next iteration; the last one reads its own again.
// CHECK-LABEL: func.func @ahead
// CHECK: role "compute"
// CHECK: %[[RUNS:.*]] = arith.cmpi slt, %c0, %arg0
// CHECK: %[[FIRST:.*]] = scf.if %[[RUNS]]
// CHECK-NEXT: vector.transfer_read %arg1[%c0]
// CHECK: scf.for %[[I:.*]] = %c0 to %arg0 step %c64 iter_args(%[[S:.*]] = %{{.*}}, %[[R:.*]] = %[[FIRST]])
// CHECK-NOT: vector.transfer_read
// CHECK: hopper.mma
// CHECK: vector.broadcast %[[R]]
// CHECK: hopper.mma
// CHECK: %[[NEXT:.*]] = arith.addi %[[I]], %c64
// CHECK: %[[IN:.*]] = arith.cmpi slt, %[[NEXT]], %arg0
// CHECK: %[[AT:.*]] = arith.select %[[IN]], %[[NEXT]], %[[I]]
// CHECK: %[[AHEAD:.*]] = vector.transfer_read %arg1[%[[AT]]]
// CHECK: scf.yield %{{.*}}, %[[AHEAD]]
func.func @ahead(%n: index, %L: memref<?xf32>, %zero: vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f32
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %k = hopper.alloc : !tile
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %r = scf.for %i = %c0 to %n step %c64 iter_args(%a = %zero) -> (vector<64x64xf32>) {
          %l = vector.transfer_read %L[%i], %pad : memref<?xf32>, vector<64xf32>
          %s = hopper.mma %k, %k, %zero : !tile, !tile, vector<64x64xf32>
          %l2 = vector.broadcast %l : vector<64xf32> to vector<64x64xf32>
          %p = arith.mulf %s, %l2 : vector<64x64xf32>
          %p16 = arith.truncf %p : vector<64x64xf32> to vector<64x64xbf16>
          %b = hopper.mma %p16, %k, %a : vector<64x64xbf16>, !tile, vector<64x64xf32>
          scf.yield %b : vector<64x64xf32>
        }
      }
    gpu.terminator
  }
  return
}

// Memory that the loop writes, places that do not follow from its variable, and
// loops without products: as they are.
// CHECK-LABEL: func.func @kept
// CHECK: scf.for {{.*}} iter_args(%{{[a-z0-9]*}} = %{{[a-z0-9]*}}) ->
// CHECK: vector.transfer_read %arg1
// CHECK: vector.transfer_read %arg2
// CHECK: hopper.mma
// CHECK: scf.for
// CHECK-NEXT: vector.transfer_read %arg2
func.func @kept(%n: index, %L: memref<?xf32>, %M: memref<?xf32>, %zero: vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f32
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %k = hopper.alloc : !tile
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %r = scf.for %i = %c0 to %n step %c64 iter_args(%a = %zero) -> (vector<64x64xf32>) {
          %l = vector.transfer_read %L[%i], %pad : memref<?xf32>, vector<64xf32>
          %m = vector.transfer_read %M[%bx], %pad : memref<?xf32>, vector<64xf32>
          %b = hopper.mma %k, %k, %a : !tile, !tile, vector<64x64xf32>
          %s = arith.addf %l, %m : vector<64xf32>
          vector.transfer_write %s, %L[%i] : vector<64xf32>, memref<?xf32>
          scf.yield %b : vector<64x64xf32>
        }
        scf.for %i = %c0 to %n step %c64 {
          %m = vector.transfer_read %M[%i], %pad : memref<?xf32>, vector<64xf32>
          vector.transfer_write %m, %L[%i] : vector<64xf32>, memref<?xf32>
        }
      }
    gpu.terminator
  }
  return
}
