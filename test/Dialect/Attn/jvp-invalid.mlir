// RUN: attn-opt %s --split-input-file --verify-diagnostics

func.func @query(%x: tensor<1x2x?x8xf32>, %l: tensor<1x2x?xf32>, %y: tensor<1x2x?x16xf32>) {
  // expected-error @below {{expected the query's tangent to be 'tensor<1x2x?x8xf32>', got 'tensor<1x2x?x16xf32>'}}
  %o, %lse = attn.jvp %x, %x, %x, %x, %l query(%y : tensor<1x2x?x16xf32>)
    : tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>,
      tensor<1x2x?xf32> -> tensor<1x2x?x8xf32>, tensor<1x2x?xf32>
  return
}

// -----

func.func @sink(%x: tensor<1x2x?x8xf32>, %l: tensor<1x2x?xf32>, %s: tensor<2xf32>) {
  // expected-error @below {{expected a tangent of the sink only where there is a sink}}
  %o, %lse = attn.jvp %x, %x, %x, %x, %l sink_tangent(%s : tensor<2xf32>)
    : tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>,
      tensor<1x2x?xf32> -> tensor<1x2x?x8xf32>, tensor<1x2x?xf32>
  return
}

// -----

func.func @positions(%x: tensor<1x2x?x8xf32>, %l: tensor<1x2x?xf32>, %n: tensor<2xi32>) {
  // expected-error @below {{expected increasing positions of float captures in tangent_captures, got 0}}
  %o, %lse = attn.jvp %x, %x, %x, %x, %l captures(%n : tensor<2xi32>)
    capture_tangents [0] (%n : tensor<2xi32>)
    : tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>,
      tensor<1x2x?xf32> -> tensor<1x2x?x8xf32>, tensor<1x2x?xf32>
  return
}

// -----

func.func @tangent(%x: tensor<1x2x?x8xf32>, %l: tensor<1x2x?xf32>) {
  // expected-error @below {{expected score and tangent regions together, got only score}}
  %o, %lse = attn.jvp %x, %x, %x, %x, %l score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      attn.yield %s : f32
    } : tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>,
        tensor<1x2x?xf32> -> tensor<1x2x?x8xf32>, tensor<1x2x?xf32>
  return
}

// -----

func.func @arguments(%x: tensor<1x2x?x8xf32>, %l: tensor<1x2x?xf32>) {
  // expected-error @below {{expected the tangent region to take 6 arguments, got 5}}
  %o, %lse = attn.jvp %x, %x, %x, %x, %l score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      attn.yield %s : f32
    } tangent {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      attn.yield %s : f32
    } : tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>,
        tensor<1x2x?xf32> -> tensor<1x2x?x8xf32>, tensor<1x2x?xf32>
  return
}

// -----

func.func @lse(%x: tensor<1x2x?x8xf32>, %l: tensor<1x2x?xf32>) {
  // expected-error @below {{expected LSE's tangent to be 'tensor<1x2x?xf32>', got 'tensor<1x2x4xf32>'}}
  %o, %lse = attn.jvp %x, %x, %x, %x, %l
    : tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>,
      tensor<1x2x?xf32> -> tensor<1x2x?x8xf32>, tensor<1x2x4xf32>
  return
}

// -----

func.func @yields(%x: tensor<1x2x?x8xf32>, %l: tensor<1x2x?xf32>) {
  %q, %k, %v = attn.backward_jvp %x, %x, %x, %x, %x, %l tangents(%x, %l) score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      attn.yield %s : f32
    } tangent {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %st: f32):
      attn.yield %st : f32
    } gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %st: f32, %dt: f32, %dtt: f32):
      // expected-error @below {{expected the gradient region to yield 'f32', 'f32', got 'f32'}}
      attn.yield %dt : f32
    } : tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>,
        tensor<1x2x?x8xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>
  return
}

// -----

func.func @accumulates(%x: tensor<1x2x?x8xf32>, %l: tensor<1x2x?xf32>, %c: tensor<2xf32>) {
  %q, %k, %v, %r = attn.backward_jvp %x, %x, %x, %x, %x, %l tangents(%x, %l)
    captures(%c : tensor<2xf32>) capture_tangents [0] (%c : tensor<2xf32>) score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %a: tensor<2xf32>):
      attn.yield %s : f32
    } tangent {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %a: tensor<2xf32>, %at: tensor<2xf32>, %st: f32):
      attn.yield %st : f32
    } gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %a: tensor<2xf32>, %at: tensor<2xf32>, %st: f32, %dt: f32, %dtt: f32):
      // expected-error @below {{expected a capture of the region}}
      attn.accumulate %dt into %at[%h] : f32 into tensor<2xf32>
      attn.yield %dt, %dtt : f32, f32
    } : tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>,
        tensor<1x2x?x8xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32> captures(tensor<2xf32>)
  return
}
