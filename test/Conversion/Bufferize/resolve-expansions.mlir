// RUN: attn-opt %s --attn-resolve-expansions --canonicalize | FileCheck %s
// RUN: attn-opt %s --attn-resolve-expansions --remarks-filter=attn-resolve-expansions -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] resolved | Category:attn-resolve-expansions{{$}}
// REMARKS-DAG: {{^ *}}1 [Passed] views resolved | Category:attn-resolve-expansions{{$}}

// The inner of two sizes is a step of the outer one.
// CHECK-LABEL: func.func @split
// CHECK: memref.extract_strided_metadata
// CHECK: %[[OUTER:.*]] = arith.muli %{{.*}}, %arg2
// CHECK: memref.reinterpret_cast {{.*}} sizes: [%arg1, %arg2], strides: [%[[OUTER]], %{{.*}}]
func.func @split(%m: memref<?xf32, strided<[?], offset: ?>>, %h: index, %g: index) -> memref<?x?xf32, strided<[?, ?], offset: ?>> {
  %e = memref.expand_shape %m [[0, 1]] output_shape [%h, %g] : memref<?xf32, strided<[?], offset: ?>> into memref<?x?xf32, strided<[?, ?], offset: ?>>
  return %e : memref<?x?xf32, strided<[?, ?], offset: ?>>
}

// Without the fourth dimension, by the order of the others: the third one keeps its stride.
// CHECK-LABEL: func.func @view
// CHECK: %{{.*}}, %[[OFFSET:.*]], %{{.*}}:5, %[[STRIDES:.*]]:5 = memref.extract_strided_metadata
// CHECK: memref.reinterpret_cast {{.*}} to offset: [%[[OFFSET]]], sizes: [1, 1, 3, 16], strides: [%[[STRIDES]]#0, %[[STRIDES]]#1, %[[STRIDES]]#2, 1]
func.func @view(%m: memref<1x1x3x1x16xf32, strided<[?, ?, ?, ?, 1], offset: ?>>) -> memref<1x1x3x16xf32, strided<[?, ?, ?, 1], offset: ?>> {
  %v = memref.subview %m[0, 0, 0, 0, 0] [1, 1, 3, 1, 16] [1, 1, 1, 1, 1] : memref<1x1x3x1x16xf32, strided<[?, ?, ?, ?, 1], offset: ?>> to memref<1x1x3x16xf32, strided<[?, ?, ?, 1], offset: ?>>
  return %v : memref<1x1x3x16xf32, strided<[?, ?, ?, 1], offset: ?>>
}

// One that strides tell stays.
// CHECK-LABEL: func.func @told
// CHECK: memref.subview
func.func @told(%m: memref<2x1x16xf32>, %i: index) -> memref<1x16xf32, strided<[16, 1], offset: ?>> {
  %v = memref.subview %m[%i, 0, 0] [1, 1, 16] [1, 1, 1] : memref<2x1x16xf32> to memref<1x16xf32, strided<[16, 1], offset: ?>>
  return %v : memref<1x16xf32, strided<[16, 1], offset: ?>>
}
