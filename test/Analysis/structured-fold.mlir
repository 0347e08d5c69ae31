// RUN: attn-opt %s -split-input-file -attn-print-dependences -o /dev/null | FileCheck %s

// Online softmax as a fold over blocks of keys. j is the fold's loop; each of
// the state updates depends on itself from one j to the next and on nothing
// else; d (the contraction of queries and keys) carries only its own reduction.

#ij   = affine_map<(i, j) -> (i, j)>
#i_ij = affine_map<(i, j) -> (i)>
#id   = affine_map<(i, j, d) -> (i, d)>
#jd   = affine_map<(i, j, d) -> (j, d)>
#s    = affine_map<(i, j, d) -> (i, j)>
#i    = affine_map<(i) -> (i)>
#ie   = affine_map<(i, e) -> (i, e)>
#i_ie = affine_map<(i, e) -> (i)>
#pij  = affine_map<(i, j, e) -> (i, j)>
#vje  = affine_map<(i, j, e) -> (j, e)>
#oie  = affine_map<(i, j, e) -> (i, e)>

// CHECK-LABEL: dependences of @online_softmax
// CHECK-NEXT: statements:
// CHECK-NEXT:   S1 [i, j, d] scores
// CHECK-NEXT:   S2 [i, j] new m
// CHECK-NEXT:   S3 [i, j] p
// CHECK-NEXT:   S4 [i, j] alpha
// CHECK-NEXT:   S5 [i, j] scaled l
// CHECK-NEXT:   S6 [i, j] new l
// CHECK-NEXT:   S7 [i, j, e] scaled O
// CHECK-NEXT:   S8 [i, j, e] new O
// CHECK-NEXT:   S9 [i, e] normalise
// CHECK-NEXT: dependences:
// CHECK-NEXT:   RAW S1 -> S1 (0, 0, 1) carried by d [reduction]
// CHECK-NEXT:   RAW S1 -> S2 (0, 0)
// CHECK-NEXT:   RAW S1 -> S3 (0, 0)
// CHECK-NEXT:   RAW S2 -> S2 (0, 1) carried by j [reduction]
// CHECK-NEXT:   RAW S2 -> S3 (0, 0)
// CHECK-NEXT:   RAW S2 -> S4 (0, 0)
// CHECK-NEXT:   RAW S2 -> S4 (0, 1) carried by j
// CHECK-NEXT:   RAW S3 -> S6 (0, 0)
// CHECK-NEXT:   RAW S3 -> S8 (0, 0)
// CHECK-NEXT:   RAW S4 -> S5 (0, 0)
// CHECK-NEXT:   RAW S4 -> S7 (0, 0)
// CHECK-NEXT:   RAW S5 -> S6 (0, 0)
// CHECK-NEXT:   RAW S6 -> S5 (0, 1) carried by j
// CHECK-NEXT:   RAW S6 -> S6 (0, 1) carried by j [reduction]
// CHECK-NEXT:   RAW S6 -> S9 (0)
// CHECK-NEXT:   RAW S7 -> S8 (0, 0, 0)
// CHECK-NEXT:   RAW S8 -> S7 (0, 1, 0) carried by j
// CHECK-NEXT:   RAW S8 -> S8 (0, 1, 0) carried by j [reduction]
// CHECK-NEXT:   RAW S8 -> S9 (0, 0)
// CHECK-NEXT: components:
// CHECK-NEXT:   {S1} carried by d
// CHECK-NEXT:   {S2} carried by j
// CHECK-NEXT:   {S5, S6} carried by j
// CHECK-NEXT:   {S7, S8} carried by j
// CHECK-NEXT: orders:
// CHECK-NEXT:   no vector forbids any order of i, j, d, e
// CHECK-NEXT: loops:
// CHECK-NEXT:   i: parallel
// CHECK-NEXT:   j: carries 6 dependences
// CHECK:          to run {S5, S6} with parallel j:
// CHECK:            atomics: refused
// CHECK:            partial-and-merge: legal, two states of disjoint parts can be merged
// CHECK:            cluster-reduction: legal
// CHECK:        d: carries 1 dependence, all of reductions
// CHECK:          to run {S1} with parallel d:
// CHECK:            atomics: legal, add is associative and commutative, and nobody reads the running value
// CHECK:        e: parallel
func.func @online_softmax(%n: index, %Q: tensor<?x64xf32>, %K: tensor<?x64xf32>, %V: tensor<?x32xf32>,
    %m0: tensor<?xf32>, %l0: tensor<?xf32>, %o0: tensor<?x32xf32>) -> tensor<?x32xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %M = tensor.dim %Q, %c0 : tensor<?x64xf32>
  %r:3 = attn.fold %n streams(%K, %V : tensor<?x64xf32>, tensor<?x32xf32>) dims [0, 0]
      carries(%m0, %l0, %o0 : tensor<?xf32>, tensor<?xf32>, tensor<?x32xf32>) {
  ^bb0(%j0: index, %k: tensor<?x64xf32>, %v: tensor<?x32xf32>,
       %m: tensor<?xf32>, %l: tensor<?xf32>, %o: tensor<?x32xf32>):
    %N = tensor.dim %k, %c0 : tensor<?x64xf32>
    %s_empty = tensor.empty(%M, %N) : tensor<?x?xf32>
    %s_zero = linalg.fill ins(%zero : f32) outs(%s_empty : tensor<?x?xf32>) -> tensor<?x?xf32>
    %s = linalg.generic {indexing_maps = [#id, #jd, #s], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%Q, %k : tensor<?x64xf32>, tensor<?x64xf32>) outs(%s_zero : tensor<?x?xf32>)
        attrs = {attn.stmt = "scores", attn.dims = ["i", "j", "d"]} {
    ^bb0(%a: f32, %b: f32, %acc: f32):
      %0 = arith.mulf %a, %b : f32
      %1 = arith.addf %acc, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<?x?xf32>
    %m1 = linalg.generic {indexing_maps = [#ij, #i_ij], iterator_types = ["parallel", "reduction"]}
        ins(%s : tensor<?x?xf32>) outs(%m : tensor<?xf32>) attrs = {attn.stmt = "new m"} {
    ^bb0(%a: f32, %acc: f32):
      %0 = arith.maxnumf %acc, %a : f32
      linalg.yield %0 : f32
    } -> tensor<?xf32>
    %p = linalg.generic {indexing_maps = [#ij, #i_ij, #ij], iterator_types = ["parallel", "parallel"]}
        ins(%s, %m1 : tensor<?x?xf32>, tensor<?xf32>) outs(%s_empty : tensor<?x?xf32>)
        attrs = {attn.stmt = "p"} {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %0 = arith.subf %a, %b : f32
      %1 = math.exp %0 : f32
      linalg.yield %1 : f32
    } -> tensor<?x?xf32>
    %row = tensor.empty(%M) : tensor<?xf32>
    %alpha = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel"]}
        ins(%m, %m1 : tensor<?xf32>, tensor<?xf32>) outs(%row : tensor<?xf32>)
        attrs = {attn.stmt = "alpha"} {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %0 = arith.subf %a, %b : f32
      %1 = math.exp %0 : f32
      linalg.yield %1 : f32
    } -> tensor<?xf32>
    %la = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel"]}
        ins(%l, %alpha : tensor<?xf32>, tensor<?xf32>) outs(%row : tensor<?xf32>)
        attrs = {attn.stmt = "scaled l"} {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %0 = arith.mulf %a, %b : f32
      linalg.yield %0 : f32
    } -> tensor<?xf32>
    %l1 = linalg.generic {indexing_maps = [#ij, #i_ij], iterator_types = ["parallel", "reduction"]}
        ins(%p : tensor<?x?xf32>) outs(%la : tensor<?xf32>) attrs = {attn.stmt = "new l"} {
    ^bb0(%a: f32, %acc: f32):
      %0 = arith.addf %acc, %a : f32
      linalg.yield %0 : f32
    } -> tensor<?xf32>
    %oa = linalg.generic {indexing_maps = [#ie, #i_ie, #ie], iterator_types = ["parallel", "parallel"]}
        ins(%o, %alpha : tensor<?x32xf32>, tensor<?xf32>) outs(%o : tensor<?x32xf32>)
        attrs = {attn.stmt = "scaled O", attn.dims = ["i", "e"]} {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %0 = arith.mulf %a, %b : f32
      linalg.yield %0 : f32
    } -> tensor<?x32xf32>
    %o1 = linalg.generic {indexing_maps = [#pij, #vje, #oie], iterator_types = ["parallel", "reduction", "parallel"]}
        ins(%p, %v : tensor<?x?xf32>, tensor<?x32xf32>) outs(%oa : tensor<?x32xf32>)
        attrs = {attn.stmt = "new O"} {
    ^bb0(%a: f32, %b: f32, %acc: f32):
      %0 = arith.mulf %a, %b : f32
      %1 = arith.addf %acc, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<?x32xf32>
    attn.yield %m1, %l1, %o1 : tensor<?xf32>, tensor<?xf32>, tensor<?x32xf32>
  } merge {
  ^bb0(%ma: tensor<?xf32>, %la: tensor<?xf32>, %oa: tensor<?x32xf32>,
       %mb: tensor<?xf32>, %lb: tensor<?xf32>, %ob: tensor<?x32xf32>):
    // What a merge computes is not the analysis's business; that there is one is.
    attn.yield %ma, %la, %oa : tensor<?xf32>, tensor<?xf32>, tensor<?x32xf32>
  } -> tensor<?xf32>, tensor<?xf32>, tensor<?x32xf32>
  %y = linalg.generic {indexing_maps = [#ie, #i_ie, #ie], iterator_types = ["parallel", "parallel"]}
      ins(%r#2, %r#1 : tensor<?x32xf32>, tensor<?xf32>) outs(%o0 : tensor<?x32xf32>)
      attrs = {attn.stmt = "normalise"} {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}
