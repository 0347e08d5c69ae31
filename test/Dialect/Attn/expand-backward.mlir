// RUN: attn-opt %s --attn-prove-keys --attn-expand --canonicalize --cse --mlir-print-local-scope | FileCheck %s

// One statement per line of the definition: D, S, t, P, dO V^T, dt, then the
// three gradients. Without a mask and a score every row has a key, and ds is dt.
// CHECK-LABEL: func @plain
// CHECK-SAME: (%[[DO:.*]]: tensor<1x2x?x32xf32>, %[[Q:.*]]: tensor<1x2x?x16xf32>, %[[K:.*]]: tensor<1x2x?x16xf32>, %[[V:.*]]: tensor<1x2x?x32xf32>, %[[O:.*]]: tensor<1x2x?x32xf32>, %[[LSE:.*]]: tensor<1x2x?xf32>)
func.func @plain(%do: tensor<1x2x?x32xf32>, %q: tensor<1x2x?x16xf32>, %k: tensor<1x2x?x16xf32>,
                 %v: tensor<1x2x?x32xf32>, %o: tensor<1x2x?x32xf32>, %lse: tensor<1x2x?xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x32xf32>) {
  // CHECK-NOT: select
  // CHECK: %[[D:.*]] = linalg.generic {{.*}} ins(%[[DO]], %[[O]] : {{.*}}attn.dims = ["b", "h", "i", "e"]
  // CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%[[Q]], %[[K]] : {{.*}}attn.dims = ["b", "h", "i", "j", "d"]
  // CHECK: %[[T:.*]] = linalg.generic {{.*}} ins(%[[S]] : {{.*}}attn.dims = ["b", "h", "i", "j"]
  // CHECK: arith.mulf %{{.*}}, %[[SCALE:.*]] : f32
  // CHECK: %[[P:.*]] = linalg.generic {{.*}} ins(%[[T]], %[[LSE]] : {{.*}}attn.dims = ["b", "h", "i", "j"]
  // CHECK: arith.subf
  // CHECK-NEXT: math.exp
  // CHECK: %[[DP:.*]] = linalg.generic {{.*}} ins(%[[DO]], %[[V]] : {{.*}}attn.dims = ["b", "h", "i", "j", "e"]
  // CHECK: %[[DT:.*]] = linalg.generic {{.*}} ins(%[[P]], %[[DP]], %[[D]] : {{.*}}attn.dims = ["b", "h", "i", "j"]
  // CHECK: %[[DQ:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "reduction", "parallel"]} ins(%[[DT]], %[[K]] :
  // CHECK: %[[DK:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction", "parallel", "parallel"]} ins(%[[DT]], %[[Q]] :
  // CHECK: %[[DV:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction", "parallel", "parallel"]} ins(%[[DO]], %[[P]] :
  // CHECK: %[[SDQ:.*]] = linalg.generic {{.*}} ins(%[[DQ]] :
  // CHECK: arith.mulf %{{.*}}, %[[SCALE]] : f32
  // CHECK: %[[SDK:.*]] = linalg.generic {{.*}} ins(%[[DK]] :
  // CHECK: arith.mulf %{{.*}}, %[[SCALE]] : f32
  // CHECK: return %[[SDQ]], %[[SDK]], %[[DV]]
  %dq, %dk, %dv = attn.backward %do, %q, %k, %v, %o, %lse scale 0.5
    : tensor<1x2x?x32xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x32xf32>,
      tensor<1x2x?x32xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x32xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x32xf32>
}

// With a mask a row may be without keys: dO and LSE are not trusted there, P
// comes from a score of -inf, and ds of a masked pair is 0 whatever dt is.
// CHECK-LABEL: func @masked
func.func @masked(%x: tensor<1x2x?x16xf32>, %o: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  // CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
  // CHECK-DAG: %[[INF:.*]] = arith.constant 0x7F800000 : f32
  // CHECK-DAG: %[[NINF:.*]] = arith.constant 0xFF800000 : f32
  // CHECK: %[[DO:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<1x2x?x16xf32>, tensor<1x2x?xf32>) {{.*}}attn.dims = ["b", "h", "i", "e"]
  // CHECK: %[[SIZE:.*]] = math.absf
  // CHECK: %[[DEAD:.*]] = arith.cmpf oeq, %[[SIZE]], %[[INF]]
  // CHECK: arith.select %[[DEAD]], %[[ZERO]], %{{.*}}
  // CHECK: ins(%[[DO]], %{{.*}} : {{.*}}attn.dims = ["b", "h", "i", "e"]
  // CHECK: %[[T:.*]] = linalg.generic {{.*}}attn.dims = ["b", "h", "i", "j"]
  // CHECK: arith.mulf
  // CHECK: %[[KEPT:.*]] = linalg.generic {{.*}} ins(%[[T]] :
  // CHECK: arith.cmpi sge
  // CHECK: arith.select %{{.*}}, %{{.*}}, %[[NINF]] : f32
  // CHECK: linalg.generic {{.*}} ins(%[[KEPT]], %{{.*}} :
  // CHECK: %[[SHIFT:.*]] = arith.select %{{.*}}, %{{.*}}, %[[ZERO]] : f32
  // CHECK: arith.subf %{{.*}}, %[[SHIFT]]
  // CHECK: math.exp
  // CHECK: linalg.generic {{.*}} ins(%[[DO]], %{{.*}} : {{.*}}attn.dims = ["b", "h", "i", "j", "e"]
  // CHECK: %[[DT:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %{{.*}}, %{{.*}} : {{.*}}attn.dims = ["b", "h", "i", "j"]
  // CHECK: %[[DS:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %[[DT]] : {{.*}}attn.dims = ["b", "h", "i", "j"]
  // CHECK: arith.cmpi sge
  // CHECK: arith.select %{{.*}}, %{{.*}}, %[[ZERO]] : f32
  // CHECK: ins(%[[DS]], %{{.*}} : {{.*}}attn.dims = ["b", "h", "i", "j", "d"]
  // CHECK: ins(%[[DS]], %{{.*}} : {{.*}}attn.dims = ["b", "h", "i", "j", "d"]
  %dq, %dk, %dv = attn.backward %x, %x, %x, %x, %o, %lse
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %keep = arith.cmpi sge, %j, %i : index
      attn.yield %keep : i1
    } : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>,
        tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// Every row has the first key: all are trusted. So they are where the score stays finite.
// CHECK-LABEL: func @causal
// CHECK-NOT: math.absf
func.func @causal(%x: tensor<1x2x?x16xf32>, %o: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  %dq, %dk, %dv = attn.backward %x, %x, %x, %x, %o, %lse
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %t = math.tanh %s : f32
      attn.yield %t : f32
    } gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %dt: f32):
      %t = math.tanh %s : f32
      %t2 = arith.mulf %t, %t : f32
      %one = arith.constant 1.0 : f32
      %u = arith.subf %one, %t2 : f32
      %r = arith.mulf %dt, %u : f32
      attn.yield %r : f32
    } mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %c1 = arith.constant 1 : index
      %first = arith.cmpi slt, %j, %c1 : index
      %past = arith.cmpi sge, %i, %j : index
      %keep = arith.ori %first, %past : i1
      attn.yield %keep : i1
    } : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>,
        tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// Grouped heads, 16-bit tensors, the gradients of LSE, scale and sink. dK and dV
// are summed over the group before they are rounded; sums of more than one
// dimension are taken one after the other.
// CHECK-LABEL: func @everything
// CHECK-SAME: %[[SCALE:[^ ]*]]: f32, %[[SINK:[^ ]*]]: tensor<4xf32>
func.func @everything(%do: tensor<?x4x?x16xbf16>, %q: tensor<?x4x?x16xbf16>, %k: tensor<?x2x?x16xbf16>,
                      %o: tensor<?x4x?x16xbf16>, %lse: tensor<?x4x?xf32>, %dlse: tensor<?x4x?xf32>,
                      %scale: f32, %sink: tensor<4xf32>)
    -> (tensor<?x4x?x16xbf16>, tensor<?x2x?x16xbf16>, tensor<?x2x?x16xbf16>, tensor<f32>, tensor<4xf32>) {
  // CHECK: %[[SPLIT:.*]] = tensor.expand_shape %[[SINK]] {{\[\[}}0, 1]] output_shape [2, 2]
  // A row whose LSE is the sink and whose output is 0 has no key either.
  // CHECK: %[[DO:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %{{.*}}, %[[SPLIT]], %{{.*}} : {{.*}}attn.dims = ["b", "h", "g", "i", "e"]
  // CHECK-NEXT: ^bb0(%[[IN:.*]]: bf16, %[[L:.*]]: f32, %[[SI:.*]]: f32, %[[OI:.*]]: bf16, %{{.*}}: bf16):
  // CHECK: %[[NONE:.*]] = arith.cmpf oeq
  // CHECK-DAG: %[[DIFF:.*]] = arith.subf %[[L]], %[[SI]]
  // CHECK-DAG: %[[SIZE:.*]] = math.absf %[[SI]]
  // CHECK-DAG: %[[AWAY:.*]] = math.absf %[[DIFF]]
  // CHECK-DAG: %[[NEAR:.*]] = arith.mulf %[[SIZE]]
  // CHECK: %[[A:.*]] = arith.cmpf ole, %[[AWAY]], %[[NEAR]]
  // CHECK: %[[B:.*]] = arith.cmpf oeq, %[[OI]]
  // CHECK: %[[C:.*]] = arith.andi %[[A]], %[[B]]
  // CHECK: %[[DEAD:.*]] = arith.ori %[[NONE]], %[[C]]
  // CHECK: arith.select %[[DEAD]], %{{.*}}, %[[IN]] : bf16
  // D = sum dO O - dLSE
  // CHECK: %[[SUM:.*]] = linalg.generic {{.*}}attn.dims = ["b", "h", "g", "i", "e"]
  // CHECK-COUNT-2: arith.extf
  // CHECK: %[[D:.*]] = linalg.generic {{.*}} ins(%[[SUM]], %{{.*}}, %{{.*}} :
  // CHECK: arith.subf
  // CHECK: %[[S:.*]] = linalg.generic {{.*}}attn.dims = ["b", "h", "g", "i", "j", "d"]
  // CHECK: linalg.generic {{.*}} ins(%[[S]] :
  // CHECK: arith.mulf %{{.*}}, %[[SCALE]]
  // CHECK: %[[DS:.*]] = linalg.generic {{.*}} ins(%[[S]], %{{.*}} : {{.*}}attn.dims = ["b", "h", "g", "i", "j"]
  // CHECK: linalg.generic {{.*}} ins(%[[DS]], %{{.*}} : {{.*}}attn.dims = ["b", "h", "g", "i", "j", "d"]
  // CHECK: %[[DK:.*]] = linalg.generic {{.*}} ins(%[[DS]], %{{.*}} : {{.*}} outs(%{{.*}} : tensor<?x2x2x?x16xf32>) {{.*}}attn.dims = ["b", "h", "g", "i", "j", "d"]
  // CHECK: %[[DV:.*]] = linalg.generic {{.*}} ins(%[[DO]], %{{.*}} : {{.*}} outs(%{{.*}} : tensor<?x2x2x?x16xf32>) {{.*}}attn.dims = ["b", "h", "g", "i", "j", "e"]
  // dQ: scaled, rounded, its heads joined.
  // CHECK: arith.mulf %{{.*}}, %[[SCALE]]
  // CHECK: arith.truncf
  // CHECK: tensor.collapse_shape {{.*}} tensor<?x2x2x?x16xbf16> into tensor<?x4x?x16xbf16>
  // CHECK: %[[DKG:.*]] = linalg.generic {{.*}} ins(%[[DK]] : {{.*}}attn.dims = ["b", "h", "g", "j", "d"]
  // CHECK: linalg.generic {{.*}} ins(%[[DKG]] :
  // CHECK: arith.truncf
  // CHECK: %[[DVG:.*]] = linalg.generic {{.*}} ins(%[[DV]] : {{.*}}attn.dims = ["b", "h", "g", "j", "e"]
  // CHECK: linalg.generic {{.*}} ins(%[[DVG]] :
  // CHECK-NOT: arith.mulf
  // CHECK: arith.truncf
  // The gradient of the scale: along the keys first.
  // CHECK: %[[R:.*]] = linalg.generic {{.*}} ins(%[[DS]], %[[S]] : {{.*}} outs(%{{.*}} : tensor<?x2x2x?xf32>)
  // CHECK: linalg.generic {{.*}} ins(%[[R]] : {{.*}} outs(%{{.*}} : tensor<?x2x2xf32>)
  // CHECK: outs(%{{.*}} : tensor<f32>)
  // The gradient of the sink: -exp(sink - LSE) D, no row without an LSE counts.
  // CHECK: linalg.generic {{.*}} ins(%[[SPLIT]], %{{.*}}, %[[D]] : {{.*}}attn.dims = ["b", "h", "g", "i"]
  // CHECK: math.exp
  // CHECK: arith.negf
  // CHECK: arith.select
  // CHECK: outs(%{{.*}} : tensor<2x2xf32>)
  // CHECK: tensor.collapse_shape {{.*}} tensor<2x2xf32> into tensor<4xf32>
  %dq, %dk, %dv, %dscale, %dsink =
      attn.backward %do, %q, %k, %k, %o, %lse lse_gradient(%dlse : tensor<?x4x?xf32>)
      scale(%scale : f32) sink(%sink : tensor<4xf32>)
      mask {
      ^bb0(%b: index, %h: index, %i: index, %j: index):
        %keep = arith.cmpi sge, %i, %j : index
        attn.yield %keep : i1
      } : tensor<?x4x?x16xbf16>, tensor<?x4x?x16xbf16>, tensor<?x2x?x16xbf16>, tensor<?x2x?x16xbf16>,
          tensor<?x4x?x16xbf16>, tensor<?x4x?xf32>
      -> tensor<?x4x?x16xbf16>, tensor<?x2x?x16xbf16>, tensor<?x2x?x16xbf16>
         scale(tensor<f32>) sink(tensor<4xf32>)
  return %dq, %dk, %dv, %dscale, %dsink
    : tensor<?x4x?x16xbf16>, tensor<?x2x?x16xbf16>, tensor<?x2x?x16xbf16>, tensor<f32>, tensor<4xf32>
}
