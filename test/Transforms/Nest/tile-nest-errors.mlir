// RUN: attn-opt %s --attn-plan-nest=order=split_kv --attn-tile-nest -split-input-file -verify-diagnostics -o /dev/null
// RUN: not attn-opt %s --attn-plan-nest=order=sideways --attn-tile-nest -split-input-file -o /dev/null 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: not attn-opt %s --attn-plan-nest="block-m=0" --attn-tile-nest="block-m=0" -split-input-file -o /dev/null 2>&1 | FileCheck %s --check-prefix=TILE
// RUN: not attn-opt %s --attn-tile-nest -split-input-file -o /dev/null 2>&1 | FileCheck %s --check-prefix=UNPLANNED
// RUN: not attn-opt %s --attn-tile-nest=block-m=0 -split-input-file -o /dev/null 2>&1 | FileCheck %s --check-prefix=TILED
// TILED: error: expected tiles to be at least 1
// ORDER: error: expected order to be auto, m_outer, n_outer or split_kv, got sideways
// TILE: error: expected tiles, threads and the assumed size to be at least 1
// UNPLANNED: error: expected a plan; attn-plan-nest makes one

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// Without a merge region there is nothing to do with two partial states.
func.func @no_merge(%x: tensor<8x?xf32>, %m0: tensor<8xf32>, %n: index) -> tensor<8xf32> {
  // expected-error@below {{cannot take loop order split_kv: the fold has no merge region}}
  %r = attn.fold %n streams(%x : tensor<8x?xf32>) dims [1] carries(%m0 : tensor<8xf32>) {
  ^bb0(%j0: index, %xb: tensor<8x?xf32>, %m: tensor<8xf32>):
    %next = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%xb : tensor<8x?xf32>) outs(%m : tensor<8xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = arith.addf %w, %u : f32
      linalg.yield %t : f32
    } -> tensor<8xf32>
    attn.yield %next : tensor<8xf32>
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// -----

#x = affine_map<(i, j, e) -> (i, j)>
#v = affine_map<(i, j, e) -> (j, e)>
#o = affine_map<(i, j, e) -> (i, e)>

// A head size must be known: it is whole in every tile.
func.func @dynamic_head(%x: tensor<8x?xf32>, %v: tensor<?x?xf32>, %o0: tensor<8x?xf32>, %n: index) -> tensor<8x?xf32> {
  // expected-error@below {{expected a static size of a dimension that is whole in each tile (a head size), got a dynamic one}}
  %r = attn.fold %n streams(%x, %v : tensor<8x?xf32>, tensor<?x?xf32>) dims [1, 0] carries(%o0 : tensor<8x?xf32>) {
  ^bb0(%j0: index, %xb: tensor<8x?xf32>, %vb: tensor<?x?xf32>, %o: tensor<8x?xf32>):
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %size = tensor.dim %xb, %c1 : tensor<8x?xf32>
    %e = tensor.empty(%size) : tensor<8x?xf32>
    %p = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%xb : tensor<8x?xf32>) outs(%e : tensor<8x?xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = math.exp %u : f32
      linalg.yield %t : f32
    } -> tensor<8x?xf32>
    %next = linalg.generic {indexing_maps = [#x, #v, #o], iterator_types = ["parallel", "reduction", "parallel"]} ins(%p, %vb : tensor<8x?xf32>, tensor<?x?xf32>) outs(%o : tensor<8x?xf32>) {
    ^bb0(%a: f32, %b: f32, %w: f32):
      %s = arith.mulf %a, %b : f32
      %t = arith.addf %w, %s : f32
      linalg.yield %t : f32
    } -> tensor<8x?xf32>
    attn.yield %next : tensor<8x?xf32>
  } -> tensor<8x?xf32>
  return %r : tensor<8x?xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// A statement that is no reduction by one op has no tile form.
func.func @last(%x: tensor<8x?xf32>, %m0: tensor<8xf32>, %n: index) -> tensor<8xf32> {
  %r = attn.fold %n streams(%x : tensor<8x?xf32>) dims [1] carries(%m0 : tensor<8xf32>) {
  ^bb0(%j0: index, %xb: tensor<8x?xf32>, %m: tensor<8xf32>):
    // expected-error@below {{expected a reduction by one associative op}}
    %next = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%xb : tensor<8x?xf32>) outs(%m : tensor<8xf32>) {
    ^bb0(%u: f32, %w: f32):
      linalg.yield %u : f32
    } -> tensor<8xf32>
    attn.yield %next : tensor<8xf32>
  } merge {
  ^bb0(%p: tensor<8xf32>, %q: tensor<8xf32>):
    attn.yield %p : tensor<8xf32>
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// What no statement computes has no tile: a block that is only passed on,
func.func @passed_on(%x: tensor<8x?xf32>, %m0: tensor<8xf32>, %n: index) -> tensor<8x?xf32> {
  // expected-error@below {{expected a statement over dimension 0 of result #1}}
  %r:2 = attn.fold %n streams(%x : tensor<8x?xf32>) dims [1] carries(%m0 : tensor<8xf32>) {
  ^bb0(%j0: index, %xb: tensor<8x?xf32>, %m: tensor<8xf32>):
    %next = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%xb : tensor<8x?xf32>) outs(%m : tensor<8xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = arith.addf %w, %u : f32
      linalg.yield %t : f32
    } -> tensor<8xf32>
    attn.yield %next, %xb : tensor<8xf32>, tensor<8x?xf32>
  } maps [1] -> tensor<8xf32>, tensor<8x?xf32>
  return %r#1 : tensor<8x?xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// or a state that no statement touches.
func.func @untouched(%x: tensor<8x?xf32>, %m0: tensor<8xf32>, %s0: tensor<4x8xf32>, %n: index) -> tensor<8xf32> {
  // expected-error@below {{expected a statement over dimension 0 of carried value #1}}
  %r:2 = attn.fold %n streams(%x : tensor<8x?xf32>) dims [1] carries(%m0, %s0 : tensor<8xf32>, tensor<4x8xf32>) {
  ^bb0(%j0: index, %xb: tensor<8x?xf32>, %m: tensor<8xf32>, %s: tensor<4x8xf32>):
    %next = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%xb : tensor<8x?xf32>) outs(%m : tensor<8xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = arith.addf %w, %u : f32
      linalg.yield %t : f32
    } -> tensor<8xf32>
    attn.yield %next, %s : tensor<8xf32>, tensor<4x8xf32>
  } -> tensor<8xf32>, tensor<4x8xf32>
  return %r#0 : tensor<8xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// A tensor of the fold's own that no statement fills has no values to read.
func.func @not_filled(%x: tensor<8x?xf32>, %m0: tensor<8xf32>, %n: index) -> tensor<8xf32> {
  %c1 = arith.constant 1 : index
  %r = attn.fold %n streams(%x : tensor<8x?xf32>) dims [1] carries(%m0 : tensor<8xf32>) {
  ^bb0(%j0: index, %xb: tensor<8x?xf32>, %m: tensor<8xf32>):
    %size = tensor.dim %xb, %c1 : tensor<8x?xf32>
    %e = tensor.empty(%size) : tensor<8x?xf32>
    // expected-error@below {{expected tensors that are read to come from a statement, a streamed input or from outside of the fold}}
    %s = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]} ins(%xb : tensor<8x?xf32>) outs(%e : tensor<8x?xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = arith.addf %w, %u : f32
      linalg.yield %t : f32
    } -> tensor<8x?xf32>
    %next = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%s : tensor<8x?xf32>) outs(%m : tensor<8xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = arith.addf %w, %u : f32
      linalg.yield %t : f32
    } -> tensor<8xf32>
    attn.yield %next : tensor<8xf32>
  } merge {
  ^bb0(%p: tensor<8xf32>, %q: tensor<8xf32>):
    attn.yield %p : tensor<8xf32>
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// -----

// A state along the streamed dimension is no state: it has no end.
func.func @state_of_stream(%x: tensor<8x?xf32>, %m0: tensor<8xf32>, %n: index) -> tensor<8xf32> {
  // expected-error@below {{expected a statement over dimension 0 of carried value #0, which is not the streamed one}}
  %r = attn.fold %n streams(%x : tensor<8x?xf32>) dims [1] carries(%m0 : tensor<8xf32>) {
  ^bb0(%j0: index, %xb: tensor<8x?xf32>, %m: tensor<8xf32>):
    %next = linalg.generic {indexing_maps = [affine_map<(j, i) -> (i, j)>, affine_map<(j, i) -> (j)>], iterator_types = ["parallel", "reduction"]} ins(%xb : tensor<8x?xf32>) outs(%m : tensor<8xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = arith.addf %w, %u : f32
      linalg.yield %t : f32
    } -> tensor<8xf32>
    attn.yield %next : tensor<8xf32>
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}
