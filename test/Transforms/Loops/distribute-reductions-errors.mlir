// RUN: attn-opt %s -split-input-file -verify-diagnostics -pass-pipeline='builtin.module(attn-distribute-reductions{loops=i})'

// The output is scaled by the sums alone, as if the maximum did not change.
func.func @no_exponential(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<f32> {attn.name = "l"}, %O: memref<4xf32> {attn.name = "O"}) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %l0 = affine.load %l[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m1 : f32
    %p = math.exp %1 : f32
    %2 = arith.mulf %l0, %c : f32
    %l1 = arith.addf %2, %p : f32
    affine.for %d = 0 to 4 {
      %o0 = affine.load %O[%d] : memref<4xf32>
      %3 = arith.mulf %o0, %l0 : f32
      %4 = arith.addf %3, %p : f32
      // expected-error@+1 {{cannot distribute loop i over its reductions: S8 reads the running value of m with a factor that is not exp(m_old - m_new)}}
      %o1 = arith.divf %4, %l1 : f32
      affine.store %o1, %O[%d] : memref<4xf32>
    }
    affine.store %m1, %m[] : memref<f32>
    affine.store %l1, %l[] : memref<f32>
  }
  return
}

// -----

// The inverse of the factor.
func.func @inverse(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<f32> {attn.name = "l"}) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %l0 = affine.load %l[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m1, %m0 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m1 : f32
    %p = math.exp %1 : f32
    %2 = arith.mulf %l0, %c : f32
    // expected-error@+1 {{cannot distribute loop i over its reductions: S5 reads the running value of m with a factor that is not exp(m_old - m_new)}}
    %l1 = arith.addf %2, %p : f32
    affine.store %m1, %m[] : memref<f32>
    affine.store %l1, %l[] : memref<f32>
  }
  return
}

// -----

// The factor of a single term for a term squared.
func.func @squared(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<f32> {attn.name = "l"}) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %l0 = affine.load %l[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m1 : f32
    %p = math.exp %1 : f32
    %q = arith.mulf %p, %p : f32
    %2 = arith.mulf %l0, %c : f32
    // expected-error@+1 {{cannot distribute loop i over its reductions: S5 reads the running value of m with a factor that is not exp((m_old - m_new) * 2.00)}}
    %l1 = arith.addf %2, %q : f32
    affine.store %m1, %m[] : memref<f32>
    affine.store %l1, %l[] : memref<f32>
  }
  return
}

// -----

// A sum of its own that is scaled by a constant as well.
func.func @decay(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<f32> {attn.name = "l"}) {
  affine.for %j = 0 to 16 {
    %half = arith.constant 0.5 : f32
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %l0 = affine.load %l[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m1 : f32
    %p = math.exp %1 : f32
    %2 = arith.mulf %l0, %c : f32
    %3 = arith.mulf %2, %half : f32
    // expected-error@+1 {{cannot distribute loop i over its reductions: S5 reads the running value of m with a factor that is not exp(m_old - m_new)}}
    %l1 = arith.addf %3, %p : f32
    affine.store %m1, %m[] : memref<f32>
    affine.store %l1, %l[] : memref<f32>
  }
  return
}

// -----

// A factor without terms.
func.func @no_term(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<f32> {attn.name = "l"}) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %l0 = affine.load %l[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %c = math.exp %m0 : f32
    // expected-error@+1 {{cannot distribute loop i over its reductions: S5 reads the running value of m with a factor that is not of one degree in m_old and m_new}}
    %l1 = arith.mulf %l0, %c : f32
    affine.store %m1, %m[] : memref<f32>
    affine.store %l1, %l[] : memref<f32>
  }
  return
}

// -----

// No factor where the term has none of the running value's degrees: it is no term of a sum.
func.func @not_homogeneous(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<f32> {attn.name = "l"}) {
  affine.for %j = 0 to 16 {
    %one = arith.constant 1.0 : f32
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %l0 = affine.load %l[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m1 : f32
    %p = math.exp %1 : f32
    %q = arith.addf %p, %one : f32
    %2 = arith.mulf %l0, %c : f32
    // expected-error@+1 {{cannot distribute loop i over its reductions: S5 adds a term that is not homogeneous in the running value of m ('arith.addf' breaks the form)}}
    %l1 = arith.addf %2, %q : f32
    affine.store %m1, %m[] : memref<f32>
    affine.store %l1, %l[] : memref<f32>
  }
  return
}

// -----

// The term of the maximum before.
func.func @old_maximum(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<f32> {attn.name = "l"}) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %l0 = affine.load %l[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m0 : f32
    %p = math.exp %1 : f32
    %2 = arith.mulf %l0, %c : f32
    // expected-error@+1 {{cannot distribute loop i over its reductions: S5 adds a term with the value of m from before its update}}
    %l1 = arith.addf %2, %p : f32
    affine.store %m1, %m[] : memref<f32>
    affine.store %l1, %l[] : memref<f32>
  }
  return
}

// -----

// Exponentials of a sum go up and down.
func.func @exponential_of_sum(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<f32> {attn.name = "l"}) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %l0 = affine.load %l[] : memref<f32>
    %m1 = arith.addf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m1 : f32
    %p = math.exp %1 : f32
    %2 = arith.mulf %l0, %c : f32
    // expected-error@+1 {{cannot distribute loop i over its reductions: S5 takes the exponential of the running value of m, expected that of a maximum or minimum}}
    %l1 = arith.addf %2, %p : f32
    affine.store %m1, %m[] : memref<f32>
    affine.store %l1, %l[] : memref<f32>
  }
  return
}

// -----

// The factor is 0 behind a maximum of -inf, what was added until then is not.
func.func @guard(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<f32> {attn.name = "l"}) {
  affine.for %j = 0 to 16 {
    %zero = arith.constant 0.0 : f32
    %ninf = arith.constant 0xFF800000 : f32
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %l0 = affine.load %l[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %none = arith.cmpf oeq, %m1, %ninf : f32
    %ms = arith.select %none, %zero, %m1 : f32
    %0 = arith.subf %m0, %ms : f32
    %c = math.exp %0 : f32
    %3 = arith.negf %ms : f32
    %p = math.exp %3 : f32
    %2 = arith.mulf %l0, %c : f32
    // expected-error@+1 {{cannot distribute loop i over its reductions: S6 guards m against -inf only behind its update, and its term need not be 0 where the score is -inf}}
    %l1 = arith.addf %2, %p : f32
    affine.store %m1, %m[] : memref<f32>
    affine.store %l1, %l[] : memref<f32>
  }
  return
}

// -----

// Not linear in the old value.
func.func @not_linear(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<f32> {attn.name = "l"}) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %l0 = affine.load %l[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %2 = arith.mulf %l0, %c : f32
    // expected-error@+1 {{cannot distribute loop i over its reductions: S5 is not the old value of l times a factor, plus a term: 'arith.maximumf' breaks the form}}
    %l1 = arith.maximumf %2, %s : f32
    affine.store %m1, %m[] : memref<f32>
    affine.store %l1, %l[] : memref<f32>
  }
  return
}

// -----

// The score is read from memory that the loop writes.
func.func @written_score(%S: memref<16xf32> {attn.name = "S"}, %m: memref<f32> {attn.name = "m"}, %l: memref<f32> {attn.name = "l"}) {
  affine.for %j = 0 to 15 {
    // expected-error@+1 {{cannot distribute loop i over its reductions: RAW dependence from S9 to S1 with direction (1) through S: the loop writes what it reads}}
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %l0 = affine.load %l[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m1 : f32
    %p = math.exp %1 : f32
    %2 = arith.mulf %l0, %c : f32
    %l1 = arith.addf %2, %p : f32
    affine.store %m1, %m[] : memref<f32>
    affine.store %l1, %l[] : memref<f32>
    affine.store %p, %S[%j + 1] : memref<16xf32>
  }
  return
}

// -----

// The sum is kept in what was the first score: it is read before it is written.
func.func @first_score(%S: memref<16xf32> {attn.name = "S"}, %m: memref<f32> {attn.name = "m"}) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %l0 = affine.load %S[0] : memref<16xf32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m1 : f32
    %p = math.exp %1 : f32
    %2 = arith.mulf %l0, %c : f32
    %l1 = arith.addf %2, %p : f32
    affine.store %m1, %m[] : memref<f32>
    // expected-error@+1 {{cannot distribute loop i over its reductions: WAR dependence from S1 to S7 with direction (0) through S is between two things that would run in different loops}}
    affine.store %l1, %S[0] : memref<16xf32>
  }
  return
}

// -----

// Every value of the running sum is kept: a prefix sum can be seen.
func.func @prefix_sum(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<f32> {attn.name = "l"}, %P: memref<16xf32> {attn.name = "P"}) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %l0 = affine.load %l[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m1 : f32
    %p = math.exp %1 : f32
    %2 = arith.mulf %l0, %c : f32
    %l1 = arith.addf %2, %p : f32
    affine.store %m1, %m[] : memref<f32>
    affine.store %l1, %l[] : memref<f32>
    // expected-error@+1 {{cannot distribute loop i over its reductions: S8 (store P[i]) writes in every iteration what is no running value}}
    affine.store %l1, %P[%j] : memref<16xf32>
  }
  return
}

// -----

// The running sum is written a second time.
func.func @two_writes(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<f32> {attn.name = "l"}) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    // expected-error@+1 {{cannot distribute loop i over its reductions: {S3, S6, S8, S9} has other accesses than one read and one write of one element}}
    %l0 = affine.load %l[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m1 : f32
    %p = math.exp %1 : f32
    %2 = arith.mulf %l0, %c : f32
    %l1 = arith.addf %2, %p : f32
    affine.store %m1, %m[] : memref<f32>
    affine.store %l1, %l[] : memref<f32>
    affine.store %p, %l[] : memref<f32>
  }
  return
}

// -----

// Some iterations do not count.
func.func @branch(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<f32> {attn.name = "l"}, %n: index) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m1 : f32
    %p = math.exp %1 : f32
    affine.if affine_set<(j)[n] : (n - j >= 0)>(%j)[%n] {
      %l0 = affine.load %l[] : memref<f32>
      %2 = arith.mulf %l0, %c : f32
      %l1 = arith.addf %2, %p : f32
      // expected-error@+1 {{cannot distribute loop i over its reductions: S8 is inside of 'affine.if', which need not run in every iteration}}
      affine.store %l1, %l[] : memref<f32>
    }
    affine.store %m1, %m[] : memref<f32>
  }
  return
}

// -----

// Another element in every second iteration.
func.func @moving(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<2xf32> {attn.name = "l"}) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %l0 = affine.load %l[%j mod 2] : memref<2xf32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m1 : f32
    %p = math.exp %1 : f32
    %2 = arith.mulf %l0, %c : f32
    %l1 = arith.addf %2, %p : f32
    affine.store %m1, %m[] : memref<f32>
    // expected-error@+1 {{cannot distribute loop i over its reductions: the element that S7 writes is not the same in every iteration}}
    affine.store %l1, %l[%j mod 2] : memref<2xf32>
  }
  return
}

// -----

// The maximum is that of a loop inside.
func.func @inside(%S: memref<16x4xf32>, %m: memref<4xf32> {attn.name = "m"}, %l: memref<4xf32> {attn.name = "l"}) {
  affine.for %j = 0 to 16 {
    affine.for %r = 0 to 4 {
      %s = affine.load %S[%j, %r] : memref<16x4xf32>
      %m0 = affine.load %m[%r] : memref<4xf32>
      %l0 = affine.load %l[%r] : memref<4xf32>
      %m1 = arith.maximumf %m0, %s : f32
      %0 = arith.subf %m0, %m1 : f32
      %c = math.exp %0 : f32
      %1 = arith.subf %s, %m1 : f32
      %p = math.exp %1 : f32
      %2 = arith.mulf %l0, %c : f32
      // expected-error@+1 {{cannot distribute loop i over its reductions: S5 reads the running value of m, which is updated in a loop inside}}
      %l1 = arith.addf %2, %p : f32
      affine.store %m1, %m[%r] : memref<4xf32>
      affine.store %l1, %l[%r] : memref<4xf32>
    }
  }
  return
}

// -----

// A running value that travels from iteration to iteration.
func.func @iter_args(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<f32> {attn.name = "l"}) -> f32 {
  %first = affine.load %m[] : memref<f32>
  // expected-error@+1 {{cannot distribute loop i over its reductions: it carries values in iter_args}}
  %r = affine.for %j = 0 to 16 iter_args(%m0 = %first) -> f32 {
    %s = affine.load %S[%j] : memref<16xf32>
    %l0 = affine.load %l[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m1 : f32
    %p = math.exp %1 : f32
    %2 = arith.mulf %l0, %c : f32
    %l1 = arith.addf %2, %p : f32
    affine.store %l1, %l[] : memref<f32>
    affine.yield %m1 : f32
  }
  return %r : f32
}

// -----

// The sum goes over a loop inside as well.
func.func @sum_over_two(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<f32> {attn.name = "l"}) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m1 : f32
    %p = math.exp %1 : f32
    affine.for %d = 0 to 4 {
      // expected-error@+1 {{cannot distribute loop i over its reductions: {S6, S7, S8} is carried by d as well, which is inside}}
      %l0 = affine.load %l[] : memref<f32>
      %2 = arith.mulf %l0, %c : f32
      %l1 = arith.addf %2, %p : f32
      affine.store %l1, %l[] : memref<f32>
    } {attn.loop = "d"}
    affine.store %m1, %m[] : memref<f32>
  }
  return
}

// -----

// No such loop.
// expected-error@+1 {{expected loops to distribute, got none named i}}
module {
func.func @none(%A: memref<8xf32>, %x: f32) {
  affine.for %i = 0 to 8 {
    affine.store %x, %A[%i] : memref<8xf32>
  } {attn.loop = "row"}
  return
}
}

// -----

// Other elements in each iteration.
func.func @triangle(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<16xf32> {attn.name = "l"}) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m1 : f32
    %p = math.exp %1 : f32
    // expected-error@+1 {{cannot distribute loop i over its reductions: the bounds of loop d are computed inside of it}}
    affine.for %d = 0 to affine_map<(j) -> (j)>(%j) {
      %l0 = affine.load %l[%d] : memref<16xf32>
      %2 = arith.mulf %l0, %c : f32
      %l1 = arith.addf %2, %p : f32
      affine.store %l1, %l[%d] : memref<16xf32>
    } {attn.loop = "d"}
    affine.store %m1, %m[] : memref<f32>
  }
  return
}

// -----

// An update in a loop that carries something else.
func.func @carried_inside(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<16xf32> {attn.name = "l"}) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m1 : f32
    %p = math.exp %1 : f32
    // expected-error@+1 {{cannot distribute loop i over its reductions: loop d carries values in iter_args}}
    %last = affine.for %d = 0 to 16 iter_args(%before = %p) -> f32 {
      %l0 = affine.load %l[%d] : memref<16xf32>
      %2 = arith.mulf %l0, %c : f32
      %l1 = arith.addf %2, %p : f32
      affine.store %l1, %l[%d] : memref<16xf32>
      affine.yield %l1 : f32
    } {attn.loop = "d"}
    affine.store %m1, %m[] : memref<f32>
  }
  return
}

// -----

// Read in one loop and written in another one.
func.func @two_places(%S: memref<16xf32>, %m: memref<f32> {attn.name = "m"}, %l: memref<16xf32> {attn.name = "l"}) {
  affine.for %j = 0 to 16 {
    %s = affine.load %S[%j] : memref<16xf32>
    %m0 = affine.load %m[] : memref<f32>
    %m1 = arith.maximumf %m0, %s : f32
    %0 = arith.subf %m0, %m1 : f32
    %c = math.exp %0 : f32
    %1 = arith.subf %s, %m1 : f32
    %p = math.exp %1 : f32
    %l0 = affine.load %l[0] : memref<16xf32>
    %2 = arith.mulf %l0, %c : f32
    %l1 = arith.addf %2, %p : f32
    affine.for %d = 0 to 1 {
      // expected-error@+1 {{cannot distribute loop i over its reductions: S4 and S6 are not the read and the write of one element}}
      affine.store %l1, %l[0] : memref<16xf32>
    } {attn.loop = "d"}
    affine.store %m1, %m[] : memref<f32>
  }
  return
}
