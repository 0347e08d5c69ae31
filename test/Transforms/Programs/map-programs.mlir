// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-map-programs,canonicalize))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-map-programs,canonicalize))" --remarks-filter=attn-map-programs -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}2 [Passed] mapped | Category:attn-map-programs{{$}}

// One tile in each dimension: canonicalisation leaves the loop. Where there are more tiles, it
// folds the dimensions that have one. What is divided among warpgroups stays as it is.
// CHECK-LABEL: func.func @one
// CHECK: scf.forall (%{{.*}}, %{{.*}}) in (1, 1) {
// CHECK: } {mapping = [#gpu.block<linear_dim_0>, #gpu.block<linear_dim_1>]}
func.func @one(%v: vector<64xf32>, %X: memref<1x64xf32>) {
  scf.forall (%i, %j) in (1, 1) {
    vector.transfer_write %v, %X[%i, %j] {in_bounds = [true]} : vector<64xf32>, memref<1x64xf32>
  }
  return
}

// CHECK-LABEL: func.func @more
// CHECK: scf.forall (%{{.*}}) in (4) {
// CHECK: scf.forall (%{{.*}}) in (1) {
// CHECK: } {mapping = [#gpu.warpgroup<linear_dim_0>]}
// CHECK-NOT: gpu.block
func.func @more(%v: vector<64xf32>, %X: memref<4x64xf32>) {
  %c0 = arith.constant 0 : index
  scf.forall (%i, %j) in (4, 1) {
    scf.forall (%w) in (1) {
      vector.transfer_write %v, %X[%i, %w] : vector<64xf32>, memref<4x64xf32>
    } {mapping = [#gpu.warpgroup<linear_dim_0>]}
  }
  return
}

// The bound is a number once it is computed.
// CHECK-LABEL: func.func @computed
// CHECK: scf.forall (%{{.*}}) in (1) {
// CHECK: } {mapping = [#gpu.block<linear_dim_0>]}
func.func @computed(%v: vector<64xf32>, %X: memref<1x64xf32>) {
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  %c8 = arith.constant 8 : index
  %q = arith.divui %c5, %c8 : index
  %b = arith.cmpi ult, %q, %c1 : index
  %s = arith.select %b, %c1, %c8 : index
  %n = arith.maxui %q, %s : index
  scf.forall (%i) in (%n) {
    vector.transfer_write %v, %X[%i, %i] {in_bounds = [false]} : vector<64xf32>, memref<1x64xf32>
  }
  return
}
