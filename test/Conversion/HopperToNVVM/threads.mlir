// RUN: attn-opt %s -split-input-file -convert-hopper-to-nvvm -verify-diagnostics | FileCheck %s

// Kernels of one thread stay as they are, but for functions and what threads of a cluster do.
gpu.module @threads {
  // CHECK-LABEL: gpu.func @cluster
  // CHECK-SAME: hopper.occupancy = 4
  // CHECK-NOT: hopper.threads
  gpu.func @cluster(%x: f32, %y: memref<4xf32>) workgroup(%cells : memref<4xf32, #gpu.address_space<workgroup>>)
      kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    hopper.threads occupancy = 4
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    // CHECK: nvvm.cluster.arrive
    // CHECK-NEXT: nvvm.cluster.wait
    hopper.cluster.sync
    // CHECK: %[[P:.*]] = llvm.inttoptr %{{.*}} : i32 to !llvm.ptr<3>
    // CHECK: %[[R:.*]] = nvvm.mapa %[[P]], %{{.*}} : !llvm.ptr<3> -> !llvm.ptr<7>
    // CHECK: %[[V:.*]] = llvm.load volatile %[[R]] : !llvm.ptr<7> -> f32
    %v = hopper.remote.load %cells[%c2] of %c1 : memref<4xf32, #gpu.address_space<workgroup>>
    // CHECK: nvvm.cluster.arrive
    // CHECK-NOT: nvvm.cluster.wait
    // CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz"
    // CHECK: nvvm.cluster.wait
    hopper.cluster.arrive
    %e = math.exp2 %v : f32
    memref.store %e, %y[%c1] : memref<4xf32>
    hopper.cluster.wait
    gpu.return
  }

  // Meetings of the grid, turns and last arrivals: one thread counts, waits or says it; barriers of the CTA
  // stand around what it does for all.
  // CHECK-LABEL: gpu.func @grid
  // CHECK-SAME: workgroup(%[[ANSWER:.*]] : memref<1xi32, #gpu.address_space<workgroup>>) kernel attributes {hopper.cooperative
  // CHECK: gpu.barrier
  // CHECK: scf.if
  // CHECK: llvm.inline_asm {{.*}}"atom.add.release.gpu.global.u32 $0, [$1], 1;"
  // CHECK: llvm.inline_asm {{.*}}ld.acquire.gpu.global.b32
  // CHECK: gpu.barrier
  // CHECK: llvm.inline_asm {{.*}}ld.acquire.gpu.global.b32
  // CHECK: llvm.inline_asm {{.*}}"st.release.gpu.global.b32 [$0], $1;"
  // CHECK: %[[LAST:.*]] = arith.addi %{{.*}}, %c-1_i32
  // CHECK: gpu.barrier
  // CHECK: scf.if
  // CHECK: %[[BEFORE:.*]] = llvm.inline_asm {{.*}}"atom.inc.acq_rel.gpu.global.u32 $0, [$1], $2;"
  // CHECK: memref.store %[[BEFORE]], %[[ANSWER]]
  // CHECK: gpu.barrier
  // CHECK: %[[OF_ALL:.*]] = memref.load %[[ANSWER]]
  // CHECK: arith.cmpi eq, %[[OF_ALL]], %[[LAST]]
  gpu.func @grid(%counter: memref<1xi32>, %flags: memref<?xi32>, %row: index, %n: i32, %parts: index, %out: memref<?xi32>)
      kernel attributes {known_block_size = array<i32: 64, 1, 1>} {
    hopper.threads
    hopper.grid.sync %counter : memref<1xi32>
    hopper.semaphore.wait %flags[%row], %n : memref<?xi32>
    hopper.semaphore.release %flags[%row], %n : memref<?xi32>
    %last = hopper.last_arrival %flags[%row] of %parts : memref<?xi32>
    %word = arith.extui %last : i1 to i32
    memref.store %word, %out[%row] : memref<?xi32>
    gpu.return
  }

  // Values that stand one behind the other follow one number; later ones another one.
  // CHECK-LABEL: gpu.func @opaque
  // CHECK: %[[A:.*]] = llvm.inline_asm has_side_effects asm_dialect = att "{{.*}}%smid; shr.u32 $0, number, 20
  // CHECK: arith.xori
  // CHECK: arith.xori
  // CHECK: llvm.inline_asm {{.*}}shr.u32 $0, number, 21
  // CHECK: arith.xori
  gpu.func @opaque(%x: memref<8xbf16>, %z: memref<4xf32>) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    hopper.threads
    %c0 = arith.constant 0 : index
    %a = vector.load %x[%c0] : memref<8xbf16>, vector<8xbf16>
    %b = vector.load %z[%c0] : memref<4xf32>, vector<4xf32>
    %p = hopper.opaque %a : vector<8xbf16>
    %q = hopper.opaque %b : vector<4xf32>
    vector.store %p, %x[%c0] : memref<8xbf16>, vector<8xbf16>
    %r = hopper.opaque %q : vector<4xf32>
    vector.store %r, %z[%c0] : memref<4xf32>, vector<4xf32>
    gpu.return
  }

  // Pairs are rounded at once.
  // CHECK-LABEL: gpu.func @rounded
  // CHECK-COUNT-2: nvvm.convert.f32x2.to.bf16x2
  // CHECK-NOT: arith.truncf {{.*}} bf16
  gpu.func @rounded(%a: f32, %b: f32, %x: memref<4xbf16>) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    hopper.threads
    %c0 = arith.constant 0 : index
    %p = arith.truncf %a : f32 to bf16
    %q = arith.truncf %b : f32 to bf16
    %v = vector.from_elements %p, %q, %q, %p : vector<4xbf16>
    vector.store %v, %x[%c0] : memref<4xbf16>, vector<4xbf16>
    gpu.return
  }
}

// -----

gpu.module @wide {
  // expected-error @below {{expects a known block size of (n, 1, 1) threads, n at most 1024}}
  gpu.func @wide() kernel attributes {known_block_size = array<i32: 32, 2, 1>} {
    hopper.threads
    gpu.return
  }
}

// -----

gpu.module @warpgroups {
  gpu.func @warpgroups() kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    hopper.threads
    // expected-error @below {{is of warpgroups, not of threads}}
    hopper.fence.async
    gpu.return
  }
}

// -----

gpu.module @narrow {
  gpu.func @narrow(%x: vector<3xbf16>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    hopper.threads
    // expected-error @below {{expected a vector of whole words, got 'vector<3xbf16>'}}
    %y = hopper.opaque %x : vector<3xbf16>
    gpu.return
  }
}
