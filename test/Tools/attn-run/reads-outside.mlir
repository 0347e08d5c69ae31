// A region that reads out of its capture is refused before anything runs.
// RUN: not attn-run %s --shape 0=1x2x16x8 --shape 1=1x2x16x8 --shape 3=30 2>&1 | FileCheck %s
// CHECK: error: {{.*}}reads-outside.mlir:12:{{[0-9]+}}: 'tensor.extract' reads outside of its capture of 30: index 30 in dimension 0 (at indices 0, 0, 15, 15)
// CHECK-NOT: error:

func.func @main(%q: tensor<?x?x?x8xf32>, %k: tensor<?x?x?x8xf32>, %v: tensor<?x?x?x8xf32>,
                %bias: tensor<?xf32>) -> tensor<?x?x?x8xf32> {
  %o = attn.forward %q, %k, %v captures(%bias : tensor<?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<?xf32>):
      %n = arith.addi %i, %j : index
      %x = tensor.extract %t[%n] : tensor<?xf32>
      %r = arith.addf %s, %x : f32
      attn.yield %r : f32
    } : tensor<?x?x?x8xf32>, tensor<?x?x?x8xf32>, tensor<?x?x?x8xf32> -> tensor<?x?x?x8xf32>
  return %o : tensor<?x?x?x8xf32>
}
