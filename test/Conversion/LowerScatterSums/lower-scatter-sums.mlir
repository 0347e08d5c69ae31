// RUN: attn-opt %s --attn-lower-scatter-sums --canonicalize --cse --split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-lower-scatter-sums --canonicalize --cse --split-input-file --remarks-filter=attn-lower-scatter-sums -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}5 [Passed] lowered | Category:attn-lower-scatter-sums{{$}}

// A coordinate that is an index: parallel, in blocks of the innermost. What the index is computed
// of is in order, outside of the block; a row that is outside adds nothing.
// CHECK-LABEL: func @rows
// CHECK-SAME: %[[X:.*]]: memref<?x?xf32>, %[[T:.*]]: memref<16x?xf32>
// CHECK-DAG: %[[COLS:.*]] = memref.dim %[[X]], %c1
// CHECK-DAG: %[[OWN:.*]] = memref.dim %[[T]], %c1
// CHECK: %[[END:.*]] = arith.minui %[[COLS]], %[[OWN]]
// CHECK: scf.forall (%[[J0:.*]]) = (0) to (%[[END]]) step (64)
// CHECK:   scf.for %[[I:.*]] = %c0 to %{{.*}} step %c1
// CHECK:     %[[BLOCK:.*]] = arith.floordivsi %[[I]], %c8
// CHECK:     %[[INSIDE:.*]] = arith.cmpi ult, %[[BLOCK]], %c16
// CHECK:     scf.if %[[INSIDE]]
// CHECK:       %[[J1:.*]] = arith.addi %[[J0]], %c64
// CHECK:       %[[TO:.*]] = arith.minui %[[J1]], %[[END]]
// CHECK:       scf.for %[[J:.*]] = %[[J0]] to %[[TO]] step %c1
// CHECK:         %[[VALUE:.*]] = memref.load %[[X]][%[[I]], %[[J]]]
// CHECK:         %[[OLD:.*]] = memref.load %[[T]][%[[BLOCK]], %[[J]]]
// CHECK:         %[[NEW:.*]] = arith.addf %[[OLD]], %[[VALUE]]
// CHECK:         memref.store %[[NEW]], %[[T]][%[[BLOCK]], %[[J]]]
func.func @rows(%x: memref<?x?xf32>, %t: memref<16x?xf32>) {
  attn.scatter_sum %x into %t at {
  ^bb0(%i: index, %j: index):
    %c8 = arith.constant 8 : index
    %block = arith.floordivsi %i, %c8 : index
    attn.yield %block, %j : index, index
  } : memref<?x?xf32>, memref<16x?xf32>
  return
}

// -----

// Of each row, at an index of both: one iteration for a row.
// CHECK-LABEL: func @columns
// CHECK: scf.forall (%[[I:.*]]) in (20)
// CHECK:   scf.for %[[J:.*]] = %c0 to %c30 step %c1
// CHECK:     %[[FAR:.*]] = arith.subi %[[I]], %[[J]]
// CHECK:     arith.cmpi ult, %[[FAR]], %c8
func.func @columns(%x: memref<20x30xf32>, %t: memref<20x8xf32>) {
  attn.scatter_sum %x into %t at {
  ^bb0(%i: index, %j: index):
    %far = arith.subi %i, %j : index
    attn.yield %i, %far : index, index
  } : memref<20x30xf32>, memref<20x8xf32>
  return
}

// -----

// Nothing is an index: each iteration owns a part of a dimension, of which an index depends on one
// coordinate alone. That coordinate is outside.
// CHECK-LABEL: func @parts
// CHECK-SAME: %[[PLACE:[a-z0-9]*]]: memref<30xindex>
// CHECK: scf.forall (%[[PART:.*]]) in (16)
// CHECK:   %[[FIRST:.*]] = arith.muli %[[PART]], %c3
// CHECK:   scf.for %[[J:.*]] = %c0 to %c30 step %c1
// CHECK:     %[[TO:.*]] = memref.load %[[PLACE]][%[[J]]]
// CHECK:     %[[INSIDE:.*]] = arith.cmpi ult, %[[TO]], %c40
// CHECK:     %[[AWAY:.*]] = arith.subi %[[TO]], %[[FIRST]]
// CHECK:     %[[OWN:.*]] = arith.cmpi ult, %[[AWAY]], %c3
// CHECK:     %[[BOTH:.*]] = arith.andi %[[INSIDE]], %[[OWN]]
// CHECK:     scf.if %[[BOTH]]
// CHECK:       scf.for %[[I:.*]] = %c0 to %c20 step %c1
// CHECK:         arith.addi %[[I]], %[[J]]
func.func @parts(%place: memref<30xindex>, %x: memref<20x30xf32>, %t: memref<50x40xf32>) {
  attn.scatter_sum %x into %t at {
  ^bb0(%i: index, %j: index):
    %sum = arith.addi %i, %j : index
    %to = memref.load %place[%j] : memref<30xindex>
    attn.yield %sum, %to : index, index
  } : memref<20x30xf32>, memref<50x40xf32>
  return
}

// -----

// No coordinate can be shared out: all in order. The same coordinate twice: a diagonal.
// CHECK-LABEL: func @order
// CHECK-NOT: scf.forall
// CHECK: scf.for
// CHECK:   scf.for
// CHECK-LABEL: func @diagonal
// CHECK: scf.for %[[I:.*]] = %c0 to %c5 step %c1
// CHECK:     arith.cmpi ult, %[[I]], %c3
// CHECK:     memref.load %{{.*}}[%[[I]], %[[I]]]
func.func @order(%x: memref<20x30xf32>, %t: memref<50xf32>) {
  attn.scatter_sum %x into %t at {
  ^bb0(%i: index, %j: index):
    %sum = arith.addi %i, %j : index
    attn.yield %sum : index
  } : memref<20x30xf32>, memref<50xf32>
  return
}
func.func @diagonal(%x: memref<5xf32>, %t: memref<5x3xf32>) {
  attn.scatter_sum %x into %t at {
  ^bb0(%i: index):
    attn.yield %i, %i : index, index
  } : memref<5xf32>, memref<5x3xf32>
  return
}
