// RUN: attn-opt %s --attn-normalize-statements --attn-fuse-reductions --canonicalize --cse | FileCheck %s
// RUN: attn-opt %s --attn-normalize-statements --attn-fuse-reductions --canonicalize --cse --remarks-filter=attn-fuse-reductions -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] absorbed | Category:attn-fuse-reductions{{$}}
// REMARKS-DAG: {{^ *}}5 [Passed] fused | Category:attn-fuse-reductions{{$}}
// The cascades are written by hand: the rule knows reductions, not attention.

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#j = affine_map<(i, j) -> (j)>
#ii = affine_map<(i) -> (i)>

// Naive attention with named ops and an unguarded maximum; the division stands
// before the second product.
// CHECK-LABEL: func @attention
// CHECK-SAME: (%[[Q:.*]]: tensor<32x64xf32>, %[[K:.*]]: tensor<?x64xf32>, %[[V:.*]]: tensor<?x48xf32>)
func.func @attention(%q: tensor<32x64xf32>, %k: tensor<?x64xf32>, %v: tensor<?x48xf32>) -> tensor<32x48xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %ninf = arith.constant 0xFF800000 : f32
  %n = tensor.dim %k, %c0 : tensor<?x64xf32>
  %se = tensor.empty(%n) : tensor<32x?xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%se : tensor<32x?xf32>) -> tensor<32x?xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j, d) -> (i, d)>, affine_map<(i, j, d) -> (j, d)>, affine_map<(i, j, d) -> (i, j)>],
      iterator_types = ["parallel", "parallel", "reduction"]} ins(%q, %k : tensor<32x64xf32>, tensor<?x64xf32>) outs(%s0 : tensor<32x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %x = arith.mulf %a, %b : f32
    %y = arith.addf %c, %x : f32
    linalg.yield %y : f32
  } -> tensor<32x?xf32>
  %re = tensor.empty() : tensor<32xf32>
  %m0 = linalg.fill ins(%ninf : f32) outs(%re : tensor<32xf32>) -> tensor<32xf32>
  %m = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%s : tensor<32x?xf32>) outs(%m0 : tensor<32xf32>) {
  ^bb0(%a: f32, %c: f32):
    %x = arith.maximumf %c, %a : f32
    linalg.yield %x : f32
  } -> tensor<32xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]} ins(%s, %m : tensor<32x?xf32>, tensor<32xf32>) outs(%se : tensor<32x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %x = arith.subf %a, %b : f32
    %y = math.exp %x : f32
    linalg.yield %y : f32
  } -> tensor<32x?xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%re : tensor<32xf32>) -> tensor<32xf32>
  %l = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<32x?xf32>) outs(%l0 : tensor<32xf32>) {
  ^bb0(%a: f32, %c: f32):
    %x = arith.addf %c, %a : f32
    linalg.yield %x : f32
  } -> tensor<32xf32>
  %w = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]} ins(%p, %l : tensor<32x?xf32>, tensor<32xf32>) outs(%se : tensor<32x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %x = arith.divf %a, %b : f32
    linalg.yield %x : f32
  } -> tensor<32x?xf32>
  %oe = tensor.empty() : tensor<32x48xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%oe : tensor<32x48xf32>) -> tensor<32x48xf32>
  // CHECK: %[[R:.*]]:3 = attn.fold %{{.*}} streams(%[[K]], %[[V]] : tensor<?x64xf32>, tensor<?x48xf32>) dims [0, 0]
  // CHECK: ^bb0(%{{.*}}: index, %[[KB:.*]]: tensor<?x64xf32>, %[[VB:.*]]: tensor<?x48xf32>, %[[M:.*]]: tensor<32xf32>, %[[L:.*]]: tensor<32xf32>, %[[O:.*]]: tensor<32x48xf32>)
  // CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%[[Q]], %[[KB]]
  // CHECK: %[[M1:.*]] = linalg.generic {{.*}} ins(%[[S]] : tensor<32x?xf32>) outs(%[[M]] :
  // A block may be all -inf before a later one is not: the guard is the pass's.
  // CHECK: %[[MS:.*]] = linalg.generic {{.*}} ins(%[[M1]] :
  // CHECK: arith.cmpf oeq
  // CHECK: %[[P:.*]] = linalg.generic {{.*}} ins(%[[S]], %[[MS]] :
  // The factor that brings old sums under the new maximum.
  // CHECK: %[[F:.*]] = linalg.generic {{.*}} ins(%[[M]], %[[MS]] :
  // CHECK: math.exp
  // CHECK: %[[LF:.*]] = linalg.generic {{.*}} ins(%[[L]], %[[F]] :
  // CHECK: %[[L1:.*]] = linalg.generic {{.*}} ins(%[[P]] : tensor<32x?xf32>) outs(%[[LF]] :
  // The division has left the sum.
  // CHECK: %[[OF:.*]] = linalg.generic {{.*}} ins(%[[O]], %[[F]] :
  // CHECK: %[[O1:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %[[VB]] : tensor<32x?xf32>, tensor<?x48xf32>) outs(%[[OF]] :
  // CHECK: attn.yield %[[M1]], %[[L1]], %[[O1]]
  // CHECK: } merge {
  // CHECK: %[[OUT:.*]] = linalg.generic {{.*}} ins(%[[R]]#2, %[[R]]#1 :
  // CHECK-NEXT: ^bb0
  // CHECK-NEXT: arith.divf
  // CHECK: return %[[OUT]]
  %o = linalg.matmul ins(%w, %v : tensor<32x?xf32>, tensor<?x48xf32>) outs(%o0 : tensor<32x48xf32>) -> tensor<32x48xf32>
  return %o : tensor<32x48xf32>
}

// Two stacked reductions that are not attention: x is normalised by its length
// and summed with weights. The length's power leaves the sum.
// CHECK-LABEL: func @weighted_unit_vector
func.func @weighted_unit_vector(%x: tensor<16x?xf32>, %w: tensor<?xf32>) -> tensor<16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<16xf32>) -> tensor<16xf32>
  %n = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<16x?xf32>) outs(%z : tensor<16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %q = arith.mulf %a, %a : f32
    %r = arith.addf %o, %q : f32
    linalg.yield %r : f32
  } -> tensor<16xf32>
  // CHECK: %[[R:.*]]:2 = attn.fold
  // CHECK-NOT: math
  // CHECK: } merge
  // CHECK: linalg.generic {{.*}} ins(%[[R]]#1, %[[R]]#0 :
  // CHECK: math.rsqrt
  %y = linalg.generic {indexing_maps = [#ij, #j, #i, #i], iterator_types = ["parallel", "reduction"]}
      ins(%x, %w, %n : tensor<16x?xf32>, tensor<?xf32>, tensor<16xf32>) outs(%z : tensor<16xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %s = math.sqrt %c : f32
    %q = arith.divf %a, %s : f32
    %t = arith.mulf %q, %b : f32
    %r = arith.addf %o, %t : f32
    linalg.yield %r : f32
  } -> tensor<16xf32>
  return %y : tensor<16xf32>
}

// Log-sum-exp in base 2, with the maximum scaled before it is subtracted; the
// learned sink starts the maximum, so there is no way to merge but by it.
// CHECK-LABEL: func @log_sum_exp_with_sink
// CHECK-SAME: %[[X:.*]]: tensor<?x?xf64>, %[[SINK:.*]]: tensor<?xf64>
func.func @log_sum_exp_with_sink(%x: tensor<?x?xf64>, %sink: tensor<?xf64>) -> tensor<?xf64> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f64
  %log2e = arith.constant 1.4426950408889634 : f64
  %ninf = arith.constant 0xFFF0000000000000 : f64
  %d0 = tensor.dim %x, %c0 : tensor<?x?xf64>
  %d1 = tensor.dim %x, %c1 : tensor<?x?xf64>
  %e = tensor.empty(%d0) : tensor<?xf64>
  %e2 = tensor.empty(%d0, %d1) : tensor<?x?xf64>
  %m0 = linalg.fill ins(%ninf : f64) outs(%e : tensor<?xf64>) -> tensor<?xf64>
  %mj = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<?x?xf64>) outs(%m0 : tensor<?xf64>) {
  ^bb0(%a: f64, %c: f64):
    %r = arith.maxnumf %a, %c : f64
    linalg.yield %r : f64
  } -> tensor<?xf64>
  // CHECK: %[[START:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %[[SINK]] :
  // CHECK: attn.fold %{{.*}} streams(%[[X]] : tensor<?x?xf64>) dims [1] carries(%[[START]],
  %m = linalg.generic {indexing_maps = [#ii, #ii, #ii], iterator_types = ["parallel"]} ins(%mj, %sink : tensor<?xf64>, tensor<?xf64>) outs(%e : tensor<?xf64>) {
  ^bb0(%a: f64, %b: f64, %c: f64):
    %r = arith.maxnumf %a, %b : f64
    linalg.yield %r : f64
  } -> tensor<?xf64>
  // CHECK: math.exp2
  // CHECK: arith.addf
  // CHECK: attn.yield
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]} ins(%x, %m : tensor<?x?xf64>, tensor<?xf64>) outs(%e2 : tensor<?x?xf64>) {
  ^bb0(%a: f64, %b: f64, %c: f64):
    %as = arith.mulf %a, %log2e : f64
    %bs = arith.mulf %b, %log2e : f64
    %d = arith.subf %as, %bs : f64
    %r = math.exp2 %d : f64
    linalg.yield %r : f64
  } -> tensor<?x?xf64>
  %l0 = linalg.fill ins(%zero : f64) outs(%e : tensor<?xf64>) -> tensor<?xf64>
  %l = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<?x?xf64>) outs(%l0 : tensor<?xf64>) {
  ^bb0(%a: f64, %c: f64):
    %r = arith.addf %c, %a : f64
    linalg.yield %r : f64
  } -> tensor<?xf64>
  %lse = linalg.generic {indexing_maps = [#ii, #ii, #ii, #ii], iterator_types = ["parallel"]} ins(%m, %l, %sink : tensor<?xf64>, tensor<?xf64>, tensor<?xf64>) outs(%e : tensor<?xf64>) {
  ^bb0(%a: f64, %b: f64, %s: f64, %c: f64):
    %d = arith.subf %s, %a : f64
    %x0 = math.exp %d : f64
    %t = arith.addf %b, %x0 : f64
    %g = math.log %t : f64
    %r = arith.addf %a, %g : f64
    linalg.yield %r : f64
  } -> tensor<?xf64>
  return %lse : tensor<?xf64>
}

// A row softmax needs its values after the sums: a second pass maps blocks.
// CHECK-LABEL: func @softmax
func.func @softmax(%x: tensor<8x?xf32>) -> tensor<8x?xf32> {
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %ninf = arith.constant 0xFF800000 : f32
  %n = tensor.dim %x, %c1 : tensor<8x?xf32>
  %e = tensor.empty() : tensor<8xf32>
  %e2 = tensor.empty(%n) : tensor<8x?xf32>
  %m0 = linalg.fill ins(%ninf : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
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
  %l = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<8x?xf32>) outs(%l0 : tensor<8xf32>) {
  ^bb0(%a: f32, %c: f32):
    %r = arith.addf %c, %a : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  // CHECK: %[[R:.*]]:2 = attn.fold
  // CHECK: %[[Y:.*]] = attn.fold %{{.*}} streams(%{{.*}} : tensor<8x?xf32>) dims [1] {
  // CHECK: ins(%{{.*}}, %[[R]]#0 :
  // CHECK: ins(%{{.*}}, %[[R]]#1 :
  // CHECK: } maps [1] -> tensor<8x?xf32>
  // CHECK: return %[[Y]]
  %y = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]} ins(%p, %l : tensor<8x?xf32>, tensor<8xf32>) outs(%e2 : tensor<8x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<8x?xf32>
  return %y : tensor<8x?xf32>
}

// One tensor as query, key and value: only the keys are fused.
// CHECK-LABEL: func @self_attention
// CHECK-SAME: %[[X:.*]]: tensor<16x8xf32>
func.func @self_attention(%x: tensor<16x8xf32>) -> tensor<16x8xf32> {
  %zero = arith.constant 0.0 : f32
  %se = tensor.empty() : tensor<16x16xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%se : tensor<16x16xf32>) -> tensor<16x16xf32>
  %oe = tensor.empty() : tensor<16x8xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%oe : tensor<16x8xf32>) -> tensor<16x8xf32>
  // CHECK: attn.fold %{{.*}} streams(%[[X]] : tensor<16x8xf32>) dims [0] carries(%{{.*}} : tensor<16x8xf32>)
  // CHECK-NEXT: ^bb0(%{{.*}}: index, %[[B:.*]]: tensor<?x8xf32>,
  // CHECK: linalg.generic {{.*}} ins(%[[X]], %[[B]] : tensor<16x8xf32>, tensor<?x8xf32>)
  // CHECK-NOT: attn.fold
  // CHECK: return
  %s = linalg.generic {indexing_maps = [affine_map<(i, j, d) -> (i, d)>, affine_map<(i, j, d) -> (j, d)>, affine_map<(i, j, d) -> (i, j)>],
      iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %x : tensor<16x8xf32>, tensor<16x8xf32>) outs(%s0 : tensor<16x16xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %c, %p : f32
    linalg.yield %q : f32
  } -> tensor<16x16xf32>
  %o = linalg.matmul ins(%s, %x : tensor<16x16xf32>, tensor<16x8xf32>) outs(%o0 : tensor<16x8xf32>) -> tensor<16x8xf32>
  return %o : tensor<16x8xf32>
}
