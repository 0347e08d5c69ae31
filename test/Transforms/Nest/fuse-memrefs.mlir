// RUN: attn-opt %s --attn-fuse-reductions | FileCheck %s

// Statements on memory stay as they are.
// CHECK-LABEL: func @total
// CHECK-NOT: attn.fold
// CHECK: linalg.generic
func.func @total(%a: memref<?xf32>, %b: memref<f32>) {
  linalg.generic {indexing_maps = [affine_map<(k) -> (k)>, affine_map<(k) -> ()>], iterator_types = ["reduction"]}
      ins(%a : memref<?xf32>) outs(%b : memref<f32>) {
  ^bb0(%x: f32, %s: f32):
    %t = arith.addf %s, %x : f32
    linalg.yield %t : f32
  }
  return
}
