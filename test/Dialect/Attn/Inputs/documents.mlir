func.func @f(%q: tensor<1x2x8x16xf32>, %documents: tensor<1x8xi32>) -> tensor<1x2x8x16xf32> {
  %o = attn.forward %q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}
