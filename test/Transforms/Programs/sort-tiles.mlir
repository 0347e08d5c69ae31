// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-sort-tiles))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-sort-tiles))" --remarks-filter=attn-sort-tiles -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] sorted | Category:attn-sort-tiles{{$}}

// Ranks, then the order, then the tiles in it: the place first, then what the length does
// not depend on.
// CHECK-LABEL: func.func @tiles
// CHECK: %[[LENGTHS:.*]] = memref.alloc(%arg0, %arg2) : memref<?x?xi32>
// CHECK: %[[COUNT:.*]] = arith.muli %{{.*}}, %arg2
// CHECK: %[[FLAT:.*]] = memref.collapse_shape %[[LENGTHS]] {{\[\[}}0, 1]]
// CHECK: %[[RANKS:.*]] = memref.alloc(%[[COUNT]])
// CHECK: %[[ORDER:.*]] = memref.alloc(%[[COUNT]])
// CHECK: scf.forall
// CHECK: vector.transfer_read %[[FLAT]]
// CHECK: vector.transfer_read %[[FLAT]]
// CHECK: arith.cmpi sgt
// CHECK: vector.multi_reduction <add>
// CHECK: vector.transfer_write %{{.*}}, %[[RANKS]]
// CHECK: scf.forall
// CHECK: vector.transfer_read %[[RANKS]]
// CHECK: vector.multi_reduction <add>
// CHECK: vector.transfer_write %{{.*}}, %[[ORDER]]
// CHECK: scf.forall (%[[P:.*]], %[[H:.*]]) in (%[[COUNT]], %arg1)
// CHECK: %[[ENTRY:.*]] = memref.load %[[ORDER]][%[[P]]]
// CHECK: arith.divui %[[ENTRY]]
// CHECK: %[[LENGTH:.*]] = memref.load %[[LENGTHS]]
// CHECK: scf.for
// CHECK: } {attn.descending, mapping = [#gpu.block<linear_dim_0>, #gpu.block<linear_dim_1>]}
// CHECK: memref.dealloc %[[RANKS]]
// CHECK: memref.dealloc %[[ORDER]]
func.func @tiles(%b: index, %h: index, %n: index, %out: memref<?x?x?xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %lengths = memref.alloc(%b, %n) : memref<?x?xi32>
  scf.forall (%i, %j, %k) in (%b, %h, %n) {
    %length = memref.load %lengths[%i, %k] : memref<?x?xi32>
    %trips = arith.index_cast %length : i32 to index
    scf.for %t = %c0 to %trips step %c1 {
      memref.store %length, %out[%i, %j, %k] : memref<?x?x?xi32>
    } {attn.fold_loop, attn.tabulated}
  }
  return
}

// Lengths that no table of this function has, and loops over no table.
// CHECK-LABEL: func.func @others
// CHECK-NOT: memref.alloc
// CHECK-NOT: attn.descending
func.func @others(%b: index, %lengths: memref<?xi32>, %out: memref<?xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.forall (%i) in (%b) {
    %length = memref.load %lengths[%i] : memref<?xi32>
    %trips = arith.index_cast %length : i32 to index
    scf.for %t = %c0 to %trips step %c1 {
      memref.store %length, %out[%i] : memref<?xi32>
    } {attn.fold_loop, attn.tabulated}
  }
  return
}

// A program for rare calls: all calls would sort for it.
// CHECK-LABEL: func.func @rare
// CHECK-COUNT-1: memref.alloc
// CHECK-NOT: memref.alloc
// CHECK-NOT: attn.descending
func.func @rare(%b: index, %flags: memref<?xi32>, %out: memref<?xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %lengths = memref.alloc(%b) : memref<?xi32>
  scf.forall (%i) in (%b) {
    hopper.run_if any %flags : memref<?xi32>
    %length = memref.load %lengths[%i] : memref<?xi32>
    %trips = arith.index_cast %length : i32 to index
    scf.for %t = %c0 to %trips step %c1 {
      memref.store %length, %out[%i] : memref<?xi32>
    } {attn.fold_loop, attn.tabulated}
  }
  return
}
