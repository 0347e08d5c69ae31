// Causal self-attention: query i sees the keys 0..i. Batch, heads and length
// are known when it runs.
//
//   attn-run causal.mlir --entry=causal --shape 0=1x8x2048x64 \
//     --shape 1=1x8x2048x64 --shape 2=1x8x2048x64 --check --bench

func.func @causal(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>)
    -> (tensor<?x?x?x64xf32>, tensor<?x?x?xf32>) {
  %o, %lse = attn.forward %q, %k, %v
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %keep = arith.cmpi sge, %i, %j : index
      attn.yield %keep : i1
    } : tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>
        -> tensor<?x?x?x64xf32>, tensor<?x?x?xf32>
  return %o, %lse : tensor<?x?x?x64xf32>, tensor<?x?x?xf32>
}
