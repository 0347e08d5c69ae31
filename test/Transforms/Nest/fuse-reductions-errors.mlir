// RUN: attn-opt %s --attn-fuse-reductions -split-input-file -verify-diagnostics -o /dev/null
// What is refused, and why. The cascade stays as it was.

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// A sum of squares of p changes by the factor's square.
func.func @squared(%x: tensor<8x?xf32>, %e2: tensor<8x?xf32>, %e: tensor<8xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  %ninf = arith.constant 0xFF800000 : f32
  %m0 = linalg.fill ins(%ninf : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  // expected-note@below {{the reduction at the source of the dependence (RAW, carried by the fused dimension)}}
  %m = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x?xf32>) outs(%m0 : tensor<8xf32>) {
  ^bb0(%a: f32, %c: f32):
    %r = arith.maxnumf %a, %c : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]} ins(%x, %m : tensor<8x?xf32>, tensor<8xf32>) outs(%e2 : tensor<8x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %d = arith.subf %a, %b : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<8x?xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  // expected-remark@below {{not fused into one pass: its terms change with degree -2 in exp(running maximum), expected a sum of degree -1}}
  %l = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<8x?xf32>) outs(%l0 : tensor<8xf32>) {
  ^bb0(%a: f32, %c: f32):
    %s = arith.mulf %a, %a : f32
    %r = arith.addf %c, %s : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  return %l : tensor<8xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// A sum that uses the maximum itself cannot be corrected by a factor.
func.func @distances(%x: tensor<8x?xf32>, %e: tensor<8xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  %ninf = arith.constant 0xFF800000 : f32
  %m0 = linalg.fill ins(%ninf : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  // expected-note@below {{the reduction at the source of the dependence}}
  %m = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x?xf32>) outs(%m0 : tensor<8xf32>) {
  ^bb0(%a: f32, %c: f32):
    %r = arith.maxnumf %a, %c : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  // expected-remark@below {{not fused into one pass: its terms are not homogeneous in the running maximum that they depend on}}
  %l = linalg.generic {indexing_maps = [#ij, #i, #i], iterator_types = ["parallel", "reduction"]} ins(%x, %m : tensor<8x?xf32>, tensor<8xf32>) outs(%l0 : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %d = arith.subf %b, %a : f32
    // expected-note@below {{the form is broken here}}
    %r = arith.addf %c, %d : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  return %l : tensor<8xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// An intermediate is reduced by something that is no reduction we know.
func.func @last(%x: tensor<8x?xf32>, %e2: tensor<8x?xf32>, %e: tensor<8xf32>) -> tensor<8xf32> {
  %p = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x?xf32>) outs(%e2 : tensor<8x?xf32>) {
  ^bb0(%a: f32, %c: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  } -> tensor<8x?xf32>
  // expected-remark@below {{not fused into one pass: its reduction is not a sum, product, maximum or minimum}}
  %l = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<8x?xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %c: f32):
    linalg.yield %a : f32
  } -> tensor<8xf32>
  return %l : tensor<8xf32>
}
