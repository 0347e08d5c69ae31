// RUN: attn-opt %s -attn-expand -attn-fuse-reductions -attn-print-dependences -o /dev/null | FileCheck %s

// What fusion makes of attn.forward: the updates of the maximum, the sum and
// the output, each carried by the keys alone; the contraction carries its own.
// CHECK-LABEL: dependences of @forward
// CHECK:      components:
// CHECK-NEXT:   {S{{[0-9]+}}} carried by d
// CHECK-NEXT:   {S{{[0-9]+}}} carried by j
// CHECK-NEXT:   {S{{[0-9]+}}, S{{[0-9]+}}} carried by j
// CHECK-NEXT:   {S{{[0-9]+}}, S{{[0-9]+}}} carried by j
// CHECK-NEXT: orders:
// CHECK-NEXT:   no vector forbids any order of b, h, i, j, d, e
// CHECK-NEXT: loops:
// CHECK-NEXT:   b: parallel
// CHECK-NEXT:   h: parallel
// CHECK-NEXT:   i: parallel
// CHECK-NEXT:   j: carries
// CHECK:          partial-and-merge: legal, two states of disjoint parts can be merged
// CHECK:        e: parallel
func.func @forward(%q: tensor<2x8x?x64xf32>, %k: tensor<2x8x?x64xf32>, %v: tensor<2x8x?x64xf32>) -> tensor<2x8x?x64xf32> {
  %o = attn.forward %q, %k, %v : tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32> -> tensor<2x8x?x64xf32>
  return %o : tensor<2x8x?x64xf32>
}
