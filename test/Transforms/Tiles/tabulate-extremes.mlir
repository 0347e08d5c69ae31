// RUN: attn-opt %s --attn-tabulate-masks=extremes | FileCheck %s
// RUN: sed 's/%x = \(vector.transfer_read %X.*\)/%y = \1\n%x = vector.contract {indexing_maps = [affine_map<(i, j, d) -> (i, d)>, affine_map<(i, j, d) -> (d, j)>, affine_map<(i, j, d) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ones, %y, %zeros : vector<8x8xf32>, vector<8x4xf32> into vector<8x4xf32>/; s/^  %zeros = .*/&\n%ones = arith.constant dense<1.0> : vector<8x8xf32>/' %s | attn-opt --attn-tabulate-masks=extremes | FileCheck %s --check-prefix=ONE
// One product, as maxima and sums of rows alone have it, is not worth a program for extremes.
// ONE-COUNT-1: = scf.forall (%{{[^,]*}}, %{{[^,]*}}) in
// ONE-NOT:     = scf.forall (%{{[^,]*}}, %{{[^,]*}}) in
// ONE:         attn.tabulated

// The numbers' extremes by batch and tile of columns, for all rows; a tile of one number
// that the rest of the mask fills is full without a test of its elements, and one with an
// extreme of the rows' numbers, where neither has padding, is listed without one.
// CHECK-LABEL: func @documents
// CHECK: %[[EXTREMES:.*]]:2 = scf.forall (%[[EB:.*]], %[[ET:.*]]) in
// CHECK: %[[COLUMNS:.*]] = vector.transfer_read %arg1[%[[EB]],
// CHECK: vector.reduction <minsi>, %[[COLUMNS]]
// CHECK: vector.reduction <maxsi>, %[[COLUMNS]]
// CHECK: %[[TABLE:.*]]:2 = scf.forall (%[[PB:.*]], %[[PI:.*]]) in
// CHECK: vector.transfer_read %arg1[%[[PB]],
// CHECK: %[[LOWROW:.*]] = vector.reduction <minsi>
// CHECK: %[[HIGHROW:.*]] = vector.reduction <maxsi>
// The tiles from the first to the last one whose numbers meet those of the rows.
// CHECK: %[[HULL:.*]]:2 = scf.for
// CHECK: vector.transfer_read %[[EXTREMES]]#0[%[[PB]],
// CHECK: vector.transfer_read %[[EXTREMES]]#1[%[[PB]],
// CHECK: vector.reduction <minsi>
// CHECK: vector.reduction <maxsi>
// CHECK: scf.yield {{.*}} : i32, i32
// CHECK: %[[FIRST:.*]] = arith.maxsi
// CHECK: %[[END:.*]] = arith.minsi
// All entries in vectors: whether each tile is listed without a test of its elements, and the
// loop that tests them has nothing to do then.
// CHECK: %[[COUNT:.*]] = arith.ceildivui
// CHECK: %[[ONCE:.*]]:2 = scf.for %[[CHUNK:.*]] = %{{.*}} to %[[COUNT]] step %{{.*}} iter_args(%[[SOFAR:.*]] = %{{.*}}, %[[LIST:.*]] = %{{.*}})
// CHECK: %[[LOWS:.*]] = vector.transfer_read %[[EXTREMES]]#0[%[[PB]],
// CHECK: %[[HIGHS:.*]] = vector.transfer_read %[[EXTREMES]]#1[%[[PB]],
// CHECK: vector.step : vector<32xindex>
// CHECK: arith.cmpi sle, %[[LOWS]],
// CHECK: arith.cmpi sge, %[[HIGHS]],
// CHECK: %[[SURE:.*]] = arith.andi %{{.*}} : vector<32xi1>
// CHECK: %[[BITS:.*]] = arith.extui %{{.*}} : vector<32xi1> to vector<32xi32>
// CHECK: %[[ENTRIES:.*]] = arith.addi %{{.*}}, %[[BITS]]
// CHECK: vector.reduction <minsi>
// CHECK: vector.transfer_write %[[ENTRIES]], %[[LIST]][%[[CHUNK]]]
// CHECK: %[[ALL:.*]] = arith.cmpi ne, %[[ONCE]]#0,
// CHECK: %[[LENGTH:.*]] = arith.select %[[ALL]], %[[COUNT]], %{{.*}}
// CHECK: %[[START:.*]] = arith.select %[[ALL]], %[[END]], %[[FIRST]]
// CHECK: scf.for %{{.*}} = %[[START]] to %[[END]] step {{.*}} iter_args(%{{.*}} = %[[LENGTH]], %{{.*}} = %[[ONCE]]#1)
// CHECK: %[[LOW:.*]] = tensor.extract %[[EXTREMES]]#0[%[[PB]],
// CHECK: %[[HIGH:.*]] = tensor.extract %[[EXTREMES]]#1[%[[PB]],
// CHECK: arith.cmpi sle, %[[LOW]], %[[HIGHROW]]
// CHECK: arith.cmpi sge, %[[HIGH]], %[[LOWROW]]
// CHECK: scf.if
// CHECK: arith.cmpi eq, %[[LOWROW]], %[[HIGHROW]]
// CHECK: arith.cmpi eq, %[[LOW]], %[[LOWROW]]
// CHECK: arith.cmpi eq, %[[HIGH]], %[[LOWROW]]
// CHECK: %[[BOUND:.*]] = arith.cmpi slt
// CHECK: %[[FULL:.*]] = arith.andi %{{.*}}, %[[BOUND]]
// CHECK: arith.cmpi eq, %[[LOWROW]], %[[LOW]]
// CHECK: arith.cmpi eq, %[[LOWROW]], %[[HIGH]]
// CHECK: arith.cmpi eq, %[[HIGHROW]], %[[LOW]]
// CHECK: arith.cmpi eq, %[[HIGHROW]], %[[HIGH]]
// CHECK: tensor.dim %arg1
// CHECK: %[[ROWSINSIDE:.*]] = arith.cmpi sle
// CHECK: arith.andi %{{.*}}, %[[ROWSINSIDE]]
// CHECK: %[[INSIDE:.*]] = arith.cmpi sle
// CHECK: %[[SHARED:.*]] = arith.andi %{{.*}}, %[[INSIDE]]
// CHECK: %[[KNOWN:.*]] = arith.ori %[[FULL]], %[[SHARED]]
// CHECK: scf.if %[[KNOWN]]
// CHECK-NOT: vector.transfer_read
// CHECK: arith.extui %[[FULL]]
// CHECK: tensor.insert
// CHECK: } else {
// CHECK: vector.transfer_read %arg1[%[[PB]],
// CHECK: vector.reduction <or>
// CHECK: vector.reduction <and>
// CHECK: attn.tabulated
func.func @documents(%X: tensor<?x?xf32>, %doc: tensor<?x?xi32>, %B: index, %H: index, %n: index, %S: index,
    %init: tensor<?x?x?xf32>) -> tensor<?x?x?xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %pad32 = arith.constant -1 : i32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %r = scf.forall (%b, %h, %ti) in (%B, %H, %n) shared_outs(%out = %init) -> (tensor<?x?x?xf32>) {
    %i0 = affine.apply affine_map<(d0) -> (d0 * 8)>(%ti)
    %is = vector.step : vector<8xindex>
    %ib = vector.broadcast %i0 : index to vector<8xindex>
    %i1 = arith.addi %is, %ib : vector<8xindex>
    %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %zero) -> (vector<8xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %it = vector.broadcast %i1 : vector<8xindex> to vector<4x8xindex>
      %i2 = vector.transpose %it, [1, 0] : vector<4x8xindex> to vector<8x4xindex>
      %js = vector.step : vector<4xindex>
      %jb = vector.broadcast %j0 : index to vector<4xindex>
      %j1 = arith.addi %js, %jb : vector<4xindex>
      %j2 = vector.broadcast %j1 : vector<4xindex> to vector<8x4xindex>
      %causal = arith.cmpi sge, %i2, %j2 : vector<8x4xindex>
      %ss = vector.broadcast %S : index to vector<8x4xindex>
      %inside = arith.cmpi slt, %j2, %ss : vector<8x4xindex>
      %di = vector.transfer_read %doc[%b, %i0], %pad32 : tensor<?x?xi32>, vector<8xi32>
      %dt = vector.broadcast %di : vector<8xi32> to vector<4x8xi32>
      %di2 = vector.transpose %dt, [1, 0] : vector<4x8xi32> to vector<8x4xi32>
      %dj = vector.transfer_read %doc[%b, %j0], %pad32 : tensor<?x?xi32>, vector<4xi32>
      %dj2 = vector.broadcast %dj : vector<4xi32> to vector<8x4xi32>
      %same = arith.cmpi eq, %di2, %dj2 : vector<8x4xi32>
      %k0 = arith.andi %causal, %inside : vector<8x4xi1>
      %keep = arith.andi %k0, %same : vector<8x4xi1>
      %m = arith.select %keep, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %a1 : vector<8xf32>
    } {attn.fold_loop}
    %t = tensor.extract_slice %out[%b, %h, %i0] [1, 1, 8] [1, 1, 1] : tensor<?x?x?xf32> to tensor<8xf32>
    %w = vector.transfer_write %s, %t[%c0] {in_bounds = [true]} : vector<8xf32>, tensor<8xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %w into %out[%b, %h, %i0] [1, 1, 8] [1, 1, 1] : tensor<8xf32> into tensor<?x?x?xf32>
    }
  }
  return %r : tensor<?x?x?xf32>
}
