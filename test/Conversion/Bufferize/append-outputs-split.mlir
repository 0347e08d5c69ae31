// RUN: attn-opt %s --attn-append-outputs | FileCheck %s
// RUN: attn-opt %s --attn-append-outputs --eliminate-empty-tensors --attn-bufferize --canonicalize --cse | FileCheck %s --check-prefix=BUFFER

// A result that joins dimensions of another tensor: that one is computed in the
// caller's buffer, split in the same way, and nothing is copied.
// CHECK-LABEL: func @joined
// CHECK-SAME:    %[[OUT:[a-z0-9]+]]: memref<?x8xf32, strided<[?, 1], offset: ?>>)
// CHECK:         %[[SPLIT:.*]] = memref.expand_shape %[[OUT]] {{\[}}[0, 1], [2]] output_shape [%{{.*}}, %{{.*}}, 8]
// CHECK-NEXT:    tensor.empty
// CHECK:         %[[R:.*]] = linalg.generic
// CHECK-NOT:     collapse_shape
// CHECK:         bufferization.materialize_in_destination %[[R]] in restrict writable %[[SPLIT]]
// BUFFER-LABEL: func @joined
// BUFFER-NOT:     memref.alloc
// BUFFER-NOT:     memref.copy
// BUFFER:         linalg.generic
// BUFFER-NOT:     memref.copy
// BUFFER:         return
#id = affine_map<(a, b, c) -> (a, b, c)>
func.func @joined(%x: tensor<?x?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x?x8xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?x8xf32>
  %e = tensor.empty(%m, %n) : tensor<?x?x8xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<?x?x8xf32>) outs(%e : tensor<?x?x8xf32>) {
  ^bb0(%u: f32, %v: f32):
    %s = arith.addf %u, %u : f32
    linalg.yield %s : f32
  } -> tensor<?x?x8xf32>
  %j = tensor.collapse_shape %r [[0, 1], [2]] : tensor<?x?x8xf32> into tensor<?x8xf32>
  return %j : tensor<?x8xf32>
}

// What is not computed here is joined as it is.
// CHECK-LABEL: func @argument
// CHECK-SAME:    %[[OUT:[a-z0-9]+]]: memref<?x8xf32, strided<[?, 1], offset: ?>>)
// CHECK:         %[[J:.*]] = tensor.collapse_shape
// CHECK:         bufferization.materialize_in_destination %[[J]] in restrict writable %[[OUT]]
func.func @argument(%x: tensor<?x?x8xf32>) -> tensor<?x8xf32> {
  %j = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x?x8xf32> into tensor<?x8xf32>
  return %j : tensor<?x8xf32>
}

// A join that somebody else reads stays.
// CHECK-LABEL: func @twice
// CHECK:         %[[R:.*]] = linalg.fill
// CHECK:         tensor.collapse_shape
// CHECK:         bufferization.materialize_in_destination %[[R]]
func.func @twice(%m: index, %n: index) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%m, %n) : tensor<?x?x8xf32>
  %r = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %j = tensor.collapse_shape %r [[0, 1], [2]] : tensor<?x?x8xf32> into tensor<?x8xf32>
  %s = linalg.map { arith.negf } ins(%j : tensor<?x8xf32>) outs(%j : tensor<?x8xf32>)
  return %j, %s : tensor<?x8xf32>, tensor<?x8xf32>
}

// One join of dimensions that is two results.
// CHECK-LABEL: func.func @same
// CHECK:         %[[A:.*]] = memref.expand_shape
// CHECK:         %[[B:.*]] = memref.expand_shape
// CHECK:         %[[R:.*]] = linalg.fill
// CHECK:         bufferization.materialize_in_destination %[[R]] in restrict writable %[[A]]
// CHECK:         bufferization.materialize_in_destination %[[R]] in restrict writable %[[B]]
func.func @same(%n: index, %m: index, %f: f32) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %e = tensor.empty(%n, %m) : tensor<?x?x8xf32>
  %r = linalg.fill ins(%f : f32) outs(%e : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %j = tensor.collapse_shape %r [[0, 1], [2]] : tensor<?x?x8xf32> into tensor<?x8xf32>
  return %j, %j : tensor<?x8xf32>, tensor<?x8xf32>
}
