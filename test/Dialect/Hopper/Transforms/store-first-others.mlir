// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-store-first{least-bytes=0}))" | FileCheck %s

!sum = !hopper.smem<64x64xf32, swizzle = 128>

// What starts with other values, is read beside, or in tiles that may overlap, is filled.
// CHECK-LABEL: func.func @others(
// CHECK-COUNT-3: vector.transfer_write
// CHECK-NOT: hopper.turn.claim
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
