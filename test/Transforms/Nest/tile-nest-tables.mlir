// RUN: attn-opt %s --attn-plan-nest=order=m_outer --attn-tile-nest --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,ROWS
// RUN: attn-opt %s --attn-plan-nest=order=n_outer --attn-tile-nest --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,STREAM
// RUN: attn-opt %s --attn-plan-nest="order=m_outer parallel-sums" --attn-tile-nest="parallel-sums" --canonicalize --cse | FileCheck %s --check-prefix=SHARED
// RUN: not attn-opt %s --attn-plan-nest=order=split_kv --attn-tile-nest -o /dev/null 2>&1 | FileCheck %s --check-prefix=SPLIT

#p = affine_map<(b, i, j, n) -> (b, i, j)>
#ij = affine_map<(b, i, j) -> (b, i, j)>
#t = affine_map<(b, i, j, n) -> (b, n)>
#ai = affine_map<(b, i, j) -> (b, i)>
#xj = affine_map<(b, i, j) -> (b, j)>

// Row sums, and a table of n sums by distance: a worker is a batch; it owns the
// table and does its row tiles in order. What is beyond an end counts as 0.
// With parallel-sums tiles of rows are workers, too, and add to one table, which is zero at
// first.
// SHARED-LABEL: func @distances
// SHARED: %[[ZEROS:.*]] = linalg.fill {{.*}} -> tensor<?x?xf32>
// SHARED: scf.forall (%[[B:.*]], %{{.*}}) in (%{{.*}}, %{{.*}}) shared_outs(%{{.*}} = %{{.*}}, %[[T:.*]] = %[[ZEROS]])
// SHARED: %[[OWN:.*]] = tensor.extract_slice %[[T]][%[[B]], 0]
// SHARED: %[[TABLE:.*]] = tensor.extract_slice %[[OWN]]{{.*}} to tensor<?xf32>
// SHARED: scf.for %{{.*}} step %c128 iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %[[TABLE]])
// SHARED: attn.scatter_add
// SPLIT: error: cannot take loop order split_kv: the fold sums at computed indices into a table that one worker owns
// CHECK-LABEL: func @distances
// CHECK: scf.forall (%{{.*}}) in (%{{.*}}) shared_outs
// ROWS: linalg.fill
// ROWS: scf.for %{{.*}} step %c64 iter_args
// ROWS: scf.for %{{.*}} step %c128 iter_args
// STREAM: linalg.fill
// STREAM: scf.for %{{.*}} step %c128 iter_args
// STREAM: scf.for %{{.*}} step %c64 iter_args
// CHECK: %[[KEPT:.*]] = arith.select %{{.*}} : vector<64x128xi1>, vector<64x128xf32>
// CHECK: %[[TERM:.*]] = arith.select %{{.*}}, %[[KEPT]], %{{.*}} : vector<64x128xi1>, vector<64x128xf32>
// CHECK: attn.scatter_add %[[TERM]] at(%{{.*}}) into %{{.*}} : vector<64x128xf32>, tensor<?xf32> -> tensor<?xf32>
// CHECK: tensor.insert_slice %{{.*}} : tensor<?xf32> into tensor<1x?xf32>
// CHECK: tensor.parallel_insert_slice
func.func @distances(%a: tensor<?x?xf32>, %x: tensor<?x?xf32>, %n: index) -> (tensor<?x?xf32>, tensor<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %batch = tensor.dim %a, %c0 : tensor<?x?xf32>
  %rows = tensor.dim %a, %c1 : tensor<?x?xf32>
  %size = tensor.dim %x, %c1 : tensor<?x?xf32>
  %te = tensor.empty(%batch, %n) : tensor<?x?xf32>
  %t0 = linalg.fill ins(%zero : f32) outs(%te : tensor<?x?xf32>) -> tensor<?x?xf32>
  %se = tensor.empty(%batch, %rows) : tensor<?x?xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%se : tensor<?x?xf32>) -> tensor<?x?xf32>
  %r:2 = attn.fold %size streams(%x : tensor<?x?xf32>) dims [1] carries(%s0, %t0 : tensor<?x?xf32>, tensor<?x?xf32>) {
  ^bb0(%j0: index, %xb: tensor<?x?xf32>, %s: tensor<?x?xf32>, %t: tensor<?x?xf32>):
    %block = tensor.dim %xb, %c1 : tensor<?x?xf32>
    %pe = tensor.empty(%batch, %rows, %block) : tensor<?x?x?xf32>
    %pairs = linalg.generic {indexing_maps = [#ai, #xj, #ij], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%a, %xb : tensor<?x?xf32>, tensor<?x?xf32>) outs(%pe : tensor<?x?x?xf32>) {
    ^bb0(%u: f32, %v: f32, %w: f32):
      %q = arith.maxnumf %u, %v : f32
      linalg.yield %q : f32
    } -> tensor<?x?x?xf32>
    %sums = linalg.generic {indexing_maps = [#ij, #ai], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%pairs : tensor<?x?x?xf32>) outs(%s : tensor<?x?xf32>) {
    ^bb0(%p: f32, %w: f32):
      %q = arith.addf %w, %p : f32
      linalg.yield %q : f32
    } -> tensor<?x?xf32>
    %table = linalg.generic {indexing_maps = [#p, #t], iterator_types = ["parallel", "reduction", "reduction", "parallel"]}
        ins(%pairs : tensor<?x?x?xf32>) outs(%t : tensor<?x?xf32>) {
    ^bb0(%p: f32, %w: f32):
      %i = linalg.index 1 : index
      %jb = linalg.index 2 : index
      %j = arith.addi %jb, %j0 : index
      %here = linalg.index 3 : index
      %d = arith.subi %j, %i : index
      %same = arith.cmpi eq, %d, %here : index
      %term = arith.select %same, %p, %zero : f32
      %q = arith.addf %w, %term : f32
      linalg.yield %q : f32
    } -> tensor<?x?xf32>
    attn.yield %sums, %table : tensor<?x?xf32>, tensor<?x?xf32>
  } -> tensor<?x?xf32>, tensor<?x?xf32>
  return %r#0, %r#1 : tensor<?x?xf32>, tensor<?x?xf32>
}
