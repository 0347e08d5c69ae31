// The same as levels.mlir with inputs and output of bf16, which a GPU's tensor core multiplies: the
// example of docs/levels.md from the tile program on.
//
//   attn-run levels-bf16.mlir --entry=attention --target=interpreter --shape 0=1x2x300x64 \
//     --shape 1=1x2x300x64 --shape 2=1x2x300x64 --check

func.func @attention(%q: tensor<1x2x?x64xbf16>, %k: tensor<1x2x?x64xbf16>, %v: tensor<1x2x?x64xbf16>)
    -> (tensor<1x2x?x64xbf16>, tensor<1x2x?xf32>) {
  %o, %lse = attn.forward %q, %k, %v scale 0.125
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %keep = arith.cmpi sge, %i, %j : index
      attn.yield %keep : i1
    } : tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>
        -> tensor<1x2x?x64xbf16>, tensor<1x2x?xf32>
  return %o, %lse : tensor<1x2x?x64xbf16>, tensor<1x2x?xf32>
}
