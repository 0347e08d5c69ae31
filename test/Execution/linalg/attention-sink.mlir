// RUN: %python %S/check.py --attn-run %attn_bin/attn-run %s --work %t
// Attention with a learned sink: one more logit in the maximum and in the sum,
// which selects no value. It joins after the reductions over the keys.

#s = affine_map<(h, i, j) -> (h, i, j)>
#r = affine_map<(h, i, j) -> (h, i)>
#hi = affine_map<(h, i) -> (h, i)>
#h = affine_map<(h, i) -> (h)>

func.func @attention_sink(%q: tensor<?x?x32xf32>, %k: tensor<?x?x32xf32>, %v: tensor<?x?x32xf32>,
    %sink: tensor<?xf32>) -> tensor<?x?x32xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.17677669 : f32
  %n = tensor.dim %q, %c0 : tensor<?x?x32xf32>
  %sq = tensor.dim %q, %c1 : tensor<?x?x32xf32>
  %sk = tensor.dim %k, %c1 : tensor<?x?x32xf32>
  %e0 = tensor.empty(%n, %sq, %sk) : tensor<?x?x?xf32>
  %e1 = tensor.empty(%n, %sq) : tensor<?x?xf32>
  %e2 = tensor.empty(%n, %sq) : tensor<?x?x32xf32>
  %z0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %z2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
  %qk = linalg.generic {
    indexing_maps = [affine_map<(h, i, j, d) -> (h, i, d)>, affine_map<(h, i, j, d) -> (h, j, d)>,
                     affine_map<(h, i, j, d) -> (h, i, j)>],
    iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
    ins(%q, %k : tensor<?x?x32xf32>, tensor<?x?x32xf32>) outs(%z0 : tensor<?x?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %x = arith.mulf %a, %b : f32
    %y = arith.addf %c, %x : f32
    linalg.yield %y : f32
  } -> tensor<?x?x?xf32>
  %s = linalg.generic {indexing_maps = [#s, #s], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%qk : tensor<?x?x?xf32>) outs(%e0 : tensor<?x?x?xf32>) {
  ^bb0(%x: f32, %_: f32):
    %y = arith.mulf %x, %scale : f32
    linalg.yield %y : f32
  } -> tensor<?x?x?xf32>
  %low = arith.constant 0xFF800000 : f32
  %mk0 = linalg.fill ins(%low : f32) outs(%e1 : tensor<?x?xf32>) -> tensor<?x?xf32>
  %mk = linalg.generic {indexing_maps = [#s, #r], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%s : tensor<?x?x?xf32>) outs(%mk0 : tensor<?x?xf32>) {
  ^bb0(%x: f32, %a: f32):
    %y = arith.maximumf %a, %x : f32
    linalg.yield %y : f32
  } -> tensor<?x?xf32>
  %m = linalg.generic {indexing_maps = [#hi, #h, #hi], iterator_types = ["parallel", "parallel"]}
    ins(%mk, %sink : tensor<?x?xf32>, tensor<?xf32>) outs(%e1 : tensor<?x?xf32>) {
  ^bb0(%x: f32, %a: f32, %_: f32):
    %y = arith.maximumf %x, %a : f32
    linalg.yield %y : f32
  } -> tensor<?x?xf32>
  %p = linalg.generic {indexing_maps = [#s, #r, #s], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%s, %m : tensor<?x?x?xf32>, tensor<?x?xf32>) outs(%e0 : tensor<?x?x?xf32>) {
  ^bb0(%x: f32, %a: f32, %_: f32):
    %d = arith.subf %x, %a : f32
    %y = math.exp %d : f32
    linalg.yield %y : f32
  } -> tensor<?x?x?xf32>
  %lk0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?x?xf32>) -> tensor<?x?xf32>
  %lk = linalg.generic {indexing_maps = [#s, #r], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%p : tensor<?x?x?xf32>) outs(%lk0 : tensor<?x?xf32>) {
  ^bb0(%x: f32, %a: f32):
    %y = arith.addf %a, %x : f32
    linalg.yield %y : f32
  } -> tensor<?x?xf32>
  %l = linalg.generic {indexing_maps = [#hi, #hi, #h, #hi], iterator_types = ["parallel", "parallel"]}
    ins(%lk, %m, %sink : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?xf32>) outs(%e1 : tensor<?x?xf32>) {
  ^bb0(%x: f32, %a: f32, %t: f32, %_: f32):
    %d = arith.subf %t, %a : f32
    %g = math.exp %d : f32
    %y = arith.addf %x, %g : f32
    linalg.yield %y : f32
  } -> tensor<?x?xf32>
  %pv = linalg.generic {
    indexing_maps = [affine_map<(h, i, j, e) -> (h, i, j)>, affine_map<(h, i, j, e) -> (h, j, e)>,
                     affine_map<(h, i, j, e) -> (h, i, e)>],
    iterator_types = ["parallel", "parallel", "reduction", "parallel"]}
    ins(%p, %v : tensor<?x?x?xf32>, tensor<?x?x32xf32>) outs(%z2 : tensor<?x?x32xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %x = arith.mulf %a, %b : f32
    %y = arith.addf %c, %x : f32
    linalg.yield %y : f32
  } -> tensor<?x?x32xf32>
  %o = linalg.generic {indexing_maps = [#s, #r, #s], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%pv, %l : tensor<?x?x32xf32>, tensor<?x?xf32>) outs(%e2 : tensor<?x?x32xf32>) {
  ^bb0(%x: f32, %a: f32, %_: f32):
    %y = arith.divf %x, %a : f32
    linalg.yield %y : f32
  } -> tensor<?x?x32xf32>
  return %o : tensor<?x?x32xf32>
}
