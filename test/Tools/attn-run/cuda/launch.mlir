// The whole way to the driver, with one that only writes down what it is asked.
// RUN: rm -rf %t && mkdir -p %t
// RUN: env ATTNC_CUDA_DRIVER=%fake_cuda FAKE_CUDA_LOG=%t/log ATTNC_CACHE_DIR=%t/cache \
// RUN:   attn-run %s --target=cuda --shape 0=4x200 --shape 2=4x200 --fill 1=2 --fill 2=7 --output 2=%t/y.npy > %t/out
// RUN: FileCheck %s --check-prefix=OUT --input-file=%t/out
// RUN: FileCheck %s --check-prefix=LOG --input-file=%t/log
// A second process finds the program.
// RUN: env ATTNC_CUDA_DRIVER=%fake_cuda FAKE_CUDA_LOG=%t/log2 ATTNC_CACHE_DIR=%t/cache \
// RUN:   attn-run %s --target=cuda --shape 0=4x200 --shape 2=4x200 --json | FileCheck %s --check-prefix=JSON
// RUN: FileCheck %s --check-prefix=CACHED --implicit-check-not=compile --input-file=%t/log2
// What the cache holds is checked: damaged files are compiled again.
// RUN: for f in %t/cache/*; do echo x >> $f; done
// RUN: env ATTNC_CUDA_DRIVER=%fake_cuda FAKE_CUDA_LOG=%t/log3 ATTNC_CACHE_DIR=%t/cache \
// RUN:   attn-run %s --target=cuda --shape 0=4x200 --shape 2=4x200
// RUN: FileCheck %s --check-prefix=LOG --input-file=%t/log3
// Empty grids are not launched.
// RUN: env ATTNC_CUDA_DRIVER=%fake_cuda FAKE_CUDA_LOG=%t/log4 ATTNC_CACHE_DIR=%t/cache \
// RUN:   attn-run %s --target=cuda --shape 0=0x200 --shape 2=0x200
// RUN: FileCheck %s --check-prefix=EMPTY --implicit-check-not=launch --input-file=%t/log4
// A driver that cannot compile kernels side by side compiles them all the same.
// RUN: env ATTNC_CUDA_DRIVER=%fake_cuda FAKE_CUDA_LOG=%t/log5 FAKE_CUDA_OLD=1 ATTNC_CACHE_DIR= \
// RUN:   attn-run %s --target=cuda --shape 0=4x200 --shape 2=4x200
// RUN: FileCheck %s --check-prefix=OLD --input-file=%t/log5
// PTX needs no GPU, and no shapes: one text for both kernels.
// RUN: attn-run %s --emit=ptx | FileCheck %s --check-prefix=PTX

// OUT: ran 'scale' on cuda (Fake GPU)

// LOG: load
// LOG: attribute 8 of scale_kernel: 232448
// Zeros, x, y and the workspace, in units of 256 bytes.
// LOG: allocate buffer 0: 256 bytes
// LOG: allocate buffer 1: 3200 bytes
// LOG: allocate buffer 2: 3200 bytes
// LOG: allocate buffer 3: 3328 bytes
// LOG: launch scale_kernel grid 2 4 1 block 128 1 1 shared 0
// LOG-NEXT: buffer 1 + 0
// LOG-NEXT: buffer 1 + 0
// LOG-NEXT: 0
// LOG-NEXT: 4
// LOG-NEXT: 200
// LOG-NEXT: 200
// LOG-NEXT: 1
// LOG: buffer 3 + 0
// LOG: launch scale_kernel_0
// LOG: buffer 2 + 0

// CACHED: load

// JSON: "target": "cuda"
// JSON: "device": "Fake GPU"
// JSON: "workspace_bytes": 3328
// JSON: "warnings": [
// JSON-NEXT: "ptxas info : (C7510) Potential Performance Loss: fake"
// JSON: "registers": 168
// JSON: "program_cached": true

// EMPTY: load

// OLD: load: unknown option 34
// OLD-NEXT: load
// OLD: launch scale_kernel
// OLD: launch scale_kernel_0

// PTX: .version
// PTX-NOT: .version
// PTX: .visible .entry scale_kernel(
// PTX-NOT: .version
// PTX: .visible .entry scale_kernel_0(
// PTX-NOT: .version

func.func @scale(%x: memref<?x?xf32, strided<[?, 1]>>, %f: f32, %y: memref<?x?xf32, strided<[?, 1]>>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %n = memref.dim %x, %c0 : memref<?x?xf32, strided<[?, 1]>>
  %m = memref.dim %x, %c1 : memref<?x?xf32, strided<[?, 1]>>
  %blocks = arith.ceildivui %m, %c128 : index
  %t = memref.alloc(%n, %m) : memref<?x?xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %blocks, %gy = %n, %gz = %c1)
             threads(%tx, %ty, %tz) in (%dx = %c128, %dy = %c1, %dz = %c1) {
    %base = arith.muli %bx, %c128 : index
    %j = arith.addi %base, %tx : index
    %in = arith.cmpi ult, %j, %m : index
    scf.if %in {
      %v = memref.load %x[%by, %j] : memref<?x?xf32, strided<[?, 1]>>
      %w = arith.mulf %v, %f : f32
      memref.store %w, %t[%by, %j] : memref<?x?xf32>
    }
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %blocks, %gy = %n, %gz = %c1)
             threads(%tx, %ty, %tz) in (%dx = %c128, %dy = %c1, %dz = %c1) {
    %base = arith.muli %bx, %c128 : index
    %j = arith.addi %base, %tx : index
    %in = arith.cmpi ult, %j, %m : index
    scf.if %in {
      %v = memref.load %t[%by, %j] : memref<?x?xf32>
      %w = arith.addf %v, %f : f32
      memref.store %w, %y[%by, %j] : memref<?x?xf32, strided<[?, 1]>>
    }
    gpu.terminator
  }
  memref.dealloc %t : memref<?x?xf32>
  return
}
