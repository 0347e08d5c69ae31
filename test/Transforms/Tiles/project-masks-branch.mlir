// RUN: attn-opt %s --attn-project-masks=branch=true --control-flow-sink --canonicalize --mlir-print-local-scope | FileCheck %s

// One loop over the tiles that are not empty; full ones branch around the select, and
// the mask's arithmetic is in the other branch.
// CHECK-LABEL: func.func @causal
// CHECK: %[[HI:.*]] = affine.min affine_map<(d0)[s0] -> (((d0 + 7) floordiv 4) * 4 + 4, s0)>
// CHECK: %[[F1:.*]] = affine.min affine_map<(d0)[s0] -> (((d0 - 3) floordiv 4) * 4 + 4, s0)>
// CHECK: %[[FULL:.*]] = arith.maxsi %[[F1]], %c0
// CHECK: scf.for %[[J:.*]] = %c0 to %[[HI]] step %c4
// CHECK: %[[BELOW:.*]] = arith.cmpi slt, %[[J]], %[[FULL]]
// CHECK: %[[IS:.*]] = arith.andi %{{.*}}, %[[BELOW]]
// CHECK-NEXT: %[[X:.*]] = vector.transfer_read
// CHECK-NEXT: scf.if %[[IS]]
// CHECK-NEXT: scf.yield %[[X]]
// CHECK-NEXT: } else {
// CHECK: %[[KEEP:.*]] = arith.cmpi sge
// CHECK: %[[M:.*]] = arith.select %[[KEEP]], %[[X]],
// CHECK-NEXT: scf.yield %[[M]]
// CHECK-NEXT: } {attn.tile_kind}
// CHECK: } {attn.fold_loop, attn.partial}
// CHECK-NOT: scf.for
func.func @causal(%X: tensor<?x?xf32>, %S: index, %init: tensor<?xf32>) -> tensor<?xf32> {
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
    %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %zero) -> (vector<8xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
      %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
      %js = vector.step : vector<4xindex>
      %jb = vector.broadcast %j0 : index to vector<4xindex>
      %j1 = arith.addi %js, %jb : vector<4xindex>
      %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
      %keep = arith.cmpi sge, %i, %j : vector<8x4xindex>
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %a1 : vector<8xf32>
    } {attn.fold_loop}
    %w = vector.transfer_write %s, %out[%i0] : vector<8xf32>, tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}
