// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline="builtin.module(func.func(hopper-order-additions{ctas=7},canonicalize,cse))" | FileCheck %s
// RUN: not attn-opt %s -split-input-file -pass-pipeline="builtin.module(func.func(hopper-order-additions{ctas=7},canonicalize,cse))" --remarks-filter=hopper-order-additions -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}2 [Passed] ordered | Category:hopper-order-additions{{$}}

!sum = !tile.smem<64x128xf32, swizzle = 128>

// A flag for each 64 rows of the sum, zero at first. Gangs of %n CTAs, as many as seven have room for.
// A CTA starts at its part of the loop, and goes around; the iteration before looks whether the
// tile in front has released the semaphore.
// CHECK-LABEL: func.func @even(
// CHECK-SAME: %[[LINES:[a-z0-9]*]]: index, %[[N:[a-z0-9]*]]: index, %{{.*}}: index, %[[Y:[a-z0-9]*]]: memref
// CHECK: %[[SIZE:.*]] = arith.maxsi %[[N]], %c1
// CHECK: %[[FIT:.*]] = arith.divui %c7, %[[SIZE]]
// CHECK: %[[SOME:.*]] = arith.maxsi %[[FIT]], %c1
// CHECK: %[[GANGS:.*]] = arith.minsi %[[SOME]], %[[LINES]]
// CHECK: %[[GRID:.*]] = arith.select %{{.*}}, %{{.*}}, %c0
// CHECK: %[[MEMORY:.*]] = memref.alloc(%{{.*}}) : memref<?xi32>
// CHECK: %[[SEMAPHORES:.*]] = memref.reinterpret_cast
// CHECK: gpu.launch
// CHECK: vector.transfer_write %{{.*}}, %[[MEMORY]][
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %[[GRID]],
// CHECK: role "add"
// CHECK: scf.for %[[ROUND:.*]] = %c0
// CHECK: %[[FIRSTEND:.*]] = arith.subi %[[SPAN:.*]], %[[START:.*]] : i32
// CHECK: scf.for %[[I:.*]] = %c0 to %{{.*}} step %c64 iter_args(%[[Q:.*]] = %{{.*}}, %[[BEFORE:.*]] = %{{.*}}, %[[SEEN:.*]] = %c0_i32)
// CHECK-DAG: %[[ROW:.*]] = arith.index_cast %[[Q]]
// CHECK-DAG: %[[FLAG:.*]] = arith.divui %[[Q]], %c64_i32
// CHECK-DAG: %[[INDEX:.*]] = arith.index_cast %[[FLAG]]
// CHECK-DAG: %[[MISSING:.*]] = arith.cmpi ne, %[[SEEN]], %[[BEFORE]]
// CHECK: %[[NUMBER:.*]] = arith.select %{{.*}}, %[[BEFORE]], %c-1_i32
// CHECK: hopper.semaphore.wait %[[SEMAPHORES]][%{{.*}}, %[[INDEX]]], %[[NUMBER]]
// CHECK-NEXT: hopper.receive
// CHECK-NEXT: hopper.add %{{.*}} to %[[Y]][%{{.*}}, %[[ROW]], %c0]
// CHECK: %[[NEXT:.*]] = hopper.semaphore.peek
// CHECK-NEXT: hopper.tma.wait pending(0) read
// CHECK-NEXT: hopper.release
// CHECK-NEXT: hopper.tma.wait pending(0){{$}}
// CHECK-NEXT: hopper.semaphore.release %[[SEMAPHORES]][%{{.*}}, %[[INDEX]]]
// CHECK: scf.yield %{{.*}}, %{{.*}}, %[[NEXT]]
// The same order in the other role.
// CHECK: role "compute"
// CHECK: scf.for %[[I:.*]] = %c0 to %{{.*}} step %c64 {
// CHECK: %[[WIDE:.*]] = arith.index_cast %[[I]]
// CHECK: %[[ISFIRST:.*]] = arith.cmpi slt, %[[WIDE]], %{{.*}}
// CHECK: %[[OFFSET:.*]] = arith.select %[[ISFIRST]]
// CHECK: %[[VALUE:.*]] = arith.addi %[[OFFSET]], %[[WIDE]]
// CHECK: %[[PLACE:.*]] = arith.index_cast %[[VALUE]]
// CHECK: memref.store %{{.*}}[%[[PLACE]]]
// CHECK: {hopper.cooperative, hopper.dealt}
func.func @even(%lines: index, %n: index, %rows: index, %Y: memref<?x?x128xf32>, %X: memref<?xindex>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 256 : index
  %tiles = arith.muli %lines, %n : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %tiles, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %p:2 = affine.delinearize_index %bx into (%lines, %n) : index, index
        scf.for %q = %c0 to %rows step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          hopper.add %x to %Y[%p#0, %q, %c0] : !sum, memref<?x?x128xf32>
          hopper.tma.wait pending(0) read
          hopper.release %sums : !hopper.channel<!sum>
        } {hopper.adding}
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %p:2 = affine.delinearize_index %bx into (%lines, %n) : index, index
        scf.for %q = %c0 to %rows step %c64 {
          %x = hopper.acquire %sums : !hopper.channel<!sum> -> !sum
          memref.store %p#0, %X[%q] : memref<?xindex>
          hopper.commit %sums : !hopper.channel<!sum>
        } {hopper.adding}
      }
    gpu.terminator
  }
  return
}

// -----

!sum = !tile.smem<64x128xf32, swizzle = 128>

// The loop starts later for later tiles: two for each CTA, the second one from the other end of
// the line, and from the end of the loop.
// CHECK-LABEL: func.func @growing
// CHECK: %[[LAST:.*]] = arith.addi %{{.*}}, %c1
// CHECK: %[[HALF:.*]] = arith.divui %[[LAST]], %c2
// CHECK: role "add"
// CHECK: scf.for %[[ROUND:.*]] = %c0
// CHECK: %[[ODD:.*]] = arith.andi %{{.*}}, %c1_i32
// CHECK: %[[SECOND:.*]] = arith.cmpi sgt, %[[ODD]], %c0_i32
// CHECK: %[[TILE:.*]] = arith.select %[[SECOND]]
// CHECK: arith.select %[[SECOND]], %c-1_i32, %c1_i32
// CHECK: hopper.semaphore.wait
// CHECK: hopper.semaphore.release
func.func @growing(%n: index, %rows: index, %Y: memref<?x?x128xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %p:2 = affine.delinearize_index %bx into (1, %n) : index, index
        %low = affine.apply affine_map<(d0) -> (d0 * 128)>(%p#1)
        scf.for %q = %low to %rows step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          hopper.add %x to %Y[%p#0, %q, %c0] : !sum, memref<?x?x128xf32>
          hopper.tma.wait pending(0) read
          hopper.release %sums : !hopper.channel<!sum>
        } {hopper.adding}
      }
    gpu.terminator
  }
  return
}

// -----

!sum = !tile.smem<64x128xf32, swizzle = 128>

// Both bounds change.
func.func @window(%n: index, %rows: index, %Y: memref<?x?x128xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 64 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %p:2 = affine.delinearize_index %bx into (1, %n) : index, index
        %low = affine.apply affine_map<(d0) -> (d0 * 128)>(%p#1)
        %high = affine.min affine_map<(d0)[s0] -> (s0, d0 * 128 + 512)>(%p#1)[%rows]
        // expected-note @below {{see here}}
        scf.for %q = %low to %high step %step {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          // expected-error @below {{depends on the order of their additions to the same elements: the bounds neither stay from tile to tile}}
          hopper.add %x to %Y[%p#0, %q, %c0] : !sum, memref<?x?x128xf32>
          hopper.release %sums : !hopper.channel<!sum>
        } {hopper.adding}
      }
    gpu.terminator
  }
  return
}

// -----

!sum = !tile.smem<64x128xf32, swizzle = 128>

// The start falls.
func.func @falling(%n: index, %rows: index, %Y: memref<?x?x128xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 64 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %p:2 = affine.delinearize_index %bx into (1, %n) : index, index
        %low = affine.apply affine_map<(d0) -> (d0 * -128 + 4096)>(%p#1)
        %high = affine.min affine_map<(d0)[s0] -> (s0)>(%p#1)[%rows]
        // expected-note @below {{see here}}
        scf.for %q = %low to %high step %step {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          // expected-error @below {{the bounds neither stay from tile to tile}}
          hopper.add %x to %Y[%p#0, %q, %c0] : !sum, memref<?x?x128xf32>
          hopper.release %sums : !hopper.channel<!sum>
        } {hopper.adding}
      }
    gpu.terminator
  }
  return
}

// -----

!sum = !tile.smem<64x128xf32, swizzle = 128>

// Tiles that do not start at multiples of the step share elements with two others.
func.func @odd(%n: index, %rows: index, %Y: memref<?x?x128xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 64 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %p:2 = affine.delinearize_index %bx into (1, %n) : index, index
        %low = affine.apply affine_map<(d0) -> (d0 * 100)>(%p#1)
        %high = affine.min affine_map<(d0)[s0] -> (s0)>(%p#1)[%rows]
        // expected-note @below {{see here}}
        scf.for %q = %low to %high step %step {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          // expected-error @below {{it does not start at a multiple of a constant step}}
          hopper.add %x to %Y[%p#0, %q, %c0] : !sum, memref<?x?x128xf32>
          hopper.release %sums : !hopper.channel<!sum>
        } {hopper.adding}
      }
    gpu.terminator
  }
  return
}

// -----

!sum = !tile.smem<64x128xf32, swizzle = 128>

// Nor do those that are larger than a step.
func.func @overlapping(%n: index, %rows: index, %Y: memref<?x?x128xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant 32 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %p:2 = affine.delinearize_index %bx into (1, %n) : index, index
        %low = affine.apply affine_map<(d0) -> (d0 * 32)>(%p#1)
        %high = affine.min affine_map<(d0)[s0] -> (s0)>(%p#1)[%rows]
        // expected-note @below {{see here}}
        scf.for %q = %low to %high step %step {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          // expected-error @below {{its variable is not the first row, or steps overlap}}
          hopper.add %x to %Y[%p#0, %q, %c0] : !sum, memref<?x?x128xf32>
          hopper.release %sums : !hopper.channel<!sum>
        } {hopper.adding}
      }
    gpu.terminator
  }
  return
}

// -----

!sum = !tile.smem<64x128xf32, swizzle = 128>

// All lines add to the same rows.
func.func @lines(%lines: index, %n: index, %rows: index, %Y: memref<?x128xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        // expected-note @below {{see here}}
        %p:2 = affine.delinearize_index %bx into (%lines, %n) : index, index
        scf.for %q = %c0 to %rows step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          // expected-error @below {{not all coordinates but the last one of a tile are indices of what it adds to}}
          hopper.add %x to %Y[%q, %c0] : !sum, memref<?x128xf32>
          hopper.release %sums : !hopper.channel<!sum>
        } {hopper.adding}
      }
    gpu.terminator
  }
  return
}

// -----

func.func @threads(%n: index, %Y: memref<?x64xf32>, %v: vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        // expected-error @below {{cannot be ordered: each warpgroup adds on its own}}
        attn.tile_add %v into %Y[%c0, %c0] : vector<64x64xf32>, memref<?x64xf32>
      }
    gpu.terminator
  }
  return
}

// -----

!sum = !tile.smem<64x128xf32, swizzle = 128>

// All threads of the role find where the loop ends.
func.func @bounds_of_all(%n: index, %ends: memref<?xindex>, %Y: memref<?x?x128xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    // expected-note @below {{see here}}
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %p:2 = affine.delinearize_index %bx into (1, %n) : index, index
        %each = vector.transfer_read %ends[%c0], %c0 : memref<?xindex>, vector<64xindex>
        %end = vector.reduction <maxsi>, %each : vector<64xindex> into index
        scf.for %q = %c0 to %end step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          // expected-error @below {{several threads of its role find the bounds of its loop, and a semaphore takes one}}
          hopper.add %x to %Y[%p#0, %q, %c0] : !sum, memref<?x?x128xf32>
          hopper.release %sums : !hopper.channel<!sum>
        } {hopper.adding}
      }
    gpu.terminator
  }
  return
}

// -----

!sum = !tile.smem<64x128xf32, swizzle = 128>

// Flags at which hopper-store-first has looked an iteration before.
func.func @seen_before(%n: index, %rows: index, %Y: memref<?x?x128xf32>, %flags: memref<?xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %i0 = arith.constant 0 : i32
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %p:2 = affine.delinearize_index %bx into (1, %n) : index, index
        // expected-note @below {{see here}}
        %last = scf.for %q = %c0 to %rows step %c64 iter_args(%seen = %i0) -> i32 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          %first = hopper.semaphore.first_touch %flags[%q], %seen : memref<?xi32>
          // expected-error @below {{what its first touch has seen is of another iteration}}
          hopper.add %x to %Y[%p#0, %q, %c0] first(%first) : !sum, memref<?x?x128xf32>
          %next = hopper.semaphore.peek %flags[%q] : memref<?xi32>
          hopper.release %sums : !hopper.channel<!sum>
          scf.yield %next : i32
        } {hopper.adding}
      }
    gpu.terminator
  }
  return
}
