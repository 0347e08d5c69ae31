// RUN: attn-opt %s --attn-nest-pipeline --attn-plan-nest | FileCheck %s
// RUN: attn-opt %s --attn-nest-pipeline --attn-plan-nest="order=split_kv parts=3" | FileCheck %s --check-prefix=SPLIT
// RUN: attn-opt %s --attn-nest-pipeline --attn-plan-nest="order=split_kv parts=0 threads=6" | FileCheck %s --check-prefix=BUSY
// RUN: not attn-opt %s --attn-nest-pipeline --attn-plan-nest="parts=-1" 2>&1 | FileCheck %s --check-prefix=PARTS
// RUN: attn-opt %s --attn-nest-pipeline --attn-plan-nest=order=n_outer --attn-plan-nest=order=m_outer | FileCheck %s --check-prefix=KEPT
// RUN: attn-opt %s --attn-nest-pipeline=parallel-sums --attn-plan-nest="order=m_outer parallel-sums" | FileCheck %s --check-prefix=ATOMIC
// RUN: attn-opt %s --attn-nest-pipeline --attn-plan-nest --attn-statistics -o /dev/null 2>&1 | FileCheck %s --check-prefix=STATISTICS

// The loops of attention by name: batch, head, group and row are parallel, keys go in order.
// CHECK-LABEL: func @forward
// CHECK:         attn.fold
// CHECK:         plan <m_outer, loops = [<"b" : worker, parallel>, <"h" : worker, parallel>, <"g" : worker, parallel>,
// CHECK-SAME:      <"i" : row, parallel>, <"j" : streamed, owner_computes>, <"d" : whole, owner_computes>, <"e" : whole, owner_computes>]>

// Parts of the keys at once; their states are merged.
// SPLIT-LABEL: func @forward
// SPLIT:         plan <split_kv parts = 3, loops = [{{.*}}<"i" : row, parallel>, <"j" : streamed, partial_and_merge>,

// As many as keep six programs busy, which the program counts.
// BUSY-LABEL: func @forward
// BUSY:         plan <split_kv parts = 0 programs = 6, loops = [{{.*}}<"j" : streamed, partial_and_merge>,

// PARTS: plan-nest.mlir:[[#@LINE+7]]:{{.*}}error: expected parts, or 0 for a number that sizes give, got -1

// A plan that is there stays.
// KEPT-LABEL: func @forward
// KEPT:         plan <n_outer, loops = [{{.*}}<"i" : row, owner_computes>, <"j" : streamed, owner_computes>,

// STATISTICS: {{[0-9]+}} attn-plan-nest {{.*}}Nests that got a plan
func.func @forward(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>) -> (tensor<?x?x?x64xf32>, tensor<?x?x?xf32>) {
  %o, %l = attn.forward %q, %k, %v : tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32> -> tensor<?x?x?x64xf32>, tensor<?x?x?xf32>
  return %o, %l : tensor<?x?x?x64xf32>, tensor<?x?x?xf32>
}

// Of one query the heads of a group are the rows, which share keys.
// CHECK-LABEL: func @decode
// CHECK:         loops = [<"b" : worker, parallel>, <"h" : worker, parallel>, <"g" : row, parallel>, <"i" : worker, parallel>, <"j" : streamed, owner_computes>
func.func @decode(%q: tensor<?x?x1x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>) -> tensor<?x?x1x64xf32> {
  %o = attn.forward %q, %k, %v : tensor<?x?x1x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32> -> tensor<?x?x1x64xf32>
  return %o : tensor<?x?x1x64xf32>
}

// One tensor as queries, keys and values: rows and keys are two loops.
// CHECK-LABEL: func @itself
// CHECK:         <"i" : row, parallel>, <"j" : streamed, owner_computes>
func.func @itself(%x: tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32> {
  %o = attn.forward %x, %x, %x : tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32> -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}

// Sums over the rows (dK and dV) are added to in memory, where that is asked for.
// ATOMIC-LABEL: func @backward
// ATOMIC:         plan <m_outer, loops = [{{.*}}: row, atomics>
func.func @backward(%q: tensor<2x8x?x64xf32>, %k: tensor<2x8x?x64xf32>, %v: tensor<2x8x?x64xf32>, %o: tensor<2x8x?x64xf32>, %lse: tensor<2x8x?xf32>, %do: tensor<2x8x?x64xf32>) -> (tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>) {
  %dq, %dk, %dv = attn.backward %q, %k, %v, %do, %o, %lse
    : tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>, tensor<2x8x?xf32> -> tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>
  return %dq, %dk, %dv : tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>, tensor<2x8x?x64xf32>
}
