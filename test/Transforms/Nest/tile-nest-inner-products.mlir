// RUN: attn-opt %s --attn-plan-nest=order=m_outer --attn-tile-nest --canonicalize --cse | FileCheck %s

// Inner products of rows are contractions. One of a head's size is one tile,
// whatever the size and the tile of streamed dimensions, and no loop.

#row = affine_map<(i, e) -> (i, e)>
#sum = affine_map<(i, e) -> (i)>

// CHECK-LABEL: func @head_size
// CHECK:         scf.forall
// CHECK-NOT:       scf.for {{.*}} step
// CHECK:           vector.transfer_read {{.*}} {in_bounds = [false, true]} : tensor<?x300xf32>, vector<64x300xf32>
// CHECK:           vector.contract {{.*}} : vector<64x300xf32>, vector<64x300xf32> into vector<64xf32>
// CHECK-NOT:     vector.multi_reduction
// CHECK:         return
func.func @head_size(%x: tensor<?x300xf32>, %y: tensor<?x300xf32>) -> tensor<?xf32> {
  %n = arith.constant 300 : index
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %rows = tensor.dim %x, %c0 : tensor<?x300xf32>
  %empty = tensor.empty(%rows) : tensor<?xf32>
  %none = linalg.fill ins(%zero : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  %r = attn.fold %n streams(%x, %y : tensor<?x300xf32>, tensor<?x300xf32>) dims [1, 1] carries(%none : tensor<?xf32>) {
  ^bb0(%e0: index, %xb: tensor<?x?xf32>, %yb: tensor<?x?xf32>, %d: tensor<?xf32>):
    %next = linalg.generic {indexing_maps = [#row, #row, #sum], iterator_types = ["parallel", "reduction"]}
        ins(%xb, %yb : tensor<?x?xf32>, tensor<?x?xf32>) outs(%d : tensor<?xf32>) {
    ^bb0(%u: f32, %v: f32, %w: f32):
      %p = arith.mulf %u, %v : f32
      %t = arith.addf %w, %p : f32
      linalg.yield %t : f32
    } -> tensor<?xf32>
    attn.yield %next : tensor<?xf32>
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// A long one is streamed.
// CHECK-LABEL: func @long
// CHECK:         scf.for {{.*}} step %c128
// CHECK:           vector.contract {{.*}} : vector<64x128xf32>, vector<64x128xf32> into vector<64xf32>
func.func @long(%x: tensor<?x1280xf32>, %y: tensor<?x1280xf32>) -> tensor<?xf32> {
  %n = arith.constant 1280 : index
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %rows = tensor.dim %x, %c0 : tensor<?x1280xf32>
  %empty = tensor.empty(%rows) : tensor<?xf32>
  %none = linalg.fill ins(%zero : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  %r = attn.fold %n streams(%x, %y : tensor<?x1280xf32>, tensor<?x1280xf32>) dims [1, 1] carries(%none : tensor<?xf32>) {
  ^bb0(%e0: index, %xb: tensor<?x?xf32>, %yb: tensor<?x?xf32>, %d: tensor<?xf32>):
    %next = linalg.generic {indexing_maps = [#row, #row, #sum], iterator_types = ["parallel", "reduction"]}
        ins(%xb, %yb : tensor<?x?xf32>, tensor<?x?xf32>) outs(%d : tensor<?xf32>) {
    ^bb0(%u: f32, %v: f32, %w: f32):
      %p = arith.mulf %u, %v : f32
      %t = arith.addf %w, %p : f32
      linalg.yield %t : f32
    } -> tensor<?xf32>
    attn.yield %next : tensor<?xf32>
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// A sum that is no product is streamed too: nothing has to cancel.
// CHECK-LABEL: func @sum
// CHECK:         scf.for {{.*}} step %c128
// CHECK:           vector.multi_reduction <add>
func.func @sum(%x: tensor<?x300xf32>) -> tensor<?xf32> {
  %n = arith.constant 300 : index
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %rows = tensor.dim %x, %c0 : tensor<?x300xf32>
  %empty = tensor.empty(%rows) : tensor<?xf32>
  %none = linalg.fill ins(%zero : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  %r = attn.fold %n streams(%x : tensor<?x300xf32>) dims [1] carries(%none : tensor<?xf32>) {
  ^bb0(%e0: index, %xb: tensor<?x?xf32>, %d: tensor<?xf32>):
    %next = linalg.generic {indexing_maps = [#row, #sum], iterator_types = ["parallel", "reduction"]}
        ins(%xb : tensor<?x?xf32>) outs(%d : tensor<?xf32>) {
    ^bb0(%u: f32, %w: f32):
      %t = arith.addf %w, %u : f32
      linalg.yield %t : f32
    } -> tensor<?xf32>
    attn.yield %next : tensor<?xf32>
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}
