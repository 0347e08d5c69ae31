// RUN: attn-opt %s --split-input-file --verify-diagnostics | attn-opt --split-input-file | FileCheck %s
// RUN: sed '/^\/\/ -----/,$d' %s | attn-opt --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" | FileCheck %s --check-prefix=BUFFER

// CHECK-LABEL: func @tensor
// CHECK: attn.tile_add %{{.*}} into %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}] : vector<4x8xf32>, tensor<3x?x8xf32> -> tensor<3x?x8xf32>
// BUFFER-LABEL: func @tensor(
// BUFFER-SAME: %[[T:.*]]: memref<3x?x8xf32>
// BUFFER: %[[COPY:.*]] = memref.alloc
// BUFFER: memref.copy %[[T]], %[[COPY]]
// BUFFER: attn.tile_add %{{.*}} into %[[COPY]][%{{.*}}] : vector<4x8xf32>, memref<3x?x8xf32>{{$}}
// BUFFER: return %[[T]], %[[COPY]]
func.func @tensor(%t: tensor<3x?x8xf32>, %v: vector<4x8xf32>, %i: index) -> (tensor<3x?x8xf32>, tensor<3x?x8xf32>) {
  %r = attn.tile_add %v into %t[%i, %i, %i] : vector<4x8xf32>, tensor<3x?x8xf32> -> tensor<3x?x8xf32>
  return %t, %r : tensor<3x?x8xf32>, tensor<3x?x8xf32>
}

// Iterations of a parallel loop add to one tensor, in place.
// BUFFER-LABEL: func @parallel
// BUFFER: scf.forall
// BUFFER-NOT: memref.copy
// BUFFER: attn.tile_add %{{.*}} into %{{.*}} : vector<4x8xf32>, memref<?x8xf32
func.func @parallel(%t: tensor<?x8xf32>, %v: vector<4x8xf32>, %n: index) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %size = tensor.dim %t, %c0 : tensor<?x8xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%size) : tensor<?x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
  %r = scf.forall (%i) in (%n) shared_outs(%out = %f) -> (tensor<?x8xf32>) {
    %s = scf.for %j = %c0 to %size step %c4 iter_args(%a = %out) -> (tensor<?x8xf32>) {
      %b = attn.tile_add %v into %a[%j, %c0] : vector<4x8xf32>, tensor<?x8xf32> -> tensor<?x8xf32>
      scf.yield %b : tensor<?x8xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %out[0, 0] [%size, 8] [1, 1] : tensor<?x8xf32> into tensor<?x8xf32>
    }
  }
  return %r : tensor<?x8xf32>
}

// CHECK-LABEL: func @memref
// CHECK: attn.tile_add %{{.*}} into %{{.*}}[%{{.*}}, %{{.*}}] : vector<8xf64>, memref<3x5xf64>
func.func @memref(%v: vector<8xf64>, %i: index, %t: memref<3x5xf64>) {
  attn.tile_add %v into %t[%i, %i] : vector<8xf64>, memref<3x5xf64>
  return
}

// -----

func.func @indices(%v: vector<8xf32>, %i: index, %t: memref<3x5xf32>) {
  // expected-error@+1 {{expected an index for each dimension of 'memref<3x5xf32>', got 1}}
  attn.tile_add %v into %t[%i] : vector<8xf32>, memref<3x5xf32>
  return
}

// -----

func.func @element(%v: vector<8xf32>, %i: index, %t: memref<5xf64>) {
  // expected-error@+1 {{expected a tile of 'f64' of at most rank 1, got 'vector<8xf32>'}}
  attn.tile_add %v into %t[%i] : vector<8xf32>, memref<5xf64>
  return
}

// -----

func.func @rank(%v: vector<2x8xf32>, %i: index, %t: memref<5xf32>) {
  // expected-error@+1 {{expected a tile of 'f32' of at most rank 1, got 'vector<2x8xf32>'}}
  attn.tile_add %v into %t[%i] : vector<2x8xf32>, memref<5xf32>
  return
}

// -----

func.func @result(%v: vector<8xf32>, %i: index, %t: tensor<5xf32>) {
  // expected-error@+1 {{expected a result exactly where the destination is a tensor}}
  attn.tile_add %v into %t[%i] : vector<8xf32>, tensor<5xf32>
  return
}
