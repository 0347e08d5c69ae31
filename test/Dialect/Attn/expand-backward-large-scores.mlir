// RUN: attn-opt %s --attn-expand=large-scores=branch --canonicalize --mlir-print-local-scope | FileCheck %s
// RUN: attn-opt %s --attn-expand=large-scores=rows --canonicalize --mlir-print-local-scope | FileCheck %s --check-prefix=ROWS
// RUN: not attn-opt %s --attn-expand=large-scores=no 2>&1 | FileCheck %s --check-prefix=ERROR
// ERROR: error: large-scores is one of inexact, branch, rows; got 'no'

// ROWS-LABEL: func @sink
// ROWS-NOT: scf.if
// ROWS: math.log
// ROWS: ^bb0(%[[T:.*]]: f32, %{{.*}}: f32, %[[M:.*]]: f32, %[[LOG:.*]]: f32, %{{.*}}: f32):
// ROWS: math.exp
// ROWS: %[[D:.*]] = arith.subf %[[T]], %[[M]]
// ROWS: arith.subf %[[D]], %[[LOG]]
// ROWS: %[[EXACT:.*]] = math.exp
// ROWS: arith.select %{{.*}}, %[[EXACT]], %{{.*}}

// Rows that have a finite LSE of 256 or more in size have weights exp((t - m) - log l), with m and l of a softmax
// of their own, which is computed where there is such a row. The sink is one of the scores, and its weight is made alike.
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
  // CHECK: %[[LOG:.*]] = linalg.generic {{.*}}attn.dims = ["b", "h", "i"]
  // CHECK-NEXT: ^bb0(%[[SUM:.*]]: f32, %{{.*}}: f32):
  // CHECK-NEXT: %[[OF:.*]] = math.log %[[SUM]]
  // CHECK-NEXT: linalg.yield %[[OF]]
  // CHECK: scf.yield %{{.*}}, %[[LOG]]
  // CHECK: } else {
  // CHECK: scf.yield %[[LSE]], %{{.*}}
  // CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[LSE]], %[[PARTS]]#0, %[[PARTS]]#1 : {{.*}}attn.dims = ["b", "h", "i", "j"]
  // CHECK-NEXT: ^bb0(%[[T:.*]]: f32, %[[L:.*]]: f32, %[[M:.*]]: f32, %[[LOGSUM:.*]]: f32, %{{.*}}: f32):
  // CHECK: %[[PLAIN:.*]] = arith.subf %[[T]]
  // CHECK: %[[BY:.*]] = arith.subf %[[T]], %[[M]]
  // CHECK: %[[EXACT:.*]] = arith.subf %[[BY]], %[[LOGSUM]]
  // CHECK: %[[IS:.*]] = arith.andi
  // CHECK: %[[EXPONENT:.*]] = arith.select %[[IS]], %[[EXACT]], %[[PLAIN]]
  // CHECK: math.exp %[[EXPONENT]]
  // CHECK: linalg.generic {{.*}} ins(%[[SINK]], %[[LSE]], %[[PARTS]]#0, %[[PARTS]]#1, %{{.*}} : {{.*}}attn.dims = ["b", "h", "i"]
  %dq, %dk, %dv, %dsink = attn.backward %do, %x, %x, %x, %o, %lse
      sink(%sink : tensor<2xf32>) : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>,
        tensor<1x2x?x16xf32>, tensor<1x2x?xf32>
    -> tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32> sink(tensor<2xf32>)
  return %dq, %dk, %dv, %dsink : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>, tensor<2xf32>
}
