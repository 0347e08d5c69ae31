// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-order-products))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-order-products))" --remarks-filter=hopper-order-products -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}4 [Passed] ordered | Category:hopper-order-products{{$}}

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

// What a table names is there as early as what the loop's variable names: the second product does
// not wait for the arithmetic of the first one.
// CHECK-LABEL: func.func @table
// CHECK:       memref.load
// CHECK:       hopper.load %arg0
// CHECK-NEXT:  %[[S:.*]] = hopper.mma
// CHECK-NEXT:  hopper.load %arg1
// CHECK-NEXT:  hopper.mma
// CHECK-NEXT:  math.exp2 %[[S]]
func.func @table(%Q: memref<?x64xbf16>, %G: memref<?x64xbf16>, %tiles: memref<?xindex>, %k: !tile, %v: !tile, %n: index)
    -> vector<64x64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %zero) -> (vector<64x64xf32>) {
    %at = memref.load %tiles[%i] : memref<?xindex>
    %q = hopper.load %Q[%at, %c0] : memref<?x64xbf16> -> !tile
    %s = hopper.mma %k, %q, %zero transposeB : !tile, !tile, vector<64x64xf32>
    %p = math.exp2 %s : vector<64x64xf32>
    %g = hopper.load %G[%at, %c0] : memref<?x64xbf16> -> !tile
    %t = hopper.mma %v, %g, %zero transposeB : !tile, !tile, vector<64x64xf32>
    %u = arith.mulf %p, %t : vector<64x64xf32>
    %u16 = arith.truncf %u : vector<64x64xf32> to vector<64x64xbf16>
    %a1 = hopper.mma %u16, %q, %a : vector<64x64xbf16>, !tile, vector<64x64xf32>
    scf.yield %a1 : vector<64x64xf32>
  }
  return %r : vector<64x64xf32>
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

// Vectors in shared memory are read behind the product that they meet; what all
// warpgroups bring is stored before, and multiplied behind, the product that can run
// while they wait for each other.
// CHECK-LABEL: func.func @shared
// CHECK:       scf.for
// CHECK-NEXT:    hopper.load %arg0
// CHECK-NEXT:    %[[S:.*]] = hopper.mma
// CHECK-NEXT:    hopper.load %arg1
// CHECK-NEXT:    hopper.load %arg2
// CHECK-NEXT:    %[[L:.*]] = hopper.tile.load
// CHECK-NEXT:    %[[T:.*]] = hopper.mma
// CHECK-NEXT:    vector.broadcast %[[L]]
// CHECK:         math.exp2
// CHECK:         hopper.load %arg2
// CHECK-NEXT:    %[[D:.*]] = hopper.tile.load
// CHECK-NEXT:    vector.broadcast %[[D]]
// CHECK:         %[[ALL:.*]] = hopper.share
// CHECK-NEXT:    hopper.mma %{{.*}}, %{{.*}}, %{{.*}} : vector<64x64xbf16>
// CHECK-NEXT:    hopper.mma %[[ALL]]
func.func @shared(%Q: memref<?x64xbf16>, %G: memref<?x64xbf16>, %V: memref<?x64xf32>, %k: !tile, %v: !tile,
                  %whole: !hopper.smem<128x64xbf16, swizzle = 128>, %n: index, %out: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %r = scf.for %i = %c0 to %n step %c64 iter_args(%a = %zero) -> (vector<64x64xf32>) {
    %l1 = hopper.load %V[%i, %c0] : memref<?x64xf32> -> !hopper.smem<1x64xf32>
    %l = hopper.tile.load %l1 : !hopper.smem<1x64xf32> -> vector<64xf32>
    %q = hopper.load %Q[%i, %c0] : memref<?x64xbf16> -> !tile
    %s = hopper.mma %k, %q, %zero transposeB : !tile, !tile, vector<64x64xf32>
    %lb = vector.broadcast %l : vector<64xf32> to vector<64x64xf32>
    %x = arith.subf %s, %lb : vector<64x64xf32>
    %p = math.exp2 %x : vector<64x64xf32>
    %g = hopper.load %G[%i, %c0] : memref<?x64xbf16> -> !tile
    %t = hopper.mma %v, %g, %zero transposeB : !tile, !tile, vector<64x64xf32>
    %d1 = hopper.load %V[%c1, %c0] : memref<?x64xf32> -> !hopper.smem<1x64xf32>
    %d = hopper.tile.load %d1 : !hopper.smem<1x64xf32> -> vector<64xf32>
    %db = vector.broadcast %d : vector<64xf32> to vector<64x64xf32>
    %y = arith.subf %t, %db : vector<64x64xf32>
    %u = arith.mulf %p, %y : vector<64x64xf32>
    %u16 = arith.truncf %u : vector<64x64xf32> to vector<64x64xbf16>
    %all = hopper.share %u16 : vector<64x64xbf16> -> !hopper.smem<128x64xbf16, swizzle = 128>
    %sum = hopper.mma %all, %whole, %zero transposeA : !hopper.smem<128x64xbf16, swizzle = 128>, !hopper.smem<128x64xbf16, swizzle = 128>, vector<64x64xf32>
    %a1 = hopper.mma %u16, %q, %a : vector<64x64xbf16>, !tile, vector<64x64xf32>
    attn.tile_add %sum into %out[%i, %c0] : vector<64x64xf32>, memref<?x64xf32>
    scf.yield %a1 : vector<64x64xf32>
  }
  vector.transfer_write %r, %out[%c0, %c0] : vector<64x64xf32>, memref<?x64xf32>
  return
}

// A tile in shared memory is read in front of the products, for it would wait for what they take
// from there.
// CHECK-LABEL: func.func @bias
// CHECK:       scf.for
// CHECK-NEXT:    %[[B:.*]] = hopper.load %arg2
// CHECK-NEXT:    %[[BIAS:.*]] = hopper.tile.load %[[B]]
// CHECK-NEXT:    hopper.load %arg0
// CHECK-NEXT:    hopper.mma
// CHECK-NEXT:    hopper.load %arg1
// CHECK-NEXT:    hopper.mma
// CHECK-NEXT:    arith.extf %[[BIAS]]
func.func @bias(%Q: memref<?x64xbf16>, %G: memref<?x64xbf16>, %B: memref<?x64xbf16>, %k: !tile, %v: !tile, %n: index)
    -> vector<64x64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %r = scf.for %i = %c0 to %n step %c64 iter_args(%a = %zero) -> (vector<64x64xf32>) {
    %q = hopper.load %Q[%i, %c0] : memref<?x64xbf16> -> !tile
    %s = hopper.mma %k, %q, %zero transposeB : !tile, !tile, vector<64x64xf32>
    %b = hopper.load %B[%i, %c0] : memref<?x64xbf16> -> !tile
    %bias = hopper.tile.load %b transpose : !tile -> vector<64x64xbf16>
    %wide = arith.extf %bias : vector<64x64xbf16> to vector<64x64xf32>
    %x = arith.addf %s, %wide : vector<64x64xf32>
    %p = math.exp2 %x : vector<64x64xf32>
    %g = hopper.load %G[%i, %c0] : memref<?x64xbf16> -> !tile
    %t = hopper.mma %v, %g, %zero transposeB : !tile, !tile, vector<64x64xf32>
    %u = arith.mulf %p, %t : vector<64x64xf32>
    %u16 = arith.truncf %u : vector<64x64xf32> to vector<64x64xbf16>
    %a1 = hopper.mma %u16, %q, %a : vector<64x64xbf16>, !tile, vector<64x64xf32>
    scf.yield %a1 : vector<64x64xf32>
  }
  return %r : vector<64x64xf32>
}
