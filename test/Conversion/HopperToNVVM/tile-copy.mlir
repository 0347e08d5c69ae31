// RUN: attn-opt %s --split-input-file --pass-pipeline='builtin.module(gpu.module(convert-hopper-to-nvvm))' --verify-diagnostics | FileCheck %s

!k = !tile.smem<64x64xbf16, swizzle = 128>

// Four pages of 16 rows are looked up, in front of the branch by alignment; entries of rows that the sequence has not
// are not read: the first one is.
// CHECK-LABEL: gpu.func @pages(
// CHECK-SAME: %[[POOL:[^:]*]]: memref<?x?x16x64xbf16
// CHECK: %[[START:.*]] = memref.extract_aligned_pointer_as_index %[[POOL]]
// CHECK: %[[WIDE:.*]] = arith.index_cast %[[START]] : index to i64
// CHECK: %[[FIRST:.*]] = arith.addi %[[WIDE]], %{{.*}} : i64
// The length.
// CHECK: llvm.load %{{.*}} invariant
// CHECK: %[[ENTRY:.*]] = arith.divui %{{.*}}, %c16_i64
// CHECK: arith.select %{{.*}}, %[[ENTRY]], %c0_i64
// CHECK: llvm.load %{{.*}} invariant
// CHECK-COUNT-3: llvm.load %{{.*}} invariant
// CHECK-NOT: llvm.load
// CHECK: scf.if
// CHECK-COUNT-4: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16,
// CHECK: scf.if
// CHECK-COUNT-16: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 4,
// Element by element each row is looked up, from the head's first one on.
// CHECK: scf.for
// CHECK: scf.for
// CHECK: llvm.load %{{.*}} invariant
// CHECK: %[[PAGE:.*]] = arith.muli %{{.*}}, %{{.*}} : i64
// CHECK: %[[ROW:.*]] = arith.muli %{{.*}}, %{{.*}} : i64
// CHECK: %[[PLACE:.*]] = arith.addi %[[PAGE]], %[[ROW]] : i64
// CHECK: arith.addi %[[FIRST]], %[[PLACE]] : i64
// CHECK: ld.global.b16
gpu.module @m {
  gpu.func @pages(%pool: memref<?x?x16x64xbf16, strided<[?, ?, ?, 1], offset: ?>>, %table: memref<?x?xi32>, %used: memref<?xi32>,
                  %b: index, %h: index, %j: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %k = hopper.alloc : !k
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%own) {
        tile.copy %pool[%b, %h, %j, %c0] pages(%table, %used : memref<?x?xi32>, memref<?xi32>) to %k {aligned_rows = 64 : i64}
          : memref<?x?x16x64xbf16, strided<[?, ?, ?, 1], offset: ?>>, !k
        tile.commit
        tile.await 0
      }
    gpu.return
  }
}

// -----

!k = !tile.smem<64x64xbf16, swizzle = 128>

// A tile that may begin anywhere: each thread looks up its rows.
// CHECK-LABEL: gpu.func @anywhere(
// CHECK: llvm.load %{{.*}} invariant
// CHECK-NOT: llvm.load
// CHECK: scf.if
// CHECK: llvm.load %{{.*}} invariant
// CHECK: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16,
gpu.module @m {
  gpu.func @anywhere(%pool: memref<?x?x16x64xbf16, strided<[?, ?, ?, 1], offset: ?>>, %table: memref<?x?xi32>, %used: memref<?xi32>,
                     %b: index, %h: index, %j: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %k = hopper.alloc : !k
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%own) {
        tile.copy %pool[%b, %h, %j, %c0] pages(%table, %used : memref<?x?xi32>, memref<?xi32>) to %k
          : memref<?x?x16x64xbf16, strided<[?, ?, ?, 1], offset: ?>>, !k
        tile.commit
        tile.await 0
      }
    gpu.return
  }
}
