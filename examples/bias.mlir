// Attention with two learned parts of the score, both trained: a slope per head
// on the distance (as ALiBi's, but learned) and a table of relative positions
// as T5 has it, read at the distance clamped to 0..31. Causal; query heads share
// key heads; the gradients of all five arguments are computed.
//
//   attn-run bias.mlir --entry=bias --grad --shape 0=1x4x200x64 \
//     --shape 1=1x2x200x64 --shape 2=1x2x200x64 --shape 3=4 --shape 4=4x32 --check

func.func @bias(%q: tensor<?x4x?x64xf32>, %k: tensor<?x2x?x64xf32>, %v: tensor<?x2x?x64xf32>,
                %slopes: tensor<4xf32>, %table: tensor<4x32xf32>)
    -> (tensor<?x4x?x64xf32>, tensor<?x4x?xf32>) {
  %o, %lse = attn.forward %q, %k, %v captures(%slopes, %table : tensor<4xf32>, tensor<4x32xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %a: tensor<4xf32>, %t: tensor<4x32xf32>):
      %distance = arith.subi %i, %j : index
      // ALiBi: further keys count less.
      %integer = arith.index_cast %distance : index to i32
      %far = arith.sitofp %integer : i32 to f32
      %slope = tensor.extract %a[%h] : tensor<4xf32>
      %fall = arith.mulf %slope, %far : f32
      %s1 = arith.subf %s, %fall : f32
      // One learned number per head and distance; all beyond 31 share the last.
      %zero = arith.constant 0 : index
      %last = arith.constant 31 : index
      %near = arith.minsi %distance, %last : index
      %bucket = arith.maxsi %near, %zero : index
      %learned = tensor.extract %t[%h, %bucket] : tensor<4x32xf32>
      %s2 = arith.addf %s1, %learned : f32
      attn.yield %s2 : f32
    } mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %a: tensor<4xf32>, %t: tensor<4x32xf32>):
      %keep = arith.cmpi sge, %i, %j : index
      attn.yield %keep : i1
    } : tensor<?x4x?x64xf32>, tensor<?x2x?x64xf32>, tensor<?x2x?x64xf32>
        -> tensor<?x4x?x64xf32>, tensor<?x4x?xf32>
  return %o, %lse : tensor<?x4x?x64xf32>, tensor<?x4x?xf32>
}
