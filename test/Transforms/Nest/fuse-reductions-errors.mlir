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

// A sum that uses the maximum itself cannot be rescaled by a factor.
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

// -----

#p3 = affine_map<(h, i, j) -> (h, i, j)>
#r3 = affine_map<(h, i, j) -> (h, i)>
#q4 = affine_map<(h, i, g, j) -> (h, i, g, j)>
// What lies between two statements has to be statements: a reshape cannot be moved into one pass.
func.func @reshaped(%q: tensor<2x8x4xf32>, %k: tensor<2x4x16xf32>) -> tensor<2x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<2x8x16xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(h, i, j, d) -> (h, i, d)>, affine_map<(h, i, j, d) -> (h, d, j)>, affine_map<(h, i, j, d) -> (h, i, j)>],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
    ins(%q, %k : tensor<2x8x4xf32>, tensor<2x4x16xf32>) outs(%z : tensor<2x8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %m = arith.mulf %a, %b : f32
    %y = arith.addf %c, %m : f32
    linalg.yield %y : f32
  } -> tensor<2x8x16xf32>
  %er = tensor.empty() : tensor<2x8xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%er : tensor<2x8xf32>) -> tensor<2x8xf32>
  %m = linalg.generic {indexing_maps = [#p3, #r3], iterator_types = ["parallel", "parallel", "reduction"]} ins(%s : tensor<2x8x16xf32>) outs(%m0 : tensor<2x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %y = arith.maximumf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<2x8xf32>
  // expected-note @below {{the form is broken here}}
  %flat = tensor.collapse_shape %m [[0, 1]] : tensor<2x8xf32> into tensor<16xf32>
  %back = tensor.expand_shape %flat [[0, 1]] output_shape [8, 2] : tensor<16xf32> into tensor<8x2xf32>
  // expected-remark @below {{not fused into one pass: it depends on another statement through 'tensor.collapse_shape', which is no statement}}
  %d = linalg.generic {indexing_maps = [#p3, affine_map<(h, i, j) -> (i, h)>, #p3], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%s, %back : tensor<2x8x16xf32>, tensor<8x2xf32>) outs(%e : tensor<2x8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %_: f32):
    %t = arith.subf %a, %b : f32
    %y = math.exp %t : f32
    linalg.yield %y : f32
  } -> tensor<2x8x16xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%er : tensor<2x8xf32>) -> tensor<2x8xf32>
  %l = linalg.generic {indexing_maps = [#p3, #r3], iterator_types = ["parallel", "parallel", "reduction"]} ins(%d : tensor<2x8x16xf32>) outs(%l0 : tensor<2x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %y = arith.addf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<2x8xf32>
  return %l : tensor<2x8xf32>
}
