// RUN: %python %S/check.py --attn-run %attn_bin/attn-run %s --work %t
// Naive attention of one head, from named linalg ops and generics; nothing says
// that it is attention.

#row = affine_map<(i, j) -> (i)>
#all = affine_map<(i, j) -> (i, j)>

func.func @attention(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x48xf32>) -> tensor<?x48xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %sq = tensor.dim %q, %c0 : tensor<?x64xf32>
  %sk = tensor.dim %k, %c0 : tensor<?x64xf32>
  %e0 = tensor.empty(%sq, %sk) : tensor<?x?xf32>
  %z0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<?x?xf32>) -> tensor<?x?xf32>
  %qk = linalg.matmul
    indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
    ins(%q, %k : tensor<?x64xf32>, tensor<?x64xf32>) outs(%z0 : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
    ins(%qk : tensor<?x?xf32>) outs(%e0 : tensor<?x?xf32>) {
  ^bb0(%x: f32, %_: f32):
    %y = arith.mulf %x, %scale : f32
    linalg.yield %y : f32
  } -> tensor<?x?xf32>
  %e1 = tensor.empty(%sq) : tensor<?xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%s : tensor<?x?xf32>) outs(%m0 : tensor<?xf32>) {
  ^bb0(%x: f32, %a: f32):
    %y = arith.maximumf %a, %x : f32
    linalg.yield %y : f32
  } -> tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
    ins(%s, %m : tensor<?x?xf32>, tensor<?xf32>) outs(%e0 : tensor<?x?xf32>) {
  ^bb0(%x: f32, %a: f32, %_: f32):
    %d = arith.subf %x, %a : f32
    %y = math.exp %d : f32
    linalg.yield %y : f32
  } -> tensor<?x?xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
  %l = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%p : tensor<?x?xf32>) outs(%l0 : tensor<?xf32>) {
  ^bb0(%x: f32, %a: f32):
    %y = arith.addf %a, %x : f32
    linalg.yield %y : f32
  } -> tensor<?xf32>
  %e2 = tensor.empty(%sq) : tensor<?x48xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?x48xf32>) -> tensor<?x48xf32>
  %pv = linalg.matmul ins(%p, %v : tensor<?x?xf32>, tensor<?x48xf32>) outs(%o0 : tensor<?x48xf32>) -> tensor<?x48xf32>
  %o = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
    ins(%pv, %l : tensor<?x48xf32>, tensor<?xf32>) outs(%e2 : tensor<?x48xf32>) {
  ^bb0(%x: f32, %a: f32, %_: f32):
    %y = arith.divf %x, %a : f32
    linalg.yield %y : f32
  } -> tensor<?x48xf32>
  return %o : tensor<?x48xf32>
}
