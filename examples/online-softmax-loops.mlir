// Online softmax attention over memrefs as thirteen statements, S1 to S13; see
// docs/dependence-engine.md. On entry m is -inf, l and O are 0.
//
// attn-opt examples/online-softmax-loops.mlir -attn-print-dependences -o /dev/null
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
