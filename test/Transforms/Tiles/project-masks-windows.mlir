// RUN: attn-opt %s --attn-project-masks --canonicalize --split-input-file --mlir-print-local-scope | FileCheck %s

// Tiles of 8 rows and 4 columns; bounds are in elements.

// A sliding window: partial, full and partial tiles in this order; a window that
// is not known may be empty.
// CHECK-LABEL: func @window(
func.func @window(%X: tensor<?x?xf32>, %S: index, %W: index, %init: tensor<?xf32>) -> tensor<?xf32> {
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
    // CHECK: %[[LO:.*]] = affine.max affine_map<(d0)[s0] -> (((d0 - s0 - 2) ceildiv 4) * 4, 0)>
    // CHECK: %[[END:.*]] = affine.min affine_map<(d0)[s0] -> (((d0 + 7) floordiv 4) * 4 + 4, s0)>
    // CHECK: %[[NONE:.*]] = affine.max affine_map<(d0)[s0, s1] -> (-s0 + 1, d0 - s0 - s1 + 2)>
    // CHECK: %[[SOME:.*]] = arith.cmpi sle, %[[NONE]], %c0
    // CHECK: %[[HI:.*]] = arith.select %[[SOME]], %[[END]], %[[LO]]
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
      %causal = arith.cmpi sge, %i, %j : vector<8x4xindex>
      %d = arith.subi %i, %j : vector<8x4xindex>
      %wb = vector.broadcast %W : index to vector<8x4xindex>
      %near = arith.cmpi slt, %d, %wb : vector<8x4xindex>
      %k0 = arith.andi %causal, %near : vector<8x4xi1>
      %sb = vector.broadcast %S : index to vector<8x4xindex>
      %inside = arith.cmpi slt, %j, %sb : vector<8x4xindex>
      %keep = arith.andi %k0, %inside : vector<8x4xi1>
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

// Both sides of the diagonal, as an absolute value.
// CHECK-LABEL: func @static_window(
func.func @static_window(%X: tensor<?x?xf32>, %S: index, %init: tensor<?xf32>) -> tensor<?xf32> {
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
    // CHECK: %[[LO:.*]] = affine.max affine_map<(d0) -> (((d0 - 9) ceildiv 4) * 4, 0)>
    // CHECK: %[[END:.*]] = affine.min affine_map<(d0)[s0] -> (((d0 + 13) floordiv 4) * 4 + 4, s0)>
    // CHECK: %[[HI:.*]] = arith.select %{{.*}}, %[[END]], %[[LO]]
    // CHECK: affine.max affine_map<(d0) -> (((d0 + 1) ceildiv 4) * 4, 0)>
    // CHECK: affine.min affine_map<(d0)[s0] -> (((d0 + 3) floordiv 4) * 4 + 4, (s0 floordiv 4) * 4, s0)>
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
      %w = arith.constant dense<6> : vector<8x4xindex>
      %minus = arith.subi %j, %i : vector<8x4xindex>
      %d = math.absi %minus : vector<8x4xindex>
      %near = arith.cmpi sle, %d, %w : vector<8x4xindex>
      %sb = vector.broadcast %S : index to vector<8x4xindex>
      %inside = arith.cmpi slt, %j, %sb : vector<8x4xindex>
      %keep = arith.andi %near, %inside : vector<8x4xi1>
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

// A window narrower than a tile has no full tiles, so one loop is enough.
// CHECK-LABEL: func @narrow(
func.func @narrow(%X: tensor<?x?xf32>, %S: index, %init: tensor<?xf32>) -> tensor<?xf32> {
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
    // CHECK: %[[LO:.*]] = affine.max affine_map<(d0) -> (((d0 - 8) ceildiv 4) * 4, 0)>
    // CHECK: %[[HI:.*]] = affine.min
    // CHECK: scf.for %{{.*}} = %[[LO]] to %[[HI]] step %c4
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
      %w = arith.constant dense<6> : vector<8x4xindex>
      %d = arith.subi %i, %j : vector<8x4xindex>
      %near = arith.cmpi slt, %d, %w : vector<8x4xindex>
      %causal = arith.cmpi sge, %i, %j : vector<8x4xindex>
      %keep = arith.andi %near, %causal : vector<8x4xi1>
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

// The first keys and a window: tiles between the two are skipped by a test.
// CHECK-LABEL: func @sinks(
func.func @sinks(%X: tensor<?x?xf32>, %S: index, %init: tensor<?xf32>) -> tensor<?xf32> {
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
    // CHECK: %[[SINK:.*]] = affine.min affine_map<{{.*}} -> (4, ((d0 + 7) floordiv 4) * 4 + 4, s0)>
    // CHECK: %[[NEAR:.*]] = affine.max affine_map<(d0) -> (((d0 - 18) ceildiv 4) * 4, 0)>
    // CHECK: %[[END:.*]] = affine.min affine_map<{{.*}} -> (((d0 + 7) floordiv 4) * 4 + 4, s0)>
    // CHECK: scf.for %[[J:.*]] = %{{.*}} to %{{.*}} step %c4
    // CHECK: %[[A:.*]] = arith.cmpi slt, %[[J]], %[[SINK]]
    // CHECK: %[[B:.*]] = arith.cmpi sge, %[[J]], %[[NEAR]]
    // CHECK: %[[C:.*]] = arith.cmpi slt, %[[J]], %[[END]]
    // CHECK: %[[D:.*]] = arith.andi %[[B]], %[[C]]
    // CHECK: %[[VISIT:.*]] = arith.ori %[[A]], %[[D]]
    // CHECK: scf.if %[[VISIT]]
    // CHECK: arith.select
    // CHECK: } {attn.guard}
    // CHECK: } {attn.fold_loop, attn.partial}
    // CHECK-NOT: attn.guard
    // CHECK: } {attn.fold_loop, attn.full}
    // CHECK: } {attn.guard}
    // CHECK: } {attn.fold_loop, attn.partial}
    %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %zero) -> (vector<8xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
      %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
      %js = vector.step : vector<4xindex>
      %jb = vector.broadcast %j0 : index to vector<4xindex>
      %j1 = arith.addi %js, %jb : vector<4xindex>
      %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
      %four = arith.constant dense<4> : vector<8x4xindex>
      %w = arith.constant dense<16> : vector<8x4xindex>
      %sink = arith.cmpi slt, %j, %four : vector<8x4xindex>
      %d = arith.subi %i, %j : vector<8x4xindex>
      %near = arith.cmpi slt, %d, %w : vector<8x4xindex>
      %k0 = arith.ori %sink, %near : vector<8x4xi1>
      %causal = arith.cmpi sge, %i, %j : vector<8x4xindex>
      %keep = arith.andi %k0, %causal : vector<8x4xi1>
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %a1 : vector<8xf32>
    } {attn.fold_loop}
    %w = vector.transfer_write %s, %out[%i0] : vector<8xf32>, tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}
