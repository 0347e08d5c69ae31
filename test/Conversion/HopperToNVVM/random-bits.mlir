// RUN: attn-opt %s --split-input-file --pass-pipeline='builtin.module(gpu.module(convert-hopper-to-nvvm,canonicalize,cse))' | FileCheck %s
// A tile of 64 x 16 has 8 elements per thread. A call of the generator is 20 multiplications; one
// more is for the head.

// Keys are columns: one call for all, and a permutation of bytes for those at odd keys.
// CHECK-LABEL: gpu.func @columns
// CHECK-COUNT-40: arith.mului_extended
// CHECK-NOT: arith.mului_extended
// CHECK-COUNT-4: nvvm.prmt
// CHECK-NOT: nvvm.prmt
// CHECK: gpu.return
gpu.module @m {
  gpu.func @columns(%x: memref<64x16xi32>, %seed: i64, %b: index, %t: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %c16 = arith.constant 16 : index
    %first = arith.muli %t, %c16 : index
    %rows = vector.step : vector<64xindex>
    %columns = vector.step : vector<16xindex>
    %s = vector.broadcast %seed : i64 to vector<64x16xi64>
    %h = vector.broadcast %b : index to vector<64x16xindex>
    %f = vector.broadcast %first : index to vector<16xindex>
    %j0 = arith.addi %columns, %f : vector<16xindex>
    %j = vector.broadcast %j0 : vector<16xindex> to vector<64x16xindex>
    %i0 = vector.broadcast %rows : vector<64xindex> to vector<16x64xindex>
    %i = vector.transpose %i0, [1, 0] : vector<16x64xindex> to vector<64x16xindex>
    %bits = attn.random_bits %s, %s at %h, %h, %i, %j : vector<64x16xi32>
    vector.store %bits, %x[%c0, %c0] : memref<64x16xi32>, vector<64x16xi32>
    gpu.return
  }
}

// -----

// Keys are rows: one call, of every other query, and the words of the next row's lane.
// CHECK-LABEL: gpu.func @rows
// CHECK-COUNT-40: arith.mului_extended
// CHECK-NOT: arith.mului_extended
// CHECK-COUNT-4: nvvm.shfl.sync bfly
// CHECK-NOT: nvvm.shfl
// CHECK: gpu.return
gpu.module @m {
  gpu.func @rows(%x: memref<64x16xi32>, %seed: i64, %b: index, %t: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %rows = vector.step : vector<64xindex>
    %columns = vector.step : vector<16xindex>
    %s = vector.broadcast %seed : i64 to vector<64x16xi64>
    %h = vector.broadcast %b : index to vector<64x16xindex>
    %i = vector.broadcast %columns : vector<16xindex> to vector<64x16xindex>
    %j0 = vector.broadcast %rows : vector<64xindex> to vector<16x64xindex>
    %j = vector.transpose %j0, [1, 0] : vector<16x64xindex> to vector<64x16xindex>
    %bits = attn.random_bits %s, %s at %h, %h, %i, %j : vector<64x16xi32>
    vector.store %bits, %x[%c0, %c0] : memref<64x16xi32>, vector<64x16xi32>
    gpu.return
  }
}

// -----

// Positions that are no multiples: each element has a call of its own, less what they have in
// common in the first two rounds.
// CHECK-LABEL: gpu.func @anywhere
// CHECK-COUNT-151: arith.mului_extended
// CHECK-NOT: arith.mului_extended
// CHECK: gpu.return
gpu.module @m {
  gpu.func @anywhere(%x: memref<64x16xi32>, %seed: i64, %b: index, %t: index) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %rows = vector.step : vector<64xindex>
    %columns = vector.step : vector<16xindex>
    %s = vector.broadcast %seed : i64 to vector<64x16xi64>
    %h = vector.broadcast %b : index to vector<64x16xindex>
    %f = vector.broadcast %t : index to vector<16xindex>
    %j0 = arith.addi %columns, %f : vector<16xindex>
    %j = vector.broadcast %j0 : vector<16xindex> to vector<64x16xindex>
    %i0 = vector.broadcast %rows : vector<64xindex> to vector<16x64xindex>
    %i = vector.transpose %i0, [1, 0] : vector<16x64xindex> to vector<64x16xindex>
    %bits = attn.random_bits %s, %s at %h, %h, %i, %j : vector<64x16xi32>
    vector.store %bits, %x[%c0, %c0] : memref<64x16xi32>, vector<64x16xi32>
    gpu.return
  }
}
