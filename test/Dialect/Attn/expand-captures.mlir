// RUN: attn-opt %s --attn-expand --canonicalize --cse --mlir-print-local-scope | FileCheck %s
// RUN: attn-opt %s --attn-expand=table-rows=16 --canonicalize --cse --mlir-print-local-scope | FileCheck %s --check-prefixes=CHECK,TABLES
// Gradients of captures, by the indices at which the score reads them.

// Read at every index: dt itself, where it belongs in the gradient.
// CHECK-LABEL: func @dense
func.func @dense(%x: tensor<2x4x?x16xf32>, %lse: tensor<2x4x?xf32>, %c: tensor<2x4x?x?xf32>) -> tensor<2x4x?x?xf32> {
  // CHECK: %[[DT:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %{{.*}}, %{{.*}} : {{.*}}attn.dims = ["b", "h", "i", "j"]
  // CHECK: tensor.insert_slice %[[DT]] into %{{.*}}[0, 0, 0, 0] [2, 4, %{{.*}}, %{{.*}}]
  %dq, %dk, %dv, %dc = attn.backward %x, %x, %x, %x, %x, %lse captures(%c : tensor<2x4x?x?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<2x4x?x?xf32>):
      %v = tensor.extract %t[%b, %h, %i, %j] : tensor<2x4x?x?xf32>
      %r = arith.addf %s, %v : f32
      attn.yield %r : f32
    } gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<2x4x?x?xf32>, %dt: f32):
      attn.accumulate %dt into %t[%b, %h, %i, %j] : f32 into tensor<2x4x?x?xf32>
      attn.yield %dt : f32
    } : tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>,
        tensor<2x4x?x16xf32>, tensor<2x4x?xf32>
    -> tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32> captures(tensor<2x4x?x?xf32>)
  return %dc : tensor<2x4x?x?xf32>
}

// What all batches read is summed over them, in a statement of its own.
// CHECK-LABEL: func @of_batches
func.func @of_batches(%x: tensor<2x4x?x16xf32>, %lse: tensor<2x4x?xf32>, %c: tensor<4x?x?xf32>) -> tensor<4x?x?xf32> {
  // CHECK: %[[DT:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %{{.*}}, %{{.*}} : {{.*}}attn.dims = ["b", "h", "i", "j"]
  // CHECK: %[[SUM:.*]] = linalg.generic {{.*}} iterator_types = ["reduction", "parallel", "parallel", "parallel"]} ins(%[[DT]] : {{.*}}attn.dims = ["b", "h", "i", "j"]
  // CHECK: tensor.insert_slice %[[SUM]] into %{{.*}}[0, 0, 0] [4, %{{.*}}, %{{.*}}]
  %dq, %dk, %dv, %dc = attn.backward %x, %x, %x, %x, %x, %lse captures(%c : tensor<4x?x?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<4x?x?xf32>):
      %v = tensor.extract %t[%h, %i, %j] : tensor<4x?x?xf32>
      %r = arith.addf %s, %v : f32
      attn.yield %r : f32
    } gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<4x?x?xf32>, %dt: f32):
      attn.accumulate %dt into %t[%h, %i, %j] : f32 into tensor<4x?x?xf32>
      attn.yield %dt : f32
    } : tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>,
        tensor<2x4x?x16xf32>, tensor<2x4x?xf32>
    -> tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32> captures(tensor<4x?x?xf32>)
  return %dc : tensor<4x?x?xf32>
}

// The same, written with an index that is constant.
// CHECK-LABEL: func @one_batch
func.func @one_batch(%x: tensor<2x4x?x16xf32>, %lse: tensor<2x4x?xf32>, %c: tensor<1x4x?x?xf32>) -> tensor<1x4x?x?xf32> {
  // CHECK: %[[SUM:.*]] = linalg.generic {{.*}} iterator_types = ["reduction", "parallel", "parallel", "parallel"]} ins(%{{.*}} : {{.*}}attn.dims = ["b", "h", "i", "j"]
  // CHECK: tensor.insert_slice %[[SUM]] into %{{.*}}[0, 0, 0, 0] [1, 4, %{{.*}}, %{{.*}}]
  %dq, %dk, %dv, %dc = attn.backward %x, %x, %x, %x, %x, %lse captures(%c : tensor<1x4x?x?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<1x4x?x?xf32>):
      %zero = arith.constant 0 : index
      %v = tensor.extract %t[%zero, %h, %i, %j] : tensor<1x4x?x?xf32>
      %r = arith.addf %s, %v : f32
      attn.yield %r : f32
    } gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<1x4x?x?xf32>, %dt: f32):
      %zero = arith.constant 0 : index
      attn.accumulate %dt into %t[%zero, %h, %i, %j] : f32 into tensor<1x4x?x?xf32>
      attn.yield %dt : f32
    } : tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>,
        tensor<2x4x?x16xf32>, tensor<2x4x?xf32>
    -> tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32> captures(tensor<1x4x?x?xf32>)
  return %dc : tensor<1x4x?x?xf32>
}

// Of keys: summed along the queries first, as dK is.
// CHECK-LABEL: func @of_keys
func.func @of_keys(%x: tensor<2x4x?x16xf32>, %lse: tensor<2x4x?xf32>, %c: tensor<2x?xf32>) -> tensor<2x?xf32> {
  // CHECK: %[[ROWS:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction", "parallel"]} ins(%{{.*}}, %{{.*}} : {{.*}}attn.dims = ["b", "h", "i", "j"]
  // CHECK: %[[SUM:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction", "parallel"]} ins(%[[ROWS]] : {{.*}}attn.dims = ["b", "h", "j"]
  // CHECK: tensor.insert_slice %[[SUM]] into %{{.*}}[0, 0] [2, %{{.*}}]
  %dq, %dk, %dv, %dc = attn.backward %x, %x, %x, %x, %x, %lse captures(%c : tensor<2x?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<2x?xf32>):
      %v = tensor.extract %t[%b, %j] : tensor<2x?xf32>
      %r = arith.addf %s, %v : f32
      attn.yield %r : f32
    } gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<2x?xf32>, %dt: f32):
      attn.accumulate %dt into %t[%b, %j] : f32 into tensor<2x?xf32>
      attn.yield %dt : f32
    } : tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>,
        tensor<2x4x?x16xf32>, tensor<2x4x?xf32>
    -> tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32> captures(tensor<2x?xf32>)
  return %dc : tensor<2x?xf32>
}

// Of queries: summed along the keys first, as dQ is.
// CHECK-LABEL: func @of_queries
func.func @of_queries(%x: tensor<2x4x?x16xf32>, %lse: tensor<2x4x?xf32>, %c: tensor<4x?xf32>) -> tensor<4x?xf32> {
  // CHECK: %[[KEYS:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%{{.*}}, %{{.*}} : {{.*}}attn.dims = ["b", "h", "i", "j"]
  // CHECK: %[[SUM:.*]] = linalg.generic {{.*}} iterator_types = ["reduction", "parallel", "parallel"]} ins(%[[KEYS]] : {{.*}}attn.dims = ["b", "h", "i"]
  // CHECK: tensor.insert_slice %[[SUM]] into %{{.*}}[0, 0] [4, %{{.*}}]
  %dq, %dk, %dv, %dc = attn.backward %x, %x, %x, %x, %x, %lse captures(%c : tensor<4x?xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<4x?xf32>):
      %v = tensor.extract %t[%h, %i] : tensor<4x?xf32>
      %r = arith.addf %s, %v : f32
      attn.yield %r : f32
    } gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<4x?xf32>, %dt: f32):
      attn.accumulate %dt into %t[%h, %i] : f32 into tensor<4x?xf32>
      attn.yield %dt : f32
    } : tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>,
        tensor<2x4x?x16xf32>, tensor<2x4x?xf32>
    -> tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32> captures(tensor<4x?xf32>)
  return %dc : tensor<4x?xf32>
}

// One slope per head: along the keys, then what is left of each row. The sum
// covers the gradient, nothing is inserted.
// CHECK-LABEL: func @of_heads
func.func @of_heads(%x: tensor<2x4x?x16xf32>, %lse: tensor<2x4x?xf32>, %c: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: %[[KEYS:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%{{.*}}, %{{.*}} : {{.*}}attn.dims = ["b", "h", "i", "j"]
  // CHECK: %[[ROWS:.*]] = linalg.generic {{.*}} ins(%[[KEYS]] : {{.*}}attn.dims = ["b", "h", "i"]
  // CHECK: %[[SUM:.*]] = linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]} ins(%[[ROWS]] : {{.*}}attn.dims = ["b", "h"]
  // CHECK: return %[[SUM]]
  %dq, %dk, %dv, %dc = attn.backward %x, %x, %x, %x, %x, %lse captures(%c : tensor<4xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<4xf32>):
      %v = tensor.extract %t[%h] : tensor<4xf32>
      %r = arith.addf %s, %v : f32
      attn.yield %r : f32
    } gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<4xf32>, %dt: f32):
      attn.accumulate %dt into %t[%h] : f32 into tensor<4xf32>
      attn.yield %dt : f32
    } : tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>,
        tensor<2x4x?x16xf32>, tensor<2x4x?xf32>
    -> tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32> captures(tensor<4xf32>)
  return %dc : tensor<4xf32>
}

// A scalar; its contribution dt s is computed where it is summed.
// CHECK-LABEL: func @scalar
func.func @scalar(%x: tensor<2x4x?x16xf32>, %lse: tensor<2x4x?xf32>, %c: f32) -> tensor<f32> {
  // CHECK: %[[KEYS:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%{{.*}}, %{{.*}} : {{.*}}attn.dims = ["b", "h", "i", "j"]
  // CHECK: arith.mulf
  // CHECK: arith.addf
  // CHECK: %[[ROWS:.*]] = linalg.generic {{.*}} ins(%[[KEYS]] : {{.*}}attn.dims = ["b", "h", "i"]
  // CHECK: linalg.generic {{.*}} ins(%[[ROWS]] : {{.*}}attn.dims = ["b", "h"]
  // CHECK: outs(%{{.*}} : tensor<f32>) {{.*}}attn.dims = ["b"]
  %dq, %dk, %dv, %dc = attn.backward %x, %x, %x, %x, %x, %lse captures(%c : f32)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: f32):
      %r = arith.mulf %s, %t : f32
      attn.yield %r : f32
    } gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: f32, %dt: f32):
      %ds = arith.mulf %dt, %t : f32
      %dc = arith.mulf %dt, %s : f32
      attn.accumulate %dc into %t : f32 into f32
      attn.yield %ds : f32
    } : tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>,
        tensor<2x4x?x16xf32>, tensor<2x4x?xf32>
    -> tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32> captures(tensor<f32>)
  return %dc : tensor<f32>
}

// At a computed index: each pair adds to the one element that it names. With tables for
// each 16 rows the rows say which table, and the tables are summed up before the batches.
// CHECK-LABEL: func @computed
func.func @computed(%x: tensor<2x4x?x16xf32>, %lse: tensor<2x4x?xf32>, %c: tensor<4x32xf32>) -> tensor<4x32xf32> {
  // TABLES: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction", "reduction", "parallel", "parallel"]} {{.*}}attn.dims = ["b", "h", "i", "j", "r", "n"]
  // TABLES: %[[ROW:.*]] = linalg.index 2
  // TABLES: %[[TABLE:.*]] = arith.divui %[[ROW]], %c16
  // TABLES: %[[HERE:.*]] = linalg.index 4
  // TABLES: arith.cmpi eq, %[[TABLE]], %[[HERE]]
  // TABLES: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction", "parallel"]} {{.*}}attn.dims = ["b", "h", "r", "n"]
  // CHECK: linalg.generic {{.*}} iterator_types = ["reduction", "parallel", "parallel"]} {{.*}}attn.dims = ["b", "h", "n"]
  %dq, %dk, %dv, %dc = attn.backward %x, %x, %x, %x, %x, %lse captures(%c : tensor<4x32xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<4x32xf32>):
      %c32 = arith.constant 32 : index
      %bucket = arith.remui %j, %c32 : index
      %v = tensor.extract %t[%h, %bucket] : tensor<4x32xf32>
      %r = arith.addf %s, %v : f32
      attn.yield %r : f32
    } gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<4x32xf32>, %dt: f32):
      %c32 = arith.constant 32 : index
      %bucket = arith.remui %j, %c32 : index
      attn.accumulate %dt into %t[%h, %bucket] : f32 into tensor<4x32xf32>
      attn.yield %dt : f32
    } : tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>,
        tensor<2x4x?x16xf32>, tensor<2x4x?xf32>
    -> tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32> captures(tensor<4x32xf32>)
  return %dc : tensor<4x32xf32>
}

// Beside an index of queries: summed over what no index depends on, the batch and the keys, with
// the head whole; then added up. No table has rows of its own.
// CHECK-LABEL: func @computed_beside_queries
// CHECK-SAME: %[[PLACE:[a-z0-9]*]]: tensor<4xindex>
func.func @computed_beside_queries(%place: tensor<4xindex>, %x: tensor<2x4x?x16xf32>, %k: tensor<2x2x?x16xf32>, %lse: tensor<2x4x?xf32>, %c: tensor<3x?xf32>) -> tensor<3x?xf32> {
  // CHECK: %[[KEYS:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%{{.*}}, %{{.*}} : {{.*}}attn.dims = ["b", "h", "g", "i", "j"]
  // CHECK: %[[SUM:.*]] = linalg.generic {{.*}} iterator_types = ["reduction", "parallel", "parallel", "parallel"]} ins(%[[KEYS]] : {{.*}}attn.dims = ["b", "h", "g", "i"]
  // CHECK: %[[HEADS:.*]] = tensor.collapse_shape %[[SUM]] {{\[\[}}0, 1], [2]] : tensor<2x2x?xf32> into tensor<4x?xf32>
  // CHECK: %[[ZEROS:.*]] = linalg.fill
  // CHECK: %[[R:.*]] = attn.scatter_sum %[[HEADS]] into %[[ZEROS]] at {
  // CHECK: ^bb0(%[[H:.*]]: index, %[[I:.*]]: index):
  // CHECK:   %[[AT:.*]] = tensor.extract %[[PLACE]][%[[H]]]
  // CHECK:   attn.yield %[[AT]], %[[I]] : index, index
  // CHECK: return %[[R]]
  %dq, %dk, %dv, %dc = attn.backward %x, %x, %k, %k, %x, %lse captures(%c, %place : tensor<3x?xf32>, tensor<4xindex>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<3x?xf32>, %p: tensor<4xindex>):
      %at = tensor.extract %p[%h] : tensor<4xindex>
      %v = tensor.extract %t[%at, %i] : tensor<3x?xf32>
      %r = arith.mulf %s, %v : f32
      attn.yield %r : f32
    } gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<3x?xf32>, %p: tensor<4xindex>, %dt: f32):
      %at = tensor.extract %p[%h] : tensor<4xindex>
      %v = tensor.extract %t[%at, %i] : tensor<3x?xf32>
      %ds = arith.mulf %dt, %v : f32
      %g = arith.mulf %dt, %s : f32
      attn.accumulate %g into %t[%at, %i] : f32 into tensor<3x?xf32>
      attn.yield %ds : f32
    } : tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x2x?x16xf32>, tensor<2x2x?x16xf32>,
        tensor<2x4x?x16xf32>, tensor<2x4x?xf32>
    -> tensor<2x4x?x16xf32>, tensor<2x2x?x16xf32>, tensor<2x2x?x16xf32> captures(tensor<3x?xf32>)
  return %dc : tensor<3x?xf32>
}

// At an index of heads and at one of keys: a table for each head of the latter alone. Its dimension
// is an index of the sum.
// CHECK-LABEL: func @computed_of_heads
func.func @computed_of_heads(%x: tensor<2x4x?x16xf32>, %lse: tensor<2x4x?xf32>, %c: tensor<2x32xf32>) -> tensor<2x32xf32> {
  // CHECK: linalg.generic {{.*}}attn.dims = ["b", "h", "i", "j", {{("r", )?}}"n"]
  // CHECK: %[[SUM:.*]] = linalg.generic {{.*}} iterator_types = ["reduction", "parallel", "parallel"]} {{.*}}attn.dims = ["b", "h", "n"]
  // CHECK: attn.scatter_sum %[[SUM]] into %{{.*}} at {
  // CHECK: ^bb0(%[[H:.*]]: index, %[[N:.*]]: index):
  // CHECK:   %[[HALF:.*]] = arith.divui %[[H]]
  // CHECK:   attn.yield %[[HALF]], %[[N]] : index, index
  // CHECK: } : tensor<4x32xf32>, tensor<2x32xf32> -> tensor<2x32xf32>
  %dq, %dk, %dv, %dc = attn.backward %x, %x, %x, %x, %x, %lse captures(%c : tensor<2x32xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<2x32xf32>):
      %c2 = arith.constant 2 : index
      %c32 = arith.constant 32 : index
      %half = arith.divui %h, %c2 : index
      %bucket = arith.remui %j, %c32 : index
      %v = tensor.extract %t[%half, %bucket] : tensor<2x32xf32>
      %r = arith.addf %s, %v : f32
      attn.yield %r : f32
    } gradient {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<2x32xf32>, %dt: f32):
      %c2 = arith.constant 2 : index
      %c32 = arith.constant 32 : index
      %half = arith.divui %h, %c2 : index
      %bucket = arith.remui %j, %c32 : index
      attn.accumulate %dt into %t[%half, %bucket] : f32 into tensor<2x32xf32>
      attn.yield %dt : f32
    } : tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>,
        tensor<2x4x?x16xf32>, tensor<2x4x?xf32>
    -> tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32> captures(tensor<2x32xf32>)
  return %dc : tensor<2x32xf32>
}
