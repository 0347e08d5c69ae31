// RUN: attn-opt %s --attn-project-masks | FileCheck %s
// RUN: attn-opt %s --attn-project-masks --remarks-filter=attn-project-masks -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] projected | Category:attn-project-masks{{$}}

// The whole forward body: every reduction along the keys sees neutral terms
// where the mask is false, so causal skips the tiles right of the diagonal and
// the tiles left of it lose the mask, the tail, and the bounds of the reads.

#qk_q = affine_map<(i, j, d) -> (i, d)>
#qk_k = affine_map<(i, j, d) -> (j, d)>
#qk_s = affine_map<(i, j, d) -> (i, j)>
#pv_p = affine_map<(i, j, e) -> (i, j)>
#pv_v = affine_map<(i, j, e) -> (j, e)>
#pv_o = affine_map<(i, j, e) -> (i, e)>

// CHECK-DAG: #[[$MAY:.*]] = affine_map<(d0)[s0] -> (((d0 * 64 + 63) floordiv 128) * 128 + 128, s0)>
// CHECK-LABEL: func @causal
func.func @causal(%Q: tensor<?x64xf32>, %K: tensor<?x64xf32>, %V: tensor<?x64xf32>, %n: index, %Sk: index,
    %init: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant 0.0 : f32
  %ninf64 = arith.constant dense<0xFF800000> : vector<64xf32>
  %ninf = arith.constant dense<0xFF800000> : vector<64x128xf32>
  %zero64 = arith.constant dense<0.0> : vector<64xf32>
  %zeros = arith.constant dense<0.0> : vector<64x128xf32>
  %zero_o = arith.constant dense<0.0> : vector<64x64xf32>
  // CHECK: scf.forall (%[[TI:.*]]) in
  %r = scf.forall (%ti) in (%n) shared_outs(%out = %init) -> (tensor<?x64xf32>) {
    %i0 = affine.apply affine_map<(d0) -> (d0 * 64)>(%ti)
    %q = vector.transfer_read %Q[%i0, %c0], %zero {in_bounds = [false, true]} : tensor<?x64xf32>, vector<64x64xf32>
    %is = vector.step : vector<64xindex>
    %ib = vector.broadcast %i0 : index to vector<64xindex>
    %i1 = arith.addi %is, %ib : vector<64xindex>
    // CHECK: %[[HI:.*]] = affine.min #[[$MAY]](%[[TI]])[%[[SK:.*]]]
    // CHECK: %[[MUST:.*]] = affine.min
    // CHECK: %[[F1:.*]] = arith.maxsi %[[MUST]], %{{.*}}
    // CHECK: %[[FULL:.*]]:3 = scf.for %[[J0:.*]] = %c0 to %[[F1]] step %c128
    // CHECK-NEXT: vector.transfer_read %{{.*}}[%[[J0]], %c0], %{{.*}} {in_bounds = [true, true]}
    // CHECK-NOT: cmpi
    // CHECK-NOT: vector.step
    // CHECK: vector.multi_reduction <maxnumf>
    // CHECK: vector.transfer_read %{{.*}}[%[[J0]], %c0], %{{.*}} {in_bounds = [true, true]}
    // CHECK: scf.yield
    // CHECK-NEXT: } {attn.fold_loop, attn.full}
    // CHECK: scf.for %{{.*}} = %[[F1]] to %[[HI]] step %c128 iter_args(%{{.*}} = %[[FULL]]#0
    // CHECK-NEXT: vector.transfer_read {{.*}} {in_bounds = [false, true]}
    // CHECK: arith.andi
    // CHECK: arith.select
    // CHECK: } {attn.fold_loop, attn.partial}
    // CHECK-NOT: scf.for %
    %st:3 = scf.for %j0 = %c0 to %Sk step %c128 iter_args(%m = %ninf64, %l = %zero64, %o = %zero_o) -> (vector<64xf32>, vector<64xf32>, vector<64x64xf32>) {
      %k = vector.transfer_read %K[%j0, %c0], %zero {in_bounds = [false, true]} : tensor<?x64xf32>, vector<128x64xf32>
      %s0 = vector.contract {indexing_maps = [#qk_q, #qk_k, #qk_s], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %q, %k, %zeros : vector<64x64xf32>, vector<128x64xf32> into vector<64x128xf32>
      %it = vector.broadcast %i1 : vector<64xindex> to vector<128x64xindex>
      %i2 = vector.transpose %it, [1, 0] : vector<128x64xindex> to vector<64x128xindex>
      %js = vector.step : vector<128xindex>
      %jb = vector.broadcast %j0 : index to vector<128xindex>
      %j1 = arith.addi %js, %jb : vector<128xindex>
      %j2 = vector.broadcast %j1 : vector<128xindex> to vector<64x128xindex>
      %causal = arith.cmpi sge, %i2, %j2 : vector<64x128xindex>
      %sks = vector.broadcast %Sk : index to vector<64x128xindex>
      %inside = arith.cmpi slt, %j2, %sks : vector<64x128xindex>
      %keep = arith.andi %causal, %inside : vector<64x128xi1>
      %s2 = arith.select %keep, %s0, %ninf : vector<64x128xi1>, vector<64x128xf32>
      %m1 = vector.multi_reduction <maxnumf>, %s2, %m [1] : vector<64x128xf32> to vector<64xf32>
      %dead = arith.cmpf oeq, %m1, %ninf64 : vector<64xf32>
      %ms = arith.select %dead, %zero64, %m1 : vector<64xi1>, vector<64xf32>
      %mt = vector.broadcast %ms : vector<64xf32> to vector<128x64xf32>
      %mb = vector.transpose %mt, [1, 0] : vector<128x64xf32> to vector<64x128xf32>
      %sm = arith.subf %s2, %mb : vector<64x128xf32>
      %p = math.exp %sm : vector<64x128xf32>
      %am = arith.subf %m, %ms : vector<64xf32>
      %alpha = math.exp %am : vector<64xf32>
      %la = arith.mulf %l, %alpha : vector<64xf32>
      %l1 = vector.multi_reduction <add>, %p, %la [1] : vector<64x128xf32> to vector<64xf32>
      %v = vector.transfer_read %V[%j0, %c0], %zero {in_bounds = [false, true]} : tensor<?x64xf32>, vector<128x64xf32>
      %ab = vector.broadcast %alpha : vector<64xf32> to vector<64x64xf32>
      %at = vector.transpose %ab, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %oa = arith.mulf %o, %at : vector<64x64xf32>
      %o1 = vector.contract {indexing_maps = [#pv_p, #pv_v, #pv_o], iterator_types = ["parallel", "reduction", "parallel"], kind = #vector.kind<add>} %p, %v, %oa : vector<64x128xf32>, vector<128x64xf32> into vector<64x64xf32>
      scf.yield %m1, %l1, %o1 : vector<64xf32>, vector<64xf32>, vector<64x64xf32>
    } {attn.fold_loop}
    %t = tensor.extract_slice %out[%i0, 0] [64, 64] [1, 1] : tensor<?x64xf32> to tensor<64x64xf32>
    %w = vector.transfer_write %st#2, %t[%c0, %c0] {in_bounds = [true, true]} : vector<64x64xf32>, tensor<64x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %w into %out[%i0, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<?x64xf32>
    }
  }
  return %r : tensor<?x64xf32>
}
