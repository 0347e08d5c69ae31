// RUN: attn-run %s --entry=all --target=cpu --grad --check
// RUN: attn-run %s --entry=query_and_key --target=cpu --grad --check
// RUN: attn-run %s --entry=half --target=interpreter --grad --check
// One tensor as queries, keys and values, whose length is that of one tile: one read would stand for rows and columns.
func.func @all(%x: tensor<1x2x16x32xf32>) -> tensor<1x2x16x32xf32> {
  %o = attn.forward %x, %x, %x : tensor<1x2x16x32xf32>, tensor<1x2x16x32xf32>, tensor<1x2x16x32xf32> -> tensor<1x2x16x32xf32>
  return %o : tensor<1x2x16x32xf32>
}
func.func @query_and_key(%x: tensor<1x2x16x32xf32>, %v: tensor<1x2x16x32xf32>) -> tensor<1x2x16x32xf32> {
  %o = attn.forward %x, %x, %v : tensor<1x2x16x32xf32>, tensor<1x2x16x32xf32>, tensor<1x2x16x32xf32> -> tensor<1x2x16x32xf32>
  return %o : tensor<1x2x16x32xf32>
}
func.func @half(%x: tensor<1x2x64x64xbf16>) -> tensor<1x2x64x64xbf16> {
  %o = attn.forward %x, %x, %x : tensor<1x2x64x64xbf16>, tensor<1x2x64x64xbf16>, tensor<1x2x64x64xbf16> -> tensor<1x2x64x64xbf16>
  return %o : tensor<1x2x64x64xbf16>
}
