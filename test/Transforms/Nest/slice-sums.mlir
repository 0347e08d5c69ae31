// RUN: attn-opt %s --attn-fuse-reductions "--attn-slice-sums=columns=32 multiple=8" --canonicalize | FileCheck %s
// RUN: attn-opt %s --attn-fuse-reductions --attn-slice-sums=columns=64 | FileCheck %s --check-prefix=WHOLE
// RUN: attn-opt %s --attn-fuse-reductions "--attn-slice-sums=columns=32 multiple=8" --remarks-filter=attn-slice-sums -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: [Passed] sliced | Category:attn-slice-sums{{.*}} | Columns=56, Slices=2
// REMARKS-DAG: [Missed] not sliced | Category:attn-slice-sums{{.*}} | Reason="of its 56 columns: a statement needs all of them"

#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#pairs = affine_map<(i, j) -> (i, j)>
#rows = affine_map<(i, j) -> (i)>

// 56 columns as 32 and 24: each slice has the scores again, its columns of the values, and what
// follows of it; the result is put together.
// CHECK-LABEL: func @wide
// CHECK-DAG:   %[[OUT:.*]] = tensor.empty(%{{.*}}) : tensor<?x56xbf16>
// CHECK-DAG:   %[[V0:.*]] = tensor.extract_slice %arg2[0, 0] [%{{.*}}, 32] [1, 1]
// CHECK:       %[[A:.*]] = attn.fold %{{.*}} streams(%arg1, %[[V0]] : tensor<?x16xf32>, tensor<?x32xf32>) dims [0, 0] carries(%{{.*}} : tensor<?x32xf32>)
// CHECK:       attn.yield %{{.*}} : tensor<?x32xf32>
// CHECK:       } merge {
// CHECK:       ^bb0(%{{.*}}: tensor<?x32xf32>, %{{.*}}: tensor<?x32xf32>):
// CHECK:       %[[V1:.*]] = tensor.extract_slice %arg2[0, 32] [%{{.*}}, 24] [1, 1]
// CHECK:       %[[B:.*]] = attn.fold %{{.*}} streams(%arg1, %[[V1]] : tensor<?x16xf32>, tensor<?x24xf32>) dims [0, 0] carries(%{{.*}} : tensor<?x24xf32>)
// CHECK:       %[[C:.*]] = linalg.generic {{.*}} ins(%[[A]] : tensor<?x32xf32>) outs(%{{.*}} : tensor<?x32xbf16>)
// CHECK:       %[[D:.*]] = linalg.generic {{.*}} ins(%[[B]] : tensor<?x24xf32>) outs(%{{.*}} : tensor<?x24xbf16>)
// CHECK:       %[[FIRST:.*]] = tensor.insert_slice %[[C]] into %[[OUT]][0, 0] [%{{.*}}, 32] [1, 1]
// CHECK:       %[[ALL:.*]] = tensor.insert_slice %[[D]] into %[[FIRST]][0, 32] [%{{.*}}, 24] [1, 1]
// CHECK:       return %[[ALL]]
// WHOLE-LABEL: func @wide
// WHOLE:       attn.fold {{.*}} carries(%{{.*}} : tensor<?x56xf32>)
// WHOLE-NOT:   attn.fold
// WHOLE:       return
func.func @wide(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x56xf32>) -> tensor<?x56xbf16> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %I = tensor.dim %q, %c0 : tensor<?x16xf32>
  %J = tensor.dim %k, %c0 : tensor<?x16xf32>
  %es = tensor.empty(%I, %J) : tensor<?x?xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<?x16xf32>, tensor<?x16xf32>) outs(%fs : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %m = arith.mulf %a, %b : f32
    %t = arith.addf %c, %m : f32
    linalg.yield %t : f32
  } -> tensor<?x?xf32>
  %eo = tensor.empty(%I) : tensor<?x56xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x56xf32>) -> tensor<?x56xf32>
  %o = linalg.generic {indexing_maps = [#s, #k, #q], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%s, %v : tensor<?x?xf32>, tensor<?x56xf32>) outs(%fo : tensor<?x56xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %m = arith.mulf %a, %b : f32
    %t = arith.addf %c, %m : f32
    linalg.yield %t : f32
  } -> tensor<?x56xf32>
  %er = tensor.empty(%I) : tensor<?x56xbf16>
  %r = linalg.generic {indexing_maps = [#pairs, #pairs], iterator_types = ["parallel", "parallel"]}
      ins(%o : tensor<?x56xf32>) outs(%er : tensor<?x56xbf16>) {
  ^bb0(%a: f32, %b: bf16):
    %t = arith.truncf %a : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<?x56xbf16>
  return %r : tensor<?x56xbf16>
}

// The number of a column is a part of what is summed: all columns stay together.
// CHECK-LABEL: func @numbered
// CHECK:       attn.fold {{.*}} carries(%{{.*}} : tensor<?x56xf32>)
// CHECK-NOT:   attn.fold
// CHECK:       return
func.func @numbered(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x56xf32>) -> tensor<?x56xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %I = tensor.dim %q, %c0 : tensor<?x16xf32>
  %J = tensor.dim %k, %c0 : tensor<?x16xf32>
  %es = tensor.empty(%I, %J) : tensor<?x?xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<?x16xf32>, tensor<?x16xf32>) outs(%fs : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %m = arith.mulf %a, %b : f32
    %t = arith.addf %c, %m : f32
    linalg.yield %t : f32
  } -> tensor<?x?xf32>
  %eo = tensor.empty(%I) : tensor<?x56xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x56xf32>) -> tensor<?x56xf32>
  %o = linalg.generic {indexing_maps = [#s, #k, #q], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%s, %v : tensor<?x?xf32>, tensor<?x56xf32>) outs(%fo : tensor<?x56xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %e = linalg.index 2 : index
    %n = arith.index_cast %e : index to i32
    %x = arith.sitofp %n : i32 to f32
    %w = arith.addf %b, %x : f32
    %m = arith.mulf %a, %w : f32
    %t = arith.addf %c, %m : f32
    linalg.yield %t : f32
  } -> tensor<?x56xf32>
  return %o : tensor<?x56xf32>
}

// Rows are no columns, however many are known, and whatever asks for their number.
// CHECK-LABEL: func @rows
// CHECK:       attn.fold {{.*}} carries(%{{.*}} : tensor<2x100xf32>)
// CHECK-NOT:   attn.fold
// CHECK:       return
func.func @rows(%x: tensor<2x100x?xf32>) -> tensor<2x100xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x100xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x100xf32>) -> tensor<2x100xf32>
  %c2 = arith.constant 2 : index
  %J = tensor.dim %x, %c2 : tensor<2x100x?xf32>
  %et = tensor.empty(%J) : tensor<2x100x?xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (b, i, j)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<2x100x?xf32>) outs(%et : tensor<2x100x?xf32>) {
  ^bb0(%a: f32, %c: f32):
    %i = linalg.index 1 : index
    %n = arith.index_cast %i : index to i32
    %y = arith.sitofp %n : i32 to f32
    %m = arith.mulf %a, %y : f32
    linalg.yield %m : f32
  } -> tensor<2x100x?xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (b, i)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%t : tensor<2x100x?xf32>) outs(%f : tensor<2x100xf32>) {
  ^bb0(%a: f32, %c: f32):
    %r = arith.addf %c, %a : f32
    linalg.yield %r : f32
  } -> tensor<2x100xf32>
  return %s : tensor<2x100xf32>
}
