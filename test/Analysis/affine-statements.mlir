// RUN: attn-opt %s -split-input-file -attn-print-dependences -o /dev/null | FileCheck %s

// A dependence against the order of loops, as exact distances; j is parallel.
// CHECK-LABEL: dependences of @skewed
// CHECK:        RAW S1 -> S2 (0, 0)
// CHECK-NEXT:   RAW S2 -> S1 (1, -1) carried by i through A
// CHECK:        bounded by the RAW dependence from S2 to S1 with direction (1, -1)
// CHECK:        j: parallel
func.func @skewed(%A: memref<100x100xf32> {attn.name = "A"}) {
  affine.for %i = 1 to 100 {
    affine.for %j = 0 to 99 {
      %0 = affine.load %A[%i - 1, %j + 1] : memref<100x100xf32>
      affine.store %0, %A[%i, %j] : memref<100x100xf32>
    }
  }
  return
}

// -----

// Distances count iterations, not values of the variable.
// CHECK-LABEL: dependences of @steps
// CHECK: RAW S2 -> S1 (2) carried by i through A
func.func @steps(%A: memref<100xf32> {attn.name = "A"}) {
  affine.for %i = 6 to 100 step 3 {
    %0 = affine.load %A[%i - 6] : memref<100xf32>
    affine.store %0, %A[%i] : memref<100xf32>
  }
  return
}

// -----

// Values that a loop carries in iter_args are dependences too; a label joins
// ops into one statement; a sum through memory may use atomics.
// CHECK-LABEL: dependences of @carried
// CHECK:        S1 [i] load A[i]
// CHECK-NEXT:   S2 [i] compute addf
// CHECK-NEXT:   S3 [] store B[0]
// CHECK-NEXT:   S4 [i2] load A[i2 * 2 + 1]
// CHECK-NEXT:   S5 [i2] compute mulf addf
// CHECK-NEXT:   S6 [i2] load B[0]
// CHECK-NEXT:   S7 [i2] compute addf
// CHECK-NEXT:   S8 [i2] store B[0]
// CHECK:        RAW S2 -> S2 (1) carried by i
// CHECK:        RAW S2 -> S3 ()
// CHECK:      to run {S2} with parallel i:
// CHECK:        atomics: legal, add is associative and commutative
// CHECK:      to run {S6, S7, S8} with parallel i2:
// CHECK:        atomics: legal, add is associative and commutative, and nobody reads the running value
// CHECK-NEXT:   partial-and-merge: legal, partial results of parts of i2 combine by add
func.func @carried(%A: memref<100xf32> {attn.name = "A"}, %B: memref<1xf32> {attn.name = "B"}) {
  %zero = arith.constant 0.0 : f32
  %sum = affine.for %i = 0 to 100 iter_args(%acc = %zero) -> f32 {
    %a = affine.load %A[%i] : memref<100xf32>
    %s = arith.addf %acc, %a : f32
    affine.yield %s : f32
  }
  affine.store %sum, %B[0] : memref<1xf32>
  affine.for %i = 0 to 49 {
    %a = affine.load %A[2 * %i + 1] : memref<100xf32>
    %x = arith.mulf %a, %a {attn.stmt = "t"} : f32
    %y = arith.addf %x, %x {attn.stmt = "t"} : f32
    %b = affine.load %B[0] : memref<1xf32>
    %c = arith.addf %b, %y : f32
    affine.store %c, %B[0] : memref<1xf32>
  }
  return
}

// -----

// A running sum that is kept for every i is no reduction, although it adds; an
// element that is written twice is none either.
// CHECK-LABEL: dependences of @scan
// CHECK:      to run {S1, S3, S4} with parallel i:
// CHECK:        atomics: refused, S3 is not one associative operation on the old value
// CHECK:      to run {S5, S7, S8, S9} with parallel i2:
// CHECK:        atomics: refused, {S5, S7, S8, S9} has other accesses than one read and one write
func.func @scan(%A: memref<100xf32> {attn.name = "A"}, %B: memref<100xf32> {attn.name = "B"}, %x: f32) {
  affine.for %i = 1 to 100 {
    %a = affine.load %A[%i - 1] : memref<100xf32>
    %b = affine.load %B[%i] : memref<100xf32>
    %s = arith.addf %a, %b : f32
    affine.store %s, %A[%i] : memref<100xf32>
  }
  affine.for %i = 1 to 100 {
    %a = affine.load %A[0] : memref<100xf32>
    %b = affine.load %B[%i] : memref<100xf32>
    %s = arith.addf %a, %b : f32
    affine.store %x, %A[0] : memref<100xf32>
    affine.store %s, %A[0] : memref<100xf32>
  }
  return
}

// -----

// A view is the memory that it views; a call may do anything; a buffer that
// lives within one iteration is nobody else's.
func.func private @anything()
// CHECK-LABEL: dependences of @memories
// CHECK:        S1 [i] store A[i]
// CHECK-NEXT:   S2 [i] store mem0[0]
// CHECK-NEXT:   S3 [i] load mem0[0]
// CHECK-NEXT:   S4 [i] store B[i]
// CHECK-NEXT:   S5 [i] load view[0]
// CHECK-NEXT:   S6 [i] func.call
// CHECK:        RAW S1 -> S5 (0) through A [assumed]
// CHECK-NEXT:   RAW S1 -> S5 (+) carried by i through A [assumed]
// CHECK:        RAW S2 -> S3 (0) through mem0
// CHECK-NOT:    S3 {{.*}} carried
// CHECK:        RAW S6 -> S5 (+) carried by i through view [assumed]
func.func @memories(%A: memref<100xf32> {attn.name = "A"}, %B: memref<100xf32> {attn.name = "B"}, %x: f32) {
  %view = memref.cast %A {attn.name = "view"} : memref<100xf32> to memref<?xf32>
  affine.for %i = 0 to 100 {
    affine.store %x, %A[%i] : memref<100xf32>
    %t = memref.alloca() : memref<1xf32>
    affine.store %x, %t[0] : memref<1xf32>
    %y = affine.load %t[0] : memref<1xf32>
    affine.store %y, %B[%i] : memref<100xf32>
    %z = affine.load %view[0] : memref<?xf32>
    func.call @anything() : () -> ()
  }
  return
}

// -----

// A loop that does not advance is no reason to fail.
// CHECK-LABEL: dependences of @no_step
// CHECK: loops:
func.func @no_step(%A: memref<100xf32> {attn.name = "A"}) {
  affine.for %i = 6 to 100 step 0 {
    %0 = affine.load %A[%i - 1] : memref<100xf32>
    affine.store %0, %A[%i] : memref<100xf32>
  }
  return
}
