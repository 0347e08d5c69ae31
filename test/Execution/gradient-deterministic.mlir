// Gradients are the same bits from run to run and for any number of threads, in
// each order of the loops.
// RUN: %python %S/support/replays.py %attn_bin/attn-run 4 5 %s --shape 0=1x4x200x32 --shape 1=1x2x300x32 --shape 2=1x2x300x32 --shape 3=1x4x200x300 --shape 4=4 --loop-order=m_outer | FileCheck %s
// RUN: %python %S/support/replays.py %attn_bin/attn-run 4 5 %s --shape 0=1x4x200x32 --shape 1=1x2x300x32 --shape 2=1x2x300x32 --shape 3=1x4x200x300 --shape 4=4 --loop-order=n_outer | FileCheck %s
// RUN: %python %S/support/replays.py %attn_bin/attn-run 4 5 %s --shape 0=1x4x200x32 --shape 1=1x2x300x32 --shape 2=1x2x300x32 --shape 3=1x4x200x300 --shape 4=4 --loop-order=split_kv | FileCheck %s
// CHECK: 4 runs, 5 gradients each, equal bit by bit

func.func @attention(%q: tensor<?x?x?x32xf32>, %k: tensor<?x?x?x32xf32>, %v: tensor<?x?x?x32xf32>,
                     %bias: tensor<?x?x?x?xf32>, %slope: tensor<?xf32>)
    -> (tensor<?x?x?x32xf32>, tensor<?x?x?xf32>) {
  %o, %lse = attn.forward %q, %k, %v captures(%bias, %slope : tensor<?x?x?x?xf32>, tensor<?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<?x?x?x?xf32>, %m: tensor<?xf32>):
      %x = tensor.extract %t[%b, %h, %i, %j] : tensor<?x?x?x?xf32>
      %y = tensor.extract %m[%h] : tensor<?xf32>
      %z = arith.mulf %s, %y : f32
      %r = arith.addf %z, %x : f32
      attn.yield %r : f32
    } mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %t: tensor<?x?x?x?xf32>, %m: tensor<?xf32>):
      %keep = arith.cmpi sge, %i, %j : index
      attn.yield %keep : i1
    } : tensor<?x?x?x32xf32>, tensor<?x?x?x32xf32>, tensor<?x?x?x32xf32>
        -> tensor<?x?x?x32xf32>, tensor<?x?x?xf32>
  return %o, %lse : tensor<?x?x?x32xf32>, tensor<?x?x?xf32>
}
