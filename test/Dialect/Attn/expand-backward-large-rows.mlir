// RUN: attn-opt %s --attn-expand=large-rows --canonicalize --cse --mlir-print-local-scope | FileCheck %s

// In a row without keys D is 0, and dO where the sum of its sizes, in place of D's, is large: as a
// whole row. Nothing but that sum and this choice reads dO itself.
// CHECK-LABEL: func @masked
// CHECK-SAME: (%[[DO:.*]]: tensor<1x2x?x16xf32>, %[[X:.*]]: tensor<1x2x?x16xf32>, %[[O:.*]]: tensor<1x2x?x16xf32>, %[[LSE:.*]]: tensor<1x2x?xf32>)
func.func @masked(%do: tensor<1x2x?x16xf32>, %x: tensor<1x2x?x16xf32>, %o: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) {
  // CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
  // CHECK-DAG: %[[INF:.*]] = arith.constant 0x7F800000 : f32
  // CHECK-DAG: %[[MOST:.*]] = arith.constant 4.2949673E+9 : f32
  // CHECK: %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[DO]], %[[O]], %[[LSE]] : {{.*}}attn.dims = ["b", "h", "i", "e"]
  // CHECK-NEXT: ^bb0(%[[IN:.*]]: f32, %[[OUT:.*]]: f32, %[[L:.*]]: f32, %[[ACC:.*]]: f32):
  // CHECK-DAG: %[[SIZE:.*]] = math.absf %[[L]]
  // CHECK-DAG: %[[DEAD:.*]] = arith.cmpf oeq, %[[SIZE]], %[[INF]]
  // CHECK-DAG: %[[ABS:.*]] = math.absf %[[IN]]
  // CHECK-DAG: %[[PRODUCT:.*]] = arith.mulf %[[IN]], %[[OUT]]
  // CHECK: %[[TERM:.*]] = arith.select %[[DEAD]], %[[ABS]], %[[PRODUCT]]
  // CHECK: arith.addf %[[ACC]], %[[TERM]]
  // CHECK: %[[KEPT:.*]] = linalg.generic {{.*}} ins(%[[DO]], %[[SUM]], %[[LSE]] : {{.*}}attn.dims = ["b", "h", "i", "e"]
  // CHECK-NEXT: ^bb0(%[[IN:.*]]: f32, %[[Z:.*]]: f32, %[[L:.*]]: f32, %{{.*}}: f32):
  // CHECK-DAG: %[[LARGE:.*]] = arith.cmpf uge, %[[Z]], %[[MOST]]
  // CHECK-DAG: %[[DEAD:.*]] = arith.cmpf oeq
  // CHECK: %[[BOTH:.*]] = arith.andi %[[LARGE]], %[[DEAD]]
  // CHECK: arith.select %[[BOTH]], %[[ZERO]], %[[IN]]
  // CHECK: %[[D:.*]] = linalg.generic {{.*}} ins(%[[SUM]], %[[LSE]] : {{.*}}attn.dims = ["b", "h", "i"]
  // CHECK: arith.select %{{.*}}, %[[ZERO]], %{{.*}}
  // CHECK-NOT: ins(%[[DO]]
  // CHECK: linalg.generic {{.*}} ins(%[[KEPT]], %{{.*}} : {{.*}}attn.dims = ["b", "h", "i", "j", "e"]
  // CHECK-NOT: ins(%[[DO]]
  // CHECK: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}}, %[[D]] : {{.*}}attn.dims = ["b", "h", "i", "j"]
  // CHECK-NOT: ins(%[[DO]]
  %dq, %dk, %dv = attn.backward %do, %x, %x, %x, %o, %lse
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %keep = arith.cmpi sge, %j, %i : index
      attn.yield %keep : i1
    } : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>,
        tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
  return %dq, %dk, %dv : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>
}

// A row whose LSE is the sink may have no key either: where O is 0, the sum is that of |dO|.
// CHECK-LABEL: func @sink
// CHECK-SAME: %[[SINK:[^ ]*]]: tensor<2xf32>
func.func @sink(%do: tensor<1x2x?x16xbf16>, %x: tensor<1x2x?x16xbf16>, %o: tensor<1x2x?x16xbf16>,
                %lse: tensor<1x2x?xf32>, %dlse: tensor<1x2x?xf32>, %sink: tensor<2xf32>)
    -> (tensor<1x2x?x16xbf16>, tensor<1x2x?x16xbf16>, tensor<1x2x?x16xbf16>) {
  // CHECK: %[[SUM:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %{{.*}}, %{{.*}}, %[[SINK]] : {{.*}}attn.dims = ["b", "h", "i", "e"]
  // CHECK-NEXT: ^bb0(%{{.*}}: bf16, %{{.*}}: bf16, %[[L:.*]]: f32, %[[S:.*]]: f32, %{{.*}}: f32):
  // CHECK-COUNT-2: arith.extf
  // CHECK: arith.subf %[[L]], %[[S]]
  // CHECK: %[[NEAR:.*]] = arith.cmpf ole
  // CHECK: %[[NO:.*]] = arith.cmpf oeq
  // CHECK: arith.andi %[[NEAR]], %[[NO]]
  // CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[SUM]], %{{.*}}, %[[SINK]] : {{.*}}attn.dims = ["b", "h", "i", "e"]
  // CHECK-NEXT: ^bb0(%[[IN:.*]]: bf16, %{{.*}}: f32, %{{.*}}: f32, %{{.*}}: f32, %{{.*}}: bf16):
  // CHECK: arith.select %{{.*}}, %{{.*}}, %[[IN]] : bf16
  // CHECK: linalg.generic {{.*}} ins(%[[SUM]], %{{.*}}, %[[SINK]], %{{.*}} : {{.*}}attn.dims = ["b", "h", "i"]
  // CHECK: arith.subf
  %dq, %dk, %dv = attn.backward %do, %x, %x, %x, %o, %lse lse_gradient(%dlse : tensor<1x2x?xf32>) sink(%sink : tensor<2xf32>)
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %keep = arith.cmpi sge, %j, %i : index
      attn.yield %keep : i1
    } : tensor<1x2x?x16xbf16>, tensor<1x2x?x16xbf16>, tensor<1x2x?x16xbf16>, tensor<1x2x?x16xbf16>,
        tensor<1x2x?x16xbf16>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xbf16>, tensor<1x2x?x16xbf16>, tensor<1x2x?x16xbf16>
  return %dq, %dk, %dv : tensor<1x2x?x16xbf16>, tensor<1x2x?x16xbf16>, tensor<1x2x?x16xbf16>
}
