// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s -mlir-print-op-generic | attn-opt | FileCheck %s

// Every op and each of its forms survives a round trip.

// CHECK-LABEL: func @parts
func.func @parts(%Q: memref<?x64xbf16>, %x: memref<?x64xf32>, %i: index) {
  %c0 = arith.constant 0 : index
  // CHECK: %[[Q:.*]] = tile.load %{{.*}}[%{{.*}}, %[[C0:.*]]] : memref<?x64xbf16> -> <128x64xbf16, swizzle = 128>
  %q = tile.load %Q[%i, %c0] : memref<?x64xbf16> -> !tile.smem<128x64xbf16, swizzle = 128>
  // CHECK: tile.load %{{.*}}[%{{.*}}, %[[C0]]] : memref<?x64xf32> -> <1x64xf32>
  %row = tile.load %x[%i, %c0] : memref<?x64xf32> -> !tile.smem<1x64xf32>
  // CHECK: tile.rows %[[Q]][%[[C0]]] : <128x64xbf16, swizzle = 128> -> <64x64xbf16, swizzle = 128, slab_rows = 128>
  %own = tile.rows %q[%c0] : !tile.smem<128x64xbf16, swizzle = 128> -> !tile.smem<64x64xbf16, swizzle = 128, slab_rows = 128>
  // CHECK: tile.columns %[[Q]][%[[C0]]] : <128x64xbf16, swizzle = 128> -> <128x32xbf16, swizzle = 128>
  %half = tile.columns %q[%c0] : !tile.smem<128x64xbf16, swizzle = 128> -> !tile.smem<128x32xbf16, swizzle = 128>
  return
}

// CHECK-LABEL: func @pages
func.func @pages(%pool: memref<?x2x16x64xbf16>, %table: memref<?x?xi32>, %used: memref<?xi64>, %t: !tile.smem<64x64xbf16, swizzle = 128>, %i: index) {
  // CHECK: tile.copy %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}] pages(%{{.*}}, %{{.*}} : memref<?x?xi32>, memref<?xi64>) to %{{.*}} : memref<?x2x16x64xbf16>, <64x64xbf16, swizzle = 128>
  tile.copy %pool[%i, %i, %i, %i] pages(%table, %used : memref<?x?xi32>, memref<?xi64>) to %t : memref<?x2x16x64xbf16>, !tile.smem<64x64xbf16, swizzle = 128>
  return
}

// CHECK-LABEL: func @copies
func.func @copies(%Q: memref<?x64xbf16, strided<[?, ?], offset: ?>>, %t: !tile.smem<128x64xbf16, swizzle = 128>, %i: index) {
  // CHECK: tile.copy %{{.*}}[%{{.*}}, %{{.*}}] to %{{.*}} : memref<?x64xbf16, strided<[?, ?], offset: ?>>, <128x64xbf16, swizzle = 128>
  tile.copy %Q[%i, %i] to %t : memref<?x64xbf16, strided<[?, ?], offset: ?>>, !tile.smem<128x64xbf16, swizzle = 128>
  // CHECK-NEXT: tile.commit
  tile.commit
  // CHECK-NEXT: tile.await 1
  tile.await 1
  // CHECK-NEXT: tile.warp_sync
  tile.warp_sync
  return
}

// CHECK-LABEL: func @registers
// CHECK-SAME: %[[X:[^:]*]]: vector<64x128xbf16>, %[[T:[^:]*]]: !tile.smem<64x128xbf16, swizzle = 128>
// CHECK-SAME: %[[U:[^:]*]]: !tile.smem<128x64xbf16, swizzle = 128>, %[[ROW:[^:]*]]: !tile.smem<1x64xf32>
// CHECK-SAME: %[[RING:[^:]*]]: !tile.smem<2x128x64xbf16, swizzle = 128>
func.func @registers(%x: vector<64x128xbf16>, %t: !tile.smem<64x128xbf16, swizzle = 128>,
                     %u: !tile.smem<128x64xbf16, swizzle = 128>, %row: !tile.smem<1x64xf32>,
                     %ring: !tile.smem<2x128x64xbf16, swizzle = 128>) {
  // CHECK: tile.write %[[X]] to %[[T]] : vector<64x128xbf16>, <64x128xbf16, swizzle = 128>
  tile.write %x to %t : vector<64x128xbf16>, !tile.smem<64x128xbf16, swizzle = 128>
  // CHECK: tile.write %[[X]] to %[[U]] transpose : vector<64x128xbf16>, <128x64xbf16, swizzle = 128>
  tile.write %x to %u transpose : vector<64x128xbf16>, !tile.smem<128x64xbf16, swizzle = 128>
  // CHECK: tile.read %[[T]] : <64x128xbf16, swizzle = 128> -> vector<64x128xbf16>
  %0 = tile.read %t : !tile.smem<64x128xbf16, swizzle = 128> -> vector<64x128xbf16>
  // CHECK: tile.read %[[U]] transpose : <128x64xbf16, swizzle = 128> -> vector<64x128xbf16>
  %1 = tile.read %u transpose : !tile.smem<128x64xbf16, swizzle = 128> -> vector<64x128xbf16>
  // CHECK: tile.read %[[ROW]] : <1x64xf32> -> vector<64xf32>
  %2 = tile.read %row : !tile.smem<1x64xf32> -> vector<64xf32>
  // CHECK: tile.gather %[[X]] : vector<64x128xbf16> -> vector<128x128xbf16>
  %3 = tile.gather %x : vector<64x128xbf16> -> vector<128x128xbf16>
  // CHECK: tile.share %[[X]] : vector<64x128xbf16> -> <128x128xbf16, swizzle = 128>
  %4 = tile.share %x : vector<64x128xbf16> -> !tile.smem<128x128xbf16, swizzle = 128>
  return
}

// CHECK-LABEL: func @products
// CHECK-SAME: %[[Q:[^:]*]]: !tile.smem<64x64xbf16, swizzle = 128>, %[[K:[^:]*]]: !tile.smem<128x64xbf16, swizzle = 128>
// CHECK-SAME: %[[P:[^:]*]]: vector<64x128xbf16>, %[[S:[^:]*]]: vector<64x128xf32>, %[[O:[^:]*]]: vector<64x64xf32>
func.func @products(%q: !tile.smem<64x64xbf16, swizzle = 128>, %k: !tile.smem<128x64xbf16, swizzle = 128>,
                    %p: vector<64x128xbf16>, %s: vector<64x128xf32>, %o: vector<64x64xf32>) {
  // CHECK: tile.mma %[[Q]], %[[K]], %[[S]] transposeB : !tile.smem<64x64xbf16, swizzle = 128>, <128x64xbf16, swizzle = 128>, vector<64x128xf32>
  %0 = tile.mma %q, %k, %s transposeB : !tile.smem<64x64xbf16, swizzle = 128>, !tile.smem<128x64xbf16, swizzle = 128>, vector<64x128xf32>
  // CHECK: tile.mma %[[P]], %[[K]], %[[O]] : vector<64x128xbf16>, <128x64xbf16, swizzle = 128>, vector<64x64xf32>
  %1 = tile.mma %p, %k, %o : vector<64x128xbf16>, !tile.smem<128x64xbf16, swizzle = 128>, vector<64x64xf32>
  // CHECK: tile.mma %[[Q]], %[[Q]], %[[O]] transposeA : !tile.smem<64x64xbf16, swizzle = 128>, <64x64xbf16, swizzle = 128>, vector<64x64xf32>
  %2 = tile.mma %q, %q, %o transposeA : !tile.smem<64x64xbf16, swizzle = 128>, !tile.smem<64x64xbf16, swizzle = 128>, vector<64x64xf32>
  return
}
