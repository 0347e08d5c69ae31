// RUN: attn-opt %s --attn-project-masks --canonicalize --split-input-file --mlir-print-local-scope | FileCheck %s

// Tiles of 8 rows and 4 columns; bounds are in elements.

// A ragged tail alone: all full tiles, then at most one partial tile.
// CHECK-LABEL: func @tail(
func.func @tail(%X: tensor<?x?xf32>, %S: index, %init: tensor<?xf32>) -> tensor<?xf32> {
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
    // CHECK: %[[MUST:.*]] = affine.min affine_map<()[s0] -> ((s0 floordiv 4) * 4, s0)>()[%[[S:.*]]]
    // CHECK: %[[F1:.*]] = arith.maxsi %[[MUST]], %c0
    // CHECK: scf.for %{{.*}} = %c0 to %[[F1]] step %c4
    // CHECK-NEXT: vector.transfer_read {{.*}} {in_bounds = [false, true]}
    // CHECK-NEXT: vector.multi_reduction
    // CHECK-NEXT: scf.yield
    // CHECK-NEXT: } {attn.fold_loop, attn.full}
    // CHECK: scf.for %{{.*}} = %[[F1]] to %[[S]] step %c4
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
      %sb = vector.broadcast %S : index to vector<8x4xindex>
      %keep = arith.cmpi slt, %j, %sb : vector<8x4xindex>
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

// A tail that is not ragged leaves one loop without a mask.
// CHECK-LABEL: func @static_tail(
func.func @static_tail(%X: tensor<?x?xf32>, %S: index, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %c12 = arith.constant 12 : index
  %r = scf.for %i0 = %c0 to %S step %c8 iter_args(%out = %init) -> (tensor<?xf32>) {
    %is = vector.step : vector<8xindex>
    %ib = vector.broadcast %i0 : index to vector<8xindex>
    %i1 = arith.addi %is, %ib : vector<8xindex>
    // CHECK: scf.for %{{.*}} = %c0 to %c12{{.*}} step %c4
    // CHECK-NEXT: vector.transfer_read {{.*}} {in_bounds = [false, true]}
    // CHECK-NEXT: vector.multi_reduction
    // CHECK-NEXT: scf.yield
    // CHECK-NEXT: } {attn.fold_loop, attn.full}
    // CHECK-NOT: attn.fold_loop
    %s = scf.for %j0 = %c0 to %c12 step %c4 iter_args(%a = %zero) -> (vector<8xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
      %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
      %js = vector.step : vector<4xindex>
      %jb = vector.broadcast %j0 : index to vector<4xindex>
      %j1 = arith.addi %js, %jb : vector<4xindex>
      %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
      %sb = vector.broadcast %c12 : index to vector<8x4xindex>
      %keep = arith.cmpi slt, %j, %sb : vector<8x4xindex>
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

// Causal, aligned at the bottom right; nothing is to the left of the band.
// CHECK-LABEL: func @bottom_right(
func.func @bottom_right(%X: tensor<?x?xf32>, %S: index, %Q: tensor<?xf32>, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %Sq = tensor.dim %Q, %c0 : tensor<?xf32>
  %c8 = arith.constant 8 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %r = scf.for %i0 = %c0 to %S step %c8 iter_args(%out = %init) -> (tensor<?xf32>) {
    %is = vector.step : vector<8xindex>
    %ib = vector.broadcast %i0 : index to vector<8xindex>
    %i1 = arith.addi %is, %ib : vector<8xindex>
    // CHECK: %[[HI:.*]] = affine.min affine_map<(d0)[s0, s1] -> (((d0 + s0 - s1 + 7) floordiv 4) * 4 + 4, s0)>
    // CHECK: %[[MUST:.*]] = affine.min affine_map<(d0)[s0, s1] -> (((d0 + s0 - s1 - 3) floordiv 4) * 4 + 4, (s0 floordiv 4) * 4, s0)>
    // CHECK: %[[F1:.*]] = arith.maxsi %[[MUST]], %c0
    // CHECK: scf.for %{{.*}} = %c0 to %[[F1]] step %c4
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
      %off = arith.subi %S, %Sq : index
      %ob = vector.broadcast %off : index to vector<8x4xindex>
      %io = arith.addi %i, %ob : vector<8x4xindex>
      %causal = arith.cmpi sge, %io, %j : vector<8x4xindex>
      %sb = vector.broadcast %S : index to vector<8x4xindex>
      %inside = arith.cmpi slt, %j, %sb : vector<8x4xindex>
      %keep = arith.andi %causal, %inside : vector<8x4xi1>
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

// By a captured number of 64 bits: where a sum with it may wrap, all tiles are visited, and none is
// full.
// CHECK-LABEL: func @captured_offset(
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x?xf32>, %[[S:[^:]*]]: index, %[[SQ:[^:]*]]: index
func.func @captured_offset(%X: tensor<?x?xf32>, %S: index, %Sq: index, %init: tensor<?xf32>) -> tensor<?xf32> {
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
    // CHECK: %[[MAY:.*]] = affine.min affine_map<(d0)[s0, s1] -> (((d0 + s0 - s1 + 7) floordiv 4) * 4 + 4, s0)>
    // CHECK: %[[FROM:.*]] = arith.addi %[[SQ]], %c1099511627776
    // CHECK: %[[SMALL:.*]] = arith.cmpi ule, %[[FROM]], %c2199023255552
    // CHECK: %[[HI:.*]] = arith.select %[[SMALL]], %[[MAY]], %[[S]]
    // CHECK: %[[SMALLTOO:.*]] = arith.cmpi ule,
    // CHECK: %[[MUST:.*]] = affine.min affine_map<(d0)[s0, s1] -> (((d0 + s0 - s1 - 3) floordiv 4) * 4 + 4, (s0 floordiv 4) * 4, s0)>
    // CHECK: %[[FULL:.*]] = arith.select %[[SMALLTOO]], %[[MUST]], %c0
    // CHECK: %[[F1:.*]] = arith.maxsi %[[FULL]], %c0
    // CHECK: scf.for %{{.*}} = %c0 to %[[F1]] step %c4
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
      %off = arith.subi %S, %Sq : index
      %ob = vector.broadcast %off : index to vector<8x4xindex>
      %io = arith.addi %i, %ob : vector<8x4xindex>
      %causal = arith.cmpi sge, %io, %j : vector<8x4xindex>
      %sb = vector.broadcast %S : index to vector<8x4xindex>
      %inside = arith.cmpi slt, %j, %sb : vector<8x4xindex>
      %keep = arith.andi %causal, %inside : vector<8x4xi1>
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %a1 : vector<8xf32>
    } {attn.fold_loop}
    %w = vector.transfer_write %s, %out[%i0] : vector<8xf32>, tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}
