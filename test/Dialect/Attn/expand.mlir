// RUN: attn-opt %s --attn-expand --canonicalize --cse | FileCheck %s
// RUN: attn-opt %s --attn-expand --canonicalize --cse --remarks-filter=attn-expand -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}5 [Passed] expanded | Category:attn-expand{{$}}

// One statement per line of the definition, in the order scale, score, mask.
// CHECK-DAG: #[[$Q:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
// CHECK-DAG: #[[$K:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
// CHECK-LABEL: func @causal
// CHECK-SAME: (%[[QT:.*]]: tensor<1x2x?x64xf32>, %[[KT:.*]]: tensor<1x2x?x64xf32>, %[[VT:.*]]: tensor<1x2x?x32xf32>)
func.func @causal(%q: tensor<1x2x?x64xf32>, %k: tensor<1x2x?x64xf32>, %v: tensor<1x2x?x32xf32>)
    -> (tensor<1x2x?x32xf32>, tensor<1x2x?xf32>) {
  // CHECK: %[[S:.*]] = linalg.generic {indexing_maps = [#[[$Q]], #[[$K]], #{{.*}}]{{.*}} ins(%[[QT]], %[[KT]]
  // CHECK-SAME: attn.dims = ["b", "h", "i", "j", "d"]
  // CHECK: %[[T:.*]] = linalg.generic {{.*}} ins(%[[S]] :
  // CHECK: arith.mulf %{{.*}}, %[[SCALE:.*]] : f32
  // CHECK: %[[U:.*]] = linalg.generic {{.*}} ins(%[[T]] :
  // CHECK: arith.cmpi sge
  // CHECK: arith.select %{{.*}}, %{{.*}}, %[[NINF:.*]] : f32
  // CHECK: %[[M:.*]] = linalg.generic {{.*}}"reduction"]} ins(%[[U]] :
  // CHECK: arith.maxnumf
  // CHECK: %[[MS:.*]] = linalg.generic {{.*}} ins(%[[M]] :
  // CHECK: arith.cmpf oeq
  // CHECK: %[[P:.*]] = linalg.generic {{.*}} ins(%[[U]], %[[MS]] :
  // CHECK: math.exp
  // CHECK: %[[L:.*]] = linalg.generic {{.*}} ins(%[[P]] :
  // CHECK: %[[A:.*]] = linalg.generic {{.*}} ins(%[[P]], %[[VT]] :
  // CHECK-SAME: attn.dims = ["b", "h", "i", "j", "e"]
  // CHECK: %[[O:.*]] = linalg.generic {{.*}} ins(%[[A]], %[[L]] :
  // CHECK: arith.divf
  // CHECK: %[[LSE:.*]] = linalg.generic {{.*}} ins(%[[MS]], %[[L]] :
  // CHECK: math.log
  // CHECK: return %[[O]], %[[LSE]]
  %o, %lse = attn.forward %q, %k, %v scale 0.5 mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %keep = arith.cmpi sge, %i, %j : index
    attn.yield %keep : i1
  } : tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x32xf32> -> tensor<1x2x?x32xf32>, tensor<1x2x?xf32>
  return %o, %lse : tensor<1x2x?x32xf32>, tensor<1x2x?xf32>
}

// Query heads are split into (key head, group), whatever the sizes; 16-bit
// inputs are extended before the product and the result is rounded once.
// CHECK-LABEL: func @grouped
func.func @grouped(%q: tensor<?x?x?x40xbf16>, %k: tensor<?x?x?x40xbf16>, %v: tensor<?x?x?x40xbf16>) -> tensor<?x?x?x40xbf16> {
  // CHECK: arith.divui %{{.*}} {attn.expected_size = 4 : i64} : index
  // CHECK: tensor.expand_shape %{{.*}} {{\[\[}}0], [1, 2], [3], [4]]
  // CHECK: attn.dims = ["b", "h", "g", "i", "j", "d"]
  // CHECK-COUNT-2: arith.extf %{{.*}} : bf16 to f32
  // CHECK: arith.truncf %{{.*}} : f32 to bf16
  // CHECK: tensor.collapse_shape
  %o = attn.forward %q, %k, %v : tensor<?x?x?x40xbf16>, tensor<?x?x?x40xbf16>, tensor<?x?x?x40xbf16> -> tensor<?x?x?x40xbf16>
  return %o : tensor<?x?x?x40xbf16>
}

// The sink is one more score of every row: in the maximum and in the sum.
// CHECK-LABEL: func @sink
func.func @sink(%q: tensor<1x2x8x16xf32>, %s: tensor<2xf32>) -> tensor<1x2x8x16xf32> {
  // CHECK: arith.maxnumf
  // CHECK: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<1x2x8xf32>, tensor<2xf32>)
  // CHECK: arith.maxnumf
  // CHECK: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<1x2x8xf32>, tensor<1x2x8xf32>, tensor<2xf32>)
  // CHECK: math.exp
  %o = attn.forward %q, %q, %q sink(%s : tensor<2xf32>) : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32> -> tensor<1x2x8x16xf32>
  return %o : tensor<1x2x8x16xf32>
}

// CHECK-LABEL: func @softmax
func.func @softmax(%x: tensor<4x5x?xf16>) -> tensor<4x5x?xf16> {
  // CHECK: attn.dims = ["b0", "i", "j"]
  // CHECK-NOT: attn.softmax
  // CHECK: arith.truncf %{{.*}} : f32 to f16
  %y = attn.softmax %x : tensor<4x5x?xf16>
  return %y : tensor<4x5x?xf16>
}

// As many key heads as query heads: nothing is divided.
// CHECK-LABEL: func @ungrouped
// CHECK-NOT:     arith.divui
// CHECK-NOT:     tensor.expand_shape
// CHECK:         return
func.func @ungrouped(%q: tensor<?x?x?x16xf32>, %k: tensor<?x?x?x16xf32>) -> tensor<?x?x?x16xf32> {
  %o = attn.forward %q, %k, %k {ungrouped} : tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32> -> tensor<?x?x?x16xf32>
  return %o : tensor<?x?x?x16xf32>
}
