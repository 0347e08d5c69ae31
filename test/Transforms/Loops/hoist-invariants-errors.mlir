// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline='builtin.module(attn-hoist-invariants{statements=S3,S4 loop=j})'
// RUN: not attn-opt %s -pass-pipeline='builtin.module(attn-hoist-invariants{statements=S3})' 2>&1 | FileCheck %s
// CHECK: expected statements and loop together, got only one of them

// The reads of m and l in the j loop of online softmax, wanted before it.
func.func @attention(%Q: memref<5xf64>, %K: memref<7xf64>, %m: memref<5xf64>, %l: memref<5xf64>) {
  affine.for %i = 0 to 5 {
    %q_i = affine.load %Q[%i] : memref<5xf64>
    affine.for %j = 0 to 7 {
      %k_j = affine.load %K[%j] : memref<7xf64>
      // expected-error@+1 {{cannot hoist S3 out of loop j: RAW dependence from S8 to S3 with direction (0, +) is carried by j}}
      %m_i = affine.load %m[%i] : memref<5xf64>
      // expected-error@+1 {{cannot hoist S4 out of loop j: RAW dependence from S9 to S4 with direction (0, +) is carried by j}}
      %l_i = affine.load %l[%i] : memref<5xf64>
      %S_ij = arith.mulf %q_i, %k_j : f64
      %m_ij = arith.maximumf %m_i, %S_ij : f64
      %0 = arith.subf %m_i, %m_ij : f64
      %1 = math.exp %0 : f64
      %2 = arith.mulf %l_i, %1 : f64
      %3 = arith.subf %S_ij, %m_ij : f64
      %4 = math.exp %3 : f64
      %l_ij = arith.addf %2, %4 : f64
      affine.store %m_ij, %m[%i] : memref<5xf64>
      affine.store %l_ij, %l[%i] : memref<5xf64>
    }
  }
  return
}

// -----

func.func @varies(%A: memref<7xf64>, %B: memref<7xf64>, %x: f64) {
  affine.for %i = 0 to 5 {
    affine.for %j = 0 to 7 {
      affine.store %x, %A[%j] : memref<7xf64>
      affine.store %x, %A[%j] : memref<7xf64>
      // expected-error@+1 {{cannot hoist S3 out of loop j: it varies with j}}
      %0 = affine.load %B[%j] : memref<7xf64>
      // expected-error@+1 {{cannot hoist S4 out of loop j: RAW dependence from S3 to S4 with direction (0, 0)}}
      %1 = arith.addf %0, %0 : f64
      affine.store %1, %A[%j] : memref<7xf64>
    }
  }
  return
}

// -----

func.func @writes(%A: memref<7xf64>, %C: memref<7xf64>, %B: memref<?xf64>, %n: index, %x: f64) {
  affine.for %j = 0 to %n {
    affine.store %x, %A[%j] : memref<7xf64>
    affine.store %x, %A[%j] : memref<7xf64>
    // expected-error@+1 {{cannot hoist S3 out of loop j: WAW dependence from S3 to S3 with direction (+) is carried by j}}
    affine.store %x, %B[0] : memref<?xf64>
    // expected-error@+1 {{cannot hoist S4 out of loop j: loop j may run zero times}}
    %0 = affine.load %C[0] : memref<7xf64>
  } {attn.loop = "j"}
  return
}

// -----

// expected-error@+1 {{expected a loop j around the statements, got none}}
module {
func.func @none(%A: memref<7xf64>, %x: f64) {
  affine.store %x, %A[0] : memref<7xf64>
  return
}
}
