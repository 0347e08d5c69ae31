// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-tile-statements))" -mlir-print-local-scope -split-input-file -verify-diagnostics | FileCheck %s
// RUN: not attn-opt %s -pass-pipeline="builtin.module(func.func(attn-tile-statements))" -mlir-print-local-scope -split-input-file --remarks-filter=attn-tile-statements -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}12 [Passed] tiled | Category:attn-tile-statements{{$}}

// A sum along the first dimension: vectors along the last one, the sum in order.
// CHECK-LABEL: func.func @sum
// CHECK:       scf.forall (%[[I:.*]], %[[J:.*]]) in (%{{.*}}, %{{.*}}) {
// CHECK:         %[[X:.*]] = affine.apply affine_map<(d0) -> (d0 * 64)>(%[[J]])
// CHECK:         %[[START:.*]] = vector.transfer_read %arg1[%[[I]], %[[X]]], {{.*}} : memref<?x?xf32>, vector<64xf32>
// CHECK:         %[[SUM:.*]] = scf.for %[[K:.*]] = {{.*}} iter_args(%[[S:.*]] = %[[START]]) -> (vector<64xf32>) {
// CHECK:           %[[A:.*]] = vector.transfer_read %arg0[%[[K]], %[[I]], %[[X]]], {{.*}} : memref<?x?x?xf32>, vector<64xf32>
// CHECK:           arith.addf %[[S]], %[[A]] : vector<64xf32>
// CHECK:         vector.transfer_write %[[SUM]], %arg1[%[[I]], %[[X]]] : vector<64xf32>, memref<?x?xf32>
func.func @sum(%a: memref<?x?x?xf32>, %b: memref<?x?xf32>) {
  linalg.generic {indexing_maps = [affine_map<(k, i, j) -> (k, i, j)>, affine_map<(k, i, j) -> (i, j)>],
                  iterator_types = ["reduction", "parallel", "parallel"]}
      ins(%a : memref<?x?x?xf32>) outs(%b : memref<?x?xf32>) {
  ^bb0(%x: f32, %s: f32):
    %t = arith.addf %s, %x : f32
    linalg.yield %t : f32
  }
  return
}

// -----

// One element: a loop with one iteration, whose first lane writes.
// CHECK-LABEL: func.func @total
// CHECK:       %[[OUT:.*]] = memref.reinterpret_cast %arg1 to offset: [0], sizes: [1], strides: [1]
// CHECK:       scf.forall (%{{.*}}) in (1) {
// CHECK:         scf.for
// CHECK:           vector.transfer_read %arg0[%{{.*}}], {{.*}} {in_bounds = [true], permutation_map = affine_map<(d0) -> (0)>} : memref<?xf32>, vector<64xf32>
// CHECK:         vector.transfer_write %{{.*}}, %[[OUT]]{{.*}} : vector<64xf32>, memref<1xf32>
// CHECK:       mapping = [#gpu.block<linear_dim_0>]
func.func @total(%a: memref<?xf32>, %b: memref<f32>) {
  linalg.generic {indexing_maps = [affine_map<(k) -> (k)>, affine_map<(k) -> ()>], iterator_types = ["reduction"]}
      ins(%a : memref<?xf32>) outs(%b : memref<f32>) {
  ^bb0(%x: f32, %s: f32):
    %t = arith.addf %s, %x : f32
    linalg.yield %t : f32
  }
  return
}

// -----

// Fills, indices, and scalars from outside.
// CHECK-LABEL: func.func @more
// CHECK:       scf.forall
// CHECK:         vector.broadcast %arg1 : f32 to vector<64xf32>
// CHECK:         vector.transfer_write
// CHECK:       scf.forall
// CHECK:         vector.step : vector<64xindex>
// CHECK:         arith.index_cast %{{.*}} : vector<64xindex> to vector<64xi32>
// CHECK:         vector.transfer_write
func.func @more(%a: memref<?xf32>, %x: f32, %b: memref<?xi32>) {
  linalg.fill ins(%x : f32) outs(%a : memref<?xf32>)
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%b : memref<?xi32>) {
  ^bb0(%s: i32):
    %i = linalg.index 0 : index
    %c = arith.index_cast %i : index to i32
    linalg.yield %c : i32
  }
  return
}

// -----

// A scalar from memory to memory.
// CHECK-LABEL: func.func @scalar
// CHECK-NOT:   memref.load
// CHECK:       scf.forall (%{{.*}}) in (1) {
// CHECK:         %[[V:.*]] = vector.transfer_read
// CHECK:         %[[T:.*]] = memref.subview %arg1[%arg2] [1] [1]
// CHECK:         vector.transfer_write %[[V]], %[[T]]
// CHECK-NOT:   memref.store
func.func @scalar(%a: memref<f32>, %b: memref<?xf32>, %i: index) {
  %x = memref.load %a[] : memref<f32>
  memref.store %x, %b[%i] : memref<?xf32>
  return
}

// -----

func.func @skewed(%a: memref<?xf32>, %b: memref<?x?xf32>) {
  // expected-error @+1 {{expected operands that are indexed by loops}}
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i + j)>, affine_map<(i, j) -> (i, j)>],
                  iterator_types = ["parallel", "parallel"]} ins(%a : memref<?xf32>) outs(%b : memref<?x?xf32>) {
  ^bb0(%x: f32, %s: f32):
    linalg.yield %x : f32
  }
  return
}

// -----

// What a body reads: at loops, and at a computed index of what has one dimension.
// CHECK-LABEL: func.func @reads
// CHECK:       scf.forall (%[[I:.*]], %[[J:.*]]) in (%{{.*}}, %{{.*}}) {
// CHECK:         %[[LANE:.*]] = affine.apply affine_map<(d0) -> (d0 * 64)>(%[[J]])
// CHECK:         %[[X:.*]] = vector.transfer_read %arg0[%[[LANE]], %[[I]]], %{{.*}} {{.*}}permutation_map = affine_map<(d0, d1) -> (d0)>} : memref<?x?xindex>, vector<64xindex>
// CHECK:         %[[SIZE:.*]] = memref.dim %arg1, %c0
// CHECK:         %[[SIZES:.*]] = vector.broadcast %[[SIZE]] : index to vector<64xindex>
// CHECK:         %[[INSIDE:.*]] = arith.cmpi ult, %[[X]], %[[SIZES]]
// CHECK:         %[[Y:.*]] = vector.gather %arg1[%c0{{.*}}] [%[[X]]], %[[INSIDE]], %{{.*}} : memref<?xf32>, vector<64xindex>, vector<64xi1>, vector<64xf32> into vector<64xf32>
// CHECK:         vector.transfer_write %[[Y]], %arg2[%[[I]], %[[LANE]]]
func.func @reads(%p: memref<?x?xindex>, %a: memref<?xf32>, %b: memref<?x?xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} outs(%b : memref<?x?xf32>) {
  ^bb0(%s: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %x = memref.load %p[%j, %i] : memref<?x?xindex>
    %y = memref.load %a[%x] : memref<?xf32>
    linalg.yield %y : f32
  }
  return
}

// -----

func.func @gathers(%a: memref<?x?xf32>, %b: memref<?xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%b : memref<?xf32>) {
  ^bb0(%s: f32):
    %i = linalg.index 0 : index
    %k = arith.addi %i, %i : index
    // expected-error @+1 {{has no tile form, expected indices that are loops, or one index}}
    %x = memref.load %a[%i, %k] : memref<?x?xf32>
    linalg.yield %x : f32
  }
  return
}

// -----

func.func @allocates(%b: memref<?xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%b : memref<?xf32>) {
  ^bb0(%s: f32):
    // expected-error @+1 {{has no tile form, expected an elementwise op}}
    %x = memref.alloc() : memref<f32>
    %y = memref.load %x[] : memref<f32>
    linalg.yield %y : f32
  }
  return
}

// -----

// A sum at computed indices: each element of the destination adds what has its indices. A
// coordinate that is an index is its loop, with the size of the values.
// CHECK-LABEL: func.func @scatter
// CHECK-DAG:   %[[DEST:.*]] = memref.cast %arg1 : memref<3x73xf32> to memref<3x?xf32>
// CHECK:       scf.forall (%[[K:.*]], %[[J:.*]]) in (3, 2) {
// CHECK:         %[[LANE:.*]] = affine.apply affine_map<(d0) -> (d0 * 64)>(%[[J]])
// CHECK:         %[[START:.*]] = vector.transfer_read %[[DEST]][%[[K]], %[[LANE]]]
// CHECK:         %[[SUM:.*]] = scf.for %[[I:.*]] = %c0{{.*}} to %{{.*}} step %{{.*}} iter_args(%[[A:.*]] = %[[START]])
// CHECK:           %[[X:.*]] = vector.transfer_read %arg0[%[[I]], %[[LANE]]]
// CHECK:           %[[AT:.*]] = vector.broadcast %[[I]]
// CHECK:           %[[PLACE:.*]] = arith.divui %[[AT]]
// CHECK:           %[[HERE:.*]] = vector.broadcast %[[K]]
// CHECK:           %[[SAME:.*]] = arith.cmpi eq, %[[PLACE]], %[[HERE]]
// CHECK:           %[[TERM:.*]] = arith.select %[[SAME]], %[[X]]
// CHECK:           arith.addf %[[A]], %[[TERM]]
// CHECK:         vector.transfer_write %[[SUM]], %[[DEST]][%[[K]], %[[LANE]]]
func.func @scatter(%x: memref<?x70xf32>, %t: memref<3x73xf32>) {
  attn.scatter_sum %x into %t at {
  ^bb0(%i: index, %j: index):
    %c8 = arith.constant 8 : index
    %k = arith.divui %i, %c8 : index
    attn.yield %k, %j : index, index
  } : memref<?x70xf32>, memref<3x73xf32>
  return
}

// -----

// Reads of two dimensions at what is no coordinate: of all elements in order.
// CHECK-LABEL: func.func @scatter_at_read
// CHECK:       %[[COPY:.*]] = memref.alloc({{.*}}) : memref<?x?xindex>
// CHECK:       scf.forall
// CHECK:         vector.transfer_write %{{.*}}, %[[COPY]]
// CHECK:       %[[FLAT:.*]] = memref.collapse_shape %[[COPY]] {{\[\[}}0, 1]]
// CHECK:       %[[SIZE:.*]] = memref.dim %arg2, %c1
// CHECK:       scf.forall
// CHECK:         scf.for %[[I:.*]] =
// CHECK:           %[[ROW:.*]] = arith.divui
// CHECK:           %[[SIZES:.*]] = vector.broadcast %[[SIZE]]
// CHECK:           %[[FIRST:.*]] = arith.muli %[[ROW]], %[[SIZES]]
// CHECK:           %[[AT:.*]] = arith.addi %[[FIRST]], %{{.*}}
// CHECK:           vector.gather %[[FLAT]][%{{.*}}] [%[[AT]]]
// CHECK:       memref.dealloc %[[COPY]]
func.func @scatter_at_read(%x: memref<?x?xf32>, %t: memref<3x?xf32>, %p: memref<?x?xindex, strided<[?, 1]>>) {
  attn.scatter_sum %x into %t at {
  ^bb0(%i: index, %j: index):
    %c8 = arith.constant 8 : index
    %row = arith.divui %i, %c8 : index
    %k = memref.load %p[%row, %j] : memref<?x?xindex, strided<[?, 1]>>
    attn.yield %k, %j : index, index
  } : memref<?x?xf32>, memref<3x?xf32>
  return
}

// -----

// Rows of a head's size: tiles of 128 of them.
// CHECK-LABEL: func.func @tiles
// CHECK:       scf.forall (%[[H:.*]], %[[T:.*]]) in (%{{.*}}, %{{.*}}) {
// CHECK:         %[[I:.*]] = affine.apply affine_map<(d0) -> (d0 * 128)>(%[[T]])
// CHECK:         %[[X:.*]] = vector.transfer_read %arg0[%[[H]], %[[I]], %{{.*}}], %{{.*}} {in_bounds = [false, true]} : memref<?x?x128xf32>, vector<128x128xf32>
// CHECK:         %[[Y:.*]] = arith.truncf %[[X]] : vector<128x128xf32> to vector<128x128xbf16>
// CHECK:         vector.transfer_write %[[Y]], %arg1[%[[H]], %[[I]], %{{.*}}] {in_bounds = [false, true]} : vector<128x128xbf16>, memref<?x?x128xbf16>
func.func @tiles(%a: memref<?x?x128xf32>, %b: memref<?x?x128xbf16>) {
  linalg.generic {indexing_maps = [affine_map<(h, i, d) -> (h, i, d)>, affine_map<(h, i, d) -> (h, i, d)>],
                  iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a : memref<?x?x128xf32>) outs(%b : memref<?x?x128xbf16>) {
  ^bb0(%x: f32, %s: bf16):
    %t = arith.truncf %x : f32 to bf16
    linalg.yield %t : bf16
  }
  return
}

// -----

// Rows of a length that is not known: parts of 64 columns.
// CHECK-LABEL: func.func @parts
// CHECK:       scf.forall (%[[H:.*]], %[[T:.*]], %[[U:.*]]) in
// CHECK:         %[[I:.*]] = affine.apply affine_map<(d0) -> (d0 * 128)>(%[[T]])
// CHECK:         %[[J:.*]] = affine.apply affine_map<(d0) -> (d0 * 64)>(%[[U]])
// CHECK:         vector.transfer_write %{{.*}}, %arg0[%[[H]], %[[I]], %[[J]]] : vector<128x64xf32>, memref<?x?x?xf32>
func.func @parts(%a: memref<?x?x?xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%a : memref<?x?x?xf32>)
  return
}

// -----

// A copy: as a statement.
// CHECK-LABEL: func.func @copy
// CHECK: scf.forall (%[[I:.*]], %[[J:.*]]) in (%{{.*}}, %{{.*}}) {
// CHECK: %[[X:.*]] = affine.apply affine_map<(d0) -> (d0 * 64)>(%[[J]])
// CHECK: %[[V:.*]] = vector.transfer_read %{{.*}}[%[[I]], %[[X]]], %{{.*}} : memref<?x?xf32, strided<[?, 1], offset: ?>>, vector<64xf32>
// CHECK: vector.transfer_write %[[V]], %{{.*}}[%[[I]], %[[X]]] : vector<64xf32>, memref<?x?xf32>
// CHECK-NOT: memref.copy
func.func @copy(%a: memref<?x?xf32, strided<[?, 1], offset: ?>>, %b: memref<?x?xf32>) {
  memref.copy %a, %b : memref<?x?xf32, strided<[?, 1], offset: ?>> to memref<?x?xf32>
  return
}

// -----

// Rows that end inside of a tile.
// CHECK-LABEL: func.func @rows
// CHECK: vector.transfer_read %arg0[%{{.*}}, %{{.*}}], %{{.*}} : memref<?x59xf16>, vector<128x64xf16>
// CHECK: vector.transfer_write %{{.*}}, %arg1[%{{.*}}, %{{.*}}] : vector<128x64xf16>, memref<?x59xf16, strided<[64, 1]>>
func.func @rows(%a: memref<?x59xf16>, %b: memref<?x59xf16, strided<[64, 1]>>) {
  memref.copy %a, %b : memref<?x59xf16> to memref<?x59xf16, strided<[64, 1]>>
  return
}

// -----

// One scalar is not worth a loop.
// CHECK-LABEL: func.func @scalar
// CHECK: memref.copy
func.func @scalar(%a: memref<f32>, %b: memref<f32>) {
  memref.copy %a, %b : memref<f32> to memref<f32>
  return
}
