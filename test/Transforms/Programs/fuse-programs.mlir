// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-fuse-programs,canonicalize,cse))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-fuse-programs,canonicalize,cse))" --remarks-filter=attn-fuse-programs -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}5 [Passed] fused | Category:attn-fuse-programs{{$}}

// Three programs over the same tiles: what the first one makes is taken from where it
// is, up to the end of the memory; nobody reads the memory any more.
// CHECK-LABEL: func.func @chain
// CHECK-NOT: memref.alloc
// CHECK: scf.forall (%[[H:.*]], %[[T:.*]]) in (%arg3, %{{.*}})
// CHECK: %[[I:.*]] = affine.apply #{{.*}}(%[[T]])
// CHECK: %[[X:.*]] = vector.transfer_read %arg0
// CHECK: %[[D:.*]] = arith.mulf %[[X]], %[[X]]
// CHECK: vector.transfer_write %{{.*}}, %arg2
// CHECK: %[[INSIDE:.*]] = arith.cmpi slt
// CHECK: %[[E:.*]] = arith.select %[[INSIDE]], %[[D]], %{{.*}} : vector<128xi1>, vector<128xf32>
// CHECK: vector.transfer_write %[[E]], %arg1
// CHECK-NOT: scf.forall
// CHECK: return
func.func @chain(%X: memref<?x?xf32>, %Y: memref<?x?x128xf32>, %Z: memref<?x?xf32>, %H: index, %n: index) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<128xf32>
  %tiles = affine.apply affine_map<()[s0] -> (s0 ceildiv 128)>()[%n]
  %D = memref.alloc(%H, %n) : memref<?x?xf32>
  scf.forall (%h, %t) in (%H, %tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %rest = affine.min affine_map<(d0)[s0] -> (d0 * -128 + s0, 128)>(%t)[%n]
    %own = memref.subview %D[%h, %i] [1, %rest] [1, 1] : memref<?x?xf32> to memref<1x?xf32, strided<[?, 1], offset: ?>>
    %x = vector.transfer_read %X[%h, %i], %pad : memref<?x?xf32>, vector<128xf32>
    %d = arith.mulf %x, %x : vector<128xf32>
    vector.transfer_write %d, %own[%c0, %c0] : vector<128xf32>, memref<1x?xf32, strided<[?, 1], offset: ?>>
  }
  scf.forall (%h, %t) in (%H, %tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    vector.transfer_write %zero, %Z[%h, %i] : vector<128xf32>, memref<?x?xf32>
  }
  scf.forall (%h, %t) in (%H, %tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %d = vector.transfer_read %D[%h, %i], %pad : memref<?x?xf32>, vector<128xf32>
    vector.transfer_write %d, %Y[%h, %t, %c0] {in_bounds = [true]} : vector<128xf32>, memref<?x?x128xf32>
  }
  return
}

// A program over other tiles stands between, and has nothing to do with the first one.
// CHECK-LABEL: func.func @between
// CHECK: scf.forall (%{{.*}}) in (%arg3)
// CHECK: vector.transfer_write %{{.*}}, %arg1
// CHECK: scf.forall (%{{.*}}, %{{.*}}) in (%arg3, %arg4)
// CHECK: %[[X:.*]] = vector.transfer_read %arg0
// CHECK: %[[E:.*]] = arith.select %{{.*}}, %[[X]], %{{.*}} : vector<128xi1>, vector<128xf32>
// CHECK: vector.transfer_write %[[E]], %arg2
// CHECK-NOT: scf.forall
// CHECK: return
func.func @between(%X: memref<?x?xf32>, %Y: memref<?x128xf32>, %Z: memref<?x?xf32>, %H: index, %n: index) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<128xf32>
  %D = memref.alloc(%H, %n) : memref<?x?xf32>
  scf.forall (%h, %t) in (%H, %n) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %x = vector.transfer_read %X[%h, %i], %pad : memref<?x?xf32>, vector<128xf32>
    vector.transfer_write %x, %D[%h, %i] : vector<128xf32>, memref<?x?xf32>
  }
  scf.forall (%h) in (%H) {
    vector.transfer_write %zero, %Y[%h, %c0] {in_bounds = [true]} : vector<128xf32>, memref<?x128xf32>
  }
  scf.forall (%h, %t) in (%H, %n) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %d = vector.transfer_read %D[%h, %i], %pad : memref<?x?xf32>, vector<128xf32>
    vector.transfer_write %d, %Z[%h, %i] : vector<128xf32>, memref<?x?xf32>
  }
  return
}

// A tile with rows that registers can hold, up to the last row of the memory; wider ones
// stay in memory.
// CHECK-LABEL: func.func @rows
// CHECK: scf.forall
// CHECK: %[[X:.*]] = vector.transfer_read %arg0
// CHECK: %[[D:.*]] = arith.mulf %[[X]], %[[X]]
// CHECK: vector.transfer_write %[[D]]
// CHECK: %[[INSIDE:.*]] = arith.cmpi slt
// CHECK: %[[TURNED:.*]] = vector.broadcast %[[INSIDE]] : vector<64xi1> to vector<128x64xi1>
// CHECK: %[[ROWS:.*]] = vector.transpose %[[TURNED]], [1, 0]
// CHECK: %[[E:.*]] = arith.select %[[ROWS]], %[[D]], %{{.*}} : vector<64x128xi1>, vector<64x128xbf16>
// CHECK: vector.transfer_write %[[E]], %arg2
// CHECK-NOT: scf.forall
// CHECK: return
// CHECK-LABEL: func.func @wide_rows
// CHECK-COUNT-2: scf.forall
func.func @rows(%X: memref<?x128xbf16>, %D: memref<?x128xbf16>, %Y: memref<?x64x128xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : bf16
  %tiles = affine.apply affine_map<()[s0] -> (s0 ceildiv 64)>()[%n]
  scf.forall (%t) in (%tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 64)>(%t)
    %x = vector.transfer_read %X[%i, %c0], %pad {in_bounds = [false, true]} : memref<?x128xbf16>, vector<64x128xbf16>
    %d = arith.mulf %x, %x : vector<64x128xbf16>
    vector.transfer_write %d, %D[%i, %c0] {in_bounds = [false, true]} : vector<64x128xbf16>, memref<?x128xbf16>
  }
  scf.forall (%t) in (%tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 64)>(%t)
    %d = vector.transfer_read %D[%i, %c0], %pad {in_bounds = [false, true]} : memref<?x128xbf16>, vector<64x128xbf16>
    vector.transfer_write %d, %Y[%t, %c0, %c0] {in_bounds = [true, true]} : vector<64x128xbf16>, memref<?x64x128xbf16>
  }
  return
}
func.func @wide_rows(%X: memref<?x136xbf16>, %D: memref<?x136xbf16>, %Y: memref<?x64x136xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : bf16
  %tiles = affine.apply affine_map<()[s0] -> (s0 ceildiv 64)>()[%n]
  scf.forall (%t) in (%tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 64)>(%t)
    %x = vector.transfer_read %X[%i, %c0], %pad {in_bounds = [false, true]} : memref<?x136xbf16>, vector<64x136xbf16>
    vector.transfer_write %x, %D[%i, %c0] {in_bounds = [false, true]} : vector<64x136xbf16>, memref<?x136xbf16>
  }
  scf.forall (%t) in (%tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 64)>(%t)
    %d = vector.transfer_read %D[%i, %c0], %pad {in_bounds = [false, true]} : memref<?x136xbf16>, vector<64x136xbf16>
    vector.transfer_write %d, %Y[%t, %c0, %c0] {in_bounds = [true, true]} : vector<64x136xbf16>, memref<?x64x136xbf16>
  }
  return
}

// Another tile than the iteration's own (a dependence with another direction than =),
// or a part of it.
// CHECK-LABEL: func.func @other_tiles
// CHECK-COUNT-4: scf.forall
func.func @other_tiles(%X: memref<?x?xf32>, %Y: memref<?x?xf32>, %H: index) {
  %pad = arith.constant 0.0 : f32
  %c1 = arith.constant 1 : index
  scf.forall (%h, %t) in (%H, 4) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %x = vector.transfer_read %X[%h, %i], %pad : memref<?x?xf32>, vector<128xf32>
    vector.transfer_write %x, %Y[%h, %i] : vector<128xf32>, memref<?x?xf32>
  }
  scf.forall (%h, %t) in (%H, 4) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128 + 128)>(%t)
    %y = vector.transfer_read %Y[%h, %i], %pad : memref<?x?xf32>, vector<128xf32>
    vector.transfer_write %y, %X[%h, %i] : vector<128xf32>, memref<?x?xf32>
  }
  scf.forall (%h, %t) in (%H, 8) {
    %i = affine.apply affine_map<(d0) -> (d0 * 64)>(%t)
    %x = vector.transfer_read %X[%h, %i], %pad : memref<?x?xf32>, vector<64xf32>
    vector.transfer_write %x, %Y[%h, %i] : vector<64xf32>, memref<?x?xf32>
  }
  scf.forall (%h, %t) in (%H, 8) {
    %i = affine.apply affine_map<(d0) -> (d0 * 64)>(%t)
    %y = vector.transfer_read %Y[%h, %i], %pad : memref<?x?xf32>, vector<32xf32>
    vector.transfer_write %y, %X[%h, %i] : vector<32xf32>, memref<?x?xf32>
  }
  return
}

// Tiles that iterations share: all heads write the same rows.
// CHECK-LABEL: func.func @shared
// CHECK-COUNT-2: scf.forall
func.func @shared(%X: memref<?x?xf32>, %Y: memref<?xf32>, %H: index) {
  %pad = arith.constant 0.0 : f32
  scf.forall (%h, %t) in (%H, 4) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %x = vector.transfer_read %X[%h, %i], %pad : memref<?x?xf32>, vector<128xf32>
    vector.transfer_write %x, %Y[%i] : vector<128xf32>, memref<?xf32>
  }
  scf.forall (%h, %t) in (%H, 4) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %y = vector.transfer_read %Y[%i], %pad : memref<?xf32>, vector<128xf32>
    vector.transfer_write %y, %X[%h, %i] : vector<128xf32>, memref<?x?xf32>
  }
  return
}

// A view that ends before the tile does: what is behind it is the memory's own.
// CHECK-LABEL: func.func @short_view
// CHECK-COUNT-2: scf.forall
func.func @short_view(%X: memref<?x?xf32>, %Y: memref<?x?xf32>, %D: memref<?x?xf32>, %H: index) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  scf.forall (%h, %t) in (%H, 4) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %own = memref.subview %D[%h, %i] [1, 96] [1, 1] : memref<?x?xf32> to memref<1x96xf32, strided<[?, 1], offset: ?>>
    %x = vector.transfer_read %X[%h, %i], %pad : memref<?x?xf32>, vector<128xf32>
    vector.transfer_write %x, %own[%c0, %c0] : vector<128xf32>, memref<1x96xf32, strided<[?, 1], offset: ?>>
  }
  scf.forall (%h, %t) in (%H, 4) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %y = vector.transfer_read %D[%h, %i], %pad : memref<?x?xf32>, vector<128xf32>
    vector.transfer_write %y, %Y[%h, %i] : vector<128xf32>, memref<?x?xf32>
  }
  return
}

// Memory that the first one reads and the second one writes, other bounds, a loop, and
// an op between the two that reads what the first one writes.
// CHECK-LABEL: func.func @apart
// CHECK-COUNT-5: scf.forall
func.func @apart(%X: memref<?x?xf32>, %Y: memref<?x?xf32>, %Z: memref<?x?xf32>, %W: memref<?x?xf32>, %H: index) {
  %pad = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : vector<64xf32>
  scf.forall (%h) in (%H) {
    %x = vector.transfer_read %X[%h, %c0], %pad : memref<?x?xf32>, vector<64xf32>
    vector.transfer_write %x, %Y[%h, %c0] : vector<64xf32>, memref<?x?xf32>
  }
  scf.forall (%h) in (%H) {
    vector.transfer_write %zero, %X[%h, %c0] : vector<64xf32>, memref<?x?xf32>
  }
  scf.forall (%h) in (4) {
    %s = scf.for %i = %c0 to %H step %c1 iter_args(%a = %zero) -> (vector<64xf32>) {
      %z = vector.transfer_read %Z[%i, %c0], %pad : memref<?x?xf32>, vector<64xf32>
      %b = arith.addf %a, %z : vector<64xf32>
      scf.yield %b : vector<64xf32>
    }
    vector.transfer_write %s, %Y[%h, %c0] : vector<64xf32>, memref<?x?xf32>
  }
  scf.forall (%h) in (4) {
    vector.transfer_write %zero, %Z[%h, %c0] : vector<64xf32>, memref<?x?xf32>
  }
  memref.copy %Z, %W : memref<?x?xf32> to memref<?x?xf32>
  scf.forall (%h) in (4) {
    vector.transfer_write %zero, %X[%h, %c0] : vector<64xf32>, memref<?x?xf32>
  }
  return
}

// Loops over one tile each, which do not tell that the second one's rows are another dimension:
// what the first one makes is a value for each of its columns. Nor are 64 rows 128.
// CHECK-LABEL: func.func @other_rows
// CHECK-COUNT-2: scf.forall
// CHECK-LABEL: func.func @more_rows
// CHECK-COUNT-2: scf.forall
func.func @other_rows(%X: memref<1x64xf32>, %Y: memref<1x64x64xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %D = memref.alloc() : memref<1x64xf32>
  scf.forall (%h) in (1) {
    %x = vector.transfer_read %X[%h, %c0], %pad {in_bounds = [true]} : memref<1x64xf32>, vector<64xf32>
    vector.transfer_write %x, %D[%h, %c0] {in_bounds = [true]} : vector<64xf32>, memref<1x64xf32>
  } {mapping = [#gpu.block<linear_dim_0>]}
  scf.forall (%h) in (1) {
    %d = vector.transfer_read %D[%h, %c0], %pad {in_bounds = [true]} : memref<1x64xf32>, vector<64xf32>
    %b = vector.broadcast %d : vector<64xf32> to vector<64x64xf32>
    vector.transfer_write %b, %Y[%h, %c0, %c0] {in_bounds = [true, true]} : vector<64x64xf32>, memref<1x64x64xf32>
  } {mapping = [#gpu.block<linear_dim_0>]}
  return
}

func.func @more_rows(%X: memref<1x64xf32>, %Y: memref<1x128xf32>, %v: vector<128xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<64xf32>
  scf.forall (%h) in (1) {
    vector.transfer_write %zero, %X[%h, %c0] {in_bounds = [true]} : vector<64xf32>, memref<1x64xf32>
  } {mapping = [#gpu.block<linear_dim_0>]}
  scf.forall (%h) in (1) {
    vector.transfer_write %v, %Y[%h, %c0] {in_bounds = [true]} : vector<128xf32>, memref<1x128xf32>
  } {mapping = [#gpu.block<linear_dim_0>]}
  return
}

// What adds to memory has rows, too: beside a program of 128 rows two warpgroups would each add all 64.
// CHECK-LABEL: func.func @more_rows_than_added
// CHECK-COUNT-2: scf.forall
// CHECK-LABEL: func.func @as_many_rows_as_added
// CHECK-COUNT-1: scf.forall
// CHECK-NOT: scf.forall
func.func @more_rows_than_added(%X: memref<1x128xf32>, %T: memref<32xf32>, %v: vector<64x8xf32>, %at: vector<64x8xindex>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant dense<0.0> : vector<128xf32>
  scf.forall (%h) in (1) {
    vector.transfer_write %zero, %X[%h, %c0] {in_bounds = [true]} : vector<128xf32>, memref<1x128xf32>
  } {mapping = [#gpu.block<linear_dim_0>]}
  scf.forall (%h) in (1) {
    attn.scatter_add %v at(%at) into %T : vector<64x8xf32>, memref<32xf32>
  } {mapping = [#gpu.block<linear_dim_0>]}
  return
}

func.func @as_many_rows_as_added(%X: memref<1x64xf32>, %T: memref<32xf32>, %v: vector<64x8xf32>, %at: vector<64x8xindex>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant dense<0.0> : vector<64xf32>
  scf.forall (%h) in (1) {
    vector.transfer_write %zero, %X[%h, %c0] {in_bounds = [true]} : vector<64xf32>, memref<1x64xf32>
  } {mapping = [#gpu.block<linear_dim_0>]}
  scf.forall (%h) in (1) {
    attn.scatter_add %v at(%at) into %T : vector<64x8xf32>, memref<32xf32>
  } {mapping = [#gpu.block<linear_dim_0>]}
  return
}
