// RUN: attn-opt %s --attn-expand --verify-diagnostics --split-input-file

func.func @of_score(%x: tensor<2x4x?x16xf32>, %lse: tensor<2x4x?xf32>, %c: tensor<2x?xf32>) -> tensor<2x?xf32> {
  %dq, %dk, %dv, %dc = attn.backward %x, %x, %x, %x, %x, %lse captures(%c : tensor<2x?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<2x?xf32>):
      %zero = arith.constant 0.0 : f32
      %above = arith.cmpf ogt, %s, %zero : f32
      %at = arith.index_castui %above : i1 to index
      %v = tensor.extract %t[%at, %j] : tensor<2x?xf32>
      %r = arith.addf %s, %v : f32
      attn.yield %r : f32
    } gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<2x?xf32>, %dt: f32):
      %zero = arith.constant 0.0 : f32
      %above = arith.cmpf ogt, %s, %zero : f32
      %at = arith.index_castui %above : i1 to index
      // expected-error@+1 {{expected indices that are computed of other indices and of captures, where the gradient of a capture is read at one of queries or keys, got one that is computed of the score}}
      attn.accumulate %dt into %t[%at, %j] : f32 into tensor<2x?xf32>
      attn.yield %dt : f32
    } : tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>,
        tensor<2x4x?x16xf32>, tensor<2x4x?xf32>
    -> tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32> captures(tensor<2x?xf32>)
  return %dc : tensor<2x?xf32>
}

// -----

// Of a gradient that nobody wants nothing is asked.
func.func @unwanted(%x: tensor<2x4x?x16xf32>, %lse: tensor<2x4x?xf32>, %c: tensor<2x?xf32>) -> tensor<2x4x?x16xf32> {
  %dq, %dk, %dv, %dc = attn.backward %x, %x, %x, %x, %x, %lse captures(%c : tensor<2x?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<2x?xf32>):
      %zero = arith.constant 0.0 : f32
      %above = arith.cmpf ogt, %s, %zero : f32
      %at = arith.index_castui %above : i1 to index
      %v = tensor.extract %t[%at, %j] : tensor<2x?xf32>
      %r = arith.addf %s, %v : f32
      attn.yield %r : f32
    } gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<2x?xf32>, %dt: f32):
      %zero = arith.constant 0.0 : f32
      %above = arith.cmpf ogt, %s, %zero : f32
      %at = arith.index_castui %above : i1 to index
      attn.accumulate %dt into %t[%at, %j] : f32 into tensor<2x?xf32>
      attn.yield %dt : f32
    } : tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>,
        tensor<2x4x?x16xf32>, tensor<2x4x?xf32>
    -> tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32> captures(tensor<2x?xf32>)
  return %dq : tensor<2x4x?x16xf32>
}
