// RUN: attn-opt %s --split-input-file --verify-diagnostics | attn-opt --split-input-file | FileCheck %s

// CHECK-LABEL: func @tensor
// CHECK: %[[R:.*]] = attn.scatter_sum %{{.*}} into %{{.*}} at {
// CHECK: ^bb0(%[[I:.*]]: index, %[[J:.*]]: index):
// CHECK:   %[[B:.*]] = arith.floordivsi %[[I]]
// CHECK:   attn.yield %[[B]], %[[J]] : index, index
// CHECK: } : tensor<?x?xf32>, tensor<16x?xf32> -> tensor<16x?xf32>
func.func @tensor(%x: tensor<?x?xf32>, %t: tensor<16x?xf32>) -> tensor<16x?xf32> {
  %r = attn.scatter_sum %x into %t at {
  ^bb0(%i: index, %j: index):
    %c8 = arith.constant 8 : index
    %block = arith.floordivsi %i, %c8 : index
    attn.yield %block, %j : index, index
  } : tensor<?x?xf32>, tensor<16x?xf32> -> tensor<16x?xf32>
  return %r : tensor<16x?xf32>
}

// The region may read what is outside.
// CHECK-LABEL: func @memref
// CHECK-SAME: %[[PLACE:[a-z0-9]*]]: memref<5xindex>
// CHECK: attn.scatter_sum
// CHECK:   memref.load %[[PLACE]]
// CHECK: } : memref<5xf64>, memref<3xf64>
func.func @memref(%place: memref<5xindex>, %x: memref<5xf64>, %t: memref<3xf64>) {
  attn.scatter_sum %x into %t at {
  ^bb0(%i: index):
    %p = memref.load %place[%i] : memref<5xindex>
    attn.yield %p : index
  } : memref<5xf64>, memref<3xf64>
  return
}

// -----

func.func @kinds(%x: tensor<5xf32>, %t: memref<3xf32>) {
  // expected-error@+1 {{expected values and destination to be both tensors or both memrefs, got 'tensor<5xf32>' and 'memref<3xf32>'}}
  attn.scatter_sum %x into %t at {
  ^bb0(%i: index):
    attn.yield %i : index
  } : tensor<5xf32>, memref<3xf32>
  return
}

// -----

func.func @element(%x: memref<5xf32>, %t: memref<3xf64>) {
  // expected-error@+1 {{expected values of the destination's type 'f64', got 'memref<5xf32>'}}
  attn.scatter_sum %x into %t at {
  ^bb0(%i: index):
    attn.yield %i : index
  } : memref<5xf32>, memref<3xf64>
  return
}

// -----

func.func @result(%x: tensor<5xf32>, %t: tensor<3xf32>) {
  // expected-error@+1 {{expected a result exactly where the destination is a tensor}}
  attn.scatter_sum %x into %t at {
  ^bb0(%i: index):
    attn.yield %i : index
  } : tensor<5xf32>, tensor<3xf32>
  return
}

// -----

func.func @type(%x: tensor<5xf32>, %t: tensor<3xf32>) -> tensor<?xf32> {
  // expected-error@+1 {{expected a result of type 'tensor<3xf32>', got 'tensor<?xf32>'}}
  %r = attn.scatter_sum %x into %t at {
  ^bb0(%i: index):
    attn.yield %i : index
  } : tensor<5xf32>, tensor<3xf32> -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// -----

func.func @takes(%x: memref<5x7xf32>, %t: memref<3xf32>) {
  // expected-error@+1 {{expected a region that takes an index for each dimension of 'memref<5x7xf32>', got one that takes ('index')}}
  attn.scatter_sum %x into %t at {
  ^bb0(%i: index):
    attn.yield %i : index
  } : memref<5x7xf32>, memref<3xf32>
  return
}

// -----

func.func @yields(%x: memref<5xf32>, %t: memref<3x7xf32>) {
  // expected-error@+1 {{expected a region that yields an index for each dimension of 'memref<3x7xf32>', got one that yields ('index')}}
  attn.scatter_sum %x into %t at {
  ^bb0(%i: index):
    attn.yield %i : index
  } : memref<5xf32>, memref<3x7xf32>
  return
}
