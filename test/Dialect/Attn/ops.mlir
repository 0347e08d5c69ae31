// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s -mlir-print-op-generic | attn-opt | FileCheck %s

// Every optional part of attn.forward survives a round trip.
// CHECK-LABEL: func @everything
func.func @everything(%q: tensor<2x8x?x64xf32>, %k: tensor<2x4x?x64xf32>, %v: tensor<2x4x?x32xf32>,
    %slope: tensor<8xf32>, %sink: tensor<8xf32>, %scale: f32) -> (tensor<2x8x?x32xf32>, tensor<2x8x?xf32>) {
  // CHECK: attn.forward %{{.*}}, %{{.*}}, %{{.*}} scale(%{{.*}} : f32) sink(%{{.*}} : tensor<8xf32>) captures(%{{.*}} : tensor<8xf32>) score {
  // CHECK-NEXT: ^bb0(%[[S:.*]]: f32, %{{.*}}: index, %[[H:.*]]: index, %{{.*}}: index, %{{.*}}: index, %[[T:.*]]: tensor<8xf32>):
  // CHECK: attn.yield %{{.*}} : f32
  // CHECK: } mask {
  // CHECK: attn.yield %{{.*}} : i1
  %o, %lse = attn.forward %q, %k, %v scale(%scale : f32) sink(%sink : tensor<8xf32>)
    captures(%slope : tensor<8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<8xf32>):
      %a = tensor.extract %t[%h] : tensor<8xf32>
      %r = arith.addf %s, %a : f32
      attn.yield %r : f32
    } mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %t: tensor<8xf32>):
      %keep = arith.cmpi sge, %i, %j : index
      attn.yield %keep : i1
    } : tensor<2x8x?x64xf32>, tensor<2x4x?x64xf32>, tensor<2x4x?x32xf32>
        -> tensor<2x8x?x32xf32>, tensor<2x8x?xf32>
  return %o, %lse : tensor<2x8x?x32xf32>, tensor<2x8x?xf32>
}

// CHECK-LABEL: func @bare
func.func @bare(%q: tensor<?x?x?x59xbf16>, %k: tensor<?x?x?x59xbf16>, %v: tensor<?x?x?x40xbf16>) -> tensor<?x?x?x40xbf16> {
  // CHECK: attn.forward %{{.*}}, %{{.*}}, %{{.*}} : tensor<?x?x?x59xbf16>, tensor<?x?x?x59xbf16>, tensor<?x?x?x40xbf16> -> tensor<?x?x?x40xbf16>
  %o = attn.forward %q, %k, %v : tensor<?x?x?x59xbf16>, tensor<?x?x?x59xbf16>, tensor<?x?x?x40xbf16> -> tensor<?x?x?x40xbf16>
  return %o : tensor<?x?x?x40xbf16>
}

// CHECK-LABEL: func @softmax
func.func @softmax(%x: tensor<?x1024xf32>) -> tensor<?x1024xf32> {
  // CHECK: attn.softmax %{{.*}} mask {
  %y = attn.softmax %x mask {
  ^bb0(%i: index, %j: index):
    %keep = arith.cmpi sge, %i, %j : index
    attn.yield %keep : i1
  } : tensor<?x1024xf32>
  return %y : tensor<?x1024xf32>
}

// CHECK-LABEL: func @fold
func.func @fold(%n: index, %x: tensor<8x?xf32>, %m: tensor<8xf32>) -> (tensor<8xf32>, tensor<8x?xf32>) {
  // CHECK: attn.fold %{{.*}} streams(%{{.*}} : tensor<8x?xf32>) dims [1] carries(%{{.*}} : tensor<8xf32>) {
  // CHECK: } merge {
  // CHECK: } maps [1] -> tensor<8xf32>, tensor<8x?xf32>
  %r:2 = attn.fold %n streams(%x : tensor<8x?xf32>) dims [1] carries(%m : tensor<8xf32>) {
  ^bb0(%j0: index, %xb: tensor<8x?xf32>, %s: tensor<8xf32>):
    attn.yield %s, %xb : tensor<8xf32>, tensor<8x?xf32>
  } merge {
  ^bb0(%a: tensor<8xf32>, %b: tensor<8xf32>):
    attn.yield %a : tensor<8xf32>
  } maps [1] -> tensor<8xf32>, tensor<8x?xf32>
  return %r#0, %r#1 : tensor<8xf32>, tensor<8x?xf32>
}
