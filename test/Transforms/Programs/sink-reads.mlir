// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-sink-reads,canonicalize))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-sink-reads,canonicalize))" --remarks-filter=attn-sink-reads -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] sunk | Category:attn-sink-reads{{$}}

// What follows from the scalar moves with it; what does not stays outside.
// CHECK-LABEL: func.func @scale
// CHECK-SAME: %[[S:.*]]: memref<?xf32>, %[[Y:.*]]: memref<?xf32>, %[[K:.*]]: f32
// CHECK: %[[OUT:.*]] = arith.mulf %[[K]], %[[K]]
// CHECK: scf.forall
// CHECK-NEXT: %[[V:.*]] = memref.load %[[S]]
// CHECK-NEXT: %[[T:.*]] = arith.mulf %[[V]], %[[OUT]]
// CHECK-NEXT: memref.store %[[T]], %[[Y]]
func.func @scale(%s: memref<?xf32>, %y: memref<?xf32>, %k: f32) {
  %c0 = arith.constant 0 : index
  %n = memref.dim %y, %c0 : memref<?xf32>
  %v = memref.load %s[%c0] : memref<?xf32>
  %k2 = arith.mulf %k, %k : f32
  %t = arith.mulf %v, %k2 : f32
  scf.forall (%i) in (%n) {
    memref.store %t, %y[%i] : memref<?xf32>
  }
  return
}

// Memory that is written keeps its order.
// CHECK-LABEL: func.func @written
// CHECK: memref.load
// CHECK: scf.forall
// CHECK-NOT: memref.load
func.func @written(%y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %n = memref.dim %y, %c0 : memref<?xf32>
  %v = memref.load %y[%c0] : memref<?xf32>
  scf.forall (%i) in (%n) {
    memref.store %v, %y[%i] : memref<?xf32>
  }
  return
}
