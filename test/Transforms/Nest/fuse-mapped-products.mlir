// RUN: attn-opt %s --attn-fuse-reductions --canonicalize --cse | FileCheck %s
// A product that is changed and then summed over batches only: tiles of it are
// mapped, so that neither it nor what it becomes first is stored.

#bij = affine_map<(b, i, j) -> (b, i, j)>
#ij = affine_map<(b, i, j) -> (i, j)>

// CHECK-LABEL: func @summed_over_batches
// CHECK-SAME: (%[[X:.*]]: tensor<?x?x64xf32>, %[[Y:.*]]: tensor<?x?x64xf32>)
func.func @summed_over_batches(%x: tensor<?x?x64xf32>, %y: tensor<?x?x64xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %b = tensor.dim %x, %c0 : tensor<?x?x64xf32>
  %m = tensor.dim %x, %c1 : tensor<?x?x64xf32>
  %n = tensor.dim %y, %c1 : tensor<?x?x64xf32>
  %se = tensor.empty(%b, %m, %n) : tensor<?x?x?xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%se : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  // CHECK: %[[R:.*]] = attn.fold %{{.*}} streams(%[[Y]] : tensor<?x?x64xf32>) dims [1] {
  // CHECK: ^bb0(%{{.*}}: index, %[[YB:.*]]: tensor<?x?x64xf32>):
  // CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[YB]]
  // CHECK: %[[T:.*]] = linalg.generic {{.*}} ins(%[[S]]
  // CHECK: math.tanh
  // CHECK: attn.yield %[[T]]
  // CHECK-NEXT: } maps [2]
  %s = linalg.generic {indexing_maps = [affine_map<(b, i, j, d) -> (b, i, d)>, affine_map<(b, i, j, d) -> (b, j, d)>, affine_map<(b, i, j, d) -> (b, i, j)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%x, %y : tensor<?x?x64xf32>, tensor<?x?x64xf32>) outs(%s0 : tensor<?x?x?xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %r, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x?x?xf32>
  %t = linalg.generic {indexing_maps = [#bij, #bij], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s : tensor<?x?x?xf32>) outs(%se : tensor<?x?x?xf32>) {
  ^bb0(%p: f32, %r: f32):
    %0 = math.tanh %p : f32
    linalg.yield %0 : f32
  } -> tensor<?x?x?xf32>
  %ge = tensor.empty(%m, %n) : tensor<?x?xf32>
  %g0 = linalg.fill ins(%zero : f32) outs(%ge : tensor<?x?xf32>) -> tensor<?x?xf32>
  // CHECK: linalg.generic {{.*}} iterator_types = ["reduction", "parallel", "parallel"]{{.*}} ins(%[[R]]
  %g = linalg.generic {indexing_maps = [#bij, #ij], iterator_types = ["reduction", "parallel", "parallel"]} ins(%t : tensor<?x?x?xf32>) outs(%g0 : tensor<?x?xf32>) {
  ^bb0(%p: f32, %r: f32):
    %0 = arith.addf %r, %p : f32
    linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  return %g : tensor<?x?xf32>
}

// Nothing is saved where the product itself is what is wanted.
// CHECK-LABEL: func @product
// CHECK-NOT: attn.fold
func.func @product(%x: tensor<?x64xf32>, %y: tensor<64x?xf32>, %z: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %p = linalg.matmul ins(%x, %y : tensor<?x64xf32>, tensor<64x?xf32>) outs(%z : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %p : tensor<?x?xf32>
}

// Nor where tiles of it would be sums over a dimension of any size.
// CHECK-LABEL: func @large_product
// CHECK-NOT: attn.fold
func.func @large_product(%x: tensor<?x?xf32>, %y: tensor<?x?xf32>, %z: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %p = linalg.matmul ins(%x, %y : tensor<?x?xf32>, tensor<?x?xf32>) outs(%z : tensor<?x?xf32>) -> tensor<?x?xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%p : tensor<?x?xf32>) outs(%z : tensor<?x?xf32>) {
  ^bb0(%a: f32, %r: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  return %t : tensor<?x?xf32>
}
