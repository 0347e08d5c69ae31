// RUN: attn-opt %s -split-input-file -verify-diagnostics
// What the hardware would refuse.

func.func @m(%a: !tile.smem<128x64xbf16, swizzle = 128>, %b: !tile.smem<64x64xbf16, swizzle = 128>) {
  // expected-error @+1 {{expects a result of 64 rows of f32}}
  %0 = hopper.wgmma %a, %b : (!tile.smem<128x64xbf16, swizzle = 128>, !tile.smem<64x64xbf16, swizzle = 128>) -> !hopper.pending<vector<128x64xf32>>
  return
}

// -----

func.func @registers() {
  // expected-error @+1 {{role "a": registers are a multiple of 8 between 24 and 256, got 20}}
  hopper.roles role "a" warpgroups(1) registers(20) (%w) {}
  return
}

// -----

func.func @no_warpgroup() {
  // expected-error @+1 {{role "a" has no warpgroup}}
  hopper.roles role "a" warpgroups(0) registers(24) (%w) {}
  return
}

// -----

func.func @beside_two() {
  // expected-error @+1 {{role "b": expected a warpgroup before it with a warp to spare, and its number of registers}}
  hopper.roles role "a" warpgroups(2) registers(24) (%w) {} role "b" warpgroups(0) registers(24) (%w) {}
  return
}

// -----

func.func @other_registers() {
  // expected-error @+1 {{role "b": expected a warpgroup before it with a warp to spare, and its number of registers}}
  hopper.roles role "a" warpgroups(1) registers(24) (%w) {} role "b" warpgroups(0) registers(32) (%w) {}
  return
}

// -----

func.func @narrow_semaphores(%semaphores: memref<?xi16>, %i: index, %n: i32) {
  // expected-error @+1 {{operand #0 must be memref of 32-bit signless integer values}}
  hopper.semaphore.release %semaphores[%i], %n : memref<?xi16>
  return
}

// -----

func.func @semaphores_of_rows(%semaphores: memref<?x64xi32>, %i: index) {
  // expected-error @+1 {{expects 2 indices for 'memref<?x64xi32>'}}
  %seen = hopper.semaphore.peek %semaphores[%i] : memref<?x64xi32>
  return
}

// -----

!t = !tile.smem<64x64xbf16, swizzle = 128>
func.func @add_float16(%t: !t, %Y: memref<?x64xbf16>, %i: index) {
  // expected-error @+1 {{adds in f32 only: a sum of 16-bit values depends on the order too much}}
  hopper.add %t to %Y[%i, %i] : !t, memref<?x64xbf16>
  return
}

// -----

!t = !tile.smem<64x64xf32, swizzle = 128>
func.func @add_indices(%t: !t, %Y: memref<?x64xf32>, %i: index) {
  // expected-error @+1 {{expects 2 indices, got 1}}
  hopper.add %t to %Y[%i] : !t, memref<?x64xf32>
  return
}

// -----

func.func @too_many() {
  // expected-error @+1 {{the roles ask for 77824 registers, a CTA has 65536}}
  hopper.roles role "a" warpgroups(2) registers(256) (%w) {} role "b" warpgroups(1) registers(96) (%w) {}
  return
}

// -----

func.func @too_many_to_share() {
  // expected-error @+1 {{the roles ask for 65536 registers, the 64512 that 384 threads start with are all that they can share: who asks last waits forever}}
  hopper.roles role "a" warpgroups(1) registers(32) (%w) {} role "b" warpgroups(2) registers(240) (%w) {}
  return
}

// -----

func.func @barrier() {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{named barriers are 1 to 15, got 0}}
  hopper.barrier.sync %c0 warpgroups(1)
  return
}

// -----

func.func @reduce(%t: !tile.smem<64x64xbf16, swizzle = 128>, %m: !hopper.tensor_map<!tile.smem<64x64xbf16, swizzle = 128>, rank = 2>, %i: index) {
  // expected-error @+1 {{adds in f32 only}}
  hopper.tma.reduce %t to %m[%i, %i] : !tile.smem<64x64xbf16, swizzle = 128>, !hopper.tensor_map<!tile.smem<64x64xbf16, swizzle = 128>, rank = 2>
  return
}

// -----

func.func @agree(%keep: vector<64x64xi1>) {
  %c16 = arith.constant 16 : index
  // expected-error @+1 {{named barriers are 1 to 15, got 16}}
  %0 = hopper.barrier.reduce any %keep, %c16 warpgroups(1) : vector<64x64xi1>
  return
}

// -----

func.func @parts() {
  // expected-error @+1 {{tiles of 64 rows have no 3 parts of a multiple of 8 rows}}
  %0 = hopper.channel depth(1) multicast(3) : !hopper.channel<!tile.smem<64x64xbf16, swizzle = 128>>
  return
}

// -----

func.func @run_if(%flags: memref<?xi32>) {
  hopper.roles role "a" warpgroups(1) registers(24) (%w) {
    // expected-error @+1 {{expects to be in front of the roles: all warpgroups of a CTA end}}
    hopper.run_if none %flags : memref<?xi32>
  }
  return
}

// -----

func.func @report(%flags: memref<?xi32>, %is: vector<64xi1>) {
  hopper.roles role "a" warpgroups(1) registers(24) (%w) {
  } role "b" warpgroups(1) registers(24) (%w) {
    // expected-error @+1 {{expects one role: a flag for each warpgroup is one for those that compute}}
    hopper.report warpgroups %is to %flags : vector<64xi1>, memref<?xi32>
  }
  return
}

// -----

func.func @report_sometimes(%flags: memref<?xi32>, %is: vector<64xi1>, %some: i1) {
  hopper.roles role "a" warpgroups(1) registers(24) (%w) {
    scf.if %some {
      // expected-error @+1 {{expects to be in no loop or branch: the flag is written once}}
      hopper.report warpgroups %is to %flags : vector<64xi1>, memref<?xi32>
    }
  }
  return
}

// -----

func.func @report_tile(%flags: memref<?xi32>, %is: vector<64xi1>, %t: index) {
  hopper.roles role "a" warpgroups(1) registers(24) (%w) {
    // expected-error @+1 {{expects `warpgroups` with a tile}}
    hopper.report %is to %flags tile %t : vector<64xi1>, memref<?xi32>
  }
  return
}

// -----

func.func @redo(%reports: memref<?xi32>, %always: i1) {
  hopper.roles role "a" warpgroups(1) registers(24) (%w) {
    // expected-error @+1 {{expects to be in front of the roles: all warpgroups of a CTA end}}
    hopper.redo %reports always %always : memref<?xi32>
  }
  return
}

// -----

!t = !tile.smem<64x32xbf16, swizzle = 64>
func.func @narrow_rows(%X: memref<?x32xbf16>, %m: memref<?xbf16>, %c: !hopper.channel<!t>, %i: index, %some: i1) {
  // expected-error @+1 {{rows of 128 bytes can be copied one by one, those of '!tile.smem<64x32xbf16, swizzle = 64>' cannot}}
  hopper.send %X[%i, %i] without(%m, %m : memref<?xbf16>, memref<?xbf16>) if %some to %c : memref<?x32xbf16>, !hopper.channel<!t>
  return
}

// -----

!t = !tile.smem<64x64xbf16, swizzle = 128>
func.func @marks_rank(%X: memref<?x64xbf16>, %m: memref<?x?xbf16>, %c: !hopper.channel<!t>, %i: index, %some: i1) {
  // expected-error @+1 {{expects marks of rank 1, got 'memref<?x?xbf16>'}}
  hopper.send %X[%i, %i] without(%m, %m : memref<?x?xbf16>, memref<?x?xbf16>) if %some to %c : memref<?x64xbf16>, !hopper.channel<!t>
  return
}

// -----

!t = !tile.smem<64x64xbf16, swizzle = 128>
func.func @marks_type(%X: memref<?x64xbf16>, %m: memref<?xi32>, %c: !hopper.channel<!t>, %i: index, %some: i1) {
  // expected-error @+1 {{expects marks of 16 bits, got 'memref<?xi32>'}}
  hopper.send %X[%i, %i] without(%m, %m : memref<?xi32>, memref<?xi32>) if %some to %c : memref<?x64xbf16>, !hopper.channel<!t>
  return
}

// -----

!t = !tile.smem<64x64xbf16, swizzle = 128>
!map = !hopper.tensor_map<!t, rank = 2>
func.func @row_map(%map: !map, %t: !t, %bar: !hopper.mbarrier<1>, %m: memref<?xbf16>, %i: index, %some: i1) {
  // expected-error @+1 {{expects a map of rank 2 for tiles '!tile.smem<1x64xbf16, swizzle = 128>', got}}
  hopper.tma.load %map[%i, %i] without(%m, %m, %map : memref<?xbf16>, memref<?xbf16>, !map) if %some to %t, %bar[%i] : !map, !t, !hopper.mbarrier<1>
  return
}

// -----

!t = !tile.smem<64x64xbf16, swizzle = 128>
!map = !hopper.tensor_map<!t, rank = 2>
!row = !hopper.tensor_map<!tile.smem<1x64xbf16, swizzle = 128>, rank = 2>
func.func @shared_rows(%map: !map, %row: !row, %t: !t, %bar: !hopper.mbarrier<1>, %m: memref<?xbf16>, %i: index, %some: i1) {
  // expected-error @+1 {{cannot drop rows of what all CTAs of a cluster get}}
  hopper.tma.load %map[%i, %i] without(%m, %m, %row : memref<?xbf16>, memref<?xbf16>, !row) if %some to %t, %bar[%i] multicast : !map, !t, !hopper.mbarrier<1>
  return
}

// -----

!t = !tile.smem<64x64xbf16, swizzle = 128>
func.func @sent_to_all(%X: memref<?x64xbf16>, %m: memref<?xbf16>, %n: index, %some: i1) {
  %c1 = arith.constant 1 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %n, %sy = %c1, %sz = %c1) {
    %c = hopper.channel depth(1) multicast(2) : !hopper.channel<!t>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        // expected-error @+1 {{cannot drop rows of what all CTAs of a cluster get}}
        hopper.send %X[%n, %n] without(%m, %m : memref<?xbf16>, memref<?xbf16>) if %some to %c : memref<?x64xbf16>, !hopper.channel<!t>
      }
    gpu.terminator
  }
  return
}

// -----

func.func @barriers() {
  // expected-error @+1 {{attribute 'count' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive whose maximum value is 15}}
  %0 = hopper.named_barriers count(16)
  return
}

// -----

func.func @threads() {
  // expected-error @below {{expected to be in a launch or a kernel}}
  hopper.threads
  return
}

// -----

func.func @roles(%n: index) {
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %n, %gz = %n)
             threads(%tx, %ty, %tz) in (%sx = %n, %sy = %n, %sz = %n) {
    // expected-error @below {{is of code without roles}}
    hopper.threads
    // expected-note @below {{the roles of warpgroups}}
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
      }
    gpu.terminator
  }
  return
}

// -----

func.func @remote(%x: memref<4xf32>, %i: index) {
  // expected-error @below {{expected shared memory of static shape, got 'memref<4xf32>'}}
  %0 = hopper.remote.load %x[%i] of %i : memref<4xf32>
  return
}

// -----

func.func @grid(%counter: memref<2xi32>) {
  // expected-error @below {{expected a counter of one element, got 'memref<2xi32>'}}
  hopper.grid.sync %counter : memref<2xi32>
  return
}

// -----

func.func @strides(%K: memref<?x60xbf16, strided<[60, 1]>>) {
  // expected-error @+1 {{TMA needs strides that are multiples of 16 bytes}}
  %0 = hopper.tensor_map %K : memref<?x60xbf16, strided<[60, 1]>> -> !hopper.tensor_map<!tile.smem<64x64xbf16, swizzle = 128>, rank = 2>
  return
}

// -----

func.func @innermost(%K: memref<?x?xbf16, strided<[?, ?]>>) {
  // expected-error @+1 {{TMA needs a unit innermost stride}}
  %0 = hopper.tensor_map %K : memref<?x?xbf16, strided<[?, ?]>> -> !hopper.tensor_map<!tile.smem<64x64xbf16, swizzle = 128>, rank = 2>
  return
}

// -----

func.func @many_dimensions(%K: memref<?x?x?x?x?x64xbf16>) {
  // expected-error @+1 {{TMA walks tensors of rank 1 to 5}}
  %0 = hopper.tensor_map %K : memref<?x?x?x?x?x64xbf16> -> !hopper.tensor_map<!tile.smem<64x64xbf16, swizzle = 128>, rank = 6>
  return
}

// -----

func.func @box(%K: memref<?x64xbf16>) {
  // expected-error @+1 {{a box of TMA has at most 256 rows, got 264}}
  %0 = hopper.tensor_map %K : memref<?x64xbf16> -> !hopper.tensor_map<!tile.smem<264x64xbf16, swizzle = 128>, rank = 2>
  return
}
