// The programs for Hopper of gradients of captures with a dimension of queries or keys, and another
// that is read at a computed index.
// RUN: attn-run %s --target=interpreter --entry=heads --grad --shape 0=1x4x70x64 --shape 1=1x2x90x64 --shape 2=2x70x90 --check | FileCheck %s
// RUN: attn-run %s --target=interpreter --entry=distances --grad --shape 0=2x2x70x64 --shape 1=2x2x90x64 --shape 2=2x2x70x16 --check | FileCheck %s
// RUN: attn-run %s --target=interpreter --entry=placed --grad --shape 0=1x2x70x64 --shape 1=1x2x90x64 --shape 2=4x90 --shape 3=70 --shape 4=2x90 --fill 3=arange --fill 4=arange --check | FileCheck %s
// RUN: attn-run %s --target=interpreter --entry=three --grad --shape 0=2x2x70x64 --shape 1=2x2x90x64 --shape 2=9x12x3 --check | FileCheck %s
// CHECK: check: gradient 0: ok
// CHECK-NEXT: check: gradient 1: ok
// CHECK-NEXT: check: gradient 2: ok
// CHECK-NOT: check:

func.func @heads(%q: tensor<?x4x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %t: tensor<2x?x?xf32>) -> tensor<?x4x?x64xbf16> {
  %o = attn.forward %q, %k, %k captures(%t : tensor<2x?x?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<2x?x?xf32>):
      %c2 = arith.constant 2 : index
      %half = arith.floordivsi %h, %c2 : index
      %v = tensor.extract %c[%half, %i, %j] : tensor<2x?x?xf32>
      %r = arith.addf %s, %v : f32
      attn.yield %r : f32
    } : tensor<?x4x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16> -> tensor<?x4x?x64xbf16>
  return %o : tensor<?x4x?x64xbf16>
}

// Content to position, as in DeBERTa; causal.
func.func @distances(%q: tensor<?x2x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %t: tensor<?x2x?x16xbf16>) -> tensor<?x2x?x64xbf16> {
  %o = attn.forward %q, %k, %k captures(%t : tensor<?x2x?x16xbf16>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<?x2x?x16xbf16>):
      %far = arith.subi %i, %j : index
      %zero = arith.constant 0 : index
      %last = arith.constant 15 : index
      %near = arith.minsi %far, %last : index
      %bucket = arith.maxsi %near, %zero : index
      %v = tensor.extract %c[%b, %h, %i, %bucket] : tensor<?x2x?x16xbf16>
      %w = arith.extf %v : bf16 to f32
      %r = arith.addf %s, %w : f32
      attn.yield %r : f32
    } mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index, %c: tensor<?x2x?x16xbf16>):
      %keep = arith.cmpi sge, %i, %j : index
      attn.yield %keep : i1
    } : tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16> -> tensor<?x2x?x64xbf16>
  return %o : tensor<?x2x?x64xbf16>
}

// The index is loaded, at indices that are computed, too.
func.func @placed(%q: tensor<?x2x?x64xbf16>, %k: tensor<?x2x?x64xbf16>, %t: tensor<4x?xf32>, %place: tensor<?xi32>, %more: tensor<2x?xi32>) -> tensor<?x2x?x64xbf16> {
  %o = attn.forward %q, %k, %k captures(%t, %place, %more : tensor<4x?xf32>, tensor<?xi32>, tensor<2x?xi32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<4x?xf32>, %p: tensor<?xi32>, %m: tensor<2x?xi32>):
      %c4 = arith.constant 4 : index
      %c69 = arith.constant 69 : index
      %mirror = arith.subi %c69, %i : index
      %at = tensor.extract %p[%mirror] : tensor<?xi32>
      %c2 = arith.constant 2 : index
      %odd = arith.remui %i, %c2 : index
      %other = tensor.extract %m[%odd, %j] : tensor<2x?xi32>
      %both = arith.addi %at, %other : i32
      %wide = arith.index_castui %both : i32 to index
      %row = arith.remui %wide, %c4 : index
      %v = tensor.extract %c[%row, %j] : tensor<4x?xf32>
      %r = arith.addf %s, %v : f32
      attn.yield %r : f32
    } : tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16> -> tensor<?x2x?x64xbf16>
  return %o : tensor<?x2x?x64xbf16>
}

// Three dimensions at computed indices, and none of queries or keys: a table.
func.func @three(%q: tensor<2x2x?x64xbf16>, %k: tensor<2x2x?x64xbf16>, %t: tensor<?x?x?xf32>) -> tensor<2x2x?x64xbf16> {
  %o = attn.forward %q, %k, %k captures(%t : tensor<?x?x?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<?x?x?xf32>):
      %c8 = arith.constant 8 : index
      %c3 = arith.constant 3 : index
      %x = arith.divui %i, %c8 : index
      %y = arith.divui %j, %c8 : index
      %u = arith.addi %i, %j : index
      %z = arith.remui %u, %c3 : index
      %v = tensor.extract %c[%x, %y, %z] : tensor<?x?x?xf32>
      %r = arith.addf %s, %v : f32
      attn.yield %r : f32
    } : tensor<2x2x?x64xbf16>, tensor<2x2x?x64xbf16>, tensor<2x2x?x64xbf16> -> tensor<2x2x?x64xbf16>
  return %o : tensor<2x2x?x64xbf16>
}
