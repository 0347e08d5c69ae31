// RUN: attn-opt %s --attn-plan-nest=order=m_outer --attn-tile-nest --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,ROWS
// RUN: attn-opt %s --attn-plan-nest=order=n_outer --attn-tile-nest --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,STREAM
// RUN: attn-opt %s --attn-plan-nest="order=split_kv parts=3" --attn-tile-nest --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,SPLIT

#ij = affine_map<(b, i, j) -> (b, i, j)>
#i = affine_map<(b, i, j) -> (b, i)>
#x = affine_map<(b, i, j) -> (b, j)>

// A running maximum of rows against a streamed vector, in three loop orders.
// Workers are batches, rows are tiled, the tail gets -inf before the maximum.
// CHECK-LABEL: func @row_max
// CHECK-SAME: (%[[A:.*]]: tensor<?x?xf32>, %[[X:.*]]: tensor<?x?xf32>
func.func @row_max(%a: tensor<?x?xf32>, %x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %ninf = arith.constant 0xFF800000 : f32
  %batch = tensor.dim %a, %c0 : tensor<?x?xf32>
  %rows = tensor.dim %a, %c1 : tensor<?x?xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%batch, %rows) : tensor<?x?xf32>
  %m0 = linalg.fill ins(%ninf : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  // ROWS: %[[R:.*]] = scf.forall (%[[B:.*]], %[[T:.*]]) in (%{{.*}}, %{{.*}}) shared_outs
  // ROWS: %[[I0:.*]] = affine.apply
  // ROWS: vector.transfer_read %[[A]][%[[B]], %[[I0]]], %{{.*}} : tensor<?x?xf32>, vector<64xf32>
  // ROWS: %[[M:.*]] = scf.for %[[J0:.*]] = %{{.*}} to %{{.*}} step %c128 iter_args(%[[OLD:.*]] = %{{.*}}) -> (vector<64xf32>)
  // ROWS: vector.transfer_read %[[X]][%[[B]], %[[J0]]], %{{.*}} : tensor<?x?xf32>, vector<128xf32>
  // ROWS: arith.addf %{{.*}}, %{{.*}} : vector<64x128xf32>
  // ROWS: arith.cmpi slt, %{{.*}}, %{{.*}} : vector<128xindex>
  // ROWS: %[[S:.*]] = arith.select
  // ROWS: vector.multi_reduction <maxnumf>, %[[S]], %[[OLD]] [1] : vector<64x128xf32> to vector<64xf32>
  // ROWS: } {attn.fold_loop}
  // ROWS: vector.transfer_write %[[M]]
  // ROWS: tensor.parallel_insert_slice

  // One state per row in memory; the streamed block is read once per tile.
  // STREAM: scf.forall (%[[B:.*]]) in (%{{.*}}) shared_outs
  // STREAM: tensor.empty(%{{.*}}) : tensor<?xf32>
  // STREAM: scf.for
  // STREAM: vector.transfer_write
  // STREAM: scf.for %[[J0:.*]] = %{{.*}} to %{{.*}} step %c128 iter_args
  // STREAM: vector.transfer_read %[[X]][%[[B]], %[[J0]]]
  // STREAM: scf.for %[[I0:.*]] = %{{.*}} to %{{.*}} step %c64 iter_args(%[[STATE:.*]] =
  // STREAM: vector.transfer_read %[[STATE]][%[[I0]]]
  // STREAM: vector.multi_reduction <maxnumf>
  // STREAM: tensor.insert_slice
  // STREAM: } {attn.fold_loop}
  // STREAM: scf.for
  // STREAM: scf.forall.in_parallel

  // Three parts at once, each with its state; then they are merged.
  // SPLIT: tensor.empty(%{{.*}}, %{{.*}}) : tensor<3x?x?xf32>
  // SPLIT: scf.forall (%{{.*}}, %{{.*}}, %[[P:.*]]) in (%{{.*}}, %{{.*}}, 3)
  // SPLIT: %[[BEGIN:.*]], %[[END:.*]] = attn.part %[[P]] of %c3 from %c0 to %{{.*}} step
  // SPLIT: scf.for %{{.*}} = %[[BEGIN]] to %[[END]]
  // SPLIT: } {attn.fold_loop}
  // SPLIT: scf.forall
  // SPLIT: scf.for %{{.*}} = %c1 to %c3 step %c1
  // SPLIT: arith.maxnumf
  %r = attn.fold %n streams(%x : tensor<?x?xf32>) dims [1] carries(%m0 : tensor<?x?xf32>) {
  ^bb0(%j0: index, %xb: tensor<?x?xf32>, %m: tensor<?x?xf32>):
    %size = tensor.dim %xb, %c1 : tensor<?x?xf32>
    %se = tensor.empty(%batch, %rows, %size) : tensor<?x?x?xf32>
    %s = linalg.generic {indexing_maps = [#i, #x, #ij], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%a, %xb : tensor<?x?xf32>, tensor<?x?xf32>) outs(%se : tensor<?x?x?xf32>) {
    ^bb0(%u: f32, %v: f32, %w: f32):
      %t = arith.addf %u, %v : f32
      linalg.yield %t : f32
    } -> tensor<?x?x?xf32>
    %next = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%s : tensor<?x?x?xf32>) outs(%m : tensor<?x?xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = arith.maxnumf %w, %u : f32
      linalg.yield %t : f32
    } -> tensor<?x?xf32>
    attn.yield %next : tensor<?x?xf32>
  } merge {
  ^bb0(%p: tensor<?x?xf32>, %q: tensor<?x?xf32>):
    %both = linalg.generic {indexing_maps = [affine_map<(b, i) -> (b, i)>, affine_map<(b, i) -> (b, i)>], iterator_types = ["parallel", "parallel"]}
        ins(%q : tensor<?x?xf32>) outs(%p : tensor<?x?xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = arith.maxnumf %w, %u : f32
      linalg.yield %t : f32
    } -> tensor<?x?xf32>
    attn.yield %both : tensor<?x?xf32>
  } -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}
