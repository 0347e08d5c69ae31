// RUN: attn-opt %s --canonicalize | FileCheck %s

// A mask that is always true disappears, and with it the capture it did not need.
// CHECK-LABEL: func @true_mask
func.func @true_mask(%q: tensor<1x2x8x16xf32>, %c: tensor<4xi32>) -> tensor<1x2x8x16xf32> {
  // CHECK: attn.forward %{{.*}}, %{{.*}}, %{{.*}} : tensor
  %o = attn.forward %q, %q, %q captures(%c : tensor<4xi32>) mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index, %t: tensor<4xi32>):
    %keep = arith.cmpi sge, %i, %i : index
    attn.yield %keep : i1
  } : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}

// A score that is the identity disappears.
// CHECK-LABEL: func @identity_score
func.func @identity_score(%q: tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32> {
  // CHECK-NOT: score
  // CHECK: return
  %o = attn.forward %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    attn.yield %s : f32
  } : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}

// A constant scale becomes the attribute.
// CHECK-LABEL: func @constant_scale
func.func @constant_scale(%q: tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32> {
  // CHECK: attn.forward %{{.*}}, %{{.*}}, %{{.*}} scale 2.500000e-01 :
  %scale = arith.constant 0.25 : f32
  %o = attn.forward %q, %q, %q scale(%scale : f32) : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}

// The same for attn.softmax; a capture that a region reads stays.
// CHECK-LABEL: func @softmax
// CHECK-SAME: %[[A:.*]]: index, %[[B:.*]]: index
func.func @softmax(%x: tensor<8x16xf32>, %a: index, %b: index) -> tensor<8x16xf32> {
  // CHECK: attn.softmax %{{.*}} captures(%[[B]] : index) mask
  %y = attn.softmax %x captures(%a, %b : index, index) score {
  ^bb0(%s: f32, %i: index, %j: index, %u: index, %v: index):
    attn.yield %s : f32
  } mask {
  ^bb0(%i: index, %j: index, %u: index, %v: index):
    %keep = arith.cmpi slt, %j, %v : index
    attn.yield %keep : i1
  } : tensor<8x16xf32>
  return %y : tensor<8x16xf32>
}

// A mask that is always true leaves the gradient ops as well; their captures
// stay, for each has a gradient.
// CHECK-LABEL: func @backward
// CHECK-SAME: %[[C:[^ ]*]]: tensor<4xf32>)
func.func @backward(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>, %c: tensor<4xf32>) -> (tensor<1x2x8x16xf32>, tensor<4xf32>) {
  // CHECK: attn.backward {{.*}} captures(%[[C]] : tensor<4xf32>) :
  %dq, %dk, %dv, %dc = attn.backward %x, %x, %x, %x, %x, %l captures(%c : tensor<4xf32>) mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index, %t: tensor<4xf32>):
    %keep = arith.cmpi sge, %i, %i : index
    attn.yield %keep : i1
  } : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> captures(tensor<4xf32>)
  return %dq, %dc : tensor<1x2x8x16xf32>, tensor<4xf32>
}

// CHECK-LABEL: func @softmax_backward
func.func @softmax_backward(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  // CHECK: attn.softmax_backward %{{.*}}, %{{.*}}, %{{.*}} : tensor<8x16xf32>
  %dx = attn.softmax_backward %x, %x, %x mask {
  ^bb0(%i: index, %j: index):
    %keep = arith.constant true
    attn.yield %keep : i1
  } : tensor<8x16xf32>
  return %dx : tensor<8x16xf32>
}
