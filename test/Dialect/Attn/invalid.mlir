// RUN: attn-opt %s -split-input-file -verify-diagnostics

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xbf16>, %v: tensor<1x2x8x16xf32>) {
  // expected-error@below {{expected key to have the query's element type 'f32', got 'bf16'}}
  %o = attn.forward %q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xbf16>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x?xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error@below {{expected a static, positive head size (dimension 3) of query}}
  %o = attn.forward %q, %k, %v : tensor<1x2x8x?xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x32xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error@below {{expected query and key to have the same head size, got 16 and 32}}
  %o = attn.forward %q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x32xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<3x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error@below {{expected query and key to have the same batch, got 1 and 3}}
  %o = attn.forward %q, %k, %v : tensor<1x2x8x16xf32>, tensor<3x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<3x2x8x16xf32>) {
  // expected-error@below {{expected key and value to have the same batch, got 1 and 3}}
  %o = attn.forward %q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<3x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x1x8x16xf32>) {
  // expected-error@below {{expected key and value to have the same heads, got 2 and 1}}
  %o = attn.forward %q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x1x8x16xf32> -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x9x16xf32>) {
  // expected-error@below {{expected key and value to have the same length, got 8 and 9}}
  %o = attn.forward %q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x9x16xf32> -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error@below {{expected query and output to have the same length, got 8 and 7}}
  %o = attn.forward %q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x7x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error@below {{expected value and output to have the same head size, got 16 and 8}}
  %o = attn.forward %q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x4x8x16xf32>, %v: tensor<1x4x8x16xf32>) {
  // expected-error@below {{expected query heads to be a multiple of key heads, got 2 and 4}}
  %o = attn.forward %q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x4x8x16xf32>, tensor<1x4x8x16xf32> -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %s: f64) {
  // expected-error@below {{expected scale to be 'f32', got 'f64'}}
  %o = attn.forward %q, %k, %v scale(%s : f64) : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %s: tensor<2xf64>) {
  // expected-error@below {{expected sink to be a rank-1 tensor of}}
  %o = attn.forward %q, %k, %v sink(%s : tensor<2xf64>) : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>, %s: tensor<3xf32>) {
  // expected-error@below {{expected sink to have one element per query head, got 3 for 2 heads}}
  %o = attn.forward %q, %k, %v sink(%s : tensor<3xf32>) : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>) {
  // expected-error@below {{expected LSE of 'f32', got 'f64'}}
  %o, %l = attn.forward %q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>, tensor<1x2x8xf64>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>) {
  // expected-error@below {{expected the mask region to take 4 arguments, got 3}}
  %o = attn.forward %q, %q, %q mask {
  ^bb0(%b: index, %h: index, %i: index):
    %t = arith.constant true
    attn.yield %t : i1
  } : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>) {
  // expected-error@below {{expected argument #0 of the score region to be 'f32', got 'f64'}}
  %o = attn.forward %q, %q, %q score {
  ^bb0(%s: f64, %b: index, %h: index, %i: index, %j: index):
    attn.yield %s : f64
  } : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>) {
  %o = attn.forward %q, %q, %q mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    // expected-error@below {{expected the mask region to yield one}}
    attn.yield %i : index
  } : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf32>) {
  %o = attn.forward %q, %q, %q mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    // expected-error@below {{is not allowed in a mask region, expected a pure scalar op}}
    %t = func.call @g() : () -> i1
    attn.yield %t : i1
  } : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return
}
func.func private @g() -> i1

// -----

func.func @f(%q: tensor<1x2x8x16xf32>, %c: tensor<4xf32>) {
  %o = attn.forward %q, %q, %q captures(%c : tensor<4xf32>) score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<4xf32>):
    %c = arith.constant 4 : index
    // expected-error@below {{reads outside of its capture: index 4 in dimension 0 of}}
    %x = tensor.extract %t[%c] : tensor<4xf32>
    attn.yield %x : f32
  } : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<f32>) {
  // expected-error@below {{expected a tensor of rank 1 or more, got}}
  %y = attn.softmax %x : tensor<f32>
  return
}

// -----

func.func @f(%n: index, %x: tensor<8x?xf32>, %m: tensor<8xf32>) {
  // expected-error@below {{expected one streamed dimension per input, got 2 for 1 inputs}}
  %r = attn.fold %n streams(%x : tensor<8x?xf32>) dims [1, 0] carries(%m : tensor<8xf32>) {
  ^bb0(%j: index, %b: tensor<8x?xf32>, %s: tensor<8xf32>):
    attn.yield %s : tensor<8xf32>
  } -> tensor<8xf32>
  return
}

// -----

func.func @f(%n: index, %x: tensor<8x?xf32>, %m: tensor<8xf32>) {
  // expected-error@below {{expected a streamed dimension of 'tensor<8x?xf32>', got 2}}
  %r = attn.fold %n streams(%x : tensor<8x?xf32>) dims [2] carries(%m : tensor<8xf32>) {
  ^bb0(%j: index, %b: tensor<8x?xf32>, %s: tensor<8xf32>):
    attn.yield %s : tensor<8xf32>
  } -> tensor<8xf32>
  return
}

// -----

func.func @f(%n: index, %x: tensor<8x?xf32>, %m: tensor<8xf32>) {
  // expected-error@below {{expected the body to take}}
  %r = attn.fold %n streams(%x : tensor<8x?xf32>) dims [1] carries(%m : tensor<8xf32>) {
  ^bb0(%j: index, %s: tensor<8xf32>):
    attn.yield %s : tensor<8xf32>
  } -> tensor<8xf32>
  return
}

// -----

func.func @f(%n: index, %x: tensor<8x?xf32>, %m: tensor<8xf32>) {
  // expected-error@below {{expected the body to end in attn.yield of}}
  %r = attn.fold %n streams(%x : tensor<8x?xf32>) dims [1] carries(%m : tensor<8xf32>) {
  ^bb0(%j: index, %b: tensor<8x?xf32>, %s: tensor<8xf32>):
    attn.yield %b : tensor<8x?xf32>
  } -> tensor<8xf32>
  return
}

// -----

func.func @f(%n: index, %x: tensor<8x?xf32>, %m: tensor<8xf32>) {
  // expected-error@below {{expected one result per carried value and per mapped dimension, got 0 results for 1 and 0}}
  attn.fold %n streams(%x : tensor<8x?xf32>) dims [1] carries(%m : tensor<8xf32>) {
  ^bb0(%j: index, %b: tensor<8x?xf32>, %s: tensor<8xf32>):
    attn.yield %s : tensor<8xf32>
  }
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x8x16xf32>) -> tensor<1x4x8x16xf32> {
  // expected-error@below {{expected as many key heads as query heads where it is ungrouped, got 2 and 4}}
  %o = attn.forward %q, %k, %k {ungrouped} : tensor<1x4x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x4x8x16xf32>
  return %o : tensor<1x4x8x16xf32>
}
