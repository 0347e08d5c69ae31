// RUN: attn-opt %s --split-input-file --pass-pipeline='builtin.module(gpu.module(convert-hopper-to-nvvm,canonicalize,cse))' | FileCheck %s

// One thread writes 0 to the CTA's flag before anybody reports; a thread with an element that is
// true writes 1.
// CHECK-LABEL: gpu.func @reports
gpu.module @m {
  gpu.func @reports(%x: memref<?xf32>, %y: memref<?x64xf32>, %reports: memref<?xi32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %f0 = arith.constant 0.0 : f32
    %zero = arith.constant dense<0.0> : vector<64xf32>
    %zeros = arith.constant dense<0.0> : vector<64x64xf32>
    // CHECK: griddepcontrol.wait
    // CHECK: scf.if
    // CHECK: %[[CTA:.*]] = nvvm.read.ptx.sreg.ctaid.x
    // CHECK: %[[FLAGS:.*]] = memref.extract_aligned_pointer_as_index %arg2
    // CHECK: %[[WIDE:.*]] = arith.extui %[[CTA]] : i32 to i64
    // CHECK: %[[OFFSET:.*]] = arith.shli %[[WIDE]], %c2_i64
    // CHECK: %[[BASE:.*]] = arith.index_cast %[[FLAGS]] : index to i64
    // CHECK: %[[FLAG:.*]] = arith.addi %[[BASE]], %[[OFFSET]]
    // CHECK: llvm.inline_asm has_side_effects {{.*}}"st.global.b32 [$0], $1;", "l,r,~{memory}" %[[FLAG]], %c0_i32
    // CHECK: gpu.barrier
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %a = vector.transfer_read %x[%c0], %f0 {in_bounds = [true]} : memref<?xf32>, vector<64xf32>
        %b = vector.transfer_read %y[%c0, %c0], %f0 {in_bounds = [true, true]} : memref<?x64xf32>, vector<64x64xf32>
        // Two rows of a thread.
        // CHECK-COUNT-2: arith.cmpf olt
        // CHECK-NOT: arith.cmpf
        // CHECK: %[[ANY:.*]] = arith.ori
        // CHECK: scf.if %[[ANY]]
        // CHECK: "st.global.b32 [$0], $1;", "l,r,~{memory}" %{{.*}}, %c1_i32
        %p = arith.cmpf olt, %a, %zero : vector<64xf32>
        hopper.report %p to %reports : vector<64xi1>, memref<?xi32>
        // 32 elements of a thread.
        // CHECK-COUNT-32: arith.cmpf ogt
        // CHECK-COUNT-31: arith.ori
        // CHECK: "st.global.b32 [$0], $1;", "l,r,~{memory}" %{{.*}}, %c1_i32
        %q = arith.cmpf ogt, %b, %zeros : vector<64x64xf32>
        hopper.report %q to %reports : vector<64x64xi1>, memref<?xi32>
      }
    gpu.return
  }
}

// -----

// All threads of a CTA end, unless its flag says otherwise or nobody has written it.
// CHECK-LABEL: gpu.func @again
gpu.module @m {
  gpu.func @again(%out: memref<?xi32>, %reports: memref<?xi32>, %always: i1) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %c7 = arith.constant 7 : i32
    // CHECK: griddepcontrol.wait
    // CHECK: cf.cond_br %arg2, ^[[REST:.*]], ^[[LOOK:.*]]
    // CHECK: ^[[LOOK]]:
    // CHECK: %[[FLAG:.*]] = llvm.inline_asm has_side_effects {{.*}}"ld.global.b32 $0, [$1];"
    // CHECK: %[[HAS:.*]] = arith.cmpi ne, %[[FLAG]], %c0_i32
    // CHECK: cf.cond_br %[[HAS]], ^[[REST]], ^[[END:.*]]
    // CHECK: ^[[END]]:
    // CHECK-NEXT: gpu.return
    // CHECK: ^[[REST]]:
    hopper.redo %reports always %always : memref<?xi32>
    // CHECK: memref.store
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        memref.store %c7, %out[%c0] : memref<?xi32>
      }
    gpu.return
  }
}

// -----

// Each of two warpgroups has a flag, and each of its warps a byte of it, written in any case.
// CHECK-LABEL: gpu.func @warpgroups
gpu.module @m {
  gpu.func @warpgroups(%x: memref<?xf32>, %flags: memref<?xi32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %c0 = arith.constant 0 : index
    %f0 = arith.constant 0.0 : f32
    %zero = arith.constant dense<0.0> : vector<64xf32>
    // CHECK-NOT: st.global
    // CHECK-NOT: gpu.barrier
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        %a = vector.transfer_read %x[%c0], %f0 {in_bounds = [true]} : memref<?xf32>, vector<64xf32>
        %p = arith.cmpf olt, %a, %zero : vector<64xf32>
        // CHECK: %[[ANY:.*]] = nvvm.vote.sync any %{{.*}}, %{{.*}} -> i1
        // CHECK: scf.if
        // CHECK: %[[FIRST:.*]] = arith.muli %{{.*}}, %c2_i32
        // CHECK: %[[NUMBER:.*]] = arith.addi %[[FIRST]], %{{.*}} : i32
        // CHECK: %[[FLAG:.*]] = arith.extui %[[NUMBER]] : i32 to i64
        // CHECK: arith.shli %[[FLAG]], %c2_i64
        // CHECK: %[[BYTE:.*]] = arith.extui %{{.*}} : i32 to i64
        // CHECK: %[[ADDRESS:.*]] = arith.addi %{{.*}}, %[[BYTE]] : i64
        // CHECK: %[[IS:.*]] = arith.extui %[[ANY]] : i1 to i32
        // CHECK: "st.global.b8 [$0], $1;", "l,r,~{memory}" %[[ADDRESS]], %[[IS]]
        hopper.report warpgroups %p to %flags : vector<64xi1>, memref<?xi32>
      }
    gpu.return
  }
}

// -----

// All threads of a CTA look at some of the flags, four flags by a load and eight loads at a time,
// and at one that is left over; then all agree.
// CHECK-LABEL: gpu.func @version
// CHECK-NOT: launch_dependents
gpu.module @m {
  gpu.func @version(%flags: memref<?xi32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    // CHECK: griddepcontrol.wait
    // CHECK: "mov.b32 $0, $3; @$2 ld.global.b32 $0, [$1];"
    // CHECK: scf.for
    // CHECK-COUNT-8: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
    // CHECK: nvvm.barrier {{.*}}or
    // CHECK: cf.cond_br %{{.*}}, ^[[REST:.*]], ^[[END:.*]]
    // CHECK: ^[[END]]:
    // CHECK-NEXT: gpu.return
    hopper.run_if none %flags : memref<?xi32>
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
      }
    gpu.return
  }
}

// -----

// A CTA of several roles with several tiles: the flags are the tile's.
// CHECK-LABEL: gpu.func @tiles
gpu.module @m {
  gpu.func @tiles(%x: memref<?xf32>, %flags: memref<?xi32>, %n: index) kernel attributes {known_block_size = array<i32: 384, 1, 1>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %f0 = arith.constant 0.0 : f32
    %zero = arith.constant dense<0.0> : vector<64xf32>
    // CHECK-NOT: st.global
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
      }
      role "compute" warpgroups(2) registers(240) (%w) {
        // CHECK: scf.for %[[TILE:[a-z0-9]+]] =
        scf.for %t = %c0 to %n step %c1 {
          %a = vector.transfer_read %x[%t], %f0 {in_bounds = [true]} : memref<?xf32>, vector<64xf32>
          %p = arith.cmpf olt, %a, %zero : vector<64xf32>
          // CHECK: %[[NUMBER:.*]] = arith.index_cast %[[TILE]] : index to i32
          // CHECK: %[[FIRST:.*]] = arith.muli %[[NUMBER]], %c2_i32
          // CHECK: %[[OWN:.*]] = arith.addi %{{.*}}, %c-1_i32
          // CHECK: arith.addi %[[FIRST]], %[[OWN]] : i32
          // CHECK: "st.global.b8 [$0], $1;"
          hopper.report warpgroups %p to %flags tile %t : vector<64xi1>, memref<?xi32>
        }
      }
    gpu.return
  }
}

// -----

// What is behind a kernel that ends at once in most calls is launched when that one starts. Its products round for
// themselves.
// CHECK-LABEL: gpu.func @rare
gpu.module @m {
  gpu.func @rare(%flags: memref<?xi32>, %x: memref<?xf32>, %y: memref<?xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %f0 = arith.constant 0.0 : f32
    // CHECK: griddepcontrol.launch_dependents
    // CHECK: griddepcontrol.wait
    hopper.run_if any %flags : memref<?xi32>
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        %a = vector.transfer_read %x[%c0], %f0 {in_bounds = [true]} : memref<?xf32>, vector<64xf32>
        // CHECK: arith.mulf %{{.*}}, %{{.*}} : f32
        %b = arith.mulf %a, %a : vector<64xf32>
        vector.transfer_write %b, %y[%c0] {in_bounds = [true]} : vector<64xf32>, memref<?xf32>
      }
    gpu.return
  }
}
