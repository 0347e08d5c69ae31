// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline='builtin.module(attn-interchange-loops{order=j,i})'
// RUN: not attn-opt %s -pass-pipeline='builtin.module(attn-interchange-loops{order=j})' 2>&1 | FileCheck %s
// CHECK: expected an order of at least two loops, got 1

// The textbook's example: the vector (1, -1) would turn negative.
func.func @skewed(%A: memref<100x100xf32>) {
  // expected-error@+1 {{cannot interchange loops i and j: RAW dependence from S2 to S1 with direction (1, -1) would become (-1, 1)}}
  affine.for %i = 1 to 100 {
    affine.for %j = 0 to 99 {
      // expected-note@+1 {{sink of the dependence}}
      %0 = affine.load %A[%i - 1, %j + 1] : memref<100x100xf32>
      // expected-note@+1 {{source of the dependence}}
      affine.store %0, %A[%i, %j] : memref<100x100xf32>
    }
  }
  return
}

// -----

// What the inner loop writes must be read before each of its runs.
func.func @read_first(%m: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    // expected-error@+1 {{cannot interchange loops i and j: S1 cannot move into the inner loop, WAR dependence from S1 to S3 with direction (0)}}
    %0 = affine.load %m[%i] : memref<8xf32>
    affine.for %j = 0 to 16 {
      %1 = arith.addf %0, %0 : f32
      affine.store %1, %m[%i] : memref<8xf32>
    }
  }
  return
}

// -----

// The iteration after needs what stands behind the inner loop.
func.func @chain(%A: memref<100xf32>, %B: memref<100x16xf32>) {
  affine.for %i = 1 to 100 {
    affine.for %j = 0 to 16 {
      %0 = affine.load %A[%i - 1] : memref<100xf32>
      affine.store %0, %B[%i, %j] : memref<100x16xf32>
    }
    %1 = affine.load %B[%i, 3] : memref<100x16xf32>
    // expected-error@+1 {{cannot interchange loops i and j: loop i cannot be split, RAW dependence from S4 to S1 with direction (1)}}
    affine.store %1, %A[%i] : memref<100xf32>
  }
  return
}

// -----

// The read behind the loop may not run before a write that precedes it now.
func.func @between(%A: memref<100xf32>, %B: memref<100xf32>, %C: memref<100x16xf32>, %x: f32) {
  affine.for %i = 0 to 100 {
    // expected-error@+1 {{cannot interchange loops i and j: S1 cannot run in a later loop, WAR dependence from S1 to S2 with direction (0)}}
    %0 = affine.load %A[%i] : memref<100xf32>
    affine.store %x, %A[%i] : memref<100xf32>
    affine.for %j = 0 to 16 {
      affine.store %x, %C[%i, %j] : memref<100x16xf32>
    }
    affine.store %0, %B[%i] : memref<100xf32>
  }
  return
}

// -----

func.func @triangle(%A: memref<8x8xf32>, %x: f32) {
  affine.for %i = 0 to 8 {
    // expected-error@+1 {{cannot interchange loops i and j: the bounds of loop j depend on loop i}}
    affine.for %j = 0 to affine_map<(d) -> (d + 1)>(%i) {
      affine.store %x, %A[%i, %j] : memref<8x8xf32>
    }
  }
  return
}

// -----

func.func @carried(%A: memref<8x16xf32>, %x: f32) -> f32 {
  // expected-error@+1 {{cannot interchange loops i and j: loop i carries values in iter_args}}
  %r = affine.for %i = 0 to 8 iter_args(%s = %x) -> f32 {
    affine.for %j = 0 to 16 {
      affine.store %s, %A[%i, %j] : memref<8x16xf32>
    }
    affine.yield %s : f32
  }
  return %r : f32
}

// -----

func.func @guarded(%A: memref<8x16xf32>, %x: f32) {
  affine.for %i = 0 to 8 {
    affine.if affine_set<(d) : (d - 2 >= 0)>(%i) {
      // expected-error@+1 {{cannot interchange loops i and j: loop j is not directly inside loop i}}
      affine.for %j = 0 to 16 {
        affine.store %x, %A[%i, %j] : memref<8x16xf32>
      }
    }
  }
  return
}

// -----

// expected-error@+1 {{expected a nest with loops j, i, got none}}
module {
func.func @single(%A: memref<8xf32>, %x: f32) {
  affine.for %i = 0 to 8 {
    affine.store %x, %A[%i] : memref<8xf32>
  }
  return
}
}

// -----

func.func private @value() -> f32

func.func @opaque(%A: memref<8x16xf32>) {
  affine.for %i = 0 to 8 {
    %x = func.call @value() : () -> f32
    // expected-error@+1 {{cannot interchange loops i and j: it uses a value of 'func.call', which cannot run in a loop of its own}}
    affine.for %j = 0 to 16 {
      affine.store %x, %A[%i, %j] : memref<8x16xf32>
    } {attn.loop = "j"}
  } {attn.loop = "i"}
  return
}
