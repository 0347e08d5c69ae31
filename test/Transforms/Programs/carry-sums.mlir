// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-carry-sums,canonicalize,cse))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-carry-sums,canonicalize,cse))" --remarks-filter=attn-carry-sums -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}4 [Passed] carried | Category:attn-carry-sums{{$}}

// Terms of each %b, their sum, rounded, at its place among others: one program, with the
// sum carried, and no memory but the result.
// CHECK-LABEL: func.func @shared
// CHECK-SAME: %[[X:.*]]: memref<?x?x?x?xf32>, %[[Y:.*]]: memref<?x?xf32>, %[[W:.*]]: memref<?x?xf32>, %[[R:.*]]: memref<?x?x?xbf16>
// CHECK-NOT: memref.alloc
// CHECK: %[[PLACE:.*]] = memref.subview %[[R]]
// All of the result is filled, or nothing where the sums are all of it.
// CHECK: %[[ROWS:.*]] = arith.select %{{.*}}, %c0, %{{.*}} : index
// CHECK: %[[FILLED:.*]] = memref.subview %[[R]][0, 0, 0] [%[[ROWS]], %{{.*}}, %{{.*}}]
// CHECK: linalg.fill {{.*}} outs(%[[FILLED]]
// CHECK: scf.forall (%[[H:.*]], %[[G:.*]], %[[T:.*]], %[[U:.*]]) in (%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {
// CHECK-DAG: %[[J:.*]] = affine.apply #{{.*}}(%[[U]])
// CHECK-DAG: %[[I:.*]] = affine.apply #{{.*}}(%[[T]])
// What is the same for all terms is read once.
// CHECK: %[[ONCE:.*]] = vector.transfer_read %[[W]][%[[I]], %[[J]]]
// CHECK: %[[SUM:.*]] = scf.for %[[B:.*]] = %c0 to %{{.*}} step %c1 iter_args(%[[A:.*]] = %{{.*}}) -> (vector<128x64xf32>) {
// CHECK: vector.transfer_read %[[X]][%[[B]], %[[H]], %[[G]], %[[I]]]
// CHECK: vector.transfer_read %[[Y]][%[[B]], %[[J]]]
// CHECK: %[[TERM:.*]] = arith.mulf %{{.*}}, %[[ONCE]]
// CHECK: %[[NEXT:.*]] = arith.addf %[[A]], %[[TERM]]
// CHECK: scf.yield %[[NEXT]]
// CHECK: %[[ROUNDED:.*]] = arith.truncf %[[SUM]] : vector<128x64xf32> to vector<128x64xbf16>
// CHECK: %[[HEAD:.*]] = arith.muli %[[H]], %{{.*}}
// CHECK: %[[INDEX:.*]] = arith.addi %[[HEAD]], %[[G]]
// CHECK: vector.transfer_write %[[ROUNDED]], %[[PLACE]][%[[INDEX]], %[[I]], %[[J]]] : vector<128x64xbf16>
// CHECK-NOT: scf.forall
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @shared(%X: memref<?x?x?x?xf32>, %Y: memref<?x?xf32>, %W: memref<?x?xf32>, %R: memref<?x?x?xbf16>, %B: index, %H: index, %G: index, %n: index, %m: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f32
  %none = arith.constant 0.0 : bf16
  %zero = arith.constant dense<0.0> : vector<128x64xf32>
  %tiles = affine.apply affine_map<()[s0] -> (s0 ceildiv 128)>()[%n]
  %heads = arith.muli %H, %G : index
  %P = memref.alloc(%B, %H, %G, %n, %m) : memref<?x?x?x?x?xf32>
  scf.forall (%b, %h, %g, %t) in (%B, %H, %G, %tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %rest = affine.min affine_map<(d0)[s0] -> (d0 * -128 + s0, 128)>(%t)[%n]
    %own = memref.subview %P[%b, %h, %g, %i, 0] [1, 1, 1, %rest, %m] [1, 1, 1, 1, 1] : memref<?x?x?x?x?xf32> to memref<1x1x1x?x?xf32, strided<[?, ?, ?, ?, 1], offset: ?>>
    %x = vector.transfer_read %X[%b, %h, %g, %i], %pad : memref<?x?x?x?xf32>, vector<128xf32>
    %rows = vector.broadcast %x : vector<128xf32> to vector<64x128xf32>
    %r = vector.transpose %rows, [1, 0] : vector<64x128xf32> to vector<128x64xf32>
    scf.for %j = %c0 to %m step %c64 {
      %y = vector.transfer_read %Y[%b, %j], %pad : memref<?x?xf32>, vector<64xf32>
      %columns = vector.broadcast %y : vector<64xf32> to vector<128x64xf32>
      %product = arith.mulf %r, %columns : vector<128x64xf32>
      %w = vector.transfer_read %W[%i, %j], %pad : memref<?x?xf32>, vector<128x64xf32>
      %s = arith.mulf %product, %w : vector<128x64xf32>
      vector.transfer_write %s, %own[%c0, %c0, %c0, %c0, %j] : vector<128x64xf32>, memref<1x1x1x?x?xf32, strided<[?, ?, ?, ?, 1], offset: ?>>
    }
  }
  %S = memref.alloc(%H, %G, %n, %m) : memref<?x?x?x?xf32>
  linalg.fill ins(%pad : f32) outs(%S : memref<?x?x?x?xf32>)
  linalg.generic {indexing_maps = [affine_map<(b, h, g, i, j) -> (b, h, g, i, j)>, affine_map<(b, h, g, i, j) -> (h, g, i, j)>], iterator_types = ["reduction", "parallel", "parallel", "parallel", "parallel"]} ins(%P : memref<?x?x?x?x?xf32>) outs(%S : memref<?x?x?x?xf32>) {
  ^bb0(%in: f32, %out: f32):
    %sum = arith.addf %out, %in : f32
    linalg.yield %sum : f32
  }
  %T = memref.alloc(%H, %G, %n, %m) : memref<?x?x?x?xbf16>
  linalg.generic {indexing_maps = [affine_map<(h, g, i, j) -> (h, g, i, j)>, affine_map<(h, g, i, j) -> (h, g, i, j)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%S : memref<?x?x?x?xf32>) outs(%T : memref<?x?x?x?xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %rounded = arith.truncf %in : f32 to bf16
    linalg.yield %rounded : bf16
  }
  %joined = memref.collapse_shape %T [[0, 1], [2], [3]] : memref<?x?x?x?xbf16> into memref<?x?x?xbf16>
  linalg.fill ins(%none : bf16) outs(%R : memref<?x?x?xbf16>)
  %place = memref.subview %R[0, 0, 0] [%heads, %n, %m] [1, 1, 1] : memref<?x?x?xbf16> to memref<?x?x?xbf16, strided<[?, ?, 1]>>
  memref.copy %joined, %place : memref<?x?x?xbf16> to memref<?x?x?xbf16, strided<[?, ?, 1]>>
  memref.dealloc %P : memref<?x?x?x?x?xf32>
  memref.dealloc %S : memref<?x?x?x?xf32>
  memref.dealloc %T : memref<?x?x?x?xbf16>
  return
}

// Tiles that are left out, for all %b alike, have sums without terms.
// CHECK-LABEL: func.func @banded
// CHECK: scf.forall (%[[T:.*]], %[[U:.*]]) in
// CHECK: %[[IN:.*]] = arith.andi
// CHECK: %[[TERMS:.*]] = arith.select %[[IN]], %arg{{.*}}, %c0 : index
// CHECK: scf.for %{{.*}} = %c0 to %[[TERMS]] step %c1 iter_args
func.func @banded(%X: memref<?x?x?xf32>, %R: memref<?x?xf32>, %B: index, %n: index, %m: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f32
  %tiles = affine.apply affine_map<()[s0] -> (s0 ceildiv 128)>()[%n]
  %P = memref.alloc(%B, %n, %m) : memref<?x?x?xf32>
  linalg.fill ins(%pad : f32) outs(%P : memref<?x?x?xf32>)
  scf.forall (%b, %t) in (%B, %tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %end = affine.min affine_map<(d0)[s0] -> (d0 * 128 + 128, s0)>(%t)[%m]
    scf.for %j = %i to %end step %c64 {
      %x = vector.transfer_read %X[%b, %i, %j], %pad : memref<?x?x?xf32>, vector<128x64xf32>
      vector.transfer_write %x, %P[%b, %i, %j] : vector<128x64xf32>, memref<?x?x?xf32>
    }
  }
  %S = memref.alloc(%n, %m) : memref<?x?xf32>
  linalg.fill ins(%pad : f32) outs(%S : memref<?x?xf32>)
  linalg.generic {indexing_maps = [affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (i, j)>], iterator_types = ["reduction", "parallel", "parallel"]} ins(%P : memref<?x?x?xf32>) outs(%S : memref<?x?xf32>) {
  ^bb0(%in: f32, %out: f32):
    %sum = arith.addf %out, %in : f32
    linalg.yield %sum : f32
  }
  memref.copy %S, %R : memref<?x?xf32> to memref<?x?xf32>
  return
}

// Nothing is summed: the program writes where the copy would.
// CHECK-LABEL: func.func @single
// CHECK-NOT: memref.alloc
// CHECK: scf.forall (%{{.*}}, %{{.*}}) in
// CHECK-NOT: scf.for
// CHECK: vector.transfer_write %{{.*}}, %arg1
// CHECK-NOT: memref.copy
func.func @single(%X: memref<?x?xf32>, %R: memref<?x?xf32>, %n: index, %m: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f32
  %tiles = affine.apply affine_map<()[s0] -> (s0 ceildiv 128)>()[%n]
  %P = memref.alloc(%n, %m) : memref<?x?xf32>
  scf.forall (%t) in (%tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    scf.for %j = %c0 to %m step %c64 {
      %x = vector.transfer_read %X[%i, %j], %pad : memref<?x?xf32>, vector<128x64xf32>
      vector.transfer_write %x, %P[%i, %j] : vector<128x64xf32>, memref<?x?xf32>
    }
  }
  memref.copy %P, %R : memref<?x?xf32> to memref<?x?xf32>
  return
}

// A view of the sum, for others: the program writes the sum where it was.
// CHECK-LABEL: func.func @viewed
// CHECK: %[[S:.*]] = memref.alloc
// CHECK: scf.forall (%[[H:.*]], %[[G:.*]], %[[T:.*]], %[[U:.*]]) in
// CHECK:   scf.for {{.*}} iter_args
// CHECK:   vector.transfer_write %{{.*}}, %[[S]][%[[H]], %[[G]], %{{.*}}, %{{.*}}]
// CHECK: %[[V:.*]] = memref.collapse_shape %[[S]]
// CHECK: attn.scatter_sum %[[V]]
func.func @viewed(%X: memref<?x?x?x?x?xf32>, %R: memref<2x?x?xf32>, %B: index, %H: index, %G: index, %n: index, %m: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f32
  %tiles = affine.apply affine_map<()[s0] -> (s0 ceildiv 128)>()[%n]
  %P = memref.alloc(%B, %H, %G, %n, %m) : memref<?x?x?x?x?xf32>
  scf.forall (%b, %h, %g, %t) in (%B, %H, %G, %tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    scf.for %j = %c0 to %m step %c64 {
      %x = vector.transfer_read %X[%b, %h, %g, %i, %j], %pad : memref<?x?x?x?x?xf32>, vector<128x64xf32>
      vector.transfer_write %x, %P[%b, %h, %g, %i, %j] : vector<128x64xf32>, memref<?x?x?x?x?xf32>
    }
  }
  %S = memref.alloc(%H, %G, %n, %m) : memref<?x?x?x?xf32>
  linalg.fill ins(%pad : f32) outs(%S : memref<?x?x?x?xf32>)
  linalg.generic {indexing_maps = [affine_map<(b, h, g, i, j) -> (b, h, g, i, j)>, affine_map<(b, h, g, i, j) -> (h, g, i, j)>],
                  iterator_types = ["reduction", "parallel", "parallel", "parallel", "parallel"]}
      ins(%P : memref<?x?x?x?x?xf32>) outs(%S : memref<?x?x?x?xf32>) {
  ^bb0(%x: f32, %s: f32):
    %y = arith.addf %x, %s : f32
    linalg.yield %y : f32
  }
  %V = memref.collapse_shape %S [[0, 1], [2], [3]] : memref<?x?x?x?xf32> into memref<?x?x?xf32>
  attn.scatter_sum %V into %R at {
  ^bb0(%h: index, %i: index, %j: index):
    %half = arith.divui %h, %c2 : index
    attn.yield %half, %i, %j : index, index, index
  } : memref<?x?x?xf32>, memref<2x?x?xf32>
  return
}

// Not for each tile: a loop in front.
// CHECK-LABEL: func.func @prepared
// CHECK-COUNT-2: scf.for
// CHECK: memref.copy
func.func @prepared(%X: memref<?x?xf32>, %R: memref<?x?xf32>, %n: index, %m: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<128x64xf32>
  %tiles = affine.apply affine_map<()[s0] -> (s0 ceildiv 128)>()[%n]
  %P = memref.alloc(%n, %m) : memref<?x?xf32>
  scf.forall (%t) in (%tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %s = scf.for %j = %c0 to %m step %c64 iter_args(%a = %zero) -> (vector<128x64xf32>) {
      %x = vector.transfer_read %X[%i, %j], %pad : memref<?x?xf32>, vector<128x64xf32>
      %b = arith.addf %a, %x : vector<128x64xf32>
      scf.yield %b : vector<128x64xf32>
    }
    scf.for %j = %c0 to %m step %c64 {
      vector.transfer_write %s, %P[%i, %j] : vector<128x64xf32>, memref<?x?xf32>
    }
  }
  memref.copy %P, %R : memref<?x?xf32> to memref<?x?xf32>
  return
}

// What must stay: bounds that differ among the terms; tiles that overlap; another store in
// the program; terms that are read again; what the program reads is written before the sum.
// CHECK-LABEL: func.func @kept
// CHECK-COUNT-5: linalg.generic {{.*}}"reduction"
// CHECK: return
#terms = affine_map<(b, i, j) -> (b, i, j)>
#sums = affine_map<(b, i, j) -> (i, j)>
func.func @kept(%X: memref<?x?x?xf32>, %L: memref<?xindex>, %Q: memref<?x?x?xf32>, %R1: memref<?x?xf32>, %R2: memref<?x?xf32>, %R3: memref<?x?xf32>, %R4: memref<?x?xf32>, %R5: memref<?x?xf32>, %R6: memref<?x?x?xf32>, %B: index, %n: index, %m: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f32
  %tiles = affine.apply affine_map<()[s0] -> (s0 ceildiv 128)>()[%n]
  %P1 = memref.alloc(%B, %n, %m) : memref<?x?x?xf32>
  linalg.fill ins(%pad : f32) outs(%P1 : memref<?x?x?xf32>)
  scf.forall (%b, %t) in (%B, %tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    %end = affine.min affine_map<(d0, d1)[s0] -> (d0 * 128 + d1, s0)>(%t, %b)[%m]
    scf.for %j = %c0 to %end step %c64 {
      %x = vector.transfer_read %X[%b, %i, %j], %pad : memref<?x?x?xf32>, vector<128x64xf32>
      vector.transfer_write %x, %P1[%b, %i, %j] : vector<128x64xf32>, memref<?x?x?xf32>
    }
  }
  %S1 = memref.alloc(%n, %m) : memref<?x?xf32>
  linalg.fill ins(%pad : f32) outs(%S1 : memref<?x?xf32>)
  linalg.generic {indexing_maps = [#terms, #sums], iterator_types = ["reduction", "parallel", "parallel"]} ins(%P1 : memref<?x?x?xf32>) outs(%S1 : memref<?x?xf32>) {
  ^bb0(%in: f32, %out: f32):
    %sum = arith.addf %out, %in : f32
    linalg.yield %sum : f32
  }
  memref.copy %S1, %R1 : memref<?x?xf32> to memref<?x?xf32>

  %P2 = memref.alloc(%B, %n, %m) : memref<?x?x?xf32>
  scf.forall (%b, %t) in (%B, %tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 96)>(%t)
    scf.for %j = %c0 to %m step %c64 {
      %x = vector.transfer_read %X[%b, %i, %j], %pad : memref<?x?x?xf32>, vector<128x64xf32>
      vector.transfer_write %x, %P2[%b, %i, %j] : vector<128x64xf32>, memref<?x?x?xf32>
    }
  }
  %S2 = memref.alloc(%n, %m) : memref<?x?xf32>
  linalg.fill ins(%pad : f32) outs(%S2 : memref<?x?xf32>)
  linalg.generic {indexing_maps = [#terms, #sums], iterator_types = ["reduction", "parallel", "parallel"]} ins(%P2 : memref<?x?x?xf32>) outs(%S2 : memref<?x?xf32>) {
  ^bb0(%in: f32, %out: f32):
    %sum = arith.addf %out, %in : f32
    linalg.yield %sum : f32
  }
  memref.copy %S2, %R2 : memref<?x?xf32> to memref<?x?xf32>

  %P3 = memref.alloc(%B, %n, %m) : memref<?x?x?xf32>
  scf.forall (%b, %t) in (%B, %tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    scf.for %j = %c0 to %m step %c64 {
      %x = vector.transfer_read %X[%b, %i, %j], %pad : memref<?x?x?xf32>, vector<128x64xf32>
      vector.transfer_write %x, %P3[%b, %i, %j] : vector<128x64xf32>, memref<?x?x?xf32>
      vector.transfer_write %x, %R6[%b, %i, %j] : vector<128x64xf32>, memref<?x?x?xf32>
    }
  }
  %S3 = memref.alloc(%n, %m) : memref<?x?xf32>
  linalg.fill ins(%pad : f32) outs(%S3 : memref<?x?xf32>)
  linalg.generic {indexing_maps = [#terms, #sums], iterator_types = ["reduction", "parallel", "parallel"]} ins(%P3 : memref<?x?x?xf32>) outs(%S3 : memref<?x?xf32>) {
  ^bb0(%in: f32, %out: f32):
    %sum = arith.addf %out, %in : f32
    linalg.yield %sum : f32
  }
  memref.copy %S3, %R3 : memref<?x?xf32> to memref<?x?xf32>

  %P4 = memref.alloc(%B, %n, %m) : memref<?x?x?xf32>
  scf.forall (%b, %t) in (%B, %tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    scf.for %j = %c0 to %m step %c64 {
      %x = vector.transfer_read %X[%b, %i, %j], %pad : memref<?x?x?xf32>, vector<128x64xf32>
      vector.transfer_write %x, %P4[%b, %i, %j] : vector<128x64xf32>, memref<?x?x?xf32>
    }
  }
  %S4 = memref.alloc(%n, %m) : memref<?x?xf32>
  linalg.fill ins(%pad : f32) outs(%S4 : memref<?x?xf32>)
  linalg.generic {indexing_maps = [#terms, #sums], iterator_types = ["reduction", "parallel", "parallel"]} ins(%P4 : memref<?x?x?xf32>) outs(%S4 : memref<?x?xf32>) {
  ^bb0(%in: f32, %out: f32):
    %sum = arith.addf %out, %in : f32
    linalg.yield %sum : f32
  }
  memref.copy %S4, %R4 : memref<?x?xf32> to memref<?x?xf32>
  memref.copy %P4, %R6 : memref<?x?x?xf32> to memref<?x?x?xf32>

  %P5 = memref.alloc(%B, %n, %m) : memref<?x?x?xf32>
  scf.forall (%b, %t) in (%B, %tiles) {
    %i = affine.apply affine_map<(d0) -> (d0 * 128)>(%t)
    scf.for %j = %c0 to %m step %c64 {
      %x = vector.transfer_read %X[%b, %i, %j], %pad : memref<?x?x?xf32>, vector<128x64xf32>
      vector.transfer_write %x, %P5[%b, %i, %j] : vector<128x64xf32>, memref<?x?x?xf32>
    }
  }
  memref.copy %Q, %X : memref<?x?x?xf32> to memref<?x?x?xf32>
  %S5 = memref.alloc(%n, %m) : memref<?x?xf32>
  linalg.fill ins(%pad : f32) outs(%S5 : memref<?x?xf32>)
  linalg.generic {indexing_maps = [#terms, #sums], iterator_types = ["reduction", "parallel", "parallel"]} ins(%P5 : memref<?x?x?xf32>) outs(%S5 : memref<?x?xf32>) {
  ^bb0(%in: f32, %out: f32):
    %sum = arith.addf %out, %in : f32
    linalg.yield %sum : f32
  }
  memref.copy %S5, %R5 : memref<?x?xf32> to memref<?x?xf32>
  return
}
