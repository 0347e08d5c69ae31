// RUN: attn-opt %s --attn-project-masks --canonicalize --split-input-file --mlir-print-local-scope | FileCheck %s

// Tiles of 8 rows and 4 columns; bounds are in elements.

// Prefix or causal: both parts begin at the left, so the union has no gap.
// CHECK-LABEL: func @prefix(
func.func @prefix(%X: tensor<?x?xf32>, %S: index, %P: tensor<?xi32>, %b: index, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %r = scf.for %i0 = %c0 to %S step %c8 iter_args(%out = %init) -> (tensor<?xf32>) {
    %is = vector.step : vector<8xindex>
    %ib = vector.broadcast %i0 : index to vector<8xindex>
    %i1 = arith.addi %is, %ib : vector<8xindex>
    // CHECK: %[[SEEN:.*]] = affine.min affine_map<{{.*}} -> (((d0 - 1) floordiv 4) * 4 + 4, s0)>
    // CHECK: %[[CAUSAL:.*]] = affine.min affine_map<{{.*}} -> (((d0 + 7) floordiv 4) * 4 + 4, s0)>
    // CHECK: %[[HI:.*]] = arith.maxsi %[[SEEN]], %[[CAUSAL]]
    // CHECK: %[[F1:.*]] = arith.maxsi %{{.*}}, %c0
    // CHECK: scf.for %{{.*}} = %c0 to %[[F1]] step %c4
    // CHECK-NOT: arith.select
    // CHECK: } {attn.fold_loop, attn.full}
    // CHECK: scf.for %{{.*}} = %[[F1]] to %[[HI]] step %c4
    // CHECK-NOT: scf.if
    // CHECK: } {attn.fold_loop, attn.partial}
    // CHECK-NOT: attn.fold_loop
    %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %zero) -> (vector<8xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
      %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
      %js = vector.step : vector<4xindex>
      %jb = vector.broadcast %j0 : index to vector<4xindex>
      %j1 = arith.addi %js, %jb : vector<4xindex>
      %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
      %pe = tensor.extract %P[%b] : tensor<?xi32>
      %p = arith.index_cast %pe : i32 to index
      %pb = vector.broadcast %p : index to vector<8x4xindex>
      %seen = arith.cmpi slt, %j, %pb : vector<8x4xindex>
      %causal = arith.cmpi sge, %i, %j : vector<8x4xindex>
      %keep = arith.ori %seen, %causal : vector<8x4xi1>
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %a1 : vector<8xf32>
    } {attn.fold_loop}
    %w = vector.transfer_write %s, %out[%i0] : vector<8xf32>, tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}

// -----

// Bounds loaded per row: the least and the greatest of the tile's rows count.
// CHECK-LABEL: func @row_bounds(
func.func @row_bounds(%X: tensor<?x?xf32>, %S: index, %lo: tensor<?xi32>, %hi: tensor<?xi32>, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %r = scf.for %i0 = %c0 to %S step %c8 iter_args(%out = %init) -> (tensor<?xf32>) {
    %is = vector.step : vector<8xindex>
    %ib = vector.broadcast %i0 : index to vector<8xindex>
    %i1 = arith.addi %is, %ib : vector<8xindex>
    // CHECK: %[[LEAST:.*]] = vector.reduction <minsi>
    // CHECK: %[[LO:.*]] = affine.max affine_map<(d0) -> (((d0 - 3) ceildiv 4) * 4, 0)>
    // CHECK: %[[MOST:.*]] = vector.reduction <maxsi>
    // CHECK: %[[END:.*]] = affine.min affine_map<{{.*}} -> (((d0 - 1) floordiv 4) * 4 + 4, s0)>
    // CHECK: %[[HI:.*]] = arith.select %{{.*}}, %[[END]], %[[LO]]
    // CHECK: vector.reduction <maxsi>
    // CHECK: vector.reduction <minsi>
    // CHECK: scf.for %{{.*}} = %[[LO]] to %[[F0:.*]] step %c4
    // CHECK: arith.select
    // CHECK: } {attn.fold_loop, attn.partial}
    // CHECK: scf.for %{{.*}} = %[[F0]] to %[[F1:.*]] step %c4
    // CHECK-NOT: arith.select
    // CHECK: } {attn.fold_loop, attn.full}
    // CHECK: scf.for %{{.*}} = %[[F1]] to %[[HI]] step %c4
    // CHECK: arith.select
    // CHECK: } {attn.fold_loop, attn.partial}
    // CHECK-NOT: attn.fold_loop
    %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %zero) -> (vector<8xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
      %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
      %js = vector.step : vector<4xindex>
      %jb = vector.broadcast %j0 : index to vector<4xindex>
      %j1 = arith.addi %js, %jb : vector<4xindex>
      %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
      %pad32 = arith.constant 0 : i32
      %l1 = vector.transfer_read %lo[%i0], %pad32 : tensor<?xi32>, vector<8xi32>
      %h1 = vector.transfer_read %hi[%i0], %pad32 : tensor<?xi32>, vector<8xi32>
      %lt = vector.broadcast %l1 : vector<8xi32> to vector<4x8xi32>
      %ht = vector.broadcast %h1 : vector<8xi32> to vector<4x8xi32>
      %l = vector.transpose %lt, [1, 0] : vector<4x8xi32> to vector<8x4xi32>
      %h = vector.transpose %ht, [1, 0] : vector<4x8xi32> to vector<8x4xi32>
      %j32 = arith.index_cast %j : vector<8x4xindex> to vector<8x4xi32>
      %after = arith.cmpi sge, %j32, %l : vector<8x4xi32>
      %before = arith.cmpi slt, %j32, %h : vector<8x4xi32>
      %keep = arith.andi %after, %before : vector<8x4xi1>
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %a1 : vector<8xf32>
    } {attn.fold_loop}
    %w = vector.transfer_write %s, %out[%i0] : vector<8xf32>, tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}

// -----

// Chunks: a quotient by a constant is monotone.
// CHECK-LABEL: func @chunks(
func.func @chunks(%X: tensor<?x?xf32>, %S: index, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %r = scf.for %i0 = %c0 to %S step %c8 iter_args(%out = %init) -> (tensor<?xf32>) {
    %is = vector.step : vector<8xindex>
    %ib = vector.broadcast %i0 : index to vector<8xindex>
    %i1 = arith.addi %is, %ib : vector<8xindex>
    // CHECK: %[[LO:.*]] = affine.max affine_map<(d0) -> ((((d0 floordiv 16) * 16 - 3) ceildiv 4) * 4, 0)>
    // CHECK: affine.min affine_map<{{.*}} -> (((d0 + 7) floordiv 16) * 16 + 16, s0)>
    // CHECK: affine.max affine_map<(d0) -> (((d0 + 7) floordiv 16) * 16, 0)>
    // CHECK: affine.min affine_map<{{.*}} -> ((d0 floordiv 16) * 16 + 16, s0)>
    // CHECK: scf.for %{{.*}} = %[[LO]] to
    // CHECK: } {attn.fold_loop, attn.partial}
    // CHECK: } {attn.fold_loop, attn.full}
    // CHECK: } {attn.fold_loop, attn.partial}
    // CHECK-NOT: attn.fold_loop
    %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %zero) -> (vector<8xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
      %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
      %js = vector.step : vector<4xindex>
      %jb = vector.broadcast %j0 : index to vector<4xindex>
      %j1 = arith.addi %js, %jb : vector<4xindex>
      %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
      %c = arith.constant dense<16> : vector<8x4xindex>
      %ic = arith.divsi %i, %c : vector<8x4xindex>
      %jc = arith.divsi %j, %c : vector<8x4xindex>
      %keep = arith.cmpi eq, %ic, %jc : vector<8x4xindex>
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %a1 : vector<8xf32>
    } {attn.fold_loop}
    %w = vector.transfer_write %s, %out[%i0] : vector<8xf32>, tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}

// -----

// A mask that a flag switches on.
// CHECK-LABEL: func @flagged(
func.func @flagged(%X: tensor<?x?xf32>, %S: index, %flag: i1, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %r = scf.for %i0 = %c0 to %S step %c8 iter_args(%out = %init) -> (tensor<?xf32>) {
    %is = vector.step : vector<8xindex>
    %ib = vector.broadcast %i0 : index to vector<8xindex>
    %i1 = arith.addi %is, %ib : vector<8xindex>
    // CHECK: %[[ALL:.*]] = arith.select %{{.*}}, %c0, %[[S:.*]] : index
    // CHECK: %[[END:.*]] = affine.min affine_map<{{.*}} -> (((d0 + 7) floordiv 4) * 4 + 4, s0)>
    // CHECK: %[[HI:.*]] = arith.maxsi %[[ALL]], %[[END]]
    // CHECK: scf.for %{{.*}} = %c0 to %[[F1:.*]] step %c4
    // CHECK-NOT: arith.select
    // CHECK: } {attn.fold_loop, attn.full}
    // CHECK: scf.for %{{.*}} = %[[F1]] to %[[HI]] step %c4
    // CHECK: } {attn.fold_loop, attn.partial}
    %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %zero) -> (vector<8xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
      %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
      %js = vector.step : vector<4xindex>
      %jb = vector.broadcast %j0 : index to vector<4xindex>
      %j1 = arith.addi %js, %jb : vector<4xindex>
      %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
      %all = vector.broadcast %flag : i1 to vector<8x4xi1>
      %one = arith.constant dense<true> : vector<8x4xi1>
      %off = arith.xori %all, %one : vector<8x4xi1>
      %causal = arith.cmpi sge, %i, %j : vector<8x4xindex>
      %keep = arith.ori %off, %causal : vector<8x4xi1>
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %a1 : vector<8xf32>
    } {attn.fold_loop}
    %w = vector.transfer_write %s, %out[%i0] : vector<8xf32>, tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}
