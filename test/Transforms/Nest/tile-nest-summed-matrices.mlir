// RUN: attn-opt %s --attn-fuse-reductions --attn-plan-nest --attn-tile-nest --canonicalize --cse | FileCheck %s
// RUN: attn-opt %s --attn-fuse-reductions --attn-plan-nest=order=split_kv --attn-tile-nest --canonicalize --cse | FileCheck %s

// A sum over a group of heads, and what scales it, have tiles of their own: rows
// of a head's size in vectors, the group one by one. Whatever order is asked for.

#in = affine_map<(h, g, j, d) -> (h, g, j, d)>
#out = affine_map<(h, g, j, d) -> (h, j, d)>
#id = affine_map<(h, j, d) -> (h, j, d)>

// CHECK-LABEL: func @group
// CHECK:         %[[GROUP:.*]] = tensor.dim %{{.*}}, %c1
// CHECK:         scf.forall (%[[H:.*]], %{{.*}}) in
// CHECK:           %[[SUM:.*]] = scf.for %[[G:.*]] = %c0 to %{{.*}} step %c1 iter_args(%[[A:.*]] = %{{.*}}) -> (vector<64x40xf32>)
// CHECK:             vector.transfer_read %{{.*}}[%[[H]], %[[G]], %{{.*}}, %c0], {{.*}} vector<1x64x40xf32>
// CHECK:             arith.addf %[[A]], %{{.*}} : vector<64x40xf32>
// CHECK:           arith.mulf %[[SUM]], %{{.*}} : vector<64x40xf32>
// CHECK:           vector.transfer_write
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @group(%x: tensor<?x?x?x40xf32>) -> tensor<?x?x40xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.125 : f32
  %heads = tensor.dim %x, %c0 : tensor<?x?x?x40xf32>
  %rows = tensor.dim %x, %c2 : tensor<?x?x?x40xf32>
  %e = tensor.empty(%heads, %rows) : tensor<?x?x40xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x40xf32>) -> tensor<?x?x40xf32>
  %s = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction", "parallel", "parallel"]}
      ins(%x : tensor<?x?x?x40xf32>) outs(%f : tensor<?x?x40xf32>) {
  ^bb0(%u: f32, %v: f32):
    %t = arith.addf %v, %u : f32
    linalg.yield %t : f32
  } -> tensor<?x?x40xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<?x?x40xf32>) outs(%e : tensor<?x?x40xf32>) {
  ^bb0(%u: f32, %v: f32):
    %t = arith.mulf %u, %scale : f32
    linalg.yield %t : f32
  } -> tensor<?x?x40xf32>
  return %r : tensor<?x?x40xf32>
}

// The sum of the matrices' rows is a plain loop as before: it has no rows left
// to make vectors of.
// CHECK-LABEL: func @rows
// CHECK-NOT:     scf.forall
// CHECK:         linalg.generic
func.func @rows(%x: tensor<?x?x40xf32>) -> tensor<?x40xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %heads = tensor.dim %x, %c0 : tensor<?x?x40xf32>
  %e = tensor.empty(%heads) : tensor<?x40xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x40xf32>) -> tensor<?x40xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(h, j, d) -> (h, j, d)>, affine_map<(h, j, d) -> (h, d)>], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<?x?x40xf32>) outs(%f : tensor<?x40xf32>) {
  ^bb0(%u: f32, %v: f32):
    %t = arith.addf %v, %u : f32
    linalg.yield %t : f32
  } -> tensor<?x40xf32>
  return %s : tensor<?x40xf32>
}
