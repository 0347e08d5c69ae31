// What the gradient of a capture needs, and no more: two products, of the scores
// and of dP, where nobody asks for dQ, dK and dV.
// (large-scores would compute them once more, in a branch.)
// RUN: attn-opt %s --attn-differentiate="function=bias saved-results arguments=3 results=0" --attn-nest-pipeline=large-scores=inexact | FileCheck %s --check-prefix=ALONE
// RUN: attn-opt %s --attn-differentiate="function=table saved-results arguments=3 results=0" --attn-nest-pipeline=large-scores=inexact | FileCheck %s --check-prefix=ALONE
// RUN: attn-opt %s --attn-differentiate="function=bias saved-results arguments=0,3 results=0" --attn-nest-pipeline=large-scores=inexact | FileCheck %s --check-prefix=QUERY
// RUN: attn-opt %s --attn-differentiate="function=bias saved-results arguments=3 results=0" --attn-tile-pipeline=large-scores=inexact | FileCheck %s --check-prefix=TILES

// Products contract elements of heads (S, dP), keys (dQ) or queries (dK, dV).
// ALONE-LABEL: func.func {{.*}}@{{.*}}_gradient
// ALONE-COUNT-2: iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "reduction"]
// ALONE-NOT: iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "reduction"]
// ALONE-NOT: iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "parallel"]
// ALONE-NOT: iterator_types = ["parallel", "parallel", "parallel", "reduction", "parallel", "parallel"]
// ALONE: return
// QUERY-LABEL: func.func {{.*}}@bias_gradient
// QUERY: iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "parallel"]
// QUERY-NOT: iterator_types = ["parallel", "parallel", "parallel", "reduction", "parallel", "parallel"]
// QUERY: return
// No product is left in a loop without tiles.
// TILES-LABEL: func.func {{.*}}@bias_gradient
// TILES-NOT: linalg.generic {{.*}}"reduction"]}
// TILES: return
func.func private @bias(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>,
                        %bias: tensor<?x?x?xf32>) -> (tensor<?x?x?x64xf32>, tensor<?x?x?xf32>) {
  %o, %lse = attn.forward %q, %k, %v captures(%bias : tensor<?x?x?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<?x?x?xf32>):
      %x = tensor.extract %c[%h, %i, %j] : tensor<?x?x?xf32>
      %y = arith.addf %s, %x : f32
      attn.yield %y : f32
    }
    : tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32> -> tensor<?x?x?x64xf32>, tensor<?x?x?xf32>
  return %o, %lse : tensor<?x?x?x64xf32>, tensor<?x?x?xf32>
}

func.func private @table(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>,
                         %table: tensor<?x32xf32>) -> (tensor<?x?x?x64xf32>, tensor<?x?x?xf32>) {
  %o, %lse = attn.forward %q, %k, %v captures(%table : tensor<?x32xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<?x32xf32>):
      %n = arith.constant 32 : index
      %d = arith.addi %i, %j : index
      %bucket = arith.remui %d, %n : index
      %x = tensor.extract %c[%h, %bucket] : tensor<?x32xf32>
      %y = arith.addf %s, %x : f32
      attn.yield %y : f32
    }
    : tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32> -> tensor<?x?x?x64xf32>, tensor<?x?x?xf32>
  return %o, %lse : tensor<?x?x?x64xf32>, tensor<?x?x?xf32>
}
