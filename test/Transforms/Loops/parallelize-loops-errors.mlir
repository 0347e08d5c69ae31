// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline='builtin.module(attn-parallelize-loops{loops=j})'

// A sum: everything but the plain parallel loop would do.
func.func @sum(%A: memref<8x16xf32>, %S: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    // expected-error@+1 {{cannot run loop j in parallel: RAW dependence from S4 to S2 with direction (0, +) is carried by j}}
    affine.for %j = 0 to 16 {
      %a = affine.load %A[%i, %j] : memref<8x16xf32>
      // expected-note@+1 {{legal treatments of {S2, S3, S4}: owner-computes, ordered-turnstile, atomics, partial-and-merge, grid-phases, cluster-reduction, distribution}}
      %s = affine.load %S[%i] : memref<8xf32>
      %t = arith.addf %s, %a : f32
      affine.store %t, %S[%i] : memref<8xf32>
    }
  }
  return
}

// -----

// expected-error@+1 {{expected loops to make parallel, got none named j}}
module {
func.func @none(%A: memref<8xf32>, %x: f32) {
  affine.for %i = 0 to 8 {
    affine.store %x, %A[%i] : memref<8xf32>
  }
  return
}
}
