// RUN: attn-opt %s --attn-plan-nest -split-input-file -verify-diagnostics -o /dev/null
// RUN: sed 's/ plan <.*]>//' %s | not attn-opt --attn-plan-nest=order=split_kv -split-input-file -o /dev/null 2>&1 | FileCheck %s --check-prefix=SPLIT

// What the dependence graph does not allow, asked for by a plan or by an option.

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#j = affine_map<(i, j) -> (j)>

// The rows carry a sum: they are not parallel.
func.func @rows_carry(%x: tensor<64x?xf32>, %m0: tensor<64xf32>, %n: index) -> (tensor<64xf32>, tensor<?xf32>) {
  %zero = arith.constant 0.0 : f32
  %c1 = arith.constant 1 : index
  // expected-error@below {{the plan is not legal: loop i (row) cannot be parallel: RAW dependence from S3 to S3 with direction (1, 0) is carried by it; fused with sums=apart, each sum has a nest of its own}}
  %r:2 = attn.fold %n streams(%x : tensor<64x?xf32>) dims [1] carries(%m0 : tensor<64xf32>) {
  ^bb0(%j0: index, %xb: tensor<64x?xf32>, %m: tensor<64xf32>):
    %size = tensor.dim %xb, %c1 : tensor<64x?xf32>
    %e = tensor.empty(%size) : tensor<64x?xf32>
    %p = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]} ins(%xb : tensor<64x?xf32>) outs(%e : tensor<64x?xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = math.exp %u : f32
      linalg.yield %t : f32
    } -> tensor<64x?xf32>
    %next = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<64x?xf32>) outs(%m : tensor<64xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = arith.addf %w, %u : f32
      linalg.yield %t : f32
    } -> tensor<64xf32>
    %s = tensor.empty(%size) : tensor<?xf32>
    %s0 = linalg.fill ins(%zero : f32) outs(%s : tensor<?xf32>) -> tensor<?xf32>
    // expected-note@below {{S3: reduce addf}}
    %sum = linalg.generic {indexing_maps = [#ij, #j], iterator_types = ["reduction", "parallel"]} ins(%p : tensor<64x?xf32>) outs(%s0 : tensor<?xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = arith.addf %w, %u : f32
      linalg.yield %t : f32
    } -> tensor<?xf32>
    attn.yield %next, %sum : tensor<64xf32>, tensor<?xf32>
  } maps [0] plan <m_outer, loops = [<"i" : row, parallel>, <"j" : streamed, owner_computes>]> -> tensor<64xf32>, tensor<?xf32>
  return %r#0, %r#1 : tensor<64xf32>, tensor<?xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// No merge is known of a running sum that a running maximum rescales.
// SPLIT: error: cannot take loop order split_kv: loop j (streamed) cannot be partial-and-merge: RAW dependence from S1 to S1 with direction (0, 1) is carried by it, and S2 reads the running value of S1, which reordering changes, and there is no merge of two states
// SPLIT: note: S1: reduce maxnumf
func.func @no_merge(%x: tensor<64x?xf32>, %m0: tensor<64xf32>, %l0: tensor<64xf32>, %n: index) -> tensor<64xf32> {
  // expected-error@below {{the plan is not legal: loop j (streamed) cannot be partial-and-merge: RAW dependence from S1 to S1 with direction (0, 1) is carried by it, and S2 reads the running value of S1, which reordering changes, and there is no merge of two states}}
  %r:2 = attn.fold %n streams(%x : tensor<64x?xf32>) dims [1] carries(%m0, %l0 : tensor<64xf32>, tensor<64xf32>) {
  ^bb0(%j0: index, %xb: tensor<64x?xf32>, %m: tensor<64xf32>, %l: tensor<64xf32>):
    // expected-note@below {{S1: reduce maxnumf}}
    %m1 = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%xb : tensor<64x?xf32>) outs(%m : tensor<64xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = arith.maxnumf %w, %u : f32
      linalg.yield %t : f32
    } -> tensor<64xf32>
    %l1 = linalg.generic {indexing_maps = [#ij, #i, #i], iterator_types = ["parallel", "reduction"]} ins(%xb, %m1 : tensor<64x?xf32>, tensor<64xf32>) outs(%l : tensor<64xf32>) {
    ^bb0(%u: f32, %max: f32, %w: f32):
      %s = arith.subf %u, %max : f32
      %t = arith.addf %w, %s : f32
      linalg.yield %t : f32
    } -> tensor<64xf32>
    attn.yield %m1, %l1 : tensor<64xf32>, tensor<64xf32>
  } plan <split_kv parts = 4, loops = [<"i" : row, parallel>, <"j" : streamed, partial_and_merge>]> -> tensor<64xf32>, tensor<64xf32>
  return %r#1 : tensor<64xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// A second pass reads what the first one ends with: keys outside would give it the running value.
func.func @two_passes(%x: tensor<64x?xf32>, %m0: tensor<64xf32>, %n: index) -> tensor<64xf32> {
  // expected-error@below {{the plan is not legal: loop j (streamed) cannot be owner-computes: RAW dependence from S1 to S2 with direction (0) needs the whole loop of its source}}
  %m = attn.fold %n streams(%x : tensor<64x?xf32>) dims [1] carries(%m0 : tensor<64xf32>) {
  ^bb0(%j0: index, %xb: tensor<64x?xf32>, %state: tensor<64xf32>):
    // expected-note@below {{S1: reduce maxnumf}}
    %next = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%xb : tensor<64x?xf32>) outs(%state : tensor<64xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = arith.maxnumf %w, %u : f32
      linalg.yield %t : f32
    } -> tensor<64xf32>
    attn.yield %next : tensor<64xf32>
  } plan <n_outer, loops = [<"i" : row, owner_computes>, <"j" : streamed, owner_computes>]> -> tensor<64xf32>
  %s = attn.fold %n streams(%x : tensor<64x?xf32>) dims [1] carries(%m0 : tensor<64xf32>) {
  ^bb0(%j0: index, %xb: tensor<64x?xf32>, %state: tensor<64xf32>):
    // expected-note@below {{S2: reduce subf addf}}
    %next = linalg.generic {indexing_maps = [#ij, #i, #i], iterator_types = ["parallel", "reduction"]} ins(%xb, %m : tensor<64x?xf32>, tensor<64xf32>) outs(%state : tensor<64xf32>) {
    ^bb0(%u: f32, %max: f32, %w: f32):
      %d = arith.subf %u, %max : f32
      %t = arith.addf %w, %d : f32
      linalg.yield %t : f32
    } -> tensor<64xf32>
    attn.yield %next : tensor<64xf32>
  } -> tensor<64xf32>
  return %s : tensor<64xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// A plan of another nest.
func.func @of_another_nest(%x: tensor<64x?xf32>, %m0: tensor<64xf32>, %n: index) -> tensor<64xf32> {
  // expected-error@below {{expected loop j to be planned as row, got streamed}}
  %r = attn.fold %n streams(%x : tensor<64x?xf32>) dims [1] carries(%m0 : tensor<64xf32>) {
  ^bb0(%j0: index, %xb: tensor<64x?xf32>, %m: tensor<64xf32>):
    %next = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%xb : tensor<64x?xf32>) outs(%m : tensor<64xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = arith.addf %w, %u : f32
      linalg.yield %t : f32
    } -> tensor<64xf32>
    attn.yield %next : tensor<64xf32>
  } plan <m_outer, loops = [<"j" : streamed, owner_computes>, <"i" : row, parallel>]> -> tensor<64xf32>
  return %r : tensor<64xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// A plan that the tile program would exceed: with rows outside, rows are parallel.
func.func @another_treatment(%x: tensor<64x?xf32>, %m0: tensor<64xf32>, %n: index) -> tensor<64xf32> {
  // expected-error@below {{expected loop i to be planned as parallel, which programs of order m_outer have, got owner-computes}}
  %r = attn.fold %n streams(%x : tensor<64x?xf32>) dims [1] carries(%m0 : tensor<64xf32>) {
  ^bb0(%j0: index, %xb: tensor<64x?xf32>, %m: tensor<64xf32>):
    %next = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%xb : tensor<64x?xf32>) outs(%m : tensor<64xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = arith.addf %w, %u : f32
      linalg.yield %t : f32
    } -> tensor<64xf32>
    attn.yield %next : tensor<64xf32>
  } plan <m_outer, loops = [<"i" : row, owner_computes>, <"j" : streamed, owner_computes>]> -> tensor<64xf32>
  return %r : tensor<64xf32>
}
