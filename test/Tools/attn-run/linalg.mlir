// A function of linalg ops, compiled and compared with the reference: with
// padding full of NaN, with guard pages, and from files.
// RUN: attn-run %s --shape 0=33x8 --shape 1=17x8 --check --guard --stride-pad=3 | FileCheck %s
// RUN: attn-run %s --shape 0=1x8 --shape 1=1x8 --check | FileCheck %s
// RUN: attn-run %s --shape 0=0x8 --shape 1=5x8 --check | FileCheck %s
// CHECK: ran 'scores' on cpu
// CHECK: check: result 0: ok

// RUN: attn-run %s --shape 0=3x8 --shape 1=2x8 --bench=3 --json --output 0=%t.npy | FileCheck %s --check-prefix=JSON
// JSON: "entry": "scores"
// JSON: "compile_s":
// JSON: "repetitions": 3
// JSON: "median_s":
// JSON: "input_bytes": 160
// JSON: "output_bytes": 24
// JSON: "peak_rss_bytes":

// A result that was written can be read again; its 2 columns are not 8.
// RUN: not attn-run %s --input 0=%t.npy 2>&1 | FileCheck %s --check-prefix=REREAD
// REREAD: error: expected argument 0 dimension 1 to be 8, got 2

// RUN: attn-run %s --shape 0=3x8 --shape 1=2x8 --bench | FileCheck %s --check-prefix=BENCH
// BENCH: compile: {{[0-9]+\.[0-9][0-9]}} s (parse {{.*}}, passes {{.*}}, translate {{.*}}, optimize {{.*}}, codegen {{.*}})
// BENCH: run: {{.*}} (median of 10), {{.*}} GB/s

// RUN: attn-run %s --shape 0=3x8 --shape 1=2x8 --mlir-print-ir-after=attn-emit-shape-function 2>&1 | FileCheck %s --check-prefix=PASSES
// PASSES: IR Dump After {{.*}}attn-emit-shape-function
// PASSES: func.func @scores_shape

func.func @scores(%q: tensor<?x8xf32>, %k: tensor<?x8xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %q, %c0 : tensor<?x8xf32>
  %m = tensor.dim %k, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%n, %m) : tensor<?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j, d) -> (i, d)>, affine_map<(i, j, d) -> (j, d)>,
                                        affine_map<(i, j, d) -> (i, j)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<?x8xf32>, tensor<?x8xf32>) outs(%f : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %p = arith.mulf %a, %b : f32
    %x = arith.addf %c, %p : f32
    linalg.yield %x : f32
  } -> tensor<?x?xf32>
  return %s : tensor<?x?xf32>
}
