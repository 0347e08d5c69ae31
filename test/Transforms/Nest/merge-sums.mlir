// RUN: attn-opt %s --attn-fuse-reductions --attn-merge-sums | FileCheck %s
// RUN: attn-opt %s --attn-fuse-reductions --attn-merge-sums --attn-plan-nest="order=m_outer rows-first block-m=64 block-n=32" --attn-tile-nest="rows-first block-m=64 block-n=32" --canonicalize --cse | FileCheck %s --check-prefix=TILES
// RUN: attn-opt %s --attn-fuse-reductions --attn-merge-sums --remarks-filter=attn-merge-sums -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] merged | Category:attn-merge-sums{{$}}

// A sum along i that is summed again along g is one sum along both; g then is a
// loop around the tiles of i, and its statements have tiles of rows (j) first.

#q = affine_map<(g, i, j, d) -> (g, i, d)>
#k = affine_map<(g, i, j, d) -> (j, d)>
#s = affine_map<(g, i, j, d) -> (g, i, j)>
#o = affine_map<(g, i, j, d) -> (g, j, d)>
#in = affine_map<(g, j, d) -> (g, j, d)>
#out = affine_map<(g, j, d) -> (j, d)>
// CHECK-LABEL: func @group
// CHECK:         attn.fold %{{.*}} streams(%arg0 : tensor<?x?x16xf32>) dims [1] carries(%{{.*}} : tensor<?x16xf32>)
// CHECK:           linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "reduction"]
// CHECK:           linalg.generic {{.*}} iterator_types = ["reduction", "reduction", "parallel", "parallel"]
// CHECK:           } -> tensor<?x16xf32>
// CHECK:         } merge {
// CHECK-NOT:     attn.fold
// CHECK:         return
// TILES-LABEL: func @group
// TILES:         scf.forall
// TILES:           %[[K:.*]] = vector.transfer_read %arg1[{{.*}} vector<64x16xf32>
// TILES:           scf.for %[[G:.*]] = %c0 to %{{.*}} step %c1 iter_args(%[[A:.*]] = %{{.*}}) -> (vector<64x16xf32>) {
// TILES:             scf.for %[[I:.*]] = %c0 to %{{.*}} step %c32 iter_args(%[[B:.*]] = %[[A]]) -> (vector<64x16xf32>) {
// TILES:               %[[Q:.*]] = vector.transfer_read %arg0[%[[G]], %[[I]], %c0]
// TILES:               %[[S:.*]] = vector.contract {{.*}} %[[Q]], %[[K]], {{.*}} into vector<64x32xf32>
// TILES:               vector.contract {{.*}} %[[S]], %[[Q]], %[[B]]
// TILES:             } {attn.fold_loop}
func.func @group(%q: tensor<?x?x16xf32>, %k: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %G = tensor.dim %q, %c0 : tensor<?x?x16xf32>
  %I = tensor.dim %q, %c1 : tensor<?x?x16xf32>
  %J = tensor.dim %k, %c0 : tensor<?x16xf32>
  %es = tensor.empty(%G, %I, %J) : tensor<?x?x?xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<?x?x16xf32>, tensor<?x16xf32>) outs(%fs : tensor<?x?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %m = arith.mulf %a, %b : f32
    %t = arith.addf %c, %m : f32
    linalg.yield %t : f32
  } -> tensor<?x?x?xf32>
  %eo = tensor.empty(%G, %J) : tensor<?x?x16xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x?x16xf32>) -> tensor<?x?x16xf32>
  %o = linalg.generic {indexing_maps = [#s, #q, #o], iterator_types = ["parallel", "reduction", "parallel", "parallel"]}
      ins(%s, %q : tensor<?x?x?xf32>, tensor<?x?x16xf32>) outs(%fo : tensor<?x?x16xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %m = arith.mulf %a, %b : f32
    %t = arith.addf %c, %m : f32
    linalg.yield %t : f32
  } -> tensor<?x?x16xf32>
  %er = tensor.empty(%J) : tensor<?x16xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<?x16xf32>) -> tensor<?x16xf32>
  %r = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["reduction", "parallel", "parallel"]}
      ins(%o : tensor<?x?x16xf32>) outs(%fr : tensor<?x16xf32>) {
  ^bb0(%a: f32, %c: f32):
    %t = arith.addf %c, %a : f32
    linalg.yield %t : f32
  } -> tensor<?x16xf32>
  return %r : tensor<?x16xf32>
}

// What is only read and summed twice stays apart: there is nothing to loop around.

#in3 = affine_map<(g, j, d) -> (g, j, d)>
#mid = affine_map<(g, j, d) -> (g, j)>
#in2 = affine_map<(g, j) -> (g, j)>
#last = affine_map<(g, j) -> (j)>
// CHECK-LABEL: func @apart
// CHECK-COUNT-1: attn.fold
// CHECK-NOT: ["reduction", "parallel", "reduction"]
func.func @apart(%x: tensor<?x?x64xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %G = tensor.dim %x, %c0 : tensor<?x?x64xf32>
  %J = tensor.dim %x, %c1 : tensor<?x?x64xf32>
  %e = tensor.empty(%G, %J) : tensor<?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.generic {indexing_maps = [#in3, #mid], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<?x?x64xf32>) outs(%f : tensor<?x?xf32>) {
  ^bb0(%a: f32, %c: f32):
    %t = arith.addf %c, %a : f32
    linalg.yield %t : f32
  } -> tensor<?x?xf32>
  %e1 = tensor.empty(%J) : tensor<?xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [#in2, #last], iterator_types = ["reduction", "parallel"]}
      ins(%s : tensor<?x?xf32>) outs(%f1 : tensor<?xf32>) {
  ^bb0(%a: f32, %c: f32):
    %t = arith.addf %c, %a : f32
    linalg.yield %t : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// Beside the sum, what it sums is returned: a tile of that has no place for g, which stays outside
// (and is summed in a fold of its own, for its size is known).

#all = affine_map<(g, h, k, i) -> (g, h, k, i)>
#sum = affine_map<(g, h, k, i) -> (g, h, k)>
#ghk = affine_map<(g, h, k) -> (g, h, k)>
#hk = affine_map<(g, h, k) -> (h, k)>
// CHECK-LABEL: func @returned
// CHECK: attn.fold {{.*}} carries(%{{.*}} : tensor<2x3x8xf32>)
// CHECK: attn.fold %c2 {{.*}} carries(%{{.*}} : tensor<3x8xf32>)
func.func @returned(%x: tensor<2x3x8x?xf32>) -> (tensor<3x8xf32>, tensor<2x3x8x?xf32>) {
  %c3 = arith.constant 3 : index
  %zero = arith.constant 0.0 : f32
  %I = tensor.dim %x, %c3 : tensor<2x3x8x?xf32>
  %e = tensor.empty(%I) : tensor<2x3x8x?xf32>
  %m = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x : tensor<2x3x8x?xf32>) outs(%e : tensor<2x3x8x?xf32>) {
  ^bb0(%a: f32, %c: f32):
    %t = math.exp %a : f32
    linalg.yield %t : f32
  } -> tensor<2x3x8x?xf32>
  %e1 = tensor.empty() : tensor<2x3x8xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %s = linalg.generic {indexing_maps = [#all, #sum], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%m : tensor<2x3x8x?xf32>) outs(%f1 : tensor<2x3x8xf32>) {
  ^bb0(%a: f32, %c: f32):
    %t = arith.addf %c, %a : f32
    linalg.yield %t : f32
  } -> tensor<2x3x8xf32>
  %e2 = tensor.empty() : tensor<3x8xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<3x8xf32>) -> tensor<3x8xf32>
  %r = linalg.generic {indexing_maps = [#ghk, #hk], iterator_types = ["reduction", "parallel", "parallel"]}
      ins(%s : tensor<2x3x8xf32>) outs(%f2 : tensor<3x8xf32>) {
  ^bb0(%a: f32, %c: f32):
    %t = arith.addf %c, %a : f32
    linalg.yield %t : f32
  } -> tensor<3x8xf32>
  return %r, %m : tensor<3x8xf32>, tensor<2x3x8x?xf32>
}
