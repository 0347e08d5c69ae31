// RUN: attn-opt %s -split-input-file -attn-print-dependences -o /dev/null | FileCheck %s

// Row softmax as a chain: the maximum has to be complete before the first
// exponential, so the loops over j of S1 and S2 may not be joined; as long as
// they are not, S1 and S3 are ordinary reductions that atomics may do.
// CHECK-LABEL: dependences of @softmax
// CHECK:        S1 [i, j] reduce maxnumf
// CHECK-NEXT:   S2 [i, j] map subf exp
// CHECK-NEXT:   S3 [i, j] linalg.reduce
// CHECK-NEXT:   S4 [i, j] linalg.div
// CHECK-NEXT: dependences:
// CHECK-NEXT:   RAW S1 -> S1 (0, 1) carried by j [reduction]
// CHECK-NEXT:   RAW S1 -> S2 (0) after all of j
// CHECK-NEXT:   RAW S2 -> S3 (0, 0)
// CHECK-NEXT:   RAW S2 -> S4 (0, 0)
// CHECK-NEXT:   RAW S3 -> S3 (0, 1) carried by j [reduction]
// CHECK:      to run {S1} with parallel j:
// CHECK:        atomics: legal, max is associative and commutative
// CHECK:        grid-phases: legal
func.func @softmax(%x: tensor<8x16xf32>, %m0: tensor<8xf32>, %l0: tensor<8xf32>, %lb: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8xf32>) {
  %e = tensor.empty() : tensor<8x16xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x16xf32>) outs(%m0 : tensor<8xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %0 = arith.maxnumf %a, %acc : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%x, %m : tensor<8x16xf32>, tensor<8xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x16xf32>
  %l = linalg.reduce {arith.addf} ins(%p : tensor<8x16xf32>) outs(%l0 : tensor<8xf32>) dimensions = [1]
  %y = linalg.div ins(%p, %lb : tensor<8x16xf32>, tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %y, %l : tensor<8x16xf32>, tensor<8xf32>
}

// -----

// One tensor read along two dimensions: they stay two loops, and what made the
// tensor is needed whole along the second.
// CHECK-LABEL: dependences of @gram
// CHECK:        S1 [i, j] linalg.exp
// CHECK-NEXT:   S2 [i, j, k] reduce
// CHECK:        RAW S1 -> S2 (0, 0)
// CHECK:        RAW S1 -> S2 (0) after all of i
func.func @gram(%x: tensor<8x4xf32>, %acc: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %e = tensor.empty() : tensor<8x4xf32>
  %k = linalg.exp {attn.dims = ["i", "j"]} ins(%x : tensor<8x4xf32>) outs(%e : tensor<8x4xf32>) -> tensor<8x4xf32>
  %g = linalg.generic {indexing_maps = [affine_map<(i, k, j) -> (i, j)>, affine_map<(i, k, j) -> (k, j)>, affine_map<(i, k, j) -> (i, k)>],
      iterator_types = ["parallel", "parallel", "reduction"]} ins(%k, %k : tensor<8x4xf32>, tensor<8x4xf32>) outs(%acc : tensor<8x8xf32>)
      attrs = {attn.dims = ["i", "k", "j"]} {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %c, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x8xf32>
  return %g : tensor<8x8xf32>
}

// -----

// A combiner that is not associative, an op without loops, a scalar that is
// taken out of a tensor, and elementwise arithmetic on tensors.
// CHECK-LABEL: dependences of @odd
// CHECK:        S1 [i, j] reduce subf
// CHECK-NEXT:   S2 [i] arith.addf
// CHECK-NEXT:   S3 [] tensor.expand_shape
// CHECK-NEXT:   S4 [k, l] map addf
// CHECK:        RAW S1 -> S1 (0, 1) carried by j
// CHECK-NOT:    [reduction]
// CHECK:        RAW S1 -> S2 (0)
// CHECK:        RAW S2 -> S3 ()
// CHECK:        RAW S2 -> S4 ()
// CHECK:        RAW S3 -> S4 ()
// CHECK:        atomics: refused, S1 is not one associative operation on the old value
func.func @odd(%x: tensor<8x16xf32>, %a0: tensor<8xf32>) -> tensor<2x4xf32> {
  %c0 = arith.constant 0 : index
  %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x16xf32>) outs(%a0 : tensor<8xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %0 = arith.subf %acc, %a : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %t = arith.addf %s, %s : tensor<8xf32>
  %e = tensor.expand_shape %t [[0, 1]] output_shape [2, 4] : tensor<8xf32> into tensor<2x4xf32>
  %f = tensor.extract %t[%c0] : tensor<8xf32>
  %o = tensor.empty() : tensor<2x4xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%e : tensor<2x4xf32>) outs(%o : tensor<2x4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.addf %a, %f : f32
    linalg.yield %0 : f32
  } -> tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}

// -----

// The size of a tensor, and an output that gives only its shape, are no use of
// its content: S2 does not wait for S1.
// CHECK-LABEL: dependences of @shape
// CHECK:        S2 [i] map negf
// CHECK-NEXT: dependences:
// CHECK-NEXT: components:
func.func @shape(%x: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %a = linalg.exp ins(%x : tensor<?xf32>) outs(%x : tensor<?xf32>) -> tensor<?xf32>
  %n = tensor.dim %a, %c0 : tensor<?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %b:2 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%x : tensor<?xf32>) outs(%e, %a : tensor<?xf32>, tensor<?xf32>) {
  ^bb0(%v: f32, %o: f32, %p: f32):
    %0 = arith.negf %v : f32
    linalg.yield %0, %0 : f32, f32
  } -> (tensor<?xf32>, tensor<?xf32>)
  return %b#0 : tensor<?xf32>
}
