// RUN: attn-opt %s --attn-tabulate-masks --split-input-file --verify-diagnostics | FileCheck %s

// The number of the columns is carried by the loop itself, so no table can be
// made before it.
// CHECK-LABEL: func @carried
// CHECK-NOT: attn.tabulated
func.func @carried(%X: tensor<?xf32>, %rows: vector<4xi32>, %n: i32, %S: index) -> f32 {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<4xf32>
  // expected-remark @below {{mask is not projected: expected masks and loop bounds that follow from loop variables by pure arithmetic}}
  %s:2 = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %pad, %d = %n) -> (f32, i32) {
    %x = vector.transfer_read %X[%j0], %pad : tensor<?xf32>, vector<4xf32>
    %ds = vector.broadcast %d : i32 to vector<4xi32>
    %keep = arith.cmpi eq, %ds, %rows : vector<4xi32>
    %m = arith.select %keep, %x, %zeros : vector<4xi1>, vector<4xf32>
    %a1 = vector.reduction <add>, %m, %a : vector<4xf32> into f32
    %d1 = arith.addi %d, %n : i32
    scf.yield %a1, %d1 : f32, i32
  } {attn.fold_loop}
  return %s#0 : f32
}

// -----

// Tiles that are false everywhere must be neutral, as for projection.
func.func @not_neutral(%X: tensor<?xf32>, %D: tensor<?xi32>, %rows: vector<4xi32>, %S: index) -> f32 {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %pad32 = arith.constant 0 : i32
  %zeros = arith.constant dense<0.0> : vector<4xf32>
  // expected-note @below {{in this loop}}
  %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %pad) -> (f32) {
    %x = vector.transfer_read %X[%j0], %pad : tensor<?xf32>, vector<4xf32>
    %d = vector.transfer_read %D[%j0], %pad32 : tensor<?xi32>, vector<4xi32>
    %keep = arith.cmpi eq, %d, %rows : vector<4xi32>
    %m = arith.select %keep, %x, %zeros : vector<4xi1>, vector<4xf32>
    // expected-remark @below {{mask is not projected: expected -inf where the mask is false, got 0}}
    %a1 = vector.reduction <maxnumf>, %m, %a : vector<4xf32> into f32
    scf.yield %a1 : f32
  } {attn.fold_loop}
  return %s : f32
}

// -----

// A loop over columns that no other loop encloses has a table of one row.
// CHECK-LABEL: func @no_outer_loop
// CHECK: scf.forall (%{{.*}}) in (1) shared_outs
// CHECK: tensor<1x8xi32>
// CHECK: attn.tabulated
func.func @no_outer_loop(%X: tensor<32xf32>, %D: tensor<32xi32>, %rows: vector<4xi32>) -> f32 {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c32 = arith.constant 32 : index
  %pad = arith.constant 0.0 : f32
  %pad32 = arith.constant 0 : i32
  %zeros = arith.constant dense<0.0> : vector<4xf32>
  %s = scf.for %j0 = %c0 to %c32 step %c4 iter_args(%a = %pad) -> (f32) {
    %x = vector.transfer_read %X[%j0], %pad : tensor<32xf32>, vector<4xf32>
    %d = vector.transfer_read %D[%j0], %pad32 : tensor<32xi32>, vector<4xi32>
    %keep = arith.cmpi eq, %d, %rows : vector<4xi32>
    %m = arith.select %keep, %x, %zeros : vector<4xi1>, vector<4xf32>
    %a1 = vector.reduction <add>, %m, %a : vector<4xf32> into f32
    scf.yield %a1 : f32
  } {attn.fold_loop}
  return %s : f32
}

// -----

// What inequalities bound needs no table.
// CHECK-LABEL: func @affine
// CHECK-NOT: scf.forall
func.func @affine(%X: tensor<?xf32>, %S: index) -> f32 {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<4xf32>
  %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %pad) -> (f32) {
    %x = vector.transfer_read %X[%j0], %pad : tensor<?xf32>, vector<4xf32>
    %left = arith.subi %S, %j0 : index
    %keep = vector.create_mask %left : vector<4xi1>
    %m = arith.select %keep, %x, %zeros : vector<4xi1>, vector<4xf32>
    %a1 = vector.reduction <add>, %m, %a : vector<4xf32> into f32
    scf.yield %a1 : f32
  } {attn.fold_loop}
  return %s : f32
}
