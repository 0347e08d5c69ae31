// Online softmax attention, as in examples/online-softmax-loops.mlir, of f32.
func.func @main(%Q: memref<3x8xf32> {attn.name = "Q"}, %K: memref<70x8xf32> {attn.name = "K"},
    %V: memref<70x40xf32> {attn.name = "V"}, %O: memref<3x40xf32> {attn.name = "O"},
    %m: memref<3xf32> {attn.name = "m"}, %l: memref<3xf32> {attn.name = "l"}) {
  affine.for %i = 0 to 3 {
    %q_i = affine.vector_load %Q[%i, 0] : memref<3x8xf32>, vector<8xf32>
    affine.for %j = 0 to 70 {
      %k_j = affine.vector_load %K[%j, 0] : memref<70x8xf32>, vector<8xf32>
      %m_i = affine.load %m[%i] : memref<3xf32>
      %l_i = affine.load %l[%i] : memref<3xf32>
      %qk = arith.mulf %q_i, %k_j : vector<8xf32>
      %S_ij = vector.reduction <add>, %qk : vector<8xf32> into f32
      %m_ij = arith.maximumf %m_i, %S_ij : f32
      %0 = arith.subf %m_i, %m_ij : f32
      %1 = math.exp %0 : f32
      %2 = arith.mulf %l_i, %1 : f32
      %3 = arith.subf %S_ij, %m_ij : f32
      %4 = math.exp %3 : f32
      %l_ij = arith.addf %2, %4 : f32
      affine.for %d = 0 to 40 {
        %o_id = affine.load %O[%i, %d] : memref<3x40xf32>
        %v_jd = affine.load %V[%j, %d] : memref<70x40xf32>
        // The old sum under the new maximum, over the new sum; then the new term.
        %5 = arith.subf %m_i, %m_ij : f32
        %6 = math.exp %5 : f32
        %7 = arith.mulf %l_i, %6 : f32
        %8 = arith.divf %7, %l_ij : f32
        %9 = arith.mulf %o_id, %8 : f32
        %10 = arith.subf %S_ij, %m_ij : f32
        %11 = math.exp %10 : f32
        %12 = arith.mulf %11, %v_jd : f32
        %13 = arith.divf %12, %l_ij : f32
        %o_ijd = arith.addf %9, %13 : f32
        affine.store %o_ijd, %O[%i, %d] : memref<3x40xf32>
      } {attn.loop = "d"}
      affine.store %m_ij, %m[%i] : memref<3xf32>
      affine.store %l_ij, %l[%i] : memref<3xf32>
    }
  }
  return
}
