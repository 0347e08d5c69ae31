// RUN: attn-opt %s --attn-append-outputs | FileCheck %s
// RUN: attn-opt %s --attn-append-outputs --remarks-filter=attn-append-outputs -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}2 [Passed] appended | Category:attn-append-outputs{{$}}

// Two results that CSE gave one zero tensor to start from: each gets its own, so
// that each is computed in its own buffer.
// CHECK-LABEL: func @two
// CHECK-COUNT-2: tensor.empty
// CHECK: %[[A:.*]] = linalg.fill
// CHECK: %[[B:.*]] = linalg.fill
// CHECK-DAG: linalg.generic {{.*}} outs(%[[A]]
// CHECK-DAG: linalg.generic {{.*}} outs(%[[B]]
#id = affine_map<(d0) -> (d0)>
func.func @two(%x: tensor<?xf32>, %y: tensor<?xf32>, %n: index) -> (tensor<?xf32>, tensor<?xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%n) : tensor<?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<?xf32>) outs(%f : tensor<?xf32>) {
  ^bb0(%u: f32, %v: f32):
    %s = arith.addf %u, %v : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%y : tensor<?xf32>) outs(%f : tensor<?xf32>) {
  ^bb0(%u: f32, %v: f32):
    %s = arith.addf %u, %v : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %a, %b : tensor<?xf32>, tensor<?xf32>
}
