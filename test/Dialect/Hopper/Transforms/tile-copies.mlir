// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(hopper-tile-copies))" -mlir-print-local-scope | FileCheck %s

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

// One scalar is not worth a loop.
// CHECK-LABEL: func.func @scalar
// CHECK: memref.copy
func.func @scalar(%a: memref<f32>, %b: memref<f32>) {
  memref.copy %a, %b : memref<f32> to memref<f32>
  return
}
