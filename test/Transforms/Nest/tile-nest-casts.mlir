// RUN: attn-opt %s --attn-expand --attn-fuse-reductions --attn-plan-nest --attn-tile-nest | FileCheck %s

// What a statement reads behind a cast is the tensor's own: the statement, and the cast in
// it, are gone afterwards. So is the constant that says of which dimension it asks the size.
// CHECK-LABEL: func.func @cast
// CHECK-SAME: %[[X:.*]]: tensor<8xf32>, %[[T:.*]]: tensor<4xf32>, %[[N:.*]]: tensor<?xf32>
// CHECK-NOT: tensor.cast
// CHECK: tensor.dim %[[N]]
// CHECK: tensor.extract %[[T]]
// CHECK: scf.for
// CHECK-NOT: tensor.cast
// CHECK: return
func.func @cast(%x: tensor<8xf32>, %t: tensor<4xf32>, %n: tensor<?xf32>) -> tensor<8xf32> {
  %y = attn.softmax %x captures(%t, %n : tensor<4xf32>, tensor<?xf32>)
    score {
    ^bb0(%s: f32, %i: index, %tt: tensor<4xf32>, %nn: tensor<?xf32>):
      %u = tensor.cast %tt : tensor<4xf32> to tensor<?xf32>
      %c0 = arith.constant 0 : index
      %c2 = arith.constant 2 : index
      %size = tensor.dim %nn, %c0 : tensor<?xf32>
      %at = arith.remui %size, %c2 : index
      %e = tensor.extract %u[%at] : tensor<?xf32>
      %r = arith.addf %s, %e : f32
      attn.yield %r : f32
    } : tensor<8xf32>
  return %y : tensor<8xf32>
}
