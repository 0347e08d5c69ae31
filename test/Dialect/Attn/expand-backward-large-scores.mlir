// RUN: attn-opt %s --attn-expand=large-scores --canonicalize --mlir-print-local-scope | FileCheck %s

// Where a row has a finite LSE of 256 or more in size, weights are exp((t - m) - log l), with m and l of a softmax
// of its own; else m is LSE and log l is 0. The sink is one of the scores, and its weight is made alike.
// CHECK-LABEL: func @sink
// CHECK-SAME: %[[LSE:[a-z0-9]+]]: tensor<1x2x?xf32>, %[[SINK:[a-z0-9]+]]: tensor<2xf32>
func.func @sink(%do: tensor<1x2x?x16xf32>, %x: tensor<1x2x?x16xf32>, %o: tensor<1x2x?x16xf32>, %lse: tensor<1x2x?xf32>, %sink: tensor<2xf32>)
    -> (tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<2xf32>) {
  // CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
  // CHECK-DAG: %[[INF:.*]] = arith.constant 0x7F800000 : f32
  // CHECK-DAG: %[[LEAST:.*]] = arith.constant 2.560000e+02 : f32
  // CHECK: %[[LARGEST:.*]] = linalg.generic {{.*}} ins(%[[LSE]] : {{.*}}attn.dims = ["b", "h", "i"]
  // CHECK-NEXT: ^bb0(%[[L:.*]]: f32, %[[ACC:.*]]: f32):
  // CHECK-DAG: %[[SIZE:.*]] = math.absf %[[L]]
  // CHECK-DAG: %[[IS:.*]] = arith.cmpf oge, %{{.*}}, %[[LEAST]]
  // CHECK-DAG: %[[FINITE:.*]] = arith.cmpf one, %{{.*}}, %[[INF]]
  // CHECK: %[[BOTH:.*]] = arith.andi %[[IS]], %[[FINITE]]
  // CHECK: %[[OR0:.*]] = arith.select %[[BOTH]], %{{.*}}, %[[ZERO]]
  // CHECK: arith.maxnumf %[[ACC]], %[[OR0]]
  // CHECK: %[[ELEMENT:.*]] = tensor.extract %[[LARGEST]][]
  // CHECK: %[[ANY:.*]] = arith.cmpf one, %[[ELEMENT]], %[[ZERO]]
  // CHECK: %[[PARTS:.*]]:2 = scf.if %[[ANY]] -> (tensor<1x2x?xf32>, tensor<1x2x?xf32>) {
  // The sink in the maximum, then in the sum.
  // CHECK: arith.maxnumf
  // CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[SINK]] : {{.*}}attn.dims = ["b", "h", "i"]
  // CHECK-NEXT: ^bb0
  // CHECK-NEXT: arith.maxnumf
  // CHECK: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}}, %[[SINK]] : {{.*}}attn.dims = ["b", "h", "i"]
  // CHECK: math.exp
  // CHECK-NEXT: arith.addf
  // CHECK: %[[SHIFT:.*]] = linalg.generic {{.*}} ins(%[[LSE]], %{{.*}} :
  // CHECK-NEXT: ^bb0(%[[L:.*]]: f32, %[[M:.*]]: f32, %{{.*}}: f32):
  // CHECK: arith.select %{{.*}}, %[[M]], %[[L]]
  // CHECK: %[[LOG:.*]] = linalg.generic {{.*}} ins(%[[LSE]], %{{.*}} :
  // CHECK-NEXT: ^bb0(%[[L:.*]]: f32, %[[SUM:.*]]: f32, %{{.*}}: f32):
  // CHECK: %[[OF:.*]] = math.log %[[SUM]]
  // CHECK: arith.select %{{.*}}, %[[OF]], %[[ZERO]]
  // CHECK: scf.yield %[[SHIFT]], %[[LOG]]
  // CHECK: } else {
  // CHECK: scf.yield %[[LSE]], %{{.*}}
  // CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[PARTS]]#0, %[[PARTS]]#1 : {{.*}}attn.dims = ["b", "h", "i", "j"]
  // CHECK-NEXT: ^bb0(%[[T:.*]]: f32, %[[M:.*]]: f32, %[[L:.*]]: f32, %{{.*}}: f32):
  // CHECK: %[[BY:.*]] = arith.subf %[[T]], %{{.*}}
  // CHECK: %[[REST:.*]] = arith.subf %[[BY]], %[[L]]
  // CHECK: math.exp %[[REST]]
  // CHECK: linalg.generic {{.*}} ins(%[[SINK]], %[[PARTS]]#0, %[[PARTS]]#1, %{{.*}} : {{.*}}attn.dims = ["b", "h", "i"]
  %dq, %dk, %dv, %dsink = attn.backward %do, %x, %x, %x, %o, %lse
      sink(%sink : tensor<2xf32>) : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>,
        tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> sink(tensor<2xf32>)
  return %dq, %dk, %dv, %dsink : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<2xf32>
}
