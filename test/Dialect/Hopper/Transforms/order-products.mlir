// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-order-products))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-order-products))" --remarks-filter=hopper-order-products -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}4 [Passed] ordered | Category:hopper-order-products{{$}}

!tile = !tile.smem<64x64xbf16, swizzle = 128>

// Both products of what is loaded come first, behind the read of a column vector;
// the one of %p as soon as %p is there, with its rounding; the last one keeps its place.
// CHECK-LABEL: func.func @gradient
// CHECK:       scf.for
// CHECK:         vector.transfer_read
// CHECK-NEXT:    %[[Q:.*]] = tile.load %arg0
// CHECK-NEXT:    %[[S:.*]] = tile.mma %{{.*}}, %[[Q]], %{{.*}} transposeB
// CHECK-NEXT:    %[[G:.*]] = tile.load %arg1
// CHECK-NEXT:    %[[T:.*]] = tile.mma %{{.*}}, %[[G]], %{{.*}} transposeB
// CHECK-NEXT:    vector.broadcast
// CHECK-NEXT:    arith.subf %[[S]]
// CHECK-NEXT:    %[[P:.*]] = math.exp2
// CHECK-NEXT:    %[[P16:.*]] = arith.truncf %[[P]]
// CHECK-NEXT:    tile.mma %[[P16]], %[[G]]
// CHECK-NEXT:    arith.mulf %[[P]], %[[T]]
// CHECK-NEXT:    arith.truncf
// CHECK-NEXT:    tile.mma %{{.*}}, %[[Q]]
// CHECK-NEXT:    scf.yield
func.func @gradient(%Q: memref<?x64xbf16>, %G: memref<?x64xbf16>, %L: memref<?xf32>, %k: !tile, %v: !tile,
                    %n: index, %out: memref<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %r:2 = scf.for %i = %c0 to %n step %c64 iter_args(%a = %zero, %b = %zero) -> (vector<64x64xf32>, vector<64x64xf32>) {
    %q = tile.load %Q[%i, %c0] : memref<?x64xbf16> -> !tile
    %s = tile.mma %k, %q, %zero transposeB : !tile, !tile, vector<64x64xf32>
    %l = vector.transfer_read %L[%i], %pad : memref<?xf32>, vector<64xf32>
    %lb = vector.broadcast %l : vector<64xf32> to vector<64x64xf32>
    %d = arith.subf %s, %lb : vector<64x64xf32>
    %p = math.exp2 %d : vector<64x64xf32>
    %g = tile.load %G[%i, %c0] : memref<?x64xbf16> -> !tile
    %t = tile.mma %v, %g, %zero transposeB : !tile, !tile, vector<64x64xf32>
    %u = arith.mulf %p, %t : vector<64x64xf32>
    %u16 = arith.truncf %u : vector<64x64xf32> to vector<64x64xbf16>
    %a1 = tile.mma %u16, %q, %a : vector<64x64xbf16>, !tile, vector<64x64xf32>
    %p16 = arith.truncf %p : vector<64x64xf32> to vector<64x64xbf16>
    %b1 = tile.mma %p16, %g, %b : vector<64x64xbf16>, !tile, vector<64x64xf32>
    scf.yield %a1, %b1 : vector<64x64xf32>, vector<64x64xf32>
  }
  vector.transfer_write %r#0, %out[%c0, %c0] {in_bounds = [true, true]} : vector<64x64xf32>, memref<64x64xf32>
  return
}

// What a table names is there as early as what the loop's variable names: the second product does
// not wait for the arithmetic of the first one.
// CHECK-LABEL: func.func @table
// CHECK:       memref.load
// CHECK:       tile.load %arg0
// CHECK-NEXT:  %[[S:.*]] = tile.mma
// CHECK-NEXT:  tile.load %arg1
// CHECK-NEXT:  tile.mma
// CHECK-NEXT:  math.exp2 %[[S]]
func.func @table(%Q: memref<?x64xbf16>, %G: memref<?x64xbf16>, %tiles: memref<?xindex>, %k: !tile, %v: !tile, %n: index)
    -> vector<64x64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %zero) -> (vector<64x64xf32>) {
    %at = memref.load %tiles[%i] : memref<?xindex>
    %q = tile.load %Q[%at, %c0] : memref<?x64xbf16> -> !tile
    %s = tile.mma %k, %q, %zero transposeB : !tile, !tile, vector<64x64xf32>
    %p = math.exp2 %s : vector<64x64xf32>
    %g = tile.load %G[%at, %c0] : memref<?x64xbf16> -> !tile
    %t = tile.mma %v, %g, %zero transposeB : !tile, !tile, vector<64x64xf32>
    %u = arith.mulf %p, %t : vector<64x64xf32>
    %u16 = arith.truncf %u : vector<64x64xf32> to vector<64x64xbf16>
    %a1 = tile.mma %u16, %q, %a : vector<64x64xbf16>, !tile, vector<64x64xf32>
    scf.yield %a1 : vector<64x64xf32>
  }
  return %r : vector<64x64xf32>
}

// A body that writes memory stays as it is.
// CHECK-LABEL: func.func @writes
// CHECK:       scf.for
// CHECK:         tile.mma
// CHECK:         vector.transfer_write
// CHECK:         tile.load %arg1
// CHECK:         tile.mma
func.func @writes(%Q: memref<?x64xbf16>, %G: memref<?x64xbf16>, %k: !tile, %n: index, %out: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  scf.for %i = %c0 to %n step %c64 {
    %q = tile.load %Q[%i, %c0] : memref<?x64xbf16> -> !tile
    %s = tile.mma %k, %q, %zero transposeB : !tile, !tile, vector<64x64xf32>
    vector.transfer_write %s, %out[%i, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
    %g = tile.load %G[%i, %c0] : memref<?x64xbf16> -> !tile
    %t = tile.mma %k, %g, %zero transposeB : !tile, !tile, vector<64x64xf32>
    vector.transfer_write %t, %out[%i, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
  }
  return
}

// Vectors in shared memory are read behind the product that they meet; what all
// warpgroups bring is stored before, and multiplied behind, the product that can run
// while they wait for each other.
// CHECK-LABEL: func.func @shared
// CHECK:       scf.for
// CHECK-NEXT:    tile.load %arg0
// CHECK-NEXT:    %[[S:.*]] = tile.mma
// CHECK-NEXT:    tile.load %arg1
// CHECK-NEXT:    tile.load %arg2
// CHECK-NEXT:    %[[L:.*]] = tile.read
// CHECK-NEXT:    %[[T:.*]] = tile.mma
// CHECK-NEXT:    vector.broadcast %[[L]]
// CHECK:         math.exp2
// CHECK:         tile.load %arg2
// CHECK-NEXT:    %[[D:.*]] = tile.read
// CHECK-NEXT:    vector.broadcast %[[D]]
// CHECK:         %[[ALL:.*]] = tile.share
// CHECK-NEXT:    tile.mma %{{.*}}, %{{.*}}, %{{.*}} : vector<64x64xbf16>
// CHECK-NEXT:    tile.mma %[[ALL]]
func.func @shared(%Q: memref<?x64xbf16>, %G: memref<?x64xbf16>, %V: memref<?x64xf32>, %k: !tile, %v: !tile,
                  %whole: !tile.smem<128x64xbf16, swizzle = 128>, %n: index, %out: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %r = scf.for %i = %c0 to %n step %c64 iter_args(%a = %zero) -> (vector<64x64xf32>) {
    %l1 = tile.load %V[%i, %c0] : memref<?x64xf32> -> !tile.smem<1x64xf32>
    %l = tile.read %l1 : !tile.smem<1x64xf32> -> vector<64xf32>
    %q = tile.load %Q[%i, %c0] : memref<?x64xbf16> -> !tile
    %s = tile.mma %k, %q, %zero transposeB : !tile, !tile, vector<64x64xf32>
    %lb = vector.broadcast %l : vector<64xf32> to vector<64x64xf32>
    %x = arith.subf %s, %lb : vector<64x64xf32>
    %p = math.exp2 %x : vector<64x64xf32>
    %g = tile.load %G[%i, %c0] : memref<?x64xbf16> -> !tile
    %t = tile.mma %v, %g, %zero transposeB : !tile, !tile, vector<64x64xf32>
    %d1 = tile.load %V[%c1, %c0] : memref<?x64xf32> -> !tile.smem<1x64xf32>
    %d = tile.read %d1 : !tile.smem<1x64xf32> -> vector<64xf32>
    %db = vector.broadcast %d : vector<64xf32> to vector<64x64xf32>
    %y = arith.subf %t, %db : vector<64x64xf32>
    %u = arith.mulf %p, %y : vector<64x64xf32>
    %u16 = arith.truncf %u : vector<64x64xf32> to vector<64x64xbf16>
    %all = tile.share %u16 : vector<64x64xbf16> -> !tile.smem<128x64xbf16, swizzle = 128>
    %sum = tile.mma %all, %whole, %zero transposeA : !tile.smem<128x64xbf16, swizzle = 128>, !tile.smem<128x64xbf16, swizzle = 128>, vector<64x64xf32>
    %a1 = tile.mma %u16, %q, %a : vector<64x64xbf16>, !tile, vector<64x64xf32>
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
// CHECK-NEXT:    %[[B:.*]] = tile.load %arg2
// CHECK-NEXT:    %[[BIAS:.*]] = tile.read %[[B]]
// CHECK-NEXT:    tile.load %arg0
// CHECK-NEXT:    tile.mma
// CHECK-NEXT:    tile.load %arg1
// CHECK-NEXT:    tile.mma
// CHECK-NEXT:    arith.extf %[[BIAS]]
func.func @bias(%Q: memref<?x64xbf16>, %G: memref<?x64xbf16>, %B: memref<?x64xbf16>, %k: !tile, %v: !tile, %n: index)
    -> vector<64x64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %r = scf.for %i = %c0 to %n step %c64 iter_args(%a = %zero) -> (vector<64x64xf32>) {
    %q = tile.load %Q[%i, %c0] : memref<?x64xbf16> -> !tile
    %s = tile.mma %k, %q, %zero transposeB : !tile, !tile, vector<64x64xf32>
    %b = tile.load %B[%i, %c0] : memref<?x64xbf16> -> !tile
    %bias = tile.read %b transpose : !tile -> vector<64x64xbf16>
    %wide = arith.extf %bias : vector<64x64xbf16> to vector<64x64xf32>
    %x = arith.addf %s, %wide : vector<64x64xf32>
    %p = math.exp2 %x : vector<64x64xf32>
    %g = tile.load %G[%i, %c0] : memref<?x64xbf16> -> !tile
    %t = tile.mma %v, %g, %zero transposeB : !tile, !tile, vector<64x64xf32>
    %u = arith.mulf %p, %t : vector<64x64xf32>
    %u16 = arith.truncf %u : vector<64x64xf32> to vector<64x64xbf16>
    %a1 = tile.mma %u16, %q, %a : vector<64x64xbf16>, !tile, vector<64x64xf32>
    scf.yield %a1 : vector<64x64xf32>
  }
  return %r : vector<64x64xf32>
}
