// RUN: attn-opt %s -split-input-file -verify-diagnostics -attn-fuse-loops=required

// The second loop reads what the first one writes one iteration later.
func.func @backward(%A: memref<9xf32>, %B: memref<8xf32>, %x: f32) {
  affine.for %i = 0 to 8 {
    // expected-note@+1 {{source of the dependence}}
    affine.store %x, %A[%i] : memref<9xf32>
  }
  // expected-error@+1 {{cannot fuse the loops i and i2: RAW dependence from S1 to S2 with direction (-1)}}
  affine.for %i = 0 to 8 {
    // expected-note@+1 {{sink of the dependence}}
    %0 = affine.load %A[%i + 1] : memref<9xf32>
    affine.store %0, %B[%i] : memref<8xf32>
  }
  return
}

// -----

// A sum has to be complete before it is used: the same for softmax's maximum.
func.func @complete(%A: memref<8xf32>, %s: memref<1xf32>, %B: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    %a = affine.load %A[%i] : memref<8xf32>
    %0 = affine.load %s[0] : memref<1xf32>
    %1 = arith.maxnumf %0, %a : f32
    // expected-note@+1 {{source of the dependence}}
    affine.store %1, %s[0] : memref<1xf32>
  }
  // expected-error@+1 {{cannot fuse the loops i and i2: RAW dependence from S4 to S5 with direction (*)}}
  affine.for %i = 0 to 8 {
    // expected-note@+1 {{sink of the dependence}}
    %0 = affine.load %s[0] : memref<1xf32>
    affine.store %0, %B[%i] : memref<8xf32>
  }
  return
}
