// Gradients of captures with a dimension of queries or keys, and another that is read at a computed
// index.
// RUN: attn-run %s --entry=heads --grad --shape 0=2x4x70x16 --shape 1=2x2x90x16 --shape 2=2x70x90 --check | FileCheck %s
// RUN: attn-run %s --entry=heads --threads=1 --grad --shape 0=2x4x70x16 --shape 1=2x2x90x16 --shape 2=2x70x90 --check | FileCheck %s
// RUN: attn-run %s --entry=shifted --grad --shape 0=2x4x70x16 --shape 1=2x2x90x16 --shape 2=73x90 --check | FileCheck %s
// RUN: attn-run %s --entry=distances --grad --shape 0=2x4x70x16 --shape 1=2x2x90x16 --shape 2=2x4x70x16 --check | FileCheck %s
// RUN: attn-run %s --entry=distances --grad --shape 0=2x4x0x16 --shape 1=2x2x90x16 --shape 2=2x4x0x16 --check | FileCheck %s
// RUN: attn-run %s --entry=twice --grad --shape 0=2x4x70x16 --shape 1=2x2x90x16 --shape 2=4x90 --check | FileCheck %s
// CHECK: check: gradient 0: ok
// CHECK-NEXT: check: gradient 1: ok
// CHECK-NEXT: check: gradient 2: ok
// CHECK-NOT: check:

func.func @heads(%q: tensor<2x4x?x16xf32>, %k: tensor<2x2x?x16xf32>, %t: tensor<2x?x?xf32>) -> tensor<2x4x?x16xf32> {
  %o = attn.forward %q, %k, %k captures(%t : tensor<2x?x?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<2x?x?xf32>):
      %c2 = arith.constant 2 : index
      %half = arith.floordivsi %h, %c2 : index
      %v = tensor.extract %c[%half, %i, %j] : tensor<2x?x?xf32>
      %r = arith.addf %s, %v : f32
      attn.yield %r : f32
    } : tensor<2x4x?x16xf32>, tensor<2x2x?x16xf32>, tensor<2x2x?x16xf32> -> tensor<2x4x?x16xf32>
  return %o : tensor<2x4x?x16xf32>
}

// Three rows are not read.
func.func @shifted(%q: tensor<2x4x?x16xf32>, %k: tensor<2x2x?x16xf32>, %t: tensor<?x?xf32>) -> tensor<2x4x?x16xf32> {
  %o = attn.forward %q, %k, %k captures(%t : tensor<?x?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<?x?xf32>):
      %c1 = arith.constant 1 : index
      %next = arith.addi %i, %c1 : index
      %v = tensor.extract %c[%next, %j] : tensor<?x?xf32>
      %r = arith.addf %s, %v : f32
      attn.yield %r : f32
    } : tensor<2x4x?x16xf32>, tensor<2x2x?x16xf32>, tensor<2x2x?x16xf32> -> tensor<2x4x?x16xf32>
  return %o : tensor<2x4x?x16xf32>
}

// Content to position, as in DeBERTa; causal.
func.func @distances(%q: tensor<2x4x?x16xf32>, %k: tensor<2x2x?x16xf32>, %t: tensor<2x4x?x16xf32>) -> tensor<2x4x?x16xf32> {
  %o = attn.forward %q, %k, %k captures(%t : tensor<2x4x?x16xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<2x4x?x16xf32>):
      %far = arith.subi %i, %j : index
      %zero = arith.constant 0 : index
      %last = arith.constant 15 : index
      %near = arith.minsi %far, %last : index
      %bucket = arith.maxsi %near, %zero : index
      %v = tensor.extract %c[%b, %h, %i, %bucket] : tensor<2x4x?x16xf32>
      %r = arith.mulf %s, %v : f32
      attn.yield %r : f32
    } mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %c: tensor<2x4x?x16xf32>):
      %keep = arith.cmpi sge, %i, %j : index
      attn.yield %keep : i1
    } : tensor<2x4x?x16xf32>, tensor<2x2x?x16xf32>, tensor<2x2x?x16xf32> -> tensor<2x4x?x16xf32>
  return %o : tensor<2x4x?x16xf32>
}

// Two reads, one at computed indices.
func.func @twice(%q: tensor<2x4x?x16xf32>, %k: tensor<2x2x?x16xf32>, %t: tensor<4x?xf32>) -> tensor<2x4x?x16xf32> {
  %o = attn.forward %q, %k, %k captures(%t : tensor<4x?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<4x?xf32>):
      %c4 = arith.constant 4 : index
      %place = arith.remui %i, %c4 : index
      %v = tensor.extract %c[%place, %j] : tensor<4x?xf32>
      %w = tensor.extract %c[%h, %j] : tensor<4x?xf32>
      %x = arith.mulf %v, %w : f32
      %r = arith.addf %s, %x : f32
      attn.yield %r : f32
    } : tensor<2x4x?x16xf32>, tensor<2x2x?x16xf32>, tensor<2x2x?x16xf32> -> tensor<2x4x?x16xf32>
  return %o : tensor<2x4x?x16xf32>
}
