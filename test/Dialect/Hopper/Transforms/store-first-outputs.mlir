// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-store-first{least-bytes=0},canonicalize,cse))" | FileCheck %s

!wide = !hopper.smem<64x128xf32, swizzle = 128>

// The words are the first elements of every 64th row of what is computed from the sum; the
// threads that read 64 rows wait for each other before they write them.
// CHECK-LABEL: func.func @output(
// CHECK-SAME: %[[ROWS:[a-z0-9]*]]: index, %[[OUT:[a-z0-9]*]]: memref
// CHECK: %[[VIEW:.*]] = memref.reinterpret_cast %[[OUT]] to offset: [%{{.*}}], sizes: [%[[ROWS]], 128], strides: [%[[STRIDE:.*]], 1]
// CHECK-NOT: memref.alloc({{.*}}xbf16
// CHECK: %[[PIECES:.*]] = arith.divui
// CHECK: %[[APART:.*]] = arith.muli %{{.*}}, %c64
// CHECK: %[[WORDS:.*]] = memref.reinterpret_cast {{.*}} sizes: [%[[PIECES]]], strides: [%[[APART]]] {{.*}} to memref<?xbf16, strided<[?], offset: ?>>
// CHECK: gpu.launch
// CHECK: memref.store %[[ZERO:.*]], %[[WORDS]][%{{.*}}] : memref<?xbf16
// CHECK-NEXT: memref.store %[[ZERO]], %[[VIEW]][%{{.*}}, %c1]
// CHECK: hopper.turn.claim %[[WORDS]]
// CHECK: gpu.launch
// CHECK: %[[WORD:.*]] = memref.load %[[WORDS]]
// CHECK: arith.bitcast %[[WORD]] : bf16 to i16
// CHECK: hopper.barrier.sync %{{.*}} warpgroups(1)
// CHECK-NEXT: vector.transfer_write %{{.*}}, %[[VIEW]]

// Not where it holds something else before.
// CHECK-LABEL: func.func @taken(
// CHECK: memref.alloc({{.*}}) : memref<?xbf16>
// CHECK-NOT: hopper.barrier.sync
// CHECK: return
func.func @output(%n: index, %rows: index, %out: memref<?x128xbf16, strided<[?, 1], offset: ?>>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  %zero = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<64x128xf32>
  %base, %offset, %sizes:2, %strides:2 = memref.extract_strided_metadata %out : memref<?x128xbf16, strided<[?, 1], offset: ?>> -> memref<bf16>, index, index, index, index, index
  %view = memref.reinterpret_cast %out to offset: [%offset], sizes: [%rows, 128], strides: [%strides#0, 1] : memref<?x128xbf16, strided<[?, 1], offset: ?>> to memref<?x128xbf16, strided<[?, 1], offset: ?>>
  %Y = memref.alloc(%rows) : memref<?x128xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(128) (%w) {
        %r = affine.apply affine_map<(d0) -> (d0 * 64)>(%bx)
        vector.transfer_write %zeros, %Y[%r, %c0] {in_bounds = [false, true]} : vector<64x128xf32>, memref<?x128xf32>
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!wide>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        scf.for %q = %c0 to %rows step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!wide> -> !wide
          hopper.add %x to %Y[%q, %c0] : !wide, memref<?x128xf32>
          hopper.tma.wait pending(0) read
          hopper.release %sums : !hopper.channel<!wide>
        }
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(128) (%w) {
        %r = affine.apply affine_map<(d0) -> (d0 * 64)>(%bx)
        %v = vector.transfer_read %Y[%r, %c0], %zero {in_bounds = [false, true]} : memref<?x128xf32>, vector<64x128xf32>
        %t = arith.truncf %v : vector<64x128xf32> to vector<64x128xbf16>
        vector.transfer_write %t, %view[%r, %c0] {in_bounds = [false, true]} : vector<64x128xbf16>, memref<?x128xbf16, strided<[?, 1], offset: ?>>
      }
    gpu.terminator
  }
  memref.dealloc %Y : memref<?x128xf32>
  return
}
func.func @taken(%n: index, %rows: index, %out: memref<?x128xbf16, strided<[?, 1], offset: ?>>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %threads = arith.constant 128 : index
  %zero = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<64x128xf32>
  %base, %offset, %sizes:2, %strides:2 = memref.extract_strided_metadata %out : memref<?x128xbf16, strided<[?, 1], offset: ?>> -> memref<bf16>, index, index, index, index, index
  %view = memref.reinterpret_cast %out to offset: [%offset], sizes: [%rows, 128], strides: [%strides#0, 1] : memref<?x128xbf16, strided<[?, 1], offset: ?>> to memref<?x128xbf16, strided<[?, 1], offset: ?>>
  %Y = memref.alloc(%rows) : memref<?x128xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(128) (%w) {
        %r = affine.apply affine_map<(d0) -> (d0 * 64)>(%bx)
        vector.transfer_write %zeros, %Y[%r, %c0] {in_bounds = [false, true]} : vector<64x128xf32>, memref<?x128xf32>
        %ones = arith.constant dense<1.0> : vector<64x128xbf16>
        vector.transfer_write %ones, %view[%r, %c0] {in_bounds = [false, true]} : vector<64x128xbf16>, memref<?x128xbf16, strided<[?, 1], offset: ?>>
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    %sums = hopper.channel depth(1) : !hopper.channel<!wide>
    hopper.roles
      role "add" warpgroups(1) registers(24) (%w) {
        scf.for %q = %c0 to %rows step %c64 {
          %x = hopper.receive %sums : !hopper.channel<!wide> -> !wide
          hopper.add %x to %Y[%q, %c0] : !wide, memref<?x128xf32>
          hopper.tma.wait pending(0) read
          hopper.release %sums : !hopper.channel<!wide>
        }
      }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %threads, %sy = %c1, %sz = %c1) {
    hopper.roles
      role "compute" warpgroups(1) registers(128) (%w) {
        %r = affine.apply affine_map<(d0) -> (d0 * 64)>(%bx)
        %v = vector.transfer_read %Y[%r, %c0], %zero {in_bounds = [false, true]} : memref<?x128xf32>, vector<64x128xf32>
        %t = arith.truncf %v : vector<64x128xf32> to vector<64x128xbf16>
        vector.transfer_write %t, %view[%r, %c0] {in_bounds = [false, true]} : vector<64x128xbf16>, memref<?x128xbf16, strided<[?, 1], offset: ?>>
      }
    gpu.terminator
  }
  memref.dealloc %Y : memref<?x128xf32>
  return
}
