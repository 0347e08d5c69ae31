// RUN: attn-opt %s --attn-tabulate-masks --split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-tabulate-masks --attn-project-masks --split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-tabulate-masks --split-input-file --remarks-filter=attn-tabulate-masks -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}1 [Passed] tabulated | Category:attn-tabulate-masks{{$}}

// Documents and causal: the table depends on the batch and the tile of rows,
// not on the head; causal restricts the tiles that are tested, disjoint ranges
// of numbers exclude some of these, and only the rest is tested by element.
// CHECK-DAG: #[[$MAY:.*]] = affine_map<(d0)[s0] -> (d0 * 8 + 8, s0)>
// CHECK-DAG: #[[$COUNT:.*]] = affine_map<()[s0] -> (s0 ceildiv 4)>
// CHECK-LABEL: func @documents
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x?xf32>, %[[DOC:[^:]*]]: tensor<?x?xi32>, %[[B:[^:]*]]: index, %[[H:[^:]*]]: index, %[[N:[^:]*]]: index, %[[S:[^:]*]]: index
func.func @documents(%X: tensor<?x?xf32>, %doc: tensor<?x?xi32>, %B: index, %H: index, %n: index, %S: index,
    %init: tensor<?x?x?xf32>) -> tensor<?x?x?xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %pad32 = arith.constant -1 : i32
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %zero = arith.constant dense<0.0> : vector<8xf32>
  // CHECK: %[[COLUMNS:.*]] = affine.apply #[[$COUNT]]()[%[[S]]]
  // CHECK: %[[CAPACITY:.*]] = arith.maxsi %[[COLUMNS]], %{{.*}}
  // CHECK: tensor.empty(%{{.*}}, %{{.*}}) : tensor<?x?xi32>
  // CHECK: tensor.empty(%{{.*}}, %{{.*}}, %[[CAPACITY]]) : tensor<?x?x?xi32>
  // CHECK: %[[TABLE:.*]]:2 = scf.forall (%[[PB:.*]], %[[PI:.*]]) in
  // CHECK: vector.reduction <minsi>
  // CHECK: vector.reduction <maxsi>
  // CHECK: %[[HI:.*]] = affine.min #[[$MAY]](%[[PI]])[%[[S]]]
  // CHECK: scf.for %[[J:.*]] = %{{.*}} to %[[HI]] step %{{.*}} iter_args(%[[LENGTH:.*]] = %{{.*}}, %{{.*}} = %{{.*}}) -> (index, tensor<?xi32>)
  // CHECK: %[[MEET:.*]] = arith.andi %{{.*}}, %{{.*}} : i1
  // CHECK: scf.if %[[MEET]]
  // CHECK: arith.cmpi eq, %{{.*}}, %{{.*}} : vector<8x4xi32>
  // CHECK: %[[ANY:.*]] = vector.reduction <or>
  // CHECK: scf.if %[[ANY]]
  // CHECK: vector.reduction <and>
  // CHECK: tensor.insert %{{.*}} into %{{.*}}[%[[LENGTH]]]
  // CHECK: tensor.parallel_insert_slice
  // CHECK: scf.forall (%[[IB:.*]], %{{.*}}, %[[TI:.*]]) in (%[[B]], %[[H]], %[[N]])
  %r = scf.forall (%b, %h, %ti) in (%B, %H, %n) shared_outs(%out = %init) -> (tensor<?x?x?xf32>) {
    %i0 = affine.apply affine_map<(d0) -> (d0 * 8)>(%ti)
    %is = vector.step : vector<8xindex>
    %ib = vector.broadcast %i0 : index to vector<8xindex>
    %i1 = arith.addi %is, %ib : vector<8xindex>
    // CHECK: %[[ROW:.*]] = tensor.extract %[[TABLE]]#1[%[[IB]], %[[TI]]] : tensor<?x?xi32>
    // CHECK: %[[TILES:.*]] = arith.index_cast %[[ROW]]
    // CHECK: scf.for %[[T:.*]] = %{{.*}} to %[[TILES]] step
    // CHECK: %[[ENTRY:.*]] = tensor.extract %[[TABLE]]#0[%[[IB]], %[[TI]], %[[T]]] : tensor<?x?x?xi32>
    // CHECK: %[[FULL:.*]] = arith.cmpi eq
    // CHECK: %[[J0:.*]] = affine.apply
    // CHECK: scf.if %[[FULL]]
    // CHECK-NEXT: %[[XF:.*]] = vector.transfer_read %[[X]][%{{.*}}, %[[J0]]], %{{.*}} {in_bounds = [false, true]}
    // CHECK-NEXT: vector.multi_reduction <add>, %[[XF]]
    // CHECK-NEXT: scf.yield
    // CHECK: } else {
    // CHECK: vector.transfer_read %[[X]][%{{.*}}, %[[J0]]], %{{[a-z0-9_]*}} : tensor
    // CHECK: arith.select
    // CHECK: } {attn.tile_kind}
    // CHECK: } {attn.fold_loop, attn.tabulated}
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

// -----

// A mask that is computed from tiles in memory, and no product that a table could save.
// CHECK-LABEL: func @no_product
// CHECK-NOT: attn.tabulated
// CHECK: return
func.func @no_product(%X: tensor<?x?xf32>, %l: tensor<?x?xf32>, %n: index, %S: index, %init: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %inf = arith.constant dense<0x7F800000> : vector<8x4xf32>
  %zeros = arith.constant dense<0.0> : vector<8x4xf32>
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %r = scf.forall (%ti) in (%n) shared_outs(%out = %init) -> (tensor<?xf32>) {
    %i0 = affine.apply affine_map<(d0) -> (d0 * 8)>(%ti)
    %s = scf.for %j0 = %c0 to %S step %c4 iter_args(%a = %zero) -> (vector<8xf32>) {
      %x = vector.transfer_read %X[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %lse = vector.transfer_read %l[%i0, %j0], %pad : tensor<?x?xf32>, vector<8x4xf32>
      %alive = arith.cmpf une, %lse, %inf : vector<8x4xf32>
      %m = arith.select %alive, %x, %zeros : vector<8x4xi1>, vector<8x4xf32>
      %a1 = vector.multi_reduction <add>, %m, %a [1] : vector<8x4xf32> to vector<8xf32>
      scf.yield %a1 : vector<8xf32>
    } {attn.fold_loop}
    %t = tensor.extract_slice %out[%i0] [8] [1] : tensor<?xf32> to tensor<8xf32>
    %w = vector.transfer_write %s, %t[%c0] {in_bounds = [true]} : vector<8xf32>, tensor<8xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %w into %out[%i0] [8] [1] : tensor<8xf32> into tensor<?xf32>
    }
  }
  return %r : tensor<?xf32>
}
