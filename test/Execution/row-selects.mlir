// RUN: attn-run %s --target=cpu --shape 0=1x2x40x16 --shape 1=1x2x50x16 --shape 2=1x2x50x16 --check --loop-order=n_outer --block-m=8 --block-n=16 | FileCheck %s
// RUN: attn-run %s --target=cpu --shape 0=1x2x40x16 --shape 1=1x2x50x16 --shape 2=1x2x50x16 --check --grad | FileCheck %s
// RUN: attn-run %s --target=cpu --shape 0=1x2x40x16 --shape 1=1x2x50x16 --shape 2=1x2x50x16 --check --loop-order=m_outer | FileCheck %s
// RUN: attn-run %s --target=cpu --shape 0=1x2x40x16 --shape 1=1x2x50x16 --shape 2=1x2x50x16 --check --loop-order=split_kv | FileCheck %s
// CHECK-COUNT-2: ok

// Numbers per query and per key that are 0 for some: no mask, whatever the loop runs over.
func.func @main(%q: tensor<?x?x?x16xf32>, %k: tensor<?x?x?x16xf32>, %v: tensor<?x?x?x16xf32>) -> (tensor<?x?x?x16xf32>, tensor<?x?x?xf32>) {
  %o, %l = attn.forward %q, %k, %v
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %five = arith.constant 5 : index
      %thirty = arith.constant 30 : index
      %zero = arith.constant 0.0 : f32
      %two = arith.constant 2.0 : f32
      %early = arith.cmpi slt, %i, %five : index
      %late = arith.cmpi sge, %j, %thirty : index
      %x = arith.select %early, %two, %zero : f32
      %y = arith.select %late, %two, %zero : f32
      %xy = arith.mulf %x, %y : f32
      %t = arith.addf %s, %x : f32
      %u = arith.addf %t, %xy : f32
      attn.yield %u : f32
    } : tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32> -> tensor<?x?x?x16xf32>, tensor<?x?x?xf32>
  return %o, %l : tensor<?x?x?x16xf32>, tensor<?x?x?xf32>
}
