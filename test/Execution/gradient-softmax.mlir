// The gradients of a row softmax: of its input and of what its score reads.
// RUN: attn-run %s --entry=plain --grad --shape 0=33x257 --check | FileCheck %s --check-prefix=PLAIN
// RUN: attn-run %s --entry=scored --grad --shape 0=2x100x130 --shape 1=130 --check | FileCheck %s
// PLAIN: check: gradient 0: ok
// CHECK: check: gradient 0: ok
// CHECK-NEXT: check: gradient 1: ok

func.func @plain(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %y = attn.softmax %x : tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

func.func @scored(%x: tensor<?x?x?xf32>, %t: tensor<?xf32>) -> tensor<?x?x?xf32> {
  %y = attn.softmax %x captures(%t : tensor<?xf32>) score {
  ^bb0(%s: f32, %b: index, %i: index, %j: index, %table: tensor<?xf32>):
    %a = tensor.extract %table[%j] : tensor<?xf32>
    %r = arith.mulf %a, %s : f32
    attn.yield %r : f32
  } mask {
  ^bb0(%b: index, %i: index, %j: index, %table: tensor<?xf32>):
    %keep = arith.cmpi sge, %i, %j : index
    attn.yield %keep : i1
  } : tensor<?x?x?xf32>
  return %y : tensor<?x?x?xf32>
}
