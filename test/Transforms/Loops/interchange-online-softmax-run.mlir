// The thirteen statements of online softmax, in the order i, j, d that they are
// written in and after the interchange of i and j: both run, both give the same
// bits, and these are what float64 attention computed directly gives.
//
// DEFINE: %{lower} = mlir-opt -lower-affine -convert-scf-to-cf -convert-vector-to-llvm -convert-math-to-llvm \
// DEFINE:   -expand-strided-metadata -finalize-memref-to-llvm -convert-arith-to-llvm -convert-index-to-llvm \
// DEFINE:   -convert-func-to-llvm -convert-cf-to-llvm -reconcile-unrealized-casts
// DEFINE: %{execute} = mlir-runner -e main -entry-point-result=void -shared-libs=%mlir_lib_dir/libmlir_c_runner_utils.so
// RUN: attn-opt %s | %{lower} | %{execute} > %t.before
// RUN: attn-opt %s -pass-pipeline='builtin.module(attn-interchange-loops{order=j,i,d})' > %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: %{lower} %t.mlir | %{execute} > %t.after
// RUN: cmp %t.before %t.after
// RUN: %python %S/Inputs/check-attention.py %t.after
// The parallel form of i and d as well.
// RUN: attn-opt %s -pass-pipeline='builtin.module(attn-parallelize-loops{loops=i,d})' | %{lower} | %{execute} > %t.parallel
// RUN: cmp %t.before %t.parallel
// And a loop for the maximum, one for the sum and one for the output, which round differently.
// RUN: attn-opt %s -pass-pipeline='builtin.module(attn-distribute-reductions{loops=j})' | %{lower} | %{execute} > %t.distributed
// RUN: %python %S/Inputs/check-attention.py %t.distributed

// CHECK-LABEL: func @attention
// CHECK:       affine.for %[[J:.*]] = 0 to 7
// CHECK-NEXT:    affine.for %[[I:.*]] = 0 to 5
// CHECK-NEXT:      affine.vector_load %{{.*}}[%[[I]], 0]
// CHECK-NEXT:      affine.vector_load %{{.*}}[%[[J]], 0]
// CHECK:           affine.for %{{.*}} = 0 to 3
func.func @attention(%Q: memref<5x4xf64>, %K: memref<7x4xf64>, %V: memref<7x3xf64>,
    %O: memref<5x3xf64>, %m: memref<5xf64>, %l: memref<5xf64>) {
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

// A[r, c] = ((r * 5 + c * 3 + seed) * 7 mod 17 - 8) / 4
func.func private @fill(%A: memref<?x?xf64>, %seed: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %rows = memref.dim %A, %c0 : memref<?x?xf64>
  %columns = memref.dim %A, %c1 : memref<?x?xf64>
  %quarter = arith.constant 0.25 : f64
  affine.for %r = 0 to %rows {
    affine.for %c = 0 to %columns {
      %n = affine.apply affine_map<(r, c)[s] -> (((r * 5 + c * 3 + s) * 7) mod 17 - 8)>(%r, %c)[%seed]
      %i = arith.index_cast %n : index to i64
      %f = arith.sitofp %i : i64 to f64
      %x = arith.mulf %f, %quarter : f64
      affine.store %x, %A[%r, %c] : memref<?x?xf64>
    }
  }
  return
}

func.func @main() {
  %seed1 = arith.constant 1 : index
  %seed2 = arith.constant 2 : index
  %seed3 = arith.constant 3 : index
  %zero = arith.constant 0.0 : f64
  %ninf = arith.constant 0xFFF0000000000000 : f64
  %Q = memref.alloc() : memref<5x4xf64>
  %K = memref.alloc() : memref<7x4xf64>
  %V = memref.alloc() : memref<7x3xf64>
  %O = memref.alloc() : memref<5x3xf64>
  %m = memref.alloc() : memref<5xf64>
  %l = memref.alloc() : memref<5xf64>
  %Qd = memref.cast %Q : memref<5x4xf64> to memref<?x?xf64>
  %Kd = memref.cast %K : memref<7x4xf64> to memref<?x?xf64>
  %Vd = memref.cast %V : memref<7x3xf64> to memref<?x?xf64>
  call @fill(%Qd, %seed1) : (memref<?x?xf64>, index) -> ()
  call @fill(%Kd, %seed2) : (memref<?x?xf64>, index) -> ()
  call @fill(%Vd, %seed3) : (memref<?x?xf64>, index) -> ()
  affine.for %r = 0 to 5 {
    affine.store %ninf, %m[%r] : memref<5xf64>
    affine.store %zero, %l[%r] : memref<5xf64>
    affine.for %c = 0 to 3 {
      affine.store %zero, %O[%r, %c] : memref<5x3xf64>
    } {attn.loop = "column"}
  } {attn.loop = "row"}
  call @attention(%Q, %K, %V, %O, %m, %l) : (memref<5x4xf64>, memref<7x4xf64>, memref<7x3xf64>, memref<5x3xf64>, memref<5xf64>, memref<5xf64>) -> ()
  // The bits, so that nothing is lost by printing.
  affine.for %r = 0 to 5 {
    affine.for %c = 0 to 3 {
      %x = affine.load %O[%r, %c] : memref<5x3xf64>
      %bits = arith.bitcast %x : f64 to i64
      vector.print %bits : i64
    } {attn.loop = "column"}
  } {attn.loop = "row"}
  return
}
