// RUN: attn-opt %s --split-input-file --verify-diagnostics | attn-opt --split-input-file | FileCheck %s

// CHECK-LABEL: func @tensor
// CHECK: attn.scatter_add %{{.*}} at(%{{.*}}) into %{{.*}} : vector<4x8xf32>, tensor<?xf32> -> tensor<?xf32>
func.func @tensor(%v: vector<4x8xf32>, %i: vector<4x8xindex>, %t: tensor<?xf32>) -> tensor<?xf32> {
  %r = attn.scatter_add %v at(%i) into %t : vector<4x8xf32>, tensor<?xf32> -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// CHECK-LABEL: func @memref
// CHECK: attn.scatter_add %{{.*}} at(%{{.*}}, %{{.*}}) into %{{.*}} : vector<8xf64>, memref<3x5xf64>
func.func @memref(%v: vector<8xf64>, %i: vector<8xindex>, %t: memref<3x5xf64>) {
  attn.scatter_add %v at(%i, %i) into %t : vector<8xf64>, memref<3x5xf64>
  return
}

// -----

func.func @rank(%v: vector<8xf32>, %i: vector<8xindex>, %t: memref<3x5xf32>) {
  // expected-error@+1 {{expected a vector of indices for each dimension of the table, got 1 for 'memref<3x5xf32>'}}
  attn.scatter_add %v at(%i) into %t : vector<8xf32>, memref<3x5xf32>
  return
}

// -----

func.func @element(%v: vector<8xf32>, %i: vector<8xindex>, %t: memref<5xf64>) {
  // expected-error@+1 {{expected values of the table's type 'f64', got 'vector<8xf32>'}}
  attn.scatter_add %v at(%i) into %t : vector<8xf32>, memref<5xf64>
  return
}

// -----

func.func @result(%v: vector<8xf32>, %i: vector<8xindex>, %t: tensor<5xf32>) {
  // expected-error@+1 {{expected a result exactly where the table is a tensor}}
  attn.scatter_add %v at(%i) into %t : vector<8xf32>, tensor<5xf32>
  return
}

// -----

func.func @shape(%v: vector<8xf32>, %i: vector<4xindex>, %t: memref<5xf32>) {
  // expected-error@+1 {{expected indices of the shape of 'vector<8xf32>', got 'vector<4xindex>'}}
  "attn.scatter_add"(%v, %i, %t) : (vector<8xf32>, vector<4xindex>, memref<5xf32>) -> ()
  return
}
