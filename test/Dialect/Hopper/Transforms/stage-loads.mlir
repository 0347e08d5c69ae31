// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline="builtin.module(func.func(hopper-stage-loads))" | FileCheck %s
// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline="builtin.module(func.func(hopper-stage-loads{stages=3}))" | FileCheck %s --check-prefix=THREE
// RUN: not attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(hopper-stage-loads))" --remarks-filter=hopper-stage-loads -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}4 [Passed] staged | Category:hopper-stage-loads{{$}}
// REMARKS-DAG: {{^ *}}2 [Passed] waited | Category:hopper-stage-loads{{$}}

!q = !tile.smem<64x64xbf16, swizzle = 128>

// The first tile is copied in front of the loop, each other one in the iteration before; what is
// loaded once is waited for by the loop, too.
// CHECK-LABEL: func.func @ring
// CHECK: %[[RING:.*]] = hopper.alloc : <2x64x64xbf16, swizzle = 128>
// CHECK: %[[Q:.*]] = hopper.alloc : <1x64x64xbf16, swizzle = 128>
// CHECK: role "compute"
// CHECK: %[[ONCE:.*]] = hopper.slot %[[Q]]
// CHECK: tile.copy %{{.*}} to %[[ONCE]]
// CHECK-NOT: tile.await
// CHECK: scf.if
// CHECK: tile.copy
// CHECK: }
// CHECK-NEXT: tile.commit
// CHECK: scf.for %[[J:.*]] = %{{.*}} to %[[N:.*]] step %[[STEP:.*]] iter_args(%{{.*}} = %{{.*}}, %[[SLOT:.*]] = %{{.*}}) ->
// CHECK-NEXT: tile.await 0
// CHECK: %[[NEXT:.*]] = arith.addi %[[J]], %[[STEP]]
// CHECK: %[[EXISTS:.*]] = arith.cmpi slt, %[[NEXT]], %[[N]]
// CHECK: scf.if %[[EXISTS]] {
// The index is computed again, from memory.
// CHECK-NEXT: %[[INDEX:.*]] = memref.load %{{.*}}[%[[NEXT]]]
// CHECK-NEXT: %[[FREE:.*]] = hopper.slot %[[RING]]
// CHECK-NEXT: tile.copy %{{.*}}[%[[INDEX]], %{{.*}}] to %[[FREE]]
// CHECK-NEXT: }
// CHECK-NEXT: tile.commit
// CHECK: %[[TILE:.*]] = hopper.slot %[[RING]][%[[SLOT]]]
// CHECK: tile.mma %[[ONCE]], %[[TILE]],
// THREE-LABEL: func.func @ring
// THREE: hopper.alloc : <3x64x64xbf16, swizzle = 128>
// THREE-COUNT-2: scf.if
// THREE: scf.for
// THREE-NEXT: tile.await 1
func.func @ring(%Q: memref<?x64xbf16>, %K: memref<?x64xbf16>, %table: memref<?xindex>, %n: index, %zero: vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %q = tile.load %Q[%bx, %c0] : memref<?x64xbf16> -> !q
        %r = scf.for %j = %c0 to %n step %c64 iter_args(%s = %zero) -> (vector<64x64xf32>) {
          %at = memref.load %table[%j] : memref<?xindex>
          %k = tile.load %K[%at, %c0] : memref<?x64xbf16> -> !q
          %t = tile.mma %q, %k, %s transposeB : !q, !q, vector<64x64xf32>
          scf.yield %t : vector<64x64xf32>
        }
      }
    gpu.terminator
  }
  return
}

// -----

!f = !tile.smem<64x64xf32, swizzle = 128>

// A left operand of f32 goes through memory, between meetings of the warp; loops that follow each
// other share rings, once all threads are done with the first.
// CHECK-LABEL: func.func @operands
// CHECK: %[[RING:.*]] = hopper.alloc : <2x64x64xf32, swizzle = 128>
// CHECK-NEXT: %[[OPERAND:.*]] = hopper.alloc : <1x128x64xf32, swizzle = 128>
// CHECK-NOT: hopper.alloc
// CHECK: role "compute" warpgroups(2) registers(240) (%[[W:.*]]) {
// CHECK-NOT: tile.await
// CHECK: scf.for
// CHECK: tile.copy
// CHECK: %[[FIRST:.*]] = affine.apply {{.*}}(%[[W]])
// CHECK-NEXT: %[[ROWS:.*]] = tile.rows %{{.*}}[%[[FIRST]]]
// CHECK-NEXT: tile.write %{{.*}} to %[[ROWS]]
// CHECK-NEXT: tile.warp_sync
// CHECK-NEXT: tile.mma %[[ROWS]], %{{.*}}
// CHECK-NOT: tile.warp_sync
// CHECK: }
// CHECK: tile.await 0
// CHECK: scf.if
// CHECK: scf.for
func.func @operands(%K: memref<?x64xf32>, %n: index, %zero: vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %r = scf.for %j = %c0 to %n step %c64 iter_args(%s = %zero) -> (vector<64x64xf32>) {
          %k = tile.load %K[%j, %c0] : memref<?x64xf32> -> !f
          %t = tile.mma %s, %k, %zero : vector<64x64xf32>, !f, vector<64x64xf32>
          scf.yield %t : vector<64x64xf32>
        }
        %u = scf.for %j = %c0 to %n step %c64 iter_args(%s = %r) -> (vector<64x64xf32>) {
          %k = tile.load %K[%j, %c0] : memref<?x64xf32> -> !f
          %t = tile.mma %s, %k, %zero : vector<64x64xf32>, !f, vector<64x64xf32>
          scf.yield %t : vector<64x64xf32>
        }
      }
    gpu.terminator
  }
  return
}

// -----

!q = !tile.smem<64x64xbf16, swizzle = 128>

func.func @some_warpgroups(%K: memref<?x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        // expected-note @+1 {{depends on the warpgroup}}
        scf.for %j = %w to %n step %c1 {
          // expected-error @+1 {{is copied by all threads, but only some warpgroups come here}}
          %k = tile.load %K[%j, %c0] : memref<?x64xbf16> -> !q
        }
      }
    gpu.terminator
  }
  return
}

// -----

!q = !tile.smem<64x64xbf16, swizzle = 128>

func.func @other_places(%K: memref<?x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        // expected-error @+1 {{is copied by all threads, and its place depends on the warpgroup}}
        %k = tile.load %K[%w, %c0] : memref<?x64xbf16> -> !q
      }
    gpu.terminator
  }
  return
}

// -----

// Rows in pages: the copy has the table, and how the tiles begin; the view is not used any more.
// CHECK-LABEL: func.func @pages
// CHECK: scf.for
// CHECK: tile.copy %{{.*}} pages(%{{.*}}, %{{.*}} : memref<?x?xi32>, memref<?xi32>) to %{{.*}} {aligned_rows = 64 : i64} : memref<?x?x16x64xbf16>
func.func @pages(%Q: memref<?x64xbf16>, %pool: memref<?x?x16x64xbf16>, %table: memref<?x?xi32>, %used: memref<?xi32>, %from: index, %n: index, %zero: vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %K = attn.pages %pool[%table] lengths(%used) : memref<?x?x16x64xbf16>, memref<?x?xi32>, memref<?xi32> -> memref<?x?x?x64xbf16>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %q = tile.load %Q[%bx, %c0] : memref<?x64xbf16> -> !tile.smem<64x64xbf16, swizzle = 128>
        // A part of the keys, as attn-expand-parts has it: it has none where it begins at the end.
        %first = arith.muli %from, %c64 : index
        %begin = arith.minsi %first, %n : index
        %last = arith.addi %begin, %c64 : index
        %end = arith.minsi %last, %n : index
        %r = scf.for %j = %begin to %end step %c64 iter_args(%s = %zero) -> (vector<64x64xf32>) {
          %k = tile.load %K[%bx, %c0, %j, %c0] : memref<?x?x?x64xbf16> -> !tile.smem<64x64xbf16, swizzle = 128>
          %t = tile.mma %q, %k, %s transposeB : !tile.smem<64x64xbf16, swizzle = 128>, !tile.smem<64x64xbf16, swizzle = 128>, vector<64x64xf32>
          scf.yield %t : vector<64x64xf32>
        }
      }
    gpu.terminator
  }
  return
}
