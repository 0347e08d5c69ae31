// RUN: attn-opt %s -attn-emit-shape-function -cse -split-input-file -verify-diagnostics | FileCheck %s
// RUN: not attn-opt %s -attn-emit-shape-function -cse -split-input-file --remarks-filter=attn-emit-shape-function -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}2 [Passed] emitted | Category:attn-emit-shape-function{{$}}

// Sizes of the results are sizes of arguments; nothing else is left.
// CHECK-LABEL: func @attention_shape(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<2x?x?x64xf32>
// CHECK-SAME: -> (index, index, index, index, index, index, index)
// CHECK-NOT: attn.forward
// CHECK-DAG: %[[C2:.*]] = arith.constant 2 : index
// CHECK-DAG: %[[C1:.*]] = arith.constant 1 : index
// CHECK-DAG: %[[C32:.*]] = arith.constant 32 : index
// CHECK-DAG: %[[H:.*]] = tensor.dim %[[Q]], %[[C1]]
// CHECK-DAG: %[[S:.*]] = tensor.dim %[[Q]], %[[C2]]
// CHECK: return %[[C2]], %[[H]], %[[S]], %[[C32]], %[[C2]], %[[H]], %[[S]]
func.func @attention(%q: tensor<2x?x?x64xf32>, %k: tensor<2x?x?x64xf32>, %v: tensor<2x?x?x32xf32>)
    -> (tensor<2x?x?x32xf32>, tensor<2x?x?xf32>) {
  %o, %lse = attn.forward %q, %k, %v : tensor<2x?x?x64xf32>, tensor<2x?x?x64xf32>, tensor<2x?x?x32xf32>
      -> tensor<2x?x?x32xf32>, tensor<2x?x?xf32>
  return %o, %lse : tensor<2x?x?x32xf32>, tensor<2x?x?xf32>
}

// -----

// Through a chain of ops, and through a scalar argument.
// CHECK-LABEL: func @chain_shape(
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x8xf32>, %[[N:[^:]*]]: index)
// CHECK-NOT: linalg
// CHECK: %[[D:.*]] = tensor.dim %[[X]]
// CHECK: return %[[D]], %[[N]]
func.func @chain(%x: tensor<?x8xf32>, %n: index) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %y = attn.softmax %x : tensor<?x8xf32>
  %rows = tensor.dim %y, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%rows, %n) : tensor<?x?xf32>
  %r = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}

// -----

// Private functions and functions without tensors have no callers outside.
// CHECK-NOT: _shape
func.func private @helper(%x: tensor<?xf32>) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}
func.func @scalar(%x: f32) -> f32 {
  return %x : f32
}

// -----

// expected-error @below {{expected result sizes that follow from the arguments' sizes, got one that depends on 'tensor.extract'}}
func.func @data_dependent(%sizes: tensor<1xindex>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  // expected-note @below {{this op}}
  %n = tensor.extract %sizes[%c0] : tensor<1xindex>
  %e = tensor.empty(%n) : tensor<?xf32>
  return %e : tensor<?xf32>
}

// -----

// expected-error @below {{expected the name 'taken_shape' to be free for the shape function}}
func.func @taken(%x: tensor<?xf32>) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}
func.func private @taken_shape()
