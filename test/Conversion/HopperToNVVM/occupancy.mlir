// RUN: attn-opt %s --pass-pipeline='builtin.module(gpu.module(convert-hopper-to-nvvm))' | FileCheck %s
// RUN: attn-opt %s --attn-cuda-codegen | FileCheck %s --check-prefix=PTX

// Two CTAs with (24 + 2 x 104) x 128 of 65536 registers share a multiprocessor: the 384 threads of
// each start with 80.
// A kernel with several roles waits by itself for the launches before it, however many blocks it has.
// CHECK-LABEL: gpu.func @shared
// CHECK-SAME:    hopper.early = 2147483647 : i64
// CHECK-SAME:    hopper.occupancy = 2
// CHECK:         nvvm.setmaxregister decrease 24
// CHECK:         nvvm.setmaxregister increase 104
// PTX-LABEL: .entry shared
// PTX:       .maxntid 384, 1, 1
// PTX:       .minnctapersm 2
// PTX:       griddepcontrol.wait;
gpu.module @two {
  gpu.func @shared(%x: memref<128xf32>) kernel attributes {known_block_size = array<i32: 384, 1, 1>} {
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
      }
      role "compute" warpgroups(2) registers(104) (%w) {
        hopper.barrier.sync %w warpgroups(2)
      }
    gpu.return
  }
}

// One that needs more than half of them is alone.
// CHECK-LABEL: gpu.func @alone
// CHECK-SAME:    hopper.occupancy = 1
// PTX-LABEL: .entry alone
// PTX:       .minnctapersm 1
gpu.module @one {
  gpu.func @alone(%x: memref<128xf32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        hopper.barrier.sync %w warpgroups(1)
      }
    gpu.return
  }
}

// One role has its registers, too: as many CTAs as its registers and its threads leave room for.
// With a CTA for each of many tiles, the wait would cost more than it hides.
// CHECK-LABEL: gpu.func @half
// CHECK-SAME:    hopper.early = 512 : i64
// CHECK-SAME:    hopper.occupancy = 2
// PTX-LABEL: .entry half
// PTX:       .minnctapersm 2
// PTX:       griddepcontrol.wait;
gpu.module @single {
  gpu.func @half(%x: memref<128xf32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    hopper.roles
      role "compute" warpgroups(2) registers(128) (%w) {
        hopper.barrier.sync %w warpgroups(2)
      }
    gpu.return
  }
}

// CHECK-LABEL: gpu.func @small
// CHECK-SAME:    hopper.occupancy = 16
// PTX-LABEL: .entry small
// PTX:       .minnctapersm 16
gpu.module @threads {
  gpu.func @small(%x: memref<128xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    hopper.roles
      role "compute" warpgroups(1) registers(24) (%w) {
        hopper.barrier.sync %w warpgroups(1)
      }
    gpu.return
  }
}
