// RUN: attn-run %s --target=cpu --shape 0=1x2x80x16 --shape 1=1x2x70x16 --shape 2=1x2x70x16 --fill 3=uniform:0:2 --fill 4=uniform:0:2 --check --grad --block-m=8 --block-n=128 | FileCheck %s
// CHECK-COUNT-5: ok

// A captured i1 per query and per key, as numbers.
func.func @main(%q: tensor<?x?x80x16xf32>, %k: tensor<?x?x70x16xf32>, %v: tensor<?x?x70x16xf32>, %rows: tensor<80xi1>,
                %keys: tensor<70xi1>) -> (tensor<?x?x80x16xf32>, tensor<?x?x80xf32>) {
  %o, %l = attn.forward %q, %k, %v captures(%rows, %keys : tensor<80xi1>, tensor<70xi1>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %r: tensor<80xi1>, %c: tensor<70xi1>):
      %x = tensor.extract %r[%i] : tensor<80xi1>
      %y = tensor.extract %c[%j] : tensor<70xi1>
      %xf = arith.uitofp %x : i1 to f32
      %yf = arith.uitofp %y : i1 to f32
      %p = arith.addf %s, %xf : f32
      %t = arith.addf %p, %yf : f32
      attn.yield %t : f32
    } : tensor<?x?x80x16xf32>, tensor<?x?x70x16xf32>, tensor<?x?x70x16xf32> -> tensor<?x?x80x16xf32>, tensor<?x?x80xf32>
  return %o, %l : tensor<?x?x80x16xf32>, tensor<?x?x80xf32>
}
