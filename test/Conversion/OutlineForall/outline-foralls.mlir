// RUN: attn-opt %s --attn-outline-foralls --split-input-file | FileCheck %s

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
