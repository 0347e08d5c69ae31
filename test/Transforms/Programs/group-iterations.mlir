// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-group-iterations{count=2}))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-group-iterations{count=2}))" --remarks-filter=attn-group-iterations -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-group-iterations{count=1}))" | FileCheck %s --check-prefix=ONE
// RUN: not attn-opt %s -pass-pipeline="builtin.module(func.func(attn-group-iterations{count=0}))" 2>&1 | FileCheck %s --check-prefix=NONE
// REMARKS: {{^ *}}1 [Passed] grouped | Category:attn-group-iterations
// ONE-NOT: arith.minsi
// NONE: error: expected count to be at least 1, got 0

// What is beyond the end reads at the last index, and is dropped.
// CHECK-LABEL: func.func @merge
// CHECK-SAME: %[[M:.*]]: memref<?x?xf32>, %{{.*}}: memref<?xf32>, %{{.*}}: index, %[[COUNT:.*]]: index)
// CHECK: %[[C2:.*]] = arith.constant 2 : index
// CHECK: %[[LAST:.*]] = arith.subi %[[COUNT]], %{{.*}} : index
// CHECK: scf.for %[[J:.*]] = %{{.*}} to %[[COUNT]] step %[[C2]] iter_args(%[[X:.*]] = %{{.*}}) -> (vector<64xf32>) {
// CHECK-NEXT: %[[Y0:.*]] = vector.transfer_read %[[M]][%[[J]], %{{.*}}]
// CHECK-NEXT: %[[Z0:.*]] = arith.maxnumf %[[X]], %[[Y0]]
// CHECK: %[[NEXT:.*]] = arith.addi %[[J]], %{{.*}} : index
// CHECK-NEXT: %[[IS_INSIDE:.*]] = arith.cmpi sle, %[[NEXT]], %[[LAST]] : index
// CHECK-NEXT: %[[PLACE:.*]] = arith.minsi %[[NEXT]], %[[LAST]] : index
// CHECK-NEXT: %[[Y1:.*]] = vector.transfer_read %[[M]][%[[PLACE]], %{{.*}}]
// CHECK-NEXT: %[[Z1:.*]] = arith.maxnumf %[[Z0]], %[[Y1]]
// CHECK-NEXT: %[[Z:.*]] = arith.select %[[IS_INSIDE]], %[[Z1]], %[[Z0]] : vector<64xf32>
// CHECK-NEXT: scf.yield %[[Z]]
func.func @merge(%m: memref<?x?xf32>, %o: memref<?xf32>, %n: index, %count: index) {
  %c1 = arith.constant 1 : index
  %f0 = arith.constant 0.0 : f32
  %rows = arith.constant dense<0.0> : vector<64xf32>
  scf.forall (%i) in (%n) {
    %r = scf.for %j = %c1 to %count step %c1 iter_args(%x = %rows) -> (vector<64xf32>) {
      %y = vector.transfer_read %m[%j, %i], %f0 : memref<?x?xf32>, vector<64xf32>
      %z = arith.maxnumf %x, %y : vector<64xf32>
      scf.yield %z : vector<64xf32>
    }
    vector.transfer_write %r, %o[%i] : vector<64xf32>, memref<?xf32>
  }
  return
}

// A loop that writes, one of a fold, one with another step, one that reads nothing.
// CHECK-LABEL: func.func @others
// CHECK-NOT: arith.minsi
func.func @others(%m: memref<?x?xf32>, %o: memref<?xf32>, %n: index, %count: index) {
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %f0 = arith.constant 0.0 : f32
  %rows = arith.constant dense<0.0> : vector<64xf32>
  scf.forall (%i) in (%n) {
    %r = scf.for %j = %c1 to %count step %c1 iter_args(%x = %rows) -> (vector<64xf32>) {
      %y = vector.transfer_read %m[%j, %i], %f0 : memref<?x?xf32>, vector<64xf32>
      vector.transfer_write %x, %o[%j] : vector<64xf32>, memref<?xf32>
      scf.yield %y : vector<64xf32>
    }
    %s = scf.for %j = %c1 to %count step %c1 iter_args(%x = %r) -> (vector<64xf32>) {
      %y = vector.transfer_read %m[%j, %i], %f0 : memref<?x?xf32>, vector<64xf32>
      %z = arith.maxnumf %x, %y : vector<64xf32>
      scf.yield %z : vector<64xf32>
    } {attn.fold_loop}
    %t = scf.for %j = %c1 to %count step %c4 iter_args(%x = %s) -> (vector<64xf32>) {
      %y = vector.transfer_read %m[%j, %i], %f0 : memref<?x?xf32>, vector<64xf32>
      %z = arith.maxnumf %x, %y : vector<64xf32>
      scf.yield %z : vector<64xf32>
    }
    %u = scf.for %j = %c1 to %count step %c1 iter_args(%x = %t) -> (vector<64xf32>) {
      %z = arith.addf %x, %x : vector<64xf32>
      scf.yield %z : vector<64xf32>
    }
    vector.transfer_write %u, %o[%i] : vector<64xf32>, memref<?xf32>
  }
  return
}
