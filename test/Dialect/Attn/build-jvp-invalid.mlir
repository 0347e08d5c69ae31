// RUN: attn-opt %s --attn-build-jvp --split-input-file --verify-diagnostics
// RUN: not attn-opt %s --attn-build-jvp=function=nowhere --split-input-file 2>&1 | FileCheck %s --check-prefix=NOWHERE

// NOWHERE: error: there is no function '@nowhere'

func.func @softmax(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error @below {{cannot differentiate 'attn.softmax'}}
  %y = attn.softmax %x : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

func.func @scale(%q: tensor<1x2x8x16xf32>, %scale: f32) -> tensor<1x2x8x16xf32> {
  // expected-error @below {{cannot differentiate by the scale in forward mode}}
  %o = attn.forward %q, %q, %q scale(%scale : f32)
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}

// -----

func.func @third(%q: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>) -> tensor<1x2x8x16xf32> {
  // expected-error @below {{cannot differentiate 'attn.jvp'}}
  %o, %lse = attn.jvp %q, %q, %q, %q, %l query(%q : tensor<1x2x8x16xf32>)
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>,
      tensor<1x2x8xf32> -> tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
  return %o : tensor<1x2x8x16xf32>
}

// -----

func.func private @elsewhere(%q: tensor<1x2x8x16xf32>)

func.func @call(%q: tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32> {
  // expected-error @below {{cannot differentiate 'func.call'}}
  func.call @elsewhere(%q) : (tensor<1x2x8x16xf32>) -> ()
  return %q : tensor<1x2x8x16xf32>
}

// -----

func.func @score(%q: tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32> {
  %o = attn.forward %q, %q, %q
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c = arith.constant 2.0 : f32
      // expected-error @below {{cannot differentiate 'arith.remf'}}
      %r = arith.remf %s, %c : f32
      attn.yield %r : f32
    } : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}
