// Functions that only reduce rows: see row_programs.py.
func.func @f32(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %y = attn.softmax %x : tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}
func.func @bf16(%x: tensor<?x?xbf16>) -> tensor<?x?xbf16> {
  %y = attn.softmax %x : tensor<?x?xbf16>
  return %y : tensor<?x?xbf16>
}
func.func @f16(%x: tensor<?x?xf16>) -> tensor<?x?xf16> {
  %y = attn.softmax %x : tensor<?x?xf16>
  return %y : tensor<?x?xf16>
}
// Long statements, whose results are held.
func.func @scored(%x: tensor<?x?x?xf32>, %t: tensor<?xf32>) -> tensor<?x?x?xf32> {
  %y = attn.softmax %x captures(%t : tensor<?xf32>) score {
  ^bb0(%s: f32, %b: index, %i: index, %j: index, %table: tensor<?xf32>):
    %a = tensor.extract %table[%j] : tensor<?xf32>
    %r = math.tanh %s : f32
    %u = arith.addf %a, %r : f32
    attn.yield %u : f32
  } mask {
  ^bb0(%b: index, %i: index, %j: index, %table: tensor<?xf32>):
    %k = arith.cmpi sgt, %i, %j : index
    attn.yield %k : i1
  } : tensor<?x?x?xf32>
  return %y : tensor<?x?x?xf32>
}
// The square root of each row's sum of squares, and the row divided by it.
func.func @norm(%x: tensor<?x?xbf16>) -> (tensor<?xf32>, tensor<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x?xbf16>
  %m = tensor.dim %x, %c1 : tensor<?x?xbf16>
  %e = tensor.empty(%n) : tensor<?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xbf16>) outs(%z : tensor<?xf32>) {
  ^bb0(%a: bf16, %b: f32):
    %w = arith.extf %a : bf16 to f32
    %c = arith.mulf %w, %w : f32
    %d = arith.addf %b, %c : f32
    linalg.yield %d : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%s : tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = math.sqrt %a : f32
    linalg.yield %c : f32
  } -> tensor<?xf32>
  %o = tensor.empty(%n, %m) : tensor<?x?xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %r : tensor<?x?xbf16>, tensor<?xf32>) outs(%o : tensor<?x?xf32>) {
  ^bb0(%a: bf16, %b: f32, %c: f32):
    %w = arith.extf %a : bf16 to f32
    %d = arith.divf %w, %b : f32
    linalg.yield %d : f32
  } -> tensor<?x?xf32>
  return %r, %y : tensor<?xf32>, tensor<?x?xf32>
}
