// RUN: attn-opt %s --split-input-file --pass-pipeline='builtin.module(gpu.module(convert-hopper-to-nvvm))' --verify-diagnostics | FileCheck %s

!q = !tile.smem<64x64xbf16, swizzle = 128>
!k = !tile.smem<64x64xbf16, swizzle = 128>
!part = !tile.smem<64x32xbf16, swizzle = 128>

// Fragments of some columns of a slab: those in front of them are permuted with the chunk.
// CHECK-LABEL: gpu.func @columns
// CHECK: %[[MASK:.*]] = arith.andi %[[START:.*]], %c127_i32 : i32
// CHECK-NEXT: arith.subi %[[START]], %[[MASK]] : i32
// CHECK: %[[CHUNK:.*]] = arith.addi %{{.*}}, %[[MASK]] : i32
// CHECK: arith.xori %[[CHUNK]], %{{.*}} : i32
// Each fragment of the right operand serves two of the left one.
// CHECK: nvvm.ldmatrix {{.*}}layout = #nvvm.mma_layout<col>, num = 4
// CHECK-COUNT-4: nvvm.mma.sync {{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 16>
// CHECK: nvvm.ldmatrix
gpu.module @m {
  gpu.func @columns(%w: index, %out: memref<64x32xf32>) kernel attributes {known_block_size = array<i32: 64, 1, 1>} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant dense<0.0> : vector<64x32xf32>
    %q = hopper.alloc : !q
    %k = hopper.alloc : !k
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%own) {
        %part = tile.columns %k[%w] : !k -> !part
        %r = tile.mma %q, %part, %zero : !q, !part, vector<64x32xf32>
        vector.store %r, %out[%c0, %c0] : memref<64x32xf32>, vector<64x32xf32>
      }
    gpu.return
  }
}

// -----

!f = !tile.smem<64x64xf32, swizzle = 128>

// TF32: two numbers for each of f32, three products.
// CHECK-LABEL: gpu.func @tf32
// CHECK: cvt.rna.tf32.f32
// CHECK-COUNT-3: nvvm.mma.sync {{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 8>
gpu.module @m {
  gpu.func @tf32(%out: memref<64x64xf32>) kernel attributes {known_block_size = array<i32: 64, 1, 1>} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant dense<0.0> : vector<64x64xf32>
    %q = hopper.alloc : !f
    %k = hopper.alloc : !f
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%own) {
        %r = tile.mma %q, %k, %zero transposeB tf32(3) : !f, !f, vector<64x64xf32>
        vector.store %r, %out[%c0, %c0] : memref<64x64xf32>, vector<64x64xf32>
      }
    gpu.return
  }
}

// -----

!f = !tile.smem<64x64xf32, swizzle = 128>

gpu.module @m {
  gpu.func @registers(%v: memref<64x64xf32>, %out: memref<64x64xf32>) kernel attributes {known_block_size = array<i32: 64, 1, 1>} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant dense<0.0> : vector<64x64xf32>
    %k = hopper.alloc : !f
    hopper.roles
      role "compute" warpgroups(1) registers(240) (%own) {
        %p = vector.load %v[%c0, %c0] : memref<64x64xf32>, vector<64x64xf32>
        // expected-error @below {{of 'f32' expects its left operand in shared memory (hopper-stage-loads)}}
        %r = tile.mma %p, %k, %zero : vector<64x64xf32>, !f, vector<64x64xf32>
        vector.store %r, %out[%c0, %c0] : memref<64x64xf32>, vector<64x64xf32>
      }
    gpu.return
  }
}
