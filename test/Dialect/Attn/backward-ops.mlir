// RUN: attn-opt %s | attn-opt | FileCheck %s

// CHECK-LABEL: func @plain
// CHECK: attn.backward %{{.*}} scale 1.250000e-01 :
// CHECK-SAME: -> tensor<2x8x?x64xf32>, tensor<2x2x?x64xf32>, tensor<2x2x?x32xf32>
func.func @plain(%do: tensor<2x8x?x32xf32>, %q: tensor<2x8x?x64xf32>, %k: tensor<2x2x?x64xf32>,
                 %v: tensor<2x2x?x32xf32>, %o: tensor<2x8x?x32xf32>, %lse: tensor<2x8x?xf32>)
    -> (tensor<2x8x?x64xf32>, tensor<2x2x?x64xf32>, tensor<2x2x?x32xf32>) {
  %dq, %dk, %dv = attn.backward %do, %q, %k, %v, %o, %lse scale 0.125
    : tensor<2x8x?x32xf32>, tensor<2x8x?x64xf32>, tensor<2x2x?x64xf32>, tensor<2x2x?x32xf32>,
      tensor<2x8x?x32xf32>, tensor<2x8x?xf32>
    -> tensor<2x8x?x64xf32>, tensor<2x2x?x64xf32>, tensor<2x2x?x32xf32>
  return %dq, %dk, %dv : tensor<2x8x?x64xf32>, tensor<2x2x?x64xf32>, tensor<2x2x?x32xf32>
}

// CHECK-LABEL: func @everything
// CHECK: attn.backward {{.*}} lse_gradient(%{{.*}} : tensor<1x4x?xf32>) scale(%{{.*}} : f32)
// CHECK-SAME: sink(%{{.*}} : tensor<4xf32>) captures({{.*}}) score {
// CHECK: gradient {
// CHECK: attn.accumulate %{{.*}} into %{{.*}}[%{{.*}}] : f32 into tensor<4xbf16>
// CHECK: attn.accumulate %{{.*}} into %{{.*}} : f32 into f32
// CHECK: mask {
// CHECK: scale(tensor<f32>) sink(tensor<4xf32>) captures(tensor<4xbf16>, tensor<f32>)
func.func @everything(%do: tensor<1x4x?x16xf32>, %q: tensor<1x4x?x16xf32>, %o: tensor<1x4x?x16xf32>,
                      %lse: tensor<1x4x?xf32>, %dlse: tensor<1x4x?xf32>, %scale: f32,
                      %sink: tensor<4xf32>, %slopes: tensor<4xbf16>, %cap: f32, %n: index)
    -> (tensor<f32>, tensor<4xf32>, tensor<4xbf16>, tensor<f32>) {
  %dq, %dk, %dv, %dscale, %dsink, %dslopes, %dcap =
      attn.backward %do, %q, %q, %q, %o, %lse lse_gradient(%dlse : tensor<1x4x?xf32>)
      scale(%scale : f32) sink(%sink : tensor<4xf32>)
      captures(%slopes, %cap, %n : tensor<4xbf16>, f32, index)
      score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<4xbf16>, %c: f32, %m: index):
        %e = tensor.extract %t[%h] : tensor<4xbf16>
        %x = arith.extf %e : bf16 to f32
        %y = arith.addf %s, %x : f32
        %r = arith.mulf %y, %c : f32
        attn.yield %r : f32
      } gradient {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<4xbf16>, %c: f32, %m: index, %dt: f32):
        %e = tensor.extract %t[%h] : tensor<4xbf16>
        %x = arith.extf %e : bf16 to f32
        %y = arith.addf %s, %x : f32
        %dy = arith.mulf %dt, %c : f32
        %dc = arith.mulf %dt, %y : f32
        attn.accumulate %dy into %t[%h] : f32 into tensor<4xbf16>
        attn.accumulate %dc into %c : f32 into f32
        attn.yield %dy : f32
      } mask {
      ^bb0(%b: index, %h: index, %i: index, %j: index, %t: tensor<4xbf16>, %c: f32, %m: index):
        %keep = arith.cmpi slt, %j, %m : index
        attn.yield %keep : i1
      } : tensor<1x4x?x16xf32>, tensor<1x4x?x16xf32>, tensor<1x4x?x16xf32>, tensor<1x4x?x16xf32>,
          tensor<1x4x?x16xf32>, tensor<1x4x?xf32>
      -> tensor<1x4x?x16xf32>, tensor<1x4x?x16xf32>, tensor<1x4x?x16xf32>
         scale(tensor<f32>) sink(tensor<4xf32>) captures(tensor<4xbf16>, tensor<f32>)
  return %dscale, %dsink, %dslopes, %dcap : tensor<f32>, tensor<4xf32>, tensor<4xbf16>, tensor<f32>
}

// CHECK-LABEL: func @softmax
// CHECK: attn.softmax_backward %{{.*}}, %{{.*}}, %{{.*}} : tensor<?x128xf32>
func.func @softmax(%dy: tensor<?x128xf32>, %x: tensor<?x128xf32>, %y: tensor<?x128xf32>) -> tensor<?x128xf32> {
  %dx = attn.softmax_backward %dy, %x, %y : tensor<?x128xf32>
  return %dx : tensor<?x128xf32>
}
