// RUN: attn-opt %s --attn-expand-parts --remarks-filter=attn-expand-parts 2>/dev/null | FileCheck %s
// RUN: attn-opt %s --attn-expand-parts --remarks-filter=attn-expand-parts 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK
// REMARK: remark: [Passed] expanded | Category:attn-expand-parts

// Bounds that all programs share are computed in front of them.
// CHECK-LABEL: func.func @shared(%arg0: index, %arg1: index
// CHECK:         %[[TILES:.*]] = arith.ceildivui %{{.*}}, %c128
// CHECK:         %[[MOST:.*]] = arith.ceildivui %[[TILES]], %arg1
// CHECK:         scf.forall (%[[P:.*]]) in (%arg1)
// CHECK-NEXT:      %[[FIRST:.*]] = arith.muli %[[P]], %[[MOST]]
// CHECK-NEXT:      %[[TILE:.*]] = arith.minui %[[FIRST]], %[[TILES]]
// CHECK-NEXT:      %[[OFFSET:.*]] = arith.muli %[[TILE]], %c128
// CHECK:           %[[BEGIN:.*]] = arith.minsi %{{.*}}, %arg0
// CHECK:           %[[END:.*]] = arith.minsi %{{.*}}, %arg0
// CHECK:           scf.for %{{.*}} = %[[BEGIN]] to %[[END]]
func.func @shared(%n: index, %parts: index, %m: memref<?xf32>, %x: f32) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  scf.forall (%p) in (%parts) {
    %begin, %end = attn.part %p of %parts from %c0 to %n step 128
    scf.for %j = %begin to %end step %c128 {
      memref.store %x, %m[%j] : memref<?xf32>
    }
  }
  return
}

// Those of a program in it.
// CHECK-LABEL: func.func @own
// CHECK:         scf.forall
// CHECK:           arith.ceildivui
// CHECK:           arith.ceildivui
// CHECK:           scf.for
func.func @own(%n: index, %parts: index, %m: memref<?xf32>, %x: f32) {
  %c128 = arith.constant 128 : index
  scf.forall (%i, %p) in (%n, %parts) {
    %begin, %end = attn.part %p of %parts from %i to %n step 128
    scf.for %j = %begin to %end step %c128 {
      memref.store %x, %m[%j] : memref<?xf32>
    }
  }
  return
}
