// RUN: attn-opt %s --attn-project-masks --canonicalize --split-input-file --mlir-print-local-scope | FileCheck %s
// RUN: attn-opt %s --attn-project-masks --canonicalize --split-input-file --mlir-print-local-scope --remarks-filter=attn-project-masks -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] no mask | Category:attn-project-masks{{$}}

// The roles swapped: a fold over tiles of rows for a fixed tile of columns, as
// for the gradients of keys and values. Causal begins at the diagonal, and all
// later tiles are full.
// CHECK-LABEL: func @column_sums
// CHECK: %[[LO:.*]] = affine.max affine_map<(d0) -> (((d0 - 7) ceildiv 8) * 8, 0)>
// CHECK: %[[FULL:.*]] = affine.max affine_map<(d0) -> (((d0 + 3) ceildiv 8) * 8, 0)>
// CHECK: scf.for %{{.*}} = %[[LO]] to %[[F0:.*]] step %c8
// CHECK: arith.select
// CHECK: } {attn.fold_loop, attn.partial}
// CHECK: scf.for %{{.*}} = %[[F0]] to %{{.*}} step %c8
// CHECK-NOT: arith.select
// CHECK: } {attn.fold_loop, attn.full}
// CHECK-NOT: attn.fold_loop
func.func @column_sums(%X: tensor<?x?xf32>, %S: index, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %zero = arith.constant dense<0.0> : vector<4xf32>
  %r = scf.for %j0 = %c0 to %S step %c4 iter_args(%out = %init) -> (tensor<?xf32>) {
    %js = vector.step : vector<4xindex>
    %jb = vector.broadcast %j0 : index to vector<4xindex>
    %j1 = arith.addi %js, %jb : vector<4xindex>
    %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
    %s = scf.for %i0 = %c0 to %S step %c8 iter_args(%a = %zero) -> (vector<4xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %is = vector.step : vector<8xindex>
      %ib = vector.broadcast %i0 : index to vector<8xindex>
      %i1 = arith.addi %is, %ib : vector<8xindex>
      %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
      %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
      %keep = arith.cmpi sge, %i, %j : vector<8x4xindex>
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [0] : vector<8x4xf32> to vector<4xf32>
      scf.yield %a1 : vector<4xf32>
    } {attn.fold_loop}
    %w = vector.transfer_write %s, %out[%j0] : vector<4xf32>, tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}

// -----

// Keys outside, rows inside: the state of the rows is in tensors. The reduction
// runs along the fixed columns, and is as neutral.
// CHECK-LABEL: func @state_in_tensors
// CHECK: %[[LO:.*]] = affine.max affine_map<(d0) -> (((d0 - 7) ceildiv 8) * 8, 0)>
// CHECK: scf.for %{{.*}} = %[[LO]] to %[[F0:.*]] step %c8
// CHECK: } {attn.fold_loop, attn.partial}
// CHECK: scf.for %{{.*}} = %[[F0]] to %{{.*}} step %c8
// CHECK-NOT: arith.select
// CHECK: } {attn.fold_loop, attn.full}
func.func @state_in_tensors(%X: tensor<?x?xf32>, %S: index, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %pad = arith.constant 0.0 : f32
  %ninf = arith.constant dense<0xFF800000> : vector<8x4xf32>
  %r = scf.for %j0 = %c0 to %S step %c4 iter_args(%out = %init) -> (tensor<?xf32>) {
    %js = vector.step : vector<4xindex>
    %jb = vector.broadcast %j0 : index to vector<4xindex>
    %j1 = arith.addi %js, %jb : vector<4xindex>
    %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
    %s = scf.for %i0 = %c0 to %S step %c8 iter_args(%t = %out) -> (tensor<?xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %is = vector.step : vector<8xindex>
      %ib = vector.broadcast %i0 : index to vector<8xindex>
      %i1 = arith.addi %is, %ib : vector<8xindex>
      %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
      %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
      %keep = arith.cmpi sge, %i, %j : vector<8x4xindex>
      %m = arith.select %keep, %x, %ninf : vector<8x4xi1>, vector<8x4xf32>
      %a = vector.transfer_read %t[%i0], %pad : tensor<?xf32>, vector<8xf32>
      %a1 = vector.multi_reduction <maxnumf>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      %w = vector.transfer_write %a1, %t[%i0] : vector<8xf32>, tensor<?xf32>
      scf.yield %w : tensor<?xf32>
    } {attn.fold_loop}
    scf.yield %s : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}

// -----

// A fold without a mask is full as it is.
// CHECK-LABEL: func @no_mask
// CHECK: } {attn.fold_loop, attn.full}
func.func @no_mask(%X: tensor<64xf32>) -> vector<f32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  %pad = arith.constant 0.0 : f32
  %s = scf.for %j0 = %c0 to %c64 step %c4 iter_args(%a = %pad) -> (f32) {
    %x = vector.transfer_read %X[%j0], %pad : tensor<64xf32>, vector<4xf32>
    %a1 = vector.reduction <add>, %x, %a : vector<4xf32> into f32
    scf.yield %a1 : f32
  } {attn.fold_loop}
  %r = vector.broadcast %s : f32 to vector<f32>
  return %r : vector<f32>
}
