// RUN: attn-opt %s --split-input-file --pass-pipeline='builtin.module(gpu.module(convert-hopper-to-nvvm,canonicalize,cse))' | FileCheck %s
!t = !tile.smem<64x96xbf16, swizzle = 128>
!ring = !tile.smem<2x64x96xbf16, swizzle = 128>
!f = !tile.smem<64x32xf32, swizzle = 128>
!b2 = !hopper.mbarrier<2>
!b1 = !hopper.mbarrier<1>
!tm = !hopper.tensor_map<!t, rank = 3>
!fm = !hopper.tensor_map<!f, rank = 2>

// The ring is 2 tiles of two slabs of 64 * 128 bytes, mbarriers come behind.
// CHECK: llvm.mlir.global external @hopper_shared_memory() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
// CHECK-LABEL: gpu.func @roles
// CHECK-SAME: (%[[MAP:.*]]: !llvm.ptr, %[[I:.*]]: index, %[[SUM:.*]]: !llvm.ptr)
// CHECK-SAME: hopper.shared_bytes = 40992 : i64, hopper.tensor_maps = array<i64: 0, 2>
gpu.module @m {
  gpu.func @roles(%map: !tm, %i: index, %sum: !fm) kernel attributes {known_block_size = array<i32: 384, 1, 1>} {
    // The mbarriers: expected by one thread; arrived at by two warpgroups, which
    // count per warp.
    // CHECK: %[[TID:.*]] = nvvm.read.ptx.sreg.tid.x : i32
    // CHECK: %[[BASE:.*]] = llvm.ptrtoint
    // CHECK: scf.if
    // CHECK: nvvm.prefetch tensormap, %[[MAP]]
    // CHECK: nvvm.prefetch tensormap, %[[SUM]]
    // CHECK: nvvm.mbarrier.init %{{.*}}, %c1_i32
    // CHECK: nvvm.mbarrier.init %{{.*}}, %c1_i32
    // CHECK: nvvm.mbarrier.init %{{.*}}, %c8_i32
    // CHECK: nvvm.mbarrier.init %{{.*}}, %c8_i32
    // CHECK-NOT: nvvm.mbarrier.init
    // CHECK: nvvm.fence.mbarrier.init
    // CHECK: gpu.barrier
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c5 = arith.constant 5 : index
    %ring = hopper.alloc : !ring
    %f = hopper.alloc : !f
    %full = hopper.mbarrier arrivals(1) : !b2
    %empty = hopper.mbarrier arrivals(2) : !b2
    // CHECK: scf.if
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        // No tile and no named barrier: one thread.
        // CHECK: nvvm.setmaxregister decrease 24
        // CHECK: scf.if
        // CHECK: %[[ONE:.*]] = nvvm.elect.sync
        // CHECK: scf.if %[[ONE]]
        %p = arith.constant 1 : i32
        // CHECK: nvvm.mbarrier.try_wait.parity
        hopper.mbarrier.wait %empty[%c0], %p : !b2
        // CHECK: nvvm.mbarrier.arrive.expect_tx %{{.*}}, %c16384_i32
        hopper.mbarrier.expect %full[%c0] bytes(16384) : !b2
        %t = hopper.slot %ring[%c0] : !ring -> !t
        // One box for each slab; coordinates are innermost first.
        // CHECK: %[[J:.*]] = arith.index_cast %[[I]] : index to i32
        // CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %[[MAP]], %{{.*}}, box[%c0_i32, %[[J]], %c5_i32] {isCTAOnly = true}
        // CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %[[MAP]], %{{.*}}, box[%c64_i32, %[[J]], %c5_i32] {isCTAOnly = true}
        hopper.tma.load %map[%c5, %i, %c0] to %t, %full[%c0] : !tm, !t, !b2
      }
      role "compute" warpgroups(2) registers(240) (%w) {
        // CHECK: nvvm.setmaxregister increase 240
        %z = arith.constant 0 : i32
        // CHECK: nvvm.mbarrier.try_wait.parity
        hopper.mbarrier.wait %full[%c0], %z : !b2
        // Nothing of a thread's own came before: no meeting of the warp.
        // CHECK-NOT: nvvm.bar.warp.sync
        // CHECK: llvm.inline_asm has_side_effects asm_dialect = att "@$0 mbarrier.arrive.shared::cta.b64 _, [$1];", "b,r,~{memory}"
        hopper.mbarrier.arrive %empty[%c0] : !b2
        // CHECK: nvvm.barrier.arrive id = %c1_i32 number_of_threads = %c256_i32
        hopper.barrier.arrive %c1 warpgroups(2)
        %v = arith.constant dense<0.0> : vector<64x32xf32>
        tile.write %v to %f : vector<64x32xf32>, !f
        // CHECK: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
        hopper.fence.async
        // CHECK: nvvm.barrier id = %c5_i32 number_of_threads = %c128_i32
        hopper.barrier.sync %c5 warpgroups(1)
        // One thread stores, and the same one waits.
        // CHECK: scf.if
        // CHECK: nvvm.cp.async.bulk.tensor.reduce %[[SUM]], %{{.*}}, box[%c0_i32, %{{.*}}] {redKind = #nvvm.tma_redux_kind<add>}
        // CHECK: nvvm.cp.async.bulk.commit.group
        hopper.tma.reduce %f to %sum[%i, %c0] : !f, !fm
        // CHECK-NEXT: nvvm.cp.async.bulk.wait_group 0 {read}
        hopper.tma.wait pending(0) read
        // The lanes' stores are ordered by the warp's meeting.
        // CHECK: nvvm.bar.warp.sync
        // CHECK: mbarrier.arrive.shared::cta
        hopper.mbarrier.arrive %empty[%c1] : !b2
      }
    gpu.return
  }
}

// -----

// A barrier that warpgroups arrive at and one thread expects: an arrival is four,
// whoever it is from.
// CHECK-LABEL: gpu.func @mixed
// CHECK: nvvm.mbarrier.init %{{.*}}, %c8_i32
// CHECK: nvvm.mbarrier.expect_tx %{{.*}}, %c512_i32
// CHECK: nvvm.mbarrier.arrive %{{.*}}, %c4_i32
gpu.module @m {
  gpu.func @mixed() kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %b = hopper.mbarrier arrivals(2) : !hopper.mbarrier<1>
    hopper.mbarrier.expect %b[%c0] bytes(512) : !hopper.mbarrier<1>
    hopper.mbarrier.arrive %b[%c0] : !hopper.mbarrier<1>
    gpu.return
  }
}

// -----

// In clusters: mbarriers count arrivals of all CTAs and are there before any of them goes on;
// one lane of a warp for each CTA arrives there; a copy goes to all; a descriptor has the
// address in the CTA only.
// CHECK-LABEL: gpu.func @cluster
// CHECK: %[[CTAS:.*]] = nvvm.read.ptx.sreg.cluster.nctaid.x
// CHECK: %[[COUNT:.*]] = arith.muli %[[CTAS]], %c8_i32
// CHECK: nvvm.mbarrier.init %{{.*}}, %[[COUNT]]
// CHECK-NOT: gpu.barrier
// CHECK: nvvm.cluster.arrive {aligned}
// CHECK-NEXT: nvvm.cluster.wait {aligned}
// CHECK: %[[BITS:.*]] = arith.shli %c1_i32, %[[CTAS]]
// CHECK: %[[LESS:.*]] = arith.subi %[[BITS]], %c1_i32
// CHECK: %[[MASK:.*]] = arith.trunci %[[LESS]] : i32 to i16
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}} multicast_mask = %[[MASK]]
// CHECK: %[[IN:.*]] = arith.andi %{{.*}}, %c262143_i32
// CHECK: arith.shrui %[[IN]], %c4_i32
// CHECK: %[[IS:.*]] = arith.cmpi ult, %[[LANE:.*]], %[[CTAS]]
// CHECK: llvm.inline_asm has_side_effects {{.*}} "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, $1, $2; @$0 mbarrier.arrive.shared::cluster.b64 _, [remote]; }", "b,r,r,~{memory}" %[[IS]], %{{.*}}, %[[LANE]]
// CHECK: nvvm.cluster.arrive{{$}}
// CHECK-NEXT: nvvm.cluster.wait{{$}}
!t = !tile.smem<64x64xbf16, swizzle = 128>
!b1 = !hopper.mbarrier<1>
!tm = !hopper.tensor_map<!t, rank = 2>
gpu.module @m {
  gpu.func @cluster(%map: !tm, %i: index) kernel attributes {known_block_size = array<i32: 384, 1, 1>} {
    %c0 = arith.constant 0 : index
    %t = hopper.alloc : !t
    %full = hopper.mbarrier arrivals(1) : !b1
    %empty = hopper.mbarrier arrivals(2) cluster : !b1
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        hopper.mbarrier.expect %full[%c0] bytes(8192) : !b1
        hopper.tma.load %map[%i, %c0] to %t, %full[%c0] multicast : !tm, !t, !b1
      }
      role "compute" warpgroups(2) registers(240) (%w) {
        %x = hopper.wgmma %t, %t : (!t, !t) -> !hopper.pending<vector<64x64xf32>>
        %y = hopper.wait %x pending(0) : !hopper.pending<vector<64x64xf32>> -> vector<64x64xf32>
        hopper.mbarrier.arrive %empty[%c0] cluster : !b1
      }
    hopper.cluster.sync
    gpu.return
  }
}

// -----

!t = !tile.smem<128x64xbf16, swizzle = 128>
!h = !tile.smem<64x64xbf16, swizzle = 128, slab_rows = 128>
!tm = !hopper.tensor_map<!tile.smem<64x64xbf16, swizzle = 128>, rank = 2>
// A store, not a reduction; rows of a tile are rows * swizzle bytes on.
// CHECK-LABEL: gpu.func @rows
// CHECK: nvvm.cp.async.bulk.tensor.global.shared.cta
gpu.module @m {
  gpu.func @rows(%map: !tm, %i: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %t = hopper.alloc : !tile.smem<64x64xbf16, swizzle = 128>
    hopper.tma.store %t to %map[%i, %c0] : !tile.smem<64x64xbf16, swizzle = 128>, !tm
    gpu.return
  }
}

// -----

// Each thread's elements, then one barrier for the threads of all warpgroups.
// CHECK-LABEL: gpu.func @agree
// CHECK: arith.ori
// CHECK: %[[BIT:.*]] = arith.extui %{{.*}} : i1 to i32
// CHECK: llvm.inline_asm has_side_effects {{.*}}bar.red.or.pred{{.*}} %[[BIT]],
// CHECK: llvm.inline_asm has_side_effects {{.*}}bar.red.and.pred
gpu.module @m {
  gpu.func @agree(%x: memref<64x16xi32>, %y: memref<2xi1>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    %pad = arith.constant 0 : i32
    %three = arith.constant dense<3> : vector<64x16xi32>
    %t = vector.transfer_read %x[%c0, %c0], %pad {in_bounds = [true, true]} : memref<64x16xi32>, vector<64x16xi32>
    %keep = arith.cmpi eq, %t, %three : vector<64x16xi32>
    %some = hopper.barrier.reduce any %keep, %c8 warpgroups(2) : vector<64x16xi1>
    %every = hopper.barrier.reduce all %keep, %c8 warpgroups(2) : vector<64x16xi1>
    memref.store %some, %y[%c0] : memref<2xi1>
    memref.store %every, %y[%c1] : memref<2xi1>
    gpu.return
  }
}

// -----

// Where some rows are marked, each row is a box of its own, 128 bytes behind the one before; what is
// marked comes from behind the last row. A mark is read where its group of 64 rows has one, and the
// row is inside.
// CHECK-LABEL: gpu.func @dropped
// CHECK-SAME: (%[[MAP:.*]]: !llvm.ptr, %[[ROW_MAP:.*]]: !llvm.ptr,
// CHECK: scf.if %{{.*}} {
// CHECK: scf.for %[[R:.*]] = %c0_i32 to %c64_i32 step %c1_i32
// CHECK: %[[ROW:.*]] = arith.addi %[[I:.*]], %[[R]] : i32
// CHECK: %[[INSIDE:.*]] = arith.cmpi slt, %[[ROW]], %[[ROWS:.*]] : i32
// CHECK: arith.divui %[[ROW]], %c64_i32
// CHECK: %[[GROUP:.*]] = llvm.inline_asm has_side_effects {{.*}}@$2 ld.global.b16 $0, [$1];{{.*}} %{{.*}}, %[[INSIDE]], %c0_i16
// CHECK: %[[HAS:.*]] = arith.cmpi ne, %[[GROUP]], %c0_i16
// CHECK: %[[MARK:.*]] = llvm.inline_asm has_side_effects {{.*}}@$2 ld.global.b16 $0, [$1];{{.*}} %{{.*}}, %[[HAS]], %c0_i16
// CHECK: %[[IS:.*]] = arith.cmpi ne, %[[MARK]], %c0_i16
// CHECK: %[[FROM:.*]] = arith.select %[[IS]], %[[ROWS]], %[[ROW]] : i32
// CHECK: arith.muli %[[R]], %c128_i32
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %[[ROW_MAP]], %{{.*}}, box[%c0_i32, %[[FROM]]]
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %[[ROW_MAP]], %{{.*}}, box[%c64_i32, %[[FROM]]]
// CHECK: } else {
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %[[MAP]], %{{.*}}, box[%c0_i32, %[[I]]]
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %[[MAP]], %{{.*}}, box[%c64_i32, %[[I]]]
!t = !tile.smem<64x128xbf16, swizzle = 128>
!b1 = !hopper.mbarrier<1>
!tm = !hopper.tensor_map<!t, rank = 2>
!row = !hopper.tensor_map<!tile.smem<1x128xbf16, swizzle = 128>, rank = 2>
gpu.module @m {
  gpu.func @dropped(%map: !tm, %rows: !row, %marks: memref<?xbf16>, %groups: memref<?xbf16>, %i: index, %some: i1) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %c0 = arith.constant 0 : index
    %t = hopper.alloc : !t
    %full = hopper.mbarrier arrivals(1) : !b1
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        hopper.mbarrier.expect %full[%c0] bytes(16384) : !b1
        hopper.tma.load %map[%i, %c0] without(%marks, %groups, %rows : memref<?xbf16>, memref<?xbf16>, !row) if %some to %t, %full[%c0] : !tm, !t, !b1
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %z = arith.constant 0 : i32
        hopper.mbarrier.wait %full[%c0], %z : !b1
      }
    gpu.return
  }
}
