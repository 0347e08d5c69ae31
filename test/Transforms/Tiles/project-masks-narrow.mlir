// RUN: attn-opt %s --attn-project-masks | FileCheck %s

// Integers wrap in their width. What is proved not to is read as a number of any size; what may
// is evaluated in each tile.

// Indices have 32 bits, and so have their differences.
// CHECK-LABEL: func.func @words
// CHECK: scf.for %[[I0:.*]] =
// CHECK: affine.m
// CHECK: scf.for %{{.*}} = %c0{{.*}} to %[[FULL:[a-z0-9_]*]]
// CHECK: attn.full
// CHECK: attn.partial
func.func @words(%X: tensor<?x?xf32>, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %R = tensor.dim %X, %c0 : tensor<?x?xf32>
  %S = tensor.dim %X, %c1 : tensor<?x?xf32>
  %is = vector.step : vector<8xindex>
  %js = vector.step : vector<4xindex>
  %r = scf.for %i0 = %c0 to %R step %c8 iter_args(%t = %init) -> (tensor<?xf32>) {
    %ib = vector.broadcast %i0 : index to vector<8xindex>
    %i1 = arith.addi %is, %ib : vector<8xindex>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %zero) -> (vector<8xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %jb = vector.broadcast %j0 : index to vector<4xindex>
      %j1 = arith.addi %js, %jb : vector<4xindex>
      %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
      %p = arith.index_cast %i : vector<8x4xindex> to vector<8x4xi32>
      %q = arith.index_cast %j : vector<8x4xindex> to vector<8x4xi32>
      %d = arith.subi %p, %q : vector<8x4xi32>
      %z = arith.constant dense<0> : vector<8x4xi32>
      %keep = arith.cmpi sge, %d, %z : vector<8x4xi32>
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %a1 : vector<8xf32>
    } {attn.fold_loop}
    %w = vector.transfer_write %s, %t[%i0] : vector<8xf32>, tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}

// Not 8.
// CHECK-LABEL: func.func @bytes
// CHECK: %[[S:.*]] = {{tensor.dim %.*, %c1|arith.constant 200}}
// CHECK: scf.for
// CHECK: scf.for %{{.*}} = %c0{{.*}} to %[[S]]
// CHECK-NOT: attn.full
// CHECK: return
func.func @bytes(%X: tensor<?x?xf32>, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %R = tensor.dim %X, %c0 : tensor<?x?xf32>
  %S = tensor.dim %X, %c1 : tensor<?x?xf32>
  %is = vector.step : vector<8xindex>
  %js = vector.step : vector<4xindex>
  %r = scf.for %i0 = %c0 to %R step %c8 iter_args(%t = %init) -> (tensor<?xf32>) {
    %ib = vector.broadcast %i0 : index to vector<8xindex>
    %i1 = arith.addi %is, %ib : vector<8xindex>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %zero) -> (vector<8xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %jb = vector.broadcast %j0 : index to vector<4xindex>
      %j1 = arith.addi %js, %jb : vector<4xindex>
      %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
      %iw = arith.index_cast %i : vector<8x4xindex> to vector<8x4xi64>
      %jw = arith.index_cast %j : vector<8x4xindex> to vector<8x4xi64>
      %p = arith.trunci %iw : vector<8x4xi64> to vector<8x4xi8>
      %q = arith.trunci %jw : vector<8x4xi64> to vector<8x4xi8>
      %keep = arith.cmpi sge, %p, %q : vector<8x4xi8>
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %a1 : vector<8xf32>
    } {attn.fold_loop}
    %w = vector.transfer_write %s, %t[%i0] : vector<8xf32>, tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}

// Where there are 100 of them, they have: tiles end at 104.
// CHECK-LABEL: func.func @few
// CHECK: scf.for %[[I0:.*]] =
// CHECK: affine.m
// CHECK: scf.for %{{.*}} = %c0{{.*}} to %[[FULL:[a-z0-9_]*]]
// CHECK: attn.full
// CHECK: attn.partial
func.func @few(%X: tensor<?x?xf32>, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %R = arith.constant 100 : index
  %S = arith.constant 100 : index
  %is = vector.step : vector<8xindex>
  %js = vector.step : vector<4xindex>
  %r = scf.for %i0 = %c0 to %R step %c8 iter_args(%t = %init) -> (tensor<?xf32>) {
    %ib = vector.broadcast %i0 : index to vector<8xindex>
    %i1 = arith.addi %is, %ib : vector<8xindex>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %zero) -> (vector<8xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %jb = vector.broadcast %j0 : index to vector<4xindex>
      %j1 = arith.addi %js, %jb : vector<4xindex>
      %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
      %iw = arith.index_cast %i : vector<8x4xindex> to vector<8x4xi64>
      %jw = arith.index_cast %j : vector<8x4xindex> to vector<8x4xi64>
      %p = arith.trunci %iw : vector<8x4xi64> to vector<8x4xi8>
      %q = arith.trunci %jw : vector<8x4xi64> to vector<8x4xi8>
      %keep = arith.cmpi sge, %p, %q : vector<8x4xi8>
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %a1 : vector<8xf32>
    } {attn.fold_loop}
    %w = vector.transfer_write %s, %t[%i0] : vector<8xf32>, tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}

// 200 have not.
// CHECK-LABEL: func.func @too_many
// CHECK: %[[S:.*]] = {{tensor.dim %.*, %c1|arith.constant 200}}
// CHECK: scf.for
// CHECK: scf.for %{{.*}} = %c0{{.*}} to %[[S]]
// CHECK-NOT: attn.full
// CHECK: return
func.func @too_many(%X: tensor<?x?xf32>, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %R = arith.constant 200 : index
  %S = arith.constant 200 : index
  %is = vector.step : vector<8xindex>
  %js = vector.step : vector<4xindex>
  %r = scf.for %i0 = %c0 to %R step %c8 iter_args(%t = %init) -> (tensor<?xf32>) {
    %ib = vector.broadcast %i0 : index to vector<8xindex>
    %i1 = arith.addi %is, %ib : vector<8xindex>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %zero) -> (vector<8xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %jb = vector.broadcast %j0 : index to vector<4xindex>
      %j1 = arith.addi %js, %jb : vector<4xindex>
      %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
      %iw = arith.index_cast %i : vector<8x4xindex> to vector<8x4xi64>
      %jw = arith.index_cast %j : vector<8x4xindex> to vector<8x4xi64>
      %p = arith.trunci %iw : vector<8x4xi64> to vector<8x4xi8>
      %q = arith.trunci %jw : vector<8x4xi64> to vector<8x4xi8>
      %keep = arith.cmpi sge, %p, %q : vector<8x4xi8>
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %a1 : vector<8xf32>
    } {attn.fold_loop}
    %w = vector.transfer_write %s, %t[%i0] : vector<8xf32>, tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}

// The sum with the largest number wraps.
// CHECK-LABEL: func.func @wraps
// CHECK: %[[S:.*]] = {{tensor.dim %.*, %c1|arith.constant 200}}
// CHECK: scf.for
// CHECK: scf.for %{{.*}} = %c0{{.*}} to %[[S]]
// CHECK-NOT: attn.full
// CHECK: return
func.func @wraps(%X: tensor<?x?xf32>, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %R = tensor.dim %X, %c0 : tensor<?x?xf32>
  %S = tensor.dim %X, %c1 : tensor<?x?xf32>
  %is = vector.step : vector<8xindex>
  %js = vector.step : vector<4xindex>
  %r = scf.for %i0 = %c0 to %R step %c8 iter_args(%t = %init) -> (tensor<?xf32>) {
    %ib = vector.broadcast %i0 : index to vector<8xindex>
    %i1 = arith.addi %is, %ib : vector<8xindex>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %zero) -> (vector<8xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %jb = vector.broadcast %j0 : index to vector<4xindex>
      %j1 = arith.addi %js, %jb : vector<4xindex>
      %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
      %p = arith.index_cast %i : vector<8x4xindex> to vector<8x4xi32>
      %q = arith.index_cast %j : vector<8x4xindex> to vector<8x4xi32>
      %most = arith.constant dense<2147483647> : vector<8x4xi32>
      %e = arith.addi %q, %most : vector<8x4xi32>
      %keep = arith.cmpi sge, %e, %p : vector<8x4xi32>
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %a1 : vector<8xf32>
    } {attn.fold_loop}
    %w = vector.transfer_write %s, %t[%i0] : vector<8xf32>, tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}

// What has wrapped stays so in more bits.
// CHECK-LABEL: func.func @extended
// CHECK: %[[S:.*]] = {{tensor.dim %.*, %c1|arith.constant 200}}
// CHECK: scf.for
// CHECK: scf.for %{{.*}} = %c0{{.*}} to %[[S]]
// CHECK-NOT: attn.full
// CHECK: return
func.func @extended(%X: tensor<?x?xf32>, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %R = tensor.dim %X, %c0 : tensor<?x?xf32>
  %S = tensor.dim %X, %c1 : tensor<?x?xf32>
  %is = vector.step : vector<8xindex>
  %js = vector.step : vector<4xindex>
  %r = scf.for %i0 = %c0 to %R step %c8 iter_args(%t = %init) -> (tensor<?xf32>) {
    %ib = vector.broadcast %i0 : index to vector<8xindex>
    %i1 = arith.addi %is, %ib : vector<8xindex>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %zero) -> (vector<8xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %jb = vector.broadcast %j0 : index to vector<4xindex>
      %j1 = arith.addi %js, %jb : vector<4xindex>
      %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
      %jw = arith.index_cast %j : vector<8x4xindex> to vector<8x4xi64>
      %p = arith.trunci %jw : vector<8x4xi64> to vector<8x4xi8>
      %e = arith.extsi %p : vector<8x4xi8> to vector<8x4xi64>
      %q = arith.index_cast %i : vector<8x4xindex> to vector<8x4xi64>
      %keep = arith.cmpi sge, %e, %q : vector<8x4xi64>
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %a1 : vector<8xf32>
    } {attn.fold_loop}
    %w = vector.transfer_write %s, %t[%i0] : vector<8xf32>, tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}

// Unsigned comparisons are those of numbers that are not negative.
// CHECK-LABEL: func.func @unsigned
// CHECK: scf.for %[[I0:.*]] =
// CHECK: affine.m
// CHECK: scf.for %{{.*}} = %c0{{.*}} to %[[FULL:[a-z0-9_]*]]
// CHECK: attn.full
// CHECK: attn.partial
func.func @unsigned(%X: tensor<?x?xf32>, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %R = tensor.dim %X, %c0 : tensor<?x?xf32>
  %S = tensor.dim %X, %c1 : tensor<?x?xf32>
  %is = vector.step : vector<8xindex>
  %js = vector.step : vector<4xindex>
  %r = scf.for %i0 = %c0 to %R step %c8 iter_args(%t = %init) -> (tensor<?xf32>) {
    %ib = vector.broadcast %i0 : index to vector<8xindex>
    %i1 = arith.addi %is, %ib : vector<8xindex>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %zero) -> (vector<8xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %jb = vector.broadcast %j0 : index to vector<4xindex>
      %j1 = arith.addi %js, %jb : vector<4xindex>
      %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
      %p = arith.index_cast %i : vector<8x4xindex> to vector<8x4xi32>
      %q = arith.index_cast %j : vector<8x4xindex> to vector<8x4xi32>
      %keep = arith.cmpi uge, %p, %q : vector<8x4xi32>
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %a1 : vector<8xf32>
    } {attn.fold_loop}
    %w = vector.transfer_write %s, %t[%i0] : vector<8xf32>, tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}

// A difference is no large number without a sign.
// CHECK-LABEL: func.func @negative
// CHECK: %[[S:.*]] = {{tensor.dim %.*, %c1|arith.constant 200}}
// CHECK: scf.for
// CHECK: scf.for %{{.*}} = %c0{{.*}} to %[[S]]
// CHECK-NOT: attn.full
// CHECK: return
func.func @negative(%X: tensor<?x?xf32>, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %R = tensor.dim %X, %c0 : tensor<?x?xf32>
  %S = tensor.dim %X, %c1 : tensor<?x?xf32>
  %is = vector.step : vector<8xindex>
  %js = vector.step : vector<4xindex>
  %r = scf.for %i0 = %c0 to %R step %c8 iter_args(%t = %init) -> (tensor<?xf32>) {
    %ib = vector.broadcast %i0 : index to vector<8xindex>
    %i1 = arith.addi %is, %ib : vector<8xindex>
    %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
    %i = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
    %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %zero) -> (vector<8xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %jb = vector.broadcast %j0 : index to vector<4xindex>
      %j1 = arith.addi %js, %jb : vector<4xindex>
      %j = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
      %p = arith.index_cast %i : vector<8x4xindex> to vector<8x4xi32>
      %q = arith.index_cast %j : vector<8x4xindex> to vector<8x4xi32>
      %d = arith.subi %p, %q : vector<8x4xi32>
      %keep = arith.cmpi uge, %d, %q : vector<8x4xi32>
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %a1 : vector<8xf32>
    } {attn.fold_loop}
    %w = vector.transfer_write %s, %t[%i0] : vector<8xf32>, tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}
