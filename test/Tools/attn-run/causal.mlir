// Tiles above the diagonal are not visited, those below have no mask; the
// scale, the passes' remarks and the result's shapes come out right.
// RUN: attn-run %s --shape 0=1x2x512x32 --shape 1=1x1x512x32 --block-m=64 --block-n=128 --explain --check --guard --stride-pad=7 | FileCheck %s
// CHECK: ran 'main' on cpu
// CHECK: tiles: 40 of 64 visited, 16 with mask arithmetic, 24 without
// CHECK: remark: loop order
// CHECK: check: result 0: ok
// CHECK: check: result 1: ok

// The same numbers whatever the tiles and the order.
// RUN: attn-run %s --shape 0=1x2x77x32 --shape 1=1x1x203x32 --block-m=16 --block-n=32 --check | FileCheck %s --check-prefix=OK
// RUN: attn-run %s --shape 0=1x2x77x32 --shape 1=1x1x203x32 --loop-order=n_outer --threads=3 --check | FileCheck %s --check-prefix=OK
// OK: check: result 0: ok
// OK: check: result 1: ok

// Passes say what they did.
// RUN: attn-run %s --shape 0=1x2x4x32 --shape 1=1x1x4x32 '--remarks=attn-fuse-.*' 2>&1 | FileCheck %s --check-prefix=FUSED --implicit-check-not=attn-project-masks
// RUN: attn-run %s --shape 0=1x2x4x32 --shape 1=1x1x4x32 --remarks 2>&1 | FileCheck %s --check-prefixes=FUSED,PROJECTED
// RUN: not attn-run %s --shape 0=1x2x4x32 --shape 1=1x1x4x32 '--remarks=(' 2>&1 | FileCheck %s --check-prefix=REGEX
// FUSED: remark: [Passed] fused | Category:attn-fuse-reductions
// PROJECTED: remark: [Passed] projected | Category:attn-project-masks
// REGEX: error: remarks: expected a regular expression for names of passes, got '(': parentheses not balanced

// Every pass of the pipeline can be printed.
// RUN: attn-run %s --shape 0=1x2x4x32 --shape 1=1x1x4x32 --mlir-print-ir-after=attn-emit-shape-function 2>&1 | FileCheck %s --check-prefix=PASSES
// PASSES: IR Dump After {{.*}}attn-emit-shape-function
// PASSES: func.func @main_shape

func.func @main(%q: tensor<1x2x?x32xf32>, %k: tensor<1x1x?x32xf32>, %v: tensor<1x1x?x32xf32>)
    -> (tensor<1x2x?x32xf32>, tensor<1x2x?xf32>) {
  %o, %lse = attn.forward %q, %k, %v
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %keep = arith.cmpi sge, %i, %j : index
      attn.yield %keep : i1
    } : tensor<1x2x?x32xf32>, tensor<1x1x?x32xf32>, tensor<1x1x?x32xf32>
        -> tensor<1x2x?x32xf32>, tensor<1x2x?xf32>
  return %o, %lse : tensor<1x2x?x32xf32>, tensor<1x2x?xf32>
}
