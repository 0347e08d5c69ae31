// RUN: attn-opt %s --attn-tile-pipeline=order=m_outer | FileCheck %s
// The head of a group is a scalar that no loop counts: the bias is a piece of
// memory all the same, and no gather.

// CHECK-LABEL: func.func @grouped
// CHECK-NOT: collapse_shape
// CHECK: %[[H:.*]] = arith.addi
// CHECK-NOT: vector.gather
// CHECK: vector.transfer_read %arg3[%[[H]], %{{.*}}, %{{.*}}], %{{.*}} : tensor<?x?x?xf32>, vector<64x128xf32>
func.func @grouped(%q: tensor<?x?x?x64xbf16>, %k: tensor<?x?x?x64xbf16>, %v: tensor<?x?x?x64xbf16>,
                   %bias: tensor<?x?x?xf32>) -> tensor<?x?x?x64xbf16> {
  %o = attn.forward %q, %k, %v captures(%bias : tensor<?x?x?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<?x?x?xf32>):
      %x = tensor.extract %t[%h, %i, %j] : tensor<?x?x?xf32>
      %r = arith.addf %s, %x : f32
      attn.yield %r : f32
    } : tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16> -> tensor<?x?x?x64xbf16>
  return %o : tensor<?x?x?x64xbf16>
}

// Heads known in the tensors, but not in the sink's type.
// CHECK-LABEL: func.func @sink
// CHECK: tensor.cast %arg3 : tensor<?xf32> to tensor<4xf32>
func.func @sink(%q: tensor<1x4x?x64xf32>, %k: tensor<1x2x?x64xf32>, %v: tensor<1x2x?x64xf32>,
                %sink: tensor<?xf32>) -> tensor<1x4x?x64xf32> {
  %o = attn.forward %q, %k, %v sink(%sink : tensor<?xf32>)
    : tensor<1x4x?x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32> -> tensor<1x4x?x64xf32>
  return %o : tensor<1x4x?x64xf32>
}

// Without groups, too: the maximum and the sum read one value, and are fused.
// CHECK-LABEL: func.func @sink_of_each_head
// CHECK-NOT: 200x200
// CHECK: scf.forall
// CHECK: %[[SINK:.*]] = tensor.extract %arg3
// CHECK: arith.maxnumf %[[SINK]]
// CHECK-NOT: 200x200
// CHECK: return
func.func @sink_of_each_head(%q: tensor<1x4x200x64xf32>, %k: tensor<1x4x200x64xf32>, %v: tensor<1x4x200x64xf32>,
                             %sink: tensor<?xf32>) -> tensor<1x4x200x64xf32> {
  %o = attn.forward %q, %k, %v sink(%sink : tensor<?xf32>)
    : tensor<1x4x200x64xf32>, tensor<1x4x200x64xf32>, tensor<1x4x200x64xf32> -> tensor<1x4x200x64xf32>
  return %o : tensor<1x4x200x64xf32>
}
