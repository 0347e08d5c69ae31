// RUN: attn-opt %s -split-input-file --attn-order-factors | FileCheck %s
// RUN: attn-opt %s -split-input-file --attn-order-factors --remarks-filter=attn-order-factors -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}2 [Passed] ordered | Category:attn-order-factors{{$}}

#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
!t = vector<64x64xf32>

// What the second contraction does not need is multiplied in front of it, by constants, too.
// CHECK-LABEL: func.func @derivative(
// CHECK-SAME:    %[[Q:[^ ]*]]: vector<64x64xf32>, %[[K:[^ ]*]]: vector<64x64xf32>
// CHECK-DAG:     %[[ONE:.*]] = arith.constant dense<1.0
// CHECK-DAG:     %[[EIGHT:.*]] = arith.constant dense<8.0
// CHECK:         %[[S:.*]] = vector.contract {{.*}} %[[Q]], %[[K]]
// CHECK:         %[[T:.*]] = math.tanh %[[S]]
// CHECK:         %[[P:.*]] = math.exp2 %[[T]]
// CHECK:         %[[SQUARE:.*]] = arith.mulf %[[T]], %[[T]]
// CHECK:         %[[SLOPE:.*]] = arith.subf %[[ONE]], %[[SQUARE]]
// CHECK:         %[[PS:.*]] = arith.mulf %[[P]], %[[SLOPE]]
// CHECK:         %[[EARLY:.*]] = arith.mulf %[[PS]], %[[EIGHT]]
// CHECK:         %[[DP:.*]] = vector.contract
// CHECK:         %[[D:.*]] = arith.subf %[[DP]]
// CHECK-NEXT:    %[[DS:.*]] = arith.mulf %[[EARLY]], %[[D]]
// CHECK-NEXT:    return %[[DS]]
func.func @derivative(%q: !t, %k: !t, %do: !t, %v: !t, %delta: !t) -> !t {
  %zero = arith.constant dense<0.0> : !t
  %one = arith.constant dense<1.0> : !t
  %eight = arith.constant dense<8.0> : !t
  %s = vector.contract {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %q, %k, %zero : !t, !t into !t
  %t = math.tanh %s : !t
  %p = math.exp2 %t : !t
  %dp = vector.contract {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %do, %v, %zero : !t, !t into !t
  %d = arith.subf %dp, %delta : !t
  %dt = arith.mulf %p, %d : !t
  %square = arith.mulf %t, %t : !t
  %slope = arith.subf %one, %square : !t
  %scaled = arith.mulf %dt, %slope : !t
  %ds = arith.mulf %scaled, %eight : !t
  return %ds : !t
}

// -----

#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
!t = vector<64x64xf32>

// Stay: a product that something else needs, two factors, and what is read from memory that was written behind the
// contraction. What nobody writes is read in front of it.
// CHECK-LABEL: func.func @others(
// CHECK:         %[[P:.*]] = math.exp2
// CHECK:         %[[Y:.*]] = vector.transfer_read %arg3
// CHECK-NEXT:    %[[PY:.*]] = arith.mulf %[[P]], %[[Y]]
// CHECK-NEXT:    %[[DP:.*]] = vector.contract
// CHECK-NEXT:    %[[H:.*]] = arith.mulf %[[PY]], %[[DP]]
// CHECK-NEXT:    %[[DT:.*]] = arith.mulf %[[P]], %[[DP]]
// CHECK:         vector.transfer_write
// CHECK:         %[[X:.*]] = vector.transfer_read %arg2
// CHECK-NEXT:    %[[DS:.*]] = arith.mulf %[[DT]], %[[X]]
// CHECK-NEXT:    %[[F:.*]] = arith.mulf %[[P]], %[[DP]]
// CHECK-NEXT:    %[[G:.*]] = arith.mulf %[[F]], %[[X]]
// CHECK-NEXT:    return %[[DS]], %[[DT]], %[[G]], %[[H]]
func.func @others(%q: !t, %k: !t, %m: memref<64x64xf32>, %n: memref<64x64xf32>) -> (!t, !t, !t, !t) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : !t
  %s = vector.contract {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %q, %k, %zero : !t, !t into !t
  %p = math.exp2 %s : !t
  %dp = vector.contract {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %k, %q, %zero : !t, !t into !t
  %y = vector.transfer_read %n[%c0, %c0], %pad : memref<64x64xf32>, !t
  %pdp = arith.mulf %p, %dp : !t
  %h = arith.mulf %pdp, %y : !t
  %dt = arith.mulf %p, %dp : !t
  vector.transfer_write %dt, %m[%c0, %c0] : !t, memref<64x64xf32>
  %x = vector.transfer_read %m[%c0, %c0], %pad : memref<64x64xf32>, !t
  %ds = arith.mulf %dt, %x : !t
  %f = arith.mulf %p, %dp : !t
  %g = arith.mulf %f, %x : !t
  return %ds, %dt, %g, %h : !t, !t, !t, !t
}
