// RUN: attn-opt %s --split-input-file --pass-pipeline='builtin.module(gpu.module(convert-hopper-to-nvvm,canonicalize,cse))' -verify-diagnostics | FileCheck %s

// Semaphores of CTAs, and roles of one thread each in a warpgroup.
// CHECK-LABEL: gpu.func @semaphores
// CHECK-SAME: hopper.cooperative
gpu.module @m {
  gpu.func @semaphores(%semaphores: memref<?xi32>, %out: memref<?xi32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c7 = arith.constant 7 : i32
    // CHECK: %[[WARP:.*]] = arith.andi %{{.*}}, %c3_i32
    // CHECK: scf.if
    // CHECK: nvvm.setmaxregister decrease 24
    // CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[WARP]], %c0_i32
    // CHECK: scf.if %[[FIRST]]
    // CHECK: nvvm.elect.sync
    // CHECK: memref.store
    // CHECK: %[[SECOND:.*]] = arith.cmpi eq, %[[WARP]], %c1_i32
    // CHECK: scf.if %[[SECOND]]
    // CHECK: nvvm.elect.sync
    // CHECK: %[[BASE:.*]] = memref.extract_aligned_pointer_as_index %arg0
    // CHECK: %[[PLACE:.*]] = arith.addi %[[BASE]], %c4
    // CHECK: %[[ADDRESS:.*]] = arith.index_cast %[[PLACE]] : index to i64
    // CHECK: llvm.inline_asm has_side_effects {{.*}}ld.acquire.gpu.global.b32 word, [$0]; setp.ne.s32 p, word, $1; @p bra AGAIN; DONE: fence.proxy.async.global; {{.*}} %[[ADDRESS]], %c7_i32
    // CHECK: %[[SEEN:.*]] = llvm.inline_asm has_side_effects {{.*}}ld.acquire.gpu.global.b32 $0, [$1];", "=r,l,~{memory}" %[[ADDRESS]]
    // CHECK: llvm.inline_asm has_side_effects {{.*}}st.release.gpu.global.b32 [$0], $1;", "l,r,~{memory}" %[[ADDRESS]], %[[SEEN]]
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        memref.store %c7, %out[%c0] : memref<?xi32>
      }
      role "add" warpgroups(0) registers(24) (%w) {
        hopper.semaphore.wait %semaphores[%c1], %c7 : memref<?xi32>
        %seen = hopper.semaphore.peek %semaphores[%c1] : memref<?xi32>
        hopper.semaphore.release %semaphores[%c1], %seen : memref<?xi32>
      }
      // CHECK: nvvm.setmaxregister {{.*}} 240
      role "compute" warpgroups(1) registers(240) (%w) {
        hopper.barrier.sync %c1 warpgroups(1)
      }
    gpu.return
  }
}

// -----

// Who comes first waits for nobody: the CTAs need not run together.
// CHECK-LABEL: gpu.func @touch
// CHECK-NOT: hopper.cooperative
// CHECK: %[[SEEN:.*]] = llvm.inline_asm {{.*}}ld.acquire
// CHECK: llvm.inline_asm {{.*}}DONE: fence.proxy.async.global;
// CHECK: %[[FLAG:.*]] = llvm.inline_asm has_side_effects {{.*}}"{ {{.*}} setp.gt.s32 p, $2, 0; @p bra DONE; atom.acquire.gpu.global.cas.b32 word, [$1], 0, -1;{{.*}}", "=&r,l,r,~{memory}" %{{.*}}, %[[SEEN]]
// CHECK: %[[FIRST:.*]] = arith.cmpi ne, %[[FLAG]], %c0_i32
// CHECK: scf.if %[[FIRST]]
// CHECK: st.release.gpu
gpu.module @m {
  gpu.func @touch(%semaphores: memref<?xi32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c1 = arith.constant 1 : index
    %one = arith.constant 1 : i32
    %none = arith.constant -1 : i32
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %seen = hopper.semaphore.peek %semaphores[%c1] : memref<?xi32>
        hopper.semaphore.wait %semaphores[%c1], %none : memref<?xi32>
        %first = hopper.semaphore.first_touch %semaphores[%c1], %seen : memref<?xi32>
        scf.if %first {
          hopper.semaphore.release %semaphores[%c1], %one : memref<?xi32>
        }
      }
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @together(%semaphores: memref<?xi32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c1 = arith.constant 1 : index
    %c7 = arith.constant 7 : i32
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        hopper.barrier.sync %c1 warpgroups(1)
        // expected-error @+1 {{expects a role of one thread, which waits on behalf of what it starts}}
        hopper.semaphore.wait %semaphores[%c1], %c7 : memref<?xi32>
      }
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @not_alone() kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c1 = arith.constant 1 : index
    // expected-error @+1 {{role "compute" shares a warpgroup, and needs more than one thread}}
    hopper.roles
      role "load" warpgroups(1) registers(240) (%w) {
      }
      role "compute" warpgroups(0) registers(240) (%w) {
        hopper.barrier.sync %c1 warpgroups(1)
      }
    gpu.return
  }
}
