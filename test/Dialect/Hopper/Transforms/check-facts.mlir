// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline="builtin.module(func.func(hopper-check-facts))" | FileCheck %s
// RUN: attn-opt %S/order-additions.mlir -split-input-file -pass-pipeline="builtin.module(func.func(hopper-check-facts))" -o /dev/null
// RUN: attn-opt %S/alias-workspace.mlir -pass-pipeline="builtin.module(func.func(hopper-alias-workspace,hopper-check-facts))" -o /dev/null

!sum = !tile.smem<64x128xf32, swizzle = 128>
!tile = !tile.smem<64x128xbf16, swizzle = 128>

// Loops that pass on the same tiles are marked, others are not; the order is read; each role has its tiles.
// CHECK-LABEL: func.func @true
// CHECK-COUNT-3: {hopper.adding}
// CHECK: {hopper.nonempty}
// CHECK: {attn.descending}
func.func @true(%lines: index, %n: index, %Y: memref<?x?x128xf32>, %X: memref<?x?x128xbf16>, %order: memref<?xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 384 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %tiles = hopper.channel depth(1) : !hopper.channel<!tile>
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "load" warpgroups(1) registers(24) (%w) {
        scf.for %q = %c0 to %lines step %c64 {
          hopper.send %X[%c0, %q, %c0] to %tiles : memref<?x?x128xbf16>, !hopper.channel<!tile>
        } {hopper.adding}
      }
      role "add" warpgroups(1) registers(24) (%w) {
        scf.for %q = %c0 to %lines step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          hopper.add %x to %Y[%c0, %q, %c0] : !sum, memref<?x?x128xf32>
          hopper.tma.wait pending(0) read
          hopper.release %sums : !hopper.channel<!sum>
        } {hopper.adding}
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        %p:2 = affine.delinearize_index %bx into (%lines, %n) : index, index
        %entry = memref.load %order[%p#0] : memref<?xi32>
        scf.for %q = %c0 to %lines step %c64 {
          %t = hopper.receive %tiles : !hopper.channel<!tile> -> !tile
          hopper.release %tiles : !hopper.channel<!tile>
          %x = hopper.acquire %sums : !hopper.channel<!sum> -> !sum
          hopper.commit %sums : !hopper.channel<!sum>
        } {hopper.adding}
        scf.for %i = %bx to %lines step %n {
        } {hopper.nonempty}
      }
    gpu.terminator
  } {attn.descending}
  return
}

// -----

!sum = !tile.smem<64x128xf32, swizzle = 128>

func.func @adding(%lines: index, %n: index, %Y: memref<?x?x128xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        // expected-error @+2 {{'hopper.adding' is missing on a loop whose tiles a role adds to memory}}
        // expected-error @+1 {{'hopper.adding' is missing on a loop that passes on the tiles of one that has it}}
        scf.for %q = %c0 to %lines step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          // expected-note @+1 {{added here}}
          hopper.add %x to %Y[%c0, %q, %c0] : !sum, memref<?x?x128xf32>
          hopper.tma.wait pending(0) read
          hopper.release %sums : !hopper.channel<!sum>
        }
        // expected-error @+1 {{'hopper.adding' on a loop of the adding role that adds nothing}}
        scf.for %q = %c0 to %lines step %c64 {
        } {hopper.adding}
      }
      role "compute" warpgroups(1) registers(240) (%w) {
        // expected-note @+1 {{that loop}}
        scf.for %q = %c0 to %lines step %c64 {
          %x = hopper.acquire %sums : !hopper.channel<!sum> -> !sum
          hopper.commit %sums : !hopper.channel<!sum>
        } {hopper.adding}
      }
    gpu.terminator
  }
  return
}

// -----

func.func @adds_nothing(%n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        // expected-error @+2 {{'hopper.adding' in a launch that adds no tiles to memory}}
        // expected-note @+1 {{that loop}}
        scf.for %q = %c0 to %n step %c1 {
          // expected-error @+1 {{'hopper.adding' on a loop inside of another one that has it}}
          scf.for %r = %c0 to %q step %c1 {
          } {hopper.adding}
        } {hopper.adding}
      }
    gpu.terminator
  }
  return
}

// -----

func.func @semaphores(%n: index, %semaphores: memref<?xi32>, %number: i32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %any = arith.constant -1 : i32
  %threads = arith.constant 128 : index
  // Who does not wait needs nobody else.
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        hopper.semaphore.wait %semaphores[%c0], %any : memref<?xi32>
      }
    gpu.terminator
  }
  // expected-error @+1 {{'hopper.cooperative' is missing: CTAs wait for each other}}
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        // expected-note @+1 {{here}}
        hopper.semaphore.wait %semaphores[%c0], %number : memref<?xi32>
      }
    gpu.terminator
  }
  return
}

// -----

func.func @dealt(%n: index, %X: memref<?xindex>) {
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  // expected-error @+1 {{'hopper.dealt' on a launch whose CTAs have the tile of their number}}
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        // expected-note @+1 {{found from the number here}}
        %p:2 = affine.delinearize_index %bx into (%n, 3) : index, index
        memref.store %p#1, %X[%p#0] : memref<?xindex>
      }
    gpu.terminator
  } {hopper.cooperative, hopper.dealt}
  return
}

// -----

func.func @descending(%n: index, %X: memref<?xindex>) {
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  // expected-error @+1 {{'attn.descending' on a launch whose tiles are in no order that was sorted}}
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        // expected-note @+1 {{this number is of no entry of an order}}
        %p:2 = affine.delinearize_index %bx into (%n, 3) : index, index
        memref.store %p#1, %X[%p#0] : memref<?xindex>
      }
    gpu.terminator
  } {attn.descending}
  return
}

// -----

func.func @nonempty(%n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  // expected-error @+1 {{'hopper.nonempty' on a loop outside of a role}}
  scf.for %i = %c0 to %n step %c1 {
  } {hopper.nonempty}
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%w) {
        // expected-note @+1 {{inside of this one}}
        scf.for %i = %bx to %n step %c1 {
          // expected-error @+1 {{'hopper.nonempty' on a loop that is not over the tiles of a CTA}}
          scf.for %j = %c0 to %i step %c1 {
          } {hopper.nonempty}
        }
      }
    gpu.terminator
  }
  return
}

// -----

!tile = !tile.smem<64x64xbf16, swizzle = 128>
!acc = vector<64x64xf32>

func.func @trimmed(%n: index, %k: !tile, %s: !acc) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = arith.constant 256 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(2) registers(240) (%w) {
        // expected-error @+1 {{'hopper.trimmed' on 1 loops with products and 0 that pass on the tiles which these leave out; expected as many}}
        scf.for %i = %c0 to %w step %c1 {
          %a = tile.mma %k, %k, %s transposeB : !tile, !tile, !acc
        } {hopper.trimmed}
        scf.for %i = %w to %n step %c1 {
        }
      }
    gpu.terminator
  }
  return
}

// -----

func.func @within(%out: memref<?xf32>, %n: index, %x: f32) {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{may lie in argument 1, which is no memory}}
  %none = memref.alloc(%n) {hopper.aliases = 1 : index} : memref<?xf32>
  // expected-error @+1 {{'hopper.aliases' on memory that is needed when its argument is accessed}}
  %m = memref.alloc(%n) {hopper.aliases = 0 : index} : memref<?xf32>
  // expected-note @+1 {{accessed here}}
  memref.store %x, %out[%c0] : memref<?xf32>
  memref.store %x, %m[%c0] : memref<?xf32>
  return
}

// -----

func.func @grid(%n: index, %counter: memref<1xi32>) {
  %c1 = arith.constant 1 : index
  %threads = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.threads
    hopper.grid.sync %counter : memref<1xi32>
    gpu.terminator
  } {hopper.cooperative}
  // expected-error @+1 {{'hopper.cooperative' is missing: CTAs wait for each other}}
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.threads
    // expected-note @+1 {{here}}
    hopper.grid.sync %counter : memref<1xi32>
    gpu.terminator
  }
  return
}
