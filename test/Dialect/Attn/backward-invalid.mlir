// RUN: attn-opt %s -split-input-file -verify-diagnostics

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x7xf32>) {
  // expected-error@below {{expected query and LSE to have the same length, got 8 and 7}}
  %r0, %r1, %r2 = attn.backward %x, %x, %x, %x, %x, %l
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x7xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf64>) {
  // expected-error@below {{expected LSE of 'f32', got 'f64'}}
  %r0, %r1, %r2 = attn.backward %x, %x, %x, %x, %x, %l
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf64>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %o: tensor<1x2x9x16xf32>, %l: tensor<1x2x8xf32>) {
  // expected-error@below {{expected query and output to have the same length, got 8 and 9}}
  %r0, %r1, %r2 = attn.backward %x, %x, %x, %x, %o, %l
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x9x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %d: tensor<1x2x9x16xf32>, %l: tensor<1x2x8xf32>) {
  // expected-error@below {{expected the output's gradient to be 'tensor<1x2x8x16xf32>', got 'tensor<1x2x9x16xf32>'}}
  %r0, %r1, %r2 = attn.backward %d, %x, %x, %x, %x, %l
    : tensor<1x2x9x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>) {
  // expected-error@below {{expected the query's gradient to be 'tensor<1x2x8x16xf32>', got 'tensor<1x2x9x16xf32>'}}
  %r0, %r1, %r2 = attn.backward %x, %x, %x, %x, %x, %l
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x9x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>) {
  // expected-error@below {{expected the key's gradient to be 'tensor<1x2x8x16xf32>', got 'tensor<1x2x9x16xf32>'}}
  %r0, %r1, %r2 = attn.backward %x, %x, %x, %x, %x, %l
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x9x16xf32>, tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>) {
  // expected-error@below {{expected the value's gradient to be 'tensor<1x2x8x16xf32>', got 'tensor<1x2x9x16xf32>'}}
  %r0, %r1, %r2 = attn.backward %x, %x, %x, %x, %x, %l
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x9x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>, %d: tensor<1x2x?xf32>) {
  // expected-error@below {{expected LSE's gradient to be 'tensor<1x2x8xf32>', got 'tensor<1x2x?xf32>'}}
  %r0, %r1, %r2 = attn.backward %x, %x, %x, %x, %x, %l lse_gradient(%d : tensor<1x2x?xf32>)
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>) {
  // expected-error@below {{expected a gradient of scale only where scale is an operand}}
  %r0, %r1, %r2, %r3 = attn.backward %x, %x, %x, %x, %x, %l
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> scale(tensor<f32>)
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>, %s: f32) {
  // expected-error@below {{expected the scale's gradient to be 'tensor<f32>', got 'tensor<f64>'}}
  %r0, %r1, %r2, %r3 = attn.backward %x, %x, %x, %x, %x, %l scale(%s : f32)
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> scale(tensor<f64>)
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>, %s: f64) {
  // expected-error@below {{expected scale to be 'f32', got 'f64'}}
  %r0, %r1, %r2 = attn.backward %x, %x, %x, %x, %x, %l scale(%s : f64)
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>) {
  // expected-error@below {{expected a gradient of the sink only where there is a sink}}
  %r0, %r1, %r2, %r3 = attn.backward %x, %x, %x, %x, %x, %l
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> sink(tensor<2xf32>)
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>, %s: tensor<2xf32>) {
  // expected-error@below {{expected the sink's gradient to be 'tensor<2xf32>', got 'tensor<?xf32>'}}
  %r0, %r1, %r2, %r3 = attn.backward %x, %x, %x, %x, %x, %l sink(%s : tensor<2xf32>)
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> sink(tensor<?xf32>)
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>, %c: f32, %n: index) {
  // expected-error@below {{expected a gradient for each of the 1 float captures, got 0}}
  %r0, %r1, %r2 = attn.backward %x, %x, %x, %x, %x, %l captures(%c, %n : f32, index)
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>, %n: index) {
  // expected-error@below {{expected a gradient for each of the 0 float captures, got 1}}
  %r0, %r1, %r2, %r3 = attn.backward %x, %x, %x, %x, %x, %l captures(%n : index)
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> captures(tensor<f32>)
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>, %c: f32) {
  // expected-error@below {{expected capture gradient #0 to be 'tensor<f32>', got 'tensor<1xf32>'}}
  %r0, %r1, %r2, %r3 = attn.backward %x, %x, %x, %x, %x, %l captures(%c : f32)
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> captures(tensor<1xf32>)
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>, %c: f32, %t: tensor<4xbf16>) {
  // expected-error@below {{expected capture gradient #1 to be 'tensor<4xbf16>', got 'tensor<4xf32>'}}
  %r0, %r1, %r2, %r3, %r4 = attn.backward %x, %x, %x, %x, %x, %l captures(%c, %t : f32, tensor<4xbf16>)
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> captures(tensor<f32>, tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>) {
  // expected-error@below {{expected score and gradient regions together, got only score}}
  %r0, %r1, %r2 = attn.backward %x, %x, %x, %x, %x, %l score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    attn.yield %s : f32
  }
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>) {
  // expected-error@below {{expected score and gradient regions together, got only gradient}}
  %r0, %r1, %r2 = attn.backward %x, %x, %x, %x, %x, %l gradient {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %dt: f32):
    attn.yield %dt : f32
  }
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>) {
  // expected-error@below {{expected the gradient region to take 6 arguments, got 5}}
  %r0, %r1, %r2 = attn.backward %x, %x, %x, %x, %x, %l score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    attn.yield %s : f32
  } gradient {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    attn.yield %s : f32
  }
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>) {
  // expected-error@below {{expected argument #5 of the gradient region to be 'f32', got 'f64'}}
  %r0, %r1, %r2 = attn.backward %x, %x, %x, %x, %x, %l score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    attn.yield %s : f32
  } gradient {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %dt: f64):
    attn.yield %s : f32
  }
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>) {
  %r0, %r1, %r2 = attn.backward %x, %x, %x, %x, %x, %l score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    attn.yield %s : f32
  } gradient {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %dt: f32):
    // expected-error@below {{expected the gradient region to yield one 'f32', got 'index'}}
    attn.yield %b : index
  }
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>) {
  %r0, %r1, %r2 = attn.backward %x, %x, %x, %x, %x, %l score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    attn.yield %s : f32
  } gradient {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %dt: f32):
    // expected-error@below {{is not allowed in a gradient region, expected a pure scalar op}}
    func.call @g() : () -> ()
    attn.yield %dt : f32
  }
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return
}
func.func private @g()

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>) {
  // expected-error@below {{expected the mask region to take 4 arguments, got 3}}
  %r0, %r1, %r2 = attn.backward %x, %x, %x, %x, %x, %l mask {
  ^bb0(%b: index, %h: index, %i: index):
    %t = arith.constant true
    attn.yield %t : i1
  }
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>, %t: tensor<4xf32>) {
  %r0, %r1, %r2, %r3 = attn.backward %x, %x, %x, %x, %x, %l captures(%t : tensor<4xf32>) score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<4xf32>):
    attn.yield %s : f32
  } gradient {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<4xf32>, %dt: f32):
    // expected-error@below {{expected 1 indices, got 0}}
    attn.accumulate %dt into %c : f32 into tensor<4xf32>
    attn.yield %dt : f32
  }
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> captures(tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>, %t: f32) {
  %r0, %r1, %r2, %r3 = attn.backward %x, %x, %x, %x, %x, %l captures(%t : f32) score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: f32):
    attn.yield %s : f32
  } gradient {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: f32, %dt: f32):
    // expected-error@below {{expected 0 indices, got 1}}
    attn.accumulate %dt into %c[%h] : f32 into f32
    attn.yield %dt : f32
  }
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> captures(tensor<f32>)
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>, %t: tensor<4xf64>) {
  %r0, %r1, %r2, %r3 = attn.backward %x, %x, %x, %x, %x, %l captures(%t : tensor<4xf64>) score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<4xf64>):
    attn.yield %s : f32
  } gradient {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<4xf64>, %dt: f32):
    // expected-error@below {{expected a value of 'f64', got 'f32'}}
    attn.accumulate %dt into %c[%h] : f32 into tensor<4xf64>
    attn.yield %dt : f32
  }
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> captures(tensor<4xf64>)
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>, %t: f32) {
  %r0, %r1, %r2, %r3 = attn.backward %x, %x, %x, %x, %x, %l captures(%t : f32) score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: f32):
    attn.yield %s : f32
  } gradient {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: f32, %dt: f32):
    // expected-error@below {{expected a capture of the region}}
    attn.accumulate %dt into %s : f32 into f32
    attn.yield %dt : f32
  }
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> captures(tensor<f32>)
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>, %t: f32) {
  %r0, %r1, %r2, %r3 = attn.backward %x, %x, %x, %x, %x, %l captures(%t : f32) score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: f32):
    attn.yield %s : f32
  } gradient {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: f32, %dt: f32):
    // expected-error@below {{expected a capture of the region}}
    attn.accumulate %s into %dt : f32 into f32
    attn.yield %dt : f32
  }
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> captures(tensor<f32>)
  return
}

// -----

func.func @f(%x: tensor<1x2x8x16xf32>, %l: tensor<1x2x8xf32>, %t: f32) {
  %r0, %r1, %r2, %r3 = attn.backward %x, %x, %x, %x, %x, %l captures(%t : f32) score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: f32):
    // expected-error@below {{expected to be in the gradient region}}
    attn.accumulate %s into %c : f32 into f32
    attn.yield %s : f32
  } gradient {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: f32, %dt: f32):
    attn.yield %dt : f32
  }
    : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
    -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> captures(tensor<f32>)
  return
}

// -----

func.func @f(%x: f32) {
  // expected-error@below {{expects parent op to be one of 'attn.backward, attn.backward_jvp, attn.softmax_backward'}}
  attn.accumulate %x into %x : f32 into f32
  return
}

// -----

func.func @f(%x: tensor<f32>) {
  // expected-error@below {{expected a tensor of rank 1 or more, got 'tensor<f32>'}}
  %r0 = attn.softmax_backward %x, %x, %x : tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %c: f32) {
  // expected-error@below {{expected a gradient for each of the 1 float captures, got 0}}
  %r0 = attn.softmax_backward %x, %x, %x captures(%c : f32) : tensor<4x8xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %c: f32) {
  // expected-error@below {{expected capture gradient #0 to be 'tensor<f32>', got 'tensor<f64>'}}
  %r0, %r1 = attn.softmax_backward %x, %x, %x captures(%c : f32) : tensor<4x8xf32> -> captures(tensor<f64>)
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error@below {{expected score and gradient regions together, got only score}}
  %r0 = attn.softmax_backward %x, %x, %x score {
  ^bb0(%s: f32, %i: index, %j: index):
    attn.yield %s : f32
  } : tensor<4x8xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error@below {{expected the gradient region to take 4 arguments, got 3}}
  %r0 = attn.softmax_backward %x, %x, %x score {
  ^bb0(%s: f32, %i: index, %j: index):
    attn.yield %s : f32
  } gradient {
  ^bb0(%s: f32, %i: index, %j: index):
    attn.yield %s : f32
  } : tensor<4x8xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error@below {{expected argument #0 of the mask region to be 'index', got 'f32'}}
  %r0 = attn.softmax_backward %x, %x, %x mask {
  ^bb0(%i: f32, %j: index):
    %t = arith.constant true
    attn.yield %t : i1
  } : tensor<4x8xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %y: tensor<4x9xf32>) {
  // expected-error@below {{failed to verify that all of {outputGradient, input, output, inputGradient} have same type}}
  %r = "attn.softmax_backward"(%x, %x, %y) ({}, {}, {}) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x9xf32>) -> tensor<4x8xf32>
  return
}
