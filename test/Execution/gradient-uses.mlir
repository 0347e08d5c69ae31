// Gradients of functions that use attention in more ways than one.
// RUN: attn-run %s --entry=twice --grad --shape 0=1x2x70x16 --check | FileCheck %s --check-prefix=ONE
// RUN: attn-run %s --entry=feeds_another --grad --shape 0=1x2x70x16 --shape 1=1x2x90x16 --check | FileCheck %s --check-prefix=TWO
// RUN: attn-run %s --entry=only_lse --grad --shape 0=1x2x70x16 --shape 1=1x2x90x16 --check | FileCheck %s --check-prefix=TWO
// RUN: attn-run %s --entry=score_and_mask --grad --shape 0=1x2x70x16 --check | FileCheck %s --check-prefix=TWO
// RUN: attn-run %s --entry=shared_capture --grad --shape 0=1x2x70x16 --check | FileCheck %s --check-prefix=TWO
// ONE: check: result 0: ok
// ONE-NEXT: check: gradient 0: ok
// ONE-NOT: check:
// TWO: check: gradient 0: ok
// TWO-NEXT: check: gradient 1: ok
// TWO-NOT: check:

// Two uses of the output, and one tensor three times.
func.func @twice(%x: tensor<1x2x?x16xf32>) -> tensor<1x2x?x16xf32> {
  %o = attn.forward %x, %x, %x : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> -> tensor<1x2x?x16xf32>
  %square = arith.mulf %o, %o : tensor<1x2x?x16xf32>
  %sum = arith.addf %square, %o : tensor<1x2x?x16xf32>
  return %sum : tensor<1x2x?x16xf32>
}

// The output is the query of another attention, and a result.
func.func @feeds_another(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %o = attn.forward %q, %k, %k mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %keep = arith.cmpi sge, %i, %j : index
    attn.yield %keep : i1
  } : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> -> tensor<1x2x?x16xf32>
  %p = attn.forward %o, %k, %k : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> -> tensor<1x2x?x16xf32>
  return %o, %p : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// The output is not used: its gradient is absent.
func.func @only_lse(%q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>) -> tensor<1x2x?xf32> {
  %o, %lse = attn.forward %q, %k, %k
    : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> -> tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
  return %lse : tensor<1x2x?xf32>
}

// A tensor that score and mask read: only the score gives it a gradient.
func.func @score_and_mask(%q: tensor<1x2x?x16xf32>, %slope: tensor<2xf32>) -> tensor<1x2x?x16xf32> {
  %o = attn.forward %q, %q, %q captures(%slope : tensor<2xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<2xf32>):
      %a = tensor.extract %t[%h] : tensor<2xf32>
      %r = arith.mulf %s, %a : f32
      attn.yield %r : f32
    } mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %t: tensor<2xf32>):
      %a = tensor.extract %t[%h] : tensor<2xf32>
      %zero = arith.constant 0.0 : f32
      %positive = arith.cmpf ogt, %a, %zero : f32
      %causal = arith.cmpi sge, %i, %j : index
      %keep = arith.ori %positive, %causal : i1
      attn.yield %keep : i1
    } : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> -> tensor<1x2x?x16xf32>
  return %o : tensor<1x2x?x16xf32>
}

// Two attentions capture one tensor: its gradients are added.
func.func @shared_capture(%q: tensor<1x2x?x16xf32>, %slope: tensor<2xf32>) -> tensor<1x2x?x16xf32> {
  %o = attn.forward %q, %q, %q captures(%slope : tensor<2xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<2xf32>):
      %a = tensor.extract %t[%h] : tensor<2xf32>
      %r = arith.mulf %s, %a : f32
      attn.yield %r : f32
    } : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> -> tensor<1x2x?x16xf32>
  %p = attn.forward %o, %q, %q captures(%slope : tensor<2xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<2xf32>):
      %a = tensor.extract %t[%h] : tensor<2xf32>
      %d = arith.subi %j, %i : index
      %di = arith.index_cast %d : index to i32
      %df = arith.sitofp %di : i32 to f32
      %bias = arith.mulf %a, %df : f32
      %r = arith.addf %s, %bias : f32
      attn.yield %r : f32
    } : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> -> tensor<1x2x?x16xf32>
  return %p : tensor<1x2x?x16xf32>
}
