// Where a mask keeps each row's own key, dO is copied, with zeros in rows without keys, only for
// more rows than keys.
// RUN: attn-opt %s -pass-pipeline='builtin.module(attn-differentiate{saved-results arguments=0,1,2 results=0},attn-lower-to-hopper{large-scores=false})' \
// RUN:   | FileCheck %s

!t = tensor<?x?x?x128xbf16>
// CHECK-LABEL: func @window_gradient(
// CHECK-SAME:    %[[Q:[^ ]*]]: memref<{{[^>]*>>?}}, %[[K:[^ ]*]]: memref
// CHECK-DAG:     %[[ROWS:.*]] = memref.dim %[[Q]], %c2
// CHECK-DAG:     %[[KEYS:.*]] = memref.dim %[[K]], %c2
// CHECK:         %[[KEYED:.*]] = arith.cmpi ule, %[[ROWS]], %[[KEYS]] : index
// CHECK:         scf.if %[[KEYED]] {
// CHECK-NOT:       math.absf
// CHECK-COUNT-3:   gpu.launch
// CHECK-NOT:       math.absf
// CHECK:         } else {
// CHECK:           gpu.launch
// CHECK:           math.absf
// CHECK-COUNT-2:   gpu.launch
func.func @window(%q: !t, %k: !t, %v: !t) -> (!t, tensor<?x?x?xf32>) {
  %o, %lse = attn.forward %q, %k, %v
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %w = arith.constant 1024 : index
      %zero = arith.constant 0 : index
      %far = arith.subi %i, %j : index
      %past = arith.cmpi sge, %far, %zero : index
      %near = arith.cmpi slt, %far, %w : index
      %both = arith.andi %past, %near : i1
      attn.yield %both : i1
    } : !t, !t, !t -> !t, tensor<?x?x?xf32>
  return %o, %lse : !t, tensor<?x?x?xf32>
}

// The first key is one for all rows.
// CHECK-LABEL: func @causal_gradient(
// CHECK-NOT:     scf.if {{.*}} {{{$}}
// CHECK:         gpu.launch
// CHECK-NOT:     math.absf
func.func @causal(%q: !t, %k: !t, %v: !t) -> (!t, tensor<?x?x?xf32>) {
  %o, %lse = attn.forward %q, %k, %v
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %past = arith.cmpi sle, %j, %i : index
      attn.yield %past : i1
    } : !t, !t, !t -> !t, tensor<?x?x?xf32>
  return %o, %lse : !t, tensor<?x?x?xf32>
}
