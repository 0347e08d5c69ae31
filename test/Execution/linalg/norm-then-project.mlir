// RUN: %python %S/check.py --attn-run %attn_bin/attn-run %s --work %t
// Two stacked reductions that are not attention: n[i] = sum_j x[i,j]^2, then
// y[i,e] = sum_j x[i,j] / sqrt(n[i]) w[j,e]. The terms of the second are
// homogeneous in n.

#row = affine_map<(i, j) -> (i)>
#all = affine_map<(i, j) -> (i, j)>

func.func @norm_then_project(%x: tensor<?x?xf32>, %w: tensor<?x24xf32>) -> tensor<?x24xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %rows = tensor.dim %x, %c0 : tensor<?x?xf32>
  %e1 = tensor.empty(%rows) : tensor<?xf32>
  %n0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
  %n = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<?x?xf32>) outs(%n0 : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %q = arith.mulf %a, %a : f32
    %s = arith.addf %b, %q : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %e2 = tensor.empty(%rows) : tensor<?x24xf32>
  %y0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?x24xf32>) -> tensor<?x24xf32>
  %y = linalg.generic {
    indexing_maps = [affine_map<(i, j, e) -> (i, j)>, affine_map<(i, j, e) -> (i)>,
                     affine_map<(i, j, e) -> (j, e)>, affine_map<(i, j, e) -> (i, e)>],
    iterator_types = ["parallel", "reduction", "parallel"]}
    ins(%x, %n, %w : tensor<?x?xf32>, tensor<?xf32>, tensor<?x24xf32>) outs(%y0 : tensor<?x24xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %acc: f32):
    %r = math.sqrt %b : f32
    %d = arith.divf %a, %r : f32
    %u = arith.mulf %d, %c : f32
    %s = arith.addf %acc, %u : f32
    linalg.yield %s : f32
  } -> tensor<?x24xf32>
  return %y : tensor<?x24xf32>
}
