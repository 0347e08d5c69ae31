// RUN: attn-opt %s --attn-cuda-codegen | FileCheck %s
// What the device has no instruction for becomes arithmetic, on tiles too.
// CHECK-NOT: __nv_
// CHECK: fma.rn
gpu.module @m {
  gpu.func @functions(%x: memref<64x8xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %v = vector.load %x[%c0, %c0] : memref<64x8xf32>, vector<64x8xf32>
    %sin = math.sin %v : vector<64x8xf32>
    %cos = math.cos %sin : vector<64x8xf32>
    %erf = math.erf %cos : vector<64x8xf32>
    %log1p = math.log1p %erf : vector<64x8xf32>
    %expm1 = math.expm1 %log1p : vector<64x8xf32>
    vector.store %expm1, %x[%c0, %c0] : memref<64x8xf32>, vector<64x8xf32>
    gpu.return
  }
}
