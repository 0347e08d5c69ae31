// RUN: attn-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(gpu.module(convert-hopper-to-nvvm))'

gpu.module @m {
  // expected-error @below {{expects a known block size of whole warps, (32 * n, 1, 1) threads}}
  gpu.func @threads() kernel attributes {known_block_size = array<i32: 100, 1, 1>} {
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @warpgroups() kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    // expected-error @below {{has 3 warpgroups, the launch has 256 threads}}
    hopper.roles
      role "a" warpgroups(1) registers(24) (%w) {
      }
      role "b" warpgroups(2) registers(160) (%w) {
      }
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @memory() kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %a = hopper.alloc : !tile.smem<3x256x128xbf16, swizzle = 128>
    // expected-error @below {{the kernel needs 245760 bytes of shared memory, a CTA has 232448: !tile.smem<3x256x128xbf16, swizzle = 128> = 196608, !tile.smem<3x128x64xbf16, swizzle = 128> = 49152}}
    %b = hopper.alloc : !tile.smem<3x128x64xbf16, swizzle = 128>
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @shape(%x: memref<32x16xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    // expected-error @below {{has no layout in a warpgroup: tiles have 64 rows and a multiple of 8 columns, got 'vector<32x16xf32>'}}
    %v = vector.load %x[%c0, %c0] : memref<32x16xf32>, vector<32x16xf32>
    vector.store %v, %x[%c0, %c0] : memref<32x16xf32>, vector<32x16xf32>
    gpu.return
  }
}

// -----

// A row maximum along the columns: another thread has it.
gpu.module @m {
  gpu.func @both(%x: memref<64x64xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant dense<0.0> : vector<64xf32>
    %v = vector.load %x[%c0, %c0] : memref<64x64xf32>, vector<64x64xf32>
    // expected-error @below {{has a value per row, used as one per column}}
    %m = vector.multi_reduction <maxnumf>, %v, %zero [1] : vector<64x64xf32> to vector<64xf32>
    %w = vector.broadcast %m : vector<64xf32> to vector<64x64xf32>
    vector.store %w, %x[%c0, %c0] : memref<64x64xf32>, vector<64x64xf32>
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @reduction(%x: memref<64x64xf32>, %y: memref<64xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant dense<0.0> : vector<64xf32>
    %v = vector.load %x[%c0, %c0] : memref<64x64xf32>, vector<64x64xf32>
    // expected-error @below {{expects a reduction over dimension 1: rows are in different warps}}
    %m = vector.multi_reduction <add>, %v, %zero [0] : vector<64x64xf32> to vector<64xf32>
    vector.store %m, %y[%c0] : memref<64xf32>, vector<64xf32>
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @transpose(%x: memref<64x64xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %v = vector.load %x[%c0, %c0] : memref<64x64xf32>, vector<64x64xf32>
    // expected-error @below {{expects a broadcast: elements would have to change threads}}
    %t = vector.transpose %v, [1, 0] : vector<64x64xf32> to vector<64x64xf32>
    vector.store %t, %x[%c0, %c0] : memref<64x64xf32>, vector<64x64xf32>
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @constant(%x: memref<64x8xf32>, %i: memref<8xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    // expected-error @below {{is not supported in a kernel: only splats are}}
    %v = arith.constant dense<[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]> : vector<8xf32>
    vector.store %v, %i[%c0] : memref<8xf32>, vector<8xf32>
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @function(%x: memref<64x8xf64>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %v = vector.load %x[%c0, %c0] : memref<64x8xf64>, vector<64x8xf64>
    // expected-error @below {{on 'f64' has no implementation on the device}}
    %y = math.exp %v : vector<64x8xf64>
    vector.store %y, %x[%c0, %c0] : memref<64x8xf64>, vector<64x8xf64>
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @op(%x: memref<64x16xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %v = vector.load %x[%c0, %c0] : memref<64x16xf32>, vector<64x16xf32>
    // expected-error @below {{is not supported on tiles of a warpgroup}}
    %w = vector.insert_strided_slice %v, %v {offsets = [0, 0], strides = [1, 1]} : vector<64x16xf32> into vector<64x16xf32>
    vector.store %w, %x[%c0, %c0] : memref<64x16xf32>, vector<64x16xf32>
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @slice(%x: memref<128x16xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %v = vector.load %x[%c0, %c0] : memref<128x16xf32>, vector<64x16xf32>
    // expected-error @below {{expects all rows of a tile and whole groups of 8 columns}}
    %w = vector.extract_strided_slice %v {offsets = [0, 4], sizes = [64, 8], strides = [1, 1]} : vector<64x16xf32> to vector<64x8xf32>
    vector.store %w, %x[%c0, %c0] : memref<128x16xf32>, vector<64x8xf32>
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @atomic(%x: memref<?xi32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %one = arith.constant 1 : i32
    // expected-error @below {{expects a role of one thread: its result would differ in each thread}}
    %old = memref.atomic_rmw addi %one, %x[%c0] : (i32, memref<?xi32>) -> i32
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @form(%x: memref<64x64xbf16>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    // expected-error @below {{is not of the protocol form: lower channels and tiles first}}
    %t = tile.load %x[%c0, %c0] : memref<64x64xbf16> -> !tile.smem<64x64xbf16, swizzle = 128>
    gpu.return
  }
}
