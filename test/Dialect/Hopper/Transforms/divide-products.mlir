// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-divide-products{columns=64}))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-divide-products{columns=512}))" | FileCheck %s --check-prefix=WHOLE
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-divide-products{columns=64}))" --remarks-filter=hopper-divide-products -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// RUN: not attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-divide-products{columns=24}))" 2>&1 | FileCheck %s --check-prefix=ERROR
// The rings of an inner loop are filled in front of it, once those who read the last one have met.
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-divide-products{columns=64},hopper-stage-loads))" | FileCheck %s --check-prefix=STAGED
// REMARKS-DAG: {{^ *}}2 [Passed] divided | Category:hopper-divide-products{{$}}
// REMARKS-DAG: {{^ *}}1 [Missed] not divided | Category:hopper-divide-products{{$}}
// ERROR: error: expected pieces of a multiple of 16 columns, got 24

!wide = !tile.smem<128x304xbf16, swizzle = 128>
!own = !tile.smem<64x304xbf16, swizzle = 128, slab_rows = 128>
!keys = !tile.smem<32x304xbf16, swizzle = 128>

// Rows of a tile of all warpgroups, and a tile that is loaded in each iteration: both are loaded by
// pieces where they are multiplied. The last piece ends behind the tiles, where there are zeros.
// CHECK-LABEL: func.func @both
// CHECK-NOT: tile.load
// CHECK: scf.for %[[J:.*]] = {{.*}} iter_args(%[[SUM:.*]] = %
// CHECK:   %[[C304:.*]] = arith.constant 304 : index
// CHECK:   scf.for %[[C:.*]] = %{{.*}} to %[[C304]] step %{{.*}} iter_args(%[[ACC:.*]] = %[[SUM]])
// CHECK:     %[[FROM:.*]] = arith.addi %{{.*}}, %[[C]]
// CHECK:     %[[Q:.*]] = tile.load %{{.*}}[%{{.*}}, %[[FROM]]] : {{.*}} -> <128x64xbf16, swizzle = 128>
// CHECK:     %[[ROWS:.*]] = tile.rows %[[Q]]{{.*}} -> <64x64xbf16, swizzle = 128, slab_rows = 128>
// CHECK:     %[[K:.*]] = tile.load %{{.*}}[%[[J]], %{{.*}}] : {{.*}} -> <32x64xbf16, swizzle = 128>
// CHECK:     %[[NEXT:.*]] = tile.mma %[[ROWS]], %[[K]], %[[ACC]] transposeB
// CHECK:     scf.yield %[[NEXT]]
// WHOLE-LABEL: func.func @both
// WHOLE: tile.load {{.*}} -> <128x304xbf16
// WHOLE: tile.load {{.*}} -> <32x304xbf16
// STAGED-LABEL: func.func @both
// STAGED-DAG: hopper.alloc : <2x128x64xbf16, swizzle = 128>
// STAGED-DAG: hopper.alloc : <2x32x64xbf16, swizzle = 128>
// STAGED: scf.for
// STAGED:   tile.await 0
// STAGED:   tile.copy
// STAGED:   tile.commit
// STAGED:   scf.for
// STAGED:     tile.await 0
// STAGED:     tile.mma
func.func @both(%Q: memref<?x300xbf16>, %K: memref<?x300xbf16>, %n: index, %zero: vector<64x32xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %q = tile.load %Q[%bx, %c0] : memref<?x300xbf16> -> !wide
        %first = arith.muli %w, %c64 : index
        %own = tile.rows %q[%first] : !wide -> !own
        %r = scf.for %j = %c0 to %n step %c32 iter_args(%s = %zero) -> (vector<64x32xf32>) {
          %k = tile.load %K[%j, %c0] : memref<?x300xbf16> -> !keys
          %t = tile.mma %own, %k, %s transposeB : !own, !keys, vector<64x32xf32>
          scf.yield %t : vector<64x32xf32>
        }
      }
    gpu.terminator
  }
  return
}

// A tile that another product reads by rows stays whole for that one.
// CHECK-LABEL: func.func @shared
// CHECK: %[[K:.*]] = tile.load %arg1{{.*}} -> <64x128xf32, swizzle = 128>
// CHECK: %[[S:.*]] = scf.for
// CHECK-COUNT-2: tile.load {{.*}} -> <64x64xf32, swizzle = 128>
// CHECK: tile.mma %[[S]], %[[K]], %{{.*}} : vector<64x64xf32>, <64x128xf32, swizzle = 128>
func.func @shared(%Q: memref<?x128xf32>, %K: memref<?x128xf32>, %n: index, %zero: vector<64x64xf32>, %sum: vector<64x128xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %q = tile.load %Q[%bx, %c0] : memref<?x128xf32> -> !tile.smem<64x128xf32, swizzle = 128>
        %k = tile.load %K[%bx, %c0] : memref<?x128xf32> -> !tile.smem<64x128xf32, swizzle = 128>
        %s = tile.mma %q, %k, %zero transposeB : !tile.smem<64x128xf32, swizzle = 128>, !tile.smem<64x128xf32, swizzle = 128>, vector<64x64xf32>
        %o = tile.mma %s, %k, %sum : vector<64x64xf32>, !tile.smem<64x128xf32, swizzle = 128>, vector<64x128xf32>
      }
    gpu.terminator
  }
  return
}
