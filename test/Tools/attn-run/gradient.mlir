// The entry, then its gradient from the saved O and LSE: with padding full of
// NaN around all inputs, saved results and incoming gradients, and guard pages.
// RUN: attn-run %s --entry=causal --grad --shape 0=1x2x77x32 --shape 1=1x1x203x32 --check --explain --guard --stride-pad=7 --threads=3 | FileCheck %s
// CHECK: ran 'causal' on cpu ({{.*}}, 3 threads):
// CHECK-NEXT: ran 'causal_gradient':
// CHECK-NEXT: tiles: {{[0-9]+}} of {{[0-9]+}} visited
// CHECK: memory: inputs {{.*}} MB, outputs {{.*}} MB, gradient's inputs {{.*}} MB, gradients {{.*}} MB, peak
// CHECK: check: result 0: ok
// CHECK-NEXT: check: result 1: ok
// CHECK-NEXT: check: gradient 0: ok
// CHECK-NEXT: check: gradient 1: ok
// CHECK-NEXT: check: gradient 2: ok

// The saved results are arguments of the gradient.
// RUN: attn-run %s --entry=causal --grad --shape 0=1x2x8x32 --shape 1=1x1x8x32 --mlir-print-ir-after=attn-differentiate 2>&1 | FileCheck %s --check-prefix=SAVED
// SAVED: func.func @causal_gradient({{.*}}, %{{.*}}: tensor<1x2x?x32xf32>, %{{.*}}: tensor<1x2x?xf32>, %{{.*}}: tensor<1x2x?x32xf32>, %{{.*}}: tensor<1x2x?xf32>)
// SAVED-NOT: attn.forward
// SAVED: return

// One tensor that is query, key and value has one gradient.
// RUN: attn-run %s --entry=self --grad --shape 0=1x2x40x32 --check --grad-output 0=%t.npy --grad-fill 0=uniform:-1:1 | FileCheck %s --check-prefix=SELF
// SELF: check: result 0: ok
// SELF-NEXT: check: result 1: ok
// SELF-NEXT: check: gradient 0: ok
// SELF-NOT: check:

// A gradient is a .npy file like any other, for example an incoming one.
// RUN: attn-run %s --entry=self --grad --shape 0=1x2x40x32 --check --grad-input 0=%t.npy | FileCheck %s --check-prefix=SELF

// RUN: attn-run %s --entry=causal --grad --shape 0=1x2x16x32 --shape 1=1x1x16x32 --bench=3 | FileCheck %s --check-prefix=BENCH
// BENCH: compile: {{.*}} s
// BENCH-NEXT: {{^}}run: {{.*}} (median of 3), {{.*}} GFLOP/s, {{.*}} GB/s
// BENCH-NEXT: gradient run: {{.*}} (median of 3), {{.*}} GFLOP/s, {{.*}} GB/s

// 2 heads x 16 x 16 pairs, 2 (32 + 32) and 2 (3 x 32 + 2 x 32) operations each.
// RUN: attn-run %s --entry=causal --grad --shape 0=1x2x16x32 --shape 1=1x1x16x32 --bench=3 --check --json | FileCheck %s --check-prefix=JSON
// JSON: "entry": "causal"
// The code of a gradient takes LLVM more than a hundredth of a second.
// JSON: "codegen_s": {{0[.]0[1-9]|0[.][1-9]|[1-9]}}
// JSON: "flops": 65536
// JSON: "check": [
// JSON: "gradient": {
// JSON-NEXT: "entry": "causal_gradient"
// JSON: "median_s":
// JSON: "flops": 163840
// JSON: "input_bytes": 16640
// JSON: "output_bytes": 8192
// JSON: "check": [
// JSON: "peak_rss_bytes":

func.func @causal(%q: tensor<1x2x?x32xf32>, %k: tensor<1x1x?x32xf32>, %v: tensor<1x1x?x32xf32>)
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

func.func @self(%x: tensor<1x2x?x32xf32>) -> (tensor<1x2x?x32xf32>, tensor<1x2x?xf32>) {
  %o, %lse = attn.forward %x, %x, %x
    : tensor<1x2x?x32xf32>, tensor<1x2x?x32xf32>, tensor<1x2x?x32xf32>
      -> tensor<1x2x?x32xf32>, tensor<1x2x?xf32>
  return %o, %lse : tensor<1x2x?x32xf32>, tensor<1x2x?xf32>
}
