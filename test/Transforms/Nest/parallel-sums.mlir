// RUN: attn-opt %s --attn-fuse-reductions=sums=parallel | FileCheck %s
// RUN: attn-opt %s --attn-fuse-reductions=sums=parallel --attn-plan-nest="order=m_outer rows-first parallel-sums block-m=64 block-n=32" --attn-tile-nest="rows-first parallel-sums block-m=64 block-n=32" --canonicalize --cse | FileCheck %s --check-prefix=TILES
// RUN: not attn-opt %s --attn-fuse-reductions=sums=parallel --attn-plan-nest="order=m_outer rows-first" --attn-tile-nest="rows-first" 2>&1 | FileCheck %s --check-prefix=SEQUENTIAL
// RUN: not attn-opt %s --attn-fuse-reductions=sums=sideways 2>&1 | FileCheck %s --check-prefix=OPTION

// SEQUENTIAL: cannot take loop order m_outer: loop {{.*}} (row) cannot be parallel: RAW dependence from
// OPTION: expected sums to be auto, apart, together or parallel, got sideways

// s[i, j] is summed along i (with 48 columns) and along j (with 16). One pass along i
// carries the larger sum; tiles of j add their parts of the other one to memory, and
// what follows from that one comes after.

#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, d) -> (i, d)>
// CHECK-LABEL: func @both
// CHECK: %[[R:.*]]:2 = attn.fold %{{.*}} streams(%arg0, %arg2 : {{.*}}) dims [0, 0] carries(%{{.*}} : tensor<?x48xf32>) {
// CHECK:   attn.yield %{{.*}}, %{{.*}} : tensor<?x48xf32>, tensor<?x16xf32>
// CHECK: } maps [0]{{.*}} -> tensor<?x48xf32>, tensor<?x16xf32>
// CHECK: %[[HALF:.*]] = linalg.generic {{.*}} ins(%[[R]]#1
// CHECK: return %[[R]]#0, %[[HALF]]
// TILES-LABEL: func @both
// TILES: %[[ZERO:.*]] = linalg.fill {{.*}} -> tensor<?x16xf32>
// TILES: scf.forall (%{{.*}}) in (%{{.*}}) shared_outs(%{{.*}} = %{{.*}}, %[[OUT:.*]] = %[[ZERO]])
// TILES: scf.for %[[I:.*]] = %c0 to %{{.*}} step %c32 iter_args(%{{.*}} = %{{.*}}, %[[T:.*]] = %{{.*}}) -> (vector<64x48xf32>, tensor<?x16xf32>)
// TILES: %[[P:.*]] = vector.contract {{.*}} into vector<32x16xf32>
// TILES: attn.tile_add %[[P]] into %[[T]][%[[I]], %c0] : vector<32x16xf32>, tensor<?x16xf32> -> tensor<?x16xf32>
func.func @both(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %g: tensor<?x48xf32>) -> (tensor<?x48xf32>, tensor<?x16xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %I = tensor.dim %q, %c0 : tensor<?x16xf32>
  %J = tensor.dim %k, %c0 : tensor<?x16xf32>
  %es = tensor.empty(%I, %J) : tensor<?x?xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<?x16xf32>, tensor<?x16xf32>) outs(%fs : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %m = arith.mulf %a, %b : f32
    %t = arith.addf %c, %m : f32
    linalg.yield %t : f32
  } -> tensor<?x?xf32>
  %er = tensor.empty(%I) : tensor<?x16xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<?x16xf32>) -> tensor<?x16xf32>
  %rows = linalg.generic {indexing_maps = [#s, #k, #q], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%s, %k : tensor<?x?xf32>, tensor<?x16xf32>) outs(%fr : tensor<?x16xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %m = arith.mulf %a, %b : f32
    %t = arith.addf %c, %m : f32
    linalg.yield %t : f32
  } -> tensor<?x16xf32>
  %ec = tensor.empty(%J) : tensor<?x48xf32>
  %fc = linalg.fill ins(%zero : f32) outs(%ec : tensor<?x48xf32>) -> tensor<?x48xf32>
  %columns = linalg.generic {indexing_maps = [#s, #q, #k], iterator_types = ["reduction", "parallel", "parallel"]}
      ins(%s, %g : tensor<?x?xf32>, tensor<?x48xf32>) outs(%fc : tensor<?x48xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %m = arith.mulf %a, %b : f32
    %t = arith.addf %c, %m : f32
    linalg.yield %t : f32
  } -> tensor<?x48xf32>
  %scaled = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%rows : tensor<?x16xf32>) outs(%er : tensor<?x16xf32>) {
  ^bb0(%a: f32, %c: f32):
    %m = arith.mulf %a, %half : f32
    linalg.yield %m : f32
  } -> tensor<?x16xf32>
  return %columns, %scaled : tensor<?x48xf32>, tensor<?x16xf32>
}
