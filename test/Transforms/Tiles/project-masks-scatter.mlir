// RUN: attn-opt %s --attn-project-masks --canonicalize | FileCheck %s

// Sums at computed indices: where the mask keeps nothing, zeros are added.
// CHECK-LABEL: func @zeros(
// CHECK: scf.for
// CHECK-NOT: arith.select
// CHECK: attn.scatter_add
// CHECK: } {attn.fold_loop, attn.full}
// CHECK: arith.select
// CHECK: attn.scatter_add
// CHECK: } {attn.fold_loop, attn.partial}
func.func @zeros(%X: tensor<?xf32>, %S: index, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<4xf32>
  %r = scf.for %j0 = %c0 to %S step %c4 iter_args(%t = %init) -> (tensor<?xf32>) {
    %x = vector.transfer_read %X[%j0], %pad : tensor<?xf32>, vector<4xf32>
    %js = vector.step : vector<4xindex>
    %jb = vector.broadcast %j0 : index to vector<4xindex>
    %j = arith.addi %js, %jb : vector<4xindex>
    %sb = vector.broadcast %S : index to vector<4xindex>
    %keep = arith.cmpi slt, %j, %sb : vector<4xindex>
    %m = arith.select %keep, %x, %zeros : vector<4xi1>, vector<4xf32>
    %t1 = attn.scatter_add %m at(%js) into %t : vector<4xf32>, tensor<?xf32> -> tensor<?xf32>
    scf.yield %t1 : tensor<?xf32>
  } {attn.fold_loop}
  return %r : tensor<?xf32>
}

// What is added does not change with the mask: the loop stays.
// CHECK-LABEL: func @others(
// CHECK: scf.for
// CHECK: arith.select
// CHECK: attn.scatter_add
// CHECK: } {attn.fold_loop}
// CHECK-NOT: scf.for
func.func @others(%X: tensor<?xf32>, %S: index, %init: tensor<?xf32>) -> (tensor<?xf32>, f32) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<4xf32>
  %r:2 = scf.for %j0 = %c0 to %S step %c4 iter_args(%t = %init, %a = %pad) -> (tensor<?xf32>, f32) {
    %x = vector.transfer_read %X[%j0], %pad : tensor<?xf32>, vector<4xf32>
    %js = vector.step : vector<4xindex>
    %jb = vector.broadcast %j0 : index to vector<4xindex>
    %j = arith.addi %js, %jb : vector<4xindex>
    %sb = vector.broadcast %S : index to vector<4xindex>
    %keep = arith.cmpi slt, %j, %sb : vector<4xindex>
    %m = arith.select %keep, %x, %zeros : vector<4xi1>, vector<4xf32>
    %a1 = vector.reduction <add>, %m, %a : vector<4xf32> into f32
    %t1 = attn.scatter_add %x at(%js) into %t : vector<4xf32>, tensor<?xf32> -> tensor<?xf32>
    scf.yield %t1, %a1 : tensor<?xf32>, f32
  } {attn.fold_loop}
  return %r#0, %r#1 : tensor<?xf32>, f32
}
