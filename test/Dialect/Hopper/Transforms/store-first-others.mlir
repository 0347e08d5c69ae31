// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-store-first{least-bytes=0}))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-store-first))" | FileCheck %s --check-prefix=SMALL
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-store-first{least-bytes=0}))" --remarks-filter=hopper-store-first -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}3 [Missed] filled | Category:hopper-store-first{{$}}

!sum = !tile.smem<64x64xf32, swizzle = 128>

// What starts with other values, is read beside, or in tiles that may overlap, is filled.
// CHECK-LABEL: func.func @others(
// CHECK-COUNT-3: vector.transfer_write
// CHECK-NOT: hopper.semaphore.first_touch
// CHECK: return
func.func @others(%n: index, %rows: index, %low: index, %out: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  %zero = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<64x64xf32>
  %ones = arith.constant dense<1.0> : vector<64x64xf32>
  %A = memref.alloc(%rows) : memref<?x64xf32>
  %B = memref.alloc(%rows) : memref<?x64xf32>
  %C = memref.alloc(%rows) : memref<?x64xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(128) (%w) {
        %r = affine.apply affine_map<(d0) -> (d0 * 64)>(%bx)
        vector.transfer_write %ones, %A[%r, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
        vector.transfer_write %zeros, %B[%r, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
        vector.transfer_write %zeros, %C[%r, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        scf.for %q = %c0 to %rows step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          hopper.add %x to %A[%q, %c0] : !sum, memref<?x64xf32>
          hopper.tma.wait pending(0) read
          hopper.release %sums : !hopper.channel<!sum>
        }
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        scf.for %q = %c0 to %rows step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          hopper.add %x to %B[%q, %c0] : !sum, memref<?x64xf32>
          %v = vector.transfer_read %B[%q, %c0], %zero {in_bounds = [false, true]} : memref<?x64xf32>, vector<64x64xf32>
          hopper.tma.wait pending(0) read
          hopper.release %sums : !hopper.channel<!sum>
        }
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        scf.for %q = %low to %rows step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          hopper.add %x to %C[%q, %c0] : !sum, memref<?x64xf32>
          hopper.tma.wait pending(0) read
          hopper.release %sums : !hopper.channel<!sum>
        }
      }
    gpu.terminator
  }
  return
}

// What is taken otherwise: smaller tiles only if asked for.
// CHECK-LABEL: func.func @one(
// CHECK: hopper.semaphore.first_touch
// SMALL-LABEL: func.func @one(
// SMALL: vector.transfer_write
// SMALL-NOT: hopper.semaphore.first_touch
func.func @one(%n: index, %rows: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  %zeros = arith.constant dense<0.0> : vector<64x64xf32>
  %Y = memref.alloc(%rows) : memref<?x64xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(128) (%w) {
        %r = affine.apply affine_map<(d0) -> (d0 * 64)>(%bx)
        vector.transfer_write %zeros, %Y[%r, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %end = affine.max affine_map<()[s0] -> (s0, 0)>()[%rows]
        scf.for %q = %c0 to %end step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          hopper.add %x to %Y[%q, %c0] : !sum, memref<?x64xf32>
          hopper.tma.wait pending(0) read
          hopper.release %sums : !hopper.channel<!sum>
        }
      }
    gpu.terminator
  }
  return
}

// All threads of the role find where the loop ends, and a flag takes one.
// CHECK-LABEL: func.func @bounds_of_all(
// CHECK: vector.transfer_write
// CHECK-NOT: hopper.semaphore.first_touch
func.func @bounds_of_all(%n: index, %rows: index, %ends: memref<?xindex>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  %zeros = arith.constant dense<0.0> : vector<64x64xf32>
  %Y = memref.alloc(%rows) : memref<?x64xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(128) (%w) {
        %r = affine.apply affine_map<(d0) -> (d0 * 64)>(%bx)
        vector.transfer_write %zeros, %Y[%r, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %each = vector.transfer_read %ends[%c0], %c0 : memref<?xindex>, vector<64xindex>
        %end = vector.reduction <maxsi>, %each : vector<64xindex> into index
        scf.for %q = %c0 to %end step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          hopper.add %x to %Y[%q, %c0] : !sum, memref<?x64xf32>
          hopper.tma.wait pending(0) read
          hopper.release %sums : !hopper.channel<!sum>
        }
      }
    gpu.terminator
  }
  return
}

// Zeros that may not be written.
// CHECK-LABEL: func.func @sometimes(
// CHECK: vector.transfer_write
// CHECK-NOT: hopper.semaphore.first_touch
func.func @sometimes(%n: index, %rows: index, %filled: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  %zeros = arith.constant dense<0.0> : vector<64x64xf32>
  %Y = memref.alloc(%rows) : memref<?x64xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(128) (%w) {
        %r = affine.apply affine_map<(d0) -> (d0 * 64)>(%bx)
        scf.if %filled {
          vector.transfer_write %zeros, %Y[%r, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
        }
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %end = affine.max affine_map<()[s0] -> (s0, 0)>()[%rows]
        scf.for %q = %c0 to %end step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          hopper.add %x to %Y[%q, %c0] : !sum, memref<?x64xf32>
          hopper.tma.wait pending(0) read
          hopper.release %sums : !hopper.channel<!sum>
        }
      }
    gpu.terminator
  }
  return
}

// Memory of the caller, who may read it.
// CHECK-LABEL: func.func @of_others(
// CHECK: vector.transfer_write
// CHECK-NOT: hopper.semaphore.first_touch
func.func @of_others(%n: index, %rows: index, %Y: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  %zeros = arith.constant dense<0.0> : vector<64x64xf32>
  %unused = arith.constant 0 : i32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(128) (%w) {
        %r = affine.apply affine_map<(d0) -> (d0 * 64)>(%bx)
        vector.transfer_write %zeros, %Y[%r, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!sum>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        %end = affine.max affine_map<()[s0] -> (s0, 0)>()[%rows]
        scf.for %q = %c0 to %end step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!sum> -> !sum
          hopper.add %x to %Y[%q, %c0] : !sum, memref<?x64xf32>
          hopper.tma.wait pending(0) read
          hopper.release %sums : !hopper.channel<!sum>
        }
      }
    gpu.terminator
  }
  return
}
