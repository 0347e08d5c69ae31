// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-order-products))" | FileCheck %s

!tile = !hopper.smem<64x64xbf16, swizzle = 128>

// Both products of what is loaded come first, behind the read of a column vector;
// the one of %p as soon as %p is there, with its rounding; the last one keeps its place.
// CHECK-LABEL: func.func @gradient
// CHECK:       scf.for
// CHECK:         vector.transfer_read
// CHECK-NEXT:    %[[Q:.*]] = hopper.load %arg0
// CHECK-NEXT:    %[[S:.*]] = hopper.mma %{{.*}}, %[[Q]], %{{.*}} transposeB
// CHECK-NEXT:    %[[G:.*]] = hopper.load %arg1
// CHECK-NEXT:    %[[T:.*]] = hopper.mma %{{.*}}, %[[G]], %{{.*}} transposeB
// CHECK-NEXT:    vector.broadcast
// CHECK-NEXT:    arith.subf %[[S]]
// CHECK-NEXT:    %[[P:.*]] = math.exp2
// CHECK-NEXT:    %[[P16:.*]] = arith.truncf %[[P]]
// CHECK-NEXT:    hopper.mma %[[P16]], %[[G]]
// CHECK-NEXT:    arith.mulf %[[P]], %[[T]]
// CHECK-NEXT:    arith.truncf
// CHECK-NEXT:    hopper.mma %{{.*}}, %[[Q]]
// CHECK-NEXT:    scf.yield
func.func @gradient(%Q: memref<?x64xbf16>, %G: memref<?x64xbf16>, %L: memref<?xf32>, %k: !tile, %v: !tile,
                    %n: index, %out: memref<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %r:2 = scf.for %i = %c0 to %n step %c64 iter_args(%a = %zero, %b = %zero) -> (vector<64x64xf32>, vector<64x64xf32>) {
    %q = hopper.load %Q[%i, %c0] : memref<?x64xbf16> -> !tile
    %s = hopper.mma %k, %q, %zero transposeB : !tile, !tile, vector<64x64xf32>
    %l = vector.transfer_read %L[%i], %pad : memref<?xf32>, vector<64xf32>
    %lb = vector.broadcast %l : vector<64xf32> to vector<64x64xf32>
    %d = arith.subf %s, %lb : vector<64x64xf32>
    %p = math.exp2 %d : vector<64x64xf32>
    %g = hopper.load %G[%i, %c0] : memref<?x64xbf16> -> !tile
    %t = hopper.mma %v, %g, %zero transposeB : !tile, !tile, vector<64x64xf32>
    %u = arith.mulf %p, %t : vector<64x64xf32>
    %u16 = arith.truncf %u : vector<64x64xf32> to vector<64x64xbf16>
    %a1 = hopper.mma %u16, %q, %a : vector<64x64xbf16>, !tile, vector<64x64xf32>
    %p16 = arith.truncf %p : vector<64x64xf32> to vector<64x64xbf16>
    %b1 = hopper.mma %p16, %g, %b : vector<64x64xbf16>, !tile, vector<64x64xf32>
    scf.yield %a1, %b1 : vector<64x64xf32>, vector<64x64xf32>
  }
  vector.transfer_write %r#0, %out[%c0, %c0] {in_bounds = [true, true]} : vector<64x64xf32>, memref<64x64xf32>
  return
}

// A body that writes memory stays as it is.
// CHECK-LABEL: func.func @writes
// CHECK:       scf.for
// CHECK:         hopper.mma
// CHECK:         vector.transfer_write
// CHECK:         hopper.load %arg1
// CHECK:         hopper.mma
func.func @writes(%Q: memref<?x64xbf16>, %G: memref<?x64xbf16>, %k: !tile, %n: index, %out: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  scf.for %i = %c0 to %n step %c64 {
    %q = hopper.load %Q[%i, %c0] : memref<?x64xbf16> -> !tile
    %s = hopper.mma %k, %q, %zero transposeB : !tile, !tile, vector<64x64xf32>
    vector.transfer_write %s, %out[%i, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
    %g = hopper.load %G[%i, %c0] : memref<?x64xbf16> -> !tile
    %t = hopper.mma %k, %g, %zero transposeB : !tile, !tile, vector<64x64xf32>
    vector.transfer_write %t, %out[%i, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
  }
  return
}
