// RUN: attn-opt %s --attn-outline-foralls --split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-outline-foralls --split-input-file --remarks-filter=attn-outline-foralls -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}3 [Passed] outlined | Category:attn-outline-foralls{{$}}

// The last dimension is the remainder of the index; constants are not captured;
// the context is one struct in the caller's frame.
// CHECK-LABEL: func private @attnRuntimeParallelFor(i64, !llvm.ptr, !llvm.ptr)
// CHECK-LABEL: func private @fill_task
// CHECK-SAME:    (%[[INDEX:.*]]: i64, %[[CONTEXT:.*]]: !llvm.ptr)
// CHECK:         llvm.getelementptr %[[CONTEXT]][0, 0]
// CHECK:         %[[I:.*]] = arith.index_cast %[[INDEX]]
// CHECK:         arith.remui %[[I]]
// CHECK:         arith.divui %[[I]]
// CHECK:         memref.store
// CHECK:         return
// CHECK-LABEL: func @fill
// CHECK:         %[[STORAGE:.*]] = llvm.alloca
// CHECK-NOT:     scf.forall
// CHECK:         %[[TASK:.*]] = {{.*}}constant @fill_task
// CHECK:         %[[POINTER:.*]] = builtin.unrealized_conversion_cast %[[TASK]]
// CHECK:         call @attnRuntimeParallelFor(%{{.*}}, %[[POINTER]], %[[STORAGE]])
func.func @fill(%x: memref<?x?xf32>, %n: index, %m: index) {
  %one = arith.constant 1.0 : f32
  scf.forall (%i, %j) in (%n, %m) {
    memref.store %one, %x[%i, %j] : memref<?x?xf32>
  }
  return
}

// -----

// Inner parallel loops belong to the task; bounds and steps are honoured.
// CHECK-LABEL: func private @nested_task
// CHECK:         arith.muli %{{.*}}, %c4
// CHECK:         arith.addi %{{.*}}, %c2
// CHECK:         scf.forall
// CHECK-LABEL: func @nested
// CHECK:         arith.ceildivsi
func.func @nested(%x: memref<?x?xf32>, %n: index) {
  %one = arith.constant 1.0 : f32
  scf.forall (%i) = (2) to (%n) step (4) {
    scf.forall (%j) in (%n) {
      memref.store %one, %x[%i, %j] : memref<?x?xf32>
    }
  }
  return
}

// A vector that CSE has moved out of the body is made inside again.
// CHECK-LABEL: func.func private @vectors_task
// CHECK: vector.create_mask
// CHECK: vector.maskedstore
func.func @vectors(%m: memref<8xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %v = arith.constant dense<1.0> : vector<8xf32>
  %mask = vector.create_mask %n : vector<8xi1>
  vector.maskedstore %m[%c0], %mask, %v : memref<8xf32>, vector<8xi1>, vector<8xf32>
  scf.forall (%i) in (4) {
    vector.maskedstore %m[%c0], %mask, %v : memref<8xf32>, vector<8xi1>, vector<8xf32>
  }
  return
}
