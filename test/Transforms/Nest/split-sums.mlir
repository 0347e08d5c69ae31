// RUN: attn-opt %s --attn-fuse-reductions --attn-split-sums=columns=16 | FileCheck %s
// RUN: attn-opt %s --attn-fuse-reductions --attn-split-sums=columns=40 | FileCheck %s --check-prefix=WHOLE
// RUN: attn-opt %s --attn-fuse-reductions --attn-split-sums=columns=16 --remarks-filter=attn-split-sums -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// RUN: attn-opt %s --attn-fuse-reductions --attn-split-sums=columns=16 --attn-split-sums=columns=8 --remarks-filter-missed=attn-split-sums -o /dev/null 2>&1 | FileCheck %s --check-prefix=WIDE
// WIDE: [Missed] not split | Category:attn-split-sums | Reason="its 16 columns are of one sum"
// REMARKS-DAG: {{^ *}}1 [Passed] split | Category:attn-split-sums{{$}}
// REMARKS-DAG: {{^ *}}1 [Passed] stored apart | Category:attn-split-sums{{$}}

// Two sums of the same values, of 16 and 24 columns: one pass, or one for each with
// only what it reads.

#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#pairs = affine_map<(i, j) -> (i, j)>
// CHECK-LABEL: func @two
// CHECK:         %[[A:.*]] = attn.fold %{{.*}} streams(%arg1 : tensor<?x16xf32>) dims [0] carries(%{{.*}} : tensor<?x16xf32>)
// CHECK-COUNT-2:   linalg.generic
// CHECK:           attn.yield
// CHECK:         } merge {
// CHECK:         %[[B:.*]] = attn.fold %{{.*}} streams(%arg1, %arg2 : tensor<?x16xf32>, tensor<?x24xf32>) dims [0, 0] carries(%{{.*}} : tensor<?x24xf32>)
// CHECK-COUNT-2:   linalg.generic
// CHECK:           attn.yield
// CHECK:         } merge {
// CHECK:         return %[[A]], %[[B]]
// WHOLE-LABEL: func @two
// WHOLE:         attn.fold {{.*}} carries(%{{.*}}, %{{.*}} : tensor<?x16xf32>, tensor<?x24xf32>)
// WHOLE-NOT:     attn.fold
// WHOLE:         return
func.func @two(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x24xf32>) -> (tensor<?x16xf32>, tensor<?x24xf32>) {
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
  %ea = tensor.empty(%I) : tensor<?x16xf32>
  %fa = linalg.fill ins(%zero : f32) outs(%ea : tensor<?x16xf32>) -> tensor<?x16xf32>
  %a = linalg.generic {indexing_maps = [#s, #k, #q], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%s, %k : tensor<?x?xf32>, tensor<?x16xf32>) outs(%fa : tensor<?x16xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %m = arith.mulf %a, %b : f32
    %t = arith.addf %c, %m : f32
    linalg.yield %t : f32
  } -> tensor<?x16xf32>
  %eb = tensor.empty(%I) : tensor<?x24xf32>
  %fb = linalg.fill ins(%zero : f32) outs(%eb : tensor<?x24xf32>) -> tensor<?x24xf32>
  %b = linalg.generic {indexing_maps = [#s, #k, #q], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%s, %v : tensor<?x?xf32>, tensor<?x24xf32>) outs(%fb : tensor<?x24xf32>) {
  ^bb0(%a1: f32, %b1: f32, %c1: f32):
    %m = arith.mulf %a1, %b1 : f32
    %t = arith.addf %c1, %m : f32
    linalg.yield %t : f32
  } -> tensor<?x24xf32>
  return %a, %b : tensor<?x16xf32>, tensor<?x24xf32>
}

// A value for each pair beside a sum of the same values: stored by a pass of its own.
// CHECK-LABEL: func @stored
// CHECK:         %[[SUM:.*]] = attn.fold %{{.*}} carries(%{{.*}} : tensor<?x16xf32>)
// CHECK:           attn.yield %{{.*}} : tensor<?x16xf32>
// CHECK:         %[[ALL:.*]] = attn.fold %{{.*}} streams(%arg1 : tensor<?x16xf32>) dims [0] {
// CHECK-COUNT-2:   linalg.generic
// CHECK:           attn.yield %{{.*}} : tensor<?x?xf32>
// CHECK:         } maps [1]
// CHECK:         return %[[SUM]], %[[ALL]]
func.func @stored(%q: tensor<?x16xf32>, %k: tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?x?xf32>) {
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
  %p = linalg.generic {indexing_maps = [#pairs, #pairs], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<?x?xf32>) outs(%es : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %e = math.exp %a : f32
    linalg.yield %e : f32
  } -> tensor<?x?xf32>
  %ea = tensor.empty(%I) : tensor<?x16xf32>
  %fa = linalg.fill ins(%zero : f32) outs(%ea : tensor<?x16xf32>) -> tensor<?x16xf32>
  %a = linalg.generic {indexing_maps = [#s, #k, #q], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%p, %k : tensor<?x?xf32>, tensor<?x16xf32>) outs(%fa : tensor<?x16xf32>) {
  ^bb0(%x: f32, %b: f32, %c: f32):
    %m = arith.mulf %x, %b : f32
    %t = arith.addf %c, %m : f32
    linalg.yield %t : f32
  } -> tensor<?x16xf32>
  return %a, %p : tensor<?x16xf32>, tensor<?x?xf32>
}
