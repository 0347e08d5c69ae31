// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-normalize-statements))" -split-input-file | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-normalize-statements))" -split-input-file --remarks-filter=attn-normalize-statements -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] decomposed | Category:attn-normalize-statements{{$}}
// REMARKS-DAG: {{^ *}}1 [Passed] dimensions dropped | Category:attn-normalize-statements{{$}}
// REMARKS-DAG: {{^ *}}1 [Passed] generalized | Category:attn-normalize-statements{{$}}
// REMARKS-DAG: {{^ *}}1 [Passed] start changed | Category:attn-normalize-statements{{$}}

// A softmax is its statements; a maximum that starts at NaN starts at -inf.
// CHECK-LABEL: func.func @softmax
// CHECK-DAG:   %[[INF:.*]] = arith.constant 0xFF800000 : f32
// CHECK-NOT:   linalg.softmax
// CHECK:       linalg.fill ins(%[[INF]] : f32)
// CHECK:       linalg.generic
// CHECK:         arith.maxnumf
// CHECK:       math.exp
// CHECK:       arith.divf
func.func @softmax(%x: tensor<4x16x24xf32>) -> tensor<4x16x24xf32> {
  %e = tensor.empty() : tensor<4x16x24xf32>
  %y = linalg.softmax dimension(1) ins(%x : tensor<4x16x24xf32>) outs(%e : tensor<4x16x24xf32>) -> tensor<4x16x24xf32>
  return %y : tensor<4x16x24xf32>
}

// -----

// A named op is a statement like any other; a fill stays.
// CHECK-LABEL: func.func @matmul
// CHECK:       linalg.fill
// CHECK:       linalg.generic
// CHECK-NOT:   linalg.matmul
func.func @matmul(%a: tensor<4x8xf32>, %b: tensor<8x6xf32>) -> tensor<4x6xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x6xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
  %c = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>) outs(%z : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %c : tensor<4x6xf32>
}

// -----

#p = affine_map<(i, j) -> (i, j)>
#r = affine_map<(i, j) -> (i, 0)>
// A dimension that a reduction keeps is dropped, and with it the reshapes between.
// CHECK-LABEL: func.func @kept
// CHECK:       %[[M:.*]] = linalg.generic {{.*}} ins(%{{.*}} : tensor<8x16xf32>) outs(%{{.*}} : tensor<8xf32>)
// CHECK-NOT:   tensor.expand_shape
// CHECK:       linalg.generic {{.*}} ins(%{{.*}}, %[[M]] : tensor<8x16xf32>, tensor<8xf32>)
func.func @kept(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x1xf32>
  %m0 = linalg.fill ins(%zero : f32) outs(%e : tensor<8x1xf32>) -> tensor<8x1xf32>
  %m = linalg.generic {indexing_maps = [#p, #r], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<8x16xf32>) outs(%m0 : tensor<8x1xf32>) {
  ^bb0(%a: f32, %s: f32):
    %y = arith.addf %a, %s : f32
    linalg.yield %y : f32
  } -> tensor<8x1xf32>
  %o = tensor.empty() : tensor<8x16xf32>
  %d = linalg.generic {indexing_maps = [#p, #r, #p], iterator_types = ["parallel", "parallel"]}
    ins(%x, %m : tensor<8x16xf32>, tensor<8x1xf32>) outs(%o : tensor<8x16xf32>) {
  ^bb0(%a: f32, %s: f32, %_: f32):
    %y = arith.divf %a, %s : f32
    linalg.yield %y : f32
  } -> tensor<8x16xf32>
  return %d : tensor<8x16xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#unit = affine_map<(i, j) -> (0, j)>
// Other dimensions of size 1 stay: loops run over them.
// CHECK-LABEL: func.func @batch
// CHECK:       linalg.generic {{.*}} ins(%{{.*}} : tensor<1x16xf32>) outs(%{{.*}} : tensor<1x16xf32>)
func.func @batch(%x: tensor<1x16xf32>) -> tensor<1x16xf32> {
  %o = tensor.empty() : tensor<1x16xf32>
  %d = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<1x16xf32>) outs(%o : tensor<1x16xf32>) {
  ^bb0(%a: f32, %_: f32):
    %y = arith.addf %a, %a : f32
    linalg.yield %y : f32
  } -> tensor<1x16xf32>
  return %d : tensor<1x16xf32>
}
