// RUN: attn-opt %s --attn-plan-nest --attn-tile-nest --canonicalize --cse | FileCheck %s

// The terms of a sum over the rows of a tile are a scalar from outside of the fold.
// CHECK-LABEL: func.func @counts
// CHECK-SAME: %{{.*}}: tensor<?x?xf32>, %[[C:.*]]: f32)
// CHECK: vector.broadcast %[[C]] : f32
// CHECK: vector.multi_reduction <add>
func.func @counts(%x: tensor<?x?xf32>, %c: f32) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %rows = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%rows) : tensor<?xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %r = attn.fold %n streams(%x : tensor<?x?xf32>) dims [1] carries(%s0 : tensor<?xf32>) {
  ^bb0(%j0: index, %xb: tensor<?x?xf32>, %s: tensor<?xf32>):
    %next = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
        ins(%xb : tensor<?x?xf32>) outs(%s : tensor<?xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = arith.addf %w, %c : f32
      linalg.yield %t : f32
    } -> tensor<?xf32>
    attn.yield %next : tensor<?xf32>
  } merge {
  ^bb0(%p: tensor<?xf32>, %q: tensor<?xf32>):
    %both = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
        ins(%q : tensor<?xf32>) outs(%p : tensor<?xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = arith.addf %w, %u : f32
      linalg.yield %t : f32
    } -> tensor<?xf32>
    attn.yield %both : tensor<?xf32>
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}
