// RUN: attn-opt %s --split-input-file --pass-pipeline='builtin.module(gpu.module(convert-hopper-to-nvvm,canonicalize,cse))' | FileCheck %s
// stmatrix: lane l gives row l % 8 of block l / 8; 16-byte chunks are XORed with
// the row modulo 8.

!t = !tile.smem<64x80xbf16, swizzle = 128>
// CHECK-LABEL: gpu.func @straight
// CHECK: %[[LANE:.*]] = arith.andi %{{.*}}, %c31_i32
// CHECK: %[[ROW8:.*]] = arith.andi %[[LANE]], %c7_i32
// (row * 128 >> 3) & 112
// CHECK: arith.shrui %{{.*}}, %c3_i32
// CHECK: %[[MASK:.*]] = arith.andi %{{.*}}, %c112_i32
// CHECK: %[[X:.*]] = arith.xori %{{.*}}, %[[MASK]]
// 16 columns are 32 bytes; column 64 is in the next slab of 64 * 128 bytes.
// CHECK: nvvm.stmatrix %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<row>
// CHECK: arith.xori %[[X]], %c32_i32
// CHECK: nvvm.stmatrix
// CHECK: arith.xori %[[X]], %c64_i32
// CHECK: nvvm.stmatrix
// CHECK: arith.xori %[[X]], %c96_i32
// CHECK: nvvm.stmatrix
// CHECK: arith.addi %{{.*}}, %c8192_i32
// CHECK: nvvm.stmatrix
// CHECK-NOT: nvvm.stmatrix
gpu.module @m {
  gpu.func @straight() kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %t = hopper.alloc : !t
    %v = arith.constant dense<1.0> : vector<64x80xbf16>
    tile.write %v to %t : vector<64x80xbf16>, !t
    gpu.return
  }
}

// -----

// Nothing needs the layout of an accumulator, and rows are whole multiples of 32 columns: a thread
// has 8 side by side, which it stores at once. Rows 8 apart are 1024 bytes apart; columns 32 to 63
// are 64 bytes further, those from 64 on in the next slab.
!t = !tile.smem<64x96xbf16, swizzle = 128>
// CHECK-LABEL: gpu.func @pieces
// CHECK-NOT: nvvm.stmatrix
// CHECK: %[[X:.*]] = arith.xori
// CHECK: %[[A:.*]] = arith.addi %{{.*}}, %[[X]]
// CHECK: %[[P:.*]] = llvm.inttoptr %[[A]]
// CHECK: llvm.store %{{.*}}, %[[P]] {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<3>
// CHECK: arith.addi %[[A]], %c1024_i32
// CHECK: llvm.store
// CHECK: arith.xori %[[X]], %c64_i32
// CHECK: llvm.store
// CHECK: llvm.store
// CHECK: arith.addi %[[A]], %c8192_i32
// CHECK: llvm.store
// CHECK: llvm.store
// CHECK-NOT: llvm.store
gpu.module @m {
  gpu.func @pieces() kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %t = hopper.alloc : !t
    %v = arith.constant dense<1.0> : vector<64x96xbf16>
    tile.write %v to %t : vector<64x96xbf16>, !t
    gpu.return
  }
}

// -----

// 24 columns: the last 8 by an x2. Transposed, 16 columns are 16 rows of 64 bytes.
!t = !tile.smem<24x64xf16, swizzle = 64>
// CHECK-LABEL: gpu.func @transposed
// CHECK: arith.andi %{{.*}}, %c48_i32
// CHECK: nvvm.stmatrix %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<col>{{.*}}} : !llvm.ptr<3>, i32, i32, i32, i32
// CHECK: arith.addi %{{.*}}, %c1024_i32
// CHECK: nvvm.stmatrix {{.*}} : !llvm.ptr<3>, i32, i32{{$}}
// CHECK-NOT: nvvm.stmatrix
gpu.module @m {
  gpu.func @transposed() kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %t = hopper.alloc : !t
    %v = arith.constant dense<1.0> : vector<64x24xf16>
    tile.write %v to %t transpose : vector<64x24xf16>, !t
    gpu.return
  }
}

// -----

// f32: two neighbours at once.
!t = !tile.smem<64x16xf32, swizzle = 64>
// CHECK-LABEL: gpu.func @words
// CHECK-COUNT-4: llvm.store %{{.*}}, %{{.*}} {alignment = 8 : i64} : vector<2xf32>, !llvm.ptr<3>
// CHECK-NOT: llvm.store
gpu.module @m {
  gpu.func @words() kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %t = hopper.alloc : !t
    %v = arith.constant dense<1.0> : vector<64x16xf32>
    tile.write %v to %t : vector<64x16xf32>, !t
    gpu.return
  }
}

// -----

!t = !tile.smem<16x64xf32, swizzle = 128>
// CHECK-LABEL: gpu.func @words_transposed
// CHECK-COUNT-8: llvm.store %{{.*}}, %{{.*}} : f32, !llvm.ptr<3>
// CHECK-NOT: llvm.store
gpu.module @m {
  gpu.func @words_transposed() kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %t = hopper.alloc : !t
    %v = arith.constant dense<1.0> : vector<64x16xf32>
    tile.write %v to %t transpose : vector<64x16xf32>, !t
    gpu.return
  }
}

// -----

// Back by ldmatrix, at the same places; the last 8 columns by an x2.
!t = !tile.smem<64x88xbf16, swizzle = 128>
// CHECK-LABEL: gpu.func @load
// CHECK-COUNT-5: nvvm.ldmatrix %{{.*}} {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<row>, num = 4 : i32
// CHECK: nvvm.ldmatrix {{.*}} num = 2 : i32
// CHECK-NOT: nvvm.ldmatrix
// CHECK: arith.extf
gpu.module @m {
  gpu.func @load(%x: memref<64x88xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %t = hopper.alloc : !t
    %v = tile.read %t : !t -> vector<64x88xbf16>
    %w = arith.extf %v : vector<64x88xbf16> to vector<64x88xf32>
    vector.transfer_write %w, %x[%c0, %c0] {in_bounds = [true, true]} : vector<64x88xf32>, memref<64x88xf32>
    gpu.return
  }
}

// -----

// A row of the value from a column of the tile.
!t = !tile.smem<88x64xbf16, swizzle = 128>
// CHECK-LABEL: gpu.func @load_transposed
// CHECK-COUNT-5: nvvm.ldmatrix %{{.*}} {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<col>, num = 4 : i32
// CHECK: nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<col>, num = 2 : i32
// CHECK-NOT: nvvm.ldmatrix
gpu.module @m {
  gpu.func @load_transposed(%x: memref<64x88xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %t = hopper.alloc : !t
    %v = tile.read %t transpose : !t -> vector<64x88xbf16>
    %w = arith.extf %v : vector<64x88xbf16> to vector<64x88xf32>
    vector.transfer_write %w, %x[%c0, %c0] {in_bounds = [true, true]} : vector<64x88xf32>, memref<64x88xf32>
    gpu.return
  }
}

// -----

// In the order of registers: 16 bytes of each thread side by side, and back.
!t = !tile.smem<64x24xf32>
// CHECK-LABEL: gpu.func @registers
// CHECK-COUNT-3: llvm.store %{{.*}}, %{{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<3>
// CHECK-NOT: llvm.store
// CHECK-COUNT-3: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xf32>
// CHECK-NOT: llvm.load
gpu.module @m {
  gpu.func @registers(%x: memref<64x24xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %t = hopper.alloc : !t
    %v = arith.constant dense<1.0> : vector<64x24xf32>
    tile.write %v to %t : vector<64x24xf32>, !t
    %w = tile.read %t : !t -> vector<64x24xf32>
    vector.transfer_write %w, %x[%c0, %c0] {in_bounds = [true, true]} : vector<64x24xf32>, memref<64x24xf32>
    gpu.return
  }
}
