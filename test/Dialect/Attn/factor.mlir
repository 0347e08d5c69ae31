// RUN: attn-opt %s --split-input-file --verify-diagnostics --attn-differentiate | FileCheck %s

// CHECK-LABEL: func.func @forward_gradient(
// CHECK: attn.backward
// CHECK-SAME: captures(%{{.*}} : tensor<2xi64>)
// CHECK: factor {
// CHECK: attn.random_bits %{{.*}}, %{{.*}} at %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : i32
func.func @forward(%q: tensor<1x2x8x16xf32>, %rng: tensor<2xi64>) -> tensor<1x2x8x16xf32> {
  %o = attn.forward %q, %q, %q captures(%rng : tensor<2xi64>) factor {
  ^bb0(%b: index, %h: index, %i: index, %j: index, %r: tensor<2xi64>):
    %c0 = arith.constant 0 : index
    %seed = tensor.extract %r[%c0] : tensor<2xi64>
    %bits = attn.random_bits %seed, %seed at %b, %h, %i, %j : i32
    %c = arith.constant 1000 : i32
    %keep = arith.cmpi ult, %bits, %c : i32
    %one = arith.constant 2.0 : f32
    %zero = arith.constant 0.0 : f32
    %f = arith.select %keep, %one, %zero : f32
    attn.yield %f : f32
  } : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}

// -----

func.func @float_capture(%q: tensor<1x2x8x16xf32>, %t: tensor<2xf32>) -> tensor<1x2x8x16xf32> {
  // expected-error @below {{cannot differentiate a factor that reads float capture #0}}
  %o = attn.forward %q, %q, %q captures(%t : tensor<2xf32>) factor {
  ^bb0(%b: index, %h: index, %i: index, %j: index, %r: tensor<2xf32>):
    %f = tensor.extract %r[%h] : tensor<2xf32>
    attn.yield %f : f32
  } : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}

// -----

func.func @yields_f64(%q: tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32> {
  %o = attn.forward %q, %q, %q factor {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %f = arith.constant 1.0 : f64
    // expected-error @below {{expected the factor region to yield one 'f32', got 'f64'}}
    attn.yield %f : f64
  } : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}
