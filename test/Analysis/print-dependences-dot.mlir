// RUN: attn-opt %s -attn-print-dependences=format=dot -o /dev/null | FileCheck %s
// RUN: attn-opt %s --attn-print-dependences="format=dot file=%t" -o /dev/null && FileCheck %s --input-file=%t
// RUN: not attn-opt %s -attn-print-dependences=format=svg -o /dev/null 2>&1 | FileCheck %s --check-prefix=WRONG

// WRONG: error: expected format text, dot or pairs, got svg

// CHECK:      digraph "skewed" {
// CHECK-NEXT:   node [shape=box];
// CHECK-NEXT:   subgraph cluster_0 {
// CHECK-NEXT:     label="carried by i";
// CHECK-NEXT:     S1 [label="S1: load A[i - 1, j + 1]"];
// CHECK-NEXT:     S2 [label="S2: store A[i, j]"];
// CHECK-NEXT:   }
// CHECK-NEXT:   S1 -> S2 [label="RAW (0, 0)"];
// CHECK-NEXT:   S2 -> S1 [label="RAW (1, -1)", style=dashed, xlabel="i"];
// CHECK-NEXT: }
func.func @skewed(%A: memref<100x100xf32> {attn.name = "A"}) {
  affine.for %i = 1 to 100 {
    affine.for %j = 0 to 99 {
      %0 = affine.load %A[%i - 1, %j + 1] : memref<100x100xf32>
      affine.store %0, %A[%i, %j] : memref<100x100xf32>
    }
  }
  return
}
