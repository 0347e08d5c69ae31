// RUN: attn-run %s --entry=between --target=cpu --check
// RUN: attn-run %s --entry=middle --target=cpu --check --shape 0=3x50x20
// RUN: attn-run %s --entry=kept --target=cpu --check --shape 0=3x50x40
// RUN: attn-run %s --entry=half --target=interpreter --check
// Named ops: a softmax between two products, of a dimension in the middle; reductions that keep their
// dimension.
func.func @between(%q: tensor<3x50x24xf32>, %k: tensor<3x24x70xf32>, %v: tensor<3x70x40xf32>) -> tensor<3x50x40xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x50x70xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<3x50x70xf32>) -> tensor<3x50x70xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<3x50x24xf32>, tensor<3x24x70xf32>) outs(%z : tensor<3x50x70xf32>) -> tensor<3x50x70xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<3x50x70xf32>) outs(%e : tensor<3x50x70xf32>) -> tensor<3x50x70xf32>
  %eo = tensor.empty() : tensor<3x50x40xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<3x50x40xf32>) -> tensor<3x50x40xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<3x50x70xf32>, tensor<3x70x40xf32>) outs(%zo : tensor<3x50x40xf32>) -> tensor<3x50x40xf32>
  return %o : tensor<3x50x40xf32>
}
func.func @middle(%x: tensor<?x?x20xf32>) -> tensor<?x?x20xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %x, %c0 : tensor<?x?x20xf32>
  %m = tensor.dim %x, %c1 : tensor<?x?x20xf32>
  %e = tensor.empty(%n, %m) : tensor<?x?x20xf32>
  %y = linalg.softmax dimension(1) ins(%x : tensor<?x?x20xf32>) outs(%e : tensor<?x?x20xf32>) -> tensor<?x?x20xf32>
  return %y : tensor<?x?x20xf32>
}
#p = affine_map<(h, i, j) -> (h, i, j)>
#r = affine_map<(h, i, j) -> (h, i, 0)>
func.func @kept(%s: tensor<3x50x40xf32>) -> tensor<3x50x40xf32> {
  %zero = arith.constant 0.0 : f32
  %least = arith.constant -3.40282347E+38 : f32
  %e = tensor.empty() : tensor<3x50x40xf32>
  %e1 = tensor.empty() : tensor<3x50x1xf32>
  %m0 = linalg.fill ins(%least : f32) outs(%e1 : tensor<3x50x1xf32>) -> tensor<3x50x1xf32>
  %m = linalg.generic {indexing_maps = [#p, #r], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%s : tensor<3x50x40xf32>) outs(%m0 : tensor<3x50x1xf32>) {
  ^bb0(%x: f32, %a: f32):
    %y = arith.maximumf %x, %a : f32
    linalg.yield %y : f32
  } -> tensor<3x50x1xf32>
  %d = linalg.generic {indexing_maps = [#p, #r, #p], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%s, %m : tensor<3x50x40xf32>, tensor<3x50x1xf32>) outs(%e : tensor<3x50x40xf32>) {
  ^bb0(%x: f32, %a: f32, %_: f32):
    %t = arith.subf %x, %a : f32
    %y = math.exp %t : f32
    linalg.yield %y : f32
  } -> tensor<3x50x40xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<3x50x1xf32>) -> tensor<3x50x1xf32>
  %l = linalg.generic {indexing_maps = [#p, #r], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%d : tensor<3x50x40xf32>) outs(%l0 : tensor<3x50x1xf32>) {
  ^bb0(%x: f32, %a: f32):
    %y = arith.addf %x, %a : f32
    linalg.yield %y : f32
  } -> tensor<3x50x1xf32>
  %n = linalg.generic {indexing_maps = [#p, #r, #p], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%d, %l : tensor<3x50x40xf32>, tensor<3x50x1xf32>) outs(%e : tensor<3x50x40xf32>) {
  ^bb0(%x: f32, %a: f32, %_: f32):
    %y = arith.divf %x, %a : f32
    linalg.yield %y : f32
  } -> tensor<3x50x40xf32>
  return %n : tensor<3x50x40xf32>
}
// Scores in f32 of keys in 16 bits, on the program of a GPU.
func.func @half(%q: tensor<2x70x64xbf16>, %k: tensor<2x90x64xbf16>) -> tensor<2x70x90xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x70x90xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x70x90xf32>) -> tensor<2x70x90xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(h, i, j, d) -> (h, i, d)>, affine_map<(h, i, j, d) -> (h, j, d)>,
                                        affine_map<(h, i, j, d) -> (h, i, j)>],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
    ins(%q, %k : tensor<2x70x64xbf16>, tensor<2x90x64xbf16>) outs(%z : tensor<2x70x90xf32>) {
  ^bb0(%a: bf16, %b: bf16, %c: f32):
    %x = arith.extf %a : bf16 to f32
    %y = arith.extf %b : bf16 to f32
    %m = arith.mulf %x, %y : f32
    %t = arith.addf %c, %m : f32
    linalg.yield %t : f32
  } -> tensor<2x70x90xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<2x70x90xf32>) outs(%e : tensor<2x70x90xf32>) -> tensor<2x70x90xf32>
  return %p : tensor<2x70x90xf32>
}
