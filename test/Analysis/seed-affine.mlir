// RUN: attn-opt %s -attn-print-dependences -o /dev/null | FileCheck %s

// Online softmax attention as thirteen statements: S1 at i, S2..S7, S12 and S13
// at j, S8..S11 in the d loop.
// CHECK-LABEL: dependences of @attention
// CHECK-NEXT: statements:
// CHECK-NEXT:   S1 [i] load Q[i, 0]
// CHECK-NEXT:   S2 [i, j] load K[j, 0]
// CHECK-NEXT:   S3 [i, j] load m[i]
// CHECK-NEXT:   S4 [i, j] load l[i]
// CHECK-NEXT:   S5 [i, j] compute mulf reduction
// CHECK-NEXT:   S6 [i, j] compute maximumf
// CHECK-NEXT:   S7 [i, j] compute subf exp mulf subf exp addf
// CHECK-NEXT:   S8 [i, j, d] load O[i, d]
// CHECK-NEXT:   S9 [i, j, d] load V[j, d]
// CHECK-NEXT:   S10 [i, j, d] compute
// CHECK-NEXT:   S11 [i, j, d] store O[i, d]
// CHECK-NEXT:   S12 [i, j] store m[i]
// CHECK-NEXT:   S13 [i, j] store l[i]
func.func @attention(%Q: memref<5x4xf64> {attn.name = "Q"}, %K: memref<7x4xf64> {attn.name = "K"},
    %V: memref<7x3xf64> {attn.name = "V"}, %O: memref<5x3xf64> {attn.name = "O"},
    %m: memref<5xf64> {attn.name = "m"}, %l: memref<5xf64> {attn.name = "l"}) {
  affine.for %i = 0 to 5 {
    %q_i = affine.vector_load %Q[%i, 0] : memref<5x4xf64>, vector<4xf64>
    affine.for %j = 0 to 7 {
      %k_j = affine.vector_load %K[%j, 0] : memref<7x4xf64>, vector<4xf64>
      %m_i = affine.load %m[%i] : memref<5xf64>
      %l_i = affine.load %l[%i] : memref<5xf64>
      %qk = arith.mulf %q_i, %k_j : vector<4xf64>
      %S_ij = vector.reduction <add>, %qk : vector<4xf64> into f64
      %m_ij = arith.maximumf %m_i, %S_ij : f64
      %0 = arith.subf %m_i, %m_ij : f64
      %1 = math.exp %0 : f64
      %2 = arith.mulf %l_i, %1 : f64
      %3 = arith.subf %S_ij, %m_ij : f64
      %4 = math.exp %3 : f64
      %l_ij = arith.addf %2, %4 : f64
      affine.for %d = 0 to 3 {
        %o_id = affine.load %O[%i, %d] : memref<5x3xf64>
        %v_jd = affine.load %V[%j, %d] : memref<7x3xf64>
        // The old sum under the new maximum, over the new sum; then the new term.
        %5 = arith.subf %m_i, %m_ij : f64
        %6 = math.exp %5 : f64
        %7 = arith.mulf %l_i, %6 : f64
        %8 = arith.divf %7, %l_ij : f64
        %9 = arith.mulf %o_id, %8 : f64
        %10 = arith.subf %S_ij, %m_ij : f64
        %11 = math.exp %10 : f64
        %12 = arith.mulf %11, %v_jd : f64
        %13 = arith.divf %12, %l_ij : f64
        %o_ijd = arith.addf %9, %13 : f64
        affine.store %o_ijd, %O[%i, %d] : memref<5x3xf64>
      } {attn.loop = "d"}
      affine.store %m_ij, %m[%i] : memref<5xf64>
      affine.store %l_ij, %l[%i] : memref<5xf64>
    }
  }
  return
}

// Each component goes around j alone; i and d carry nothing.
// CHECK-NEXT: dependences:
// CHECK-NEXT:   RAW S1 -> S5 (0)
// CHECK-NEXT:   RAW S2 -> S5 (0, 0)
// CHECK-NEXT:   RAW S3 -> S6 (0, 0)
// CHECK:        RAW S10 -> S11 (0, 0, 0)
// CHECK-NEXT:   RAW S11 -> S8 (0, +, 0) carried by j through O
// CHECK-NEXT:   WAW S11 -> S11 (0, +, 0) carried by j through O
// CHECK-NEXT:   RAW S12 -> S3 (0, +) carried by j through m
// CHECK-NEXT:   WAW S12 -> S12 (0, +) carried by j through m
// CHECK-NEXT:   RAW S13 -> S4 (0, +) carried by j through l
// CHECK-NEXT:   WAW S13 -> S13 (0, +) carried by j through l
// CHECK-NEXT: components:
// CHECK-NEXT:   {S3, S6, S12} carried by j
// CHECK-NEXT:   {S4, S7, S13} carried by j
// CHECK-NEXT:   {S8, S10, S11} carried by j
// CHECK-NEXT: orders:
// CHECK-NEXT:   no vector forbids any order of i, j, d
// CHECK-NEXT: loops:
// CHECK-NEXT:   i: parallel
// CHECK-NEXT:   j: carries 9 dependences
// CHECK-NEXT:     to run {S3, S6, S12} with parallel j:
// CHECK-NEXT:       owner-computes: legal, one worker runs j in order; workers divide i
// CHECK-NEXT:       ordered-turnstile: legal, {S3, S6, S12} takes its turn in the order of j; {S2, S5, S9} carry nothing and run ahead or between
// CHECK-NEXT:       atomics: refused, S7 reads the running value of S3, which reordering changes
// CHECK-NEXT:       partial-and-merge: refused, S7 reads the running value of S3, which reordering changes, and there is no merge of two states
// CHECK-NEXT:       grid-phases: refused, S7 reads the running value of S3, which reordering changes
// CHECK-NEXT:       cluster-reduction: refused
// CHECK-NEXT:       distribution: legal, no cycle joins the nests {S2, S5}, {S3, S6, S12}, {S4, S7, S13}, {S9}, {S8, S10, S11};
// CHECK:          to run {S4, S7, S13} with parallel j:
// CHECK:          to run {S8, S10, S11} with parallel j:
// CHECK:        d: parallel
