// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline='builtin.module(attn-plan-loops{treatment=atomics})'

// Somebody reads the running maximum: atomics on it alone would be wrong.
func.func @read(%A: memref<8x16xf32>, %m: memref<8xf32>, %P: memref<8x16xf32>) {
  affine.for %i = 0 to 8 {
    // expected-error@+1 {{loop j cannot run by atomics: {S2, S3, S4}: S5 reads the running value of S2, which reordering changes}}
    affine.for %j = 0 to 16 {
      %a = affine.load %A[%i, %j] : memref<8x16xf32>
      // expected-note@+1 {{RAW dependence from S4 to S2 with direction (0, +) is carried by j}}
      %x = affine.load %m[%i] : memref<8xf32>
      %y = arith.maximumf %x, %a : f32
      affine.store %y, %m[%i] : memref<8xf32>
      %d = arith.subf %a, %x : f32
      affine.store %d, %P[%i, %j] : memref<8x16xf32>
    }
  }
  return
}

// -----

func.func @given(%A: memref<8x16xf32>) {
  // expected-error@+1 {{loop i cannot be parallel: RAW dependence from S2 to S1 with direction (1, 0) is carried by i}}
  affine.for %i = 1 to 8 {
    affine.for %j = 0 to 16 {
      %a = affine.load %A[%i - 1, %j] : memref<8x16xf32>
      affine.store %a, %A[%i, %j] : memref<8x16xf32>
    }
  } {attn.treatment = "parallel"}
  return
}

// -----

func.func @nothing(%A: memref<8xf32>, %x: f32) {
  // expected-error@+1 {{loop i carries nothing: it is parallel, and needs no grid-phases}}
  affine.for %i = 0 to 8 {
    affine.store %x, %A[%i] : memref<8xf32>
  } {attn.treatment = "grid_phases"}
  return
}

// -----

func.func @unknown(%A: memref<8xf32>, %x: f32) {
  // expected-error@+1 {{'attn.treatment' is one of parallel, owner_computes, atomics, partial_and_merge, ordered_turnstile, grid_phases, cluster_reduction; got 'phases'}}
  affine.for %i = 0 to 8 {
    affine.store %x, %A[%i] : memref<8xf32>
  } {attn.treatment = "phases"}
  return
}

// -----

// Sums in parts, and beside them a value of which the last iteration's is to stay.
func.func @last(%A: memref<8x16xf32>, %S: memref<8xf32>, %L: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    // expected-error@+1 {{loop j cannot run by atomics: {S5}: nothing in {S5} combines a term with the old value}}
    affine.for %j = 0 to 16 {
      %a = affine.load %A[%i, %j] : memref<8x16xf32>
      %s = affine.load %S[%i] : memref<8xf32>
      %t = arith.addf %s, %a : f32
      affine.store %t, %S[%i] : memref<8xf32>
      // expected-note@+1 {{WAW dependence from S5 to S5 with direction (0, +) is carried by j}}
      affine.store %a, %L[%i] : memref<8xf32>
    }
  }
  return
}

// -----

// An element is read before a later iteration writes it.
func.func @shift(%A: memref<8x17xf32>, %S: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    // expected-error@+1 {{loop j cannot run by atomics: WAR dependence from S1 to S5 with direction (0, 1) is carried by j, and is no part of a running value}}
    affine.for %j = 0 to 16 {
      %a = affine.load %A[%i, %j + 1] : memref<8x17xf32>
      %s = affine.load %S[%i] : memref<8xf32>
      %t = arith.addf %s, %a : f32
      affine.store %t, %S[%i] : memref<8xf32>
      affine.store %a, %A[%i, %j] : memref<8x17xf32>
    }
  }
  return
}
