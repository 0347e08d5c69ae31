// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-divide-columns{columns=16},canonicalize))" | FileCheck %s
// RUN: attn-opt %s -pass-pipeline="builtin.module(func.func(attn-divide-columns{columns=16}))" --remarks-filter=attn-divide-columns -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// RUN: not attn-opt %s -pass-pipeline="builtin.module(func.func(attn-divide-columns{columns=0}))" 2>&1 | FileCheck %s --check-prefix=NONE
// REMARKS: {{^ *}}1 [Passed] divided | Category:attn-divide-columns{{$}}
// NONE: error: expected columns to be at least 1, got 0

// Strips of 16 columns; rows are computed by each, and written by the first. As many rows as columns.
// CHECK-LABEL: func.func @merge
// CHECK: scf.forall (%[[I:.*]], %[[STRIP:.*]]) in (%{{.*}}, 4) {
// CHECK-DAG: %[[FIRST:.*]] = arith.muli %[[STRIP]], %c16
// CHECK-DAG: %[[IS_FIRST:.*]] = arith.cmpi eq, %[[STRIP]], %c0
// CHECK: scf.for {{.*}} -> (vector<64xf32>, vector<64x16xf32>)
// CHECK: vector.transfer_read %{{.*}}[%{{.*}}, %{{.*}}], %{{.*}} : memref<?x?xf32>, vector<64xf32>
// CHECK: vector.transfer_read %{{.*}}[%{{.*}}, %{{.*}}, %[[FIRST]]]{{.*}}vector<64x16xf32>
// CHECK: vector.broadcast %{{.*}} : vector<64xf32> to vector<16x64xf32>
// CHECK: arith.mulf %{{.*}} : vector<64x16xf32>
// CHECK: vector.transfer_write %{{.*}}[%{{.*}}, %[[FIRST]]]{{.*}}vector<64x16xf32>
// CHECK: scf.if %[[IS_FIRST]]
// CHECK-NEXT: vector.transfer_write %{{.*}} : vector<64xf32>
func.func @merge(%m: memref<?x?xf32>, %parts: memref<?x?x64xf32>, %o: memref<?x64xf32>, %sums: memref<?xf32>, %n: index, %count: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %f0 = arith.constant 0.0 : f32
  %rows = arith.constant dense<0.0> : vector<64xf32>
  %tile = arith.constant dense<0.0> : vector<64x64xf32>
  scf.forall (%i) in (%n) {
    %r:2 = scf.for %j = %c0 to %count step %c1 iter_args(%s = %rows, %x = %tile) -> (vector<64xf32>, vector<64x64xf32>) {
      %w = vector.transfer_read %m[%j, %i], %f0 : memref<?x?xf32>, vector<64xf32>
      %y = vector.transfer_read %parts[%j, %i, %c0], %f0 {in_bounds = [false, true]} : memref<?x?x64xf32>, vector<64x64xf32>
      %b = vector.broadcast %w : vector<64xf32> to vector<64x64xf32>
      %t = vector.transpose %b, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %z = arith.mulf %y, %t : vector<64x64xf32>
      %sum = arith.addf %x, %z : vector<64x64xf32>
      %total = arith.addf %s, %w : vector<64xf32>
      scf.yield %total, %sum : vector<64xf32>, vector<64x64xf32>
    }
    vector.transfer_write %r#1, %o[%i, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
    vector.transfer_write %r#0, %sums[%i] : vector<64xf32>, memref<?xf32>
  }
  return
}

// A sum along a row needs all of its columns.
// CHECK-LABEL: func.func @reduction
// CHECK: scf.forall (%{{.*}}) in (%{{.*}}) {
func.func @reduction(%parts: memref<?x?x64xf32>, %o: memref<?x64xf32>, %n: index, %count: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %f0 = arith.constant 0.0 : f32
  %rows = arith.constant dense<0.0> : vector<64xf32>
  %tile = arith.constant dense<0.0> : vector<64x64xf32>
  scf.forall (%i) in (%n) {
    %r = scf.for %j = %c0 to %count step %c1 iter_args(%x = %tile) -> (vector<64x64xf32>) {
      %y = vector.transfer_read %parts[%j, %i, %c0], %f0 {in_bounds = [false, true]} : memref<?x?x64xf32>, vector<64x64xf32>
      %s = vector.multi_reduction <add>, %y, %rows [1] : vector<64x64xf32> to vector<64xf32>
      %b = vector.broadcast %s : vector<64xf32> to vector<64x64xf32>
      %t = vector.transpose %b, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
      %sum = arith.addf %x, %t : vector<64x64xf32>
      scf.yield %sum : vector<64x64xf32>
    }
    vector.transfer_write %r, %o[%i, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
  }
  return
}

// A vector of columns is another one in each strip.
// CHECK-LABEL: func.func @of_columns
// CHECK: scf.forall (%{{.*}}) in (%{{.*}}) {
func.func @of_columns(%c: memref<64xf32>, %parts: memref<?x?x64xf32>, %o: memref<?x64xf32>, %n: index, %count: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %f0 = arith.constant 0.0 : f32
  %tile = arith.constant dense<0.0> : vector<64x64xf32>
  scf.forall (%i) in (%n) {
    %r = scf.for %j = %c0 to %count step %c1 iter_args(%x = %tile) -> (vector<64x64xf32>) {
      %y = vector.transfer_read %parts[%j, %i, %c0], %f0 {in_bounds = [false, true]} : memref<?x?x64xf32>, vector<64x64xf32>
      %w = vector.transfer_read %c[%c0], %f0 {in_bounds = [true]} : memref<64xf32>, vector<64xf32>
      %b = vector.broadcast %w : vector<64xf32> to vector<64x64xf32>
      %z = arith.mulf %y, %b : vector<64x64xf32>
      %sum = arith.addf %x, %z : vector<64x64xf32>
      scf.yield %sum : vector<64x64xf32>
    }
    vector.transfer_write %r, %o[%i, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
  }
  return
}

// A strip may read rows that the first one has written.
// CHECK-LABEL: func.func @in_place
// CHECK: scf.forall (%{{.*}}) in (%{{.*}}) {
func.func @in_place(%m: memref<?xf32>, %parts: memref<?x?x64xf32>, %o: memref<?x64xf32>, %n: index, %count: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %f0 = arith.constant 0.0 : f32
  %tile = arith.constant dense<0.0> : vector<64x64xf32>
  scf.forall (%i) in (%n) {
    %w = vector.transfer_read %m[%i], %f0 : memref<?xf32>, vector<64xf32>
    %b = vector.broadcast %w : vector<64xf32> to vector<64x64xf32>
    %t = vector.transpose %b, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
    %r = scf.for %j = %c0 to %count step %c1 iter_args(%x = %tile) -> (vector<64x64xf32>) {
      %y = vector.transfer_read %parts[%j, %i, %c0], %f0 {in_bounds = [false, true]} : memref<?x?x64xf32>, vector<64x64xf32>
      %z = arith.mulf %y, %t : vector<64x64xf32>
      %sum = arith.addf %x, %z : vector<64x64xf32>
      scf.yield %sum : vector<64x64xf32>
    }
    %twice = arith.addf %w, %w : vector<64xf32>
    vector.transfer_write %r, %o[%i, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
    vector.transfer_write %twice, %m[%i] : vector<64xf32>, memref<?xf32>
  }
  return
}

// 40 columns are no multiple of 16; 16 are one strip; without a loop there is nothing to wait for.
// CHECK-LABEL: func.func @others
// CHECK: scf.forall (%{{.*}}) in (%{{.*}}) {
// CHECK: scf.forall (%{{.*}}) in (%{{.*}}) {
// CHECK: scf.forall (%{{.*}}) in (%{{.*}}) {
func.func @others(%p40: memref<?x?x40xf32>, %o40: memref<?x40xf32>, %p16: memref<?x?x16xf32>, %o16: memref<?x16xf32>, %o64: memref<?x64xf32>, %n: index, %count: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %f0 = arith.constant 0.0 : f32
  %t40 = arith.constant dense<0.0> : vector<64x40xf32>
  %t16 = arith.constant dense<0.0> : vector<64x16xf32>
  %t64 = arith.constant dense<0.0> : vector<64x64xf32>
  scf.forall (%i) in (%n) {
    %r = scf.for %j = %c0 to %count step %c1 iter_args(%x = %t40) -> (vector<64x40xf32>) {
      %y = vector.transfer_read %p40[%j, %i, %c0], %f0 {in_bounds = [false, true]} : memref<?x?x40xf32>, vector<64x40xf32>
      %sum = arith.addf %x, %y : vector<64x40xf32>
      scf.yield %sum : vector<64x40xf32>
    }
    vector.transfer_write %r, %o40[%i, %c0] {in_bounds = [false, true]} : vector<64x40xf32>, memref<?x40xf32>
  }
  scf.forall (%i) in (%n) {
    %r = scf.for %j = %c0 to %count step %c1 iter_args(%x = %t16) -> (vector<64x16xf32>) {
      %y = vector.transfer_read %p16[%j, %i, %c0], %f0 {in_bounds = [false, true]} : memref<?x?x16xf32>, vector<64x16xf32>
      %sum = arith.addf %x, %y : vector<64x16xf32>
      scf.yield %sum : vector<64x16xf32>
    }
    vector.transfer_write %r, %o16[%i, %c0] {in_bounds = [false, true]} : vector<64x16xf32>, memref<?x16xf32>
  }
  scf.forall (%i) in (%n) {
    vector.transfer_write %t64, %o64[%i, %c0] {in_bounds = [false, true]} : vector<64x64xf32>, memref<?x64xf32>
  }
  return
}
