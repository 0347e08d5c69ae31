// RUN: attn-opt %s --attn-append-outputs --split-input-file | FileCheck %s --check-prefix=APPEND
// RUN: attn-opt %s --attn-append-outputs --eliminate-empty-tensors --attn-bufferize --canonicalize --attn-expand-copies --split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-append-outputs --eliminate-empty-tensors --attn-bufferize --canonicalize --attn-expand-copies --split-input-file '--remarks-filter=attn-bufferize|attn-expand-copies' -o /dev/null 2>&1 | %count-remarks | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: {{^ *}}4 [Passed] bufferized | Category:attn-bufferize{{$}}
// REMARKS-DAG: {{^ *}}3 [Passed] expanded | Category:attn-expand-copies{{$}}

// The result is computed where the caller wants it: no allocation, no copy.
// APPEND-LABEL: func @fill
// APPEND-SAME:    %[[OUT:[a-z0-9]*]]: memref<4x?xf32, strided<[?, 1], offset: ?>>) attributes {llvm.emit_c_interface} {
// APPEND:         bufferization.materialize_in_destination %{{.*}} in restrict writable %[[OUT]]
// APPEND-NEXT:    return
// CHECK-LABEL: func @fill
// CHECK-SAME:    %[[X:.*]]: memref<4x?xf32, strided<[?, 1], offset: ?>>, %[[OUT:.*]]: memref<4x?xf32, strided<[?, 1], offset: ?>>)
// CHECK-NOT:     alloc
// CHECK:         linalg.exp ins(%[[X]] : {{.*}}) outs(%[[OUT]]
// CHECK-NEXT:    return
func.func @fill(%x: tensor<4x?xf32>) -> tensor<4x?xf32> {
  %c1 = arith.constant 1 : index
  %n = tensor.dim %x, %c1 : tensor<4x?xf32>
  %e = tensor.empty(%n) : tensor<4x?xf32>
  %y = linalg.exp ins(%x : tensor<4x?xf32>) outs(%e : tensor<4x?xf32>) -> tensor<4x?xf32>
  return %y : tensor<4x?xf32>
}

// -----

// An argument that is returned is copied, by loops.
// CHECK-LABEL: func @identity
// CHECK:         scf.for
// CHECK:           memref.load
// CHECK:           memref.store
// CHECK-NOT:     memref.copy
func.func @identity(%x: tensor<?xf32>) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}

// -----

// APPEND-LABEL: func private @callee({{.*}}) -> tensor<?xf32>
func.func private @callee(%x: tensor<?xf32>) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}

// The table changes in place.
// CHECK-LABEL: func @scatter_add
// CHECK-NOT: memref.alloc
// CHECK-NOT: memref.copy
// CHECK: scf.for
// CHECK: attn.scatter_add %{{.*}} at(%{{.*}}) into %{{.*}} : vector<8xf32>, memref<?xf32
func.func @scatter_add(%v: vector<8xf32>, %i: vector<8xindex>, %t: tensor<?xf32> {bufferization.writable = true}, %n: index) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %k = %c0 to %n step %c1 iter_args(%a = %t) -> tensor<?xf32> {
    %s = attn.scatter_add %v at(%i) into %a : vector<8xf32>, tensor<?xf32> -> tensor<?xf32>
    scf.yield %s : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}

// -----

// The destination changes in place, and the region reads memory.
// CHECK-LABEL: func @scatter_sum
// CHECK-SAME: %[[PLACE:[a-z0-9]*]]: memref<?xi64
// CHECK-NOT: memref.alloc
// CHECK-NOT: memref.copy
// CHECK: attn.scatter_sum %{{.*}} into %{{.*}} at {
// CHECK:   memref.load %[[PLACE]]
// CHECK:   attn.yield
// CHECK: } : memref<?xf32, {{.*}}>, memref<?xf32
func.func @scatter_sum(%place: tensor<?xi64>, %x: tensor<?xf32>, %t: tensor<?xf32> {bufferization.writable = true}) -> tensor<?xf32> {
  %r = attn.scatter_sum %x into %t at {
  ^bb0(%i: index):
    %p = tensor.extract %place[%i] : tensor<?xi64>
    %q = arith.index_cast %p : i64 to index
    attn.yield %q : index
  } : tensor<?xf32>, tensor<?xf32> -> tensor<?xf32>
  return %r : tensor<?xf32>
}
